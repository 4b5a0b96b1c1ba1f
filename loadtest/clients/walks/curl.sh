#!/bin/sh
# The walk with curl. STREAM=1 sends bodies from a pipe, without a length.
set -eu
api=$BASE_URL/api/vendor/v1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# call METHOD PATH [BODY [HEADER…]]: prints the status; the answer is in $dir/body.
call() {
    method=$1 path=$2 body=${3-}
    shift $(($# < 3 ? $# : 3))
    for header; do set -- "$@" -H "$header"; shift; done
    [ -z "${token-}" ] || set -- "$@" -H "Authorization: Bearer $token"
    set -- "$@" -sS -o "$dir/body" -w '%{http_code} %{http_version}' -X "$method" "$api$path"
    if [ -z "$body" ]; then
        curl "$@"
    elif [ -n "${STREAM-}" ]; then
        printf %s "$body" | curl "$@" -H 'Content-Type: application/json' -T -
    else
        curl "$@" -H 'Content-Type: application/json' -d "$body"
    fi >"$dir/status"
    cut -d' ' -f1 "$dir/status"
}
field() { sed 's/.*"'"$1"'":"\([^"]*\)".*/\1/' "$dir/body"; }
want() {
    [ "$2" = "$3" ] || { echo "$1 answered $3: $(cat "$dir/body")" >&2; exit 1; }
}

want token 200 "$(call POST /token "{\"clientId\":\"$CLIENT_ID\",\"clientSecret\":\"$CLIENT_SECRET\"}")"
token=$(field accessToken)

store='"taxNumber":"1234567890","name":"Moda Şubesi","phone":"02165550011","address":{"text":"Moda Caddesi No: 1, Kadıköy","latitude":40.9816,"longitude":29.0258}'
want store 200 "$(call PUT /stores/moda "{$store}")"
fleet=$(sed 's/.*"availableFleets":\[{"fleetId":"\([^"]*\)".*/\1/' "$dir/body")
want 'store with a fleet' 200 "$(call PUT /stores/moda "{$store,\"fleetId\":\"$fleet\"}")"
until grep -q '"status":"Active"' "$dir/body"; do
    sleep 0.3
    want store 200 "$(call PUT /stores/moda "{$store}")"
done

order() {
    echo "{\"externalStoreId\":\"moda\",\"externalOrderId\":\"$1\",\"recipient\":{\"name\":\"Ayşe Kaya\",\"phone\":\"05321234567\"},\"dropoff\":{\"text\":\"Bahariye Caddesi No: 2, Kadıköy\",\"latitude\":40.9880,\"longitude\":29.0300},\"packageNote\":\"$2\"}"
}
want order 201 "$(call POST /orders "$(order A-1 '')" 'Idempotency-Key: A-1')"
delivered=$(field orderId)
want 'the order again' 201 "$(call POST /orders "$(order A-1 '')" 'X-Idempotency-Key: A-1')"
[ "$delivered" = "$(field orderId)" ] || { echo "the order again is $(field orderId), not $delivered" >&2; exit 1; }

want 'second order' 201 "$(call POST /orders "$(order A-2 SIM:HOLD=Assigned)" 'Idempotency-Key: A-2')"
cancelled=$(field orderId)
want cancel 200 "$(call POST "/orders/$cancelled/cancel")"

sleep 4
until want read 200 "$(call GET "/orders/$delivered")" && [ "$(sed 's/.*"status":"\([^"]*\)".*"events".*/\1/' "$dir/body")" = Delivered ]; do sleep 10; done
echo "$delivered $cancelled HTTP/$(cut -d' ' -f2 "$dir/status")"
