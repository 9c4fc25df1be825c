#!/usr/bin/env bash
# Bridges of a real mosquitto to the broker, in both directions and in all versions: messages, retained messages, no
# loops, and an outage of each side. Started by run.sh. mosquitto listens on 127.0.0.1 alone.
set -uo pipefail
suite=bridge
. "$(dirname "${BASH_SOURCE[0]}")/mosquitto_clients.sh"
count=20

# -- the two brokers

listens() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Starts Millrace on the port that it had, if any.
start_millrace() {
    : >"$work/millrace.log"
    "$MILLRACE" serve --mqtt-listen="127.0.0.1:${millrace_port:-0}" --ws-listen=off --http-listen=off \
        --data-dir="$work/millrace.data" 2>"$work/millrace.log" &
    running[millrace]=$!
    disown
    wait_for said millrace 'mqtt://' || return 1
    millrace_port=$(sed -nE 's#.*mqtt://127\.0\.0\.1:([0-9]+).*#\1#p' "$work/millrace.log" | head -1)
}

# mosquitto cannot take a port of its choice: one that nobody has is tried. start_mosquitto OPTION...
start_mosquitto() {
    local try
    for try in 1 2 3 4 5 6 7 8; do
        mosquitto_port=${mosquitto_port:-$((28000 + RANDOM % 1000))}
        {
            printf '%s\n' "listener $mosquitto_port 127.0.0.1" 'allow_anonymous true' 'user root' 'log_type all' \
                'persistence true' "persistence_location $work/mosquitto.data/" \
                'connection millrace' "address 127.0.0.1:$millrace_port" 'remote_clientid bridge' 'restart_timeout 1' \
                'cleansession false' 'topic up/# out 1' 'topic down/# in 1' 'topic both/# both 1' "$@"
        } >"$work/mosquitto.conf"
        mosquitto -c "$work/mosquitto.conf" >"$work/mosquitto.log" 2>&1 &
        running[mosquitto]=$!
        disown
        wait_for mosquitto_has_begun || return 1
        ! gone "${running[mosquitto]}" && return
        mosquitto_port=
    done
    return 1
}
mosquitto_has_begun() { gone "${running[mosquitto]}" || { listens "$mosquitto_port" && said mosquitto 'running'; }; }

at_millrace() { OPEN_PORT=$millrace_port "$@"; }
at_mosquitto() { OPEN_PORT=$mosquitto_port "$@"; }

# Sends until it arrives: the bridge may be connecting. passes FROM TO TOPIC
passes() {
    local from=$1 to=$2 topic=$3 end=$((SECONDS + seconds_max))
    "$to" sub probe -q 1 -t "$topic" -F "$text" || return 1
    until got_count probe 1; do
        [ "$SECONDS" -lt "$end" ] || { echo "nothing on $topic" && return 1; }
        "$from" pub -q 1 -t "$topic" -m probe || return 1
        sleep 0.2
    done
    end probe TERM
}

# -- checks

connects() {
    passes at_mosquitto at_millrace up/probe && passes at_millrace at_mosquitto down/probe || return 1
    ! said mosquitto 'Connection Refused\|unknown reason'
}

# Each message arrives once on each side: a bridge that got its own back would send them round for ever.
goes_both_ways_without_a_loop() {
    local side
    for side in mosquitto millrace; do "at_$side" sub "$side-sub" -q 1 -t 'both/#' -F "$text" || return 1; done
    for side in mosquitto millrace; do
        seq -f "$side %.0f" "$count" | "at_$side" pub -q 1 -t "both/$side" -l || return 1
    done
    # A message that went round twice would have arrived before this probe.
    passes at_mosquitto at_millrace up/probe && passes at_millrace at_mosquitto down/probe || return 1
    for side in mosquitto millrace; do
        wait_for got_count "$side-sub" $((2 * count)) || return 1
        for from in mosquitto millrace; do
            seq -f "0 1 both/$from $from %.0f" "$count" >"$work/want"
            got "$side-sub" | grep " both/$from " | cmp -s - "$work/want" || return 1
        done
        end "$side-sub" TERM
    done
}

# A message that one side retains while the bridge is up is retained on the other.
retains() {
    local from to topic
    for from in mosquitto millrace; do
        [ "$from" = mosquitto ] && to=millrace topic=up/kept || { to=mosquitto topic=down/kept; }
        "at_$from" pub -q 1 -r -t "$topic" -m kept || return 1
        passes "at_$from" "at_$to" "${topic%/*}/probe" || return 1
        "at_$to" sub late -q 1 -t "$topic" -F "$text" && wait_for got_count late 1 || return 1
        end late TERM
        [ "$(got late)" = "1 1 $topic kept" ] || return 1
    done
}

# Messages that one side sent while the other was down arrive, in order.
survives_an_outage_of_millrace() {
    at_millrace sub lasting -q 1 -i lasting -c -t up/outage -F "$text" && end lasting TERM || return 1
    end millrace KILL
    seq "$count" | at_mosquitto pub -q 1 -t up/outage -l || return 1
    start_millrace && at_millrace sub lasting -q 1 -i lasting -c -t up/outage -F "$text" || return 1
    wait_for got_count lasting "$count" || return 1
    end lasting TERM
    seq -f '0 1 up/outage %.0f' "$count" >"$work/want"
    # After a cut connection QoS 1 may come twice.
    got lasting | awk '!seen[$0]++' | cmp -s - "$work/want"
}

survives_an_outage_of_mosquitto() {
    at_mosquitto sub lasting -q 1 -i lasting -c -t down/outage -F "$text" && end lasting TERM || return 1
    end mosquitto TERM
    seq "$count" | at_millrace pub -q 1 -t down/outage -l || return 1
    start_mosquitto "$@" && at_mosquitto sub lasting -q 1 -i lasting -c -t down/outage -F "$text" || return 1
    wait_for got_count lasting "$count" || return 1
    end lasting TERM
    seq -f '0 1 down/outage %.0f' "$count" >"$work/want"
    got lasting | awk '!seen[$0]++' | cmp -s - "$work/want"
}

# With the default settings mosquitto bridges by 3.1.1 and sets the bridge bit.
bridge() {
    local name=$1
    shift
    mkdir -p "$work/mosquitto.data"
    millrace_port= mosquitto_port=
    start_millrace && start_mosquitto "$@" || { echo "FAILED: $suite: $name: a broker does not start" && failed=1 && return; }
    check "$name: connects, and messages go out and in" connects
    check "$name: a topic in both directions does not loop" goes_both_ways_without_a_loop
    check "$name: retained messages stay retained" retains
    check "$name: nothing is lost while Millrace is down" survives_an_outage_of_millrace
    # With 5.0 mosquitto sends no Session Expiry Interval, so its session ends with its connection (section 3.1.2.11.2).
    [ "$name" = 5.0 ] ||
        check "$name: nothing is lost while mosquitto is down" survives_an_outage_of_mosquitto "$@"
    end mosquitto TERM
    end millrace TERM
    if grep -qE 'panicked| ERROR ' "$work/millrace.log"; then
        echo "FAILED: $suite: $name: the log of Millrace has errors" && failed=1
    fi
    rm -rf "$work/mosquitto.data" "$work/millrace.data"
}

bridge 'default settings'
bridge '3.1' 'bridge_protocol_version mqttv31'
bridge '5.0' 'bridge_protocol_version mqttv50'
exit $failed
