#!/usr/bin/env bash
# A whole region on this machine, until a signal: three nats-servers, three edge pods, Envoy, and FoundationDB when it is here.
#
#   make stack                       builds what it needs and runs it
#   services/stack/stack.sh run      runs it with what the settings below name
#   services/stack/stack.sh features the cargo flags that millrace is built with for it
#   services/stack/stack.sh upgrade PROGRAM
#                                    has the stack that runs replace its pods by this build, one after the other
#
# A part that is killed (kill -9, to see what a region does then) is started again; one that ends by itself ends all.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}

# Logs, data and configurations. Emptied at the start, but for its data with STACK_KEEP=1.
: "${STACK_DIR:=$target/stack}"
: "${STACK_KEEP:=}"
# foundationdb, embedded, or the one that can be had: auto. With FDB_CLUSTER_FILE it is that cluster, which stays as it is.
: "${STACK_STORE:=auto}"
# Added to every port below, for a second stack or where ports are taken.
: "${STACK_PORTS_UP:=0}"
# Seconds after which a part that was killed is started again, and further flags of the pods, such as "--log-level debug".
: "${STACK_AGAIN_S:=5}"
: "${STACK_FLAGS:=}"
: "${STACK_MILLRACE:=$target/release/millrace}"
: "${STACK_NATS_SERVER:=$target/tools/nats-server}"
: "${STACK_ENVOY:=$target/envoy/bin/envoy}"
# Made for development, for *.local.test, when there are none.
: "${STACK_CERTIFICATES:=$target/certs}"
for name in STACK_DIR STACK_MILLRACE STACK_NATS_SERVER STACK_ENVOY STACK_CERTIFICATES; do
    printf -v "$name" %s "$(realpath -ms "${!name}")"
done

numbers=(1 2 3)
# Ports of the first pod and the first NATS server; the second and third use the next two numbers.
mqtt=$((1883 + STACK_PORTS_UP)) ws=$((8083 + STACK_PORTS_UP)) http=$((8080 + STACK_PORTS_UP))
from_gateway=$((1893 + STACK_PORTS_UP))
nats=$((4222 + STACK_PORTS_UP)) routes=$((6222 + STACK_PORTS_UP)) monitor=$((8222 + STACK_PORTS_UP))
# Ports of parts that run once.
mqtts=$((8883 + STACK_PORTS_UP)) wss=$((8443 + STACK_PORTS_UP))
status=$((9902 + STACK_PORTS_UP)) admin=$((9901 + STACK_PORTS_UP)) fdb=$((4550 + STACK_PORTS_UP))

start_seconds_max=60
stop_seconds_max=20
# In the order of the start, which is turned round for the stop.
parts=()
declare -A pid again_at

say() { echo "stack: $1"; }

# A copy of stderr for errors: stderr itself is closed where bash would report killed children.
exec 4>&2

fail() {
    echo "stack: $1" >&4
    exit "${2:-1}"
}

# -- which store

has() { command -v "$1" >/dev/null 2>&1; }

# Whether a cluster could be used by a millrace that is built for it.
cluster_is_here() {
    [ "$STACK_STORE" != embedded ] || return 1
    { [ -n "${FDB_CLUSTER_FILE:-}" ] || { has fdbserver && has fdbcli; }; } || return 1
    cc -x c - -o /dev/null -lfdb_c <<<'int main(void) { return 0; }' >/dev/null 2>&1
}

features() { ! cluster_is_here || echo --features foundationdb; }

# Whether this millrace is built for it: it says so before anything else.
millrace_knows_clusters() {
    local said
    said=$("$STACK_MILLRACE" serve --store foundationdb --data-dir off 2>&1) || true
    [[ $said != *"built without it"* ]]
}

