"""A webhook's service needs five seconds for each call, so its queue grows; larger batches empty it."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from observe import until
from stage import Publisher
from tenants import Tenant

WAITING = "max(millrace_webhook_events_waiting)"
DELIVERED = 'sum(rate(millrace_webhook_events_total{result="delivered"}[75s]))'
SLOW_SECONDS = 5


class Receiver(BaseHTTPRequestHandler):
    """Accepts every call: at once while `quick` is set, otherwise after SLOW_SECONDS or when `over` is set."""

    quick, over, calls = threading.Event(), threading.Event(), 0

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        Receiver.calls += 1
        if not self.quick.is_set():
            self.over.wait(SLOW_SECONDS)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        """No log: the drill reads the server's metrics."""


def run(drill):
    drill.server("--sign-up", "anybody", "--outgoing-allow", "127.0.0.0/8")
    service = ThreadingHTTPServer(("127.0.0.1", 18000), Receiver)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    tenant = Tenant("ann")
    broker = tenant.broker("Plant")
    user, secret = tenant.device(broker, "pump")
    settings = '{"url": "http://127.0.0.1:18000/hook", "events": ["message"], "filters": ["plant/#"]%s}'
    tenant.log_in()
    put = "echo '%s' | millrace webhooks put hook --broker " + broker
    drill.run(put % (settings % ""), lines=0)
    Receiver.quick.set()
    drill.keep(Publisher("plant/a", rate=15, user=user, password=secret))
    until(lambda: Receiver.calls > 20, "no events arrive")
    drill.until_no_alert()
    drill.say(f"FAULT the service takes {SLOW_SECONDS} s for each call, and accepts every one")
    Receiver.quick.clear()
    drill.fires("WebhookEventsWait")
    drill.query(WAITING)
    drill.query("max(millrace_webhook_oldest_event_seconds)")
    drill.query(DELIVERED)
    drill.query("sum by (result) (increase(millrace_webhook_calls_total[75s]))")
    status = tenant.ask(f"/organisations/{tenant.organisation}/brokers/{broker}/webhooks/hook/status")
    drill.check(f"the status of the webhook says: {status['queued_events']} events wait", status["queued_events"] > 1000)
    drill.say("ACT   the tenant takes up to 100 events in a call")
    drill.run(put % (settings % ', "batch_max": 100'), lines=0)
    drill.ends("WebhookEventsWait")
    drill.query(WAITING)
    drill.query(DELIVERED)
    Receiver.over.set()
    service.shutdown()
