"""A server is drained and started again under QoS 1 load: no publish fails, and every acknowledged message arrives."""

from observe import until
from stage import Publisher, Subscriber


def run(drill):
    server = drill.server("--drain-max-s", "5")
    reader = drill.keep(Subscriber("reader", "drill/#"))
    writers = [drill.keep(Publisher(f"drill/{name}", rate=25)) for name in "abc"]
    drill.until_value("sum(rate(millrace_messages_received_total[10s]))", lambda values: values and values[0] > 20)
    drill.run("curl -sS http://127.0.0.1:8090/metrics | grep ^millrace_build_info")
    drill.calm()
    for number in (1, 2):
        drill.say(f"ACT   SIGTERM, and start the next build ({number} of 2)")
        server.stop()
        drill.check(f"it ended by itself with code {server.process.returncode}", server.process.returncode == 0)
        server.start()
        drill.run("curl -sS http://127.0.0.1:8080/healthz")
        drill.until_value("sum(millrace_clients_connected)", lambda values: values == [4])
    drill.run("grep -c 'clients are sent away\\|draining\\|drain' millrace.log", fails=True)
    for writer in writers:
        writer.settle()
    sent = {f"{writer.topic} {number}" for writer in writers for number in writer.acknowledged}
    until(lambda: len(reader.got) >= len(sent), f"{len(reader.got)} of {len(sent)} messages arrived")
    refused = sum(len(writer.refused) for writer in writers)
    drill.check(f"{len(sent)} messages were acknowledged, {refused} refused; {len(reader.got)} arrived", refused == 0)
    drill.calm()
