"""A gateway has as many clients as it may have; with a higher limit the refused ones come in."""

import ssl

from observe import until
from stage import make

REFUSED = "sum(envoy_listener_downstream_global_cx_overflow_total)"


def clients(drill, count):
    """Connects clients through the gateway; those that it refuses try again by themselves."""
    trusted = ssl.create_default_context(cafile=str(drill.folder / "certs/ca.crt"))
    for number in range(count):
        client = make(f"device-{number}", None, tls=trusted)
        client.connect_async("localhost", 8883)
        client.loop_start()
        yield client


def pods_are_healthy(drill):
    drill.until_value('envoy_cluster_membership_healthy{envoy_cluster_name="edge"}', lambda values: values == [3])


def run(drill):
    stack = drill.stack()
    stack.kill_part("gateway")
    stack.again["gateway"][1]["GATEWAY_CONNECTIONS_MAX"] = "3"
    gateway = drill.keep(stack.start_part("gateway"))
    pods_are_healthy(drill)
    drill.until_no_alert()
    drill.say("FAULT six clients come to a gateway that takes three")
    devices = list(clients(drill, 6))
    drill.fires("GatewayFull")
    drill.check("three clients are connected, the others refused", sum(device.is_connected() for device in devices) == 3)
    drill.query(REFUSED)
    drill.run("curl -s http://127.0.0.1:9902/stats/prometheus | grep -E 'global_cx_overflow|cx_overload_reject' | grep -v '^#'")
    drill.run("curl -sS http://127.0.0.1:9902/ready")
    drill.say("ACT   start it again with a higher limit, by SIGTERM, which drains it")
    gateway.stop()
    gateway.settings["GATEWAY_CONNECTIONS_MAX"] = "1000"
    gateway.start()
    pods_are_healthy(drill)
    until(lambda: all(device.is_connected() for device in devices), "the refused clients do not come in", 120)
    drill.check("all six clients are connected", True)
    drill.ends("GatewayFull")
    for device in devices:
        device.disconnect()
        device.loop_stop()
