"""Envoy is killed; it starts again, and a TLS client comes back by itself."""

import ssl

from observe import until
from stage import make


def run(drill):
    stack = drill.stack()
    client = make("secure", None)
    client.tls_set_context(ssl.create_default_context(cafile=str(drill.folder / "certs/ca.crt")))
    client.connect("localhost", 8883)
    client.loop_start()
    until(client.is_connected, "no client through the gateway")
    drill.until_value("sum(envoy_listener_downstream_cx_active)", lambda values: values and values[0] >= 1)
    drill.until_no_alert()
    drill.say("FAULT kill -9 of the gateway")
    stack.kill_part("gateway")
    drill.fires("GatewayDown")
    drill.run("curl -sS http://127.0.0.1:9902/ready", fails=True)
    drill.say("ACT   start it again")
    drill.keep(stack.start_part("gateway"))
    drill.ends("GatewayDown")
    drill.run("curl -sS http://127.0.0.1:9902/ready")
    drill.until_value(
        'envoy_cluster_membership_healthy{envoy_cluster_name="edge"}', lambda values: values == [3]
    )
    until(client.is_connected, "the client does not come back")
    drill.check("the client is connected over TLS again", client.is_connected())
    client.disconnect()
    client.loop_stop()
