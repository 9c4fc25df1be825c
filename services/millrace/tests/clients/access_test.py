"""A real client at a broker whose tenant has services of its own: an issuer of tokens with a key set (JWKS), and a webhook that
authenticates clients. Both are HTTP servers in this file, which the broker may call because of --outgoing-allow.

Run by run.sh, which says in OPEN_HTTP and OPEN_LOG where the API is and where its first token stands."""

import base64
import hashlib
import hmac
import http.server
import json
import os
import queue
import subprocess
import tempfile
import threading
import time
import urllib.request

import paho.mqtt.client as paho

from checks import HOST, PORTS, SECONDS_MAX, before, deadline, equal, run
from tenant import Api

SUITE = "access"
SIGNING_KEY = "a key that the webhook shares with the broker"


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """Signs tokens (RS256), with openssl."""

    def __init__(self, folder, kid):
        self.key, self.kid = os.path.join(folder, f"{kid}.pem"), kid
        openssl("genrsa", "-out", self.key, "2048")
        modulus = openssl("rsa", "-in", self.key, "-noout", "-modulus").decode().strip().split("=")[1]
        self.jwk = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": kid,
                    "n": base64url(bytes.fromhex(modulus)), "e": "AQAB"}

    def token(self, user):
        header = {"alg": "RS256", "typ": "JWT", "kid": self.kid}
        claims = {"sub": user, "iss": "https://issuer.test", "exp": int(time.time()) + 600}
        signed = ".".join(base64url(json.dumps(part).encode()) for part in (header, claims))
        signature = openssl("dgst", "-sha256", "-sign", self.key, stdin=signed.encode())
        return f"{signed}.{base64url(signature)}"


def openssl(*args, stdin=None):
    return subprocess.run(["openssl", *args], input=stdin, check=True, capture_output=True).stdout


class Services:
    """The tenant's services: /jwks and /who."""

    def __init__(self):
        self.jwks, self.questions, self.fails = [], queue.Queue(), False
        self.keys_asked = 0
        services = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                services.keys_asked += 1
                self.answer(200, {"keys": services.jwks})

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                self.answer(*services.who(body, self.headers["millrace-signature"]))

            def answer(self, status, value):
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
        self.url = f"http://{HOST}:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def who(self, body, signature):
        """The webhook. It checks the signature as services/control/README.md shows it."""
        fields = [field.split("=", 1) for field in signature.split(",")]
        at = next(value for name, value in fields if name == "t")
        ours = hmac.new(SIGNING_KEY.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
        is_ours = any(name == "v1" and hmac.compare_digest(ours, value) for name, value in fields)
        question = json.loads(body)
        self.questions.put(question)
        if not is_ours or abs(time.time() - int(at)) > 300:
            return 500, {}
        if self.fails:
            return 503, {}
        if (question["user"], question["password"]) != ("pump-7", "right"):
            return 200, {"result": "deny"}
        rule = {"effect": "allow", "action": "all", "filter": "pumps/%c/#"}
        return 200, {"result": "allow", "rules": [rule]}


class Tenant:
    """The first person of the server, who gets its broker."""

    def __init__(self):
        self.api = Api(os.environ["OPEN_HTTP"])
        self.broker = self.api.sign_up(os.environ["OPEN_LOG"]) + "/brokers/default"

    def put(self, path, body, **headers):
        self.api("PUT", self.broker + path, body, **headers)


def connect(user, password, protocol=paho.MQTTv5, client_id="c1"):
    """The client, and the reason code or return code that it was answered with."""
    answers = queue.Queue()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=client_id, protocol=protocol)
    client.on_connect = lambda _client, _data, _flags, reason, _properties: answers.put(reason.value)
    client.username_pw_set(user, password)
    client.connect(HOST, PORTS["OPEN", "tcp"])
    client.loop_start()
    reason = answers.get(timeout=SECONDS_MAX)
    if reason:
        client.disconnect()
        client.loop_stop()
    return client, reason


