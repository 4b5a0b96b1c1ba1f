#!/bin/sh
# Writes fresh keys for docker-compose.yml to .env of the current folder, once, and with "yes" as
# second argument a certificate of localhost for its balancer. `make env` calls it.
#
#   env.sh sandbox|production [yes]
#   env.sh "" yes                      adds the certificate to the .env that is there
set -eu
environment=$1
certificate=${2:-}

fail() {
	echo "env: $*" >&2
	exit 1
}

# key prints a key of 32 random bytes in base64.
key() { head -c 32 /dev/urandom | base64 | tr -d '\n'; }

# hex prints 32 random bytes in hexadecimal, for what stands in a URL or a header.
hex() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }

write_keys() {
	umask 077
	token=$(hex)
	{
		echo "ENVIRONMENT=$environment"
		for user in GATEWAY WORKER REPORTING BACKUP OPERATOR; do
			echo "REDIS_${user}_PASSWORD=$(hex)"
		done
		for keys in TOKEN_KEYS TRACKING_KEYS WEBHOOK_KEYS BOOKS_KEYS; do
			echo "$keys=k1:$(key)"
		done
		echo "ADMIN_KEY=$(hex)"
		echo "CLICKHOUSE_PASSWORD=$(hex)"
		echo "REPORTS_TOKEN=$token"
		echo "REPORT_TOKENS=compose:finance:sha256:$(printf %s "$token" | sha256sum | cut -d ' ' -f 1)"
		echo "GRAFANA_PASSWORD=$(hex)"
	} >.env

	echo "wrote .env for ENVIRONMENT=$environment"
	if [ "$environment" = production ]; then
		echo "production does not start before .env has TRACKING_BASE_URL=https://…/track (docs/configuration.md)"
	fi
}

# write_certificate makes a self-signed certificate of localhost, good for a month.
write_certificate() {
	sh "$(dirname "$0")/../internal/stack/deps.sh" openssl
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost \
		-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout .certificate.key -out .certificate.pem 2>/dev/null
	cat .certificate.key >>.certificate.pem
	rm .certificate.key
	chmod 644 .certificate.pem # haproxy is another user in its container

	echo "BALANCER_CERTIFICATE=./.certificate.pem" >>.env
	echo "wrote .certificate.pem"
}

case "$environment" in
sandbox | production)
	[ ! -e .env ] || fail ".env is there already"
	;;
"")
	[ -n "$certificate" ] ||
		fail "say which: make env ENVIRONMENT=sandbox (a courier is played and no order is real) or make env ENVIRONMENT=production"
	[ -e .env ] || fail "there is no .env yet, so ENVIRONMENT=sandbox or production is needed, too"
	;;
*)
	fail "say which: make env ENVIRONMENT=sandbox (a courier is played and no order is real) or make env ENVIRONMENT=production"
	;;
esac
case "$certificate" in
"") ;;
yes) [ ! -e .certificate.pem ] || fail ".certificate.pem is there already" ;;
*) fail "CERTIFICATE is yes or empty, not $certificate" ;;
esac

[ -z "$environment" ] || write_keys
[ -z "$certificate" ] || write_certificate
