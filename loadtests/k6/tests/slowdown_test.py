#!/usr/bin/env python3
"""Slowdowns beside the record: the arithmetic, and, with k6 and a Millrace, a server that is three times slower.

The planted slowdown stops the server for two thirds of the time, in short pieces. The run before it is its record, so the test does not
depend on the machine.
"""

import contextlib
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import run  # noqa: E402
import slowdown  # noqa: E402

STOPPED_S, RUNNING_S = 0.004, 0.002
SCENARIO = "fanin-qos1"


class Arithmetic(unittest.TestCase):
    METRICS = {
        "mqtt_publish_duration": {"med": 2.0},
        "mqtt_connect_duration": {"med": 9.0},
        "mqtt_connect_duration{phase:storm}": {"med": 40.0},
        "http_req_duration": {"med": 3.0},
        "http_req_duration{expected_response:true}": {"med": 3.0},
        "http_req_blocked": {"med": 1.0},
        "iteration_duration": {"med": 5000.0},
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

    def test_the_slowest_probe_counts_and_a_faster_machine_is_no_stricter(self):
        quiet = {"round_trip_us": 10, "sync_us": 100}
        self.assertEqual(slowdown.factor([{"round_trip_us": 5, "sync_us": 50}], quiet), 1.0)
        self.assertEqual(slowdown.factor([{"round_trip_us": 10, "sync_us": 100}, {"round_trip_us": 11, "sync_us": 200}], quiet), 2.0)

    def test_the_probe_measures_this_machine(self):
        self.assertTrue(all(value > 0 for value in slowdown.probe().values()))


@contextlib.contextmanager
def slow(process):
    over = threading.Event()

    def stop_and_go():
        while not over.is_set():
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(RUNNING_S)

    thread = threading.Thread(target=stop_and_go, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@unittest.skipUnless(pathlib.Path(run.K6).exists() and pathlib.Path(run.MILLRACE).exists(), "it needs k6 (make k6) and a Millrace")
class Planted(unittest.TestCase):
    def measure(self, disturb=None):
        os.environ["LOAD_SECONDS"] = "4"
        self.addCleanup(os.environ.pop, "LOAD_SECONDS", None)
        with tempfile.TemporaryDirectory() as reports:
            probes = [slowdown.probe()]
            code, metrics, used = run.measure(SCENARIO, [], pathlib.Path(reports), disturb)
            probes.append(slowdown.probe())
        return code, slowdown.figures(metrics, used), probes

    def slower(self, probes, machine):
        found = slowdown.factor(probes, machine)
        if found > slowdown.FACTOR_MAX:
            self.skipTest(f"this machine became {found:.1f} times slower meanwhile")
        return found

    def test_a_server_that_is_three_times_slower_is_seen_and_passes_the_thresholds_alone(self):
        _, recorded, probes = self.measure()
        self.assertGreater(len(recorded), 2)
        machine = {name: max(probe[name] for probe in probes) for name in probes[0]}
        _, again, probes = self.measure()
        slower = self.slower(probes, machine)
        self.assertFalse(any(row[-1] for row in slowdown.judge(again, recorded, slower)), (again, recorded, slower))
        code, late, probes = self.measure(slow)
        slower = self.slower(probes, machine)
        self.assertEqual(code, 0, "the thresholds in milliseconds see it already, so this test shows nothing")
        self.assertTrue(any(row[-1] for row in slowdown.judge(late, recorded, slower)), (late, recorded, slower))


if __name__ == "__main__":
    unittest.main()
