#!/usr/bin/env bash
# Tests several processes on one FoundationDB cluster with real clients: sessions that move from
# process to process, wills and sessions of a killed process, and a cluster that is killed or away
# for a while. `make test-fdb` runs it. It needs FDB_CLUSTER_FILE and FDB_TEST_FOLDER, as
# `storage/tests/foundationdb.sh with COMMAND` sets them, and prints what it found.
set -uo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../../.." || exit 1
PATH=$PATH:/usr/sbin
cluster=$PWD/storage/tests/foundationdb.sh
bin=${SERVER_BIN:-${CARGO_TARGET_DIR:-target}/debug/millrace}
work=$(mktemp -d) || exit 1
declare -A port pid
prefix=pods-$RANDOM
failed=0

for program in mosquitto_sub mosquitto_pub; do
    if ! command -v "$program" >/dev/null; then
        echo "SKIPPED: the test of several processes on FoundationDB: there is no $program (apt-get install mosquitto-clients)"
        exit 0
    fi
done

cleanup() {
    local all=("${pid[@]}")
    all+=($(jobs -p))
    [ ${#all[@]} = 0 ] || kill -KILL "${all[@]}" 2>/dev/null
    wait 2>/dev/null
    [ "${KEEP:-}" ] || rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

ok() { echo "ok: $1"; }

bad() {
    echo "FAILED: $1"
    failed=1
}

# Until a command succeeds, or $1 seconds are over.
until_() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

has_line() { grep -qF -- "$2" "$1" 2>/dev/null; }

start_pod() {
    local name=$1 free
    if [ -z "${port[$name]:-}" ]; then
        while :; do
            free=$((20000 + RANDOM % 20000))
            (exec 3<>"/dev/tcp/127.0.0.1/$free") 2>/dev/null || break
        done
        port[$name]=$free
    fi
    "$bin" serve --store foundationdb --fdb-cluster-file "$FDB_CLUSTER_FILE" --fdb-prefix "$prefix" --pod "$name" \
        --mqtt-listen "127.0.0.1:${port[$name]}" --ws-listen off --http-listen off >>"$work/$name.log" 2>&1 &
    pid[$name]=$!
    if ! until_ 30 pub "$name" started x 0; then
        bad "process $name did not start"
        cat "$work/$name.log"
        exit 1
    fi
}

kill_pod() {
    kill -KILL "${pid[$1]}" 2>/dev/null
    wait "${pid[$1]}" 2>/dev/null
    unset "pid[$1]"
}

# pub POD TOPIC TEXT QOS: whether it was acknowledged.
pub() {
    local said
    said=$(timeout 30 mosquitto_pub -V 5 -p "${port[$1]}" -t "$2" -m "$3" -q "${4:-1}" 2>&1) && [[ $said != *ailed* ]]
}

# sub POD CLIENT ARGS...: a session that stays. For a subshell, which it becomes: so it can be killed.
sub() {
    local at=${port[$1]} client=$2
    shift 2
    exec stdbuf -oL mosquitto_sub -V 5 -c -x 3600 -p "$at" -i "$client" "$@"
}

# expect POD CLIENT FILTER WHAT LINE...: exactly these come to a session, in this order, and nothing after them.
expect() {
    local at=$1 client=$2 filter=$3 what=$4 got
    shift 4
    pub "$at" "${filter%%/#}/end" "the end" 2 || bad "$what: the last message was not acknowledged"
    got=$(sub "$at" "$client" -q 2 -t "$filter" -W 30 -C $(($# + 1)) 2>&1)
    if [ "$got" = "$(printf '%s\n' "$@" "the end")" ]; then
        ok "$what"
    else
        bad "$what: wanted [$*], got [${got//$'\n'/ }]"
    fi
}

for name in one two three; do start_pod "$name"; done

# -- a session goes from process to process

(sub one ann -q 2 -t 'ann/#' -E) || bad "a subscription was not acknowledged"
for text in 1 2 3; do pub two ann/a "$text" 2 || bad "$text was not acknowledged"; done
pub three ann/b 4 2 || bad "4 was not acknowledged"
expect two ann 'ann/#' "what was published on others while a session was away comes to it on a third" 1 2 3 4

sub one bob -q 1 -t 'bob/#' -d >"$work/bob1" 2>&1 &
first=$!
until_ 20 has_line "$work/bob1" "Subscribed" || bad "bob is not subscribed"
pub three bob/a live || bad "live was not acknowledged"
until_ 20 has_line "$work/bob1" "live" && ok "a session that is there gets what is published on another process" \
    || bad "bob did not get what was published on another process"
sub two bob -q 1 -t 'bob/#' >"$work/bob2" 2>&1 &
second=$!
until_ 20 grep -q "Received DISCONNECT (142)" "$work/bob1" && ok "a takeover on another process ends the first connection" \
    || bad "the first connection was not told of its takeover: $(tail -3 "$work/bob1")"
kill "$first" 2>/dev/null
pub three bob/a after || bad "after was not acknowledged"
until_ 20 has_line "$work/bob2" "after" && ok "and the second gets what follows" || bad "the second connection got nothing"
kill "$second" 2>/dev/null

pub one r/a kept-on-one 1
mosquitto_pub -V 5 -p "${port[one]}" -t r/a -m retained -q 1 -r
[ "$(mosquitto_sub -V 5 -p "${port[three]}" -t 'r/#' -C 1 -W 20)" = retained ] && ok "a retained message is that of all processes" \
    || bad "a retained message of another process did not come"

# -- a process is killed

(sub two watcher -q 1 -t 'will/#' -E)
sub one dies -q 1 -t 'dies/#' --will-topic will/dies --will-payload gone --will-qos 1 -d >"$work/dies" 2>&1 &
client=$!
until_ 20 has_line "$work/dies" "Subscribed" || bad "dies is not subscribed"
pub three dies/a before
kill -STOP "$client"
kill_pod one
kill -KILL "$client" 2>/dev/null
for text in 1 2; do pub two dies/b "$text" || bad "$text was not acknowledged while a process was dead"; done
sub two looks -q 1 -t 'will/#' >"$work/will" 2>&1 &
until_ 30 has_line "$work/will" gone && ok "the will of a client of a killed process is published by another" \
    || bad "the will of a client of a killed process was not published"
expect three watcher 'will/#' "it is published once" gone
got=$(timeout 60 mosquitto_sub -V 5 -c -x 3600 -p "${port[three]}" -i dies -q 1 -t 'dies/#' -C 2 -W 30 | grep -v before)
[[ "$got" == 1* ]] && ok "the session of a killed process continues with another" || bad "the session of a killed process has [$got]"
start_pod one

# -- the cluster is killed, again and again, under load

(sub one keeper -q 2 -t 'load/#' -E)
acknowledged=$work/acknowledged
: >"$acknowledged"
count() { wc -l <"$acknowledged"; }
more() { [ "$(count)" -gt $((before + 10)) ]; }
load() {
    local number=0
    until [ -e "$work/stop" ]; do
        number=$((number + 1))
        pub "$1" "load/$1" "$1-$number" $((number % 2 + 1)) && echo "$1-$number" >>"$acknowledged"
    done
}
load one &
loads=($!)
load two &
loads+=($!)
for round in 1 2 3 4 5; do
    before=$(count)
    until_ 60 more || bad "nothing is acknowledged any more, round $round"
    "$cluster" kill "$FDB_TEST_FOLDER"
done
before=$(count)
until_ 60 more || bad "nothing is acknowledged after the cluster came back"
touch "$work/stop"
wait "${loads[@]}"
until_ 60 pub three load/three up || bad "the third process stores nothing after the cluster came back"
timeout 120 mosquitto_sub -V 5 -c -x 3600 -p "${port[three]}" -i keeper -q 2 -t 'load/#' -W 10 >"$work/kept" 2>"$work/keeper"
missing=$(sort "$acknowledged" | comm -23 - <(sort "$work/kept") | wc -l)
doubled=$(sort "$work/kept" | uniq -d | grep -Fxf "$acknowledged" -c)
if [ "$missing" = 0 ] && [ "$doubled" = 0 ]; then
    ok "$(wc -l <"$acknowledged") messages that were acknowledged while the cluster was killed 5 times are there, once"
else
    bad "of $(wc -l <"$acknowledged") acknowledged messages $missing are missing, and $doubled came twice: $(tail -2 "$work/keeper")"
fi

# -- the cluster is down

mkfifo "$work/pipe"
stdbuf -oL mosquitto_sub -V 5 -p "${port[one]}" -t live -q 0 >"$work/live" 2>&1 &
mosquitto_pub -V 5 -p "${port[one]}" -t live -q 0 -l <"$work/pipe" &
exec 4>"$work/pipe"
mosquitto_pub -V 311 -p "${port[one]}" -t warm -m up -q 0
echo before >&4
until_ 10 has_line "$work/live" before || bad "QoS 0 does not work"
publish_lines() {
    mkfifo "$work/$1.lines"
    stdbuf -oL mosquitto_pub -V 5 -d -p "${port[two]}" -t load/x -q 1 -l <"$work/$1.lines" >"$work/$1" 2>&1 &
}
answered() { until_ 20 grep -q "received PUBACK (Mid: $2, RC:$3)" "$work/$1"; }
publish_lines pending
exec 5>"$work/pending.lines"
publish_lines later
exec 6>"$work/later.lines"
echo one >&5
echo one >&6
answered pending 1 0 && answered later 1 0 || bad "no PUBACK: $(cat "$work/pending" "$work/later")"
"$cluster" stop "$FDB_TEST_FOLDER"
# Its commit stays pending, so its outcome is unknown until the cluster is back. The server refuses later messages. It also refuses this
# one if the transaction had to ask for a read version.
echo two >&5
sleep 1
echo two >&6
answered later 2 131 && ok "a publisher is told that a message cannot be stored" || bad "a publisher is not told: $(tail -2 "$work/later")"
echo meanwhile >&4
until_ 10 has_line "$work/live" meanwhile && ok "QoS 0 continues without the cluster" || bad "QoS 0 stopped without the cluster"
"$cluster" start "$FDB_TEST_FOLDER"
until_ 60 pub one load/x back && ok "all continues when the cluster is back" || bad "nothing is stored though the cluster is back"
answered pending 2 '\(0\|131\)' && ok "the message of the pending commit is answered then" \
    || bad "the message of the pending commit has no answer: $(tail -2 "$work/pending")"
exec 4>&- 5>&- 6>&-

# -- the end

kill -TERM "${pid[@]}"
for name in "${!pid[@]}"; do
    if wait "${pid[$name]}"; then unset "pid[$name]"; else bad "process $name ended with $?: $(tail -3 "$work/$name.log")"; fi
done
if [ $failed = 1 ]; then
    tail -n 5 "$work"/*.log
    exit 1
fi
echo "several processes on FoundationDB: all is well"
