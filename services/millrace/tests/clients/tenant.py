"""The API as a tenant's program uses it."""

import http.cookiejar
import json
import re
import time
import urllib.error
import urllib.request

from checks import SECONDS_MAX, before, deadline

PERSON = {"email": "ann@example.org", "password": "a sentence that nobody knows", "name": "Ann"}


class Api:
    """A session with the API at a URL."""

    def __init__(self, url):
        self.url, self.headers = url + "/api/v1", {"Content-Type": "application/json"}
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

    def ask(self, method, path, body=None, **headers):
        """Status and what was answered. Headers are named as If_Match."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {**self.headers, **headers}, method=method)
        try:
            with self.opener.open(request, timeout=SECONDS_MAX) as answer:
                return answer.status, json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or "null")

    def __call__(self, method, path, body=None, **headers):
        """The answer, which must be a good one."""
        status, answer = self.ask(method, path, body, **headers)
        if status >= 300:
            raise AssertionError(f"{method} {path}: {status} {answer}")
        return answer

    def sign_up(self, log, **more):
        """Makes the account of the first person, who gets the broker that is there. The path of their organisation."""
        me = self("POST", "/sign-up", {**PERSON, **more, "token": setup_token(log)})
        self.headers["X-CSRF-Token"] = me["csrf_token"]
        return f"/organisations/{me['organisations'][0]['id']}"


def setup_token(log):
    """The token of the first account, which a server writes into its log once its ports are open."""
    end = deadline()
    while True:
        with open(log) as file:
            found = re.search(r"/sign-up#(\S+)", file.read())
        if found:
            return found.group(1)
        before(end, "the token of the first account")
        time.sleep(0.05)
