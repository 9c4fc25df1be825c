"""The gateway with the real Envoy: what clients see of it, and what the pods behind it know of the clients."""

import collections
import hashlib
import json
import os
import queue
import re
import shutil
import signal
import socket
import ssl
import subprocess
import warnings

import paho.mqtt.client as paho

from checks import HOST, SECONDS_MAX, equal, run
from stage import GATEWAY, Client, Gateway, Pod, Stage, until

SUITE = "gateway"
ROTATE = GATEWAY.parent.parent / "terraform/modules/gateway/files/gateway-log.sh"
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
CONNECT = b"\x10\x11\0\4MQTT\4\2\0\0\0\5proxy"


def proxy_header(server_name):
    """As the gateway writes it, of a client at 192.0.2.9."""
    body = bytes([192, 0, 2, 9, 10, 0, 0, 1, 0x30, 0x39, 0x22, 0xB3])
    body += b"\2" + len(server_name).to_bytes(2, "big") + server_name
    return SIGNATURE + b"\x21\x11" + len(body).to_bytes(2, "big") + body


def fingerprint(stage):
    pem = (stage.certificates / "client.crt").read_text()
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def websocket_request(headers=""):
    return (
        f"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Sec-WebSocket-Protocol: mqtt\r\n{headers}\r\n"
    ).encode()


def frame(payload):
    """A masked binary frame whose mask is 0."""
    return bytes([0x82, 0x80 | len(payload), 0, 0, 0, 0]) + payload


def to_close(sock):
    """Returns all bytes that arrive before the other side closes."""
    data = b""
    sock.settimeout(SECONDS_MAX)
    try:
        while more := sock.recv(4096):
            data += more
    except ConnectionResetError:
        pass
    return data


class Paho:
    """A client that comes back by itself."""

    def __init__(self, stage, port, client_id, transport="tcp", version=paho.MQTTv5):
        self.connects, self.messages, self.done = queue.Queue(), queue.Queue(), queue.Queue()
        self.paho = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=version, transport=transport)
        self.paho.tls_set_context(stage.context())
        self.paho.reconnect_delay_set(1, 1)
        self.paho.on_connect = lambda _c, _u, _f, reason, _p: self.connects.put(reason)
        self.paho.on_message = lambda _c, _u, message: self.messages.put((message.topic, message.payload))
        self.paho.on_subscribe = lambda *_: self.done.put("subscribed")
        self.paho.on_publish = lambda *_: self.done.put("published")
        self.paho.connect("localhost", port)
        self.paho.loop_start()
        self.connected()

    def connected(self):
        equal(self.connects.get(timeout=SECONDS_MAX).is_failure, False, "CONNACK")

    def subscribe(self, topic):
        self.paho.subscribe(topic, 1)
        self.done.get(timeout=SECONDS_MAX)

    def publish(self, topic, payload):
        self.paho.publish(topic, payload, 1)
        self.done.get(timeout=SECONDS_MAX)

    def close(self):
        self.paho.disconnect()
        self.paho.loop_stop()


def name_and_address(stage):
    client = Client(stage, "Acme.Local.Test")
    _, known = stage.home(client.id)
    equal(known["server_name"], "acme.local.test", "server name")
    address = "%s:%d" % client.tls.getsockname()
    equal(known["address"], address, "address")
    equal("certificate" in known, False, "certificate")
    equal(client.tls.version(), "TLSv1.3", "TLS")
    equal(client.ping(), True, "ping")
    client.close()


def no_server_name(stage):
    context = stage.context()
    context.check_hostname = False
    client = Client(stage, None, "nameless", context=context)
    equal("server_name" in stage.home(client.id)[1], False, "server name")
    client.close()


