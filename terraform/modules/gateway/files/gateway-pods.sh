#!/bin/bash
# Writes pods.yaml anew when edge machines have come or gone. Without an answer the old list stays: Envoy's own
# health checks keep dead pods out. A timer runs it; PODS_TAGS, PODS_PORTS and GATEWAY_DIR are in the environment of its unit.
set -euo pipefail

list=$RUNTIME_DIRECTORY/pods
# shellcheck disable=SC2086 # a list of tags
addresses=$(/usr/local/sbin/millrace-boot pods $PODS_TAGS)
pods=()
for address in $addresses; do
    for ports in $PODS_PORTS; do pods+=("$address:$ports"); done
done
if [ ${#pods[@]} = 0 ]; then
    echo "no edge machine runs; the list of pods stays as it is" >&2
    exit 1
fi
# Nothing to do while the list is the same and Envoy has it.
[ "${pods[*]}" != "$(cat "$list" 2>/dev/null)" ] || [ ! -e "$GATEWAY_DIR/pods.yaml" ] || exit 0
# The folder is Envoy's: root would follow a link that stands in a file's place there.
setpriv --reuid=envoy --regid=envoy --init-groups /usr/local/lib/millrace/gateway.sh pods "${pods[@]}"
echo "${pods[*]}" >"$list"
echo "pods: ${pods[*]}"
