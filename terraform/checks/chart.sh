#!/usr/bin/env bash
# Checks the Helm chart: lint, every field against Kubernetes' own definitions, and Envoy's configuration by Envoy itself.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
tools=$target/tools
work=$target/deploy/chart
chart=$root/terraform/chart
# The version whose definitions the chart is checked against.
kubernetes=1.36.3
schemas=$target/deploy/kubernetes-$kubernetes
cluster_file=millrace:millrace@10.0.0.1:4500:tls
cluster=(--set "foundationdb.external.clusterFile=$cluster_file")
# shellcheck disable=SC1091 # beside this one
source "$here/strangers.sh"

fail() {
    echo "FAILED: $1" >&2
    exit 1
}

prometheus_operator=0.85.0
operators=$target/deploy/prometheus-operator-$prometheus_operator
foundationdb_operator=2.33.0
clusters=$target/deploy/foundationdb-operator-$foundationdb_operator

render() {
    local name=$1
    shift
    "$tools/helm" template region "$chart" --kube-version "$kubernetes" "$@" 2>"$work/$name.log" >"$work/$name.yaml" \
        || { grep -v walk.go "$work/$name.log"; fail "helm template with $*"; }
}

# refused NAME EXPECTED VALUES...: the chart refuses these values, and its message has EXPECTED.
refused() {
    local name=$1 expected=$2
    shift 2
    if "$tools/helm" template region "$chart" --kube-version "$kubernetes" "$@" >/dev/null 2>"$work/refused.log"; then
        fail "the chart takes $name"
    fi
    grep -qF -- "$expected" "$work/refused.log" || { grep -v walk.go "$work/refused.log"; fail "the chart refuses $name without saying: $expected"; }
}

# Runs the page's commands with programs that only write down their arguments, and renders the values of `helm install`, then those
# of `helm upgrade` beside them.
page() {
    rm -rf "$work/page"
    mkdir -p "$work/page"
    # shellcheck disable=SC2016 # the backticks are the page's
    sed -n '/^```sh$/,/^```$/{/^```/!p}' "$chart/README.md" >"$work/page/commands.sh"
    (
        cd "$work/page"
        echo "$cluster_file" >fdb.cluster
        touch ca.crt
        # shellcheck disable=SC2317 # the page calls these three
        kubectl() {
            [ "$3 ${4:-}" = "create secret" ] || return 0
            echo "$6" >>secrets
            printf '%s\n' "${@:7}" | sed "s/--from-file=//; s/--\(cert\|key\)=.*/tls.\1/; s/tls.cert/tls.crt/; s/^/$6 /" >>keys
        }
        # shellcheck disable=SC2317
        helm() { cp secrets "secrets-$3" && printf '%s\n' "${@:6}" >>"$3"; }
        # shellcheck disable=SC2317
        openssl() { :; }
        # shellcheck disable=SC2317
        ssh() { :; }
        # shellcheck disable=SC1091 # written above
        source ./commands.sh
    )
    local install upgrade
    mapfile -t install <"$work/page/install"
    # Values of several upgrades add up.
    [ "$(grep -cx -- --reset-then-reuse-values "$work/page/upgrade")" = "$(grep -c '^helm -n millrace upgrade ' "$work/page/commands.sh")" ] \
        || fail "the page's helm upgrade drops defaults of the new chart"
    mapfile -t upgrade < <(grep -vx -- --reset-then-reuse-values "$work/page/upgrade")
    render install "${install[@]}"
    render upgrade "${install[@]}" "${upgrade[@]}"
    python3 - "$work" <<'PY' || fail "the chart's page"
import pathlib, re, sys

work = pathlib.Path(sys.argv[1])
keys = {}
for name in ["install", "upgrade"]:
    text = (work / f"{name}.yaml").read_text()
    keys[name] = re.findall(r"MILLRACE_SECRET_KEY_FILE, value: (\S+)", text)
    missing = set(re.findall(r"secretName: ([\w-]+)", text)) - set((work / "page" / f"secrets-{name}").read_text().split())
    assert not missing, f"helm {name} comes before the page has made the secrets: {', '.join(missing)}"
# A volume names its keys, so that a pod waits for a secret that lacks one, and its events say which.
made = {tuple(line.split()) for line in (work / "page" / "keys").read_text().splitlines()}
volumes = re.findall(r"secret: {([^\n]*)", (work / "upgrade.yaml").read_text())
assert len(volumes) > 10, "the form of secrets' volumes has changed"
for volume in volumes:
    secret = re.search(r"secretName: ([\w-]+)", volume)[1]
    items = re.findall(r'"key":"([^"]+)"', volume)
    if secret == "millrace-files":
        continue
    assert items, f"the volume of {secret} names no keys, so a pod starts without a file that it needs"
    missing = [key for key in items if (secret, key) not in made]
    assert not missing, f"pods wait for {', '.join(missing)} of {secret}, which the page does not put in"
    if secret == "millrace-backup":
        assert "authorities.crt" in items, "the volume of millrace-backup does not ask for authorities.crt"
assert len(keys["install"]) == 2, "a region that the page installs has no secret key"
assert keys["upgrade"] == keys["install"], "helm upgrade on the page has pods with and without the secret key run together"
PY
}

