#!/usr/bin/env bash
# Tests the server on the cluster of FDB_CLUSTER_FILE: several processes with real clients, a migration, a backup, then
# `torture` with kills of the server and of the cluster, with one process and with three pods. NATS
# connects the pods and is killed, too. KILLS says how many kills each gets. `make test-fdb` runs
# this by `storage/tests/foundationdb.sh with`. `foundationdb.sh kill` kills the cluster, and every
# third time NATS.
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

# There and back: the folder that comes back has what the first one had.
migrate() {
    local server port=18830
    "$release/millrace" serve --data-dir "$folder/first" --mqtt-listen 127.0.0.1:$port --ws-listen off --http-listen off \
        >"$folder/migrate.log" 2>&1 &
    server=$!
    for _ in {1..100}; do
        mosquitto_pub -p $port -t probe -m up 2>/dev/null && break
        sleep 0.1
    done
    mosquitto_sub -p $port -i keeper -c -q 1 -t 'jobs/#' -E
    for number in {1..50}; do
        mosquitto_pub -p $port -q 1 -t "jobs/$number" -m "$number"
        mosquitto_pub -p $port -q 1 -r -t "state/$number" -m "$number"
    done
    kill "$server" && wait "$server" || true
    "$release/millrace" migrate "$folder/first" foundationdb --fdb-cluster-file "$FDB_CLUSTER_FILE" --fdb-prefix moved
    "$release/millrace" migrate foundationdb "$folder/back" --fdb-cluster-file "$FDB_CLUSTER_FILE" --fdb-prefix moved
    for look in "sessions list" "sessions show keeper" "streams show jobs/#" "retained list"; do
        # shellcheck disable=SC2086 # two words and more
        diff <("$release/millrace" $look --json --data-dir "$folder/first") <("$release/millrace" $look --json --data-dir "$folder/back") ||
            { echo "FAILED: $look differs after a migration to the cluster and back"; exit 1; }
    done
    echo "ok: a migration to the cluster and back"
}

[ "${1:-}" = kill ] && { kill_something; exit; }

cargo build --release --package millrace --features millrace/foundationdb
cargo build --release --package millrace-torture
release=${CARGO_TARGET_DIR:-target}/release
SERVER_BIN=$release/millrace services/millrace/tests/pods.sh
migrate
MILLRACE=$release/millrace services/millrace/tests/cluster_backup.sh
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
