#!/usr/bin/env bash
# Installs the chart into a real kube-apiserver with etcd, both built from their modules: `make check-kubernetes`.
# There are no nodes, so nothing runs; defaults, admission and validation are the real ones. The first build takes 10 minutes
# and 4 GB. CHART_BEFORE, a folder, is the chart that is installed first; default: this one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
tools=$target/tools
build=$target/deploy/kubernetes-build
work=$target/deploy/kubernetes
version=1.36.3
: "${PORT:=24443}"
etcd=$((PORT + 1))
pids=()

fail() {
    echo "FAILED: $1" >&2
    exit 1
}

clean() {
    set +e
    # Without etcd, kube-apiserver does not end in order.
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
    wait 2>/dev/null
}

# The versions of all modules are those of Kubernetes' own go.mod. It takes the modules k8s.io/api, k8s.io/apiserver and so on
# from folders of its repository; here they are the published modules of the same release. `go mod tidy` would also ask for what
# the tests of all these modules import, so `go build` fills in go.sum instead.
build_servers() {
    [ "$(cat "$build/version" 2>/dev/null)" != "$version" ] || return 0
    command -v go >/dev/null || { echo "SKIPPED: kube-apiserver is built with Go, which is not here"; exit 0; }
    mkdir -p "$build"
    cp -r "$here/kubernetes/apiserver" "$here/kubernetes/etcd" "$build/"
    cd "$build"
    # A cache of its own, deleted after the build: nothing else uses these packages.
    export GOCACHE=$build/cache
    local source release=${version#1.}
    source=$(go mod download -json "k8s.io/kubernetes@v$version" | python3 -c 'import json, sys; print(json.load(sys.stdin)["GoMod"])')
    sed -E "s/^module .*/module servers/; s|=> \./staging/src/(k8s\.io/[a-z-]+)$|=> \1 v0.$release|" "$source" >go.mod
    ! grep -n "=> \." go.mod || fail "go.mod of Kubernetes $version has folders that are no published modules"
    go mod edit -require "k8s.io/kubernetes@v$version"
    echo "building etcd and kube-apiserver $version: $build/build.log"
    nice -n 10 go build -mod=mod -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$version" -o bin/ ./etcd ./apiserver \
        >build.log 2>&1 || { tail -5 build.log; fail "go build"; }
    echo "$version" >version
    rm -rf cache
}

start() {
    rm -rf "$work"
    mkdir -p "$work"
    cd "$work"
    openssl genrsa -out accounts.key 2048 2>/dev/null
    echo 'check,admin,admin,system:masters' >tokens.csv
    "$build/bin/etcd" --data-dir etcd --listen-client-urls "http://127.0.0.1:$etcd" --advertise-client-urls "http://127.0.0.1:$etcd" \
        --listen-peer-urls "http://127.0.0.1:$((etcd + 1))" --log-level error >etcd.log 2>&1 &
    pids+=($!)
    "$build/bin/apiserver" --etcd-servers "http://127.0.0.1:$etcd" --bind-address 127.0.0.1 --advertise-address 127.0.0.1 \
        --secure-port "$PORT" --cert-dir certificates --token-auth-file tokens.csv --authorization-mode RBAC \
        --service-cluster-ip-range 10.96.0.0/16 --service-account-key-file accounts.key \
        --service-account-signing-key-file accounts.key --service-account-issuer https://check.example.org \
        --disable-admission-plugins ServiceAccount >apiserver.log 2>&1 &
    pids+=($!)
    local end=$((SECONDS + 180))
    until api /readyz >/dev/null 2>&1; do
        kill -0 "${pids[1]}" 2>/dev/null || { tail -5 apiserver.log; fail "kube-apiserver ended"; }
        [ "$SECONDS" -lt "$end" ] || { tail -5 apiserver.log; fail "kube-apiserver is not ready"; }
        sleep 0.5
    done
}

api() { curl -fsSk -H 'Authorization: Bearer check' "https://127.0.0.1:$PORT$1" "${@:2}"; }

helm() {
    "$tools/helm" --kube-apiserver "https://127.0.0.1:$PORT" --kube-token check --kube-insecure-skip-tls-verify --namespace default "$@" \
        2>>"$work/helm.log"
}

# count KIND-PATH: objects of the release.
count() { api "$1?labelSelector=app.kubernetes.io/instance=region" | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["items"]))'; }

