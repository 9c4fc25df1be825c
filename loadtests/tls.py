#!/usr/bin/env python3
"""Measures what a TLS client costs: memory while it is idle, and CPU time of a full and a resumed handshake.

    loadtests/tls.py [--clients 2000] [--port 27900] [--millrace target/release/millrace] [--envoy target/envoy/bin/envoy]

Measures Millrace, mosquitto (with OpenSSL) and the gateway's Envoy one after the other, each with one certificate, over TLS 1.3
and without TLS, as /proc reports them, so the kernel's memory for sockets is not included. Envoy's figures do not
include the pod behind it. Listens on ports from --port on, on 127.0.0.1.
"""

import argparse
import os
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOST = "127.0.0.1"
ROOT = Path(__file__).resolve().parent.parent
# Clients that connect before the measurement, so that memory allocated once is not counted.
WARM = 200
PATH = os.environ["PATH"] + ":/usr/sbin"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=2000)
    parser.add_argument("--port", type=int, default=27900)
    parser.add_argument("--millrace", type=Path, default=ROOT / "target/release/millrace")
    parser.add_argument("--envoy", type=Path, default=ROOT / "target/envoy/bin/envoy")
    return parser.parse_args()


class Server:
    """A broker's process, with its ports for TLS and for plain TCP."""

    def __init__(self, command, tls, plain):
        self.tls, self.plain = tls, plain
        self.process = start(command, tls, plain)
        self.pid = self.process.pid

    def memory(self):
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def cpu(self):
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        stop(self.process)


