#!/usr/bin/env bash
# Boots the machines that examples/small describes, on this machine: `make check-region`.
#
# Terraform applies the example against moto; each machine's user data is then run by the real cloud-init under the real
# systemd, in namespaces of its own: three nats-servers, three machines of FoundationDB, three of the edge, a gateway. The programs
# come from moto's S3 by hash, the secrets from its Secrets Manager. A device connects over TLS, and survives the loss of its pod's
# machine and of a machine of FoundationDB.
#
# Where FoundationDB is not installed, or MILLRACE was built without it, one edge machine runs three pods as one process on the
# embedded engine, which the machine's systemd starts again.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
tools=$target/tools
work=$target/deploy/region
: "${MILLRACE:=$target/release/millrace}"
: "${NATS_SERVER:=$tools/nats-server}"
: "${ENVOY:=$target/envoy/bin/envoy}"
lan=millrace-lan
router=10.40.240.1
port=5000
PATH=$PATH:/usr/sbin
# moto.sh has prepare, which copies an example and sets `example`, variables and account; foundationdb.sh has the machines of
# FoundationDB and lose_machines.
# shellcheck disable=SC1091 # beside this folder
source "$here/../moto.sh"
# shellcheck disable=SC1091
source "$here/foundationdb.sh"
pids=()
machines=()
# Why FoundationDB is left out; empty where it runs.
without_database=
edge_addresses=()

say() { echo "region: $1"; }

fail() {
    echo "FAILED: $1" >&2
    exit 1
}

skip() {
    echo "SKIPPED: the machines of a region: $1"
    exit 0
}

# -- what the machines share: a bridge, AWS's stand-ins

# In the background it is written out, so that $! is the program and no shell.
lan() { ip netns exec "$lan" "$@"; }

clean() {
    set +e
    local pid name
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
    for name in "${machines[@]}"; do
        [ ! -e "$work/$name/cgroup/millrace-$name" ] || echo 1 >"$work/$name/cgroup/millrace-$name/cgroup.kill" 2>/dev/null
    done
    wait 2>/dev/null
    detach_loops
    for name in "${machines[@]}"; do
        find "$work/$name/cgroup/millrace-$name" -depth -type d -exec rmdir {} + 2>/dev/null
        umount "$work/$name/cgroup" 2>/dev/null
        ip netns delete "millrace-$name" 2>/dev/null
    done
    ip netns delete "$lan" 2>/dev/null
    rm -rf "/etc/netns/$lan"
}

make_lan() {
    ip netns delete "$lan" 2>/dev/null || true
    ip netns add "$lan"
    lan ip link set lo up
    lan ip link add br0 type bridge
    lan ip link set br0 up
    lan ip address add "$router/16" dev br0
    lan ip address add 169.254.169.254/32 dev br0
    ip netns exec "$lan" python3 "$here/metadata.py" &
    pids+=($!)
}

# until SECONDS WHAT COMMAND...: waits for a condition.
until_true() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { logs; fail "not in time: $what"; }
        sleep 0.2
    done
}

# boot_log NAME: the journal of its first start.
boot_log() { journalctl --directory="$work/$1/upper/var/log/journal" --unit=millrace-boot.service --output=cat --no-pager 2>/dev/null; }

logs() {
    local name
    for name in "${machines[@]}"; do
        echo "-- $name"
        tail -n 12 "$work/$name.log" | cut -c1-200
        boot_log "$name" | tail -n 5
    done
}

# -- programs

# package NAME VERSION: of the files in the stage, if there are any.
package() {
    local stage=$work/stage/$1
    mkdir -p "$stage/DEBIAN"
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: checks <checks@example.org>\nDescription: stands in for %s\n' \
        "$1" "$2" "$1" >"$stage/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone --build "$stage" "$work/programs/$1_$2_all.deb" >/dev/null
}

collect_programs() {
    rm -rf "$work/programs" "$work/stage"
    mkdir -p "$work/programs"
    DEB_COMPRESSION=none "$root/services/millrace/packaging/deb.sh" "$MILLRACE" "$work/programs" >/dev/null
    cp "$NATS_SERVER" "$work/programs/nats-server"
    cp "$(readlink -f "$(envoy_binary)")" "$work/programs/envoy"
    echo '#!/bin/true' >"$work/programs/prometheus"
    cp "$exporter" "$work/programs/node_exporter"
    package amazon-ssm-agent 0
    mv "$work/programs/amazon-ssm-agent_0_all.deb" "$work/programs/amazon-ssm-agent.deb"
    if [ -z "$without_database" ]; then
        package_database
    else
        package foundationdb-clients 0
        package foundationdb-server 0
        echo "SKIPPED: FoundationDB ($without_database): empty packages stand in for it; one edge machine runs three pods on the embedded engine instead"
    fi
}

