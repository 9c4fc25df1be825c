#!/usr/bin/env python3
"""Plants faults between k6 and a broker, and checks that a scenario fails for each and passes without.

The broker is a Millrace that this starts (MILLRACE names the program). Prints a line for each check.
"""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import run  # noqa: E402

PUBLISH, PUBACK = 3, 4
SECONDS_MAX = 60
# Number of the PUBLISH on each connection at which the fault is planted.
FAULT_AT = 50
PAIRS = {"LOAD_PAIRS": "2", "LOAD_DELIVERY_P99_MS": "5000"}


class Case(NamedTuple):
    fault: str
    # The threshold that the fault must cross.
    threshold: str | None
    scenario: str = "fanout"
    settings: dict = {}


# Each message waits for the acknowledgement of the one before, which takes five times as long as the rate leaves.
SLOW = "a fifth of the planned rate"
SLOW_SECONDS = 0.05
CASES = [
    Case("nothing", None),
    Case("a lost message", "mqtt_messages_lost"),
    Case("a repeated message", "mqtt_messages_repeated"),
    Case("a message out of order", "mqtt_messages_out_of_order"),
    Case("a delay of 600 ms", "mqtt_delivery_duration"),
    Case("a connection cut", "mqtt_errors"),
    Case(SLOW, "mqtt_messages_expected", settings={"LOAD_QOS": "1", "LOAD_WINDOW": "1"}),
    Case("each message twice", "mqtt_messages_repeated", "durable-online", PAIRS),
    Case("nothing", None, "durable-online", PAIRS | {"LOAD_QOS": "2"}),
    Case("a message twice", "mqtt_messages_repeated", "durable-online", PAIRS | {"LOAD_QOS": "2"}),
    Case("no neighbour", "mqtt_messages_expected{flow:neighbour}", "fairness", {"LOAD_PUBLISHERS": "0"}),
]


def packets(connection):
    """Whole MQTT packets of a stream, until it ends."""
    buffer = b""
    while data := connection.recv(65536):
        buffer += data
        while (end := packet_end(buffer)) and len(buffer) >= end:
            yield buffer[:end]
            buffer = buffer[end:]


def packet_end(buffer):
    """Length of the first packet, 0 while its header is not whole."""
    length = 0
    for i, byte in enumerate(buffer[1:5]):
        length |= (byte & 127) << (7 * i)
        if byte < 128:
            return 2 + i + length
    return 0


def as_new(packet):
    """The same PUBLISH of QoS 1 or 2 with another packet id, so that its receiver takes it for a new message."""
    header = next(end for end in range(2, 6) if packet[end - 1] < 128)
    at = header + 2 + int.from_bytes(packet[header : header + 2], "big")
    return packet[:at] + bytes([packet[at] ^ 0x40]) + packet[at + 1 :]


class Proxy:
    """Hands packets on between clients and a broker, apart from one planted fault."""

    def __init__(self, broker_port, fault):
        self.broker_port, self.fault = broker_port, fault
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                broker = socket.create_connection(("127.0.0.1", self.broker_port))
                for end in (client, broker):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.pump, args=(client, broker, lambda _, p: [p]), daemon=True).start()
                threading.Thread(target=self.pump, args=(broker, client, self.break_packet), daemon=True).start()

    def pump(self, source, sink, change):
        held = []
        with contextlib.suppress(OSError):
            for packet in packets(source):
                for out in change(held, packet):
                    sink.sendall(out)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def break_packet(self, state, packet):
        """The packets to send for one packet of the broker. `state`: the number of PUBLISH packets, then a packet that is held back."""
        if packet[0] >> 4 == PUBACK and self.fault == SLOW:
            time.sleep(SLOW_SECONDS)
        if packet[0] >> 4 != PUBLISH:
            return [packet]
        if self.fault == "each message twice":
            return [packet, packet]
        state[:] = state or [0]
        state[0] += 1
        if state[0] != FAULT_AT:
            held, state[1:] = state[1:], []
            return [packet, *held]
        match self.fault:
            case "a lost message":
                return []
            case "a repeated message":
                return [packet, packet]
            case "a message twice":
                return [packet, as_new(packet)]
            case "a message out of order":
                state.append(packet)
                return []
            case "a delay of 600 ms":
                time.sleep(0.6)
            case "a connection cut":
                raise ConnectionAbortedError
        return [packet]


def crossed(port, http, case):
    """Runs a small scenario through the fault, and returns k6's exit code and its stderr. The fan-out is of QoS 0."""
    proxy = Proxy(port, case.fault)
    environment = {
        **os.environ, "MQTT_URL": f"mqtt://127.0.0.1:{proxy.port}", "LOAD_SECONDS": "1.5", "LOAD_RECEIVERS": "10",
        "LOAD_RATE": "100", "LOAD_DELIVERY_P99_MS": "400", "LOAD_QUIET_SECONDS": "1", "LOAD_AHEAD": "0",
        "K6_NO_USAGE_REPORT": "true", "LOAD_PREFIX": f"planted-{os.getpid()}",
        "MILLRACE_HTTP": http, **case.settings,
    }
    command = [run.K6, "run", "--quiet", "--no-summary", str(HERE.parent / f"scenarios/{case.scenario}.js")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX)
    proxy.listener.close()
    return done.returncode, done.stderr


def check(port, http):
    failed = 0
    for case in CASES:
        threshold = case.threshold
        code, said = crossed(port, http, case)
        verdict = [line for line in said.splitlines() if "have been crossed" in line or "has been crossed" in line]
        seen = code == 0 if threshold is None else code == 99 and any(threshold in line for line in verdict)
        failed += not seen
        expected = "passes" if threshold is None else f"crosses {threshold}"
        what = f"with {case.fault}, {case.scenario}"
        print(f"ok k6: {what} {expected}" if seen else f"FAILED: k6: {what} should: {expected}; k6 ended with {code}: {said[-2000:]}", flush=True)
    return failed


def main():
    if not pathlib.Path(run.K6).exists():
        print("SKIPPED: k6: it is not built (make k6)")
        return 0
    with run.server() as own:
        return check(own.port, own.http)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
