#!/usr/bin/env python3
"""Measures how much subscribing clients of one broker slow the durable publishers of another broker.

    loadtests/fair_writer.py --millrace target/release/millrace [--seconds 5] [--rounds 3] [--window 1]

Starts a server on a free loopback port. Broker "busy" has publishers of QoS 1, whose messages are stored for an offline
session. Broker "other" has two clients with persistent sessions that subscribe and unsubscribe, with --window packets
unanswered. Prints the acknowledged publishes a second without and with these clients for each round, and the ratio of
the medians.
"""

import argparse
import re
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from server import START_S, field, packet


class Client:
    """An MQTT 3.1.1 connection with a persistent session; `answered` counts received packets."""

    def __init__(self, port: int, broker: str, name: str):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        user = field(f"{broker}/{name}".encode())
        self.socket.sendall(packet(0x10, field(b"MQTT") + b"\x04\x80\0\0" + field(name.encode()) + user))
        self.rest, self.id, self.answered = b"", 0, 0
        while not self.answered:
            self.receive()
        self.answered = 0

    def next_id(self) -> bytes:
        self.id = self.id % 60_000 + 1
        return self.id.to_bytes(2, "big")

    def publish(self):
        self.socket.sendall(packet(0x32, field(b"busy/topic") + self.next_id() + b"x" * 64))

    def subscribe(self):
        self.socket.sendall(packet(0x82, self.next_id() + field(b"other/%d/#" % (self.id // 2)) + b"\x01"))

    def unsubscribe(self):
        self.socket.sendall(packet(0xA2, self.next_id() + field(b"other/%d/#" % ((self.id - 1) // 2))))

    def receive(self) -> int:
        """Reads once from the socket, and returns the number of complete packets, each shorter than 128 bytes."""
        data = self.socket.recv(65_536)
        if not data:
            raise SystemExit("the server has closed a connection")
        self.rest += data
        count = 0
        while len(self.rest) >= 2 and len(self.rest) >= 2 + self.rest[1]:
            self.rest = self.rest[2 + self.rest[1] :]
            count += 1
        self.answered += count
        return count


def measure(publishers: list, changers: list, seconds: float, ahead: int, window: int) -> tuple:
    """Returns the answers a second to publishers and to `changers`, which subscribe and unsubscribe by turns. A publisher
    has `ahead` unacknowledged messages, a changer `window` unanswered packets."""
    clients = {client.socket: client for client in publishers + changers}
    for client in clients.values():
        client.answered = 0
    for client in publishers:
        for _ in range(ahead):
            client.publish()
    turns = {client: 0 for client in changers}

    def change(client):
        turns[client] += 1
        client.subscribe() if turns[client] % 2 else client.unsubscribe()

    for client in changers:
        for _ in range(window):
            change(client)
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        for ready in select.select(list(clients), [], [], 0.1)[0]:
            client = clients[ready]
            for _ in range(client.receive()):
                change(client) if client in turns else client.publish()
    took = time.monotonic() - began
    rates = [sum(client.answered for client in some) / took for some in (publishers, changers)]
    outstanding = {client: window if client in turns else ahead for client in clients.values()}
    for client, count in outstanding.items():
        while count > 0:
            count -= client.receive()
    return tuple(rates)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--publishers", type=int, default=4)
    parser.add_argument("--ahead", type=int, default=20, help="unacknowledged messages of a publisher")
    parser.add_argument("--window", type=int, default=1, help="unanswered packets of a client that subscribes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = open(f"{folder}/log", "w+", encoding="utf-8")
        server = subprocess.Popen(
            [options.millrace, "serve", "--mqtt-listen=127.0.0.1:0", "--ws-listen=off", "--http-listen=off"]
            + ["--brokers=busy,other", "--allow-anonymous=true", f"--data-dir={folder}/data"],
            stderr=log,
        )
        try:
            run(server, f"{folder}/log", options)
        finally:
            server.terminate()
            server.wait(30)


def run(server, log: str, options):
    end, port = time.monotonic() + START_S, None
    while not port:
        found = re.search(r"mqtt://127\.0\.0\.1:(\d+)", open(log, encoding="utf-8").read())
        port = found and int(found[1])
        if server.poll() is not None or time.monotonic() > end:
            sys.exit("the server did not start")
        time.sleep(0.05)
    away = Client(port, "busy", "away")
    away.socket.sendall(packet(0x82, away.next_id() + field(b"busy/#") + b"\x01"))
    away.receive()
    away.socket.close()
    publishers = [Client(port, "busy", f"p{number}") for number in range(options.publishers)]
    changers = [Client(port, "other", f"c{number}") for number in range(2)]
    alone, beside = [], []
    for number in range(options.rounds):
        rate, _ = measure(publishers, [], options.seconds, options.ahead, 0)
        alone.append(rate)
        rate, changes = measure(publishers, changers, options.seconds, options.ahead, options.window)
        beside.append(rate)
        print(f"round {number + 1}: alone {alone[-1]:.0f}/s, beside {rate:.0f}/s with {changes:.0f} changes/s")
    print(f"beside / alone: {statistics.median(beside) / statistics.median(alone):.2f}")


main()