# pip's envoy is a script that runs the program beside it.
envoy_binary() {
    find "$(dirname "$ENVOY")/.." -type f -size +20M -name 'envoy*' | head -1
}

# -- the example

# The check's device has no password. Without FoundationDB other settings stand in for it; the rest is the example's.
settings() {
    if [ -z "$without_database" ]; then
        echo '"edge_settings": { "brokers": ["acme"], "allow_anonymous": true }'
        return
    fi
    cat <<'JSON'
"edge_settings": {
  "store": "embedded", "pods": 3, "data_dir": "/var/lib/millrace/data", "brokers": ["acme"], "allow_anonymous": true,
  "fdb_cluster_file": null, "fdb_tls_cert": null, "fdb_tls_key": null, "fdb_tls_ca": null, "fdb_tls_verify": null
},
"edge_ports": [{"gateway": 1884, "http": 8080}, {"gateway": 1885, "http": 8081}, {"gateway": 1886, "http": 8082}]
JSON
}

apply() {
    prepare small >"$work/prepare.log" || { cat "$work/prepare.log"; fail "init"; }
    variables small >"$work/variables.json"
    # Three pods: with FoundationDB each has a machine.
    # shellcheck disable=SC2154 # prepare sets example
    [ -n "$without_database" ] || sed -i 's/edge = 2, foundationdb = 3/edge = 3, foundationdb = 3/' "$example/main.tf"
    [ -n "$without_database" ] || grep -q 'edge = 3' "$example/main.tf" || fail "examples/small counts its machines in another way"
    python3 - "$work/variables.json" <<PY >"$example/terraform.tfvars.json"
import json, sys
values = json.load(open(sys.argv[1]))
values |= json.loads("""{$(settings)}""")
values["aws_endpoint"] = "http://$router:$port"
del values["artifacts"]
print(json.dumps(values))
PY
    "$root/terraform/artifacts.sh" "$work/programs" >"$example/programs.auto.tfvars"
    say "applying examples/small against moto"
    lan terraform -chdir="$example" apply -auto-approve -input=false -no-color -parallelism=20 >"$work/apply.log" 2>&1 \
        || { tail -30 "$work/apply.log"; fail "apply"; }
    lan terraform -chdir="$example" output -json -no-color region >"$work/region.json"
    lan terraform -chdir="$example" output -json -no-color cloud_configs >"$work/cloud_configs.json"
}

field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/region.json" "$1"; }

# Uploads and stores as an operator does.
fill() {
    export PATH=$tools/deploy-aws/bin:$PATH
    # The policy forbids plain HTTP, which is all that moto speaks here.
    lan "$tools/deploy-python/bin/python" -c \
        'import boto3, sys; boto3.client("s3").delete_bucket_policy(Bucket=sys.argv[1])' "$(field artifacts_bucket)"
    lan "$root/terraform/artifacts.sh" "$work/programs" "$(field artifacts_bucket)" >/dev/null
    rm -rf "$work/secrets"
    lan "$root/terraform/secrets.sh" make "$work/secrets" --self-signed <"$work/region.json"
    lan "$root/terraform/secrets.sh" put "$work/secrets" <"$work/region.json" | sed 's/^/region: /'
}

# addresses ROLE: of the instances that Terraform made.
addresses() {
    lan "$tools/deploy-python/bin/python" - "$1" <<'PY'
import boto3, sys

filters = [{"Name": "tag:millrace-role", "Values": [sys.argv[1]]}, {"Name": "instance-state-name", "Values": ["running"]}]
found = boto3.client("ec2").describe_instances(Filters=filters)["Reservations"]
print("\n".join(sorted(i["PrivateIpAddress"] for r in found for i in r["Instances"])))
PY
}

