"""mqtts and wss of the process alone: mosquitto's clients and paho-mqtt, certificates and files that are replaced under load.

run.sh sets MILLRACE (the program), `here` (this folder) and `cache` (the compiled Go tests).
"""

import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import paho.mqtt.client as paho

from checks import HOST, PAYLOADS, before, deadline, equal, run

MILLRACE = os.environ["MILLRACE"]
WAYS = [(version, transport) for version in (paho.MQTTv311, paho.MQTTv5) for transport in ("tcp", "websockets")]
CLIENTS = 20
HERE, CACHE = Path(os.environ["here"]), Path(os.environ["cache"])


def until(condition, what):
    end = deadline()
    while not condition():
        before(end, what() if callable(what) else what)
        time.sleep(0.02)


def certificates(folder, *flags):
    subprocess.run([MILLRACE, "dev-certs", "--out", folder, *flags], check=True, capture_output=True)


class Server:
    """A broker that speaks TLS, and what it needs in a folder."""

    def __init__(self, folder, *flags):
        self.folder, self.log = Path(folder), Path(folder) / "log"
        certificates(self.folder / "certs")
        off = ["--mqtt-listen=off", "--ws-listen=off", f"--data-dir={self.folder / 'data'}"]
        at = [f"--{name}-listen={HOST}:0" for name in ("http", "mqtts", "wss")]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [MILLRACE, "serve", f"--tls-dir={self.folder / 'certs'}", *off, *at, *flags], stderr=log
            )
        until(lambda: "HTTP is open" in self.text() or self.process.poll() is not None, self.text)
        self.mqtts, self.wss = (
            int(re.search(rf"{name}://{HOST}:(\d+)", self.text())[1]) for name in ("mqtts", "wss")
        )

    def text(self):
        return self.log.read_text()

    def said(self, words):
        until(lambda: words in self.text(), lambda: f"it does not say \"{words}\": {self.text()[-500:]}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        equal(self.process.wait(20), 0, "exit code")

    @property
    def authority(self):
        return str(self.folder / "certs/ca.crt")

    def certificate(self):
        """The certificate that a client is shown now."""
        return ssl.get_server_certificate((HOST, self.mqtts))


class Client:
    def __init__(self, server, way, client_id, user=None):
        version, transport = way
        self.got, self.lost, self.up = [], [], threading.Event()
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=version,
            transport=transport,
            reconnect_on_failure=False,
        )
        self.paho.tls_set(server.authority)
        if user:
            self.paho.username_pw_set(*user)
        if transport == "websockets":
            self.paho.ws_set_options("/mqtt")
        self.reason = None
        self.paho.on_connect = self._connected
        self.paho.on_disconnect = lambda _c, _u, _f, reason, _p: self.lost.append(reason)
        self.paho.on_message = lambda _c, _u, message: self.got.append(bytes(message.payload))
        self.paho.connect("localhost", server.mqtts if transport == "tcp" else server.wss, keepalive=10)
        self.paho.loop_start()
        until(lambda: self.reason is not None, "no CONNACK")

    def _connected(self, _client, _user, _flags, reason, _properties):
        self.reason = reason

    def subscribes(self, filter):
        done = threading.Event()
        self.paho.on_subscribe = lambda *_: done.set()
        self.paho.subscribe(filter, 2)
        equal(done.wait(20), True, "SUBACK")
        return self

    def publishes(self, topic, payload, qos):
        self.paho.publish(topic, payload, qos).wait_for_publish(20)

    def leaves(self):
        self.paho.disconnect()
        self.paho.loop_stop()


def mosquitto(server):
    """mosquitto_sub and mosquitto_pub."""
    for version in ("311", "5"):
        options = ["-h", "localhost", "-p", str(server.mqtts), "--cafile", server.authority, "-V", version, "-t", f"m/{version}"]
        subprocess.run(["mosquitto_pub", *options, "-m", "hello", "-q", "1", "-r"], check=True, timeout=20)
        got = subprocess.run(["mosquitto_sub", *options, "-C", "1"], check=True, timeout=20, capture_output=True)
        equal(got.stdout, b"hello\n", f"message of version {version}")
    wrong = ["-h", "localhost", "-p", str(server.mqtts), "--cafile", str(server.folder / "certs/client-ca.crt")]
    refused = subprocess.run(["mosquitto_pub", *wrong, "-t", "m", "-m", "x"], timeout=20, capture_output=True)
    equal(refused.returncode == 0, False, "a server that the client does not trust")


def messages(server):
    """Every payload, every QoS, over mqtts and wss."""
    for number, way in enumerate(WAYS):
        client = Client(server, way, f"paho-{number}").subscribes(f"paho/{number}")
        for qos in (0, 1, 2):
            for payload in PAYLOADS:
                client.publishes(f"paho/{number}", payload, qos)
        until(lambda: len(client.got) == 3 * len(PAYLOADS), lambda: f"{len(client.got)} messages")
        equal(sorted(client.got), sorted(3 * PAYLOADS), "payloads")
        client.leaves()


