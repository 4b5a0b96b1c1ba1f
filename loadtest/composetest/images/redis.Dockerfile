# Debian's Redis, with the user, the folder and the start of the public Alpine image.
FROM packages
RUN mkdir /data && chown 999:1000 /data
COPY redis-entrypoint.sh /usr/local/bin/docker-entrypoint.sh
VOLUME /data
WORKDIR /data
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["redis-server"]
