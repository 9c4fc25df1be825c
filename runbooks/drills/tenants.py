"""Tenants of a drill's server, by the API that the console uses. This is no drill."""

import json
import os
import time
import urllib.error
import urllib.request

SERVER = "http://127.0.0.1:8080"
# A busy disk makes the server answer 503, and ask to try again later.
TRIES = 5
SCOPES = [f"{what}:{how}" for what in ("access", "brokers", "clients", "organisation") for how in ("read", "write")] + ["audit:read"]


class Tenant:
    """An account with an organisation; the server runs with --sign-up anybody."""

    def __init__(self, name, server=SERVER):
        self.headers, self.server, self.tries = {}, server, TRIES
        self.ask("/sign-up", {"email": f"{name}@example.org", "password": "a sentence for nobody", "name": name})
        self.organisation = self.ask("/organisations")["items"][0]["id"]

    def ask(self, path, body=None, method=None):
        """As the console does it: a cookie, and a token against forged requests."""
        data = json.dumps(body).encode() if body is not None else None
        condition = {"If-None-Match": "*"} if method == "PUT" else {"If-Match": "*"}
        headers = {"Content-Type": "application/json"} | condition | self.headers
        request = urllib.request.Request(f"{self.server}/api/v1{path}", data, headers, method=method)
        with self.answer(request) as answer:
            if cookie := answer.headers.get("Set-Cookie"):
                self.headers["Cookie"] = cookie.split(";")[0]
            text = json.loads(answer.read() or "{}")
        if "csrf_token" in text:
            self.headers["X-CSRF-Token"] = text["csrf_token"]
        return text

    def answer(self, request):
        for left in reversed(range(self.tries)):
            try:
                return urllib.request.urlopen(request)
            except urllib.error.HTTPError as error:
                # The reason, for whoever reads the traceback.
                error.add_note(error.read().decode(errors="replace"))
                if error.code != 503 or not left:
                    raise
                time.sleep(1)

    def broker(self, display_name):
        return self.ask(f"/organisations/{self.organisation}/brokers", {"display_name": display_name})["name"]

    def device(self, broker, user):
        """A credential that may do everything: the user name for a server without a gateway, and the secret."""
        rules = [{"effect": "allow", "action": "all", "filter": "#"}]
        path = f"/organisations/{self.organisation}/brokers/{broker}/credentials"
        return f"{broker}/{user}", self.ask(path, {"user": user, "rules": rules})["secret"]

    def log_in(self):
        """The commands of `millrace` that follow are this tenant's."""
        secret = self.ask(f"/organisations/{self.organisation}/tokens", {"name": "drill", "scopes": SCOPES})["secret"]
        os.environ |= {"MILLRACE_URL": self.server, "MILLRACE_ORGANISATION": self.organisation, "MILLRACE_TOKEN": secret}