choose_store() {
    case $STACK_STORE in
    auto)
        STACK_STORE=embedded
        if STACK_STORE=auto cluster_is_here && millrace_knows_clusters; then STACK_STORE=foundationdb; fi
        ;;
    foundationdb) millrace_knows_clusters || fail "$STACK_MILLRACE was built without foundationdb" 2 ;;
    embedded) ;;
    *) fail "STACK_STORE=$STACK_STORE: auto, foundationdb or embedded is allowed" 2 ;;
    esac
    if [ "$STACK_STORE" = embedded ]; then
        parts=(nats-1 nats-2 nats-3 pods gateway)
        say "NOTE: without FoundationDB (fdbserver, fdbcli, libfdb_c, and a millrace that is built for it) the store is the"
        say "NOTE: embedded engine, and the three pods are one process, which can only be killed as a whole."
    else
        parts=(nats-1 nats-2 nats-3 pod-1 pod-2 pod-3 gateway)
        cluster=$STACK_DIR/fdb/fdb.cluster
        if [ -n "${FDB_CLUSTER_FILE:-}" ]; then
            cluster=$(realpath "$FDB_CLUSTER_FILE")
            say "NOTE: the store is the cluster of $cluster, with the prefix \"stack\"; what stands there is used and stays."
        else
            parts=(foundationdb "${parts[@]}")
        fi
    fi
}

# -- what is there before the parts

# One stack runs in a folder at a time. Its parts inherit the lock, so it lasts until the last part has ended.
lock() {
    mkdir -p "$STACK_DIR"
    exec 9>>"$STACK_DIR/lock"
    if ! flock -n 9; then
        local others
        others=$(cat "$STACK_DIR"/pids/stack 2>/dev/null || true)
        # Without it, its parts.
        kill -0 "$others" 2>/dev/null || others=$(cat "$STACK_DIR"/pids/* 2>/dev/null | tr '\n' ' ')
        fail "a stack runs already (in $STACK_DIR): stop it with Ctrl-C in its terminal, or with: kill $others"
    fi
}

check_ports() {
    local port first
    local all=("$mqtts" "$wss" "$status" "$admin")
    [[ " ${parts[*]} " != *" foundationdb "* ]] || all+=("$fdb")
    for first in "$mqtt" "$ws" "$http" "$from_gateway" "$nats" "$routes" "$monitor"; do
        all+=("$first" $((first + 1)) $((first + 2)))
    done
    for port in "${all[@]}"; do
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            fail "another program listens on 127.0.0.1:$port: stop it, or move all ports of the stack: STACK_PORTS_UP=20000 make stack"
        fi
    done
}

prepare() {
    local program
    for program in "$STACK_MILLRACE" "$STACK_NATS_SERVER" "$STACK_ENVOY"; do
        [ -x "$program" ] || fail "there is no $program: run \`make stack\`, which makes it" 2
    done
    for program in curl flock setsid; do
        has "$program" || fail "it needs $program, which is not installed" 2
    done
    lock
    choose_store
    check_ports
    cd "$STACK_DIR"
    rm -rf pids logs nats gateway upgrade
    [ -n "$STACK_KEEP" ] || rm -rf data fdb
    mkdir -p pids logs nats gateway fdb/data fdb/logs
    echo $$ >pids/stack
    [ -e "$STACK_CERTIFICATES/tls.crt" ] || "$STACK_MILLRACE" dev-certs --out "$STACK_CERTIFICATES"
    configure_nats
    # A cluster file of an earlier run may name another port.
    if [ -e fdb/fdb.cluster ]; then sed -i "s/@.*/@127.0.0.1:$fdb/" fdb/fdb.cluster; else
        echo "stack:$(secret)@127.0.0.1:$fdb" >fdb/fdb.cluster
    fi
}

secret() { head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n'; }

# Three servers that know each other by a password, and the pods by another one.
configure_nats() {
    local number pods_password routes_password list=
    pods_password=$(secret) routes_password=$(secret)
    (umask 077 && echo "$pods_password" >nats/password)
    for number in "${numbers[@]}"; do
        list+="\"nats://routes:$routes_password@127.0.0.1:$((routes + number - 1))\","
    done
    for number in "${numbers[@]}"; do
        (umask 077 && cat >"nats/nats-$number.conf") <<CONF
server_name: nats-$number
host: 127.0.0.1
port: $((nats + number - 1))
http: 127.0.0.1:$((monitor + number - 1))
authorization { user: pods, password: "$pods_password" }
cluster {
  name: stack, host: 127.0.0.1, port: $((routes + number - 1))
  authorization { user: routes, password: "$routes_password" }
  routes: [${list%,}]
}
CONF
    done
}

# -- the parts

# In a session of its own: Ctrl-C is for this script, which stops the parts in order.
spawn() {
    local name=$1
    shift
    setsid "$@" </dev/null >>"logs/$name.log" 2>&1 4>&- &
    pid[$name]=$!
    echo "${pid[$name]}" >"pids/$name"
}

# serve NAME NUMBER FLAGS...: the pod with this number, or the first of several.
serve() {
    local name=$1 up=$(($2 - 1)) number urls='' flags
    read -ra flags <<<"$STACK_FLAGS"
    for number in "${numbers[@]}"; do urls+=,nats://127.0.0.1:$((nats + number - 1)); done
    spawn "$name" "$STACK_MILLRACE" serve "${@:3}" --brokers acme,globex --allow-anonymous \
        --drain-max-s 5 --shutdown-grace-s 5 \
        --mqtt-listen "127.0.0.1:$((mqtt + up))" --ws-listen "127.0.0.1:$((ws + up))" \
        --http-listen "127.0.0.1:$((http + up))" --gateway-listen "127.0.0.1:$((from_gateway + up))" \
        --nats "${urls#,}" --nats-user pods --nats-password-file nats/password "${flags[@]}"
}

start_gateway() {
    local number pods=
    for number in 0 1 2; do pods+="127.0.0.1:$((from_gateway + number))/$((http + number)) "; done
    spawn gateway env GATEWAY_DIR="$STACK_DIR/gateway" GATEWAY_PODS="$pods" GATEWAY_CERTIFICATES="$STACK_CERTIFICATES" \
        GATEWAY_MQTTS_PORT="$mqtts" GATEWAY_WSS_PORT="$wss" GATEWAY_STATUS_PORT="$status" GATEWAY_ADMIN_PORT="$admin" \
        GATEWAY_ENVOY="$STACK_ENVOY" GATEWAY_CONNECTIONS_MAX=1000 GATEWAY_THREADS=1 GATEWAY_NOTICE_S=1 GATEWAY_DRAIN_S=2 \
        GATEWAY_ACCESS_LOG="$STACK_DIR/logs/gateway-access.log" "$root/gateway/gateway.sh" run
}

start() {
    case $1 in
    foundationdb)
        spawn "$1" fdbserver --cluster-file fdb/fdb.cluster --public-address "127.0.0.1:$fdb" --datadir fdb/data \
            --logdir fdb/logs --knob_disable_posix_kernel_aio=1
        ;;
    nats-*) spawn "$1" "$STACK_NATS_SERVER" -c "nats/$1.conf" ;;
    pods) serve pods 1 --pods 3 --data-dir data ;;
    pod-*) serve "$1" "${1#pod-}" --store foundationdb --fdb-cluster-file "$cluster" --fdb-prefix stack --pod "$1" ;;
    gateway) start_gateway ;;
    esac
}

