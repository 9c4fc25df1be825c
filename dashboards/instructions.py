"""Counts instructions for each message with valgrind's callgrind: unlike CPU time, the count does not depend on what else the machine does.

Telemetry costs in two places. The event loops and the store's writer make spans, so their instructions for each message are compared
with a run without telemetry. The exporting thread works by itself, so its instructions are shown beside. Work in the kernel is not
counted. It is the same with and without telemetry, so the ratio of CPU time is smaller.

Metrics are exported once, before the counting: an export costs the same however many messages a server has, and a server under
valgrind has a fiftieth of them. For the same reason a limit of traces per second has to be smaller here, so that the same share
of the messages is traced as without valgrind. `Traces` computes the limit and the share.
"""

import http.server
import json
import math
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

HOST = "127.0.0.1"
# Under valgrind a program runs about fifty times slower.
START_SECONDS_MAX, DUMP_SECONDS_MAX, RUN_SECONDS_MAX = 120, 60, 300
# Work that a server does once after its start must not count as that of an idle server.
SETTLE_SECONDS = 10
LATE_MAX = 9
# Connections that all arrive at once must not wait too long for a server this slow.
PAIRS = 5
INTERVAL = ["--otlp-interval-s", "3600"]
TRACED = 'millrace_traces_total{result="followed"}'
# A thread belongs to the kind of which it runs a function: event loops and the writer carry messages.
KINDS = {
    "messages": ("millrace_edge::core::packets::", "millrace_edge::store::writer::"),
    "exporter": ("millrace_telemetry::exporter::",),
}


# The default of traces_per_second_max.
TRACES_PER_SECOND = 100


class Traces:
    """The traces of a scenario whose messages a second are known: `native` without valgrind, `counted` with it."""

    def __init__(self, native, counted):
        self.native = native
        # Whole traces a second, so the share under valgrind may be larger than it has to be.
        self.limit = math.ceil(TRACES_PER_SECOND * counted / native)

    def share(self, unbounded, times=1):
        """Traces for each message without valgrind. `unbounded` was counted without the limit of traces, at a trace ratio that `times`
        scales. A delivery of a fan-out is a message here, and its trace is of all deliveries."""
        return min(times * unbounded["traced"], TRACES_PER_SECOND / self.native)


def each(off, cost, kind):
    """Instructions that a trace takes."""
    return (cost[kind] - off[kind]) / cost["traced"]


class Collector(http.server.ThreadingHTTPServer):
    """Takes every request. A process of its own is not needed, because only the server's instructions are counted."""

    daemon_threads = True

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    def __init__(self):
        super().__init__((HOST, 0), self.Handler)
        self.endpoint = f"http://{HOST}:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


def total(text):
    return sum(int(number) for number in re.search(r"^totals: ([\d ]+)", text, re.M)[1].split())


def by_kind(*dumps):
    """Instructions by kind of thread, for each dump. A dump has the text of each thread by its number."""
    kinds = {}
    for kind, functions in KINDS.items():
        for dump in dumps:
            runs = (thread for thread, text in dump.items() if any(function in text for function in functions))
            kinds |= {thread: kinds.get(thread, kind) for thread in runs}
    return [{kind: sum(total(text) for thread, text in dump.items() if kinds.get(thread) == kind) for kind in KINDS} for dump in dumps]


def until(condition, what, seconds_max):
    for _ in range(seconds_max * 10):
        if found := condition():
            return found
        time.sleep(0.1)
    raise RuntimeError(what)


def patiently(load):
    """Repeats a load in which an answer was late: the first connections are the slowest, because valgrind translates the code that they run."""
    for _ in range(LATE_MAX):
        try:
            return load()
        except Late:
            pass
    return load()


def free_ports(count):
    taken = [socket.socket() for _ in range(count)]
    for one in taken:
        one.bind((HOST, 0))
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports


class Late(Exception):
    """The server did not answer a CONNECT or SUBSCRIBE within the 10 s of mqttload: other work took the CPU."""


class Counted:
    """A server under callgrind, with one event loop."""

    def __init__(self, millrace, flags):
        self.folder, self.dumps = Path(tempfile.mkdtemp(prefix="millrace-count-")), 0
        self.port, self.admin = free_ports(2)
        listen = [f"--mqtt-listen={HOST}:{self.port}", "--ws-listen=off", f"--http-listen={HOST}:0", f"--admin-listen={HOST}:{self.admin}"]
        valgrind = ["valgrind", "--tool=callgrind", "--quiet", "--separate-threads=yes", "--compress-strings=no", f"--callgrind-out-file={self.folder}/out"]
        command = [*valgrind, millrace, "serve", "--threads=1", f"--data-dir={self.folder}/data", *listen, *flags]
        self.log = (self.folder / "log").open("w")
        self.process = subprocess.Popen([str(word) for word in command], stdout=self.log, stderr=subprocess.STDOUT)
        try:
            until(self.accepts, "the server does not start", START_SECONDS_MAX)
        except RuntimeError:
            self.stop()
            raise

    def accepts(self):
        try:
            socket.create_connection((HOST, self.port), 1).close()
            return True
        except OSError:
            return False

    def dump(self):
        """Counts since the last dump, by thread."""
        self.dumps += 1
        subprocess.run(["callgrind_control", "--dump", str(self.process.pid)], check=True, capture_output=True, timeout=DUMP_SECONDS_MAX)
        return {path.suffix: path.read_text() for path in self.folder.glob(f"out.{self.dumps}-*")}

    def traced(self):
        with urllib.request.urlopen(f"http://{HOST}:{self.admin}/metrics", timeout=RUN_SECONDS_MAX) as page:
            found = re.search(rf"^{re.escape(TRACED)} (\d+)", page.read().decode(), re.M)
        return int(found[1]) if found else 0

    def load(self, mqttload, scenario, seconds):
        command = [mqttload, "run", scenario, "--json", "--pairs", PAIRS, "--seconds", seconds, "--pid", self.process.pid, "--port", self.port]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
        if "Resource temporarily unavailable" in done.stderr:
            raise Late(scenario)
        if done.returncode:
            raise RuntimeError(f"{scenario}: {(done.stdout + done.stderr)[-1000:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def measure(millrace, mqttload, scenario, flags, seconds):
    """Instructions for each message by kind of thread, without those of an idle server, and the traced share of the messages."""
    server = Counted(millrace, flags)
    try:
        time.sleep(SETTLE_SECONDS)
        patiently(lambda: server.load(mqttload, scenario, 1))
        server.dump()
        began = time.monotonic()
        time.sleep(float(seconds))
        idle, idle_s = server.dump(), time.monotonic() - began

        def loaded():
            server.dump()
            traced, began = server.traced(), time.monotonic()
            said = server.load(mqttload, scenario, seconds)
            return said, server.dump(), time.monotonic() - began, server.traced() - traced

        said, busy, busy_s, traced = patiently(loaded)
    finally:
        server.stop()
    idle, busy = by_kind(idle, busy)
    costs = {kind: (busy[kind] - idle[kind] * busy_s / idle_s) / said["count"] for kind in KINDS}
    return costs | {"traced": traced / said["count"], "rate": said["count"] / said["wall_s"]}