def own_broker_only(stage):
    """The same client id and topic in three brokers, on one pod or several: nobody meets anybody else."""
    context = stage.context()
    names = ["acme.local.test", "other.local.test", "large.local.test"]
    clients = [Client(stage, name, "same", context=context) for name in names]
    for client in clients:
        client.tls.sendall(b"\x82\6\0\1\0\1#\0")
        equal(client.read(5), b"\x90\3\0\1\0", "SUBACK")
    for name, client in zip(names, clients):
        payload = name.encode()
        client.tls.sendall(bytes([0x30, 3 + len(payload)]) + b"\0\1t" + payload)
    for name, client in zip(names, clients):
        packet = bytes([0x30, 3 + len(name)]) + b"\0\1t" + name.encode()
        equal(client.read(len(packet)), packet, "message")
        equal(client.ping(), True, "nothing else")
        client.close()


def unknown_broker(stage):
    try:
        Client(stage, "nobody.local.test", "stranger")
    except AssertionError as refused:
        equal(str(refused), f"CONNACK: {bytes([0x20, 2, 0, 5])!r}", "answer")
    else:
        equal("let in", "refused", "a client of no broker")


def certificate(stage, port=None, **tls):
    client = Client(stage, "acme.local.test", port=port, certificate=True, **tls)
    _, known = stage.home(client.id)
    size = len(ssl.PEM_cert_to_DER_cert((stage.certificates / "client.crt").read_text()))
    for field, said in [("certificate", fingerprint(stage)), ("subject", "CN=device-1"), ("certificate_bytes", size)]:
        equal(known[field], said, field)
    client.close()
    return client


def resumed(stage, version):
    """A session is resumed, and the certificate is still known, though the client did not show it again."""
    context = stage.context(certificate=True, version=version)
    first = Client(stage, "acme.local.test", context=context)
    first.ping()
    second = Client(stage, "acme.local.test", context=context, session=first.tls.session)
    equal((first.tls.session_reused, second.tls.session_reused), (False, True), "resumed")
    equal(stage.home(second.id)[1]["certificate"], fingerprint(stage), "certificate")
    first.close()
    second.close()


def old_tls(stage):
    context = stage.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    try:
        stage.tls("acme.local.test", stage.gateway.mqtts, context=context)
    except ssl.SSLError as error:
        equal(error.reason, "TLSV1_ALERT_PROTOCOL_VERSION", "refusal")
    else:
        raise AssertionError("TLS 1.1 was taken")


def names_of_alpn(stage):
    for port, offer, wanted in [
        (stage.gateway.mqtts, ["mqtt"], "mqtt"),
        (stage.gateway.mqtts, ["x-amzn-mqtt-ca"], "x-amzn-mqtt-ca"),
        (stage.gateway.mqtts, [], None),
        (stage.gateway.wss, ["http/1.1"], "http/1.1"),
        (stage.gateway.wss, ["mqtt"], "mqtt"),
    ]:
        sock = stage.tls("acme.local.test", port, alpn=offer)
        equal(sock.selected_alpn_protocol(), wanted, f"ALPN {offer}")
        sock.close()


def websocket(stage):
    """paho over WSS, and a message to a client over TLS. Both are of one server name, so on one pod."""
    stage.gateway.has_clients(0)
    there = Paho(stage, stage.gateway.mqtts, "over-tls")
    here = Paho(stage, stage.gateway.wss, "over-wss", transport="websockets")
    equal(stage.home("over-tls")[0], stage.home("over-wss")[0], "pod")
    known = stage.home("over-wss")[1]
    equal(known["server_name"], "localhost", "server name")
    equal("certificate" in known, False, "certificate")
    there.subscribe("a/+")
    here.subscribe("b/#")
    here.publish("a/1", b"from a browser")
    there.publish("b/1", b"x" * 100_000)
    equal(there.messages.get(timeout=SECONDS_MAX), ("a/1", b"from a browser"), "message")
    equal(here.messages.get(timeout=SECONDS_MAX), ("b/1", b"x" * 100_000), "message")
    here.close()
    there.close()


def forged_header_within_tls(stage):
    """The gateway's own header comes first, so a client's is no MQTT."""
    for port in (stage.gateway.mqtts, stage.gateway.wss):
        sock = stage.tls("acme.local.test", port)
        sock.sendall(proxy_header(b"other.local.test") + CONNECT)
        equal(to_close(sock), b"", "answer")
    equal(any("proxy" in pod.clients() for pod in stage.pods), False, "let in")


