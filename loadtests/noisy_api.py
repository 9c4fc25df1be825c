#!/usr/bin/env python3
"""Measures how much expensive API requests of one tenant slow another tenant and /healthz.

    loadtests/noisy_api.py --millrace target/release/millrace [--parallel 60] [--seconds 10] [--rounds 5]

Starts a server on free loopback ports. The tenant "loud" has 2,000 sessions and waiting messages. The tenant "quiet"
requests /me, and /healthz of the HTTP port and of the admin port is asked: in each round first alone, then beside
--parallel connections that list sessions, topics, usage and audit log of "loud". Prints a table of the rounds and their
medians. Exits with 1 unless the median p99 of /me is at most --ratio times the median p99 alone, and the median of the
slowest /healthz of each port is below --healthz-ms.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import random
import socket
import statistics
import sys
import threading
import time

from server import START_S, field, packet, serving

NICE = 5
SESSIONS = 2_000
WAITING = 500
EXPENSIVE = ("sessions?limit=200", "topics", "usage")


class Tenant:
    """A signed-up person with an organisation, and one HTTP connection."""

    def __init__(self, http_port: int, name: str):
        self.port, self.headers = http_port, {}
        self.connection = http.client.HTTPConnection("127.0.0.1", http_port, timeout=60)
        body = {"email": f"{name}@example.org", "password": "a sentence for nobody", "name": name}
        signed_up, headers = self.ask("POST", "/sign-up", body)
        self.headers = {
            "Cookie": headers["set-cookie"].split(";")[0],
            "X-CSRF-Token": signed_up["csrf_token"],
        }
        self.organisation = f"/organisations/{signed_up['organisations'][0]['id']}"

    def ask(self, method: str, path: str, body=None):
        headers = {**self.headers, **({"Content-Type": "application/json"} if body is not None else {})}
        text = json.dumps(body) if body is not None else None
        self.connection.request(method, f"/api/v1{path}", text, headers)
        answer = self.connection.getresponse()
        data = answer.read()
        if answer.status >= 400 and answer.status != 429:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:300]!r}")
        is_json = answer.getheader("content-type", "").startswith("application/json")
        return (json.loads(data) if is_json else None), answer.headers

    def again(self) -> "Tenant":
        other = object.__new__(Tenant)
        other.__dict__.update(self.__dict__)
        other.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        return other


def populate(loud: Tenant, mqtt_port: int) -> str:
    """Creates a broker with SESSIONS offline sessions and WAITING messages queued for each. Returns its API path."""
    made, _ = loud.ask("POST", f"{loud.organisation}/brokers", {"display_name": "loud"})
    broker, name = f"{loud.organisation}/brokers/{made['name']}", made["name"]
    credential, _ = loud.ask("POST", f"{broker}/credentials", {"user": "fleet"})
    user, password = field(f"{name}/fleet".encode()), field(credential["secret"].encode())

    def connect(client: str) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", mqtt_port))
        connection.settimeout(START_S)
        connection.sendall(packet(0x10, field(b"MQTT") + b"\x04\xc0\0\0" + field(client.encode()) + user + password))
        answer = connection.recv(4)
        if answer[3:4] != b"\0":
            raise RuntimeError(f"CONNECT was refused: {answer!r}")
        return connection

    for number in range(SESSIONS):
        connection = connect(f"pump-{number}")
        connection.sendall(packet(0x82, b"\0\1" + field(b"plant/#") + b"\1"))
        connection.recv(5)
        connection.sendall(b"\xe0\0")
        connection.close()
    publisher = connect("publisher")
    for number in range(WAITING):
        topic = field(f"plant/{number % 200}".encode())
        publisher.sendall(packet(0x33, topic + (number + 1).to_bytes(2, "big") + b"x" * 100))
        publisher.recv(4)
    publisher.close()
    return broker


def p99_ms(times: list) -> float:
    return sorted(times)[int(len(times) * 0.99)] * 1_000


def ask_health(connection: http.client.HTTPConnection) -> float:
    begun = time.monotonic()
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"/healthz: {answer.status}")
    return time.monotonic() - begun


def watch(quiet: Tenant, admin_port: int, seconds: float) -> list:
    """p99 of /me, and the slowest /healthz of the HTTP port and of the admin port, in milliseconds."""
    ends, me, health = time.monotonic() + seconds, [], ([], [])
    ports = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for port in (quiet.port, admin_port)]
    while time.monotonic() < ends:
        begun = time.monotonic()
        quiet.ask("GET", "/me")
        me.append(time.monotonic() - begun)
        for port, times in zip(ports, health, strict=True):
            times.append(ask_health(port))
        # Below the number of requests that one person may send in a second.
        time.sleep(0.03)
    return [p99_ms(me), *(max(times) * 1_000 for times in health)]


def be_loud(loud: Tenant, broker: str, parallel: int, stop, counts):
    """Runs in its own process, so that its threads do not delay the measuring thread, and with the priority of the hostile
    suite's clients, because its clients would be on other machines."""
    os.nice(NICE)
    done = []
    threads = [threading.Thread(target=make_noise, args=(loud, broker, stop, done)) for _ in range(parallel)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts.put((sum(done), len(done) - sum(done)))


def make_noise(loud: Tenant, broker: str, stop, done: list):
    client = loud.again()
    while not stop.is_set():
        path = random.choice([f"{broker}/{path}" for path in EXPENSIVE] + [f"{loud.organisation}/audit?limit=200"])
        _, headers = client.ask("GET", path)
        refused = headers.get("retry-after")
        done.append(refused is None)
        if refused is not None:
            # Ignores Retry-After, as a badly written client does.
            stop.wait(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--parallel", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ratio", type=float, default=2.0)
    parser.add_argument("--healthz-ms", type=float, default=50.0)
    args = parser.parse_args()
    with serving(args.millrace, "--sign-up", "anybody") as (mqtt, web, admin):
        loud, quiet = Tenant(web, "loud"), Tenant(web, "quiet")
        broker = populate(loud, mqtt)
        return 0 if compare(args, loud, quiet, broker, admin) else 1


COLUMNS = "/me p99", "/healthz HTTP", "/healthz admin"
ROW = "{:<10}" + "{:>11} {:>7}" * 3 + "{:>10} {:>8}"


def compare(args, loud: Tenant, quiet: Tenant, broker: str, admin: int) -> bool:
    rounds = []
    print(f"milliseconds alone and beside {args.parallel} connections: {', '.join(COLUMNS)}; answered and refused requests")
    print(ROW.format("round", *("alone", "beside") * 3, "answered", "refused"))
    for number in range(args.rounds):
        alone = watch(quiet.again(), admin, args.seconds)
        stop, counts = multiprocessing.Event(), multiprocessing.Queue()
        noise = multiprocessing.Process(target=be_loud, args=(loud, broker, args.parallel, stop, counts))
        noise.start()
        beside = watch(quiet.again(), admin, args.seconds)
        stop.set()
        made = counts.get(timeout=120)
        noise.join()
        rounds.append((alone, beside))
        print(ROW.format(number + 1, *in_pairs(alone, beside), *made), flush=True)
    alone, beside = ([statistics.median(column) for column in zip(*rows, strict=True)] for rows in zip(*rounds, strict=True))
    print(ROW.format("median", *in_pairs(alone, beside), "", ""))
    ratio, health = beside[0] / alone[0], max(beside[1:])
    is_well = ratio <= args.ratio and health < args.healthz_ms
    print(f"{'well' if is_well else 'FAILED'}: {ratio:.2f} times (at most {args.ratio}), /healthz {health:.1f} ms (below {args.healthz_ms})")
    return is_well


def in_pairs(alone: list, beside: list) -> list:
    return [f"{value:.1f}" for pair in zip(alone, beside, strict=True) for value in pair]


if __name__ == "__main__":
    sys.exit(main())
