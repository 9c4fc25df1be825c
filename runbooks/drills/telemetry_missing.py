"""The collector is killed, and started again."""


def run(drill):
    drill.server()
    drill.until_value('up{job="region"}', lambda values: values == [1])
    drill.calm()
    drill.say("FAULT kill -9 of the collector")
    collector = drill.observe.processes.pop("collector")
    collector.kill()
    collector.wait()
    drill.fires("TelemetryMissing")
    drill.run("curl -sS http://127.0.0.1:13133/", fails=True)
    drill.run("curl -sS http://127.0.0.1:8090/metrics | head -3")
    drill.say("ACT   start it again")
    drill.observe.start_collector(drill.observe.tools / "otelcol")
    drill.ends("TelemetryMissing")
    drill.run("curl -sS http://127.0.0.1:13133/")
    drill.until_value('up{job="millrace"}', lambda values: values == [1])
