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

    def test_the_native_rate_says_which_share_of_the_messages_a_server_traces(self):
        fast, slow = instructions.Traces(1_000_000, 20_001), instructions.Traces(5_000, 100)
        self.assertEqual((fast.limit, slow.limit), (3, 2))
        off = {"messages": 1000, "exporter": 0, "traced": 0}
        unbounded = {"messages": 1050, "exporter": 20, "traced": 0.01}
        # 5,000 instructions for one of 10,000 messages, each of which has 1,000.
        self.assertEqual(cost.native_cell(fast, off, {cost.UNBOUNDED: unbounded}), "1,000,000, 0.0100%, 1.0005, 0.0002")
        self.assertEqual(cost.native_cell(slow, off, {cost.UNBOUNDED: unbounded}), "5,000, 1.0000%, 1.0500, 0.0200")
        self.assertEqual(cost.native_cell(slow, off, {}), "5,000")
        dense = {"messages": 2000, "exporter": 400, "traced": 0.2}
        self.assertEqual(cost.native_cell(slow, off, {cost.DENSE: dense}), "5,000, 1.0000%, 1.0500, 0.0200")

    def test_the_limit_is_that_of_a_server(self):
        settings = (cost.ROOT / "services/millrace/docs/settings.md").read_text()
        row = next(line for line in settings.splitlines() if line.startswith("| `traces_per_second_max` |"))
        self.assertIn(f"`{instructions.TRACES_PER_SECOND}`", row)

    def test_each_way_is_first_and_second_by_turns(self):
        self.assertEqual(list(cost.pairs(["a"], ["metrics"], 0)), [("a", "metrics", ("off", "metrics"))])
        self.assertEqual(list(cost.pairs(["a"], ["metrics"], 1)), [("a", "metrics", ("metrics", "off"))])


class Instructions(unittest.TestCase):
    LOOP, EXPORTER = "fn=millrace_edge::core::packets::packet\n", "fn=millrace_telemetry::exporter::run\n"

    def test_a_load_whose_connect_was_late_is_repeated(self):
        tries = iter([instructions.Late("qos0"), instructions.Late("qos0"), None])

        def load():
            if late := next(tries):
                raise late
            return "loaded"

        self.assertEqual(instructions.patiently(load), "loaded")

        def always():
            raise instructions.Late("qos0")

        with self.assertRaises(instructions.Late):
            instructions.patiently(always)

    def test_threads_count_by_what_they_run_in_any_dump(self):
        idle = {"-01": "totals: 9\n", "-02": f"{self.LOOP}totals: 10\n", "-03": f"{self.EXPORTER}totals: 20\n"}
        busy = {"-02": f"{self.LOOP}totals: 1000\n", "-03": "totals: 300\n", "-04": f"{self.LOOP}totals: 2 3\n"}
        found = instructions.by_kind(idle, busy)
        self.assertEqual(found, [{"exporter": 20, "messages": 10}, {"exporter": 300, "messages": 1005}])


if __name__ == "__main__":
    unittest.main()
