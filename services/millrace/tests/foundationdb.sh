#!/usr/bin/env bash
# The server on the cluster of FDB_CLUSTER_FILE: several processes with real clients, then the torture test with kills of the server
# and of the cluster: one process, and three pods with NATS between them, which is killed too. KILLS says how many each. For
# `make test-fdb`, by `storage/tests/foundationdb.sh with`. `foundationdb.sh kill` kills the cluster, and every third time NATS.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../../.."
folder=$FDB_TEST_FOLDER
: "${NATS_SERVER:=${CARGO_TARGET_DIR:-target}/tools/nats-server}"

start_nats() {
    "$NATS_SERVER" --addr 127.0.0.1 --port "$(cat "$folder/nats.port")" >>"$folder/nats.log" 2>&1 &
    echo $! >"$folder/nats.pid"
}

stop_nats() {
    local pid
    pid=$(cat "$folder/nats.pid" 2>/dev/null) || return 0
    kill -KILL "$pid" 2>/dev/null || true
    for _ in {1..100}; do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 0.05
    done
}

kill_something() {
    local count
    count=$(($(cat "$folder/kills" 2>/dev/null || echo 0) + 1))
    echo $count >"$folder/kills"
    if [ $((count % 3)) = 0 ] && [ -s "$folder/nats.pid" ]; then
        stop_nats
        sleep 0.5
        start_nats
    else
        storage/tests/foundationdb.sh kill "$folder"
    fi
}

torture() {
    "$release/torture" --millrace-bin "$release/millrace" --kills "${KILLS:-20}" --fdb-cluster-file "$FDB_CLUSTER_FILE" \
        --fdb-kill "services/millrace/tests/foundationdb.sh kill" "$@"
}

[ "${1:-}" = kill ] && { kill_something; exit; }

cargo build --release --package millrace --features millrace/foundationdb
cargo build --release --package millrace-torture
release=${CARGO_TARGET_DIR:-target}/release
SERVER_BIN=$release/millrace services/millrace/tests/pods.sh
torture
if [ ! -x "$NATS_SERVER" ]; then
    echo "SKIPPED: torture of three pods: there is no nats-server at $NATS_SERVER, which is installed with Go"
    exit
fi
for port in {14222..14322}; do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
done
echo "$port" >"$folder/nats.port"
trap stop_nats EXIT
start_nats
torture --pods 3 --millrace-arg="--nats=nats://127.0.0.1:$port"
