#!/bin/sh
# Measures what an authenticated CONNECT costs. Starts a server with a tenant's broker and 100
# credentials, and runs `mqttload run connect` with these credentials, then without any on a broker
# that admits anonymous clients. Further arguments go to `mqttload`.
#
#   loadtests/authenticated.sh --connects 60000
set -eu
. "$(dirname "$0")/service.sh"

connect() {
    "$bin/mqttload" run connect --pid "$server" --port "$port" "$@"
}

serve --mqtt-listen "127.0.0.1:$port" --allow-anonymous
tenant devices
for number in $(seq 100); do
    secret=$(ask "$broker/credentials" --json "{\"user\":\"pump-$number\"}" | field secret)
    echo "$name/pump-$number $secret"
done > "$folder/credentials"
echo "with a generated secret"
connect --credentials "$folder/credentials" "$@"
echo "without any"
connect "$@"
