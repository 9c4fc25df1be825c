"""The NATS servers start again, one with another password for their routes: pods on the two sides receive nothing from each other until it has the right one."""

import json
import re

from observe import get, until
from stage import Publisher, Subscriber

SERVERS = ("nats-1", "nats-2", "nats-3")
MONITORS = (8222, 8223, 8224)
PODS, TRIES = 3, 20


def sides():
    """How many pods are connected to the first two servers, which have the same password, and to the third."""
    try:
        first, second, third = (json.loads(get(f"http://127.0.0.1:{port}/varz"))["connections"] for port in MONITORS)
    except OSError:
        return None
    return (first + second, third) if first + second + third == PODS else None


def run(drill):
    stack = drill.stack()
    durable = drill.keep(Subscriber("durable", "drill/1", port=1884))
    writer = drill.keep(Publisher("drill/1", qos=1, rate=20))
    until(lambda: durable.got, "messages do not go from pod to pod")
    drill.until_value("millrace_fabric_pods", lambda values: values == [2, 2, 2])
    drill.until_no_alert()
    drill.say("FAULT the third NATS server has another password for the routes, and all three start again")
    config = stack.home / "nats/nats-3.conf"
    right = config.read_text()
    config.write_text(right.replace(re.search(r"routes:(\w+)@", right)[1], "another"))
    for name in SERVERS:
        stack.kill_part(name)
    parts = [drill.keep(stack.start_part(name)) for name in SERVERS]
    for _ in range(TRIES):
        # A pod chooses its NATS server at random, and each side must have a pod.
        if 0 not in until(sides, "the pods have no NATS server"):
            break
        for part in parts:
            part.kill()
        for part in parts:
            part.start()
    drill.say("pods at the first two servers, and at the third: {}, {}".format(*sides()))
    drill.fires("PodsDisagree")
    drill.query("millrace_fabric_pods")
    drill.query("millrace_fabric_connected")
    for port in MONITORS:
        drill.run(f"curl -sS http://127.0.0.1:{port}/varz | grep -E '\"(server_name|connections|remotes)\"'")
    drill.run("curl -sS http://127.0.0.1:8224/routez | grep num_routes")
    drill.run("grep -h 'Authorization' stack/logs/nats-*-again.log | tail -1 | cut -d' ' -f4-")
    before = len(durable.got)
    until(lambda: len(durable.got) > before + 20, "durable messages do not come")
    drill.check("durable messages continue", True)
    drill.say("ACT   give the third server the right password, and start it again")
    config.write_text(right)
    parts[2].kill()
    parts[2].start()
    drill.ends("PodsDisagree")
    drill.until_value("millrace_fabric_pods", lambda values: values == [2, 2, 2])
    drill.run("curl -sS http://127.0.0.1:8224/varz | grep remotes")
    drill.all_arrived(writer, durable)
