"""The arithmetic of cost.py, and the order of its runs."""

import unittest

import cost
import instructions


class Ratios(unittest.TestCase):
    FIGURES = {"qos0": {"off again": [(10, 11), (20, 20), (10, 9)], "metrics": [(10, 10.1), (20, 20.8), (10, 10.3)]}}

    def test_a_ratio_is_of_the_two_runs_of_a_pair(self):
        self.assertEqual(cost.ratios(self.FIGURES, "qos0", "off again"), [1.1, 1.0, 0.9])
        self.assertIn("| `qos0` | 10.00 µs | 1.000 (0.900 to 1.100) | 1.030 (1.010 to 1.040) |", cost.table(self.FIGURES))

    def test_the_check_looks_at_medians_of_telemetry_alone(self):
        self.assertEqual(list(cost.above(self.FIGURES)), ["qos0, metrics: 1.030"])
        noisy = {"qos0": {"off again": [(10, 12)], "metrics": [(10, 10.1), (10, 15), (10, 9)]}}
        self.assertEqual(list(cost.above(noisy)), [])

    def test_checked_traces_have_the_limit_of_a_server_and_others_none(self):
        self.assertNotIn("--traces-per-second-max", cost.WAYS["traces 1 %"])
        self.assertIn("traces 1 %", set(cost.USUAL) & set(cost.CHECKED))
        flags = cost.WAYS[cost.UNBOUNDED]
        # More messages a second than any scenario has on this hardware.
        self.assertGreaterEqual(int(flags[flags.index("--traces-per-second-max") + 1]), 0.01 * 10_000_000)

    def test_a_cell_has_the_cost_of_a_traced_message(self):
        off = {"messages": 1000, "exporter": 0, "traced": 0}
        cell = {"messages": 1050, "exporter": 20, "traced": 0.01}
        self.assertEqual(cost.counted_cell(off, off), "1.000, exporter 0.000")
        self.assertEqual(cost.counted_cell(off, cell), "1.050, exporter 0.020; 1.00% traced, each 5,000 and 2,000 instructions")

    def test_each_way_is_first_and_second_by_turns(self):
        self.assertEqual(list(cost.pairs(["a"], ["metrics"], 0)), [("a", "metrics", ("off", "metrics"))])
        self.assertEqual(list(cost.pairs(["a"], ["metrics"], 1)), [("a", "metrics", ("metrics", "off"))])


class Instructions(unittest.TestCase):
    LOOP, EXPORTER = "fn=millrace_edge::core::packets::packet\n", "fn=millrace_telemetry::exporter::run\n"

    def test_threads_count_by_what_they_run_in_any_dump(self):
        idle = {"-01": "totals: 9\n", "-02": f"{self.LOOP}totals: 10\n", "-03": f"{self.EXPORTER}totals: 20\n"}
        busy = {"-02": f"{self.LOOP}totals: 1000\n", "-03": "totals: 300\n", "-04": f"{self.LOOP}totals: 2 3\n"}
        found = instructions.by_kind(idle, busy)
        self.assertEqual(found, [{"exporter": 20, "messages": 10}, {"exporter": 300, "messages": 1005}])


if __name__ == "__main__":
    unittest.main()
