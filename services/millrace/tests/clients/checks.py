"""Helpers of the Python suites: runs checks, and prints a line for each."""

import os
import sys
import time
import traceback

HOST = "127.0.0.1"
SECONDS_MAX = 20

PORTS = {
    (kind, transport): int(os.environ[f"{kind}_{end}"])
    for kind in ("OPEN", "GUARDED")
    for transport, end in (("tcp", "PORT"), ("websockets", "WS"))
}

# Payloads that must come out as they went in: empty, every byte, and larger than any buffer on the way.
PAYLOADS = [b"", b"hello", bytes(range(256)), os.urandom(200 * 1024)]


def run(suite, checks):
    """Runs (name, function) pairs and ends the program: with 1 when one of them failed."""
    failed = 0
    for name, check in checks:
        try:
            check()
            print(f"ok {suite}: {name}", flush=True)
        except Exception as error:  # whatever it is, it is the result of this check
            failed += 1
            said = " ".join(str(error).split())[:300]
            print(f"FAILED: {suite}: {name}: {type(error).__name__}: {said}", flush=True)
            traceback.print_exc(file=sys.stdout)
    sys.exit(1 if failed else 0)


def equal(got, wanted, what="result"):
    """Long values are shortened: 200 KB of a payload help nobody."""
    if got != wanted:
        raise AssertionError(f"{what}: got {repr(got)[:400]}, wanted {repr(wanted)[:400]}")


def before(deadline, what):
    """For loops that wait for something."""
    if time.monotonic() > deadline:
        raise TimeoutError(what)


def deadline():
    return time.monotonic() + SECONDS_MAX
