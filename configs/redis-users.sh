#!/bin/sh
# Fills in configs/redis-users.acl (standard input) for redis-server --aclfile
# (standard output). The passwords come from REDIS_GATEWAY_PASSWORD,
# REDIS_WORKER_PASSWORD, REDIS_REPORTING_PASSWORD, REDIS_BACKUP_PASSWORD and
# REDIS_OPERATOR_PASSWORD; only their SHA-256 is written. ENVIRONMENT is
# production or sandbox. Needs awk, sed and sha256sum, which the image of Redis has.
set -eu
case "${ENVIRONMENT:?}" in
production) letter=p ;;
sandbox) letter=s ;;
*) echo "ENVIRONMENT is neither production nor sandbox" >&2; exit 1 ;;
esac
sum() { printf %s "$1" | sha256sum | cut -d ' ' -f 1; }
rules=$(awk '/^ *#/ || /^ *$/ { next } /^ / { sub(/^ +/, " "); line = line $0; next } { if (line != "") print line; line = $0 } END { print line }')
for user in GATEWAY WORKER REPORTING BACKUP OPERATOR; do
	eval "password=\${REDIS_${user}_PASSWORD:?}"
	rules=$(printf '%s\n' "$rules" | sed "s/#${user}_SHA256/#$(sum "$password")/")
done
printf '%s\n' "$rules" | sed "s/{ENV/{$letter/g"
