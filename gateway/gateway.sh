#!/usr/bin/env bash
# Runs the gateway: writes the settings into envoy.yaml.tmpl, runs Envoy until a signal, then
# drains.
#
#   gateway/gateway.sh run                settings are environment variables, below
#   gateway/gateway.sh pods ADDRESS...    replaces the pods of a running gateway, without a restart
#
# A pod is IP:PORT/HEALTH_PORT, such as 10.0.0.7:1884/8080: its --gateway-listen and --http-listen.
set -euo pipefail

# Folder of the files written at the start: envoy.yaml, pods.yaml, certificate.yaml. Two gateways
# need two folders.
: "${GATEWAY_DIR:=/tmp/millrace-gateway}"
# The pods at the start; empty when another program writes pods.yaml.
: "${GATEWAY_PODS:=}"
# Folder with tls.crt (the chain) and tls.key. Envoy reads them again when they are replaced by
# renaming.
: "${GATEWAY_CERTIFICATES:=/etc/millrace/tls}"
# Where clients connect; "::" is every address of both families.
: "${GATEWAY_LISTEN:=127.0.0.1}"
: "${GATEWAY_MQTTS_PORT:=8883}"
: "${GATEWAY_WSS_PORT:=8443}"
# "yes" requests client certificates on the WSS port; browsers then ask their user. Clients that
# offer the ALPN name "mqtt" are always asked for one.
: "${GATEWAY_WSS_CLIENT_CERTIFICATES:=no}"
# Port for probes and Prometheus: it serves /ready and /stats/prometheus only.
: "${GATEWAY_STATUS_LISTEN:=127.0.0.1}"
: "${GATEWAY_STATUS_PORT:=9902}"
# Envoy's admin port, on 127.0.0.1: a program that reaches it can stop the gateway.
: "${GATEWAY_ADMIN_PORT:=9901}"
# Most connected clients; Envoy closes any further connection at once. A client needs two open
# files.
: "${GATEWAY_CONNECTIONS_MAX:=100000}"
# Heap of Envoy, bytes; three quarters of the machine's memory at most. Above 95 % of it Envoy refuses
# new clients; README.md has the memory of a client.
: "${GATEWAY_HEAP_BYTES_MAX:=4294967296}"
# Percent of the pods' average load. When a pod has more, new clients of its server names go to
# other pods.
: "${GATEWAY_SHARE_PERCENT_MAX:=125}"
# Threads of Envoy; 0 is one per core.
: "${GATEWAY_THREADS:=0}"
# After a signal: seconds until the load balancer in front has noticed, then seconds for clients to
# leave.
: "${GATEWAY_NOTICE_S:=5}"
: "${GATEWAY_DRAIN_S:=30}"
: "${GATEWAY_ACCESS_LOG:=/dev/stdout}"
: "${GATEWAY_LOG_LEVEL:=warning}"
: "${GATEWAY_ENVOY:=envoy}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
    echo "gateway: $1" >&2
    exit 2
}

# Replaces a file as a whole: Envoy reads a file again when another one is moved onto it.
put() {
    cat >"$GATEWAY_DIR/$1.new"
    mv "$GATEWAY_DIR/$1.new" "$GATEWAY_DIR/$1"
}

pods() {
    local pod
    for pod in "$@"; do
        [[ $pod =~ ^(\[[0-9a-fA-F:.]+\]|[0-9.]+):([0-9]+)/([0-9]+)$ ]] \
            || fail "\"$pod\" is no pod: IP:PORT/HEALTH_PORT is allowed, such as 10.0.0.7:1884/8080"
    done
    {
        echo 'resources:'
        echo '- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment'
        echo '  cluster_name: edge'
        echo '  endpoints:'
        echo '  - lb_endpoints:'
        for pod in "$@"; do
            [[ $pod =~ ^\[?([^]]*)\]?:([0-9]+)/([0-9]+)$ ]]
            echo "    - endpoint:"
            echo "        address: { socket_address: { address: \"${BASH_REMATCH[1]}\", port_value: ${BASH_REMATCH[2]} } }"
            echo "        health_check_config: { port_value: ${BASH_REMATCH[3]} }"
        done
    } | put pods.yaml
}

certificate() {
    local path=$GATEWAY_CERTIFICATES
    [ -r "$path/tls.crt" ] && [ -r "$path/tls.key" ] \
        || fail "GATEWAY_CERTIFICATES=$path has no tls.crt and tls.key that can be read (make certs makes some for development)"
    put certificate.yaml <<YAML
resources:
- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: server
  tls_certificate:
    certificate_chain: { filename: "$path/tls.crt" }
    private_key: { filename: "$path/tls.key" }
    watched_directory: { path: "$path" }
YAML
}

