#!/bin/bash
# Begins a new access log when the current one is large, and keeps the last ones. Envoy writes a line for each connection that ended,
# so a stranger who connects often enough would fill the disk.
#
#   gateway-log.sh FILE SIZE_MAX KEPT        sizes are bytes
set -euo pipefail

log=$1 size_max=$2 kept=$3

if [ -e "$log" ]; then
    [ "$(stat --format=%s "$log")" -ge "$size_max" ] || exit 0
    for ((number = kept - 1; number > 0; number--)); do
        [ ! -e "$log.$number" ] || mv "$log.$number" "$log.$((number + 1))"
    done
    mv "$log" "$log.1"
elif [ ! -e "$log.1" ]; then
    exit 0 # Envoy has not started yet.
fi
# Until then Envoy writes to the file that it has opened. If it does not answer, the next run asks again.
curl -fsS --max-time 5 -X POST "http://127.0.0.1:${GATEWAY_ADMIN_PORT:-9901}/reopen_logs" >/dev/null
