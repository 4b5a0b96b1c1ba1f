# The commands of docs/runbook.md, for sh and bash. Source this file in the folder of the project:
#
#   . configs/prometheus/runbook.sh            finds out which system it talks to
#   . configs/prometheus/runbook.sh compose    docker-compose.yml, on its host
#   . configs/prometheus/runbook.sh run        make run; its folder is DATA_DIR, .data by default
#
# dash passes no argument to a file that is sourced; there `set -- compose` goes before it. It defines
# functions and the variables of .env or demo.env, and changes nothing. Elsewhere the same functions
# with other addresses do: copy this file and change them.

if [ -n "${ZSH_VERSION:-}" ]; then
    echo "runbook.sh: start bash or sh first, zsh reads some of it differently" >&2
    return 1
fi
case ${0##*/} in
runbook.sh)
    echo "runbook.sh: source it, so that its functions stay: . configs/prometheus/runbook.sh" >&2
    exit 1
    ;;
esac
if [ ! -e docker-compose.yml ]; then
    echo "runbook.sh: go to the folder of the project first, which has docker-compose.yml" >&2
    return 1
fi

DATA_DIR=${DATA_DIR:-.data}

# runbook_finds prints which system there is: by the files that make env and make run write, and
# where both are there, by what runs.
runbook_finds() {
    if [ -e .env ] && [ ! -e "$DATA_DIR/demo.env" ]; then
        echo compose
        return
    fi
    if [ ! -e .env ] && [ -e "$DATA_DIR/demo.env" ]; then
        echo run
        return
    fi
    if [ ! -e .env ]; then
        echo "runbook.sh: there is neither .env, which make env writes, nor $DATA_DIR/demo.env, which make run writes" >&2
        return 1
    fi

    runbook_compose=$(docker compose ps -q 2>/dev/null </dev/null)
    runbook_run=$(pgrep -P "$(cat "$DATA_DIR/lock" 2>/dev/null)" 2>/dev/null)
    if [ -n "$runbook_compose" ] && [ -z "$runbook_run" ]; then
        echo compose
        return
    fi
    if [ -z "$runbook_compose" ] && [ -n "$runbook_run" ]; then
        echo run
        return
    fi
    echo "runbook.sh: .env and $DATA_DIR/demo.env are both there: say compose or run, as in . configs/prometheus/runbook.sh compose" >&2
    return 1
}

case ${1:-} in
compose | run) RUNBOOK=$1 ;;
"") RUNBOOK=$(runbook_finds) || return 1 ;;
*)
    echo "runbook.sh: $1 is neither compose nor run" >&2
    return 1
    ;;
esac

# Functions of docker-compose.yml. Each reads nothing from the terminal, so that a line that was pasted
# behind it is not lost.
runbook_for_compose() {
    . ./.env                        # what make env wrote
    BASE_URL=http://127.0.0.1:8080  # the Vendor API, through the balancer
    OPS_URL=http://127.0.0.1:8081   # the admin API, through the balancer
    RUNBOOK_SYSTEM="docker-compose.yml on this host"

    # addresses prints the private listeners of a kind of program.
    addresses() {
        case $1 in
        gateway) echo 127.0.0.1:8181 127.0.0.1:8281 ;;
        worker) echo 127.0.0.1:8082 127.0.0.1:8092 ;;
        reporting) echo 127.0.0.1:8083 ;;
        esac
    }

    programs() { docker compose ps -a; }

    logs() (
        services=
        for name in "$@"; do
            case $name in
            gateway | worker) services="$services $name-1 $name-2" ;;
            *) services="$services $name" ;;
            esac
        done
        docker compose logs --since 30m $services 2>&1
    )

    check() {
        docker compose run --rm -T --no-deps gateway-1 /gateway --check-config --config /configs/gateway.yaml
        docker compose run --rm -T --no-deps worker-1 /worker --check-config --config /configs/worker.yaml
        docker compose run --rm -T --no-deps reporting /reporting serve --check-config --config /configs/reporting.yaml
    } </dev/null

    redis() {
        docker compose exec -T redis sh -c 'REDISCLI_AUTH=$REDIS_OPERATOR_PASSWORD exec valkey-cli --user operator "$@"' valkey-cli "$@" </dev/null
    }

    clickhouse() {
        docker compose exec -T clickhouse sh -c 'wget -q -O - --header "X-ClickHouse-User: $CLICKHOUSE_USER" \
            --header "X-ClickHouse-Key: $CLICKHOUSE_PASSWORD" "http://127.0.0.1:8123/$1"' sh "$1" </dev/null
    }

    clickhouse_do() {
        docker compose exec -T clickhouse sh -c 'wget -q -O - --post-data "$1" --header "X-ClickHouse-User: $CLICKHOUSE_USER" \
            --header "X-ClickHouse-Key: $CLICKHOUSE_PASSWORD" http://127.0.0.1:8123/' sh "$1" </dev/null
    }

    reporting() { docker compose exec -T -w / reporting /reporting "$@" </dev/null; }

    balancer() {
        docker compose exec -T balancer wget -q -O - http://127.0.0.1:8405/metrics </dev/null | grep -E "^haproxy_$1"
    }

    clients() {
        docker compose exec -T balancer netstat -tn </dev/null | awk '$6 == "ESTABLISHED" { print $4, $5 }' |
            sed 's/:[0-9]*$//' | sort | uniq -c | sort -rn | head
    }
}

