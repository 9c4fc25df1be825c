# Functions for suites with mosquitto_sub and mosquitto_pub, which source this file. $suite is the
# name of the suite, $OPEN_PORT the broker's port.
work=$(mktemp -d)
failed=0
declare -A running=()
seconds_max=20

cleanup() {
    for pid in "${running[@]}"; do kill -KILL "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap cleanup EXIT

check() {
    local name=$1
    shift
    if "$@"; then
        echo "ok $suite: $name"
    else
        echo "FAILED: $suite: $name"
        tail -n 5 "$work"/*.log | cut -c1-200
        failed=1
    fi
}

wait_for() {
    local end=$((SECONDS + seconds_max))
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || { echo "not in $seconds_max s: $*" && return 1; }
        sleep 0.02
    done
}

said() { grep -qs -- "$2" "$work/$1.log"; }
# Prints the messages of a subscriber, a line "<retain> <qos> <topic> <payload>" each; the payload
# is in hex unless the subscriber asked for text.
text='got %r %q %t %p'
got() { sed -n 's/^got //p' "$work/$1.log"; }
got_count() { [ "$(got "$1" | wc -l)" -ge "$2" ]; }

pub() { timeout "$seconds_max" mosquitto_pub -h 127.0.0.1 -p "$OPEN_PORT" "$@"; }

# Starts a subscriber and waits for its SUBACK: sub NAME OPTION...
sub() {
    local name=$1
    shift
    : >"$work/$name.log"
    stdbuf -oL mosquitto_sub -h 127.0.0.1 -p "$OPEN_PORT" -d -F 'got %r %q %t %x' "$@" >"$work/$name.log" 2>&1 &
    running[$name]=$!
    # So the shell does not report its end.
    disown
    wait_for said "$name" 'received SUBACK\|^Subscribed'
}

# Ends a subscriber: with SIGTERM it sends DISCONNECT, with SIGKILL it does not.
end() {
    kill "-$2" "${running[$1]}"
    wait_for gone "${running[$1]}"
    unset "running[$1]"
}
gone() { ! kill -0 "$1" 2>/dev/null; }
