#!/usr/bin/env python3
"""Measures how fast sessions of killed pods resume on the surviving pods, and what that costs.

Starts pods on the cluster of FDB_CLUSTER_FILE. Clients with persistent sessions and a subscription each connect to the pods
that will be killed. Then all these pods get SIGKILL at once, and the clients reconnect to the others. Prints the time, the number
of sessions that were found, and the CPU time; exits with 1 if a session was lost. Machines often allow a process 20,000 open
files, so several killed pods stand for one with more connections.

    storage/tests/foundationdb.sh with loadtests/dead_pods.py --sessions 100000 --kill 6 --nats nats://127.0.0.1:4222
"""

import argparse
import asyncio
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

from server import field, free_port, packet

ROOT = pathlib.Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")
# A server refuses CONNECT while it is busy, and until the lease of the killed pod has expired. The client tries again
# every RETRY_S seconds, for CONNECT_S_MAX seconds.
CONNECT_S_MAX = 300
RETRY_S = 0.2


def cpu_s(pid):
    """User and system time of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Pod:
    def __init__(self, args, name, folder):
        self.name, self.port = name, free_port()
        self.log = folder / f"{name}.log"
        flags = {
            "store": "foundationdb",
            "fdb-cluster-file": os.environ["FDB_CLUSTER_FILE"],
            "fdb-prefix": f"dead-{os.getpid()}",
            "pod": name,
            "mqtt-listen": f"127.0.0.1:{self.port}",
            "ws-listen": "off",
            "http-listen": "off",
        }
        if args.nats:
            flags["nats"] = args.nats
        command = [args.millrace, "serve", *(f"--{flag}={value}" for flag, value in flags.items()), *args.flags]
        self.process = subprocess.Popen(command, stderr=self.log.open("w"))

    def wait(self):
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                time.sleep(0.1)
        sys.exit(f"{self.name} did not start: {self.log.read_text()}")


def text(value):
    return field(value.encode())


def connect_packet(client):
    """CONNECT of MQTT 3.1.1 with Clean Session 0."""
    return packet(0x10, text("MQTT") + bytes([4, 0, 0, 0]) + text(client))


def subscribe_packet(client):
    return packet(0x82, b"\0\1" + text(f"to/{client}") + b"\1")


async def connect(port, client, subscribes):
    """Connects, again after each refusal. Returns the connection, whether the session was present, and the refusals."""
    refused, until = 0, time.monotonic() + CONNECT_S_MAX
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(connect_packet(client) + (subscribe_packet(client) if subscribes else b""))
            connack = await reader.readexactly(4)
            if connack[3] == 0:
                if subscribes:
                    await reader.readexactly(5)
                return writer, connack[2] == 1, refused
            writer.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        refused += 1
        if time.monotonic() > until:
            raise TimeoutError(f"{client} was not accepted for {CONNECT_S_MAX} s")
        await asyncio.sleep(RETRY_S)


async def connect_all(ports, clients, at_once, stays):
    """Connects all clients, `at_once` at a time. Returns open connections, sessions that were present, and refusals."""
    waiting, staying, found, refusals = iter(enumerate(clients)), [], 0, 0

    async def one_after_another():
        nonlocal found, refusals
        for number, client in waiting:
            writer, was_there, refused = await connect(ports[number % len(ports)], client, stays)
            found += was_there
            refusals += refused
            if stays:
                staying.append(writer)
            else:
                writer.write(b"\xe0\0")
                writer.close()

    await asyncio.gather(*(one_after_another() for _ in range(at_once)))
    return staying, found, refusals


def stay(port, clients, at_once, ready, over):
    """Runs in a process: connects the clients of one pod, reports by `ready`, and stays until `over` is readable."""

    async def run():
        staying, _, _ = await connect_all([port], clients, at_once, True)
        os.write(ready, b"+")
        while not select_readable(over):
            await asyncio.sleep(0.1)
        return len(staying)

    return asyncio.run(run())


def select_readable(file):
    return bool(select.select([file], [], [], 0)[0])


def reconnect(ports, clients, at_once):
    _, found, refusals = asyncio.run(connect_all(ports, clients, at_once, False))
    return found, refusals


def fdbservers():
    found = subprocess.run(["pgrep", "-f", f"fdbserver.*{os.environ['FDB_CLUSTER_FILE']}"], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--kill", type=int, default=1, help="pods to kill")
    parser.add_argument("--left", type=int, default=2, help="pods that survive")
    parser.add_argument("--at-once", type=int, default=100, help="clients that connect at once, in each of two processes")
    parser.add_argument("--nats", help="URL of NATS between the pods")
    parser.add_argument("--millrace", default=str(ROOT / "target/release/millrace"))
    parser.add_argument("flags", nargs="*", help="more flags of the pods, behind --")
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    to_kill = [Pod(args, f"killed-{number}", folder) for number in range(args.kill)]
    left = [Pod(args, f"left-{number}", folder) for number in range(args.left)]
    try:
        measure(args, to_kill, left)
    finally:
        for pod in to_kill + left:
            pod.process.kill()
            pod.process.wait()
        print("logs:", folder)


def measure(args, to_kill, left):
    for pod in to_kill + left:
        pod.wait()
    clients = [f"client-{number}" for number in range(args.sessions)]
    ready_out, ready_in = os.pipe()
    over_out, over_in = os.pipe()
    began = time.monotonic()
    with ProcessPoolExecutor(len(to_kill)) as staying:
        parts = [clients[number :: len(to_kill)] for number in range(len(to_kill))]
        tasks = [staying.submit(stay, pod.port, part, 50, ready_in, over_out) for pod, part in zip(to_kill, parts)]
        for _ in to_kill:
            os.read(ready_out, 1)
        cpu = sum(cpu_s(pod.process.pid) for pod in to_kill)
        seconds = time.monotonic() - began
        print(f"{args.sessions} sessions made on {args.kill} pods in {seconds:.1f} s, {cpu * 1e6 / args.sessions:.0f} us of CPU each")
        for pod in to_kill:
            pod.process.send_signal(signal.SIGKILL)
        for pod in to_kill:
            pod.process.wait()
        killed = time.monotonic()
        os.write(over_in, b"+")
        if sum(task.result() for task in tasks) != args.sessions:
            sys.exit("FAILED: not all clients were connected when the pods died")
    before = [sum(map(cpu_s, pids)) for pids in ([pod.process.pid for pod in left], fdbservers())]
    ports = [pod.port for pod in left]
    with ProcessPoolExecutor(2) as coming:
        tasks = [coming.submit(reconnect, ports, clients[half::2], args.at_once) for half in range(2)]
        results = [task.result() for task in tasks]
    seconds = time.monotonic() - killed
    edge, store = (
        (sum(map(cpu_s, pids)) - was) * 1e6 / args.sessions
        for pids, was in zip(([pod.process.pid for pod in left], fdbservers()), before)
    )
    found, refusals = (sum(numbers) for numbers in zip(*results))
    print(f"back on {args.left} pods {seconds:.1f} s after SIGKILL, {args.sessions / seconds:.0f} a second; refused {refusals} times before")
    print(f"each {edge:.0f} us of CPU of the pods, {store:.0f} us of fdbserver; {found} of {args.sessions} sessions were there")
    if found != args.sessions:
        sys.exit("FAILED: sessions were lost")


if __name__ == "__main__":
    main()