def forged_websocket_headers(stage):
    """Names that some gateways use for this: nobody looks at them."""
    headers = "".join(
        f"{name}: {value}\r\n"
        for name, value in [
            ("x-mqtt-sni", "other.local.test"),
            ("x-mqtt-client-fp", "00" * 32),
            ("x-mqtt-client-subject", "CN=admin"),
            ("x-forwarded-for", "192.0.2.9"),
            ("x-forwarded-client-cert", 'Hash=00;Subject="CN=admin"'),
        ]
    )
    pod = stage.pods[0]
    for port, client_id in [(stage.gateway.wss, b"forge"), (pod.ws, b"plain")]:
        through = port == stage.gateway.wss
        sock = stage.tls("acme.local.test", port) if through else socket.create_connection((HOST, port))
        sock.sendall(websocket_request(headers) + frame(CONNECT[:-5] + client_id))
        _, known = stage.home(client_id.decode())
        equal(known.get("server_name"), "acme.local.test" if through else None, "server name")
        for lie in ["192.0.2.9", "admin", "other"]:
            equal(lie in json.dumps(known), False, known)
        sock.close()


def forged_header_past_the_gateway(stage):
    """From an address that is not the gateway's, and on the ports that are not for the gateway."""
    pod = stage.pods[0]
    with socket.socket() as sock:
        sock.bind(("127.0.0.2", 0))
        sock.connect((HOST, pod.gateway))
        sock.sendall(proxy_header(b"other.local.test") + CONNECT)
        equal(to_close(sock), b"", "answer to a stranger")
    with socket.create_connection((HOST, pod.mqtt)) as sock:
        sock.sendall(proxy_header(b"other.local.test") + CONNECT)
        equal(to_close(sock), b"", "answer on the plain port")
    equal("proxy" in pod.clients(), False, "let in")


def same_name_same_pod(stage):
    """Two clients at a time: too few for a pod to have more than its share."""
    context, pods = stage.context(), set()
    for number in range(12):
        stage.gateway.has_clients(0)
        clients = [Client(stage, f"broker-{number}.local.test", context=context) for _ in range(2)]
        first, second = [stage.home(client.id)[0] for client in clients]
        equal(first, second, "pod")
        pods.add(first)
        for client in clients:
            client.close()
    equal(len(pods) > 1, True, "more than one pod")


def large_broker_spreads(stage):
    """No pod has more than 125 % of the average (and one, for rounding)."""
    stage.gateway.has_clients(0)
    context = stage.context()
    clients = [Client(stage, "large.local.test", context=context) for _ in range(60)]
    load = collections.Counter(stage.home(client.id)[0].number for client in clients)
    equal((len(load), max(load.values()) <= 27), (3, True), f"load {load}")
    for client in clients:
        client.close()


def pod_dies(stage):
    """A client's pod is killed: it comes back at once, to another pod, and to its own one when that is back."""
    client = Client(stage, "victim.local.test")
    pod, _ = stage.home(client.id)
    others = [other for other in stage.pods if other is not pod]
    pod.kill()
    equal(to_close(client.tls), b"", "the end of the connection")
    # Nobody has asked the pod for its health meanwhile, most likely: the first try goes to it.
    for _ in range(5):
        moved = Client(stage, "victim.local.test")
        stage.home(moved.id, others)
        moved.close()
    equal(stage.gateway.stat("cluster.edge.outlier_detection.ejections_enforced_total"), 0, "ejections that are not the health check's")
    stage.pods[pod.number] = again = stage.keep(pod.again())

    def is_back():
        back = Client(stage, "victim.local.test")
        back.close()
        return until(lambda: [p for p in stage.pods if back.id in p.clients()], "on no pod")[0] is again

    until(is_back, "it does not come back to its pod")


