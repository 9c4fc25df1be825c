"""Measures the memory and CPU time that Envoy needs for an idle client, for the table in gateway/README.md.

    MILLRACE=target/release/millrace GATEWAY_ENVOY=target/envoy/bin/envoy PYTHONPATH=services/millrace/tests/clients \\
        python3 gateway/tests/figures.py [CLIENTS]
"""

import os
import ssl
import sys
import time

from stage import Client, Stage

CLIENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
# The first ones make Envoy grow by what all share.
FIRST = 500


def memory_kib(pid):
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as file:
        user, system = file.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure(what, resume=False, **tls):
    with Stage() as stage:
        pid = next(int(pid) for pid in os.listdir("/proc") if is_envoy_of(pid, stage))
        context = stage.context(**tls)
        clients = []

        def connect(count):
            for number in range(count):
                session = clients[0].tls.session if resume and clients else None
                clients.append(Client(stage, f"b{number % 50}.local.test", context=context, session=session))
                clients[-1].ping()

        connect(FIRST)
        settled(stage, FIRST)
        kib, seconds = memory_kib(pid), cpu_s(pid)
        connect(CLIENTS)
        seconds = cpu_s(pid) - seconds
        settled(stage, FIRST + CLIENTS)
        kib = (memory_kib(pid) - kib) / CLIENTS
        print(f"{what:40} {kib:5.1f} KiB {1000 * seconds / CLIENTS:5.2f} ms", flush=True)
        for client in clients:
            client.close()


def settled(stage, count):
    stage.gateway.has_clients(count)
    # Envoy frees some memory with a delay.
    time.sleep(1)


def is_envoy_of(pid, stage):
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(stage.gateway.folder) and "envoy" in os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False


measure("TLS 1.3")
measure("TLS 1.3, resumed", resume=True)
measure("TLS 1.3, client certificate (P-256)", certificate=True)
measure("TLS 1.2", version=ssl.TLSVersion.TLSv1_2)
