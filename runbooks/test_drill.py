"""Exit statuses of drills."""

import importlib.util
import subprocess
import sys
import unittest
from pathlib import Path

from statuses import SKIPPED, summary

DRILL = Path(__file__).with_name("drill.py")


class Statuses(unittest.TestCase):
    def test_a_skipped_drill_is_neither_passed_nor_failed(self):
        self.assertEqual(
            summary({"a": 0, "b": 77, "c": 0}), (["drills: 2 passed, 1 skipped, 0 failed", "SKIPPED: b"], 77)
        )

    def test_a_failed_drill_outweighs_a_skipped_one(self):
        lines, status = summary({"a": 1, "b": 77, "c": -15})
        self.assertEqual((lines, status), (["drills: 0 passed, 1 skipped, 2 failed", "SKIPPED: b", "FAILED: a c"], 1))

    def test_without_skips_all_passed(self):
        self.assertEqual(summary({"a": 0}), (["drills: 1 passed, 0 skipped, 0 failed"], 0))

    @unittest.skipUnless(importlib.util.find_spec("paho"), "drill.py needs paho-mqtt")
    def test_a_program_that_is_not_here_skips_a_drill(self):
        settings = {"PATH": "/nonexistent", "MILLRACE": "/nonexistent/millrace"}
        done = subprocess.run([sys.executable, DRILL, "pod-down"], capture_output=True, text=True, env=settings)
        self.assertEqual((done.returncode, done.stderr.split(":")[0]), (SKIPPED, "SKIPPED"), done.stderr)


if __name__ == "__main__":
    unittest.main()