class Gateway(Server):
    """The gateway's Envoy, with a pod that is not measured."""

    def __init__(self, options, certificates, folder, port):
        at = lambda offset: f"{HOST}:{port + offset}"
        listens = [f"--gateway-listen={at(4)}", f"--http-listen={at(5)}", "--ws-listen=off", "--mqtt-listen=off"]
        pod = [options.millrace, "serve", "--data-dir=off", "--allow-anonymous", "--threads=1"] + listens
        self.pod = start(pod, port + 4, port + 5)
        settings = {
            "GATEWAY_DIR": folder / "gateway",
            "GATEWAY_PODS": f"{at(4)}/{port + 5}",
            "GATEWAY_CERTIFICATES": certificates,
            "GATEWAY_MQTTS_PORT": port,
            "GATEWAY_WSS_PORT": port + 1,
            "GATEWAY_STATUS_PORT": port + 2,
            "GATEWAY_ADMIN_PORT": port + 3,
            "GATEWAY_THREADS": 1,
            "GATEWAY_NOTICE_S": 0,
            "GATEWAY_DRAIN_S": 0,
            "GATEWAY_ACCESS_LOG": "/dev/null",
            "GATEWAY_ENVOY": options.envoy.absolute(),
        }
        command = ["env", *(f"{name}={value}" for name, value in settings.items()), ROOT / "gateway/gateway.sh", "run"]
        try:
            super().__init__(command, port, port + 2)
            self.pid = self.pid_of_envoy()
            self.wait_for_pod()
        except BaseException:
            stop(self.pod)
            raise

    def pid_of_envoy(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        [pid] = [pid for pid in children if "envoy" in Path(f"/proc/{pid}/comm").read_text()]
        return pid

    def wait_for_pod(self):
        """Envoy passes clients on once the pod's health check has passed."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        until(lambda: client(self.tls, 0, context).close(), self.process)

    def stop(self):
        stop(self.process)
        stop(self.pod)


def start(command, *ports):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: [socket.create_connection((HOST, port)).close() for port in ports], process)
    return process


def until(attempt, process):
    """Repeats an attempt until no connection fails any more."""
    end = time.monotonic() + 20
    while True:
        try:
            return attempt()
        except OSError:
            if time.monotonic() > end or process.poll() is not None:
                raise
            time.sleep(0.05)


def stop(process):
    process.terminate()
    process.wait(20)


def connect(number):
    client_id = f"c{number:07}".encode()
    body = b"\0\4MQTT\4\2\0\0" + len(client_id).to_bytes(2, "big") + client_id
    return bytes([0x10, len(body)]) + body


def client(port, number, context=None, session=None):
    stream = socket.create_connection((HOST, port), timeout=20)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context:
        stream = context.wrap_socket(stream, server_hostname="localhost", session=session)
        if session:
            assert stream.session_reused, "the session was not resumed"
    stream.sendall(connect(number))
    # mosquitto and Envoy send the CONNACK once the tickets before it are acknowledged, which would take 40 ms.
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    answer = stream.recv(4)
    if answer[:1] != b"\x20":
        raise ConnectionError(f"no CONNACK but {answer}")
    return stream


def measure(server, port, count, context=None, session=None):
    """Returns the bytes and the CPU milliseconds of one client."""
    clients = [client(port, number, context, session) for number in range(WARM)]
    time.sleep(1)
    memory, cpu = server.memory(), server.cpu()
    clients += [client(port, WARM + number, context, session) for number in range(count)]
    time.sleep(1)
    result = (server.memory() - memory) / count, (server.cpu() - cpu) / count * 1000
    [stream.close() for stream in clients]
    return result


def ticket(server, context):
    stream = client(server.tls, 0, context)
    # The ticket arrived before the CONNACK.
    session = stream.session
    stream.close()
    return session


def main():
    options = arguments()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory() as folder:
        certificates, port = Path(folder) / "certs", options.port
        subprocess.run([options.millrace, "dev-certs", "--out", certificates], check=True, capture_output=True)
        context = ssl.create_default_context(cafile=certificates / "ca.crt")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        print(f"{'server':<12} {'client':<18} {'bytes while idle':>16} {'CPU of a connect':>18}")
        for name, begin in servers(options, certificates, Path(folder), port):
            for what in ("TLS 1.3", "TLS 1.3, resumed", "without TLS"):
                if name == "envoy" and what == "without TLS":
                    continue
                # A new server for each row, because it would reuse memory that the row before has
                # freed.
                server = begin()
                try:
                    at_port, with_tls = (server.plain, None) if what == "without TLS" else (server.tls, context)
                    session = ticket(server, context) if what == "TLS 1.3, resumed" else None
                    memory, cpu = measure(server, at_port, options.clients, with_tls, session)
                finally:
                    server.stop()
                print(f"{name:<12} {what:<18} {memory:>16.0f} {cpu:>15.3f} ms", flush=True)


def servers(options, certificates, folder, port):
    """Returns the name of each server that is installed, and a function that starts it."""
    at = lambda offset: f"{HOST}:{port + offset}"
    millrace = (
        [options.millrace, "serve", "--data-dir=off", "--ws-listen=off", "--wss-listen=off", "--http-listen=off"]
        + [f"--tls-dir={certificates}", f"--mqtts-listen={at(0)}", f"--mqtt-listen={at(1)}", "--threads=1"]
    )  # fmt: skip
    found = [("millrace", lambda: Server(millrace, port, port + 1))]
    mosquitto = shutil.which("mosquitto", path=PATH)
    if mosquitto:
        config = folder / "mosquitto.conf"
        config.write_text(
            f"allow_anonymous true\nlistener {port + 2} {HOST}\ncertfile {certificates}/tls.crt\n"
            f"keyfile {certificates}/tls.key\nlistener {port + 3} {HOST}\n"
        )
        # mosquitto gives up the rights of root, and could not read the key then.
        certificates.chmod(0o755), (certificates / "tls.key").chmod(0o644), folder.chmod(0o755)
        found.append(("mosquitto", lambda: Server([mosquitto, "-c", config], port + 2, port + 3)))
    else:
        print("SKIPPED: mosquitto is not installed (Debian: apt-get install mosquitto)")
    if options.envoy.exists():
        found.append(("envoy", lambda: Gateway(options, certificates, folder, port + 10)))
    else:
        print("SKIPPED: Envoy is not installed (make gateway installs it)")
    return found


if __name__ == "__main__":
    sys.exit(main())
