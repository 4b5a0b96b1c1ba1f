FROM packages
USER 65534:65534
ENTRYPOINT ["prometheus-node-exporter"]