def pods_change(stage):
    """A pod that is taken away gets no new clients and keeps those that it has; one that is added gets some."""
    context = stage.context()
    names = [f"moving-{number}.local.test" for number in range(40)]
    before_it = [Client(stage, name, context=context) for name in names]
    fourth = stage.keep(Pod(stage.folder, 3))
    gone, pods = stage.pods[0], stage.pods[1:] + [fourth]
    stage.gateway.replace_pods([*stage.pods, fourth])
    stage.gateway.has_pods(4)
    stage.gateway.replace_pods(pods)
    stage.gateway.has_pods(3)
    after = [Client(stage, name, context=context) for name in names]
    homes = collections.Counter(stage.home(client.id, pods + [gone])[0].number for client in after)
    equal((gone.number in homes, fourth.number in homes), (False, True), f"homes {homes}")
    equal([client.is_open() for client in before_it], [True] * 40, "connections from before")
    stage.gateway.replace_pods([*stage.pods, fourth])
    stage.gateway.has_pods(4)
    stage.gateway.replace_pods(stage.pods)
    stage.gateway.has_pods(3)
    for client in before_it + after:
        client.close()
    fourth.kill()


def new_certificate(stage):
    """Files that are renamed onto the old ones are used at once; connections stay."""
    client = Client(stage, "acme.local.test")
    folder = stage.folder / "renewed"
    stage.make_certificates(folder)
    for name in ["tls.crt", "tls.key"]:
        shutil.move(folder / name, stage.certificates / f"{name}.new")
        (stage.certificates / f"{name}.new").rename(stage.certificates / name)
    shutil.copy(folder / "ca.crt", stage.certificates / "ca.crt")

    def is_used():
        try:
            Client(stage, "acme.local.test").close()
            return True
        except ssl.SSLCertVerificationError:
            return False

    until(is_used, "the old certificate is still used")
    equal(client.ping(), True, "ping")
    client.close()


def envoy_restarts(stage):
    """Envoy is killed and started again: clients come back by themselves."""
    clients = [
        Paho(stage, stage.gateway.mqtts, "restart-tls"),
        Paho(stage, stage.gateway.wss, "restart-wss", transport="websockets"),
    ]
    stage.gateway.kill()
    stage.gateway.start()
    for client in clients:
        client.connected()
        client.subscribe("back")
        client.publish("back", b"again")
        equal(client.messages.get(timeout=SECONDS_MAX), ("back", b"again"), "message")
        client.close()


def second_gateway(stage):
    """A second gateway, for two clients at once, which is stopped while they are there."""
    settings = {"CONNECTIONS_MAX": 2, "DRAIN_S": 20, "WSS_CLIENT_CERTIFICATES": "yes"}
    gateway = stage.keep(Gateway(stage.folder / "second", stage.certificates, stage.pods[::-1], **settings))
    certificate(stage, gateway.wss)
    gateway.has_clients(0)
    for name in [f"both-{number}.local.test" for number in range(8)]:
        clients = [Client(stage, name, port=port) for port in (stage.gateway.mqtts, gateway.mqtts)]
        equal(stage.home(clients[0].id)[0], stage.home(clients[1].id)[0], "pod")
        for client in clients:
            client.close()
        stage.gateway.has_clients(0)
        gateway.has_clients(0)
    clients = [Client(stage, "acme.local.test", port=gateway.mqtts) for _ in range(2)]
    try:
        Client(stage, "acme.local.test", port=gateway.mqtts)
        raise AssertionError("a third client was let in")
    except OSError:
        pass
    clients.pop().close()
    gateway.process.send_signal(signal.SIGTERM)
    until(lambda: gateway.status("/ready")[0] == 503, "it says that it is ready")

    def is_closed():
        with socket.socket() as sock:
            return sock.connect_ex((HOST, gateway.mqtts)) != 0

    until(is_closed, "it still listens")
    equal(clients[0].ping(), True, "ping while it drains")
    equal(gateway.process.poll(), None, "it runs")
    clients[0].close()
    equal(gateway.process.wait(SECONDS_MAX), 0, "exit code")
    equal("1 clients have 21 s to leave" in gateway.text(), True, gateway.text())


