#!/bin/sh
# Measures the latency of one tenant, alone and beside a neighbour that tries ten times its limit.
# Starts a server with one event loop and brokers of two tenants, limits the neighbour, and runs
# `mqttload fairness --check` for each kind of work. Fails if a kind misses the goal.
# Further arguments go to `mqttload`. service.sh has `serve`, `tenant` and `ask`, and sets $bin, $port,
# $server, and for the last tenant $broker and $name.
#
#   loadtests/fairness.sh                                              # publishes
#   KIND=all loadtests/fairness.sh                                     # all kinds
#   KIND=connects LIMIT=500 loadtests/fairness.sh --rounds 5 --seconds 2
#   ENFORCE=no loadtests/fairness.sh                                   # without the product's limit: must fail
set -eu
. "$(dirname "$0")/service.sh"
kinds=${KIND:-publishes}
[ "$kinds" != all ] || kinds="publishes subscribes connects retained share-groups"

# Makes a tenant with a limited broker that admits anonymous clients; prints its server name.
open_broker() {
    tenant "$1"
    ask -X PUT "$broker/access" --json '{"anonymous":true}' > /dev/null
    ask -X PATCH "$broker" --json "{\"limits\":$2}" > /dev/null
    echo "$name.mqtt.test"
}

# Prints for a kind of load: its usual rate a second, the name of the product's limit, and what one unit counts for that limit.
usual() {
    case $1 in
        publishes) echo 5000 publishes_per_s 1 ;;
        subscribes) echo 2000 filters_per_s 2 ;;
        connects) echo 200 connects_per_s 1 ;;
        retained) echo 1000 publishes_per_s 1 ;;
        share-groups) echo 500 publishes_per_s 1 ;;
        *) echo "$0: there is no kind $1" >&2; exit 2 ;;
    esac
}

serve --threads 1 --mqtt-listen off --gateway-listen "127.0.0.1:$port" --gateway-from 127.0.0.0/8 \
    --allow-anonymous=false
steady=$(open_broker steady '{}')
missed=
for kind in $kinds; do
    usual=$(usual "$kind")
    limit=${LIMIT:-${usual%% *}}
    product=${usual#* }
    limits='{}'
    [ "${ENFORCE:-yes}" = no ] || limits="{\"broker\":{\"${product% *}\":$((limit * ${product#* }))}}"
    neighbour=$(open_broker "neighbour-$kind" "$limits")
    "$bin/mqttload" fairness --check --pid "$server" --kind "$kind" --gateway-port "$port" \
        --steady "$steady" --neighbour "$neighbour" --limit "$limit" "$@" || missed="$missed $kind"
done
[ -z "$missed" ] || { echo "FAIL: the goal is missed for$missed" >&2; exit 1; }