# The rules that the chart makes, beside certificates of secrets.sh and of others.
peers() {
    local folder=$work/certificates
    rm -rf "$folder"
    mkdir -p "$folder"
    "$root/terraform/secrets.sh" make "$folder" --self-signed <<<'{"nats_addresses": ["10.0.0.2"], "domain": "mqtt.example.org"}' >/dev/null || fail "secrets.sh make"
    strangers "$folder"
    # met FILE VARIABLE: the certificates that the pods of a rendering take for the cluster's or the object storage's.
    met() {
        local rules
        rules=$(grep -o "$2, value: \"[^\"]*" "$work/$1.yaml" | sed 's/.*"//' | sort -u)
        [ -n "$rules" ] || { echo anybody; return 0; }
        while read -r rule; do python3 -B "$here/peers.py" "$rule" "$folder"; done <<<"$rules" | sort -u | xargs
    }
    found=$(met upgrade FDB_TLS_VERIFY_PEERS)
    [ "$found" = "foundationdb s3" ] || fail "the backup of the page's region takes for the cluster or S3: $found"
    found=$(met upgrade MILLRACE_FDB_TLS_VERIFY)
    [ "$found" = foundationdb ] || fail "the pods of the page's region take for the cluster: $found"
    rm -rf "$folder"
    local url='blobstore://@minio.storage.svc:9000/millrace?bucket=backups' names=Check.Valid=1,S.CN=foundationdb
    # backup_rules VALUES...: the rules of the backup's programs.
    backup_rules() {
        render peers "${cluster[@]}" --set "foundationdb.backup.url=$url" "$@"
        grep -o 'FDB_TLS_VERIFY_PEERS, value: "[^"]*' "$work/peers.yaml" | sed 's/.*"//' | sort -u
    }
    [ "$(backup_rules --set-literal "foundationdb.verifyPeers=$names")" = "$names|Check.Valid=1,S.subjectAltName=DNS:minio.storage.svc" ] \
        || fail "the backup has other rules than the cluster's and the storage's name"
    [ "$(backup_rules --set-literal "foundationdb.backup.verifyPeers=$names|Check.Valid=1,S.O=storage")" = "$names|Check.Valid=1,S.O=storage" ] \
        || fail "foundationdb.backup.verifyPeers are not the rules of the backup"
    [ "$(backup_rules --set foundationdb.external.clusterFile=a:b@10.0.0.1:4500)" = "Check.Valid=1,S.subjectAltName=DNS:minio.storage.svc" ] \
        || fail "the backup of a cluster without TLS has other rules than the storage's name"
    backup_refused() { refused "$1" "$2" "${cluster[@]}" --set "foundationdb.backup.url=$url" "${@:3}"; }
    backup_refused "a backup that takes each certificate of public authorities for the cluster" 'foundationdb.verifyPeers is empty'
    backup_refused "the former default of foundationdb.backup.verifyPeers" 'takes every certificate of the authorities' \
        --set foundationdb.backup.verifyPeers=Check.Valid=1
    backup_refused "one rule of two that names nobody" 'takes every certificate of the authorities' \
        --set-literal "foundationdb.backup.verifyPeers=$names|Check.Valid=1,R.CN=region"
    backup_refused "a rule that turns off the others" 'turns off the verification' \
        --set-literal "foundationdb.backup.verifyPeers=$names|Check.Valid=0,S.CN=other"
    backup_refused "an address in a rule" 'compares no address such as 10.0.0.9' --set-literal "foundationdb.verifyPeers=$names" \
        --set 'foundationdb.backup.url=blobstore://@10.0.0.9:9000/millrace?bucket=backups'
    refused "a rule for the cluster that names nobody" 'takes every certificate of the authorities' "${cluster[@]}" --set foundationdb.verifyPeers=Check.Valid=1
    refused "edge.settings.fdb_tls_verify beside foundationdb.verifyPeers" 'from foundationdb.verifyPeers' "${cluster[@]}" \
        --set-literal "foundationdb.verifyPeers=$names" --set edge.settings.fdb_tls_verify=other
    echo "rules for certificates: ok"
}

# FoundationDB's operator needs an account, a group and a kind of images for the pods that it makes.
store() {
    python3 - "$work/operator.yaml" <<'PY' || fail "the operator's cluster"
import re, sys

documents = open(sys.argv[1]).read().split("\n---\n")
cluster = next(d for d in documents if "kind: FoundationDBCluster" in d)
assert "imageType: unified" in cluster, "the kind of images is the operator's default, which differs by its version"
# Files of mode 0440, and volumes, are for the group of the pods alone.
assert "fsGroup: 4059" in cluster, "FoundationDB cannot read its key, and cannot write to its volume"
account = re.search(r"serviceAccountName: (\S+)", cluster)
assert account and "automountServiceAccountToken: true" in cluster, "FoundationDB's pods cannot report to the operator"
account = account[1]
role = next((d for d in documents if "\nkind: Role\n" in d and f"\n  name: {account}\n" in d), "")
assert "resources: [pods], verbs: [get, list, watch, update, patch]" in role, "FoundationDB's pods may not annotate themselves"
binding = next((d for d in documents if "\nkind: RoleBinding\n" in d), "")
assert f"kind: Role, name: {account} }}" in binding and f"kind: ServiceAccount, name: {account}," in binding, "the role has nobody"
PY
}

# A store is copied while no pod runs, and all come back afterwards.
migration() {
    refused "a migration beside running pods" 'migration.claim needs stopped=true' "${cluster[@]}" --set migration.claim=move
    render migration "${cluster[@]}" --set stopped=true --set migration.claim=move --set-literal foundationdb.verifyPeers=Check.Valid=1,S.CN=foundationdb
    render back "${cluster[@]}" --set stopped=true --set migration.claim=move --set 'migration.arguments={foundationdb,/move/back}'
    python3 - "$work" <<'PY' || fail "the migration"
import pathlib, re, sys

def documents(name):
    return pathlib.Path(sys.argv[1], f"{name}.yaml").read_text().split("\n---\n")

stopped = documents("migration")
for kind, name in [("StatefulSet", "edge"), ("Deployment", "control")]:
    pods = next(d for d in stopped if f"\nkind: {kind}\n" in d and f"\n  name: region-millrace-{name}\n" in d)
    assert "\n  replicas: 0\n" in pods, f"pods of {name} write into a store that is copied"
assert not any("kind: HorizontalPodAutoscaler" in d for d in stopped), "the autoscaler starts pods on a store that is copied"
job = next(d for d in stopped if "\nkind: Job\n" in d)
words = re.findall(r"^        - (.*)$", job.split("args:")[1].split("resources:")[0], re.M)
assert words[:3] == ["migrate", '"/move/millrace"', '"foundationdb"'] and any("--fdb-tls-verify=Check.Valid=1" in it for it in words), words
policy = next(d for d in stopped if "\nkind: NetworkPolicy\n" in d and "\n  name: region-millrace-migration\n" in d)
assert "port: 4500" in policy and "port: 4222" not in policy and "port: 443" not in policy, "the job reaches more than the store"
name = re.search(r"name: (region-millrace-migration-\w+)", job)[1]
assert name not in "".join(documents("back")), "the way back is the same job, which cannot be changed"
# helm upgrade takes "replicas: 0" away, and the API server then sets its default of 1, from which the autoscaler continues.
again = next(d for d in documents("upgrade") if "\nkind: StatefulSet\n" in d and "-edge\n" in d.split("labels")[0])
assert "replicas:" not in again and any("kind: HorizontalPodAutoscaler" in d for d in documents("upgrade")), "the page leaves the edge without pods"
control = next(d for d in documents("upgrade") if "\nkind: Deployment\n" in d and "-control\n" in d.split("labels")[0])
assert "\n  replicas: 2\n" in control, "the page leaves the region without its control plane"
assert not any("\nkind: Job\n" in d for d in documents("upgrade")), "the page leaves the job of the migration"
PY
    echo "migration: ok"
}

