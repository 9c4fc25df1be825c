"""All pods behind a gateway are gone; they start again, and a TLS client comes back by itself."""

import ssl

from observe import until
from stage import make

HEALTHY = 'envoy_cluster_membership_healthy{envoy_cluster_name="edge"}'


def run(drill):
    stack = drill.stack()
    client = make("secure", None)
    client.tls_set_context(ssl.create_default_context(cafile=str(drill.folder / "certs/ca.crt")))
    client.connect("localhost", 8883)
    client.loop_start()
    until(client.is_connected, "no client through the gateway")
    drill.until_value(HEALTHY, lambda values: values == [3])
    drill.until_no_alert()
    drill.say("FAULT kill -9 of the pods, which are one process here")
    stack.kill_part("pods")
    drill.fires("GatewayWithoutPods")
    drill.run("curl -sS http://127.0.0.1:9902/ready")
    drill.run("curl -sS http://127.0.0.1:9902/stats/prometheus | grep '^envoy_cluster_membership.*edge'")
    drill.run("curl -sS http://127.0.0.1:8080/healthz", fails=True)
    drill.say("ACT   start them again")
    drill.keep(stack.start_part("pods"))
    drill.ends("GatewayWithoutPods")
    drill.until_value(HEALTHY, lambda values: values == [3])
    until(client.is_connected, "the client does not come back")
    drill.check("the client is connected over TLS again", client.is_connected())
    client.disconnect()
    client.loop_stop()
