FROM packages
# The public image has the program at /bin/alertmanager.
RUN mkdir /alertmanager && chown 65534:65534 /alertmanager && ln -sf /usr/bin/prometheus-alertmanager /bin/alertmanager
USER 65534:65534
VOLUME /alertmanager
WORKDIR /alertmanager
ENTRYPOINT ["prometheus-alertmanager"]
