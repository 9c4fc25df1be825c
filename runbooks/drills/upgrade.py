"""A server is drained and replaced by the next build, and back, under QoS 1 load: no publish fails, clients come back at a limited rate, every
acknowledged message arrives, and each build reads the queue, the retained message and the will that the other stored.

MILLRACE_NEXT names the next build, of another commit. Without it the same program is started again, and the drill says so.
"""

import asyncio
import collections
import os
import threading
import time
from pathlib import Path

from observe import until
from stage import Publisher, Subscriber, millrace
from stored import Stored

IDLE_CLIENTS = 300
DISCONNECTS_PER_SECOND, CONNECTS_PER_SECOND = 100, 100
# Three publishers, a subscriber, and the client that watches wills.
BUSY_CLIENTS = 5
CLIENTS = IDLE_CLIENTS + BUSY_CLIENTS
# The rate allows no shorter drain; a second is the margin.
DRAIN_SECONDS_MIN = IDLE_CLIENTS / DISCONNECTS_PER_SECOND - 1
STARTS = 'changes(process_start_time_seconds{job="millrace"}[5m])'


class Crowd:
    """Clients that wait, and come back a second after their connection ended. `seconds` counts their CONNACK packets."""

    def __init__(self):
        self.connected, self.seconds, self.loop = 0, collections.Counter(), asyncio.new_event_loop()
        self.tasks = [self.loop.create_task(self.client(number)) for number in range(IDLE_CLIENTS)]
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(asyncio.gather(*self.tasks, return_exceptions=True),), daemon=True)
        self.thread.start()

    async def client(self, number):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", 1883)
                writer.write(bytes.fromhex("1010") + b"\x00\x04MQTT\x04\x02\x00\x00\x00\x04" + f"{number:04}".encode())
                if await reader.readexactly(4) == b"\x20\x02\x00\x00":
                    self.seconds[int(time.monotonic())] += 1
                    self.connected += 1
                    await reader.read()
                    self.connected -= 1
                writer.close()
            except (OSError, asyncio.IncompleteReadError):
                pass
            await asyncio.sleep(1)

    def leave(self):
        for task in self.tasks:
            self.loop.call_soon_threadsafe(task.cancel)
        self.thread.join(10)


def run(drill):
    following = os.environ.get("MILLRACE_NEXT")
    if following:
        (drill.folder / "next").symlink_to(Path(following).resolve())
        following = str(drill.folder / "next")
    builds = [following or str(millrace()), str(millrace())]
    if following:
        commits = [drill.run(f"{build} --version | grep ^commit:") for build in builds]
        drill.check("the next build is of another commit", commits[0] != commits[1])
    else:
        drill.say("SKIPPED: another build: MILLRACE_NEXT names none, so the same one starts again")
    rates = {"--drain-rate": DISCONNECTS_PER_SECOND, "--connects-per-second-max": CONNECTS_PER_SECOND, "--connects-burst": CONNECTS_PER_SECOND}
    server = drill.server("--drain-max-s", "10", *(str(part) for setting in rates.items() for part in setting))
    crowd = drill.keep(Crowd())
    # Both builds store messages for this session, which connects again only at the end.
    Subscriber("away", "drill/#").leave()
    reader = drill.keep(Subscriber("reader", "drill/#"))
    writers = [drill.keep(Publisher(f"drill/{name}", rate=25)) for name in "abc"]
    stored, stored_by = Stored(drill), []
    drill.until_value("sum(rate(millrace_messages_received_total[10s]))", lambda values: values and values[0] > 20)
    drill.until_value("sum(millrace_clients_connected)", lambda values: values == [CLIENTS])
    drill.run("curl -sS http://127.0.0.1:8090/metrics | grep ^millrace_build_info")
    drill.until_no_alert()
    for number, (build, what, running) in enumerate(zip(builds, ("the next build", "the build before"), ("build-1", "build-2")), 1):
        stored.store(running)
        stored_by.append(running)
        drill.say(f"ACT   SIGTERM, and start {what}")
        crowd.seconds.clear()
        began = time.monotonic()
        server.stop()
        lasted = time.monotonic() - began
        drill.check(f"the drain of {CLIENTS} clients took {lasted:.1f} s: no more than {DISCONNECTS_PER_SECOND} a second", lasted > DRAIN_SECONDS_MIN)
        drill.check(f"the server ended by itself with code {server.process.returncode}", server.process.returncode == 0)
        server.command[0] = str(Path(build).resolve())
        server.start()
        drill.run("curl -sS http://127.0.0.1:8090/metrics | grep ^millrace_build_info")
        drill.run("curl -sS http://127.0.0.1:8080/healthz")
        stored.read(stored_by, what)
        # Before Prometheus sees the restart, its samples are of the old process.
        drill.until_value(STARTS, lambda values, number=number: values and values[0] >= number)
        drill.until_value("sum(millrace_clients_connected)", lambda values: values == [CLIENTS])
        peak = max(crowd.seconds.values())
        allowed = f"{CONNECTS_PER_SECOND}, and {CONNECTS_PER_SECOND} at once after a quiet time"
        drill.check(f"at most {peak} clients came back within a second: {allowed}", peak <= 2 * CONNECTS_PER_SECOND)
    drains = int(drill.run("grep -c 'draining: ' millrace.log"))
    drill.check(f"{drains} of {len(builds)} stops drained their clients", drains == len(builds))
    for writer in writers:
        writer.settle()
    sent = {f"{writer.topic} {number}" for writer in writers for number in writer.acknowledged}
    until(lambda: len(reader.got) >= len(sent), f"{len(reader.got)} of {len(sent)} messages arrived")
    refused = sum(len(writer.refused) for writer in writers)
    away = drill.keep(Subscriber("away", "drill/#"))
    until(lambda: len(away.got) >= len(sent), f"{len(away.got)} of {len(sent)} messages were stored")
    drill.check(f"the session that was away got {len(away.got)} messages, which both builds had stored", True)
    drill.check(f"{len(sent)} messages were acknowledged, {refused} refused; {len(reader.got)} arrived", refused == 0)
    drill.until_no_alert()
