"""A pod is named to the gateway and takes clients; then it is taken out and drained, and they continue at the other pods."""

import ssl
from pathlib import Path

from observe import until
from stage import Publisher, connect, make

ROOT = Path(__file__).resolve().parents[2]
PODS = [f"127.0.0.1:{1893 + number}/{8080 + number}" for number in range(3)]
HEALTHY = 'envoy_cluster_membership_healthy{envoy_cluster_name="edge"}'
# Clients of one server name stay on as few pods as GATEWAY_SHARE_PERCENT_MAX allows, so the third pod needs many.
FIRST, COUNT = 6, 36
CLIENTS = 'sum by (instance) (millrace_clients_connected)'


class Device:
    """A persistent session that comes through the gateway and remembers its messages."""

    def __init__(self, number, context):
        self.got = set()
        self.client = make(f"device-{number}", None)
        self.client.tls_set_context(context)
        self.client.on_connect = lambda client, *_: client.subscribe("drill/#", 1)
        self.client.on_message = lambda _, __, message: self.got.add(int(message.payload))
        connect(self.client, 8883, True, "localhost")

    def leave(self):
        self.client.disconnect()
        self.client.loop_stop()


def run(drill):
    stack = drill.stack()
    context = ssl.create_default_context(cafile=str(drill.folder / "certs/ca.crt"))
    name = f"GATEWAY_DIR={stack.home}/gateway {ROOT}/gateway/gateway.sh pods"
    drill.run(f"{name} {' '.join(PODS[:2])}")
    drill.until_value(HEALTHY, lambda values: values == [2])
    devices = [drill.keep(Device(number, context)) for number in range(FIRST)]
    until(lambda: all(device.client.is_connected() for device in devices), "devices are not connected")
    drill.until_value("sum(millrace_clients_connected)", lambda values: values == [FIRST])
    drill.query(CLIENTS)
    drill.until_no_alert()
    drill.say("ACT   out: name the third pod to the gateway")
    drill.run(f"{name} {' '.join(PODS)}")
    drill.until_value(HEALTHY, lambda values: values == [3])
    devices += [drill.keep(Device(number, context)) for number in range(FIRST, COUNT)]
    drill.until_value('sum(millrace_clients_connected{instance="pod-3"})', lambda values: values and values[0] > 0)
    until(lambda: all(device.client.is_connected() for device in devices), "devices are not connected")
    drill.query(CLIENTS)
    writer = drill.keep(Publisher("drill/a", rate=20))
    until(lambda: all(device.got for device in devices), "devices get nothing")
    drill.say("ACT   in: take the pod out of the gateway, then drain it")
    drill.run(f"{name} {' '.join(PODS[:2])}")
    drill.until_value(HEALTHY, lambda values: values == [2])
    drill.run("millrace pods drain pod-3 --admin http://127.0.0.1:8092 --yes")
    drill.until_value('sum(millrace_connections_open{instance="pod-3"})', lambda values: values == [0])
    drill.run("curl -sS http://127.0.0.1:8082/healthz")
    # The publisher is one of the clients.
    drill.until_value("sum(millrace_clients_connected)", lambda values: values == [COUNT + 1])
    writer.settle()
    # A device that came later has not got what was published before its subscription.
    until(lambda: all(writer.acknowledged - device.got <= set(range(min(device.got))) for device in devices), "acknowledged messages that did not arrive")
    drill.check(f"{len(writer.acknowledged)} messages were acknowledged, {len(writer.refused)} refused; all {COUNT} devices have them", not writer.refused)
    drill.until_no_alert()
