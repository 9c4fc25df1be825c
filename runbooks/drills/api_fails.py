"""The store's disk fails each sync, so the API cannot write; it continues by itself when the disk does."""

import threading
import urllib.error

from tenants import Tenant


class Person:
    """Saves the name of a broker again and again, as somebody does in the console."""

    def __init__(self):
        self.tenant, self.answers, self.over = Tenant("ann"), [], threading.Event()
        self.tenant.tries = 1
        self.path = f"/organisations/{self.tenant.organisation}/brokers"
        self.thread = threading.Thread(target=self.save, daemon=True)
        self.thread.start()

    def save(self):
        number = 0
        while not self.over.wait(0.2):
            number += 1
            try:
                self.tenant.ask(self.path, {"display_name": f"Plant {number}"})
                self.answers.append(200)
            except urllib.error.HTTPError as error:
                self.answers.append(error.code)

    def leave(self):
        self.over.set()
        self.thread.join(30)


def run(drill):
    server = drill.server("--sign-up", "anybody")
    person = drill.keep(Person())
    drill.until_value('sum(millrace_http_requests_total{status="2xx"})', lambda values: values and values[0] > 5)
    drill.until_no_alert()
    drill.say("FAULT the disk gives an input/output error for each sync")
    fault = drill.break_syncs(server, "error=EIO")
    drill.fires("ApiFails")
    drill.query('topk(5, sum by (instance, method, route) (rate(millrace_http_requests_total{status="5xx"}[10s])) > 0)')
    drill.run("grep 'a request was answered with a server error' millrace.log | tail -1 | sed 's/^[^ ]* *//'", lines=1)
    drill.run("curl -s http://127.0.0.1:8080/healthz", fails=True)
    drill.say("ACT   the disk works again; nobody restarts the server")
    fault.stop()
    before = len(person.answers)
    drill.ends("ApiFails")
    drill.check("the API saves again", 200 in person.answers[before:])