# Functions of make run.
runbook_for_run() {
    . "$DATA_DIR/demo.env" # addresses and keys
    RUNBOOK_SYSTEM="make run in $DATA_DIR"

    addresses() {
        case $1 in
        gateway) echo "${OPS_URL#http://}" ;;
        worker) echo "${WORKER_OPS_ADDR:-127.0.0.1:8082}" ;;
        reporting) echo "${REPORTING_OPS_ADDR:-127.0.0.1:8083}" ;;
        esac
    }

    programs() { pgrep -a -P "$(cat "$DATA_DIR/lock")"; } # of this DATA_DIR; of a run that has ended none

    logs() (
        [ $# -gt 0 ] || set -- gateway worker reporting redis
        for name in "$@"; do
            find "$DATA_DIR/logs" "$DATA_DIR/redis" -name "${name%-1}.log" -exec tail -n 5000 {} +
        done
    )

    check() (
        "$DATA_DIR/bin/run" -check-config
        keys=$DATA_DIR/keys
        export ENVIRONMENT=sandbox TOKEN_KEYS_FILE="$keys/token-keys" TRACKING_KEYS_FILE="$keys/tracking-keys" WEBHOOK_KEYS_FILE="$keys/webhook-keys" \
            ADMIN_KEY_FILE="$keys/admin-key" PANEL_USERS_FILE="$keys/panel-users" REPORT_TOKENS_FILE="$keys/report-tokens" BOOKS_KEYS_FILE="$keys/books-keys"
        "$DATA_DIR/bin/gateway" --check-config --config configs/gateway.yaml
        "$DATA_DIR/bin/worker" --check-config --config configs/worker.yaml
        "$DATA_DIR/bin/reporting" serve --check-config --config configs/reporting.yaml
    )

    redis() {
        REDISCLI_AUTH=$(cat "$DATA_DIR/keys/redis-operator") "${SERVER:-redis}-cli" ${REDIS_CA_FILE:+--cacert "$REDIS_CA_FILE"} \
            -u "${RUN_REDIS_URL%%//*}//${RUN_REDIS_URL##*@}" --user operator "$@"
    }

    clickhouse() { curl -s "$CLICKHOUSE_URL/$1"; }

    clickhouse_do() { curl -s --data-binary "$1" "$RUN_CLICKHOUSE_URL/"; }

    reporting() {
        REDIS_URL=$RUN_REDIS_URL REDIS_CA_FILE=${REDIS_CA_FILE:-} CLICKHOUSE_URL=$RUN_CLICKHOUSE_URL ENVIRONMENT=sandbox PANEL_URL=$PANEL_URL \
            PANEL_USERS_FILE="$DATA_DIR/keys/panel-users" BOOKS_KEYS_FILE="$DATA_DIR/keys/books-keys" "$DATA_DIR/bin/reporting" "$@"
    }

    balancer() { echo "make run has no balancer"; }

    clients() {
        ss -Htn state established "( sport = :${BASE_URL##*:} )" | awk '{ print $3, $4 }' |
            sed 's/:[0-9]*$//' | sort | uniq -c | sort -rn | head
    }
}

case $RUNBOOK in
compose) runbook_file=.env ;;
run) runbook_file=$DATA_DIR/demo.env ;;
esac
if [ ! -e "$runbook_file" ]; then
    echo "runbook.sh: there is no $runbook_file" >&2
    return 1
fi
runbook_for_$RUNBOOK

# Functions of both.

ready() (
    for program in gateway worker reporting; do
        for at in $(addresses $program); do
            answer=$(curl -s -m 5 -w ' %{http_code}' "http://$at/readyz") || answer="does not answer"
            echo "$program $at" $answer
        done
    done
)

metric() (
    for at in $(addresses "$1"); do
        if ! metrics=$(curl -s -m 5 "http://$at/metrics"); then
            echo "$at does not answer"
            continue
        fi
        printf '%s\n' "$metrics" | grep -E "^$2" | sed "s/^/$at /"
    done
)

admin() (
    at=$1
    shift
    curl -s -m 10 -H "Authorization: Bearer ${ADMIN_KEY%%,*}" -H 'Content-Type: application/json' "$@" "$OPS_URL/api/admin/v1/$at"
    echo
)

cat <<LIST
$RUNBOOK_SYSTEM:
  programs             what runs; with docker-compose.yml also what has stopped
  ready                whether each program is ready, and if not why
  metric PROGRAM NAME  figures of every gateway, worker or reporting whose names begin so
  logs PROGRAM ...     the last half hour of gateway, worker, reporting, redis, ...; of all without a name
  check                whether settings and secrets are right; starts nothing
  redis COMMAND        a command of Redis, as the user operator
  clickhouse ping      whether ClickHouse answers; clickhouse '?query=...' asks it something
  clickhouse_do SQL    a statement that changes something in ClickHouse
  reporting COMMAND    a command of reporting, such as reconcile, month, audit
  admin PATH ...       the admin API; what follows are options of curl
  balancer NAME        the balancer's figures whose names begin so, without haproxy_
  clients              open connections from outside, by listener and address, most first
  addresses PROGRAM    where the private listeners of gateway, worker or reporting are
LIST
unset RUNBOOK_SYSTEM runbook_file
unset -f runbook_finds runbook_for_compose runbook_for_run