get() { curl -fsS --max-time 5 "http://127.0.0.1:$1" 2>/dev/null; }

# A number of NATS' /varz.
varz() { get "$1/varz" | sed -nE "s/^  \"$2\": \"?([^\",]+).*/\1/p"; }

cli() { fdbcli -C "$cluster" --timeout 5 --exec "$1" 2>&1; }

# One line about a part; fails while it is not well.
health() {
    local port said
    case $1 in
    foundationdb)
        if cli 'status minimal' | grep 'is available'; then return; fi
        # Refused when it is kept from last time; somebody else's is left alone.
        [ -z "${pid[foundationdb]:-}" ] || cli 'configure new single ssd' >/dev/null || true
        return 1
        ;;
    nats-*)
        port=$((monitor + ${1#nats-} - 1))
        get "$port/healthz" >/dev/null && [ "$(varz "$port" remotes)" = 2 ] || return 1
        echo "version $(varz "$port" version), 2 other servers, $(varz "$port" connections) pods"
        ;;
    pods) health pod-1 >/dev/null && health pod-2 >/dev/null && health pod-3 >/dev/null && echo ok ;;
    pod-*)
        said=$(get "$((http + ${1#pod-} - 1))/healthz") && [[ $said == *"with 2 other pods"* ]] || return 1
        echo "${said//$'\n'/, }"
        ;;
    gateway)
        get "$status/ready" >/dev/null || return 1
        said=$(get "$admin/stats?filter=^cluster.edge.membership_healthy$")
        [ "${said##*: }" = 3 ] && echo "ready, 3 healthy pods"
        ;;
    esac
}

