"""The service behind many webhooks answers 500; it is repaired, and the events that waited are delivered."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from observe import until
from stage import Publisher
from tenants import Tenant

BROKERS, HOOKS = 4, 5
CALLS = "sum by (result) (increase(millrace_webhook_calls_total[75s]))"


class Receiver(BaseHTTPRequestHandler):
    """Answers with the status that the drill says."""

    status, accepted = 500, set()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.status == 204:
            self.accepted.add(body)
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Nothing: the server's metrics say it."""


def run(drill):
    drill.server("--sign-up", "anybody", "--outgoing-allow", "127.0.0.0/8")
    service = ThreadingHTTPServer(("127.0.0.1", 18000), Receiver)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    tenant, hooks = Tenant("ann"), []
    for number in range(BROKERS):
        broker = tenant.broker(f"Plant {number}")
        user, secret = tenant.device(broker, "pump")
        for hook in range(HOOKS):
            settings = {"url": f"http://127.0.0.1:18000/{broker}/{hook}", "events": ["message"], "filters": ["plant/#"], "batch_max": 10}
            hooks.append(f"/organisations/{tenant.organisation}/brokers/{broker}/webhooks/hook-{hook}")
            tenant.ask(hooks[-1], settings, "PUT")
        drill.keep(Publisher("plant/a", rate=2, user=user, password=secret))
    drill.say(f"{BROKERS} brokers have {HOOKS} webhooks each, to a service that answers")
    Receiver.status = 204
    until(lambda: len(Receiver.accepted) > 20, "no events arrive")
    drill.until_no_alert()
    drill.say("FAULT the service answers 500")
    Receiver.status = 500
    drill.fires("WebhooksFail")
    drill.query(CALLS)
    tenant.log_in()
    drill.run(f"millrace webhooks list --broker {broker}")
    status = tenant.ask(f"{hooks[-1]}/status")
    drill.check(f"the status of a webhook says: {status['queued_events']} events wait, {status['last_failure']['reason']}", status["queued_events"] > 0)
    drill.say("ACT   repair the service, and send a test event to each webhook, which has its queue tried at once")
    Receiver.status = 204
    for path in hooks:
        tenant.ask(f"{path}/test", method="POST")
    until(lambda: not any(tenant.ask(f"{path}/status")["queued_events"] > 10 for path in hooks), "events wait on", 300)
    drill.check("the events that waited are delivered", True)
    drill.ends("WebhooksFail")
    drill.query(CALLS)
    service.shutdown()
