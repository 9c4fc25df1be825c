#!/usr/bin/env python3
"""The report of a run: what a person must read from it."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import report  # noqa: E402

METRICS = {
    "mqtt_messages_lost": {"count": 3, "rate": 0.5, "thresholds": {"count==0": True}},
    "mqtt_publish_duration": {"avg": 2, "med": 1.5, "p(90)": 4, "p(95)": 9, "p(99)": 1234.4, "max": 2000, "thresholds": {"p(99)<5000": False, "p(95)<8": True}},
    "checks": {"passes": 9, "fails": 1, "value": 0.9, "thresholds": {"rate==1": True}},
    "vus": {"value": 2, "min": 2, "max": 2},
}


class Report(unittest.TestCase):
    def page(self, code=99, settings={}):
        return report.page("fanout", code, METRICS, {"server_cpu_s": 0.2}, settings, "fanout.graphs.html")

    def test_each_threshold_has_its_measured_value_and_verdict(self):
        self.assertEqual(
            [row[:3] + ["crossed" in row[3]] for row in report.thresholds(METRICS)],
            [
                ["checks", "rate==1", "0.9", True],
                ["mqtt_messages_lost", "count==0", "3", True],
                ["mqtt_publish_duration", "p(99)<5000", "1,234 ms", False],
                ["mqtt_publish_duration", "p(95)<8", "9 ms", True],
            ],
        )

    def test_a_failed_run_says_so_and_a_passed_one_does_not(self):
        self.assertIn("failed (k6 exit code 99)", self.page())
        self.assertNotIn("failed", self.page(code=0).split("<h2>")[0].split("<h1>")[1])

    def test_settings_are_text_and_no_markup(self):
        self.assertIn("&lt;script&gt;", self.page(settings={"LOAD_PREFIX": "<script>"}))

    def test_the_page_needs_no_network(self):
        self.assertNotIn("http", self.page())


if __name__ == "__main__":
    unittest.main()
