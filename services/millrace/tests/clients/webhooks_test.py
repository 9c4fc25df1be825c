"""Webhooks: a real client publishes, and an HTTP server in this file gets the events, and checks the signatures as services/control/README.md shows it. The broker
may call it because of --outgoing-allow.

Run by run.sh, which says in OPEN_HTTP and OPEN_LOG where the API is and where its first token stands."""

import hashlib
import hmac
import http.server
import json
import os
import threading
import time

import paho.mqtt.client as paho

from checks import HOST, PORTS, SECONDS_MAX, before, deadline, equal, run
from tenant import Api

SUITE = "webhooks"
SIGNING_KEY = "a key that the webhook shares with the broker"


def is_genuine(key: bytes, header: str, body: bytes) -> bool:
    fields = [field.split("=", 1) for field in header.split(",")]
    at = next(value for name, value in fields if name == "t")
    expected = hmac.new(key, at.encode() + b"." + body, hashlib.sha256).hexdigest()
    is_recent = abs(time.time() - int(at)) < 300
    return is_recent and any(name == "v1" and hmac.compare_digest(expected, value) for name, value in fields)


class Service:
    """Takes events, or refuses them with `status`."""

    def __init__(self):
        self.taken, self.refused, self.forged, self.status = [], [], 0, 204
        self.key, self.signatures_max = SIGNING_KEY, 0
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                signature = self.headers["millrace-signature"]
                service.signatures_max = max(service.signatures_max, signature.count("v1="))
                if not is_genuine(service.key.encode(), signature, body):
                    service.forged += 1
                is_batch = self.headers["content-type"] == "application/cloudevents-batch+json"
                events = json.loads(body) if is_batch else [json.loads(body)]
                status = service.status
                (service.taken if status < 300 else service.refused).extend(events)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
        self.url = f"http://{HOST}:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def payloads(self, topic):
        return [event["data"]["payload"] for event in self.taken if event.get("subject") == topic]


class Tenant:
    """The first person of the server, who gets its broker."""

    def __init__(self):
        self.api = Api(os.environ["OPEN_HTTP"])
        self.webhook = self.api.sign_up(os.environ["OPEN_LOG"]) + "/brokers/default/webhooks/orders"


def until(is_so, what):
    end = deadline()
    while not is_so():
        before(end, what)
        time.sleep(0.05)


def client(name):
    made = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5)
    made.connect(HOST, PORTS["OPEN", "tcp"])
    made.loop_start()
    return made


def say(publisher, topic, payloads, qos):
    for payload in payloads:
        publisher.publish(topic, payload, qos=qos).wait_for_publish(SECONDS_MAX)


def tells_what_is_published_and_who_comes_and_goes(service, tenant):
    settings = {"url": service.url, "events": ["message", "connect", "disconnect"], "filters": ["plant/#"],
                "signing_key": SIGNING_KEY, "batch_max": 20}
    tenant.api("PUT", tenant.webhook, settings, If_None_Match="*")
    publisher = client("publisher")
    until(lambda: say(publisher, "plant/ready", ["?"], 1) or service.taken, "the webhook is told nothing")
    for qos in (0, 1, 2):
        say(publisher, f"plant/{qos}", [str(number) for number in range(100)], qos)
    until(lambda: len(service.payloads("plant/2")) == 100, "messages are missing")
    for qos in (0, 1, 2):
        equal(service.payloads(f"plant/{qos}"), [str(number) for number in range(100)], f"QoS {qos}")
    pump = client("pump-7")
    until(lambda: any(event.get("subject") == "pump-7" for event in service.taken), "pump-7 has not come")
    pump.disconnect()
    pump.loop_stop()
    is_gone = lambda event: (event["type"], event.get("subject")) == ("millrace.client.disconnected", "pump-7")
    until(lambda: any(map(is_gone, service.taken)), "pump-7 has not gone")
    publisher.disconnect()
    publisher.loop_stop()
    equal(service.forged, 0, "requests with a wrong signature")
    ids = [event["id"] for event in service.taken]
    equal(len(ids), len(set(ids)), "events that are told once")


def keeps_what_is_refused_and_sends_it_again(service, tenant):
    service.status = 422
    tenant.api("POST", tenant.webhook + "/test")
    letters = lambda: tenant.api("GET", tenant.webhook + "/dead-letters")["items"]
    until(lambda: any(letter["failure"] for letter in letters()), "no dead letter")
    equal(letters()[0]["failure"]["status"], 422)
    service.status = 200
    # The end of the publisher may be among them.
    equal(tenant.api("POST", tenant.webhook + "/dead-letters/retry")["count"] >= 1, True, "sent again")
    until(lambda: letters() == [], "the dead letter stays")
    taken = [event["id"] for event in service.taken]
    equal([event["id"] for event in service.refused if event["id"] not in taken], [], "refused and not sent again")
    status = tenant.api("GET", tenant.webhook + "/status")
    equal((status["dead_letters"], status["lost"]), (0, 0))


def verifies_both_keys_while_they_overlap(service, tenant):
    """The order of the signatures must not matter to a receiver: it changes its key at any time of the overlap."""
    made = tenant.api("POST", tenant.webhook + "/rotate-key", {"overlap_s": 3600})
    before = service.key
    for key in (before, made["signing_key"]):
        service.key, service.forged, service.signatures_max = key, 0, 0
        # Servers read the new key within two seconds; until then there is one signature, of the key before.
        while service.signatures_max < 2:
            count, service.forged = len(service.taken), 0
            tenant.api("POST", tenant.webhook + "/test")
            until(lambda: len(service.taken) > count, "the test event has not come")
        equal(service.forged, 0, "requests with a wrong signature")


def main():
    service, tenant = Service(), Tenant()
    checks = [tells_what_is_published_and_who_comes_and_goes, keeps_what_is_refused_and_sends_it_again,
              verifies_both_keys_while_they_overlap]
    run(SUITE, [(check.__name__.replace("_", " "), lambda check=check: check(service, tenant)) for check in checks])


main()
