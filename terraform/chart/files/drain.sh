#!/bin/bash
# Runs before Envoy is stopped: new devices go to other gateways, and connected devices may leave until DRAIN_S is over.
#
#   drain.sh ADMIN_PORT NOTICE_S DRAIN_S
set -u

# The image has bash and no curl.
admin() {
    exec 3<>"/dev/tcp/127.0.0.1/$port" || exit 0
    printf '%s /%s HTTP/1.1\r\nHost: drain\r\nConnection: close\r\n\r\n' "$1" "$2" >&3
    cat <&3
    exec 3>&-
}

clients() { admin GET 'stats?filter=^cluster.edge.upstream_cx_active$' | sed -n 's/^cluster.edge.upstream_cx_active: //p' | tr -d '\r'; }

port=$1 notice=$2 drain=$3
# /ready answers 503, so the load balancer sends nobody any more; then the ports are closed.
admin POST healthcheck/fail >/dev/null
sleep "$notice"
admin POST 'drain_listeners?inboundonly' >/dev/null
end=$((SECONDS + drain))
while [ "$SECONDS" -lt "$end" ] && [ "$(clients)" != 0 ]; do sleep 1; done
exit 0
