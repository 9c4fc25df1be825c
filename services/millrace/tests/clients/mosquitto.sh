#!/usr/bin/env bash
# mosquitto_sub and mosquitto_pub: every version with every quality of service, retained messages, wills, shared
# subscriptions, sessions, passwords. Started by run.sh. mosquitto_clients.sh has the steps: `sub NAME ARGS...` starts mosquitto_sub
# in the background under a name, `got NAME` prints its output, and `end NAME SIGNAL` ends it; `pub` is mosquitto_pub.
set -uo pipefail
suite=mosquitto
. "$(dirname "${BASH_SOURCE[0]}")/mosquitto_clients.sh"

hex() { od -An -v -tx1 | tr -d ' \n'; }

delivers() {
    local version=$1 qos=$2 topic="d/$1/$2" n=0
    local -a payloads=("$work/empty" "$work/short" "$work/large")
    sub sub -V "$version" -q "$qos" -t "$topic/#" -i "s$version$qos" || return 1
    : >"$work/want"
    for payload in "${payloads[@]}"; do
        n=$((n + 1))
        pub -V "$version" -q "$qos" -t "$topic/$n" -f "$payload" -i "p$version$qos" || return 1
        echo "0 $qos $topic/$n $(hex <"$payload")" >>"$work/want"
    done
    wait_for got_count sub "${#payloads[@]}" && end sub TERM && got sub | cmp -s - "$work/want"
}

orders() {
    local version=$1 qos=$2 topic="o/$1/$2"
    sub sub -V "$version" -q "$qos" -t "$topic" -i "s$version$qos" -F "$text" || return 1
    seq 1000 | pub -V "$version" -q "$qos" -t "$topic" -l -i "p$version$qos" || return 1
    seq -f "0 $qos $topic %.0f" 1000 >"$work/want"
    wait_for got_count sub 1000 && end sub TERM && got sub | cmp -s - "$work/want"
}

retains() {
    local topic="r/$1"
    pub -V "$1" -q 1 -r -t "$topic" -m old && pub -V "$1" -q 1 -r -t "$topic" -m new || return 1
    sub sub -V "$1" -q 1 -t "$topic" -i retains -F "$text" && wait_for got_count sub 1 || return 1
    end sub TERM
    [ "$(got sub)" = "1 1 $topic new" ] || return 1
    pub -V "$1" -q 1 -r -n -t "$topic" || return 1
    sub sub -V "$1" -q 1 -t "$topic" -i retains -F "$text" && pub -V "$1" -q 1 -t "$topic" -m end && wait_for got_count sub 1
    end sub TERM
    [ "$(got sub)" = "0 1 $topic end" ]
}

wills() {
    local topic="w/$1" signal want
    for signal in KILL TERM; do
        sub sub -V "$1" -q 1 -t "$topic" -i wills -F "$text" || return 1
        sub mortal -V "$1" -t nothing -i mortal --will-topic "$topic" --will-payload gone --will-qos 1 || return 1
        end mortal "$signal"
        want="0 1 $topic gone"
        if [ "$signal" = TERM ]; then
            # The same client id: that the broker answers says that it is done with the connection before.
            pub -V "$1" -q 1 -i mortal -t "$topic" -m end || return 1
            want="0 1 $topic end"
            # mosquitto_sub -V 5 ends with reason code 0x04: with the will.
            [ "$1" != 5 ] || want="0 1 $topic gone"$'\n'"$want"
        fi
        wait_for got_count sub "$(wc -l <<<"$want")"
        end sub TERM
        [ "$(got sub)" = "$want" ] || return 1
    done
}

shares() {
    local topic="s/$1" member all=0
    for member in a b c; do sub $member -V "$1" -q 1 -t "\$share/group/$topic" -i "$member" || return 1; done
    seq 30 | pub -V "$1" -q 1 -t "$topic" -l || return 1
    for member in a b c; do
        wait_for got_count $member 10 || return 1
        [ "$(got $member | wc -l)" = 10 ] || return 1
    done
    end a TERM
    seq 30 | pub -V "$1" -q 1 -t "$topic" -l || return 1
    for member in b c; do
        wait_for got_count $member 25 || return 1
        end $member TERM
        all=$((all + $(got $member | wc -l)))
    done
    [ "$all" = 50 ]
}

