"""A pod is killed while clients publish; it starts again, and nothing that was acknowledged is lost."""

from stage import Publisher, Subscriber


def run(drill):
    server = drill.server()
    reader = drill.keep(Subscriber("reader", "drill/#"))
    writer = drill.keep(Publisher("drill/a", rate=50))
    drill.until_value("sum(rate(millrace_messages_received_total[10s]))", lambda values: values and values[0] > 10)
    drill.until_no_alert()
    drill.say("FAULT kill -9 of the pod")
    server.kill()
    drill.fires("PodDown")
    drill.run("curl -sS http://127.0.0.1:8080/healthz", fails=True)
    drill.say("ACT   start it again")
    server.start()
    drill.run("curl -sS http://127.0.0.1:8080/healthz")
    drill.ends("PodDown")
    drill.all_arrived(writer, reader)
