"""Tenants of a drill's server, by the API that the console uses. This is no drill."""

import json
import os
import urllib.request

SERVER = "http://127.0.0.1:8080"
SCOPES = [f"{what}:{how}" for what in ("access", "brokers", "clients", "organisation") for how in ("read", "write")] + ["audit:read"]


class Tenant:
    """An account with an organisation; the server runs with --sign-up anybody."""

    def __init__(self, name, server=SERVER):
        self.headers, self.server = {}, server
        self.ask("/sign-up", {"email": f"{name}@example.org", "password": "a sentence for nobody", "name": name})
        self.organisation = self.ask("/organisations")["items"][0]["id"]

    def ask(self, path, body=None, method=None):
        """As the console does it: a cookie, and a token against forged requests."""
        data = json.dumps(body).encode() if body is not None else None
        condition = {"If-None-Match": "*"} if method == "PUT" else {"If-Match": "*"}
        headers = {"Content-Type": "application/json"} | condition | self.headers
        request = urllib.request.Request(f"{self.server}/api/v1{path}", data, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            if cookie := answer.headers.get("Set-Cookie"):
                self.headers["Cookie"] = cookie.split(";")[0]
            text = json.loads(answer.read() or "{}")
        if "csrf_token" in text:
            self.headers["X-CSRF-Token"] = text["csrf_token"]
        return text

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
