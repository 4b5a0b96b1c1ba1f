#!/bin/sh
# As the public image has it: haproxy is added before an option, and stays in the foreground.
set -e
[ "${1#-}" = "$1" ] || set -- haproxy "$@"
if [ "$1" = haproxy ]; then
    shift
    set -- haproxy -W -db "$@"
fi
exec "$@"
