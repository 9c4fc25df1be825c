"""The steps of a tenant, from signing up to the bill: two brokers behind the gateway, clients that show a password, a token, a certificate
and SCRAM, rules, limits, usage, and an audit log that has all of it.

Run by run.sh. Everything is real: the built server with the gateway in front of it, paho-mqtt, and for SCRAM, which paho-mqtt does not
know, packets by hand."""

import base64
import hashlib
import hmac
import json
import queue
import secrets
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import paho.mqtt.client as paho

sys.path.insert(0, str(Path(__file__).parents[4] / "gateway" / "tests"))

from checks import HOST, SECONDS_MAX, equal, run
from stage import MILLRACE, Gateway, Process, Stage, until
from tenant import PERSON, Api

NO_MATCHING_SUBSCRIBERS, BAD_PASSWORD, NOT_AUTHORIZED, BANNED = 0x10, 0x86, 0x87, 0x8A
PACKET_TOO_LARGE, QUOTA_EXCEEDED, ADMINISTRATIVE_ACTION = 0x95, 0x97, 0x98
TOKEN_SECRET = secrets.token_urlsafe(32)


class Pod(Process):
    """A server with a store, for the gateway and for clients on this machine."""

    def __init__(self, folder):
        super().__init__(
            folder / "pod.log",
            [MILLRACE, "serve", f"--data-dir={folder / 'data'}", "--allow-anonymous=false", "--threads=2", "--shutdown-grace-s=0"]
            + [f"--gateway-listen={HOST}:0", f"--gateway-from={HOST}", f"--http-listen={HOST}:0"]
            + [f"--mqtt-listen={HOST}:0", f"--ws-listen={HOST}:0"],
        )
        self.health = int(self.line(r"HTTP is open at http://127\.0\.0\.1:(\d+)"))
        self.gateway = int(self.line(r"the gateway is expected at 127\.0\.0\.1:(\d+)"))
        self.mqtt = int(self.line(r"mqtt://127\.0\.0\.1:(\d+)"))

    def address(self):
        return f"{HOST}:{self.gateway}/{self.health}"


class Client:
    """A 5.0 client of paho-mqtt, through the gateway unless another way is given."""

    def __init__(self, tenant, broker, client_id, user=None, password=None, certificate=False, port=None):
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5, reconnect_on_failure=False
        )
        self.answers, self.messages, self.ends = queue.Queue(), queue.Queue(), queue.Queue()
        self.paho.on_connect = lambda _c, _u, _f, reason, _p: self.answers.put(reason)
        self.paho.on_publish = lambda _c, _u, _m, reason, _p: self.answers.put(reason)
        self.paho.on_subscribe = lambda _c, _u, _m, reasons, _p: self.answers.put(reasons[0])
        self.paho.on_message = lambda _c, _u, message: self.messages.put((message.topic, message.payload))
        self.paho.on_disconnect = lambda _c, _u, _f, reason, _p: self.ends.put(reason)
        if user is not None:
            self.paho.username_pw_set(user, password)
        if port is None:
            self.paho.tls_set_context(tenant.tls(certificate))
            # It connects to this machine and asks for the broker.
            self.paho._create_socket_connection = lambda: socket.create_connection(
                (HOST, tenant.gateway.mqtts), SECONDS_MAX
            )
            self.paho.connect(f"{broker}.local.test", tenant.gateway.mqtts)
        else:
            self.paho.connect(HOST, port)
        self.paho.loop_start()
        self.reason = self.answers.get(timeout=SECONDS_MAX).value

    def __enter__(self):
        equal(self.reason, 0, "CONNACK")
        return self

    def __exit__(self, *_):
        self.paho.disconnect()
        self.paho.loop_stop()

    def publish(self, topic, payload=b"x", qos=1, retain=False):
        """The reason of the PUBACK; 0 also when nobody subscribes."""
        self.paho.publish(topic, payload, qos, retain)
        reason = self.answers.get(timeout=SECONDS_MAX).value
        return 0 if reason == NO_MATCHING_SUBSCRIBERS else reason

    def subscribe(self, topic_filter, qos=1):
        """The reason of the SUBACK."""
        self.paho.subscribe(topic_filter, qos)
        return self.answers.get(timeout=SECONDS_MAX).value

    def takes(self, topic, payload):
        equal(self.messages.get(timeout=SECONDS_MAX), (topic, payload), "message")


