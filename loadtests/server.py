"""Starts a Millrace on free loopback ports for the load tests in Python, and encodes packets for it."""

import contextlib
import re
import socket
import subprocess
import sys
import tempfile
import time

START_S = 30


def field(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def packet(first: int, body: bytes) -> bytes:
    length, rest = b"", len(body)
    while True:
        rest, low = rest >> 7, rest & 0x7F
        length += bytes([low | (0x80 if rest else 0)])
        if not rest:
            return bytes([first]) + length + body


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@contextlib.contextmanager
def serving(program: str, *more: str, data: str | None = None):
    """Gives the ports of MQTT, HTTP and admin. `data` is a folder that stays; without it the store goes with the server."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w+b") as log:
        ports = mqtt, web, admin = free_port(), free_port(), free_port()
        command = [program, "serve", "--data-dir", data or f"{folder}/data", "--ws-listen", "off", *more]
        flags = (("--mqtt-listen", mqtt), ("--http-listen", web), ("--admin-listen", admin))
        command += [part for flag, port in flags for part in (flag, f"127.0.0.1:{port}")]
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for _ in range(START_S * 10):
                try:
                    for port in ports:
                        socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    if server.poll() is not None:
                        break
                    time.sleep(0.1)
            yield ports
        except Exception:
            log.seek(0)
            print(re.sub(rb"\x1b\[[0-9;]*m", b"", log.read()[-2_000:]).decode(errors="replace"), file=sys.stderr)
            raise
        finally:
            server.terminate()
            server.wait()