# Kubernetes reads a rule without destinations as a rule for all, the node's metadata service included.
destinations() {
    local server=(--set nats.enabled=false --set 'nats.urls={tls://a.example.org}' --set control.settings.smtp_host=smtp.example.org) list
    render anywhere "${cluster[@]}" "${server[@]}" --set telemetry.otlpEndpoint=http://collector:4318
    render narrow "${cluster[@]}" "${server[@]}" --set-json 'nats.to=[{"ipBlock": {"cidr": "10.50.0.0/16"}}]' \
        --set-json 'control.mailTo=[{"ipBlock": {"cidr": "192.0.2.25/32"}}]'
    "$tools/deploy-python/bin/python" - "$work/anywhere.yaml" "$work/narrow.yaml" <<'PY' || fail "destinations of network policies"
import sys, yaml

def rules(path):
    for document in yaml.safe_load_all(open(path)):
        if document and document["kind"] == "NetworkPolicy":
            for rule in document["spec"]["egress"]:
                yield document["metadata"]["name"], [port["port"] for port in rule["ports"]], rule.get("to")

for path in sys.argv[1:]:
    for name, ports, to in rules(path):
        assert ports == [53, 53] or to, f"{name}: the ports {ports} are open to every address"
        for peer in to or []:
            block = peer.get("ipBlock", {})
            needed = {"0.0.0.0/0": "169.254.0.0/16", "::/0": "fd00:ec2::254/128"}.get(block.get("cidr"))
            assert needed is None or needed in block["except"], f"{name}: the ports {ports} are open to the metadata service"
for name, ports, to in rules(sys.argv[2]):
    cidrs = [peer["ipBlock"]["cidr"] for peer in to or [] if "ipBlock" in peer]
    assert ports != [4222] or cidrs == ["10.50.0.0/16"], f"{name} does not follow nats.to"
    assert ports != [587] or cidrs == ["192.0.2.25/32"], f"{name} does not follow control.mailTo"
PY
    for list in foundationdb.external.cidrs nats.to control.mailTo networkPolicies.gatewayFrom networkPolicies.controlFrom \
        telemetry.collector.apiServerCidrs; do
        refused "an empty $list" "$list is empty" "${cluster[@]}" "${server[@]}" --set telemetry.collector.enabled=true --set-json "$list=[]"
    done
}

# Network policies must follow the settings about connections.
network() {
    render network "${cluster[@]}" --set nats.enabled=false --set 'nats.urls={tls://a.example.org:4333,tls://b.example.org,10.0.0.1:4555}' \
        --set control.settings.outgoing_http=true --set 'edge.settings.outgoing_allow={10.20.0.0/16,10.30.0.0/16}'
    python3 - "$work/network.yaml" <<'PY' || fail "network policies"
import re, sys

documents = open(sys.argv[1]).read().split("\n---\n")
egress = {name: next(d for d in documents if "kind: NetworkPolicy" in d and f"name: region-millrace-{name}\n" in d).split("  egress:")[1] for name in ["edge", "control"]}
for name, policy in egress.items():
    assert {"4333", "4222", "4555"} <= set(re.findall(r"port: (\d+)", policy)), f"{name} does not reach the ports of nats.urls"
assert re.search(r"port: 80\b", egress["control"]) and not re.search(r"port: 80\b", egress["edge"]), "outgoing_http opens port 80 of its pods only"
assert re.findall(r'cidr: "(10[^"]*)"', egress["edge"])[-2:] == ["10.20.0.0/16", "10.30.0.0/16"], "the edge does not reach outgoing_allow"
assert "10.20.0.0/16" not in egress["control"], "the control plane reaches the edge's outgoing_allow"
PY
    destinations
    echo "network policies follow the settings: ok"
}

# A server reads its configuration at its start, so another one must replace its pods.
configurations() {
    local copy=$work/copy name
    # pods KIND FILE: the workload of these pods.
    pods() { python3 -c 'import sys; print(*(d for d in open(sys.argv[2]).read().split("\n---\n") if f"\n  name: region-millrace-{sys.argv[1]}\n" in d and "\n  template:" in d))' "$1" "$work/$2.yaml"; }
    rm -rf "$copy"
    cp -rL "$chart" "$copy"
    sed -i 's/^max_payload: 8MB$/max_payload: 4MB/' "$copy/files/nats.conf"
    sed -i 's/tcp_backlog_size: 4096/tcp_backlog_size: 2048/' "$copy/files/envoy.yaml.tmpl"
    render before "${cluster[@]}"
    chart=$copy render after "${cluster[@]}"
    for name in nats gateway; do
        grep -q containers: <<<"$(pods "$name" before)" || fail "the form of the chart's documents has changed"
        [ "$(pods "$name" before)" != "$(pods "$name" after)" ] || fail "$name continues with its old configuration after an upgrade"
    done
    [ "$(pods edge before)" = "$(pods edge after)" ] || fail "a configuration of others replaces the edge's pods"
    rm -rf "$copy"
    echo "a new configuration replaces pods: ok"
}

# Each value must change what is rendered, or be refused.
values() {
    "$here/tools.sh" python
    "$tools/deploy-python/bin/python" -B "$here/values.py" "$tools/helm" "$chart" "$kubernetes" "$cluster_file" || fail "a value of values.yaml has no effect"
}