def answered(*args, **kinds):
    client, reason = connect(*args, **kinds)
    client.disconnect()
    client.loop_stop()
    return reason


def may_publish(client, topic):
    """Whether a QoS 1 message is taken; what is refused is acknowledged too, with a reason."""
    answers = queue.Queue()
    client.on_publish = lambda _client, _data, _mid, reason, _properties: answers.put(reason.value)
    client.publish(topic, b"x", qos=1)
    return answers.get(timeout=SECONDS_MAX) < 0x80


def metric(name, label):
    with urllib.request.urlopen(os.environ["OPEN_ADMIN"] + "/metrics", timeout=SECONDS_MAX) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(line.split()[-1]) for line in lines if line.startswith(name) and label in line)


def takes_a_token_by_the_issuers_key_set(services, tenant, folder):
    issuer, stranger = Issuer(folder, "one"), Issuer(folder, "two")
    services.jwks = [issuer.jwk]
    settings = {"algorithms": ["RS256"], "key": {"kind": "jwks", "url": services.url + "/jwks"},
                "issuer": "https://issuer.test"}
    tenant.put("/jwt-issuers/ours", settings, If_None_Match="*")
    rules = [{"effect": "allow", "action": "all", "filter": "%u/#"}]
    tenant.put("/access", {"tokens": True, "rules": rules}, If_Match="*")
    end = deadline()
    # Until then the settings of the server admit every client of this machine.
    while answered("ann", "no token") == 0:
        before(end, "the broker does not go by its records")
        time.sleep(0.1)
    client, reason = connect("ann", issuer.token("ann"))
    equal((reason, may_publish(client, "ann/a"), may_publish(client, "bob/a")), (0, True, False))
    client.disconnect()
    client.loop_stop()
    equal(answered("bob", issuer.token("ann")), 0x87, "another user's token")
    equal(answered("ann", stranger.token("ann")), 0x87, "a key that is not in the set")
    equal(services.keys_asked, 1, "how often the set was fetched")


def asks_the_webhook(services, tenant, _folder):
    webhook = {"url": services.url + "/who", "signing_key": SIGNING_KEY, "timeout_ms": 5000, "cache_s": 60}
    tenant.put("/access", {"webhook": webhook}, If_Match="*")
    end = deadline()
    while services.questions.empty():
        answered("eve", "any")
        before(end, "the webhook is not asked")
        time.sleep(0.1)
    equal(answered("eve", "wrong"), 0x87, "who is denied")
    client, reason = connect("pump-7", "right")
    equal((reason, may_publish(client, "pumps/c1/a"), may_publish(client, "pumps/c2/a")), (0, True, False))
    client.disconnect()
    client.loop_stop()
    question = list(services.questions.queue)[-1]
    address = question.pop("address")
    equal(question, {"broker": "default", "client_id": "c1", "user": "pump-7", "password": "right",
                     "certificate_user": None})
    equal(address.split(":")[0], HOST)


def says_that_the_server_is_unavailable_while_the_webhook_fails(services, _tenant, _folder):
    services.fails = True
    equal(answered("eve", "new"), 0x88, "v5")
    equal(answered("eve", "new", protocol=paho.MQTTv311), 0x88, "v3, as paho names return code 3")
    equal(metric("millrace_webhook_questions_total", 'result="answer"'), 2)
    # The answer for a client that was admitted a moment ago is cached.
    equal(answered("pump-7", "right"), 0)
    services.fails = False
    equal(answered("pump-7", "right", client_id="c9"), 0)


def main():
    services, tenant = Services(), Tenant()
    with tempfile.TemporaryDirectory() as folder:
        checks = [takes_a_token_by_the_issuers_key_set, asks_the_webhook,
                  says_that_the_server_is_unavailable_while_the_webhook_fails]
        named = lambda check: (check.__name__.replace("_", " "), lambda: check(services, tenant, folder))
        run(SUITE, [named(check) for check in checks])


main()
