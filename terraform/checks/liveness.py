"""Whether the liveness probe of the chart's pods sees an event loop that hangs: a real server, one of whose loops is held by ptrace.

    liveness.py MILLRACE RENDERED_CHART FOLDER PORT        PORT and the two above it must be free
"""

import ctypes
import pathlib
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

PROGRAM, CHART, FOLDER, PORT = sys.argv[1], *map(pathlib.Path, sys.argv[2:4]), int(sys.argv[4])
PORTS = {"http": PORT, "admin": PORT + 1}
SECONDS_MAX = 60
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4


def probes():
    """Path and port of the liveness probe of each kind of pods with a server."""
    for pod in CHART.read_text().split("\n---\n"):
        if "\n      - name: millrace\n" in pod and "\n  template:" in pod:
            probe = re.search(r"livenessProbe:(.*\n.*)", pod)[1]
            found = re.search(r"httpGet: { path: (\S+), port: (\w+) }", probe)
            if not found:
                sys.exit(f"FAILED: the liveness probe of a pod asks no page: {' '.join(probe.split())}")
            yield found.groups()


def answer(path, port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORTS[port]}{path}", timeout=5) as page:
            return page.status, page.read().decode().strip()[:200]
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()
    except OSError as error:
        return 0, str(error)


def until(probe, expected, what):
    end = time.monotonic() + SECONDS_MAX
    while (found := answer(*probe))[0] != expected:
        if time.monotonic() > end:
            sys.exit(f"FAILED: {what}: {probe[0]} of the port {probe[1]} says {found}")
        time.sleep(0.2)
    return found[1]


def ptrace(request, thread):
    return libc.ptrace(request, thread, 0, 0) == 0


def check(server, found):
    for probe in found:
        until(probe, 200, "the server runs")
    threads = pathlib.Path(f"/proc/{server.pid}/task").iterdir()
    loop = next((int(thread.name) for thread in threads if (thread / "comm").read_text().strip() == "core-0"), None)
    if loop is None:
        sys.exit("FAILED: the server has no thread core-0: its event loops have other names")
    if not ptrace(PTRACE_SEIZE, loop):
        print("SKIPPED: the liveness probe beside an event loop that hangs: ptrace is not allowed here")
        return
    ptrace(PTRACE_INTERRUPT, loop)
    try:
        for probe in found:
            said = until(probe, 503, "an event loop hangs, and the kubelet restarts no pod")
    finally:
        # Otherwise the server could not be killed.
        ptrace(PTRACE_DETACH, loop)
    for probe in found:
        until(probe, 200, "the event loop goes on")
    print(f"liveness probe: it sees an event loop that hangs ({said})")


found = sorted(set(probes()))
if not found:
    sys.exit("FAILED: the rendered chart has no pods with a server")
listen = [f"--{name}-listen=127.0.0.1:{port}" for name, port in {**PORTS, "mqtt": PORT + 2}.items()]
with (FOLDER / "liveness.log").open("w") as log:
    server = subprocess.Popen([PROGRAM, "serve", f"--data-dir={FOLDER}/liveness", "--ws-listen=off", *listen], stdout=log, stderr=log)
try:
    check(server, found)
finally:
    server.kill()
    server.wait()
