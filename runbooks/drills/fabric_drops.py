"""All NATS servers are killed: live messages between pods are dropped, durable ones come through the store; then they are back."""

from observe import until
from stage import Publisher, Subscriber

SERVERS = ("nats-1", "nats-2", "nats-3")


def run(drill):
    stack = drill.stack()
    durable = drill.keep(Subscriber("durable", "drill/1", port=1884))
    live = drill.keep(Subscriber("live", "drill/0", qos=0, port=1884, lasts=False))
    writer = drill.keep(Publisher("drill/1", qos=1, rate=20))
    drill.keep(Publisher("drill/0", qos=0, rate=20))
    until(lambda: durable.got and live.got, "messages do not go from pod to pod")
    drill.until_no_alert()
    drill.say("FAULT kill -9 of all NATS servers")
    for name in SERVERS:
        stack.kill_part(name)
    drill.fires("FabricDown")
    drill.fires("NatsNodeDown")
    drill.fires("FabricDrops")
    drill.run("curl -sS http://127.0.0.1:8080/healthz")
    drill.query("sum by (instance, reason) (rate(millrace_fabric_messages_dropped_total[25s])) > 0")
    before = len(durable.got)
    until(lambda: len(durable.got) > before + 20, "durable messages do not come through the store")
    drill.check("durable messages come to the other pod through the store", True)
    drill.say("ACT   start the NATS servers again")
    for name in SERVERS:
        drill.keep(stack.start_part(name))
    drill.ends("FabricDown")
    drill.ends("NatsNodeDown")
    drill.ends("FabricDrops")
    drill.run("curl -sS http://127.0.0.1:8080/healthz")
    before = len(live.got)
    until(lambda: len(live.got) > before + 20, "live messages do not go from pod to pod again")
    drill.all_arrived(writer, durable)