# Values of a file have YAML's types: off is false there, and a number is a float.
kinds() {
    cat >"$work/kinds-values.yaml" <<'YAML'
edge:
  wsOrigins: [https://app.example.org]
  settings: { wss_listen: off, log_level: off, trace_ratio: 0.25, packet_size_max: 1048576, unlimited_from: [10.0.0.0/8, "::1/128"] }
control:
  settings: { smtp_host: smtp.example.org, smtp_tls: off, log_level: "off", outgoing_http: false }
YAML
    render kinds "${cluster[@]}" --values "$work/kinds-values.yaml"
    python3 - "$work/kinds.yaml" <<'PY' || fail "settings of a values file"
import re, sys

documents = open(sys.argv[1]).read().split("\n---\n")
edge = next(d for d in documents if "\nkind: StatefulSet" in d and "-edge" in d.split("labels")[0])
control = next(d for d in documents if "\nkind: Deployment" in d and "-control" in d.split("labels")[0])
policy = next(d for d in documents if "kind: NetworkPolicy" in d and "name: region-millrace-control\n" in d)
for pod, expected in [
    (edge, ["WSS_LISTEN off", "LOG_LEVEL off", "TRACE_RATIO 0.25", "PACKET_SIZE_MAX 1048576", "UNLIMITED_FROM 10.0.0.0/8,::1/128",
            "WS_ORIGINS https://console.mqtt.example.org,https://app.example.org"]),
    (control, ["SMTP_TLS off", "LOG_LEVEL off", "OUTGOING_HTTP false"]),
]:
    found = [" ".join(pair) for pair in re.findall(r'name: MILLRACE_(\w+), value: "([^"]*)" }', pod)]
    wrong = [line for line in expected if line not in found]
    assert not wrong, f"the pods do not get: {', '.join(wrong)}"
assert re.search(r"port: 25\b", policy.split("  egress:")[1]), "smtp_tls = off needs port 25"
PY
}

# The job's script beside an fdbbackup that only writes down its arguments, and what the pods must reach.
backup() {
    local folder=$work/backup
    rm -rf "$folder"
    mkdir -p "$folder/bin"
    python3 - "$work/all.yaml" "$folder/backup.sh" <<'PY' || fail "the chart's backup"
import pathlib, re, sys, textwrap

text = pathlib.Path(sys.argv[1]).read_text()
documents = [d for d in text.split("\n---\n") if "\n  name: region-millrace-backup\n" in d]
kinds = {re.search(r"^kind: (\w+)", d, re.M)[1]: d for d in documents}
assert set(kinds) == {"ConfigMap", "Deployment", "CronJob", "NetworkPolicy"}, f"the backup is {', '.join(kinds)}"
for kind in ["Deployment", "CronJob"]:
    assert "secretName: backup-keys" in kinds[kind], f"{kind}: the agents and the job need the same credentials"
    assert re.search(r"FDB_TLS_CA_FILE, value: /etc/millrace/backup/authorities.crt", kinds[kind]), f"{kind}: the backup trusts no authority of the object storage"
    assert 'FDB_TLS_VERIFY_PEERS, value: "Check.Valid=1,S.CN=foundationdb"' in kinds[kind], f"{kind}: the backup takes others for the cluster"
    assert "image: foundationdb/foundationdb:7.4.6" in kinds[kind], f"{kind}: another version than the cluster's"
egress = kinds["NetworkPolicy"].split("  egress:")[1]
assert re.search(r"ipBlock: { cidr: 0.0.0.0/0, except: \[169.254.0.0/16\] }", egress), "the backup's pods reach the node's metadata service"
assert "port: 9000" in egress and "port: 4500" in egress and "port: 4222" not in egress, egress
pathlib.Path(sys.argv[2]).write_text(textwrap.dedent(re.search(r"backup.sh: \|\n((?:    .*\n|\s*\n)+)", kinds["ConfigMap"] + "\n")[1]))
PY
    cat >"$folder/bin/fdbbackup" <<'SH'
#!/bin/sh
echo "$*" >>"$CALLS"
case $* in
"status "*) echo "$STATUS" ;;
*"$REFUSED"*) exit 1 ;;
esac
SH
    chmod +x "$folder/bin/fdbbackup"
    # job STATUS REFUSED
    job() { rm -f "$folder/calls"; PATH=$folder/bin:$PATH CALLS=$folder/calls STATUS=$1 REFUSED=$2 bash "$folder/backup.sh" blobstore://b keys.json 35 >/dev/null; }
    job "No previous backups found." none || fail "backup.sh"
    grep -q '^start -t millrace -z -s 86400 --blob-credentials keys.json -d blobstore://b$' "$folder/calls" || fail "the job starts no continuous backup"
    ! grep -q '^expire' "$folder/calls" || fail "the job removes what it has just begun"
    local running="The backup on tag \`millrace' is restorable but continuing"
    job "$running" none || fail "backup.sh of a backup that runs"
    ! grep -q '^start' "$folder/calls" || fail "the job starts a backup that runs"
    grep -q '^expire -d blobstore://b --blob-credentials keys.json --delete-before-days 35$' "$folder/calls" || fail "the job removes no old backups"
    job "$running" --delete-before-days || fail "the job needs a flag that some versions of fdbbackup refuse"
    ! job "$running" --delete || fail "the job does not fail when no old backup is removed"
    ! job "No previous backups found." start || fail "the job does not fail when no backup starts"
    echo "backup.sh: ok"
}

definitions() {
    [ ! -e "$schemas/_definitions.json" ] || [ ! -e "$operators/prometheusrule-monitoring-v1.json" ] || return 0
    echo "making schemas of Kubernetes $kubernetes and the Prometheus operator $prometheus_operator"
    local module cache crds
    module=$(mktemp -d)
    (cd "$module" && go mod init schemas >/dev/null 2>&1 &&
        nice go mod download "k8s.io/kubernetes@v$kubernetes" "github.com/prometheus-operator/prometheus-operator@v$prometheus_operator")
    rm -rf "$module"
    cache=$(go env GOMODCACHE)
    crds=$cache/github.com/prometheus-operator/prometheus-operator@v$prometheus_operator/jsonnet/prometheus-operator
    python3 "$here/kubernetes_schemas.py" "$schemas" swagger "$cache/k8s.io/kubernetes@v$kubernetes/api/openapi-spec/swagger.json"
    python3 "$here/kubernetes_schemas.py" "$operators" crds "$crds"/{servicemonitors,podmonitors,prometheusrules}-crd.json
}

