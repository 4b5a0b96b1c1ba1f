#!/bin/sh
# As the public images' entry point: root owns nothing of the data and runs no server.
set -e
case $1 in
redis-server | valkey-server)
    if [ "$(id -u)" = 0 ]; then
        find . \! -user 999 -exec chown 999 '{}' +
        exec setpriv --reuid=999 --regid=1000 --clear-groups -- "$0" "$@"
    fi ;;
esac
[ "$(umask)" != 0022 ] || umask 0077
exec "$@"
