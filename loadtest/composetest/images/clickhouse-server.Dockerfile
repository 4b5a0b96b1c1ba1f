# A stand-in: internal/devclickhouse, whose engine is ClickHouse's own, listens on
# loopback and knows no user; haproxy before it has the server's port, user and password.
# The program and its library are mounted below /opt.
FROM packages
COPY clickhouse.cfg /etc/clickhouse.cfg
COPY clickhouse-client /usr/bin/
RUN mkdir /var/lib/clickhouse && chown 101:101 /var/lib/clickhouse
VOLUME /var/lib/clickhouse
USER 101:101
ENV CHDB_LIBRARY=/opt/libchdb.so
CMD ["sh", "-ec", "haproxy -D -f /etc/clickhouse.cfg; ENGINE_KEY=$CLICKHOUSE_PASSWORD exec /opt/devclickhouse -addr 127.0.0.1:8124 -data /var/lib/clickhouse"]
