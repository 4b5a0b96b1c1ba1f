# Debian's Valkey, as redis.Dockerfile; the public image has links of Redis's names, too.
FROM packages
RUN mkdir /data && chown 999:1000 /data && for program in server cli check-aof check-rdb; do \
    ln -sf valkey-$program /usr/bin/redis-$program; done
COPY redis-entrypoint.sh /usr/local/bin/docker-entrypoint.sh
VOLUME /data
WORKDIR /data
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["valkey-server"]
