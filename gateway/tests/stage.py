"""Pods, a gateway in front of them, and clients that send exactly the bytes of a check."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from checks import HOST, SECONDS_MAX, before, deadline

GATEWAY = Path(__file__).parent.parent / "gateway.sh"
MILLRACE = os.environ["MILLRACE"]


def free_port():
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return sock.getsockname()[1]


def until(condition, what):
    """Waits until the condition returns something true, and returns that."""
    end = deadline()
    while not (found := condition()):
        before(end, what)
        time.sleep(0.02)
    return found


def get(url):
    """Returns the HTTP status and the body."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Process:
    """A program whose output goes into a file. It is killed with the stage."""

    def __init__(self, log, command, stdout=None, **environment):
        self.log = log
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                command, stdout=stdout or output, stderr=output, env={**os.environ, **environment}, start_new_session=True
            )

    def text(self):
        return self.log.read_text(errors="replace")

    def line(self, pattern):
        """The first group of the first match in its output, once there is one."""

        def look():
            if self.process.poll() is not None:
                raise AssertionError(f"it ended: {self.text()[-500:]}")
            return re.search(pattern, self.text())

        return until(look, f"{self.log.name} has no {pattern}").group(1)

    def stop(self, with_signal=signal.SIGTERM):
        self.process.send_signal(with_signal)
        return self.process.wait(SECONDS_MAX)

    def kill(self):
        """Kills it and all processes that it has started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def brokers():
    """The brokers that clients of these tests mean, by the first part of their server names."""
    yield from ["acme", "other", "large", "victim", "logged"]
    for name, count in [("broker", 100), ("moving", 40), ("both", 8)]:
        yield from (f"{name}-{number}" for number in range(count))
    yield from (f"b{number}" for number in range(50))


class Pod(Process):
    """An edge that listens for the gateway, on free ports unless they are given. Its log has a line for each client."""

    def __init__(self, folder, number, at="0", health="0"):
        super().__init__(
            folder / f"pod-{number}.log",
            [MILLRACE, "serve", "--data-dir=off", "--allow-anonymous", "--threads=2", "--shutdown-grace-s=0"]
            + [f"--gateway-listen={HOST}:{at}", f"--gateway-from={HOST}", f"--http-listen={HOST}:{health}"]
            + [f"--mqtt-listen={HOST}:0", f"--ws-listen={HOST}:0", f"--brokers={','.join(brokers())}"]
            + ["--log-format=json", "--log-level=info,millrace::connections=debug"],
        )
        self.folder, self.number = folder, number
        self.health = int(self.line(r"HTTP is open at http://127\.0\.0\.1:(\d+)"))
        self.gateway = int(self.line(r"the gateway is expected at 127\.0\.0\.1:(\d+)"))
        self.mqtt = int(self.line(r"mqtt://127\.0\.0\.1:(\d+)"))
        self.ws = int(self.line(r"ws://127\.0\.0\.1:(\d+)"))

    def address(self):
        return f"{HOST}:{self.gateway}/{self.health}"

    def again(self):
        """Starts the same pod again after it was killed."""
        self.log.unlink()
        return Pod(self.folder, self.number, self.gateway, self.health)

    def clients(self):
        """The last "client connected" line of each client id in its log, as fields."""
        found = {}
        for line in self.text().splitlines(keepends=True):
            if '"client connected"' in line and line.endswith("\n"):
                fields = json.loads(line)
                found[fields["client_id"]] = fields
        return found


class Gateway(Process):
    """The gateway as an operator runs it."""

    def __init__(self, folder, certificates, pods, stdout=None, **settings):
        self.folder, self.stdout = folder, stdout
        folder.mkdir(exist_ok=True)
        names = ["MQTTS_PORT", "WSS_PORT", "STATUS_PORT", "ADMIN_PORT"]
        self.settings = {name: str(free_port()) for name in names}
        self.settings |= {"DIR": str(folder), "CERTIFICATES": str(certificates), "ACCESS_LOG": str(folder / "access.log")}
        self.settings |= {"PODS": " ".join(pod.address() for pod in pods), "THREADS": "1", "NOTICE_S": "1", "DRAIN_S": "0"}
        self.settings |= {name: str(value) for name, value in settings.items()}
        self.start()

    def start(self):
        super().__init__(self.folder / "envoy.log", [GATEWAY, "run"], self.stdout, **self.environment())
        self.mqtts, self.wss = int(self.settings["MQTTS_PORT"]), int(self.settings["WSS_PORT"])
        until(lambda: self.status("/ready")[0] == 200, f"not ready: {self.text()[-500:]}")
        self.has_pods(len(self.settings["PODS"].split()))

    def environment(self):
        return {f"GATEWAY_{name}": value for name, value in self.settings.items()}

    def status(self, path):
        try:
            return get(f"http://{HOST}:{self.settings['STATUS_PORT']}{path}")
        except OSError as error:
            return 0, str(error)

    def stat(self, name):
        text = get(f"http://{HOST}:{self.settings['ADMIN_PORT']}/stats?filter=^{name}$")[1]
        return int(text.split(": ")[1]) if text else None

    def has_pods(self, count):
        """Waits until the gateway knows so many pods, all of them healthy."""
        names = [f"cluster.edge.membership_{what}" for what in ("total", "healthy")]
        until(lambda: [self.stat(name) for name in names] == [count, count], f"there are no {count} healthy pods")

    def has_clients(self, count):
        until(lambda: self.stat("cluster.edge.upstream_cx_active") == count, f"there are not {count} clients")

    def replace_pods(self, pods):
        addresses = [pod.address() for pod in pods]
        subprocess.run([GATEWAY, "pods", *addresses], env={**os.environ, **self.environment()}, check=True)


class Client:
    """A TLS connection to the gateway that says CONNECT at once."""

    def __init__(self, stage, server_name, client_id=None, port=None, **tls):
        self.id = client_id or f"{server_name}-{next(stage.numbers)}"
        self.tls = stage.tls(server_name, port or stage.gateway.mqtts, **tls)
        connect = b"\0\4MQTT\4\2\0\0" + len(self.id).to_bytes(2, "big") + self.id.encode()
        self.tls.sendall(bytes([0x10, len(connect)]) + connect)
        answer = self.read(4)
        if answer != b"\x20\2\0\0":
            raise AssertionError(f"CONNACK: {answer!r}")

    def read(self, size):
        data = b""
        while len(data) < size and (more := self.tls.recv(size - len(data))):
            data += more
        return data

    def ping(self):
        self.tls.sendall(b"\xc0\0")
        return self.read(2) == b"\xd0\0"

    def is_open(self):
        try:
            return self.ping()
        except OSError:
            return False

    def close(self):
        self.tls.close()


class Stage:
    """Certificates, three pods and a gateway."""

    def __init__(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.certificates = self.folder / "certs"
        self.make_certificates(self.certificates)
        self.numbers = iter(range(1_000_000))
        self.started = []
        self.pods = [self.keep(Pod(self.folder, number)) for number in range(3)]
        self.gateway = self.keep(Gateway(self.folder / "gateway", self.certificates, self.pods))

    def keep(self, process):
        self.started.append(process)
        return process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.started:
            process.kill()
        self.temporary.cleanup()

    @staticmethod
    def make_certificates(folder, *flags):
        subprocess.run([MILLRACE, "dev-certs", "--out", folder, *flags], check=True, capture_output=True)

    def context(self, certificate=False, version=None, alpn=()):
        context = ssl.create_default_context(cafile=self.certificates / "ca.crt")
        if certificate:
            context.load_cert_chain(self.certificates / "client.crt", self.certificates / "client.key")
        if version:
            context.minimum_version = context.maximum_version = version
        if alpn:
            context.set_alpn_protocols(alpn)
        return context

    def tls(self, server_name, port, context=None, session=None, source=None, **options):
        context = context or self.context(**options)
        sock = socket.create_connection((HOST, port), timeout=SECONDS_MAX, source_address=source and (source, 0))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            return context.wrap_socket(sock, server_hostname=server_name, session=session)
        except OSError:
            sock.close()
            raise

    def home(self, client_id, pods=None):
        """Waits until one pod has this client; returns the pod and the fields of its log line."""

        def look():
            found = [(pod, known) for pod in pods or self.pods if (known := pod.clients().get(client_id))]
            return found[0] if len(found) == 1 else None

        return until(look, f"{client_id} is on no pod, or on several")
