#!/usr/bin/env bash
# Checks that need FoundationDB: `foundationdb.sh lint`, `test`, or `with COMMAND...`.
#
# lint checks the engine's code. It needs libclang for the bindings, and nothing of FoundationDB.
#
# test runs the tests of all engines and of the layers on the cluster of FDB_CLUSTER_FILE, or else
# on a cluster of its own: one process on a free loopback port, with its data in a temporary folder.
# The tests also kill this cluster, and a second cluster speaks TLS. FDB_STORE=ssd keeps its keys in
# files. The tests link with the client library, libfdb_c, and start fdbserver. FDB_CLIENT_LIB_PATH
# names the folder of libfdb_c, and PATH that of fdbserver, if they are not in the usual places.
#
# with runs a command on a cluster of its own, which keeps its keys in files. The command gets
# FDB_CLUSTER_FILE and FDB_TEST_FOLDER. Meanwhile, it calls this script to disturb
# the cluster: `stop FOLDER` kills its server, `start FOLDER` starts it, `kill FOLDER` does both.
#
# If something is missing on this machine, the script prints a line that starts with SKIPPED.
set -uo pipefail
self=$(realpath "${BASH_SOURCE[0]}")
root=$(cd "$(dirname "$self")/../.." && pwd)
PATH=$PATH:/usr/sbin:/usr/local/sbin
start_seconds_max=60
tls=()

has() { command -v "$1" >/dev/null 2>&1; }

# Ends with exit code 0, because this machine lacks something.
skip() {
    echo "SKIPPED: $1"
    exit 0
}