# FoundationDB's operator says what a FoundationDBCluster may have in apps.foundationdb.org_foundationdbclusters.yaml. FOUNDATIONDB_CRD
# names this file; without it it comes with the operator's Go module, which not every proxy has.
cluster_definition() {
    [ ! -e "$clusters/foundationdbcluster-apps-v1beta2.json" ] || return 0
    local module file=${FOUNDATIONDB_CRD:-}
    if [ -z "$file" ]; then
        module=$(mktemp -d)
        (cd "$module" && go mod init schemas >/dev/null 2>&1 &&
            nice go mod download "github.com/FoundationDB/fdb-kubernetes-operator/v2@v$foundationdb_operator" >/dev/null 2>&1) || true
        rm -rf "$module"
        file=$(go env GOMODCACHE)/github.com/!foundation!d!b/fdb-kubernetes-operator/v2@v$foundationdb_operator/config/crd/bases/apps.foundationdb.org_foundationdbclusters.yaml
    fi
    [ -e "$file" ] || return 1
    "$here/tools.sh" python
    "$tools/deploy-python/bin/python" "$here/kubernetes_schemas.py" "$clusters" crds "$file"
}

# Checks that kubeconform cannot make: preStop commands and durations that must agree.
agreements() {
    python3 - "$work/all.yaml" "$root/services/millrace/docs/settings.md" "$root/services/millrace/src/serve.rs" <<'PY'
import re, sys

text = open(sys.argv[1]).read()
known = {"MILLRACE_" + name.upper() for name in re.findall(r"^\| `(\w+)` \|", open(sys.argv[2]).read(), re.M)}
assert len(known) > 50, "the page of settings has another form"
documents = text.split("\n---\n")
edge = next(d for d in documents if "\nkind: StatefulSet" in d and "-edge" in d.split("labels")[0])
control = next(d for d in documents if "\nkind: Deployment" in d and "-control" in d.split("labels")[0])
# The server's own bound for closing its store.
closing = int(re.search(r"const STOP_SPARE: Duration = Duration::from_secs\((\d+)\);", open(sys.argv[3]).read())[1])
policies = {}
for name, pod in [("edge", edge), ("control", control)]:
    period = int(re.search(r"terminationGracePeriodSeconds: (\d+)", pod)[1])
    # The grace period runs from the begin of preStop; SIGTERM, which drains, comes after it.
    hook = sum(int(number) for number in re.findall(r"preStop: { sleep: { seconds: (\d+)", pod))
    drain = int(re.search(r'MILLRACE_DRAIN_MAX_S, value: "(\d+)"', pod)[1])
    grace = int(re.search(r'MILLRACE_SHUTDOWN_GRACE_S, value: "(\d+)"', pod)[1])
    # The server reports its drain every 3 s, so it ends up to that much later.
    needed = hook + drain + 3 + grace + closing
    # A probe that knocks at a port sees no event loop that hangs, and the public port may be full of other connections.
    assert re.search(r"livenessProbe:\s+httpGet: { path: /livez, port: admin }", pod), f"Kubernetes does not restart a pod of {name} whose event loop hangs"
    names = re.findall(r"name: ([A-Z][A-Z0-9_]+)\b", pod)
    named = set(names)
    assert len(names) == len(named), f"pods of {name} get a variable twice: {', '.join(sorted(it for it in named if names.count(it) > 1))}"
    assert named and named <= known, f"pods of {name} get variables that the program does not read: {', '.join(named - known)}"
    assert period > needed, f"a pod of {name} is killed after {period} s, while it stops for up to {needed} s"
    policies[name] = policy = next(d for d in documents if "kind: NetworkPolicy" in d and f"name: region-millrace-{name}\n" in d)
    assert "port: 4318" in policy.split("  egress:")[1], f"the network policy of {name} does not let it reach the collector"
# A Deployment's new pods come beside the old ones, which must not count when they are spread.
for document in documents:
    if "\nkind: Deployment" in document and "DoNotSchedule" in document:
        assert document.count('matchLabelKeys: ["pod-template-hash"]') == 2, f"an upgrade can leave all pods on one node: {document[:120]}"
    # Otherwise a tainted node counts as one without pods, and no node takes a second pod.
    spread = document.count("topologyKey: kubernetes.io/hostname")
    assert document.count("nodeTaintsPolicy: Honor") == 2 * spread, f"pods wait while a node is tainted: {document[:120]}"
# Targets with another job make alerts such as PodDown silent.
monitors = [d for d in documents if re.search(r"\nkind: (Service|Pod)Monitor", d)]
assert sorted(re.findall(r"targetLabel: job, replacement: (\w+)", "".join(monitors))) == ["envoy", "millrace"], "a monitor gives a job that no rule reads"
roles = "sourceLabels: [__meta_kubernetes_pod_label_app_kubernetes_io_component], targetLabel: role"
assert all(roles in monitor for monitor in monitors), "PodsMissing finds no pods of a kind"
gateway = next(d for d in documents if "\nkind: Deployment" in d and "-gateway" in d.split("labels")[0])
period = int(re.search(r"terminationGracePeriodSeconds: (\d+)", gateway)[1])
hook = [int(number) for number in re.search(r'drain.sh, "9901", "(\d+)", "(\d+)"', gateway).groups()]
# Each connection to a pod takes a port; the kernel's default of 28,232 is less than a gateway's share of its devices for each of three pods.
assert 'sysctls: [ { name: net.ipv4.ip_local_port_range, value: "10240 65000" } ]' in gateway, "a gateway runs out of ports towards the pods"
assert period > sum(hook), f"a gateway is killed after {period} s, while its hook takes {sum(hook)} s"
def settings(pod):
    return dict(re.findall(r'name: MILLRACE_(\w+), value: "?([^" }]*)', pod))
for name, pod in [("edge", edge), ("control", control)]:
    found = settings(pod)
    assert found.get("ENDPOINT_DOMAIN") == "mqtt.example.org", f"pods of {name} tell tenants that their broker is at 127.0.0.1"
    assert found.get("REGION") == "region-millrace", f"pods of {name} do not name their region"
    assert found.get("SECRET_KEY_FILE") == "/etc/millrace/secret-key/secret-key", f"pods of {name} do not start beside those with the key"
    mounts = re.findall(r"name: ([\w-]+), mountPath: (/[\w/-]+)", pod)
    assert mounts, f"no mount of {name} is found"
    for volume, folder in mounts:
        assert f"- name: {volume}\n" in pod, f"pods of {name} mount the volume {volume}, which does not exist"
    for variable, path in found.items():
        folder = path.rsplit("/", 1)[0]
        if path.startswith("/etc/millrace/"):
            assert folder in dict(mounts).values(), f"{variable} of {name}: no secret is mounted at {folder}"
assert settings(edge).get("WS_ORIGINS") == settings(control)["PUBLIC_URL"], "the edge refuses WebSockets that pages of the console open"
assert settings(control).get("HTTP_PROXIES", "").startswith("10."), "all people behind the Ingress have one address for the control plane"
egress = {name: policy.split("  egress:")[1] for name, policy in policies.items()}
assert "port: 465" in egress["control"], "no mail can leave the control plane"
assert "port: 465" not in egress["edge"], "the edge sends no mail, and its network policy lets it"
for document in documents:
    if "containers:" in document and "FoundationDBCluster" not in document:
        for line in ["runAsNonRoot: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false", "seccompProfile"]:
            assert line in document, f"{line} is missing in {document[:200]}"
PY
}

