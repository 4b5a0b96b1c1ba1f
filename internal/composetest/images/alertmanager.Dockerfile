FROM packages
RUN mkdir /alertmanager && chown 65534:65534 /alertmanager
USER 65534:65534
VOLUME /alertmanager
WORKDIR /alertmanager
ENTRYPOINT ["prometheus-alertmanager"]
