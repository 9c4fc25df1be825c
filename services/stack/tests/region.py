"""The stack as `make stack` runs it, on ports of its own, and clients that reach its brokers through Envoy or on a pod."""

import queue
import random
import signal
import socket
import ssl
import sys
import time
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "gateway/tests"))
from checks import HOST, equal  # noqa: E402
from stage import Process, get  # noqa: E402

SCRIPT = ROOT / "services/stack/stack.sh"
# On a busy machine each step may take this long. stack.sh starts its parts one after another, so the whole stack takes longer.
SECONDS_MAX = 60
START_SECONDS_MAX = 150
PODS = [1, 2, 3]
# First ports of stack.sh, to all of which it adds one number; PODS have consecutive ports.
PORTS = {"mqtt": 1883, "http": 8080, "admin": 8090, "ws": 8083, "from_gateway": 1893, "nats": 4222, "routes": 6222, "monitor": 8222}
PORTS_OF_ONE = {"mqtts": 8883, "wss": 8443, "status": 9902, "admin": 9901, "foundationdb": 4550}


def until(condition, what, seconds_max=SECONDS_MAX):
    """Waits for a condition, and gives what it gave."""
    end = time.monotonic() + seconds_max
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(what() if callable(what) else what)
        time.sleep(0.05)
    return found


def is_listening(port):
    with socket.socket() as sock:
        return sock.connect_ex((HOST, port)) == 0


def free_ports():
    """A number for STACK_PORTS_UP: all ports of the stack are free when it is added, and below those that the system gives to clients."""
    while True:
        up = random.randrange(10_000, 22_500)
        ports = [first + more for first in PORTS.values() for more in range(3)] + list(PORTS_OF_ONE.values())
        if not any(is_listening(up + port) for port in ports):
            return up


def is_running(pid):
    """A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Stack(Process):
    def __init__(self, folder, log="stack.log", **settings):
        self.folder = folder
        self.up = free_ports()
        self.settings = {"STACK_DIR": str(folder / "stack"), "STACK_CERTIFICATES": str(folder / "certs")}
        # A killed part is started again after a second, and old data is removed.
        self.settings |= {"STACK_PORTS_UP": str(self.up), "STACK_AGAIN_S": "1", "STACK_KEEP": ""} | settings
        super().__init__(folder / log, [SCRIPT, "run"], **self.settings)

    def port(self, what, number=1):
        return self.up + (PORTS_OF_ONE | PORTS)[what] + number - 1

    def says(self, words, seconds_max=SECONDS_MAX):
        def look():
            if self.process.poll() is not None and words not in self.text():
                raise AssertionError(f"it ended with {self.process.returncode}: {self.text()[-2000:]}")
            return words in self.text()

        until(look, lambda: f"it does not say \"{words}\": {self.text()[-500:]}", seconds_max)

    def is_up(self):
        self.says("all is up", START_SECONDS_MAX)
        return self

    def terminate(self):
        """It stops its parts itself."""
        if self.process.poll() is None:
            self.ends(signal.SIGTERM)

    def ends(self, with_signal=None):
        """Its exit code."""
        if with_signal:
            self.process.send_signal(with_signal)
        until(lambda: self.process.poll() is not None, lambda: f"it does not end: {self.text()[-500:]}")
        return self.process.returncode

    def pid(self, part):
        return int((self.folder / "stack/pids" / part).read_text())

    def is_stand_in(self):
        """Whether its pods are one process over the embedded store."""
        return (self.folder / "stack/pids/pods").exists()

    def pid_of_pod(self, number):
        return self.pid("pods" if self.is_stand_in() else f"pod-{number}")

    def pids(self):
        """Process ids of all parts and of the processes that they started."""
        parts = {int(file.read_text()) for file in (self.folder / "stack/pids").iterdir() if file.name != "stack"}
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                group = int((folder / "stat").read_text().rpartition(")")[2].split()[2])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if group in parts:
                found.add(int(folder.name))
        return found

    def envoy(self):
        """Envoy is what gateway.sh started, and not the short-lived ones."""
        [envoy] = [pid for pid in self.pids() if Path(f"/proc/{pid}/comm").read_text().startswith("envoy")]
        return envoy

    def health(self, number):
        try:
            return get(f"http://{HOST}:{self.port('http', number)}/healthz")[1]
        except OSError as error:
            return str(error)

    def hears_others(self):
        """Waits until every pod reports the two others."""
        healths = lambda: [self.health(number) for number in PODS]
        until(lambda: all("with 2 other pods" in health for health in healths()), lambda: f"pods: {healths()}")

    def clients(self, broker):
        """How many of a broker's clients each pod has."""
        line = f'millrace_clients_connected{{broker="{broker}"}} '
        pages = [get(f"http://{HOST}:{self.port('admin', number)}/metrics")[1] for number in PODS]
        return [int(page.partition(line)[2].split("\n")[0] or 0) for page in pages]


