"""Ports of the gateway towards a pod: clients that connect and close use up a small range of them.

The test runs in a network namespace, where it may change the kernel's settings: it needs root and unshare.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from checks import equal, run
from stage import Client, Stage

SUITE = "gateway"
SETTINGS = Path(__file__).parent.parent.parent / "terraform/templates/sysctl.conf"
PORTS = 300
# A closed connection keeps the client's own port, too, so each source address makes fewer connections than there are ports.
PER_SOURCE = 100


def kernel(name, value):
    Path("/proc/sys", name.replace(".", "/")).write_text(str(value))


def setting(name):
    """The value that Terraform's machines have."""
    found = re.search(rf"^{re.escape(name)} = (.*)$", SETTINGS.read_text(), re.M)
    equal(found is not None, True, f"{SETTINGS.name} has {name}")
    return found[1]


def is_served(stage, name, source, context):
    try:
        Client(stage, name, context=context, source=source).close()
    except (AssertionError, OSError):
        return False
    return True


def come_and_go(stage, network, count):
    """How many clients of one broker that connect and close get a CONNACK, up to the first one that does not."""
    context = stage.context()
    for number in range(count):
        if not is_served(stage, "acme.local.test", f"127.0.{network}.{1 + number // PER_SOURCE}", context):
            return number
    return count


def no_ports(stage):
    # The default, 2, reuses ports on loopback, where this test runs, and not towards pods of other machines.
    kernel("net.ipv4.tcp_tw_reuse", 0)
    served = come_and_go(stage, 1, 2 * PORTS)
    equal(PORTS * 0.9 < served <= PORTS, True, f"{served} clients with {PORTS} ports")
    equal(stage.gateway.stat("cluster.edge.upstream_cx_connect_attempts_exceeded"), 1, "clients without a connection")
    equal(stage.gateway.stat("cluster.edge.outlier_detection.ejections_enforced_total"), 0, "ejections")
    equal(stage.gateway.stat("cluster.edge.membership_healthy"), len(stage.pods), "healthy pods")
    context = stage.context()
    others = (is_served(stage, f"broker-{number}.local.test", "127.0.3.1", context) for number in range(20))
    equal(any(others), True, "a broker of another pod is served")


def reused_ports(stage):
    kernel("net.ipv4.tcp_tw_reuse", setting("net.ipv4.tcp_tw_reuse"))
    equal(come_and_go(stage, 2, 2 * PORTS), 2 * PORTS, "clients")


def main():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    kernel("net.ipv4.ip_local_port_range", f"40000 {40000 + PORTS - 1}")
    with Stage() as stage:
        run(
            SUITE,
            [
                ("a client that finds no port towards its pod ejects no pod", lambda: no_ports(stage)),
                ("the kernel uses the ports of closed connections again", lambda: reused_ports(stage)),
            ],
        )


if __name__ == "__main__":
    if "--inside" in sys.argv:
        main()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if os.geteuid() != 0 or not shutil.which("unshare"):
        print(f"SKIPPED: {SUITE}: ports towards a pod: need root and unshare")
        sys.exit(0)
    sys.exit(subprocess.run(["unshare", "--net", sys.executable, __file__, "--inside"]).returncode)
