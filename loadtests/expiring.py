#!/usr/bin/env python3
"""Measures how much many sessions that expire at once delay the PUBACKs of other clients.

    loadtests/expiring.py --millrace target/release/millrace [--sessions 20000] [--publishers 4] [--rounds 3]

Starts a server on free loopback ports. In each round --sessions clients make a persistent session with a subscription
each, and end their connections so that all sessions expire at one moment. Publishers of QoS 1, whose messages are
stored for an offline session, send the next message after each PUBACK. Prints the times of PUBACKs before that moment, and after
it until no such session is left. Exits with 1 if the best round has a p99 of more than --ratio times the p99 before.
The best round counts, because the driver shares the machine with the server.
"""

import argparse
import asyncio
import re
import select
import socket
import sys
import threading
import time
import urllib.request
from concurrent.futures import ProcessPoolExecutor

from server import field, packet, serving

AT_ONCE = 50
TRIES = 100
KEPT_S = 3_600
PATIENCE_S = 600
# Pauses before the sessions expire: after the measurement without them, and before the one with them.
QUIET_S, EARLY_S = 2, 0.5


def expiry(seconds: int) -> bytes:
    return b"\x05\x11" + seconds.to_bytes(4, "big")


def connect(name: str) -> bytes:
    return packet(0x10, field(b"MQTT") + b"\x05\0\0\0" + expiry(KEPT_S) + field(name.encode()))


def subscribe(topic_filter: str) -> bytes:
    return packet(0x82, b"\0\1\0" + field(topic_filter.encode()) + b"\1")


async def answer(reader) -> bytes:
    head = await reader.readexactly(2)
    return head[:1] + await reader.readexactly(head[1])


async def make_session(port: int, name: str, topic_filter: str, ends_at: float):
    """Makes a session that expires at `ends_at`; later, if the server refuses clients for now."""
    for _ in range(TRIES):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(connect(name) + subscribe(topic_filter))
            if (await answer(reader))[2] == 0:
                await answer(reader)
                left_s = max(1, round(ends_at - time.monotonic()))
                writer.write(packet(0xE0, b"\0" + expiry(left_s)))
                await reader.read()
                return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
        await asyncio.sleep(0.2)
    raise SystemExit(f"{name} was not accepted")


async def make_some(port: int, numbers: range, ends_at: float):
    waiting = iter(numbers)

    async def some():
        for number in waiting:
            await make_session(port, f"s{number}", f"to/{number}/#", ends_at)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


def make_part(port: int, numbers: range, ends_at: float):
    """Runs in a process of its own."""
    asyncio.run(make_some(port, numbers, ends_at))


def make_sessions(port: int, options, ends_at: float):
    with ProcessPoolExecutor(options.makers) as makers:
        parts = [range(first, options.sessions, options.makers) for first in range(options.makers)]
        for part in [makers.submit(make_part, port, part, ends_at) for part in parts]:
            part.result()


class Publisher:
    """Has one message unacknowledged; `times` are those of its PUBACKs, in seconds."""

    def __init__(self, port: int, number: int):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(packet(0x10, field(b"MQTT") + b"\x05\x02\0\0\0" + field(f"p{number}".encode())))
        self.receive()
        self.times, self.sent_at = [], 0.0

    def receive(self):
        head = self.socket.recv(2, socket.MSG_WAITALL)
        if len(head) < 2:
            raise SystemExit("the server has closed a connection")
        return self.socket.recv(head[1], socket.MSG_WAITALL)

    def publish(self):
        self.sent_at = time.monotonic()
        self.socket.sendall(packet(0x32, field(b"kept/topic") + b"\0\1\0" + b"x" * 64))

    def acknowledged(self):
        self.receive()
        self.times.append(time.monotonic() - self.sent_at)


def publish_while(publishers: list, goes_on) -> list:
    """Publishes as long as `goes_on()`, and returns the times of the PUBACKs, the shortest first."""
    of_socket = {publisher.socket: publisher for publisher in publishers}
    for publisher in publishers:
        publisher.times = []
        publisher.publish()
    while goes_on():
        for ready in select.select(list(of_socket), [], [], 0.1)[0]:
            of_socket[ready].acknowledged()
            of_socket[ready].publish()
    for publisher in publishers:
        publisher.acknowledged()
    return sorted(time_s for publisher in publishers for time_s in publisher.times)


class Left:
    """Whether sessions are left. A thread asks the server twice a second, so that publishers do not wait for answers."""

    def __init__(self, admin_port: int):
        self.url, self.are_left = f"http://127.0.0.1:{admin_port}/metrics", True
        self.others = self.count()

    def count(self) -> int:
        with urllib.request.urlopen(self.url, timeout=30) as metrics:
            return int(re.search(r"^millrace_sessions\S* (\d+)", metrics.read().decode(), re.MULTILINE)[1])

    def ask(self):
        gives_up_at = time.monotonic() + PATIENCE_S
        while self.are_left and time.monotonic() < gives_up_at:
            time.sleep(0.5)
            self.are_left = self.count() > self.others


def of(times: list, part: float) -> float:
    return 1_000 * times[min(len(times) - 1, int(part * len(times)))]


def show(what: str, times: list, seconds: float):
    quantiles = ", ".join(f"{name} {of(times, part):.2f}" for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1)))
    print(f"  {what}: {len(times) / seconds:.0f} PUBACKs/s, in ms: {quantiles}")


def measure(ports: tuple, publishers: list, options) -> float:
    mqtt, _, admin = ports
    sessions = Left(admin)
    ends_at = time.monotonic() + options.making_s
    make_sessions(mqtt, options, ends_at)
    spare_s = ends_at - QUIET_S - time.monotonic()
    print(f"  {options.sessions} sessions made in {options.making_s - QUIET_S - spare_s:.1f} s")
    if spare_s < options.seconds:
        raise SystemExit(f"the sessions took {options.making_s - spare_s:.0f} s: raise --making-s")
    before_ends = time.monotonic() + options.seconds
    before = publish_while(publishers, lambda: time.monotonic() < before_ends)
    time.sleep(max(0.0, ends_at - time.monotonic() - EARLY_S))
    began = time.monotonic()
    asking = threading.Thread(target=sessions.ask)
    asking.start()
    during = publish_while(publishers, lambda: sessions.are_left and asking.is_alive())
    if sessions.are_left:
        raise SystemExit("the sessions do not end")
    took = time.monotonic() - began
    show("before", before, options.seconds)
    show("during", during, took)
    ratio = of(during, 0.99) / of(before, 0.99)
    print(f"  {options.sessions} sessions ended in {took:.1f} s; p99 during / before: {ratio:.2f}")
    return ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--makers", type=int, default=1, help="processes that make the sessions")
    parser.add_argument("--publishers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="measured before the sessions expire")
    parser.add_argument("--making-s", type=float, default=60, help="from the first session until all expire")
    parser.add_argument("--ratio", type=float, default=1.2)
    parser.add_argument("flags", nargs="*", help="more flags of the server, behind --")
    options = parser.parse_args()
    with serving(options.millrace, "--allow-anonymous=true", *options.flags) as ports:
        asyncio.run(make_session(ports[0], "away", "kept/#", time.monotonic() + KEPT_S))
        publishers = [Publisher(ports[0], number) for number in range(options.publishers)]
        ratios = []
        for number in range(options.rounds):
            print(f"round {number + 1}")
            ratios.append(measure(ports, publishers, options))
    if min(ratios) > options.ratio:
        sys.exit(f"the p99 grows to {min(ratios):.2f} times, more than {options.ratio:.2f}")


if __name__ == "__main__":
    main()
