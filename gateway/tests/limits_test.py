"""The packet filter of the gateway with the kernel's own nftables, in a network namespace: needs root and nft."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

RULES = Path(__file__).parent.parent / "limits.nft"
PORTS = (8883, 8443)
BURST = 20
TRIED = 60


def connected(source, target, port, tried=TRIED):
    """How many of so many connections at once are accepted."""
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    waiting = []
    for _ in range(tried):
        one = socket.socket(family)
        one.setblocking(False)
        one.bind((source, 0))
        one.connect_ex((target, port))
        waiting.append(one)
    # On loopback a SYN is answered before connect_ex returns.
    count = sum(one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 and is_connected(one) for one in waiting)
    for one in waiting:
        one.close()
    return count


def is_connected(one):
    try:
        one.getpeername()
    except OSError:
        return False
    return True


def check(what, count, least, most, tried=TRIED):
    good = least <= count <= most
    print(f"{'ok' if good else 'FAILED:'} gateway limits: {what}: {count} of {tried} connections ({least} to {most} wanted)")
    return good


def main():
    ip = lambda *words: subprocess.run(["ip", *words], check=True)
    ip("link", "set", "lo", "up")
    site = [f"2001:db8:3:{number:x}::1" for number in range(12)]
    for address in ["2001:db8:1::1", "2001:db8:1::2", "2001:db8:1:1::1", "2001:db8:2::1", *site]:
        ip("address", "add", f"{address}/128", "dev", "lo", "nodad")
    listeners = []
    for port in PORTS:
        for address, family in [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]:
            listener = socket.socket(family)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(16 * TRIED)
            listeners.append(listener)
    one, other = PORTS
    before = check("without the filter", connected("127.0.0.2", "127.0.0.1", one), TRIED, TRIED)
    subprocess.run(["nft", "--file", RULES], check=True)
    rules = RULES.read_text()
    for numbers, burst in [("over 500/second burst 5000 packets", BURST), ("over 4000/second burst 40000 packets", 8 * BURST)]:
        rules = rules.replace(numbers, f"over 1/second burst {burst} packets")
    # Loading it again replaces it.
    subprocess.run(["nft", "--file", "-"], input=rules, text=True, check=True)
    most = BURST + 3
    return all([
        before,
        check("an address that makes many", connected("127.0.0.2", "127.0.0.1", one), BURST, most),
        check("the same on the other port", connected("127.0.0.2", "127.0.0.1", other), 0, 3),
        check("another address makes its own", connected("127.0.0.3", "127.0.0.1", one), BURST, most),
        check("an IPv6 network", connected("2001:db8:1::1", "::1", one), BURST, most),
        check("another address of the same /64", connected("2001:db8:1::2", "::1", one), 0, 3),
        check("another /64 of the same /48", connected("2001:db8:1:1::1", "::1", one), BURST, most),
        check("another /48", connected("2001:db8:2::1", "::1", one), BURST, most),
        check("many /64 of one /48", sum(connected(source, "::1", one, BURST) for source in site), 8 * BURST, 8 * BURST + 3, len(site) * BURST),
    ])


if __name__ == "__main__":
    if "--inside" in sys.argv:
        sys.exit(0 if main() else 1)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if os.geteuid() != 0 or not shutil.which("nft") or not shutil.which("unshare"):
        print("SKIPPED: gateway limits: need root, nft and unshare")
        sys.exit(0)
    sys.exit(subprocess.run(["unshare", "--net", sys.executable, __file__, "--inside"]).returncode)
