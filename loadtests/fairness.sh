#!/bin/sh
# The latency of one tenant, alone and beside a neighbour that sends ten times what it may: starts a server with two brokers of two
# tenants, limits one of them, and runs `mqttload fairness`. More arguments go to that.
#
#   LIMIT=5000 loadtests/fairness.sh --qos 1 --seconds 20
set -eu

cd "$(dirname "$0")/.."
bin=${BIN:-${CARGO_TARGET_DIR:-target}/release}
limit=${LIMIT:-5000}
port=${PORT:-$((20000 + $$ % 10000))}
http=127.0.0.1:$((port + 1))
api=http://$http/api/v1
folder=$(mktemp -d)

"$bin/millrace" serve --data-dir "$folder/data" --mqtt-listen off --ws-listen off --gateway-listen "127.0.0.1:$port" \
    --gateway-from 127.0.0.1/32 --http-listen "$http" --sign-up anybody > "$folder/log" 2>&1 &
server=$!
trap 'kill $server; wait $server || true; rm -rf "$folder"' EXIT
until curl -fs "http://$http/healthz" > /dev/null; do
    kill -0 $server || { cat "$folder/log"; exit 1; }
    sleep 0.1
done

# The text of a field of the JSON in standard input.
field() {
    sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" | head -1
}

# Makes a tenant with a broker that lets everybody in; its limits are $2. Says its server name.
tenant() {
    jar=$folder/$1
    said=$(curl -fsS -c "$jar" "$api/sign-up" --json \
        "{\"email\":\"$1@example.org\",\"password\":\"a sentence for nobody\",\"name\":\"$1\"}")
    csrf=$(printf %s "$said" | field csrf_token)
    brokers=$api/organisations/$(curl -fsS -b "$jar" "$api/organisations" | field id)/brokers
    ask() { curl -fsS -b "$jar" -H "X-CSRF-Token: $csrf" -H 'If-Match: *' "$@"; }
    name=$(ask "$brokers" --json "{\"display_name\":\"$1\"}" | field name)
    ask -X PUT "$brokers/$name/access" --json '{"anonymous":true}' > /dev/null
    ask -X PATCH "$brokers/$name" --json "{\"limits\":$2}" > /dev/null
    echo "$name.mqtt.test"
}

steady=$(tenant steady '{}')
neighbour=$(tenant neighbour "{\"broker\":{\"publishes_per_s\":$limit}}")
"$bin/mqttload" fairness --gateway-port "$port" --steady "$steady" --neighbour "$neighbour" --limit "$limit" "$@"