# boot NAME ADDRESS CONFIG...: CONFIG is the way to the user data in the output.
boot() {
    local name=$1 address=$2 seed=$work/$1/seed
    umount "$work/$name/cgroup" 2>/dev/null || true
    # Never into a mount that was left behind.
    rm -rf --one-file-system "${work:?}/$name"
    mkdir -p "$seed/var/lib/cloud/seed/nocloud" "$seed/etc/cloud/cloud.cfg.d"
    python3 - "$work/cloud_configs.json" "${@:3}" >"$seed/var/lib/cloud/seed/nocloud/user-data" <<'PY'
import json, sys

value = json.load(open(sys.argv[1]))
for key in sys.argv[2:]:
    value = value[key]
print(value)
PY
    printf 'instance-id: %s\nlocal-hostname: %s\n' "$name" "$name" >"$seed/var/lib/cloud/seed/nocloud/meta-data"
    # The network is there already, and the seed stands in for EC2's user data.
    printf 'datasource_list: [NoCloud]\nnetwork: {config: disabled}\n' >"$seed/etc/cloud/cloud.cfg.d/99-check.cfg"

    ip netns delete "millrace-$name" 2>/dev/null || true
    ip netns add "millrace-$name"
    lan ip link add "v-$name" type veth peer name eth0 netns "millrace-$name"
    lan ip link set "v-$name" master br0 up
    ip netns exec "millrace-$name" ip link set lo up
    ip netns exec "millrace-$name" ip address add "$address/16" dev eth0
    ip netns exec "millrace-$name" ip link set eth0 up
    ip netns exec "millrace-$name" ip route add default via "$router"
    [[ $name != foundationdb-* ]] || database_disks "$name"
    # Before the machine's own mount namespace, so that this script sees its processes too.
    mkdir -p "$work/$name/cgroup"
    mount -t cgroup2 none "$work/$name/cgroup"
    machines+=("$name")
    start "$name"
    say "booting $name ($address)"
}

# start NAME: a machine that `boot` has prepared.
start() {
    ip netns exec "millrace-$1" "$here/machine.sh" "$1" "$work/$1" "$target/deploy/rootfs" >"$work/$1.log" 2>&1 &
    pids+=($!)
}

waits() { boot_log "$1" | grep 'next try in' >/dev/null; }

is_off() { grep -x 'populated 0' "$work/$1/cgroup/millrace-$1/cgroup.events"; }

# Power is lost during the first start of nats-1, which waits for its programs. boot_all starts it again.
interrupt_first_start() {
    boot nats-1 "$(addresses nats | sed -n 1p)" nats nats-1
    until_true 240 "nats-1 waits for its programs" waits nats-1
    lose nats-1
    until_true 60 "nats-1 is off" is_off nats-1
}

# -- the device

message() { grep -q "$1" "$work/device.log"; }

publish() {
    lan mosquitto_pub -V 5 -h acme.mqtt.example.org -p 8883 --cafile "$work/secrets/ca.crt" -q 1 -t cmd/pump-7 -m "$1"
}

pod() { head -1 "$work/edge-1/cgroup/millrace-edge-1/system.slice/millrace.service/cgroup.procs" 2>/dev/null; }

is_other_pod() { [ -n "$(pod)" ] && [ "$(pod)" != "$1" ]; }

device() {
    local gateway=$1
    mkdir -p "/etc/netns/$lan"
    echo "$gateway acme.mqtt.example.org" >"/etc/netns/$lan/hosts"
    ip netns exec "$lan" mosquitto_sub -V 5 -c -x 3600 -i pump-7 -h acme.mqtt.example.org -p 8883 --cafile "$work/secrets/ca.crt" \
        -q 1 -t 'cmd/#' >"$work/device.log" 2>&1 &
    pids+=($!)
    until_true 120 "the device's first message" published first
    say "a device connected over TLS and got a message through gateway and edge"
}

kill_pods() {
    local killed
    killed=$(pod)
    kill -KILL "$killed"
    until_true 120 "systemd starts the pods again" is_other_pod "$killed"
    until_true 120 "a message after the pods' death" published second
    say "the pods were killed (pid $killed) and started again (pid $(pod)); the device came back and got its message"
}

# Until the device has it: a message that nobody could take yet is sent again.
published() { message "$1" || { publish "$1" && message "$1"; }; }

