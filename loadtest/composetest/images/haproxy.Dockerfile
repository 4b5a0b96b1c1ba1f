# Debian's haproxy, with the user, the commands and the way to stop of the public image.
FROM packages
COPY haproxy-entrypoint.sh /usr/bin/
RUN ln -s /bin/busybox /usr/bin/netstat
USER 99:99
STOPSIGNAL SIGUSR1
ENTRYPOINT ["haproxy-entrypoint.sh"]
CMD ["-f", "/usr/local/etc/haproxy/haproxy.cfg"]
