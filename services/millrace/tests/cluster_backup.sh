#!/usr/bin/env bash
# Backs up the cluster of FDB_CLUSTER_FILE with `millrace backup` while messages are written, clears the
# cluster, and restores it with `millrace restore`. `storage/tests/foundationdb.sh with` gives it a cluster
# of its own. BACKUP_URL names another place than a folder, FDB_BLOB_CREDENTIALS its keys.
set -euo pipefail

program=${MILLRACE:?names a millrace that is built with FoundationDB}
folder=$FDB_TEST_FOLDER port=${PORT:-18831}
url=${BACKUP_URL:-file://$folder/backups}
credentials=(${FDB_BLOB_CREDENTIALS:+--blob-credentials "$FDB_BLOB_CREDENTIALS"})
export FDB_CLUSTER_FILE
PATH=$PATH:/usr/lib/foundationdb/backup_agent
for tool in fdbbackup fdbrestore backup_agent mosquitto_pub; do
    command -v "$tool" >/dev/null || { echo "SKIPPED: a backup of a cluster: $tool is not installed"; exit 0; }
done

fail() {
    echo "FAILED: $1" >&2
    exit 1
}

started=()
# mosquitto_pub does not always end by SIGTERM, and would write to the next server.
finish() { [ "${#started[@]}" = 0 ] || kill -KILL "${started[@]}" 2>/dev/null || true; }
trap finish EXIT

serve() {
    "$program" serve --store foundationdb --fdb-prefix backup --fdb-cluster-file "$FDB_CLUSTER_FILE" --pod "$1" \
        --mqtt-listen "127.0.0.1:$port" --ws-listen off --http-listen off >"$folder/$1.log" 2>&1 &
    server=$!
    started+=("$server")
    for _ in {1..300}; do
        mosquitto_pub -p "$port" -t probe -m up 2>/dev/null && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.2
    done
    fail "no server: $(tail -3 "$folder/$1.log")"
}

# restored URL: whether a restore of it succeeds; its error is in the file refused.
restored() { "$program" restore "$1" --fdb-cluster-file "$FDB_CLUSTER_FILE" "${credentials[@]}" 2>"$folder/refused"; }

mkdir -p "$folder/backups"
! "$program" backup "$url" --fdb-cluster-file "$FDB_CLUSTER_FILE" "${credentials[@]}" 2>"$folder/refused" \
    || fail "a backup without an agent succeeded"
grep 'no backup_agent runs on the cluster' "$folder/refused" >/dev/null || fail "a backup without an agent says: $(cat "$folder/refused")"
# Without a flag it prints its usage and ends.
backup_agent -C "$FDB_CLUSTER_FILE" "${credentials[@]}" >"$folder/agent.log" 2>&1 &
started+=($!)
serve before
mosquitto_sub -p "$port" -i keeper -c -q 1 -t 'jobs/#' -E
seq 500 | mosquitto_pub -p "$port" -q 1 -t jobs/one -l
# Continues while the backup is made.
numbers() { for block in {5..2000}; do seq $((block * 100 + 1)) $((block * 100 + 100)); sleep 1; done; }
mosquitto_pub -p "$port" -q 1 -t jobs/one -l < <(numbers) &
writer=$!
made=$("$program" backup "$url" --fdb-cluster-file "$FDB_CLUSTER_FILE" "${credentials[@]}" --json) || fail "millrace backup"
kill -KILL "$writer" || fail "the writer has ended"
wait "$writer" 2>/dev/null || true
said() { tail -1 <<<"$made" | python3 -c "import json, sys; print(json.load(sys.stdin)['$1'])"; }
container=$(said target)
! restored "$container" || fail "a cluster that has keys was overwritten"
grep 'the cluster is not empty' "$folder/refused" >/dev/null || fail "a restore into a cluster with keys says: $(cat "$folder/refused")"
kill "$server"
wait "$server" || true

fdbcli --exec 'writemode on; clearrange "" \xff' >/dev/null
if [ "$container" != "$url" ]; then
    ! restored "$url" || fail "a folder of backups was restored"
    grep -F "$container" "$folder/refused" >/dev/null || fail "a restore of a folder of backups says: $(cat "$folder/refused")"
fi
"$program" restore "$container" --fdb-cluster-file "$FDB_CLUSTER_FILE" "${credentials[@]}" | tee "$folder/restored" || fail "millrace restore"
grep "to version $(said version)\.\$" "$folder/restored" >/dev/null || fail "the restore has another version than the backup: $made"
serve after
# All that was acknowledged before the backup, and then all up to its one version: no gap.
mosquitto_sub -p "$port" -i keeper -c -q 1 -t 'jobs/#' -W 15 >"$folder/got" || true
got=$(wc -l <"$folder/got")
[ "$got" -ge 500 ] || fail "the session has $got of at least 500 messages"
cmp <(seq "$got") "$folder/got" || fail "the session has not the messages 1 to $got"
echo "ok: a backup of a cluster that was written to, restored: messages 1 to $got"
