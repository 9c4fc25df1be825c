"""A region is started from nothing, with receivers of alerts: its parts are well, a client goes through the gateway, and a test alert arrives."""

import http.server
import json
import ssl
import threading

from observe import HERE, HOST, program, until
from stage import make

PAGER = 9999


class Pager(http.server.BaseHTTPRequestHandler):
    """Stands for the service that notifies people."""

    got = []

    def do_POST(self):
        alerts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"]
        self.got.extend((self.path, alert["labels"]["alertname"]) for alert in alerts if alert["status"] == "firing")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def receivers(drill):
    """alertmanager.yml with its receivers filled in, as step 3 of the page says."""
    text = (HERE / "prometheus/alertmanager.yml").read_text()
    for name in ("pages", "watchdog"):
        text = text.replace(f"  - name: {name}\n", f"  - name: {name}\n    webhook_configs: [{{url: 'http://{HOST}:{PAGER}/{name}'}}]\n")
    path = drill.folder / "alertmanager.yml"
    path.write_text(text)
    return path


def foundationdb(drill):
    """The page's commands of FoundationDB, where a cluster of the stack's own is here."""
    commands = ["fdbcli --exec 'status minimal'", "fdbcli --exec 'coordinators auto'"]
    cluster = drill.folder / "stack/fdb/fdb.cluster"
    for command in commands:
        if (drill.folder / "stack/pids/foundationdb").exists():
            drill.run(command.replace("fdbcli", f"fdbcli -C {cluster}"))
        else:
            drill.say(f"SKIPPED: {command}: FoundationDB is not here, so the pods' store is the embedded engine")


def run(drill):
    program("amtool", how="apt-get install prometheus-alertmanager")
    pager = http.server.ThreadingHTTPServer((HOST, PAGER), Pager)
    threading.Thread(target=pager.serve_forever, daemon=True).start()
    drill.alertmanager = receivers(drill)
    drill.stack()
    foundationdb(drill)
    for number in range(3):
        said = drill.run(f"curl -sS http://127.0.0.1:{8080 + number}/healthz")
        drill.check(f"pod {number + 1} is well and reaches two others", said.startswith("ok") and "2 other pods" in said)
    drill.check("the gateway is live", drill.run("curl -sS http://127.0.0.1:9902/ready") == "LIVE")
    drill.run("grep -c 'nobody owns this server yet; whoever opens this link first' stack/logs/pods.log")
    drill.until_value("sum(up == 1)", lambda values: values and values[0] >= 9)

    got = []
    client = make("first", None)
    client.tls_set_context(ssl.create_default_context(cafile=str(drill.folder / "certs/ca.crt")))
    client.on_message = lambda _, __, message: got.append(message.payload)
    client.connect("localhost", 8883)
    client.loop_start()
    until(client.is_connected, "no client through the gateway")
    client.subscribe("hello/#", 1)
    client.publish("hello/world", "hi", 1).wait_for_publish(10)
    until(lambda: got, "the message did not arrive")
    drill.check("a client publishes and receives through the gateway over TLS", got == [b"hi"])
    client.disconnect()
    client.loop_stop()

    drill.run("amtool --alertmanager.url=http://127.0.0.1:9093 alert add Test severity=page")
    for path, alert in (("/pages", "Test"), ("/watchdog", "Watchdog")):
        until(lambda: (path, alert) in Pager.got, f"{alert} did not reach {path}: {Pager.got}", 60)
        drill.check(f"the receiver {path[1:]} has {alert}", True)
    drill.until_no_alert()
    drill.say("no alert fires")
    pager.shutdown()