def resumption(server):
    """TLS 1.3 tickets of a connection are good for the next one."""
    context = ssl.create_default_context(cafile=server.authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    session, reused = None, []
    connect = bytes([0x10, 0x0D, 0, 4]) + b"MQTT" + bytes([4, 2, 0, 10, 0, 1]) + b"r"
    for _ in range(2):
        with socket.create_connection((HOST, server.mqtts)) as tcp:
            with context.wrap_socket(tcp, server_hostname="localhost", session=session) as tls:
                tls.sendall(connect)
                equal(tls.recv(4)[0], 0x20, "CONNACK")
                session, _ = tls.session, reused.append(tls.session_reused)
    equal(reused, [False, True], "sessions that were resumed")


def reload(server):
    """New certificates under load: nobody is disconnected, nothing is lost, and a bad file changes nothing."""
    clients = [Client(server, WAYS[number % 4], f"load-{number}").subscribes(f"load/{number}") for number in range(CLIENTS)]
    stopped, sent = threading.Event(), [0] * CLIENTS

    def publish(number):
        while not stopped.is_set():
            clients[number].publishes(f"load/{number}", str(sent[number]).encode(), 1)
            sent[number] += 1

    threads = [threading.Thread(target=publish, args=[number]) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    seen = {server.certificate()}
    for by_signal in (False, True, False):
        certificates(server.folder / "certs", "--force")
        if by_signal:
            server.process.send_signal(signal.SIGHUP)
        until(lambda: server.certificate() not in seen, "the new certificate is not used")
        seen.add(server.certificate())
    used = server.certificate()
    (server.folder / "certs/tls.key").write_text("no key")
    server.process.send_signal(signal.SIGHUP)
    server.said("the new certificate and key is refused, and the old one stays in force")
    equal(server.certificate(), used, "certificate after a bad file")
    certificates(server.folder / "certs", "--force")
    stopped.set()
    for thread in threads:
        thread.join()
    for number, client in enumerate(clients):
        equal(client.lost, [], f"disconnects of client {number}")
        expected = [str(message).encode() for message in range(sent[number])]
        until(lambda: len(client.got) >= len(expected), lambda: f"{len(client.got)} of {len(expected)} messages")
        equal(client.got, expected, f"messages of client {number}")
        client.leaves()


def program(server, *command):
    """A test in another language, against the same broker."""
    ports = {"OPEN_MQTTS": str(server.mqtts), "OPEN_WSS": str(server.wss), "OPEN_CERTS": str(server.folder / "certs")}
    ended = subprocess.run(command, env=os.environ | ports, timeout=60, capture_output=True, text=True)
    equal(ended.returncode, 0, (ended.stdout + ended.stderr)[-1000:])
    equal("skip" in ended.stdout.lower().replace("skipped 0", ""), False, ended.stdout[-500:])


def passwd(file, user, password):
    subprocess.run([MILLRACE, "passwd", file, user, "--stdin"], input=password.encode(), check=True, capture_output=True)


def users(folder):
    """Passwords and rules that change while clients are connected."""
    file, rules = Path(folder) / "users", Path(folder) / "rules"
    passwd(file, "ann", "one")
    passwd(file, "bob", "two")
    rules.write_text("allow all * #\n")
    server = Server(folder, f"--password-file={file}", f"--rules-file={rules}")
    try:
        ann, bob = (Client(server, WAYS[2], user, (user, password)) for user, password in (("ann", "one"), ("bob", "two")))
        bob.subscribes("secret/#")
        rules.write_text("deny subscribe * secret/#\nallow all * #\n")
        server.said("the rules file is read again")
        ann.publishes("secret/a", b"x", 1)
        passwd(file, "ann", "three")
        server.said("the password file is read again")
        until(lambda: ann.lost, "who has a new password is still connected")
        equal(bob.lost, [], "disconnects of others")
        equal(bob.got, [], "messages that are not allowed any more")
        equal(Client(server, WAYS[2], "ann", ("ann", "one")).reason.is_failure, True, "the old password is refused")
        equal(Client(server, WAYS[2], "ann", ("ann", "three")).reason.is_failure, False, "the new password is refused")
        rules.write_text("allow everything\n")
        server.process.send_signal(signal.SIGHUP)
        server.said("the new rules file is refused, and the old one stays in force")
        equal(bob.lost, [], "disconnects of others")
    finally:
        server.stop()


with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
    server = Server(first, "--allow-anonymous")
    try:
        run(
            "tls",
            [
                ("mosquitto_pub and mosquitto_sub over mqtts", lambda: mosquitto(server)),
                ("paho over mqtts and wss, every QoS", lambda: messages(server)),
                ("mqtt.js over mqtts and wss", lambda: program(server, "node", "--test", HERE / "tls.test.mjs")),
                ("paho.mqtt.golang over mqtts and wss", lambda: program(server, CACHE / "go/clients.test", "-test.run=^TestTLS$")),
                ("a session is resumed with a TLS 1.3 ticket", lambda: resumption(server)),
                ("new certificates under load disconnect nobody, a bad one is refused", lambda: reload(server)),
                ("new passwords and rules are in force at once", lambda: users(second)),
            ],
        )
    finally:
        server.stop()