def access_log(stage):
    """One line of JSON for each connection that ended."""
    client = Client(stage, "logged.local.test", certificate=True)
    pod, _ = stage.home(client.id)
    source = "%s:%d" % client.tls.getsockname()
    client.close()
    stage.gateway.has_clients(0)
    # Envoy writes the rest of its access log when it ends.
    equal(stage.gateway.stop(), 0, "exit code")
    lines = [json.loads(line) for line in (stage.gateway.folder / "access.log").read_text().splitlines()]
    line = next(line for line in lines if line["server_name"] == "logged.local.test")
    wanted = {
        "listener": "mqtts",
        "client": source,
        "tls": "TLSv1.3",
        "certificate_sha256": fingerprint(stage),
        "pod": f"{HOST}:{pod.gateway}",
        "flags": "-",
    }
    equal({name: line[name] for name in wanted}, wanted, "line")
    equal(any(line["tls_failure"] for line in lines), True, "the handshakes that failed")


def log_names(path):
    return [json.loads(line)["server_name"] for line in path.read_text().splitlines()]


def rotated_log(stage):
    """As a timer of Terraform's machines does it: a line for each connection would fill the disk."""
    log = stage.gateway.folder / "access.log"
    stage.gateway.start()
    Client(stage, "acme.local.test").close()
    stage.gateway.has_clients(0)
    rotate = lambda size: subprocess.run(
        [ROTATE, log, str(size), "2"], env={**os.environ, "GATEWAY_ADMIN_PORT": stage.gateway.settings["ADMIN_PORT"]}, check=True
    )
    rotate(1 << 30)
    equal(log.with_suffix(".log.1").exists(), False, "a small log continues")
    for _ in range(3):
        rotate(0)
        until(log.exists, "Envoy has not opened a new log")
    Client(stage, "other.local.test").close()
    stage.gateway.has_clients(0)
    equal(stage.gateway.stop(), 0, "exit code")
    equal("other.local.test" in log_names(log), True, "the line of a connection after the rotation")
    equal(sorted(path.name for path in log.parent.glob("access.log*")), ["access.log", "access.log.1", "access.log.2"], "files")


def journal(stage):
    """systemd gives a socket as standard output, which cannot be opened by its path."""
    ours, its = socket.socketpair()
    folder = stage.folder / "journal"
    with its:
        gateway = Gateway(folder, stage.certificates, stage.pods, stdout=its, ACCESS_LOG="/dev/stdout")
        stage.keep(gateway)
    Client(stage, "logged.local.test", port=gateway.mqtts).close()
    gateway.has_clients(0)
    equal(gateway.stop(), 0, "exit code")
    lines = to_close(ours).decode().splitlines()
    equal("logged.local.test" in [json.loads(line)["server_name"] for line in lines], True, lines)


def heap_of(gateway):
    return int(re.search(r"max_heap_size_bytes: (\d+)", (gateway.folder / "envoy.yaml").read_text())[1])


def heap(stage):
    """Envoy refuses new clients near the end of its heap. It must do so before the kernel kills it."""
    gateway = stage.keep(Gateway(stage.folder / "heap", stage.certificates, stage.pods, HEAP_BYTES_MAX=1 << 60))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = heap_of(gateway)
    equal(memory * 0.7 < found < memory * 0.8, True, f"{found} of {memory} bytes")
    equal(heap_of(stage.gateway), min(4 << 30, found), "heap with the default")
    equal("three quarters of the memory" in gateway.text(), True, gateway.text())
    equal(gateway.stop(), 0, "exit code")


def hung_pod(stage):
    """A gateway that no client has used yet finds out that a pod hangs."""
    pod = stage.keep(Pod(stage.folder, 4))
    gateway = stage.keep(Gateway(stage.folder / "unused", stage.certificates, [*stage.pods, pod]))
    pod.process.send_signal(signal.SIGSTOP)
    until(lambda: gateway.stat("cluster.edge.membership_healthy") == 3, "the pod counts as healthy")
    pod.kill()
    equal(gateway.stop(), 0, "exit code")


