#!/usr/bin/env python3
"""Measures MQTT and /healthz while strangers hold idle connections of the HTTP port.

    loadtests/idle_http.py --millrace target/release/millrace [--strangers 20000] [--seconds 10]

Starts a server on free loopback ports. Strangers of 127.1.0.0/16, 250 of an address, connect to the HTTP port and send
nothing. A stranger whose connection the server closes connects again. An MQTT client publishes with QoS 1, first alone,
then beside the strangers. Exits with 1 unless
- the strangers have opened as many connections as there are strangers, and the server holds no more than
  `http_connections_max`,
- each PUBLISH beside them has its PUBACK within --puback-ms, and new MQTT clients connect,
- /healthz of the HTTP port and of the admin port answers within --healthz-ms.
"""

import argparse
import http.client
import os
import resource
import selectors
import socket
import sys
import threading
import time

from server import START_S, field, serving

PER_ADDRESS = 250
CONNECTIONS_MAX = 2_048
HELD_MIN = 256  # with 20,000 files the server keeps most for MQTT, and allows 625
PAUSE_S = 0.05
# Descriptors of this process that are no strangers.
SPARE = 256


def open_files_max() -> int:
    """Raises `ulimit -n` as far as this process may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


class Strangers(threading.Thread):
    def __init__(self, port: int, number: int):
        super().__init__(daemon=True)
        self.port, self.number = port, number
        self.opened = self.closed = self.failed = 0
        self.all_came, self.stop = threading.Event(), threading.Event()
        self.selector = selectors.DefaultSelector()
        self.waiting = list(range(number))
        self.at_once = min(number, open_files_max() - SPARE)
        self.most = 0

    def run(self):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 5)
        while not self.stop.is_set():
            for _ in range(min(100, len(self.waiting), self.at_once - len(self.selector.get_map()))):
                self.open(self.waiting.pop())
            self.most = max(self.most, len(self.selector.get_map()))
            if self.opened >= self.number:
                self.all_came.set()
            for key, _ in self.selector.select(0.01):
                self.close(key.fileobj, key.data)
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()

    def open(self, stranger: int):
        connection = socket.socket()
        address = stranger // PER_ADDRESS
        try:
            connection.bind((f"127.1.{address >> 8}.{address & 255}", 0))
            connection.settimeout(1)
            connection.connect(("127.0.0.1", self.port))
            connection.setblocking(False)
        except OSError:
            self.failed += 1
            connection.close()
            self.waiting.insert(0, stranger)
            return
        self.opened += 1
        self.selector.register(connection, selectors.EVENT_READ, stranger)

    def close(self, connection: socket.socket, stranger: int):
        self.selector.unregister(connection)
        connection.close()
        self.closed += 1
        self.waiting.insert(0, stranger)


def connect(port: int, client: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=START_S)
    body = field(b"MQTT") + b"\x04\x02\0\0" + field(client.encode())
    connection.sendall(b"\x10" + bytes([len(body)]) + body)
    answer = connection.recv(4)
    if answer != b"\x20\x02\0\0":
        raise RuntimeError(f"CONNECT was refused: {answer!r}")
    return connection


def slowest_ms(mqtt: int, health: list, seconds: float):
    """The slowest CONNECT with PUBLISH and PUBACK, and the slowest /healthz, in milliseconds."""
    publisher, ends = connect(mqtt, "publisher"), time.monotonic() + seconds
    publishes, checks = [], []
    while time.monotonic() < ends:
        begun = time.monotonic()
        connect(mqtt, f"newcomer-{len(publishes)}").close()
        publisher.sendall(b"\x32" + bytes([2 + 4 + 2 + 1]) + field(b"idle") + b"\0\1x")
        if publisher.recv(4) != b"\x40\x02\0\1":
            raise RuntimeError("there was no PUBACK")
        publishes.append(time.monotonic() - begun)
        for port in health:
            begun = time.monotonic()
            asked = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
            asked.request("GET", "/healthz")
            if (status := asked.getresponse().status) != 200:
                raise RuntimeError(f"/healthz: {status}")
            asked.close()
            checks.append(time.monotonic() - begun)
        time.sleep(PAUSE_S)
    publisher.close()
    return max(publishes) * 1_000, max(checks) * 1_000, len(publishes)


def open_connections(admin: int) -> int:
    asked = http.client.HTTPConnection("127.0.0.1", admin, timeout=START_S)
    asked.request("GET", "/metrics")
    lines = asked.getresponse().read().decode().splitlines()
    asked.close()
    return int(next(line for line in lines if line.startswith("millrace_http_connections_open ")).split()[1])


def measure(args, mqtt: int, web: int, admin: int) -> bool:
    alone, health_alone, _ = slowest_ms(mqtt, [web, admin], args.seconds)
    print(f"alone: MQTT {alone:.1f} ms at most, /healthz {health_alone:.1f} ms at most")
    strangers = Strangers(web, args.strangers)
    print(f"ulimit -n is {open_files_max()}: at most {strangers.at_once} of {args.strangers} strangers at once")
    strangers.start()
    try:
        if not strangers.all_came.wait(args.patience):
            print(f"FAILED: only {strangers.opened} of {args.strangers} strangers came, {strangers.failed} failed")
            return False
        beside, health, publishes = slowest_ms(mqtt, [web, admin], args.seconds)
        held = open_connections(admin)
    finally:
        strangers.stop.set()
        strangers.join(START_S)
    print(
        f"beside {args.strangers} strangers ({strangers.opened} connections opened, {strangers.closed} closed by the server, {strangers.most} at once,"
        f" {held} open): MQTT {beside:.1f} ms at most of {publishes}, /healthz {health:.1f} ms at most"
    )
    is_bounded = HELD_MIN <= held <= CONNECTIONS_MAX
    is_well = is_bounded and beside <= args.puback_ms and health <= args.healthz_ms
    print(
        f"{'well' if is_well else 'FAILED'}: at most {CONNECTIONS_MAX} connections, MQTT at most {args.puback_ms} ms,"
        f" /healthz at most {args.healthz_ms} ms"
    )
    return is_well


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--strangers", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--patience", type=float, default=120)
    parser.add_argument("--puback-ms", type=float, default=500.0)
    parser.add_argument("--healthz-ms", type=float, default=500.0)
    args = parser.parse_args()
    with serving(args.millrace) as (mqtt, web, admin):
        return 0 if measure(args, mqtt, web, admin) else 1


if __name__ == "__main__":
    sys.exit(main())
