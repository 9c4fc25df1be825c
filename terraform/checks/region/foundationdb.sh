# Sourced by region.sh: FoundationDB's machines. They run where this machine has fdbserver, fdbcli and libfdb_c, and the program was built
# with the feature foundationdb. The functions boot, lan, package, publish, published, until_true, say and fail are region.sh's; when
# it ends, it calls detach_loops.
# shellcheck shell=bash disable=SC2154 # work, here, target, MILLRACE and edge_addresses come from region.sh

loops=()

# Prints what this machine lacks for FoundationDB, or nothing.
database_lacks() {
    local program
    "$MILLRACE" --version | grep '^features:.*foundationdb' >/dev/null || { echo "$MILLRACE is built without it"; return 0; }
    for program in fdbserver fdbcli; do
        command -v "$program" >/dev/null || { echo "$program is not installed"; return 0; }
    done
}

# -- packages, which have the programs of this machine where FoundationDB's own packages have theirs

# staged PACKAGE FILE PATH: FILE is PATH of the package, beside the libraries that the root file system lacks.
staged() {
    local library
    install -D "$2" "$work/stage/$1$3"
    for library in $(ldd "$2" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p'); do
        [ -e "$target/deploy/rootfs$library" ] || install -D "$library" "$work/stage/$1/usr/lib/${library##*/}"
    done
}

package_database() {
    local server=$work/stage/foundationdb-server monitor version
    version=$(fdbcli --version | sed -n 's/.*(v\([0-9.]*\)).*/\1/p')
    [ -n "$version" ] || fail "fdbcli does not say its version"
    staged foundationdb-clients "$(command -v fdbcli)" /usr/bin/fdbcli
    staged foundationdb-clients "$(ldd "$MILLRACE" | sed -n 's/.*libfdb_c\.so => \(\/[^ ]*\) .*/\1/p')" /usr/lib/libfdb_c.so
    package foundationdb-clients "$version"
    staged foundationdb-server "$(command -v fdbserver)" /usr/sbin/fdbserver
    if monitor=$(PATH=$PATH:/usr/lib/foundationdb command -v fdbmonitor); then
        staged foundationdb-server "$monitor" /usr/lib/foundationdb/fdbmonitor
    else
        echo "NOTE: fdbmonitor is not installed: monitor.py starts the processes of foundationdb.conf in its place"
        install -D "$here/monitor.py" "$server/usr/lib/foundationdb/fdbmonitor"
    fi
    install -D -m 0644 "$here/foundationdb.service" "$server/usr/lib/systemd/system/foundationdb.service"
    mkdir -p "$server/DEBIAN" "$server/etc/foundationdb" "$server/var/lib/foundationdb" "$server/var/log/foundationdb"
    cat >"$server/DEBIAN/postinst" <<'SH'
#!/bin/sh -e
echo 'u foundationdb - foundationdb /var/lib/foundationdb' | systemd-sysusers -
chown -R foundationdb:foundationdb /etc/foundationdb /var/lib/foundationdb /var/log/foundationdb
SH
    chmod 0755 "$server/DEBIAN/postinst"
    package foundationdb-server "$version"
}

# -- machines

# database_file NAME PATH: a file that the machine's user data writes. Terraform's output cloud_configs has the user data of each
# machine: the line #cloud-config, then JSON.
database_file() {
    python3 - "$work/cloud_configs.json" "$@" <<'PY'
import json, sys

text = json.load(open(sys.argv[1]))["foundationdb"][sys.argv[2]]
files = json.loads(text.partition("\n")[2])["write_files"]
print(next(file["content"] for file in files if file["path"] == sys.argv[3]))
PY
}

# database_disks NAME: a loop device for each disk that the machine mounts. machine.sh gives it the name of the disk.
database_disks() {
    local device image
    mkdir -p "$work/$1/disks"
    for device in $(database_file "$1" /etc/millrace-boot.json | python3 -c 'import json, sys; print(*(disk["device"] for disk in json.load(sys.stdin)["disks"]))'); do
        image=$work/$1/${device##*/}.img
        truncate -s 4G "$image"
        loops+=("$(losetup --find --show "$image")")
        ln -s "${loops[-1]}" "$work/$1/disks/${device##*/}"
    done
}

detach_loops() {
    local loop
    for loop in "${loops[@]}"; do losetup --detach "$loop" 2>/dev/null; done
}

boot_database() {
    local number name address
    for number in 1 2 3; do
        name=foundationdb-$number
        address=$(database_file "$name" /etc/foundationdb/foundationdb.conf | sed -n 's/^public-address = \([0-9.]*\):.*/\1/p')
        boot "$name" "$address" foundationdb "$name"
    done
    database_file "$name" /etc/foundationdb/fdb.cluster | head -1 >"$work/fdb.cluster"
    until_true 600 "FoundationDB is available on all its machines" database_is_whole
    say "FoundationDB: $(database_status)"
    echo "SKIPPED: FoundationDB's backup: nothing here stands in for S3 over TLS"
}

# database COMMAND: fdbcli, with the certificate of an edge machine.
database() {
    local secrets=$work/secrets/edge
    lan env FDB_TLS_CERTIFICATE_FILE="$secrets/tls.crt" FDB_TLS_KEY_FILE="$secrets/tls.key" FDB_TLS_CA_FILE="$secrets/ca.crt" \
        FDB_TLS_VERIFY_PEERS=Check.Valid=1,S.CN=foundationdb fdbcli -C "$work/fdb.cluster" --timeout 20 --exec "$1"
}

database_status() {
    database 'status json' | python3 -c '
import collections, json, sys
cluster = json.load(sys.stdin)["cluster"]
processes = cluster["processes"].values()
machines = {process["locality"]["zoneid"] for process in processes}
kinds = collections.Counter(process["class_type"] for process in processes)
plain = [process["address"] for process in processes if not process["address"].endswith(":tls")]
print(f"{len(machines)} machines,", ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds)) + ",",
      cluster["configuration"]["redundancy_mode"] + ",", f"without TLS {plain}" if plain else "TLS")'
}

# Also that the database answers a read, which its status alone does not promise.
database_is_whole() {
    [ "$(database_status)" = "3 machines, 3 stateless, 6 storage, 3 transaction, double, TLS" ] && database 'get nothing' | grep 'not found' >/dev/null
}

# -- the loss of machines

# lose NAME: the machine ends, as an instance without power does, and nothing starts it again.
lose() { echo 1 >"$work/$1/cgroup/millrace-$1/cgroup.kill"; }

# Prints the edge machine with the device's connection, if exactly one machine has exactly one connection.
edge_of_device() {
    local number found=()
    for number in "${!edge_addresses[@]}"; do
        lan curl -fs --max-time 5 "http://${edge_addresses[number]}:8090/metrics" | grep -x 'millrace_connections_open 1' >/dev/null || continue
        found+=("edge-$((number + 1))")
    done
    [ "${#found[@]}" = 1 ] && echo "${found[0]}"
}

is_elsewhere() {
    local now
    now=$(edge_of_device) && [ "$now" != "$1" ]
}

# `published TEXT` sends the text until the device has received it.
lose_machines() {
    local lost
    until_true 60 "the pod of the device is known" edge_of_device
    lost=$(edge_of_device)
    lose "$lost"
    until_true 180 "a message after the loss of $lost" published second
    until_true 60 "the device is on another pod" is_elsewhere "$lost"
    say "$lost was lost with its pod; the device continued with its session on $(edge_of_device) and got its message"
    lose foundationdb-3
    until_true 300 "a message after the loss of foundationdb-3" published third
    say "foundationdb-3 was lost; the device got its message"
}