def refused(*args, **more):
    """The reason for which a client is refused."""
    client = Client(*args, **more)
    client.paho.loop_stop()
    return client.reason


def token(**claims):
    """A JWT, signed with HS256."""

    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    body = {"exp": int(time.time()) + 600, **claims}
    signed = b".".join(part(json.dumps(one).encode()) for one in ({"alg": "HS256", "typ": "JWT"}, body))
    return (signed + b"." + part(hmac.digest(TOKEN_SECRET.encode(), signed, "sha256"))).decode()


class Scram:
    """A client that shows SCRAM-SHA-256 (RFC 7677) by enhanced authentication; only so far as these checks go."""

    METHOD = b"\x15\x00\x0dSCRAM-SHA-256"

    def __init__(self, tenant, broker, user, password):
        raw = socket.create_connection((HOST, tenant.gateway.mqtts), SECONDS_MAX)
        self.socket = tenant.tls().wrap_socket(raw, server_hostname=f"{broker}.local.test")
        nonce = secrets.token_hex(12)
        first = f"n={user},r={nonce}"
        self.send(0x10, b"\0\4MQTT\5\2\0\0", f"n,,{first}", b"\0\5scram")
        kind, data = self.read()
        self.reason = data
        if kind != 0xF0:
            return
        fields = dict(part.split("=", 1) for part in data.split(","))
        final = f"c=biws,r={fields['r']}"
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        said = f"{first},{data},{final}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), said, "sha256")
        proof = base64.b64encode(bytes(one ^ other for one, other in zip(key, signature))).decode()
        self.send(0xF0, b"\x18", f"{final},p={proof}")
        kind, self.reason = self.read()
        if kind == 0x20 and isinstance(self.reason, str):
            server = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), said, "sha256")
            equal(self.reason, "v=" + base64.b64encode(server).decode(), "the server's proof")
            self.reason = 0

    def send(self, kind, head, data, tail=b""):
        properties = self.METHOD + b"\x16" + len(data).to_bytes(2, "big") + data.encode()
        body = head + self.sized(properties) + tail
        self.socket.sendall(bytes([kind]) + self.sized(body))

    @staticmethod
    def sized(data):
        size = len(data)
        return bytes([size] if size < 128 else [size & 0x7F | 0x80, size >> 7]) + data

    def read(self):
        """Kind, and the authentication data; the reason when there is none."""
        kind = self.take(1)[0]
        body = self.take(self.length())
        at = body.find(self.METHOD)
        if at < 0:
            return kind, body[1 if kind == 0x20 else 0]
        at = body.index(b"\x16", at + len(self.METHOD))
        return kind, body[at + 3 : at + 3 + int.from_bytes(body[at + 1 : at + 3], "big")].decode()

    def length(self):
        size = shift = 0
        while True:
            (byte,) = self.take(1)
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return size

    def take(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise AssertionError("the server closed the connection")
            data += more
        return data


class Tenant:
    """Ann, with two brokers."""

    def __init__(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.certificates = self.folder / "certs"
        Stage.make_certificates(self.certificates)
        self.pod = Pod(self.folder)
        self.gateway = Gateway(self.folder / "gateway", self.certificates, [self.pod])
        self.api = Api(f"http://{HOST}:{self.pod.health}")
        self.changes = []

    def close(self):
        self.gateway.kill()
        self.pod.kill()
        self.temporary.cleanup()

    def tls(self, certificate=False):
        context = ssl.create_default_context(cafile=self.certificates / "ca.crt")
        if certificate:
            context.load_cert_chain(self.certificates / "client.crt", self.certificates / "client.key")
        return context

    def change(self, action, method, path, body=None, **headers):
        """A change, which the audit log must have."""
        answer = self.api(method, self.own + path, body, **headers)
        self.changes.append(action)
        return answer

    def part(self, broker, path, body):
        """Makes a part of a broker, or replaces it whatever it was."""
        kind = path.split("/")[0]
        at = f"/brokers/{broker}/{path}"
        status, _ = self.api.ask("GET", self.own + at)
        headers = {"If_Match": "*"} if status == 200 else {"If_None_Match": "*"}
        return self.change(kind, "PUT", at, body, **headers)

    # -- the checks, in order

    def signs_up_by_the_token_of_the_first_start(self):
        equal(self.api.ask("POST", "/sign-up", PERSON)[0], 403, "without it")
        self.own = self.api.sign_up(self.pod.log, organisation="Plants")

    def creates_two_brokers(self):
        self.one, self.two = (
            self.change("broker.create", "POST", "/brokers", {"display_name": name})["name"] for name in ("One", "Two")
        )

    def adds_credentials(self):
        def made(broker, user, **more):
            path = f"/brokers/{broker}/credentials"
            return self.change("credential.create", "POST", path, {"user": user, **more})["secret"]

        self.secrets = {broker: made(broker, "pump", scram=True) for broker in (self.one, self.two)}
        rules = [{"effect": "allow", "action": "publish", "filter": "of/%u/%c"}]
        self.ruled = made(self.one, "ruled", rules=rules)

    def a_password_reaches_its_own_broker_and_no_other(self):
        readers = {}
        for broker, secret in self.secrets.items():
            readers[broker] = Client(self, broker, "reader", "pump", secret).__enter__()
            equal(readers[broker].subscribe("a/#"), 1, "SUBACK")
        for broker, other in ((self.one, self.two), (self.two, self.one)):
            equal(refused(self, broker, "c", "pump", self.secrets[other]), BAD_PASSWORD, "the other broker's password")
            equal(refused(self, broker, "c"), NOT_AUTHORIZED, "no password")
            with Client(self, broker, "writer", "pump", self.secrets[broker]) as writer:
                equal(writer.publish("a/b", broker.encode()), 0, "PUBACK")
            readers[broker].takes("a/b", broker.encode())
        for reader in readers.values():
            if not reader.messages.empty():
                raise AssertionError(f"a message of another broker: {reader.messages.get()}")
            reader.__exit__()
        equal(refused(self, "nobody", "c", "pump", secret), NOT_AUTHORIZED, "a broker that is not there")

    def a_user_name_says_the_broker_where_no_server_name_does(self):
        with Client(self, self.two, "reader", "pump", self.secrets[self.two]) as reader:
            reader.subscribe("local")
            port = self.pod.mqtt
            with Client(self, None, "local", f"{self.two}/pump", self.secrets[self.two], port=port) as local:
                equal(local.publish("local", b"here"), 0, "PUBACK")
            reader.takes("local", b"here")
            wrong = refused(self, None, "local", f"{self.one}/pump", self.secrets[self.two], port=port)
            equal(wrong, BAD_PASSWORD, "the password of the other broker")

    def a_token_reaches_its_own_broker_and_no_other(self):
        settings = {
            "algorithms": ["HS256"],
            "key": {"kind": "secret", "secret": TOKEN_SECRET},
            "issuer": "plants",
            "claims": {"rules": "acl", "client_id": "cid"},
        }
        self.part(self.one, "jwt-issuers/plants", settings)
        self.part(self.one, "access", {"tokens": True})
        claims = {
            "iss": "plants",
            "sub": "robot",
            "cid": "r1",
            "acl": [{"effect": "allow", "action": "publish", "filter": "robots/%u"}],
        }
        until(lambda: refused(self, self.one, "r1", "robot", token(**claims)) == 0, "the issuer is not known")
        with Client(self, self.one, "r1", "robot", token(**claims)) as robot:
            equal(robot.publish("robots/robot"), 0, "PUBACK")
            equal(robot.publish("robots/other"), NOT_AUTHORIZED, "a topic of another user")
        for reason, client_id, wrong in (
            ("another client id", "r2", claims),
            ("another issuer", "r1", {**claims, "iss": "others"}),
            ("expired", "r1", {**claims, "exp": int(time.time()) - 3600}),
        ):
            if refused(self, self.one, client_id, "robot", token(**wrong)) not in (BAD_PASSWORD, NOT_AUTHORIZED):
                raise AssertionError(f"let in: {reason}")
        equal(refused(self, self.two, "r1", "robot", token(**claims)), BAD_PASSWORD, "at the other broker")

    def a_certificate_reaches_its_own_broker_and_no_other(self):
        pem = (self.certificates / "client-ca.crt").read_text()
        subject = subprocess.run(
            ["openssl", "x509", "-in", self.certificates / "client.crt", "-noout", "-subject", "-nameopt", "multiline"],
            check=True, capture_output=True, text=True,
        ).stdout
        name = subject.rsplit("=", 1)[1].strip()
        self.part(self.two, "client-cas/own", {"pem": pem})
        self.part(self.two, "access", {"certificates": "accepted"})
        until(lambda: refused(self, self.two, "x", certificate=True) == 0, "the authority is not known")
        with Client(self, self.two, "x", certificate=True) as device:
            equal(device.publish("by/certificate"), 0, "PUBACK")
        if refused(self, self.two, "x", "somebody", None, certificate=True) == 0:
            raise AssertionError(f"let in by another name than {name}")
        equal(refused(self, self.one, "x", certificate=True), NOT_AUTHORIZED, "at the other broker")

    def scram_reaches_its_own_broker_and_no_other(self):
        equal(Scram(self, self.one, "pump", self.secrets[self.one]).reason, 0, "CONNACK")
        for what, args in (
            ("the other broker's password", (self.one, "pump", self.secrets[self.two])),
            ("a user that is not there", (self.one, "nobody", self.secrets[self.one])),
        ):
            equal(Scram(self, *args).reason, NOT_AUTHORIZED, what)

    def rules_are_enforced_and_change_under_a_connected_client(self):
        with Client(self, self.one, "c7", "ruled", self.ruled) as client:
            equal(client.publish("of/ruled/c7"), 0, "its own topic")
            equal(client.publish("of/ruled/c8"), NOT_AUTHORIZED, "the topic of another client")
            equal(client.subscribe("of/#"), NOT_AUTHORIZED, "SUBACK")
            rules = [{"effect": "allow", "action": "publish", "filter": "new/#"}]
            self.part(self.one, "credentials/ruled", {"enabled": True, "rules": rules})
            until(lambda: client.publish("new/x") == 0, "the new rule does not count")
            equal(client.publish("of/ruled/c7"), NOT_AUTHORIZED, "what the old rule let")

    def limits_are_enforced_and_what_is_refused_is_shown(self):
        limits = {"client": {"subscriptions": 2, "packet_bytes": 1000}, "broker": {"connections": 2}}
        self.change("broker.change", "PATCH", f"/brokers/{self.two}", {"limits": limits}, If_Match="*")
        way = (self, self.two)

        def is_limited():
            with Client(*way, "limited", "pump", self.secrets[self.two]) as client:
                return [client.subscribe(f"l/{number}") for number in range(3)] == [1, 1, QUOTA_EXCEEDED]

        until(is_limited, "the limit of subscriptions does not count")
        with Client(*way, "c1", "pump", self.secrets[self.two]) as one, Client(*way, "c2", "pump", self.secrets[self.two]):
            equal(refused(*way, "c3", "pump", self.secrets[self.two]), QUOTA_EXCEEDED, "a third connection")
            one.paho.publish("large", bytes(2000), 1)
            equal(one.ends.get(timeout=SECONDS_MAX).value, PACKET_TOO_LARGE, "DISCONNECT")
        wanted = {("limit_reached", "client.subscriptions"), ("limit_reached", "broker.connections")}

        def shown():
            items = self.api("GET", f"{self.own}/brokers/{self.two}/incidents?limit=200")["items"]
            return wanted <= {(item["kind"], item["what"]) for item in items}

        until(shown, "the incidents do not have what was limited")
        denied = self.api("GET", f"{self.own}/brokers/{self.one}/incidents?kind=publish_refused&client_id=c7")["items"]
        equal({item["what"] for item in denied} >= {"of/ruled/c8"}, True, "refused publishes")
        self.change("broker.change", "PATCH", f"/brokers/{self.two}", {"limits": {"client": None, "broker": None}}, If_Match="*")

    def usage_adds_up_to_what_was_sent(self):
        def used():
            return self.api("GET", f"{self.own}/brokers/{self.two}/usage?step=total")["total"]["used"]

        # The usage of the earlier checks appears within some seconds.
        settled = [None]

        def is_settled():
            settled.append(used()["messages_in"])
            time.sleep(2.5)
            return settled[-1] == settled[-2]

        until(is_settled, "usage does not settle")
        before = used()
        sizes = [1, 4096 - len("u"), 4097 - len("u"), 10_000]
        with Client(self, self.two, "meter", "pump", self.secrets[self.two]) as client:
            equal(client.subscribe("u"), 1, "SUBACK")
            for qos in (1, 2):
                for size in sizes:
                    equal(client.publish("u", bytes(size), qos), 0, "PUBACK")
            for _ in range(2 * len(sizes)):
                client.messages.get(timeout=SECONDS_MAX)
        # 4 KiB units: one, one, two and three.
        wanted = {"messages_in": 14, "messages_delivered": 14, "bytes_in": 2 * sum(sizes) + 8, "bytes_out": 2 * sum(sizes) + 8}

        def added():
            now = used()
            return {name: now[name] - before[name] for name in wanted}

        until(lambda: added() == wanted, f"usage: got {added()}, wanted {wanted}")
        time.sleep(2.5)
        equal(added(), wanted, "usage")

    def a_client_is_seen_kicked_and_banned(self):
        clients = f"{self.own}/brokers/{self.one}/clients"
        with Client(self, self.one, "seen", "pump", self.secrets[self.one]) as client:
            until(lambda: [one["client_id"] for one in self.api("GET", clients)["items"]] == ["seen"], "not listed")
            equal(self.api("GET", f"{clients}/seen")["user"], "pump", "user")
            self.api("DELETE", f"{clients}/seen")
            equal(client.ends.get(timeout=SECONDS_MAX).value, ADMINISTRATIVE_ACTION, "DISCONNECT")
        self.part(self.one, "bans/seen", {"client_id": "seen"})
        way = (self, self.one, "seen", "pump", self.secrets[self.one])
        until(lambda: refused(*way) == BANNED, "the ban does not count")
        self.change("ban.delete", "DELETE", f"/brokers/{self.one}/bans/seen", If_Match="*")
        until(lambda: refused(*way) == 0, "the ban continues")

    def a_broker_that_is_suspended_or_deleted_lets_nobody_in(self):
        way = (self, self.two, "last", "pump", self.secrets[self.two])
        with Client(*way) as client:
            self.change("broker.suspend", "POST", f"/brokers/{self.two}/suspend")
            client.ends.get(timeout=SECONDS_MAX)
        until(lambda: refused(*way) != 0, "a suspended broker lets in")
        self.change("broker.resume", "POST", f"/brokers/{self.two}/resume")
        until(lambda: refused(*way) == 0, "a resumed broker does not let in")
        with Client(*way) as client:
            self.change("broker.delete", "DELETE", f"/brokers/{self.two}", If_Match="*")
            client.ends.get(timeout=SECONDS_MAX)
        until(lambda: refused(*way) != 0, "a deleted broker lets in")

    def the_audit_log_has_every_change(self):
        """Each change has an entry, and no secret stands in the log or in what the server printed."""
        entries, path = [], "/audit?limit=200"
        while path:
            page = self.api("GET", self.own + path)
            entries += page["items"]
            path = page.get("next_cursor") and f"/audit?limit=200&cursor={page['next_cursor']}"
        text = json.dumps(entries)
        for secret in (*self.secrets.values(), self.ruled, TOKEN_SECRET):
            if secret in text or secret in self.pod.text():
                raise AssertionError("a secret stands in the audit log or in the server's own log")
        equal(len(entries) >= len(self.changes), True, "entries for all changes")
        self.entries = entries


def main():
    tenant = Tenant()
    # The steps are the methods whose names have several parts, in the order of the class: later steps need the earlier ones.
    names = [name for name in vars(Tenant) if "_" in name and not name.startswith("__")]
    try:
        run("tenant", [(name.replace("_", " "), getattr(tenant, name)) for name in names])
    finally:
        tenant.close()


main()