# The bindings need the library and the headers that come with it, such as stdbool.h.
need_libclang() {
    local places=(/usr/lib/llvm*/lib /usr/lib64/llvm*/lib /usr/lib /usr/lib64 /usr/lib/*-linux-gnu /usr/local/lib)
    compgen -G "${LIBCLANG_PATH:-/nowhere}*" >/dev/null && return
    compgen -G "/usr/lib*/llvm*/lib*/clang/*/include/stdbool.h" >/dev/null || compgen -G "/usr/lib*/clang/*/include/stdbool.h" >/dev/null ||
        skip "$1: it needs the headers of clang (apt-get install libclang-dev)"
    for place in "${places[@]}"; do
        # libclang-cpp is another library, which Mesa brings along.
        compgen -G "$place/libclang.so*" >/dev/null && return
        compgen -G "$place/libclang-[0-9]*.so*" >/dev/null && return
    done
    skip "$1: it needs libclang (apt-get install libclang-dev)"
}

lint() {
    need_libclang "the lints of the FoundationDB engine"
    cd "$root" && cargo clippy --package millrace-storage --package millrace-layers --package millrace-fdb-boot \
        --package millrace-simulation \
        --features millrace-storage/foundationdb,millrace-layers/foundationdb,millrace-simulation/foundationdb --all-targets -- -D warnings
}

# -- clusters of its own, each in a folder: $1

start_server() {
    fdbserver --cluster-file "$1/fdb.cluster" --public-address "$(cat "$1/address")" "${tls[@]}" \
        --datadir "$1/data" --logdir "$1/logs" --knob_disable_posix_kernel_aio=1 >>"$1/server.log" 2>&1 &
    echo $! >"$1/pid"
}

# Whether a process runs; a zombie does not.
runs() {
    local state
    state=$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) && [ "$state" ] && [ "$state" != Z ]
}

stop_server() {
    [ -s "$1/pid" ] || return
    local pid
    pid=$(cat "$1/pid")
    kill -KILL "$pid" 2>/dev/null
    while runs "$pid"; do sleep 0.05; done
}

# A port may stay taken for a moment after its server was killed.
start_again() {
    local tries
    for tries in {1..100}; do
        start_server "$1"
        sleep 0.2
        runs "$(cat "$1/pid")" && return
    done
    echo "FAILED: fdbserver did not start again: $(tail -1 "$1/server.log")" >&2
    return 1
}

cli() { fdbcli -C "$1/fdb.cluster" "${tls[@]}" --timeout "$start_seconds_max" --exec "$2" 2>&1; }

# Starts a cluster of one process in the folder $1; with $tls set, it listens with TLS.
start_cluster() {
    local port tries
    mkdir -p "$1/data" "$1/logs"
    for tries in {1..50}; do
        port=$((20000 + RANDOM % 20000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && continue
        echo "127.0.0.1:$port${tls:+:tls}" >"$1/address"
        echo "test:test$tries@$(cat "$1/address")" >"$1/fdb.cluster"
        start_server "$1"
        if cli "$1" "configure new single ${FDB_STORE:-memory}" >"$1/configured" \
            && cli "$1" "status minimal" | grep -q "is available"; then
            return
        fi
        # Another program may have taken the port meanwhile.
        runs "$(cat "$1/pid")" && break
    done
    echo "FAILED: a cluster did not start:"
    cat "$1/configured" "$1/server.log"
    exit 1
}

# Makes an authority, a certificate that it signed, and another authority, in a folder.
make_certificates() {
    local authority
    for authority in ca other; do
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$authority" \
            -keyout "$1/$authority.key" -out "$1/$authority.pem" || return
    done
    openssl req -newkey rsa:2048 -nodes -subj /CN=fdb.test -keyout "$1/key.pem" -out "$1/request.pem" || return
    openssl x509 -req -days 2 -in "$1/request.pem" -CA "$1/ca.pem" -CAkey "$1/ca.key" -CAcreateserial -out "$1/cert.pem"
}

cleanup() {
    stop_server "$work"
    stop_server "$work/tls"
    rm -rf "$work"
}

# Makes a temporary folder, and finds libclang and the client library; without them it skips $1.
prepare() {
    need_libclang "$1"
    export LIBRARY_PATH=${FDB_CLIENT_LIB_PATH:+$FDB_CLIENT_LIB_PATH:}${LIBRARY_PATH:-}
    export LD_LIBRARY_PATH=${FDB_CLIENT_LIB_PATH:+$FDB_CLIENT_LIB_PATH:}${LD_LIBRARY_PATH:-}
    work=$(mktemp -d) || exit 1
    trap cleanup EXIT
    trap 'exit 130' INT TERM
    if ! cc -x c - -o "$work/linked" -lfdb_c <<<'int main(void) { return 0; }' >/dev/null 2>&1; then
        skip "$1: there is no libfdb_c: install the package foundationdb-clients, or set FDB_CLIENT_LIB_PATH"
    fi
}

need_server() {
    if ! has fdbserver || ! has fdbcli; then
        skip "$1: there is no fdbserver and fdbcli on PATH"
    fi
}

run_with() {
    prepare "$1"
    need_server "$1"
    FDB_STORE=${FDB_STORE:-ssd} start_cluster "$work"
    export FDB_CLUSTER_FILE=$work/fdb.cluster FDB_TEST_FOLDER=$work
    "$@"
}

run_tests() {
    prepare "the tests on FoundationDB"
    local own=
    if [ -z "${FDB_CLUSTER_FILE:-}" ]; then
        need_server "the tests on FoundationDB, and FDB_CLUSTER_FILE names no cluster"
        own=1
        start_cluster "$work"
        export FDB_CLUSTER_FILE=$work/fdb.cluster
        # A test kills the server, which it may only do to a cluster of this script.
        export FDB_TEST_KILL="$self kill $work"
    fi
    cd "$root" || exit 1
    local storage=(cargo test --package millrace-storage --features foundationdb)
    set -e
    "${storage[@]}" --lib foundationdb
    # Most of these tests retry nothing, and a transaction ends after 5 s: so only two run at once.
    "${storage[@]}" --test engines foundationdb:: -- --test-threads=2
    "${storage[@]}" --test foundationdb
    "${storage[@]}" --test unknown_commits killed -- --nocapture
    # The client library reports a lost answer for a share of the commits (buggify).
    FDB_NETWORK_OPTION_CLIENT_BUGGIFY_ENABLE='' \
        FDB_NETWORK_OPTION_CLIENT_BUGGIFY_SECTION_ACTIVATED_PROBABILITY=100 \
        "${storage[@]}" --test unknown_commits lost -- --nocapture
    cargo test --package millrace-layers --features foundationdb
    [ "$own" ] || return 0
    if cli "$work" 'getrangekeys "" \xff 5' | grep -q "^\`"; then
        echo "FAILED: the tests left keys in the cluster"
        exit 1
    fi
    mkdir "$work/tls"
    make_certificates "$work/tls" >"$work/openssl.log" 2>&1 || skip "the tests of TLS to FoundationDB: openssl: $(tail -1 "$work/openssl.log")"
    tls=(--tls-certificate-file "$work/tls/cert.pem" --tls-key-file "$work/tls/key.pem" --tls-ca-file "$work/tls/ca.pem")
    start_cluster "$work/tls"
    # The client library has one set of certificates for a process, so each test gets a process.
    for name in is_reached is_not_believed; do
        FDB_TEST_TLS=$work/tls "${storage[@]}" --test foundationdb_tls "$name" -- --nocapture
    done
}

case ${1:-} in
lint) lint ;;
test) run_tests ;;
with)
    shift
    run_with "$@"
    ;;
# Kills the server of the cluster in a folder, and starts it again.
kill)
    stop_server "$2"
    start_again "$2"
    ;;
stop) stop_server "$2" ;;
start) start_again "$2" ;;
*)
    echo "usage: $0 lint | test | with COMMAND..." >&2
    exit 2
    ;;
esac
