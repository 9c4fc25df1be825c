#!/usr/bin/env python3
"""Slowdowns: the arithmetic, and, with k6 and a Millrace, a server that answers six times later.

The planted slowdown is a proxy that delays the server's messages and acknowledgements by a multiple of what this machine needs for an
answer. The server's twin runs at the same time behind a proxy without a delay, so other programs slow both.
"""

import asyncio
import contextlib
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import run  # noqa: E402
import slowdown  # noqa: E402

SCENARIO = "fanin-qos1"
LOAD = {"LOAD_SECONDS": "5", "LOAD_PUBLISHERS": "150", "LOAD_RATE": "2", "LOAD_PUBLISH_P99_MS": "30000", "LOAD_DELIVERY_P99_MS": "30000"}
CONNACK, SUBACK = 0x20, 0x90
PUBLISH = "mqtt_publish_duration median, ms"
SLOWER = 6
DELAY_S_MAX = 3


class Arithmetic(unittest.TestCase):
    METRICS = {
        "mqtt_publish_duration": {"med": 2.0, "count": 50},
        "mqtt_connect_duration": {"med": 9.0, "count": 50},
        "mqtt_connect_duration{phase:storm}": {"med": 40.0, "count": 50},
        "http_req_duration": {"med": 3.0, "count": 50},
        "http_req_duration{expected_response:true}": {"med": 3.0, "count": 50},
        "http_req_blocked": {"med": 1.0, "count": 50},
        "iteration_duration": {"med": 5000.0, "count": 50},
        "mqtt_subscribe_duration": {"med": 1.0, "count": 49},
        "mqtt_messages_sent": {"count": 7},
    }

    def test_the_medians_of_a_run_are_those_of_its_parts(self):
        self.assertEqual(
            slowdown.figures(self.METRICS, {"server_us_per_delivery": 5.0}),
            {"http_req_duration{expected_response:true} median, ms": 3.0, "mqtt_connect_duration{phase:storm} median, ms": 40.0,
             "mqtt_publish_duration median, ms": 2.0, "server CPU for each delivery, µs": 5.0},
        )

    def test_three_times_slower_is_too_slow_and_a_busy_machine_is_forgiven(self):
        self.assertEqual([row[-1] for row in slowdown.judge({"a": 3.0, "b": 1.5}, {"a": 1.0, "b": 1.0}, 1.0)], [True, False])
        self.assertEqual([row[-1] for row in slowdown.judge({"a": 3.0}, {"a": 1.0}, 1.5)], [False])

    def test_a_figure_that_is_missing_is_too_slow(self):
        self.assertEqual([row[-1] for row in slowdown.judge({}, {"a": 1.0}, 1.0)], [True])

    def test_a_pair_that_another_program_disturbed_decides_nothing(self):
        pairs = [({"a": 1.0}, {"a": 1.0}), ({"a": 9.0}, {"a": 1.0}), ({"a": 1.5}, {"a": 1.0})]
        self.assertEqual(list(slowdown.judge_pairs(pairs)), [["a", 1.5, 1.0, 1.5, False]])

    def test_two_slow_pairs_of_three_are_too_slow_on_a_machine_of_any_speed(self):
        pairs = [({"a": 3.0}, {"a": 1.0}), ({"a": 90.0}, {"a": 30.0}), ({"a": 1.0}, {"a": 1.0})]
        self.assertEqual([row[-2:] for row in slowdown.judge_pairs(pairs)], [[3.0, True]])

    def test_a_figure_that_one_run_of_the_pairs_lacks_is_too_slow(self):
        self.assertEqual([row[-1] for row in slowdown.judge_pairs([({}, {"a": 1.0}), ({"a": 1.0}, {"a": 1.0})])], [True])

    def test_the_slowest_probe_counts_and_a_faster_machine_is_no_stricter(self):
        quiet = {"round_trip_us": 10, "sync_us": 100}
        self.assertEqual(slowdown.factor([{"round_trip_us": 5, "sync_us": 50}], quiet), 1.0)
        self.assertEqual(slowdown.factor([{"round_trip_us": 10, "sync_us": 100}, {"round_trip_us": 11, "sync_us": 200}], quiet), 2.0)

    def test_the_probe_measures_this_machine(self):
        self.assertTrue(all(value > 0 for value in slowdown.probe().values()))


async def copy(reader, writer, delay_s):
    """Hands on each piece `delay_s` after it came. CONNACK and SUBACK are not delayed, because clients give up when they are late."""
    pieces = asyncio.Queue()

    async def read():
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                pieces.put_nowait((time.monotonic() + (0 if data[0] in (CONNACK, SUBACK) else delay_s), data))
        pieces.put_nowait((0, b""))

    reading = asyncio.create_task(read())
    with contextlib.suppress(ConnectionError):
        while (piece := await pieces.get())[1]:
            await asyncio.sleep(max(0, piece[0] - time.monotonic()))
            writer.write(piece[1])
            await writer.drain()
    writer.close()
    await reading


def proxy(delay_s):
    @contextlib.contextmanager
    def way(url):
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        host, port = url.rpartition("/")[2].split(":")

        async def take(reader, writer):
            server_reader, server_writer = await asyncio.open_connection(host, int(port))
            await asyncio.gather(copy(reader, server_writer, 0), copy(server_reader, writer, delay_s))

        async def listen():
            return await asyncio.start_server(take, host, 0, backlog=1024)

        listener = asyncio.run_coroutine_threadsafe(listen(), loop).result()
        try:
            yield f"mqtt://{host}:{listener.sockets[0].getsockname()[1]}"
        finally:
            loop.call_soon_threadsafe(listener.close)
            loop.call_soon_threadsafe(loop.stop)

    return way


@unittest.skipUnless(pathlib.Path(run.K6).exists() and pathlib.Path(run.MILLRACE).exists(), "it needs k6 (make k6) and a Millrace")
class Planted(unittest.TestCase):
    def setUp(self):
        os.environ.update(LOAD)
        reports = tempfile.TemporaryDirectory()
        self.addCleanup(reports.cleanup)
        self.addCleanup(lambda: [os.environ.pop(name) for name in LOAD])
        self.reports = pathlib.Path(reports.name)

    def judged(self, delay_s):
        """The rows of this program beside itself, and the twin's median of a publish, ms."""
        found, code = run.pairs(SCENARIO, [], self.reports, (run.MILLRACE, run.MILLRACE), (proxy(delay_s), proxy(0)))
        self.assertEqual(code, 0, "the thresholds see it already, so this test shows nothing")
        rows = list(slowdown.judge_pairs(found))
        print(*slowdown.sentences(rows, 1, "its twin's"), sep="\n", flush=True)
        return rows, statistics.median(beside[PUBLISH] for _, beside in found)

    def test_a_server_that_answers_later_than_its_twin_is_seen_and_the_same_server_is_not(self):
        rows, publish_ms = self.judged(0)
        self.assertGreater(len(rows), 2)
        self.assertEqual([row for row in rows if row[-1]], [], "the same program is no slower than itself")
        delay_s = min((SLOWER - 1) * publish_ms / 1000, DELAY_S_MAX)
        print(f"a server that answers {1000 * delay_s:.1f} ms later", flush=True)
        rows, _ = self.judged(delay_s)
        self.assertIn(PUBLISH, [row[0] for row in rows if row[-1]])


if __name__ == "__main__":
    unittest.main()