# Grace period of the edge's pods, as the API server has it, in seconds.
grace() {
    api /apis/apps/v1/namespaces/default/statefulsets/region-millrace-edge |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])'
}

"$here/tools.sh" chart python
[ -x "$tools/helm" ] || { echo "SKIPPED: the chart in a kube-apiserver: helm is not installed"; exit 0; }
build_servers
trap clean EXIT
start
chart=$root/terraform/chart
: "${CHART_BEFORE:=$chart}"
helm install region "$CHART_BEFORE" --set foundationdb.external.clusterFile=millrace:millrace@10.0.0.1:4500:tls \
    --set control.ingress.enabled=true --set 'control.proxies={10.244.0.0/16}' >"$work/install.log" || { tail -5 "$work/helm.log"; fail "helm install"; }
echo "installed: $(count /apis/apps/v1/namespaces/default/statefulsets) stateful sets, $(count /apis/apps/v1/namespaces/default/deployments) deployments, $(count /api/v1/namespaces/default/services) services, $(count /apis/policy/v1/namespaces/default/poddisruptionbudgets) disruption budgets, $(count /apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers) autoscaler, $(count /apis/networking.k8s.io/v1/namespaces/default/networkpolicies) network policies"
[ "$(count /apis/apps/v1/namespaces/default/statefulsets)" = 2 ] || fail "there must be two stateful sets"

helm upgrade region "$chart" --reset-then-reuse-values --set edge.drainSeconds=90 --set gateway.replicas=4 >"$work/upgrade.log" \
    || { tail -5 "$work/helm.log"; fail "helm upgrade"; }
[ "$(grace)" = 140 ] || fail "the upgrade did not reach the edge"
echo "upgraded: the grace period of edge pods follows drainSeconds"

# replicas: of the edge's pods, as the API server has it.
replicas() {
    api /apis/apps/v1/namespaces/default/statefulsets/region-millrace-edge | python3 -c 'import json, sys; print(json.load(sys.stdin)["spec"]["replicas"])'
}
helm upgrade region "$chart" --reset-then-reuse-values --set stopped=true --set migration.claim=move >"$work/stop.log" || { tail -5 "$work/helm.log"; fail "helm upgrade with stopped"; }
[ "$(replicas)" = 0 ] || fail "stopped=true leaves $(replicas) pods of the edge"
[ "$(count /apis/batch/v1/namespaces/default/jobs)" = 1 ] || fail "there is no job for the migration"
helm upgrade region "$chart" --reset-then-reuse-values --set stopped=false --set migration.claim= >"$work/start.log" || { tail -5 "$work/helm.log"; fail "helm upgrade without stopped"; }
# An autoscaler does nothing for a workload with 0 replicas.
[ "$(replicas)" = 1 ] || fail "after a migration the edge has $(replicas) pods, and its autoscaler begins at 1"
[ "$(count /apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers)" = 1 ] || fail "the autoscaler did not come back"
echo "stopped for a migration, and started again"

# A namespace that takes restricted pods only.
api /api/v1/namespaces -X POST -H 'Content-Type: application/json' -o /dev/null \
    -d '{"metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}'
"$tools/helm" template other "$chart" --kube-version "$version" --set foundationdb.external.clusterFile=a:b@10.0.0.1:4500 \
    --set control.ingress.enabled=true --set 'control.proxies={10.244.0.0/16}' 2>/dev/null >"$work/all.yaml"
"$tools/deploy-python/bin/python" "$here/kubernetes/objects.py" "$work/all.yaml" "https://127.0.0.1:$PORT" check \
    || fail "the API server and the chart do not agree"

helm uninstall region >/dev/null || fail "helm uninstall"
[ "$(count /api/v1/namespaces/default/services)" = 0 ] || fail "uninstall left services"
echo "check-kubernetes: passed"
