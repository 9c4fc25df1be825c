"""The API of the built server against its own description: schemathesis makes requests out of openapi.json, and every
answer must be one that is described there, in status, type and shape; none may be a failure of the server.

Run by ../run.sh, which says in API_HTTP where the server is and in API_LOG where it logs."""

import os
import re
import subprocess
import sys
import tempfile
import time

import requests

SUITE = "api"
CHECKS = ",".join([
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "ignored_auth",
])
SCOPES = [
    f"{what}:{how}"
    for what in ("organisation", "brokers", "access", "clients")
    for how in ("read", "write")
] + ["audit:read"]
MESSAGES = ["messages:read", "messages:write"]
# They end the run's own session.
OWN_END = ["sign_out", "delete_account"]
# Allowed answers to a wrong request: also 412 and 428, because the server checks If-Match first.
REFUSED = [400, 401, 403, 404, 405, 409, 412, 413, 415, 422, 428, 429]
# These remove objects that the others need, so they come last.
LAST = ["delete_broker", "delete_organisation", "delete_token", "remove_member", "change_member"]
# Paths that have runs of their own.
PARTS = ["/credentials|/access", "/groups|/webhooks", "/jwt-issuers", "/client-cas", "/sessions|/retained", "/clients|/bans"]
# An authority that issued itself, until 2126.
AUTHORITY = """-----BEGIN CERTIFICATE-----
MIIBjDCCATGgAwIBAgIUfPzucp6B65mTE88AHn+K8l57jE4wCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHZmFjdG9yeTAgFw0yNjExMjIwMzI0MjZaGA8yMTI2MTAyOTAz
MjQyNlowEjEQMA4GA1UEAwwHZmFjdG9yeTBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABLcdB/bjlCCx79pjRcUKcZxa5bJHgRLO02Ikgv7+abgvIMWVXNwWq8IFSmUy
dnbcQnUgDI6Ep89GMvVonBSZnD2jYzBhMB0GA1UdDgQWBBS5NzMnAoeYby/tnMYK
FeRRoiMUBjAfBgNVHSMEGDAWgBS5NzMnAoeYby/tnMYKFeRRoiMUBjAPBgNVHRMB
Af8EBTADAQH/MA4GA1UdDwEB/wQEAwIBBjAKBggqhkjOPQQDAgNJADBGAiEAsytP
XVqTuYvLKszJnux4p1FZ+Gm9zNQFu5bRF/JFzoECIQD8WNdxDobjbH9kEToW36f7
+SeLg23GCT5d04YoHb3aHQ==
-----END CERTIFICATE-----
"""
# They do not end.
ENDLESS = ["stream_metrics", "trace_client", "tail"]


def setup_token():
    """The token of the first account, which the server logs after its ports are open."""
    for _ in range(200):
        with open(os.environ["API_LOG"]) as log:
            found = re.search(r"/sign-up#(\S+)", log.read())
        if found:
            return found.group(1)
        time.sleep(0.05)
    sys.exit(f"FAILED: {SUITE}: the server printed no token for the first account")


