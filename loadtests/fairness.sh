#!/bin/sh
# Measures the latency of one tenant, alone and beside a neighbour that sends ten times its limit.
# Starts a server with brokers of two tenants, limits one of them, and runs `mqttload fairness`.
# Further arguments go to `mqttload`.
#
#   LIMIT=5000 loadtests/fairness.sh --qos 1 --seconds 20
set -eu
. "$(dirname "$0")/service.sh"
limit=${LIMIT:-5000}

# Makes a tenant with a limited broker that admits anonymous clients; prints its server name.
open_broker() {
    tenant "$1"
    ask -X PUT "$broker/access" --json '{"anonymous":true}' > /dev/null
    ask -X PATCH "$broker" --json "{\"limits\":$2}" > /dev/null
    echo "$name.mqtt.test"
}

serve --mqtt-listen off --gateway-listen "127.0.0.1:$port" --gateway-from 127.0.0.1/32 --allow-anonymous=false
steady=$(open_broker steady '{}')
neighbour=$(open_broker neighbour "{\"broker\":{\"publishes_per_s\":$limit}}")
"$bin/mqttload" fairness --gateway-port "$port" --steady "$steady" --neighbour "$neighbour" --limit "$limit" "$@"
