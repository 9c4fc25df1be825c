"""A pod and a NATS server of one zone are killed at once; the gateway continues with the two other pods until the zone is back.

The stack's FoundationDB is one process, so the drill loses no copy of the data.
"""

import collections
import ssl

from observe import HERE, HOST, Missing, until
from stage import Publisher, Subscriber

PODS = [f"{HOST}:{1893 + number}/{8080 + number}" for number in range(3)]
HEALTHY = 'envoy_cluster_membership_healthy{envoy_cluster_name="edge"}'
LOST = ("pod-1", "nats-1")
GATEWAY, BROKER = 8883, "acme.local.test"


def run(drill):
    # The gateway selects the broker by the name that clients ask for.
    drill.run(f"(cat /etc/hosts; echo {HOST} {BROKER}) >hosts && mount --bind hosts /etc/hosts")
    stack = drill.stack()
    if "one process for the three" in stack.text():
        raise Missing("without FoundationDB the three pods are one process, so that no zone can be lost alone")
    cluster = drill.folder / "stack/fdb/fdb.cluster"
    pods = f"GATEWAY_DIR={stack.home}/gateway {HERE.parent}/gateway/gateway.sh pods"
    way = {"port": GATEWAY, "host": BROKER, "tls": ssl.create_default_context(cafile=str(drill.folder / "certs/ca.crt"))}
    readers = [drill.keep(Subscriber(f"reader-{number}", "drill/#", **way)) for number in range(6)]
    writers = [drill.keep(Publisher(f"drill/{name}", rate=25, **way)) for name in "abc"]
    drill.until_value("sum(rate(millrace_messages_received_total[10s]))", lambda values: values and values[0] > 20)
    drill.query("sum by (instance) (millrace_clients_connected)")
    drill.until_no_alert()
    drill.say(f"FAULT kill -9 of {' and '.join(LOST)}: what a zone has beside its FoundationDB")
    before = [len(writer.acknowledged) for writer in writers]
    for name in LOST:
        stack.kill_part(name)
    drill.fires("PodDown")
    drill.fires("NatsNodeDown")
    drill.run(f"fdbcli -C {cluster} --exec 'status minimal'")
    drill.query("sum by (job) (up)")
    drill.say("ACT   name the pods that are left to the gateway")
    drill.run(f"{pods} {' '.join(PODS[1:])}")
    drill.until_value(HEALTHY, lambda values: values == [2])
    drill.until_value("sum(millrace_clients_connected)", lambda values: values == [len(readers) + len(writers)])
    until(lambda: all(len(writer.acknowledged) > count + 50 for writer, count in zip(writers, before)), "messages are not acknowledged")
    drill.check("messages of all publishers are acknowledged without the zone", True)
    drill.run("curl -sS http://127.0.0.1:8081/healthz")
    drill.say("ACT   the zone is back: start its parts, name its pod to the gateway")
    for name in reversed(LOST):
        drill.keep(stack.start_part(name))
    drill.run(f"{pods} {' '.join(PODS)}")
    drill.until_value(HEALTHY, lambda values: values == [3])
    drill.ends("PodDown")
    drill.ends("NatsNodeDown")
    drill.run("curl -sS http://127.0.0.1:8080/healthz")
    for writer in writers:
        writer.settle()
    wanted = sum(len(writer.acknowledged) for writer in writers)
    refused = sum(len(writer.refused) for writer in writers)
    for reader in readers:
        until(lambda reader=reader: missing(writers, reader) == 0, f"{missing(writers, reader)} acknowledged messages did not arrive")
    drill.check(f"{wanted} messages were acknowledged, {refused} refused; all acknowledged ones arrived at {len(readers)} sessions", refused == 0)


def missing(writers, reader):
    """Acknowledged messages that the reader lacks. Each publisher begins with 0, so a number counts once for each of them."""
    wanted = collections.Counter(number for writer in writers for number in writer.acknowledged)
    return (wanted - collections.Counter(int(payload) for payload in reader.got)).total()
