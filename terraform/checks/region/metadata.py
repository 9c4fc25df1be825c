"""Stands in for the instance metadata service: a token, a name, and credentials that moto takes."""

import http.server
import json

ROLE = "meta-data/iam/security-credentials/"
KEYS = {"AccessKeyId": "test", "SecretAccessKey": "test", "Token": "test"}

ANSWERS = {
    f"/latest/{ROLE}": "machine\n",
    f"/latest/{ROLE}machine": json.dumps(KEYS),
    # Only the edge machine asks.
    "/latest/meta-data/instance-id": "i-edge",
}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        self.answer("token" if self.path == "/latest/api/token" else None)

    def do_GET(self):
        if self.headers.get("X-aws-ec2-metadata-token") != "token":
            return self.send_error(401)
        self.answer(ANSWERS.get(self.path))

    def answer(self, text):
        if text is None:
            return self.send_error(404)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("169.254.169.254", 80), Handler).serve_forever()
