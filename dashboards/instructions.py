"""Counts instructions for each message with valgrind's callgrind: unlike CPU time, the count does not depend on what else the machine does.

Telemetry costs in two places. The event loops and the store's writer make spans, so their instructions for each message are compared
with a run without telemetry. The exporting thread works by itself, so its instructions are shown beside. Work in the kernel is not
counted. It is the same with and without telemetry, so the ratio of CPU time is smaller.
"""

import http.server
import json
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

HOST = "127.0.0.1"
# Under valgrind a program runs about fifty times slower.
START_SECONDS_MAX, DUMP_SECONDS_MAX, RUN_SECONDS_MAX = 120, 60, 300
# Connections that all arrive at once must not wait too long for a server this slow.
PAIRS = 20
# The exporting thread is the one that runs this.
EXPORTER = "millrace_telemetry::exporter"


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


def split(dumps):
    """Instructions of all threads but the exporting one, and of that one."""
    others = exporter = 0
    for text in dumps:
        if EXPORTER in text:
            exporter += total(text)
        else:
            others += total(text)
    return others, exporter


def until(condition, what, seconds_max):
    for _ in range(seconds_max * 10):
        if found := condition():
            return found
        time.sleep(0.1)
    raise RuntimeError(what)


class Counted:
    """A server under callgrind, with one event loop."""

    def __init__(self, millrace, flags):
        self.folder, self.dumps = Path(tempfile.mkdtemp(prefix="millrace-count-")), 0
        with socket.socket() as taken:
            taken.bind((HOST, 0))
            self.port = taken.getsockname()[1]
        listen = [f"--mqtt-listen={HOST}:{self.port}", "--ws-listen=off", f"--http-listen={HOST}:0", f"--admin-listen={HOST}:0"]
        valgrind = ["valgrind", "--tool=callgrind", "--quiet", "--separate-threads=yes", f"--callgrind-out-file={self.folder}/out"]
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
        """Instructions since the last dump: of all threads but the exporting one, and of that one."""
        self.dumps += 1
        subprocess.run(["callgrind_control", "--dump", str(self.process.pid)], check=True, capture_output=True, timeout=DUMP_SECONDS_MAX)
        return split(path.read_text() for path in self.folder.glob(f"out.{self.dumps}-*"))

    def load(self, mqttload, scenario, seconds):
        command = [mqttload, "run", scenario, "--json", "--pairs", PAIRS, "--seconds", seconds, "--pid", self.process.pid, "--port", self.port]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
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
    """Instructions for each message, of all threads but the exporting one and of that one. Work of an idle server does not count."""
    server = Counted(millrace, flags)
    try:
        server.load(mqttload, scenario, 1)
        server.dump()
        began = time.monotonic()
        time.sleep(float(seconds))
        idle, idle_s = server.dump(), time.monotonic() - began
        began = time.monotonic()
        said = server.load(mqttload, scenario, seconds)
        busy, busy_s = server.dump(), time.monotonic() - began
    finally:
        server.stop()
    return [(work - rest * busy_s / idle_s) / said["count"] for work, rest in zip(busy, idle)], said