class Tenant:
    """The first person, with what the paths of the description name."""

    def __init__(self, api):
        self.api, session = api, requests.Session()
        account = {"email": "ann@example.org", "password": "a sentence that nobody knows", "name": "Ann"}
        me = self.made(session.post(f"{api}/sign-up", json={**account, "token": setup_token()}))
        self.organisation = me["organisations"][0]["id"]
        session.headers["X-CSRF-Token"] = me["csrf_token"]
        own = f"{api}/organisations/{self.organisation}"
        self.tokens, self.session = f"{own}/tokens", session
        self.broker = self.made(session.post(f"{own}/brokers", json={"display_name": "Plant"}))["name"]
        at = f"{own}/brokers/{self.broker}"
        self.made(session.post(f"{at}/credentials", json={"user": "one"}))
        new = {"If-None-Match": "*"}
        for kind, body in {
            "groups": {},
            "client-cas": {"pem": AUTHORITY},
            "jwt-issuers": {"algorithms": ["RS256"], "key": {"kind": "jwks", "url": "https://issuer.test"}},
            "webhooks": {"url": "https://hook.test", "events": ["connect"]},
            "bans": {"client_id": "one"},
        }.items():
            self.made(session.put(f"{at}/{kind}/one", json=body, headers=new))

    @staticmethod
    def made(answer):
        if answer.status_code >= 400:
            sys.exit(f"FAILED: {SUITE}: {answer.request.url}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    def by_token(self, scopes):
        """The settings of a client with a token of its own: one token may ask only so often."""
        token = self.made(self.session.post(self.tokens, json={"name": "tests", "scopes": scopes}))["secret"]
        return f'[auth.openapi.token]\nbearer = "{token}"\n'

    def by_session(self):
        """The settings of a signed-in person. Without TLS the cookie has no prefix, so the description does not name it."""
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.session.cookies)
        csrf = self.session.headers["X-CSRF-Token"]
        return f'[headers]\nCookie = "{cookies}"\nX-CSRF-Token = "{csrf}"\n'

    def settings(self, caller):
        return (
            f'[parameters]\n"path.organisation" = "{self.organisation}"\n"path.broker" = "{self.broker}"\n'
            f'"path.name" = "one"\n{caller}'
            f"[checks.missing_required_header]\nexpected-statuses = {REFUSED}\n"
            f"[checks.negative_data_rejection]\nexpected-statuses = {REFUSED}\n"
        )


def run(tenant, what, choice, caller, checks=CHECKS):
    """Runs schemathesis over some of the operations."""
    with tempfile.TemporaryDirectory() as folder:
        settings = os.path.join(folder, "schemathesis.toml")
        with open(settings, "w") as file:
            file.write(tenant.settings(caller))
        program = os.path.join(os.path.dirname(sys.executable), "schemathesis")
        command = [
            program, "--config-file", settings, "run", f"{tenant.api}/openapi.json", "--url", tenant.api,
            "--phases", "examples,coverage", "--checks", checks, "--seed", "1",
            "--workers", "1", "--generation-database", "none", "--no-color", *choice,
        ]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if ended.returncode == 0:
        print(f"ok {SUITE}: {what}: every answer is one that the description has")
    else:
        print(ended.stdout[-20000:], ended.stderr[-2000:])
        print(f"FAILED: {SUITE}: {what}: some answers are not as the description says")


def main():
    tenant = Tenant(os.environ["API_HTTP"] + "/api/v1")

    def each(option, ids):
        return [word for one in ids for word in (option, one)]

    others = each("--exclude-operation-id", LAST + ENDLESS)
    # Made before the requests of the signed-in person, which may end that session.
    by_rest, by_last = tenant.by_token(SCOPES), tenant.by_token(SCOPES)
    for part in PARTS:
        run(tenant, part, ["--include-path-regex", part, *others], tenant.by_token(SCOPES))
    messages = ["--include-tag", "messages", *each("--exclude-operation-id", ENDLESS)]
    run(tenant, "messages", messages, tenant.by_token(MESSAGES))
    # The cookie is a plain header here, so schemathesis cannot leave it out to see whether it is needed.
    of_session = ",".join(check for check in CHECKS.split(",") if check != "ignored_auth")
    people = ["--include-tag", "people", "--exclude-path-regex", "/sign-|/password-reset", *each("--exclude-operation-id", OWN_END)]
    run(tenant, "a signed-in person", people, tenant.by_session(), of_session)
    organisations = ["--include-tag", "organisations", *each("--exclude-operation-id", LAST)]
    run(tenant, "a signed-in person's organisations", organisations, tenant.by_session(), of_session)
    rest = ["--exclude-path-regex", "|".join(PARTS), *others]
    run(tenant, "all the rest", rest, by_rest)
    run(tenant, "what removes much", each("--include-operation-id", LAST), by_last)


main()
