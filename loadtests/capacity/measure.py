#!/usr/bin/env python3
"""Measures the costs from which capacity.py computes machines for a fleet. The JSON file has the date, the machine, and the
output of mqttload for each scenario.

    loadtests/capacity/measure.py OUT.json            everything, in about four minutes
    loadtests/capacity/measure.py FILE.json --gateway    only a gateway's connections, added to an existing file

It runs target/release/millrace and mqttload; MILLRACE and MQTTLOAD name others. With an Envoy (ENVOY, else
target/envoy/bin/envoy) it also measures two scenarios through the gateway, and the memory of the gateway's connections.
"""

import datetime
import json
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "loadtests/k6"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gateway  # noqa: E402
import run as k6  # noqa: E402

MQTTLOAD = os.environ.get("MQTTLOAD", str(k6.TARGET / "release/mqttload"))
ENVOY = os.environ.get("ENVOY", str(k6.TARGET / "envoy/bin/envoy"))
# Seconds of each scenario, so that all of them take about four minutes.
SECONDS = os.environ.get("MEASURE_SECONDS", "4")
# A scenario that takes longer hangs.
SECONDS_MAX = 300
# The scenarios, by the names that capacity.py knows, and their arguments.
RUNS = {
    "idle": ["idle"],
    "idle-subscribed": ["idle", "--subscribe"],
    "connect": ["connect", "--connects", "8000"],
    "qos0": ["qos0-window", "--payload-bytes", "100"],
    "qos0-large": ["qos0-window", "--payload-bytes", "4096"],
    "qos1": ["qos1-closed"],
    "fanout": ["fanout"],
    "fanin-qos0": ["fanin-qos0"],
    "durable-publish": ["durable-publish-closed"],
    "durable-drain": ["durable-drain"],
    "durable-online": ["durable-online-closed"],
    "sessions": ["offline-sessions", "--sessions", "20000", "--payload-bytes", "100"],
    "reconnect": ["reconnect", "--sessions", "5000"],
}
THROUGH_GATEWAY = {"gateway-qos0": ["qos0-window"], "gateway-qos1": ["qos1-closed"]}


def machine():
    cpu = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), "unknown")
    return {"cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(), "load_before": os.getloadavg()[0]}


def kernel_bytes():
    """Bytes of the kernel's slabs, where sockets are."""
    words = dict(line.split(":", 1) for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    return 1024 * sum(int(words[name].split()[0]) for name in ("SReclaimable", "SUnreclaim"))


def socket_bytes(pairs=8000):
    """Kernel bytes for each end of an idle connection. Both ends are on this machine; several addresses have enough ports."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    before, ends = kernel_bytes(), []
    for i in range(pairs):
        ends.append(socket.create_connection(listener.getsockname(), source_address=(f"127.0.1.{1 + i // 4000}", 0)))
        ends.append(listener.accept()[0])
    grown = kernel_bytes() - before
    for end in ends:
        end.close()
    return grown / (2 * pairs)


def mqttload(name, arguments, *more):
    command = [MQTTLOAD, "run", *arguments, "--json", "--seconds", SECONDS, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, env={**os.environ, "TMPDIR": str(k6.TARGET)})
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(f"FAILED: {name}: {done.stderr[-2000:]}")
    print(f"{name}: {lines[-1][:160]}", flush=True)
    return {"arguments": arguments, **json.loads(lines[-1])}


def gateway_configuration(listen, upstream, admin):
    """Configures Envoy to forward bytes as gateway/ does behind TLS. Its buffers are smaller: 8 KiB and not 32 KiB for each connection."""
    def address(port):
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    proxy = {"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
             "stat_prefix": "mqtt", "cluster": "pods"}
    return {
        "admin": {"address": address(admin)},
        "static_resources": {
            "listeners": [{"address": address(listen), "per_connection_buffer_limit_bytes": 8192, "filter_chains": [
                {"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}]}]}],
            "clusters": [{"name": "pods", "per_connection_buffer_limit_bytes": 8192, "circuit_breakers": {
                "thresholds": [{"max_connections": 100_000, "max_pending_requests": 100_000}]}, "load_assignment": {
                "cluster_name": "pods", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(upstream)}}]}]}}],
        },
    }


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def through_gateway():
    """Runs scenarios with Envoy as the measured process, and a Millrace behind it."""
    results = {}
    with k6.server() as (_, mqtt, _), tempfile.TemporaryDirectory() as folder:
        listen, admin = free_ports(2)
        configuration = pathlib.Path(folder, "envoy.json")
        configuration.write_text(json.dumps(gateway_configuration(listen, mqtt, admin)))
        envoy = subprocess.Popen([ENVOY, "-c", str(configuration), "--concurrency", "1", "--log-level", "error"])
        try:
            wait_for(listen)
            for name, arguments in THROUGH_GATEWAY.items():
                results[name] = mqttload(name, arguments, "--pid", str(envoy.pid), "--port", str(listen))
        finally:
            envoy.terminate()
            envoy.wait()
    return results


def wait_for(port, seconds_max=30):
    end = time.monotonic() + seconds_max
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > end:
                sys.exit("FAILED: the gateway did not start")
            time.sleep(0.05)


def gateway_connections():
    """Measures a gateway's connections. They have a date and machine of their own, because --gateway may run later."""
    about = {"measured_on": datetime.date.today().isoformat(), "machine": machine()}
    return about | gateway.measure(ENVOY, gateway_configuration, free_ports, wait_for)


def add_gateway(path):
    measured = json.loads(path.read_text())
    measured["gateway"] = gateway_connections()
    path.write_text(json.dumps(measured, indent=1) + "\n")


def main():
    if sys.argv[2:] == ["--gateway"]:
        return add_gateway(pathlib.Path(sys.argv[1]))
    if len(sys.argv) != 2:
        sys.exit("measure.py OUT.json, or measure.py FILE.json --gateway")
    measured = {"measured_on": datetime.date.today().isoformat(), "machine": machine(), "socket_bytes": statistics.median(socket_bytes() for _ in range(5)), "results": {}}
    for name, arguments in RUNS.items():
        measured["results"][name] = mqttload(name, arguments, "--millrace-bin", k6.MILLRACE)
    if pathlib.Path(ENVOY).exists():
        measured["results"].update(through_gateway())
        measured["gateway"] = gateway_connections()
    else:
        print(f"SKIPPED: capacity: there is no Envoy at {ENVOY} (make gateway installs it)")
    pathlib.Path(sys.argv[1]).write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
