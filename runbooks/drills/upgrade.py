"""A server is drained and replaced by the next build, and back, under QoS 1 load: no publish fails, every acknowledged message arrives.

MILLRACE_NEXT names the next build, of another commit. Without it the same program is started again, and the drill says so.
"""

import os
from pathlib import Path

from observe import until
from stage import Publisher, Subscriber, millrace

STARTS = 'changes(process_start_time_seconds{job="millrace"}[5m])'


def run(drill):
    following = os.environ.get("MILLRACE_NEXT")
    builds = [following or str(millrace()), str(millrace())]
    if following:
        commits = [drill.run(f"{build} --version | grep ^commit:") for build in builds]
        drill.check("the next build is of another commit", commits[0] != commits[1])
    else:
        drill.say("SKIPPED: another build: MILLRACE_NEXT names none, so the same one starts again")
    server = drill.server("--drain-max-s", "5")
    reader = drill.keep(Subscriber("reader", "drill/#"))
    writers = [drill.keep(Publisher(f"drill/{name}", rate=25)) for name in "abc"]
    drill.until_value("sum(rate(millrace_messages_received_total[10s]))", lambda values: values and values[0] > 20)
    drill.run("curl -sS http://127.0.0.1:8090/metrics | grep ^millrace_build_info")
    drill.calm()
    for number, (build, what) in enumerate(zip(builds, ("the next build", "the build before: both read what the other wrote")), 1):
        drill.say(f"ACT   SIGTERM, and start {what}")
        server.stop()
        drill.check(f"it ended by itself with code {server.process.returncode}", server.process.returncode == 0)
        server.command[0] = str(Path(build).resolve())
        server.start()
        drill.run("curl -sS http://127.0.0.1:8090/metrics | grep ^millrace_build_info")
        drill.run("curl -sS http://127.0.0.1:8080/healthz")
        # What was scraped before it ended says nothing of the clients that came back.
        drill.until_value(STARTS, lambda values, number=number: values and values[0] >= number)
        drill.until_value("sum(millrace_clients_connected)", lambda values: values == [4])
    drains = int(drill.run("grep -c 'draining: clients are disconnected' millrace.log"))
    drill.check(f"{drains} of {len(builds)} stops drained their clients", drains == len(builds))
    for writer in writers:
        writer.settle()
    sent = {f"{writer.topic} {number}" for writer in writers for number in writer.acknowledged}
    until(lambda: len(reader.got) >= len(sent), f"{len(reader.got)} of {len(sent)} messages arrived")
    refused = sum(len(writer.refused) for writer in writers)
    drill.check(f"{len(sent)} messages were acknowledged, {refused} refused; {len(reader.got)} arrived", refused == 0)
    drill.calm()
