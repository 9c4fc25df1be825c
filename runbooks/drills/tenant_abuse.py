"""Somebody guesses passwords of a tenant's broker; the address is banned."""

import json
import os
import socket
import threading
import urllib.request

API = "http://127.0.0.1:8080/api/v1"
SCOPES = ["brokers:read", "access:read", "access:write", "clients:read", "clients:write"]


def ask(path, body, jar={}):
    """As the console does it: a cookie and a token against forged requests."""
    headers = {"Content-Type": "application/json", "If-Match": "*"} | jar.get("headers", {})
    request = urllib.request.Request(API + path, json.dumps(body).encode() if body is not None else None, headers)
    with urllib.request.urlopen(request) as answer:
        if cookie := answer.headers.get("Set-Cookie"):
            jar["headers"] = {"Cookie": cookie.split(";")[0]}
        text = json.load(answer)
    if "csrf_token" in text:
        jar["headers"]["X-CSRF-Token"] = text["csrf_token"]
    return text


def connect_packet(*texts):
    """MQTT 3.1.1 with client id, user name and password."""
    body = b"\x00\x04MQTT\x04\xc2\x00\x3c" + b"".join(len(text).to_bytes(2, "big") + text.encode() for text in texts)
    return bytes([0x10, len(body)]) + body


def guess(broker, over):
    number = 0
    while not over.wait(0.05):
        with socket.create_connection(("127.0.0.1", 1883)) as sock:
            sock.sendall(connect_packet(f"guess-{number}", f"{broker}/admin", f"secret{number}"))
            sock.recv(4)
        number += 1


def run(drill):
    drill.server("--sign-up", "anybody", "--metrics-brokers-max", "20")
    ask("/sign-up", {"email": "ann@example.org", "password": "a sentence for nobody", "name": "Ann"})
    organisation = ask("/organisations", None)["items"][0]["id"]
    broker = ask(f"/organisations/{organisation}/brokers", {"display_name": "Plant 7"})["name"]
    drill.say("a tenant has a broker")
    drill.calm()
    drill.say("FAULT somebody tries passwords, over and over")
    over = threading.Event()
    threads = [threading.Thread(target=guess, args=(broker, over), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        drill.fires("CredentialsGuessed")
        drill.say("ACT   ban the address for a day")
        secret = ask(f"/organisations/{organisation}/tokens", {"name": "drill", "scopes": SCOPES})["secret"]
        os.environ |= {"MILLRACE_URL": API.removesuffix("/api/v1"), "MILLRACE_ORGANISATION": organisation, "MILLRACE_TOKEN": secret}
        drill.run(f"millrace clients ban guesser --broker {broker} --address 127.0.0.1/32 --for-s 86400 --reason 'guesses passwords'")
        drill.run(f"millrace clients bans --broker {broker}")
        drill.until_value('sum(rate(millrace_connects_refused_total{reason="banned"}[10s]))', lambda values: values and values[0] > 1)
        drill.until_value('sum(rate(millrace_connects_refused_total{reason="credentials"}[10s]))', lambda values: values == [0])
        drill.check("the banned address costs no more password checks", True)
        drill.say("the guesser gives up")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    drill.ends("CredentialsGuessed")
