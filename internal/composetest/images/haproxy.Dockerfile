# Debian's haproxy, with the user and the way to stop of the public image.
FROM packages
USER 99:99
STOPSIGNAL SIGUSR1
ENTRYPOINT ["haproxy", "-W", "-db"]
CMD ["-f", "/usr/local/etc/haproxy/haproxy.cfg"]