def wrong_settings(stage):
    for flags, settings, said in [
        (["pods", "edge-1:1884"], {}, '"edge-1:1884" is no pod: IP:PORT/HEALTH_PORT is allowed'),
        (["run"], {"CERTIFICATES": "/nowhere"}, "GATEWAY_CERTIFICATES=/nowhere has no tls.crt and tls.key"),
        (["run"], {"WSS_CLIENT_CERTIFICATES": "maybe"}, "GATEWAY_WSS_CLIENT_CERTIFICATES=maybe: yes or no is allowed"),
        (["stop"], {}, "gateway.sh run, or gateway.sh pods"),
    ]:
        names = stage.gateway.settings | {"DIR": str(stage.folder / "wrong")} | settings
        environment = {**os.environ, **{f"GATEWAY_{name}": value for name, value in names.items()}}
        ended = subprocess.run([GATEWAY, *flags], env=environment, capture_output=True, text=True)
        equal((ended.returncode, said in ended.stderr), (2, True), f"{flags}: {ended.stderr}")


def no_errors(stage):
    for process in [*stage.pods, stage.gateway]:
        words = ["panicked", '"level":"ERROR"', "[error]", "[critical]", "deprecated"]
        wrong = [line for line in process.text().splitlines() if any(word in line for word in words)]
        equal(wrong, [], f"errors in {process.log.name}")


def status(stage):
    equal(stage.gateway.status("/ready")[0], 200, "/ready")
    equal("envoy_cluster_upstream_cx_active" in stage.gateway.status("/stats/prometheus")[1], True, "metrics")
    for path in ["/quitquitquit", "/config_dump", "/"]:
        equal(stage.gateway.status(path)[0], 404, path)


with Stage() as stage:
    run(
        SUITE,
        [
            ("a client is known by server name and address", lambda: name_and_address(stage)),
            ("a client without a server name has none", lambda: no_server_name(stage)),
            ("a server name reaches its broker, and only that", lambda: own_broker_only(stage)),
            ("a server name without a broker is refused", lambda: unknown_broker(stage)),
            ("a client certificate arrives, whole (TLS 1.3)", lambda: certificate(stage)),
            ("a client certificate arrives, whole (TLS 1.2)", lambda: certificate(stage, version=ssl.TLSVersion.TLSv1_2)),
            ("a session is resumed with its certificate (TLS 1.3)", lambda: resumed(stage, ssl.TLSVersion.TLSv1_3)),
            ("a session is resumed with its certificate (TLS 1.2)", lambda: resumed(stage, ssl.TLSVersion.TLSv1_2)),
            ("TLS below 1.2 is refused", lambda: old_tls(stage)),
            ("ALPN names", lambda: names_of_alpn(stage)),
            ("MQTT on the WSS port, by ALPN, with a certificate", lambda: certificate(stage, stage.gateway.wss, alpn=["mqtt"])),
            ("paho over WSS meets paho over TLS", lambda: websocket(stage)),
            ("a PROXY header within TLS does not help", lambda: forged_header_within_tls(stage)),
            ("headers of a WebSocket request do not help", lambda: forged_websocket_headers(stage)),
            ("a PROXY header past the gateway does not help", lambda: forged_header_past_the_gateway(stage)),
            ("clients of one name are on one pod", lambda: same_name_same_pod(stage)),
            ("a large broker spreads", lambda: large_broker_spreads(stage)),
            ("clients of a pod that dies go to another", lambda: pod_dies(stage)),
            ("a pod that hangs is found out before the first client", lambda: hung_pod(stage)),
            ("pods are taken away and added without a restart", lambda: pods_change(stage)),
            ("a new certificate is used without a restart", lambda: new_certificate(stage)),
            ("clients come back after Envoy was killed", lambda: envoy_restarts(stage)),
            ("a second gateway chooses the same pods, keeps its limit, and drains", lambda: second_gateway(stage)),
            ("the status port shows what it should and no more", lambda: status(stage)),
            ("access log", lambda: access_log(stage)),
            ("a large access log gives way to a new one", lambda: rotated_log(stage)),
            ("the access log reaches the journal", lambda: journal(stage)),
            ("the heap fits into the memory", lambda: heap(stage)),
            ("settings that are not allowed", lambda: wrong_settings(stage)),
            ("no errors in the logs", lambda: no_errors(stage)),
        ],
    )