main() {
    local address
    [ "$(id -u)" = 0 ] || skip "it makes network namespaces, so it needs root"
    for program in terraform ip mosquitto_sub openssl python3; do
        command -v "$program" >/dev/null || skip "$program is not installed"
    done
    [ -n "$TERRAFORM_PLUGINS" ] || skip "there is no folder with the AWS provider (TERRAFORM_PLUGINS)"
    exporter=$(command -v prometheus-node-exporter || command -v node_exporter) \
        || skip "the node exporter is not installed (apt-get install prometheus-node-exporter)"
    for program in "$MILLRACE" "$NATS_SERVER" "$ENVOY"; do [ -x "$program" ] || fail "there is no $program"; done
    "$here/../tools.sh" python operator
    "$here/../rootfs.sh" || { [ $? = 3 ] && skip "no root file system"; fail "the root file system: $target/deploy/rootfs.log"; }
    without_database=$(database_lacks)
    mkdir -p "$work"
    trap clean EXIT
    make_lan
    moto_in_lan
    collect_programs
    # Variables of the account for `variables`: the image and the hosted zone.
    settings=$(lan_account)
    eval "$settings"
    apply
    interrupt_first_start
    fill

    boot_all
    until_true 240 "each nats-server has routes to the two others" has_routes
    say "nats-1 was stopped during its first start, and went on at its next one"
    for address in "${edge_addresses[@]}"; do
        until_true 240 "the pods hear each other over NATS" heard "$address"
        say "edge: $(lan curl -s "http://$address:8080/healthz" | tr '\n' ' ')"
    done
    # moto_server.py writes this line when the machine reports that it serves.
    until_true 60 "Auto Scaling hears that the edge machine serves" grep -q 'serves: millrace-small-edge, serves, i-edge' "$work/moto.log"
    until_true 240 "the gateway is ready" lan curl -fs "http://$gateway_address:9902/ready"
    for address in $(addresses nats) "${edge_addresses[@]}" "$gateway_address"; do
        until_true 60 "the node exporter of $address" shows_host "$address"
    done
    say "the node exporter of each machine shows CPU, memory, clock, units and when its certificate ends"
    device "$gateway_address"
    if [ -z "$without_database" ]; then
        lose_machines
        echo "check-region: passed"
    else
        kill_pods
        echo "check-region: passed WITHOUT FoundationDB: its machines were not booted, and its configuration was not run"
    fi
}

boot_all() {
    local number=1 address
    start nats-1
    while read -r address; do
        [ "$number" = 1 ] || boot "nats-$number" "$address" nats "nats-$number"
        number=$((number + 1))
    done < <(addresses nats)
    watch_nats
    mapfile -t edge_addresses < <(addresses edge)
    if [ -z "$without_database" ]; then boot_database; else edge_addresses=("${edge_addresses[0]}"); fi
    for number in "${!edge_addresses[@]}"; do boot "edge-$((number + 1))" "${edge_addresses[number]}" edge; done
    gateway_address=$(addresses gateway | sed -n 1p)
    boot gateway "$gateway_address" gateway
}

# The servers' own report, as the telemetry machine reads it: each server has routes to the two others.
nats_metrics() { lan curl -fs "http://$router:7777/metrics" | grep -c '^nats_\(up\|remotes\).* [12]$'; }

has_routes() { [ "$(nats_metrics)" = 6 ]; }

watch_nats() {
    local urls=() address
    while read -r address; do urls+=(--nats "http://$address:8222"); done < <(addresses nats)
    ip netns exec "$lan" python3 "$root/dashboards/collector/status_metrics.py" --listen "$router:7777" "${urls[@]}" &
    pids+=($!)
}

# Asserts that Prometheus has what alerts about a machine read. Its root here is an overlay, whose disk the exporter leaves out.
shows_host() {
    local name metrics
    metrics=$(lan curl -fs "http://$1:9100/metrics") || return 1
    for name in node_cpu_seconds_total node_memory_MemAvailable_bytes node_timex_offset_seconds 'x509_cert_not_after{.*/tls.crt"} ' \
        'node_systemd_unit_state{name="node-exporter.service",state="active".* 1'; do
        grep -q "^$name" <<<"$metrics" || return 1
    done
}

heard() { lan curl -fs "http://$1:8080/healthz" | grep -q 'with 2 other pods'; }

moto_in_lan() {
    export AWS_ENDPOINT_URL=http://$router:$port AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_SESSION_TOKEN=test
    export AWS_EC2_METADATA_DISABLED=true AWS_REGION=eu-central-1 AWS_DEFAULT_REGION=eu-central-1
    ip netns exec "$lan" "$tools/deploy-python/bin/python" "$here/moto_server.py" --host "$router" --port "$port" >"$work/moto.log" 2>&1 &
    pids+=($!)
    until_true 60 "moto" lan curl -fs "$AWS_ENDPOINT_URL/moto-api/data.json"
}

lan_account() { lan "$BASH" -c "tools='$tools'; source '$here/../moto.sh'; account"; }

main
