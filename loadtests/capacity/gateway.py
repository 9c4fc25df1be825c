"""Measures what a connection costs the gateway: the real one with TLS, and Envoy alone without TLS."""

import json
import os
import pathlib
import resource
import signal
import ssl
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "loadtests"), str(ROOT / "loadtests/k6")]
import run as k6  # noqa: E402
import tls  # noqa: E402

CLIENTS = 1000
START_SECONDS_MAX = 60


class Envoy(tls.Server):
    """A process whose memory and CPU are read from /proc, as those of other servers are."""

    def __init__(self, pid):
        self.process = type("Process", (), {"pid": pid})


def raise_file_limit():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def child_named(pid, name):
    """The process that a script has started, once it is there."""
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in children:
            if name in pathlib.Path(f"/proc/{child}/cmdline").read_text().split("\0")[0]:
                return int(child)
        time.sleep(0.05)
    sys.exit(f"FAILED: the gateway did not start {name}")


def with_tls(envoy, free_ports, wait_for):
    """Bytes of an idle TLS 1.3 connection of the gateway, and microseconds of its handshake and CONNECT."""
    pod, mqtts, wss, status, admin = free_ports(5)
    with tempfile.TemporaryDirectory() as folder, k6.server(f"--gateway-listen=127.0.0.1:{pod}", "--allow-anonymous") as (_, _, http):
        certificates = pathlib.Path(folder, "certs")
        subprocess.run([k6.MILLRACE, "dev-certs", "--out", certificates], check=True, capture_output=True)
        settings = {
            "GATEWAY_DIR": f"{folder}/gateway", "GATEWAY_CERTIFICATES": str(certificates), "GATEWAY_ENVOY": os.path.abspath(envoy),
            "GATEWAY_PODS": f"127.0.0.1:{pod}/{http.rpartition(':')[2]}", "GATEWAY_MQTTS_PORT": str(mqtts), "GATEWAY_WSS_PORT": str(wss),
            "GATEWAY_STATUS_PORT": str(status), "GATEWAY_ADMIN_PORT": str(admin), "GATEWAY_THREADS": "1", "GATEWAY_ACCESS_LOG": "/dev/null",
            "GATEWAY_NOTICE_S": "1", "GATEWAY_DRAIN_S": "1",
        }
        context = ssl.create_default_context(cafile=certificates / "ca.crt")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        gateway = subprocess.Popen([ROOT / "gateway/gateway.sh", "run"], env=os.environ | settings, start_new_session=True)
        try:
            wait_for(mqtts, START_SECONDS_MAX)
            wait_for_pod(mqtts, context)
            memory, cpu_ms = tls.measure(Envoy(child_named(gateway.pid, "envoy")), mqtts, CLIENTS, context)
        finally:
            gateway.terminate()
            gateway.wait()
    return memory, cpu_ms * 1000


def wait_for_pod(port, context):
    """Until the gateway has found its pod healthy, it closes connections."""
    end = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            return tls.client(port, 0, context).close()
        except (OSError, IndexError):
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def without_tls(envoy, configuration, free_ports, wait_for):
    """Bytes of an idle connection without TLS."""
    listen, admin = free_ports(2)
    with k6.server() as (_, mqtt, _), tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(configuration(listen, mqtt, admin), file)
        file.flush()
        process = subprocess.Popen([envoy, "-c", file.name, "--concurrency", "1", "--log-level", "error", "--disable-hot-restart"])
        try:
            wait_for(listen)
            memory, _ = tls.measure(Envoy(process.pid), listen, CLIENTS)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    return memory


def measure(envoy, configuration, free_ports, wait_for):
    raise_file_limit()
    plain = without_tls(envoy, configuration, free_ports, wait_for)
    memory, handshake = with_tls(envoy, free_ports, wait_for)
    return {"clients": CLIENTS, "plain_bytes_per_connection": plain, "tls_bytes_per_connection": memory, "tls_connect_us": handshake}
