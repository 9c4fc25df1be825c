#!/usr/bin/env bash
# Runs the chart's preStop hook of a gateway beside real Envoy, with the chart's own configuration, and a real server behind it.
# A device stays connected while preStop waits, and preStop ends when the server has drained the device. Then a server whose event loop
# is held is asked as the kubelet asks it.
#
# MILLRACE names the program, ENVOY the binary; PORT and the nine ports above it must be free.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/deploy/drain
: "${MILLRACE:=$target/release/millrace}"
: "${ENVOY:=$target/envoy/bin/envoy}"
: "${PORT:=24500}"
mqtts=$PORT wss=$((PORT + 1)) admin=$((PORT + 2)) status=$((PORT + 3)) gateway=$((PORT + 4)) http=$((PORT + 5)) operator=$((PORT + 6))
pids=()

fail() {
    echo "FAILED: $1" >&2
    tail -n 5 "$work"/*.log >&2
    exit 1
}

clean() {
    set +e
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
    wait 2>/dev/null
}

until_true() {
    local end=$((SECONDS + 60)) what=$1
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || fail "not in time: $what"
        sleep 0.2
    done
}

for program in "$MILLRACE" "$ENVOY" "$target/tools/helm"; do
    [ -x "$program" ] || { echo "SKIPPED: the gateway's hook: there is no $program"; exit 0; }
done
for program in mosquitto_sub openssl python3; do
    command -v "$program" >/dev/null || { echo "SKIPPED: the gateway's hook: $program is not installed"; exit 0; }
done
rm -rf "$work"
mkdir -p "$work/tls"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -keyout "$work/tls/tls.key" -out "$work/tls/tls.crt" 2>/dev/null
"$target/tools/helm" template region "$root/terraform/chart" --kube-version 1.36.3 \
    --set foundationdb.external.clusterFile=a:b@10.0.0.1:4500 2>/dev/null >"$work/all.yaml"
# The files of the chart's config map, with this machine's ports and addresses.
python3 - "$work" "$mqtts" "$wss" "$admin" "$status" "$gateway" "$http" <<'PY'
import pathlib, re, sys, textwrap

folder, ports = pathlib.Path(sys.argv[1]), dict(zip([8883, 8443, 9901, 9902, 1884, 8080], sys.argv[2:]))
text = (folder / "all.yaml").read_text()
for name in ["envoy.yaml", "certificate.yaml", "drain.sh"]:
    block = re.search(rf"^  {re.escape(name)}: \|\n((?:    .*\n|\s*\n)+)", text, re.M)[1]
    file = textwrap.dedent(block).replace("/etc/millrace/tls", f"{folder}/tls")
    if name == "envoy.yaml":
        for inside, here in ports.items():
            file, count = re.subn(rf"\bport_value: {inside}\b", f"port_value: {here}", file)
            assert count, f"the chart's envoy.yaml has no port {inside}"
        file = file.replace("region-millrace-edge.default.svc", "127.0.0.1").replace("0.0.0.0", "127.0.0.1")
    (folder / name).write_text(file)
PY

trap clean EXIT
"$MILLRACE" serve --data-dir "$work/data" --mqtt-listen off --ws-listen off --gateway-listen "127.0.0.1:$gateway" \
    --http-listen "127.0.0.1:$http" --admin-listen "127.0.0.1:$operator" --allow-anonymous >"$work/server.log" 2>&1 &
server=$!
pids+=("$server")
(cd "$work" && exec "$ENVOY" --config-path envoy.yaml --disable-hot-restart --log-level warning --drain-time-s 1) >"$work/envoy.log" 2>&1 &
pids+=($!)
status_is() { [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$status/ready")" = "$1" ]; }
connected() { [ "$(curl -fs "http://127.0.0.1:$operator/metrics" | sed -n 's/^millrace_connections_open //p')" = "$1" ]; }
until_true "the gateway is ready" status_is 200
subscribe() {
    exec mosquitto_sub -V 5 -h localhost -p "$mqtts" --cafile "$work/tls/tls.crt" -i device -t 'cmd/#' >"$work/device.log" 2>&1
}
# Until Envoy has seen the server healthy, a device may be refused; mosquitto_sub then ends.
device_connected() {
    if ! kill -0 "${device:-0}" 2>/dev/null || [ -z "${device:-}" ]; then
        subscribe &
        device=$!
        pids+=("$device")
    fi
    connected 1
}
until_true "a device is connected" device_connected

bash "$work/drain.sh" "$admin" 1 3000 >"$work/hook.log" 2>&1 &
hook=$!
pids+=("$hook")
until_true "/ready answers 503, so that the load balancer sends nobody any more" status_is 503
closed() { ! (exec 3<>"/dev/tcp/127.0.0.1/$mqtts") 2>/dev/null; }
until_true "the gateway's port is closed" closed
connected 1 || fail "the hook took the device away"
kill -0 "$hook" 2>/dev/null || fail "the hook ended while a device was connected"
echo "preStop hook: no new devices come, and the connected one stays"

kill -TERM "$server"
hook_ended() { ! kill -0 "$hook" 2>/dev/null; }
until_true "the hook ends when the server has drained its device" hook_ended
wait "$hook" || fail "the hook failed: the kubelet would report it"
grep -q 'draining: clients are disconnected' "$work/server.log" || fail "the server did not drain its device"
echo "preStop hook: it ends when the last device has left"

python3 -B "$here/liveness.py" "$MILLRACE" "$work/all.yaml" "$work" "$((PORT + 7))" || fail "the liveness probe"
