"""A NATS server of three is killed; pods continue with the other two until it is back."""


def run(drill):
    stack = drill.stack()
    drill.until_value("nats_up", lambda values: values == [1, 1, 1])
    drill.until_no_alert()
    drill.say("FAULT kill -9 of the first NATS server")
    stack.kill_part("nats-1")
    drill.fires("NatsNodeDown")
    drill.run("curl -sS http://127.0.0.1:8222/healthz", fails=True)
    drill.run("curl -sS http://127.0.0.1:8080/healthz")
    drill.until_value("min(millrace_fabric_connected)", lambda values: values == [1])
    drill.say("ACT   start it again")
    drill.keep(stack.start_part("nats-1"))
    drill.ends("NatsNodeDown")
    drill.until_value("min(nats_remotes)", lambda values: values == [2])
    drill.run("curl -sS http://127.0.0.1:8080/healthz")