def proxy_header(server_name):
    """As the gateway writes it, of a client at 192.0.2.9."""
    body = bytes([192, 0, 2, 9, 10, 0, 0, 1, 0x30, 0x39, 0x22, 0xB3])
    body += b"\2" + len(server_name).to_bytes(2, "big") + server_name
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + len(body).to_bytes(2, "big") + body


class Client(paho.Client):
    """A client of a broker, through the gateway, or (`pod`) where the gateway would connect to that pod. It comes back by itself."""

    def __init__(self, stack, client_id, broker="acme", pod=None, wss=False, lasts=False, will=None):
        version, transport = paho.MQTTv5, "websockets" if wss else "tcp"
        super().__init__(paho.CallbackAPIVersion.VERSION2, client_id, protocol=version, transport=transport)
        self.pod, self.at = pod, stack.port("wss" if wss else "mqtts")
        if pod:
            self.at = stack.port("from_gateway", pod)
        else:
            self.tls_set_context(ssl.create_default_context(cafile=stack.folder / "certs/ca.crt"))
        self.connects, self.messages, self.done = queue.Queue(), queue.Queue(), queue.Queue()
        self.reconnect_delay_set(1, 1)
        self.on_connect = lambda _c, _u, flags, reason, _p: self.connects.put((reason.is_failure, flags.session_present))
        self.on_message = lambda _c, _u, message: self.messages.put(message.payload.decode())
        self.on_subscribe = lambda *_: self.done.put("subscribed")
        self.on_publish = lambda *_: self.done.put("published")
        if will:
            self.will_set("wills", will, 1)
        properties = Properties(PacketTypes.CONNECT)
        if lasts:
            properties.SessionExpiryInterval = 3600
        name = f"{broker}.local.test"
        self.connect(name, self.at, clean_start=not lasts, properties=properties)
        self.loop_start()
        self.has_session = self.connected()

    def _create_socket_connection(self):
        """The server name needs no address of its own."""
        sock = socket.create_connection((HOST, self.at), timeout=SECONDS_MAX)
        if self.pod:
            sock.sendall(proxy_header(self._host.encode()))
        return sock

    def connected(self):
        """Waits for the CONNACK, and says whether there was a session."""
        failed, has_session = self.connects.get(timeout=SECONDS_MAX)
        equal(failed, False, "CONNACK")
        return has_session

    def wants(self, topic):
        self.subscribe(topic, 1)
        equal(self.done.get(timeout=SECONDS_MAX), "subscribed")
        return self

    def says(self, topic, *payloads, retain=False):
        for payload in payloads:
            self.publish(topic, payload, 1, retain)
            equal(self.done.get(timeout=SECONDS_MAX), "published")

    def gets(self, *payloads):
        """Takes these messages in this order, and skips repetitions of earlier ones: QoS 1 may deliver twice."""
        for payload in payloads:
            while (got := self.messages.get(timeout=SECONDS_MAX)) != payload:
                equal(payloads.index(got) < payloads.index(payload), True, f"{got} instead of {payload}")

    def gets_only(self, *payloads):
        equal([self.messages.get(timeout=SECONDS_MAX) for _ in payloads], list(payloads), "messages")

    def leaves(self):
        self.disconnect()
        self.loop_stop()