resumes() {
    local topic="p/$1" qos
    local -a durable=(-V "$1" -q 2 -t "$topic" -i durable -c -F "$text")
    [ "$1" != 5 ] || durable+=(-x 600)
    sub sub "${durable[@]}" || return 1
    end sub KILL
    for qos in 1 2; do seq 50 | pub -V "$1" -q "$qos" -t "$topic" -l || return 1; done
    sub sub "${durable[@]}" && wait_for got_count sub 100 || return 1
    end sub TERM
    for qos in 1 2; do
        seq -f "0 $qos $topic %.0f" 50 >"$work/want"
        got sub | grep "^0 $qos" | cmp -s - "$work/want" || return 1
    done
    # Leaves nothing behind.
    sub sub -V "$1" -t "$topic" -i durable && end sub TERM
}

# Passwords and rules: which clients may connect and publish.
guards() {
    local OPEN_PORT=$GUARDED_PORT
    pub -V "$1" -t free -m x -u ann -P right || return 1
    ! pub -V "$1" -t free -m x -u ann -P wrong 2>/dev/null || return 1
    ! pub -V "$1" -t free -m x 2>/dev/null || return 1
    sub sub -V "$1" -q 1 -t free -t readonly -i guards -F "$text" -u ann -P right || return 1
    pub -V "$1" -q 1 -t readonly -m denied -u ann -P right >/dev/null 2>&1
    pub -V "$1" -q 1 -t free -m allowed -u ann -P right && wait_for got_count sub 1
    end sub TERM
    [ "$(got sub)" = "0 1 free allowed" ]
}

passes_on_properties() {
    sub sub -V 5 -q 1 -t props -F 'got %P %R' || return 1
    pub -V 5 -q 1 -t props -m x -D publish user-property k v -D publish response-topic back || return 1
    wait_for got_count sub 1
    end sub TERM
    [ "$(got sub)" = "k:v back" ]
}

# A server that stops says so, or where to go: 0x8B, or 0x9C with a server reference.
sends_away() {
    local code=$1 OPEN_PORT log=$work/leaving.log
    shift
    # Else the port of the last server may be read.
    : >"$log"
    "$MILLRACE" serve --mqtt-listen=127.0.0.1:0 --ws-listen=off --http-listen=off --data-dir=off "$@" 2>"$log" &
    running[leaving]=$!
    disown
    wait_for grep -qs 'mqtt://' "$log" || return 1
    OPEN_PORT=$(sed -nE 's#.*mqtt://127\.0\.0\.1:([0-9]+).*#\1#p' "$log" | head -1)
    sub new -V 5 -t nothing -i new && sub old -V 311 -t nothing -i old || return 1
    end leaving TERM
    wait_for said new "Received DISCONNECT ($code)"
    local ended=$?
    end new KILL 2>/dev/null
    end old KILL 2>/dev/null
    ! said old 'Received DISCONNECT' && return "$ended"
}

# README: a first message.
shows_a_first_message() {
    sub sub -t 'hello/#' -v || return 1
    pub -t hello/world -m hi || return 1
    wait_for got_count sub 1
    end sub TERM
}

: >"$work/empty"
printf 'hi' >"$work/short"
head -c 204800 /dev/urandom >"$work/large"
check 'a first message' shows_a_first_message
for version in 31 311 5; do
    for qos in 0 1 2; do
        check "$version, QoS $qos: payloads arrive as they were sent" delivers $version $qos
        check "$version, QoS $qos: 1000 messages in order" orders $version $qos
    done
    check "$version: retained messages are set, replaced and cleared" retains $version
    check "$version: a will after a cut connection, none after DISCONNECT" wills $version
    check "$version: members of a group take turns" shares $version
    check "$version: a session waits for its client" resumes $version
    check "$version: password and rules" guards $version
done
check '5: user properties and response topic' passes_on_properties
check '5: a server that stops says so' sends_away 139
check '5: a server that stops says where to go' sends_away 156 --server-reference=other.example:1883
exit $failed