# Until it is well, has ended, or takes too long.
await() {
    local end=$((SECONDS + start_seconds_max))
    until health "$1" >/dev/null; do
        kill -0 "${pid[$1]}" 2>/dev/null || broken "$1" "ended while it started"
        [ "$SECONDS" -lt "$end" ] || broken "$1" "is not well after $start_seconds_max s"
        sleep 0.1
    done
}

broken() {
    tail -n 15 "logs/$1.log" | sed "s/^/$1: /" >&4
    fail "$1 $2; its log: $STACK_DIR/logs/$1.log"
}

# A part is not there any more.
ended() {
    local code=0
    wait "${pid[$1]}" || code=$?
    # 128 and 9: somebody killed it, and its children may have stayed.
    [ "$code" = 137 ] || broken "$1" "ended with code $code"
    kill -KILL -- "-${pid[$1]}" 2>/dev/null || true
    unset "pid[$1]"
    again_at[$1]=$((SECONDS + STACK_AGAIN_S))
    say "$1 was killed; it is started again in $STACK_AGAIN_S s"
}

# Drains each process of pods, and starts the program that the file `upgrade` names.
upgrade() {
    local name code
    STACK_MILLRACE=$(<upgrade)
    for name in "${parts[@]}"; do
        [[ $name == pod* ]] || continue
        say "$name drains (pid ${pid[$name]})"
        kill -TERM "${pid[$name]}"
        is_gone "${pid[$name]}" || broken "$name" "did not end within $stop_seconds_max s"
        code=0
        wait "${pid[$name]}" || code=$?
        [ "$code" = 0 ] || broken "$name" "ended with code $code"
        start "$name"
        await "$name"
        # Otherwise the gateway could have no pod left when the next one drains.
        await gateway
        say "$name runs $("$STACK_MILLRACE" --version | sed -n 's/^commit: /commit /p') (pid ${pid[$name]})"
    done
    rm upgrade
    say "all pods are upgraded"
}

# Until a part is broken, or a signal.
watch() {
    local name
    while sleep 0.2; do
        [ ! -e upgrade ] || upgrade
        for name in "${parts[@]}"; do
            if [ -n "${pid[$name]:-}" ]; then
                kill -0 "${pid[$name]}" 2>/dev/null || ended "$name"
            elif [ "$SECONDS" -ge "${again_at[$name]}" ]; then
                start "$name"
                say "$name runs again (pid ${pid[$name]})"
            fi
        done
    done
}

# -- start and stop

