"""The pods of a region are replaced by the next build and back, one process after the other, under QoS 1 load through the gateway.

No publish fails, each acknowledged message arrives, and a session that is offline the whole time gets all of them. Each build reads the
retained message and the will that the other stored. MILLRACE_NEXT names the next build. Without FoundationDB the three pods are one process, which is replaced as a whole.
"""

import collections
import os
import re
import ssl
from pathlib import Path

from observe import HERE, HOST, until
from stage import Publisher, Subscriber, millrace
from stored import Stored

UPGRADE = HERE.parent / "services/stack/stack.sh"
GATEWAY, BROKER = 8883, "acme.local.test"


def run(drill):
    following = os.environ.get("MILLRACE_NEXT")
    builds = [str(Path(following or millrace()).resolve()), str(millrace())]
    if following:
        commits = [drill.run(f"{build} --version | grep ^commit:") for build in builds]
        drill.check("the next build is of another commit", commits[0] != commits[1])
    else:
        drill.say("SKIPPED: another build: MILLRACE_NEXT names none, so the same one starts again")
    # The gateway selects the broker by the name that clients ask for.
    drill.run(f"(cat /etc/hosts; echo {HOST} {BROKER}) >hosts && mount --bind hosts /etc/hosts")
    stack = drill.stack()
    if "one process for the three" in stack.text():
        drill.say("SKIPPED: one pod after the other: FoundationDB is not here, so the three pods are one process, replaced as a whole")
    tls = ssl.create_default_context(cafile=str(drill.folder / "certs/ca.crt"))
    way = {"port": GATEWAY, "host": BROKER, "tls": tls}
    Subscriber("away", "drill/#", **way).leave()
    reader = drill.keep(Subscriber("reader", "drill/#", **way))
    writers = [drill.keep(Publisher(f"drill/{name}", rate=25, **way)) for name in "abc"]
    drill.until_value("sum(rate(millrace_messages_received_total[10s]))", lambda values: values and values[0] > 20)
    drill.until_no_alert()
    stored, names = Stored(drill, **way), []
    for build, what, writes in zip(builds, ("the next build", "the build before"), ("build-1", "build-2")):
        stored.store(writes)
        names.append(writes)
        before = [len(writer.acknowledged) for writer in writers]
        drill.run(f"STACK_DIR={stack.home} {UPGRADE} upgrade {build}")
        drill.run(f"grep 'stack: pod' {stack.log} | tail -2")
        stored.read(names, what)
        until(lambda before=before: all(len(writer.acknowledged) > count + 50 for writer, count in zip(writers, before)), "messages are not acknowledged")
    revisions = set(re.findall(r'revision="(\w+)"', drill.run("curl -sS http://127.0.0.1:8090/metrics | grep ^millrace_build_info")))
    drill.check(f"the pods run the build of commit {', '.join(revisions)} again", len(revisions) == 1)
    for writer in writers:
        writer.settle()
    sent = {writer.topic: writer.acknowledged for writer in writers}
    total = sum(map(len, sent.values()))
    refused = sum(len(writer.refused) for writer in writers)
    drill.check(f"{total} messages were acknowledged, {refused} refused", refused == 0 and total > 300)
    # Each topic has these numbers, so a repetition on one topic must not stand for a loss on another.
    wanted = collections.Counter(number for numbers in sent.values() for number in numbers)
    for name, session in ("reader", reader), ("away", drill.keep(Subscriber("away", "drill/#", **way))):

        def missing(session=session):
            return (wanted - collections.Counter(int(payload) for payload in session.got)).total()

        until(lambda missing=missing: not missing(), f"messages did not arrive at {name}")
        drill.check(f"all of them arrived at {name}, which got {len(session.got)}", not missing())
    drill.until_no_alert()