# A heap larger than the memory never refuses anybody: the kernel kills Envoy, and all clients come
# back.
limit_heap() {
    local total most
    read -r _ total _ </proc/meminfo
    most=$((total * 768))
    [ "$GATEWAY_HEAP_BYTES_MAX" -gt "$most" ] || return 0
    echo "gateway: the heap is $most bytes, three quarters of the memory, not $GATEWAY_HEAP_BYTES_MAX" >&2
    GATEWAY_HEAP_BYTES_MAX=$most
}

# The template names the variables in lower case, except for two.
render() {
    local text name
    text=$(<"$here/envoy.yaml.tmpl")
    local ipv4_compat=false wss_client_certificates
    [ "$GATEWAY_LISTEN" != :: ] || ipv4_compat=true
    case $GATEWAY_WSS_CLIENT_CERTIFICATES in
    yes) wss_client_certificates=ACCEPT_UNTRUSTED ;;
    no) wss_client_certificates=VERIFY_TRUST_CHAIN ;;
    *) fail "GATEWAY_WSS_CLIENT_CERTIFICATES=$GATEWAY_WSS_CLIENT_CERTIFICATES: yes or no is allowed" ;;
    esac
    text=${text//"\${ipv4_compat}"/"$ipv4_compat"}
    text=${text//"\${wss_client_certificates}"/"$wss_client_certificates"}
    for name in "${!GATEWAY_@}"; do
        local small=${name#GATEWAY_}
        text=${text//"\${${small,,}}"/"${!name}"}
    done
    put envoy.yaml <<<"$text"
}

admin() { curl -fsS --max-time 5 -X POST "http://127.0.0.1:$GATEWAY_ADMIN_PORT/$1"; }

clients() { admin 'stats?filter=^cluster.edge.upstream_cx_active$' | sed -n 's/.*: //p'; }

# The load balancer sends new clients elsewhere, and connected clients may leave until time is up. A
# second signal ends the drain.
drain() {
    echo "gateway: draining: $(clients) clients have $((GATEWAY_NOTICE_S + GATEWAY_DRAIN_S)) s to leave" >&2
    admin healthcheck/fail >/dev/null
    # Envoy closes its ports after --drain-time-s.
    admin 'drain_listeners?graceful&inboundonly' >/dev/null
    local closed=$((SECONDS + GATEWAY_NOTICE_S)) end=$((SECONDS + GATEWAY_NOTICE_S + GATEWAY_DRAIN_S))
    while [ "$SECONDS" -lt "$end" ] && [ "$signals" -lt 2 ]; do
        [ "$SECONDS" -lt "$closed" ] || [ "$(clients)" != 0 ] || break
        sleep 0.2
    done
    echo "gateway: stopping: $(clients) clients are left" >&2
}

run() {
    # systemd gives a socket, which has no path that Envoy could open: cat passes on what comes
    # through a pipe.
    [ ! -S /dev/stdout ] || exec > >(exec cat)
    mkdir -p "$GATEWAY_DIR"
    certificate
    limit_heap
    render
    # shellcheck disable=SC2086 # a list
    [ -z "$GATEWAY_PODS" ] || pods $GATEWAY_PODS
    [ -r "$GATEWAY_DIR/pods.yaml" ] || fail "there are no pods: set GATEWAY_PODS, or write $GATEWAY_DIR/pods.yaml"
    ulimit -n "$(ulimit -Hn)"
    local flags=(--config-path envoy.yaml --disable-hot-restart --log-level "$GATEWAY_LOG_LEVEL" --drain-time-s "$GATEWAY_NOTICE_S")
    [ "$GATEWAY_THREADS" = 0 ] || flags+=(--concurrency "$GATEWAY_THREADS")
    local envoy code=0
    signals=0
    trap 'signals=$((signals + 1))' TERM INT
    # envoy.yaml has paths relative to this folder.
    (cd "$GATEWAY_DIR" && exec "$GATEWAY_ENVOY" "${flags[@]}") &
    envoy=$!
    wait "$envoy" || code=$?
    if [ "$signals" -gt 0 ] && kill -0 "$envoy" 2>/dev/null; then
        drain || true
        kill -TERM "$envoy" 2>/dev/null || true
        code=0
        wait "$envoy" || code=$?
    fi
    exit "$code"
}

case ${1:-} in
run) run ;;
pods)
    [ $# -gt 1 ] || fail "name the pods: gateway.sh pods IP:PORT/HEALTH_PORT..."
    pods "${@:2}"
    ;;
*) fail "gateway.sh run, or gateway.sh pods IP:PORT/HEALTH_PORT..." ;;
esac