# The rules, as Prometheus reads them.
rules() {
    command -v promtool >/dev/null || { echo "SKIPPED: the chart's rules: promtool is not installed (apt-get install prometheus)"; return 0; }
    rm -rf "$work/rules"
    mkdir -p "$work/rules"
    python3 - "$work/all.yaml" "$root/dashboards/prometheus" "$work/rules" <<'PY' || fail "the chart's rules"
import pathlib, re, sys, textwrap

documents = pathlib.Path(sys.argv[1]).read_text().split("\n---\n")
rules = [d for d in documents if "\nkind: PrometheusRule" in d]
names = sorted(f"region-millrace-{path.stem}" for path in pathlib.Path(sys.argv[2]).glob("rules*/*.yaml"))
made = sorted(re.search(r"^  name: (\S+)", rule, re.M)[1] for rule in rules)
assert made == sorted([*names, "region-millrace-wanted"]) and "region-millrace-kubernetes" in made, f"the chart has the PrometheusRules {made} for {names}"
found = re.findall(r"record: region_pods_wanted, expr: vector\((\d+)\), labels: { role: (\w+) }", "".join(rules))
assert found == [("3", "edge"), ("2", "control"), ("2", "gateway")], f"PodsMissing compares with {found}"
for number, rule in enumerate(rules):
    spec = textwrap.dedent(rule.split("\nspec:\n", 1)[1])
    pathlib.Path(sys.argv[3], f"{number}.yaml").write_text(spec)
PY
    promtool check rules "$work/rules"/*.yaml >"$work/rules.log" 2>&1 || { cat "$work/rules.log"; fail "promtool check rules"; }
    local here there
    here=$(cat "$work/rules"/*.yaml | grep -c 'alert: ')
    there=$(cat "$root/dashboards/prometheus/rules"*/*.yaml | grep -c 'alert: ')
    [ "$here" = "$there" ] || fail "the chart has $here of $there alerts"
    there=$(awk 1 "$work/rules"/*.yaml | grep -cE 'runbook_url: https://git.example.org/runbooks/[a-z0-9-]+\.md$')
    [ "$here" = "$there" ] || fail "the chart has $here alerts, and $there of them link a runbook that opens"
    refused "rules without runbooks" "telemetry.rules needs telemetry.runbooksUrl" "${cluster[@]}" --set telemetry.rules=true
    refused "runbooks at a relative path" "telemetry.rules needs telemetry.runbooksUrl" "${cluster[@]}" --set telemetry.rules=true \
        --set telemetry.runbooksUrl=millrace/runbooks
    echo "promtool check rules: ok, $here alerts"
}

# The collector of the region, with the configuration of dashboards/.
collector() {
    local on=("${cluster[@]}" --set telemetry.collector.enabled=true --set telemetry.serviceMonitors=true)
    render collector "${on[@]}" --set telemetry.collector.exportTo=http://tempo.observability:4319 --set-literal foundationdb.verifyPeers=Check.Valid=1,S.CN=foundationdb
    render collector-operator --set telemetry.collector.enabled=true --set foundationdb.mode=operator --set nats.enabled=false --set 'nats.urls={tls://nats.example.org:4222}'
    refused "two collectors" 'pods send to one collector' "${on[@]}" --set telemetry.otlpEndpoint=http://collector:4318
    python3 - "$work/collector.yaml" "$work/collector-config.yaml" <<'PY' || fail "the collector"
import pathlib, re, sys, textwrap

documents = pathlib.Path(sys.argv[1]).read_text().split("\n---\n")
def one(kind, name):
    return next(d for d in documents if f"\nkind: {kind}\n" in d and f"\n  name: region-millrace-{name}\n" in d)
pod = one("Deployment", "collector")
config = textwrap.dedent(re.search(r"\n  config.yaml: \|\n(.*?)\n  status_metrics.py", one("ConfigMap", "collector"), re.S)[1])
pathlib.Path(sys.argv[2]).write_text(config)
named = set(re.findall(r"\$\{env:(\w+)", config))
assert named == set(re.findall(r"name: (OBSERVE_\w+)", pod)), f"the collector's pod has not the variables of its configuration: {named}"
assert re.findall(r"job_name: (\w+)", config) == ["millrace", "envoy", "status"], "the rules know other jobs"
assert "file_sd_configs" not in config and "debug" not in config, "the collector has targets or exporters of one machine"
for name in ["edge", "control"]:
    kind = "StatefulSet" if name == "edge" else "Deployment"
    assert 'MILLRACE_OTLP_ENDPOINT, value: "http://region-millrace-collector:4318"' in one(kind, name), f"{name} does not send to the collector"
    assert 'MILLRACE_OTLP_INTERVAL_S, value: "0"' in one(kind, name), f"metrics of {name} come twice"
    assert "port: 4318" in one("NetworkPolicy", name).split("  egress:")[1], f"{name} does not reach the collector"
into, out = one("NetworkPolicy", "collector").split("  egress:")
assert set(re.findall(r"port: (\d+)", into)) == {"4318", "8888", "8889"}, "the collector is reached at other ports"
assert {"8090", "9902", "8222", "4319", "6443", "4500"} <= set(re.findall(r"port: (\d+)", out)), "the collector does not reach what it reads"
assert out.count('cidr: "::/0"') == 2 and out.count('cidr: "0.0.0.0/0"') == 2, "the collector of a cluster with IPv6 reaches no API server or store"
assert out.count("169.254.0.0/16") == 2 and out.count("fd00:ec2::254/128") == 2, "the collector reaches the node's metadata service"
first, status = pod.split("- name: status")
assert "automountServiceAccountToken: false" in first and "/var/run/secrets/kubernetes.io/serviceaccount" in first, "the collector has no token"
reader = status.split("      volumes:")[0]
assert "serviceaccount" not in reader, "the reader of NATS has a token for the API server"
assert "serviceAccountToken:" in status and 'OBSERVE_INTERVAL, value: "15s"' in first, "the collector has no token, or an interval that may be a number"
# Without these no alert on FoundationDB fires.
assert "- --fdb\n        - /var/lib/millrace/fdb.cluster\n" in reader and reader.count("- --nats") == 3, "nothing reads the status of FoundationDB or of NATS"
assert 'PATH, value: "/opt/foundationdb:' in reader and "[cp, /usr/bin/fdbcli, /opt/foundationdb/fdbcli]" in first, "the reader has no fdbcli"
assert 'FDB_TLS_VERIFY_PEERS, value: "Check.Valid=1,S.CN=foundationdb"' in reader and "FDB_TLS_CA_FILE, value: /etc/millrace/internal/ca.crt" in reader, "the reader takes others for the cluster"
mounts = dict(re.findall(r"name: ([\w-]+), mountPath: ([\w/]+)", reader))
assert {"internal", "fdbcli", "state"} <= set(mounts) and "image: python:3.13-slim" in reader, "the reader lacks files, or fdbcli does not run in its image"
alone = pathlib.Path(sys.argv[1]).with_name("collector-operator.yaml").read_text()
assert "- --fdb\n" in alone and "- --nats\n" not in alone, "without NATS of the chart nothing reads FoundationDB"
policy = next(d for d in alone.split("\n---\n") if "\nkind: NetworkPolicy\n" in d and "\n  name: region-millrace-collector\n" in d)
assert "foundationdb.org/fdb-cluster-name: region-millrace-store" in policy, "the collector does not reach the operator's cluster"
for name, port in [("edge", 8090), ("control", 8090), ("gateway", 9902), ("nats", 8222)]:
    assert re.search(rf'"collector".*\n    ports: \[ {{ port: {port} }} \]', one("NetworkPolicy", name)), f"{name} does not let the collector read it"
monitors = [d for d in documents if re.search(r"\nkind: (Service|Pod)Monitor", d)]
assert len(monitors) == 1 and "honorLabels: true" in monitors[0], "Prometheus scrapes parts beside the collector, or changes their labels"
PY
    [ -x "$tools/otelcol" ] || { echo "SKIPPED: the collector's own check of its configuration: there is no $tools/otelcol (dashboards/collector/build.sh)"; return 0; }
    # Endpoints come from the pod's variables; "validate" wants each to be one.
    # shellcheck disable=SC2046 # one word for each variable
    env OBSERVE_INTERVAL=15s $(grep -oE 'env:OBSERVE_[A-Z_]+_PORT' "$work/collector-config.yaml" | sort -u | sed 's/env:\(.*\)/\1=8080/') \
        "$tools/otelcol" validate --config "$work/collector-config.yaml" >"$work/otelcol.log" 2>&1 || { cat "$work/otelcol.log"; fail "the collector refuses its configuration"; }
    echo "otelcol validate: ok"
}

envoy() {
    local envoy=${ENVOY:-$target/envoy/bin/envoy}
    [ -x "$envoy" ] || { echo "SKIPPED: Envoy's own check of its configuration: there is no $envoy (make gateway installs it)"; return 0; }
    rm -rf "$work/envoy"
    mkdir -p "$work/envoy/tls"
    python3 - "$work/all.yaml" "$work/envoy" <<'PY'
import pathlib, re, sys, textwrap

text, folder = pathlib.Path(sys.argv[1]).read_text(), pathlib.Path(sys.argv[2])
for name in ["envoy.yaml", "certificate.yaml"]:
    block = re.search(rf"^  {re.escape(name)}: \|\n((?:    .*\n|\s*\n)+)", text, re.M)[1]
    (folder / name).write_text(textwrap.dedent(block).replace("/etc/millrace/tls", f"{folder}/tls"))
PY
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=check \
        -keyout "$work/envoy/tls/tls.key" -out "$work/envoy/tls/tls.crt" 2>/dev/null
    (cd "$work/envoy" && "$envoy" --mode validate --config-path envoy.yaml --log-level error) >"$work/envoy.log" 2>&1 \
        || { tail -5 "$work/envoy.log"; fail "Envoy refuses the chart's configuration"; }
    echo "envoy --mode validate: ok"
}

"$here/tools.sh" chart
for program in helm kubeconform; do
    [ -x "$tools/$program" ] || { echo "SKIPPED: the chart: $program is not installed"; exit 0; }
done
mkdir -p "$work"
"$tools/helm" lint --strict --quiet --kube-version "$kubernetes" "$chart" "${cluster[@]}" \
    >"$work/lint.log" 2>&1 || { grep -v walk.go "$work/lint.log"; fail "helm lint"; }
echo "helm lint: ok"

render all "${cluster[@]}" --set foundationdb.backup.secretName=backup-keys --set-literal foundationdb.verifyPeers=Check.Valid=1,S.CN=foundationdb \
    --set 'foundationdb.backup.url=blobstore://@minio.storage.svc:9000/millrace?bucket=backups&sc=0' --set telemetry.serviceMonitors=true --set telemetry.rules=true \
    --set telemetry.runbooksUrl=https://git.example.org/runbooks/ \
    --set telemetry.otlpEndpoint=http://collector.observability:4318 \
    --set control.ingress.enabled=true --set 'control.proxies={10.244.0.0/16}' --set edge.settings.packet_size_max=65536 \
    --set secretKey.secretName=millrace-secret-key --set control.files.secretName=millrace-files \
    --set control.settings.smtp_host=smtp.example.org --set control.settings.smtp_tls=tls \
    --set control.settings.smtp_password_file=/etc/millrace/files/smtp-password
backup
render operator --set foundationdb.mode=operator --set nats.enabled=false --set 'nats.urls={tls://nats.example.org:4222}' \
    --set edge.autoscaling.enabled=false --set gateway.service.type=ClusterIP \
    --set networkPolicies.enabled=false --set 'edge.gatewayFrom={10.244.0.0/16,10.245.0.0/16}'
! grep -q 'name: region-millrace-backup$' "$work/operator.yaml" || fail "the chart makes a backup that nobody asked for"
grep -q 'MILLRACE_GATEWAY_FROM, value: "10.244.0.0/16,10.245.0.0/16"' "$work/operator.yaml" || fail "the edge takes gateways of other networks"
store
page
migration
peers
network
collector
configurations
# Values of a release of an older chart, which `helm upgrade --reuse-values` keeps.
render older "${cluster[@]}" --set secretKey=null --set control.files=null --set control.proxies=null
# Without an Ingress, a stranger behind a NodePort would choose its own address.
! grep -q MILLRACE_HTTP_PROXIES "$work/install.yaml" || fail "the server believes X-Forwarded-For without a proxy before it"
refused "an autoscaler that never acts" 'the gateways carry 200000 connections' "${cluster[@]}" --set edge.connectionsPerPod=200000
render no-autoscaler "${cluster[@]}" --set edge.connectionsPerPod=200000 --set edge.autoscaling.onConnections=false
# Kubernetes counts this sysctl as unsafe, so the pods have it only where the values ask for it.
render reuse "${cluster[@]}" --set gateway.reuseClosedPorts=true
grep -qF '{ name: net.ipv4.tcp_tw_reuse, value: "1" } ]' "$work/reuse.yaml" || fail "gateway.reuseClosedPorts lets no gateway reuse its ports"
! grep -q tcp_tw_reuse "$work/install.yaml" || fail "kubelets refuse the gateways' pods, because net.ipv4.tcp_tw_reuse is an unsafe sysctl"
refused "an Ingress without its networks" 'control.proxies is empty' "${cluster[@]}" --set control.ingress.enabled=true
refused "no network policy and no networks of the gateways" 'edge.gatewayFrom is empty' "${cluster[@]}" --set networkPolicies.enabled=false
grep -q 'redundancy_mode: triple' "$work/operator.yaml" || fail "the operator's cluster does not keep three copies"
for mode in three_data_hall single; do
    refused "a redundancy of $mode by the operator" 'double or triple is allowed' --set foundationdb.mode=operator \
        --set "foundationdb.operator.redundancyMode=$mode"
done
refused "a backup to a folder of the pod" 'fdbbackup takes blobstore://' "${cluster[@]}" --set foundationdb.backup.url=file:///backups
for value in blobstore://key:secret@minio.storage.svc:9000/millrace blobstore://key:sec/ret@minio.storage.svc:9000/millrace blobstore://key:s/ret@minio; do
    refused "a secret in $value" 'has a secret in it' "${cluster[@]}" --set "foundationdb.backup.url=$value?bucket=backups"
done
for value in 'nats.urls={tls://pods:word@nats.example.org:4222}' 'nats.urls={nats.example.org:4222,TOKEN@nats.example.org}' \
    telemetry.otlpEndpoint=https://key@collector.example.org:4318 control.settings.oidc_issuer=https://user:word@login.example.org \
    control.settings.oidc_issuer=https://user:wo/rd@login.example.org 'control.settings.oidc_issuer=https://to#ken@login.example.org' \
    telemetry.otlpEndpoint=https://user:wo/rd@collector.example.org:4318; do
    refused "a password in $value" 'has an address with a user or a password' "${cluster[@]}" --set nats.enabled=false --set 'nats.urls={nats.example.org}' --set "$value"
done
refused "a password in the collector's configuration" 'telemetry.collector.exportTo has an address' "${cluster[@]}" \
    --set telemetry.collector.enabled=true --set telemetry.collector.exportTo=https://key:word@tempo.example.org
refused "a token in the address of the runbooks" 'telemetry.runbooksUrl without a user' "${cluster[@]}" --set telemetry.rules=true \
    --set telemetry.runbooksUrl=https://TOKEN@git.example.org/runbooks
refused "no cluster file for one" 'foundationdb.external.clusterFile is empty'

for policies in true false; do
    refused "the port of gRPC for OTLP/HTTP" 'OTLP/HTTP' "${cluster[@]}" --set telemetry.otlpEndpoint=http://collector:4317 \
        --set "networkPolicies.enabled=$policies" --set 'edge.gatewayFrom={10.244.0.0/16}'
done
for kind in edge control; do
    refused "$kind.settings.drain_max_s, which the grace period of the pod does not follow" 'from drainSeconds' "${cluster[@]}" \
        --set "$kind.settings.drain_max_s=600"
    for setting in region endpoint_domain log_format allow_anonymous; do
        refused "$kind.settings.$setting, which would stand twice" "$kind.settings.$setting: the chart sets it" "${cluster[@]}" \
            --set "$kind.settings.$setting=other"
    done
done
refused "edge.settings.ws_origins beside the console's" 'from edge.wsOrigins' "${cluster[@]}" --set edge.settings.ws_origins=any
refused "control.settings.http_proxies beside control.proxies" 'from control.proxies' "${cluster[@]}" \
    --set 'control.proxies={10.244.0.0/16}' --set control.settings.http_proxies=10.0.0.0/8
refused "smtp_tls: on" 'smtp_tls: true is no value' "${cluster[@]}" --set control.settings.smtp_tls=true
kinds

command -v go >/dev/null || { echo "SKIPPED: kubeconform: Kubernetes' definitions come with Go, which is not here"; exit 0; }
definitions
foreign=()
cluster_definition || {
    foreign=(-skip FoundationDBCluster)
    echo "SKIPPED: fields of FoundationDBCluster: the module of FoundationDB's operator cannot be fetched; FOUNDATIONDB_CRD may name its definition"
}
"$tools/kubeconform" -strict -summary "${foreign[@]}" -schema-location "$schemas/{{.ResourceKind}}{{.KindSuffix}}.json" \
    -schema-location "$operators/{{.ResourceKind}}{{.KindSuffix}}.json" -schema-location "$clusters/{{.ResourceKind}}{{.KindSuffix}}.json" \
    "$work/all.yaml" "$work/operator.yaml" "$work/migration.yaml" "$work/collector.yaml" "$work/collector-operator.yaml" "$work/reuse.yaml" || fail "kubeconform"
agreements || fail "the chart"
rules
envoy
values