stop() {
    local code=$? name left index
    set +e
    trap 'kill_all; exit 130' INT TERM HUP
    for ((index = ${#parts[@]} - 1; index >= 0; index--)); do
        name=${parts[index]}
        left=${pid[$name]:-}
        [ -n "$left" ] || continue
        say "stopping $name"
        kill -TERM "$left" 2>/dev/null
        if ! is_gone "$left"; then
            say "$name did not stop within $stop_seconds_max s: it is killed"
            code=1
        fi
        kill -KILL -- "-$left" 2>/dev/null
        rm -f "pids/$name"
    done
    [ ${#pid[@]} = 0 ] || say "stopped; logs are in $STACK_DIR/logs"
    exit "$code"
}

is_gone() {
    local end=$((SECONDS + stop_seconds_max))
    while kill -0 "$1" 2>/dev/null; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}

kill_all() {
    local left
    for left in "${pid[@]}"; do kill -KILL -- "-$left"; done 2>/dev/null
}

row() { printf '  %-13s %-52s %-8s %s\n' "$@"; }

# Prints a row for each process: address, pid, and whether it is a real service or a stand-in.
table() {
    local number name of_pods='real, but one process for the three of them'
    [ "$STACK_STORE" = embedded ] || of_pods='real'
    row part address pid 'real or stand-in'
    for number in 0 1 2; do
        name=nats-$((number + 1))
        row "$name" "nats://127.0.0.1:$((nats + number)) http://127.0.0.1:$((monitor + number))" "${pid[$name]}" real
    done
    if [ "$STACK_STORE" = embedded ]; then
        row store "$STACK_DIR/data" "${pid[pods]}" 'STAND-IN for FoundationDB: the embedded engine'
    else
        row foundationdb "$cluster" "${pid[foundationdb]:--}" 'real; of its own: one process, not three copies'
    fi
    for number in 0 1 2; do
        name=pod-$((number + 1))
        row "$name" "mqtt://127.0.0.1:$((mqtt + number)) http://127.0.0.1:$((http + number))" \
            "${pid[$name]:-${pid[pods]:-}}" "$of_pods"
    done
    row gateway "mqtts://127.0.0.1:$mqtts wss://127.0.0.1:$wss" "${pid[gateway]}" 'real Envoy'
    row certificates "$STACK_CERTIFICATES" - 'STAND-IN: made here, for *.local.test'
    row passwords - - 'none for clients: only this machine reaches the ports'
}

# Prints example commands.
advice() {
    local options="-h acme.local.test -p $mqtts --cafile $STACK_CERTIFICATES/ca.crt"
    if ! getent hosts acme.local.test >/dev/null; then
        echo "Once, so that the names of the brokers acme and globex lead to this machine:"
        echo "  echo '127.0.0.1 acme.local.test globex.local.test' | sudo tee -a /etc/hosts"
    fi
    echo "Through the gateway to the broker acme, in two terminals:"
    echo "  mosquitto_sub $options -t 'hello/#' -v"
    echo "  mosquitto_pub $options -t hello/world -m hi"
    echo "Ctrl-C stops all."
}

# Asks the stack that runs for an upgrade, and waits for its end.
ask_for_upgrade() {
    local program=${1:-} running
    [ -x "$program" ] || fail "there is no program \"$program\" to upgrade to" 2
    running=$(cat "$STACK_DIR/pids/stack" 2>/dev/null || true)
    kill -0 "$running" 2>/dev/null || fail "no stack runs in $STACK_DIR: make stack"
    [ ! -e "$STACK_DIR/upgrade" ] || fail "an upgrade is under way already"
    realpath "$program" >"$STACK_DIR/upgrade.new"
    mv "$STACK_DIR/upgrade.new" "$STACK_DIR/upgrade"
    while [ -e "$STACK_DIR/upgrade" ]; do
        kill -0 "$running" 2>/dev/null || fail "the stack ended during the upgrade"
        sleep 0.2
    done
    say "all pods run $program"
}

run() {
    local others=("${!GATEWAY_@}" "${!MILLRACE_@}")
    [ "${#others[@]}" = 0 ] || say "not used here: ${others[*]}. They are settings of your own broker or gateway; the stack's begin with STACK_"
    unset "${others[@]}"
    prepare
    trap stop EXIT
    trap 'exit 0' INT TERM HUP
    # Ctrl-C also ends a `tee` that reads this output. A stop that writes to a closed pipe must continue.
    trap : PIPE
    local name group
    for group in foundationdb nats pod gateway; do
        for name in "${parts[@]}"; do [[ $name != "$group"* ]] || start "$name"; done
        for name in "${parts[@]}"; do
            [[ $name == "$group"* ]] || continue
            say "$name starts (pid ${pid[$name]})"
            await "$name"
            say "$name is well"
        done
    done
    for name in ${cluster:+foundationdb} nats-1 nats-2 nats-3 pod-1 pod-2 pod-3 gateway; do
        say "$name: $(health "$name")"
    done
    echo
    table
    echo
    advice
    say "all is up"
    watch 2>/dev/null
}

case ${1:-} in
run) run ;;
features) features ;;
upgrade) ask_for_upgrade "${2:-}" ;;
*) fail "usage: stack.sh run | features | upgrade PROGRAM" 2 ;;
esac
