#!/usr/bin/env python3
"""The arithmetic of the model, by numbers that can be checked by hand. Run with: python3 -m unittest discover loadtests/capacity/tests"""

import copy
import dataclasses
import io
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
import capacity  # noqa: E402
import chart  # noqa: E402
import costs  # noqa: E402
import fleet as fleets  # noqa: E402
import model  # noqa: E402

COSTS = costs.Costs(
    connection_bytes=1000, connect_us=20, qos0_us=4, qos1_us=8, further_us=1, payload_byte_us=0.001, ping_us=4, socket_bytes=3000,
    stored_us=10, online_us=15, drained_us=2, stored_overhead_bytes=100, session_bytes=400, session_back_us=100, gateway_qos1_us=40,
    gateway_plain_bytes=20000, gateway_tls_bytes=26000, gateway_tls_connect_us=1200,
)
FLEET = {
    "name": "test",
    "fleet": {"connections": 1_000_000, "keep_alive_s": 100, "tls": True, "persistent": False, "sessions": 0,
              "retained_messages": 0, "retained_bytes": 0, "zones": 2, "reconnect_within_s": 500},
    "traffic": [],
    "regions": [{"name": "one", "share": 1.0}],
    "assumptions": {
        "cores_per_measured_core": 1, "cpu_use_max": 0.5, "memory_use_max": 0.5, "disk_use_max": 0.5,
        "overhead_bytes_per_message": 100,
        "connections_per_machine_max": 1000, "store_writes_per_core_s": 1000, "store_writes_per_message": 2, "store_copies": 3,
        "fabric_messages_per_core_s": 1000, "share_of_messages_between_pods": 0.5,
    },
    "prices": {"disk_usd_per_gib_month": 0.1, "egress_usd_per_gib": 0.05},
    "machines": {part: {"type": "m", "cores": 1, "memory_gib": 1, "disk_gib": 100, "usd_per_hour": 1} for part in model.PARTS},
}
FLOW = {"publishes_per_s": 1000, "subscribers": 1, "qos": 0, "payload_bytes": 0, "durable": False, "online_share": 1, "kept_s": 0}


def fleet(traffic=(), **changes):
    made = copy.deepcopy(FLEET)
    made["fleet"].update(changes)
    made["traffic"] = [{**FLOW, **flow} for flow in traffic]
    return made


class Messages(unittest.TestCase):
    def test_the_cost_of_a_publish_and_its_deliveries(self):
        for what, expected, flow in (
            ("QoS 0 to one", 4, {}),
            ("QoS 1 to one", 8, {"qos": 1}),
            ("to nobody", 2, {"subscribers": 0}),
            ("QoS 0 to ten", 4 + 9 * 1, {"subscribers": 10}),
            ("QoS 1 to ten, each acknowledged", 8 + 9 * (1 + 2), {"subscribers": 10, "qos": 1}),
            ("1000 bytes in and 1000 out", 4 + 1, {"payload_bytes": 1000}),
            ("stored, online", 15, {"qos": 1, "durable": True}),
            ("stored, half of the time online, four of them", (15 + 10 + 2) / 2 + 3 * (1 + 2), {"qos": 1, "durable": True, "subscribers": 4, "online_share": 0.5}),
        ):
            self.assertAlmostEqual(model.message_us(COSTS, {**FLOW, **flow}), expected, msg=what)


class Demand(unittest.TestCase):
    def test_idle_connections_ping_and_come_back(self):
        needed = model.demand(COSTS, fleet())
        # 10,000 pings a second of 4 us; a half of all comes back in 500 s: 1000 connects a second of 20 us.
        self.assertAlmostEqual(needed["edge"]["cores"], (10_000 * 4 + 1000 * 20) / 1e6)
        self.assertAlmostEqual(needed["gateway"]["cores"], (10_000 * 20 + 1000 * 1200) / 1e6)
        self.assertEqual(needed["edge"]["memory_bytes"], 1_000_000 * (1000 + 3000))
        self.assertEqual(needed["gateway"]["memory_bytes"], 1_000_000 * (26_000 + 6000))
        self.assertEqual(model.demand(COSTS, fleet(tls=False))["gateway"]["memory_bytes"], 1_000_000 * (20_000 + 6000))

    def test_messages_add_to_every_part(self):
        idle = model.demand(COSTS, fleet())
        needed = model.demand(COSTS, fleet([{"qos": 1, "subscribers": 3}]))
        self.assertAlmostEqual(needed["edge"]["cores"] - idle["edge"]["cores"], 1000 * (8 + 2 * 3) / 1e6)
        self.assertAlmostEqual(needed["gateway"]["cores"] - idle["gateway"]["cores"], 20 * (1000 + 3000) / 1e6)
        self.assertAlmostEqual(needed["fabric"]["cores"], 1000 * 0.5 / 1000)
        self.assertEqual(needed["store"]["cores"], 0)
        self.assertEqual(needed["egress_bytes_per_s"], 3000 * 100)

    def test_what_is_durable_needs_the_store(self):
        flow = {"qos": 1, "durable": True, "payload_bytes": 50, "kept_s": 60}
        needed = model.demand(COSTS, fleet([flow], persistent=True, sessions=1000, retained_messages=10, retained_bytes=7))
        self.assertAlmostEqual(needed["store"]["cores"], 1000 * 2 * 3 / 1000)
        self.assertAlmostEqual(needed["store"]["disk_bytes"], 3 * (1000 * 60 * 150 + 1000 * 400 + 10 * 7))

    def test_shares_of_regions_add_up(self):
        whole = model.demand(COSTS, fleet([{}]))
        parts = [model.demand(COSTS, fleet([{}]), share) for share in (0.25, 0.75)]
        for part in model.PARTS:
            self.assertAlmostEqual(sum(one[part]["cores"] for one in parts), whole[part]["cores"])


class Machines(unittest.TestCase):
    MACHINE = {"cores": 10, "memory_gib": 10, "disk_gib": 10}

    def size(self, zones=1, **needed):
        return model.machines({"cores": 0, "memory_bytes": 0, **needed}, self.MACHINE, FLEET["assumptions"], zones)

    def test_the_scarcest_resource_decides(self):
        for expected, needed in (
            ((0, "nothing"), {}),
            ((1, "cpu"), {"cores": 5}),
            ((2, "cpu"), {"cores": 5.01}),
            ((2, "memory"), {"cores": 5, "memory_bytes": 10 * 2**30}),
            ((3, "connections"), {"cores": 5, "connections": 2500}),
            ((4, "disk"), {"cores": 5, "disk_bytes": 20 * 2**30}),
        ):
            self.assertEqual(self.size(**needed), expected, needed)

    def test_a_lost_zone_leaves_enough(self):
        for zones, expected in ((1, 6), (2, 12), (3, 9), (4, 8)):
            count, _ = self.size(zones, cores=30)
            self.assertEqual(count, expected)
            if zones > 1:
                self.assertGreaterEqual(count * (zones - 1) / zones * 5, 30)


class Plan(unittest.TestCase):
    def test_money(self):
        made = fleet([{"publishes_per_s": 1_000_000}], zones=1)
        plan = model.plan(COSTS, made)
        region = plan["regions"]["one"]
        self.assertAlmostEqual(region["monthly_usd"]["egress"], 1e6 * 100 * model.SECONDS_PER_MONTH / 2**30 * 0.05, places=1)
        self.assertEqual(region["monthly_usd"]["edge"], region["sizes"]["edge"]["machines"] * model.HOURS_PER_MONTH)
        self.assertAlmostEqual(plan["monthly_usd"], sum(region["monthly_usd"].values()), places=1)
        self.assertAlmostEqual(plan["usd_per_1000_connections"], plan["monthly_usd"] / 1000, places=3)

    def test_more_of_anything_never_costs_less(self):
        base = fleet([{"qos": 1, "durable": True, "kept_s": 60}], persistent=True, sessions=1000)
        least = model.plan(COSTS, base)["monthly_usd"]
        for key in ("connections", "sessions", "retained_messages"):
            more = copy.deepcopy(base)
            more["fleet"][key] = (more["fleet"][key] + 1) * 10
            self.assertGreaterEqual(model.plan(COSTS, more)["monthly_usd"], least, key)
        for key in ("publishes_per_s", "subscribers", "payload_bytes", "kept_s"):
            more = copy.deepcopy(base)
            more["traffic"][0][key] = (more["traffic"][0][key] + 1) * 10
            self.assertGreaterEqual(model.plan(COSTS, more)["monthly_usd"], least, key)


class Files(unittest.TestCase):
    def test_every_committed_fleet_and_measurement_is_used(self):
        cost = costs.read(json.loads(capacity.latest_measurement().read_text()))
        for value in dataclasses.asdict(cost).values():
            self.assertGreater(value, 0)
        for path in (HERE / "fleets").glob("*.toml"):
            plan = model.plan(cost, fleets.read(path))
            self.assertGreater(plan["monthly_usd"], 0, path)

    def test_the_page_has_the_figures_of_the_newest_measurement(self):
        measured = json.loads(capacity.latest_measurement().read_text())
        page = (HERE / "README.md").read_text()
        for rows in capacity.comparison(costs.read(measured), fleets.read(HERE / "fleets/100-million.toml")):
            for label, parts in rows:
                split = f": {', '.join(f'{part} {value:,.0f}' for part, value in parts.items())}" if len(parts) > 1 else ""
                row = next(line for line in page.splitlines() if line.startswith(f"| {label.replace('provisioned', 'rented')} |"))
                self.assertIn(f" {sum(parts.values()):,.0f}{split} |", row)

    def test_terraform_has_the_figures_of_the_newest_measurement(self):
        measured = json.loads(capacity.latest_measurement().read_text())
        self.assertEqual(json.loads(capacity.FIGURES.read_text()), capacity.figures(costs.read(measured), measured), "run capacity.py --figures")

    def test_counts_that_an_example_types_in_carry_its_load_without_a_zone(self):
        cost = costs.read(json.loads(capacity.latest_measurement().read_text()))
        parts = {"edge": "edge", "gateway": "gateway", "foundationdb": "store", "nats": "fabric"}
        typed = 0
        for path in sorted(capacity.TERRAFORM.glob("examples/*/fleet.toml")):
            fleet = fleets.read(path)
            needed = model.demand(cost, fleet)
            counts = re.search(r"^ *counts += \{(.*)\}", path.with_name("main.tf").read_text(), re.M)
            for variable, count in re.findall(r"(\w+) = (\d+)", counts[1] if counts else ""):
                if part := parts.get(variable):
                    left = int(count) - math.ceil(int(count) / fleet["fleet"]["zones"])
                    wanted, bound = model.machines(needed[part], fleet["machines"][part], fleet["assumptions"], 1)
                    self.assertGreaterEqual(left, wanted, f"{path.parent.name}: {count} x {variable}, bound by {bound}")
                    typed += 1
        self.assertGreater(typed, 0)

    def test_the_fleet_by_terraform_has_the_limits_of_the_modules_and_the_costs_of_the_page(self):
        fleet = fleets.read(HERE / "fleets/100-million-terraform.toml")
        folder = capacity.TERRAFORM / "modules/capacity"
        modules, variables = ((folder / name).read_text() for name in ("main.tf", "variables.tf"))
        for part, local in (("gateway", "gateways_for_connections"), ("edge", "edges_for_connections")):
            limit = re.search(rf"{local} += var.connections / (?:var\.(\w+)|(\d+))", modules)
            if limit[1]:
                limit = re.search(rf'variable "{limit[1]}" {{[^}}]*?default += ()(\d+)', variables)
            self.assertEqual(fleet["machines"][part]["connections_max"], int(limit[2]), part)
        a_region = re.search(r"var.connections <= (\d+)", variables)
        for region in fleet["regions"]:
            self.assertLessEqual(fleet["fleet"]["connections"] * region["share"], int(a_region[1]))
        plan = model.plan(costs.read(json.loads(capacity.latest_measurement().read_text())), fleet)
        page = " ".join((HERE / "README.md").read_text().split())
        said = re.search(r"with ([\d,]+) gateways and ([\d,]+) edge machines, for about ([\d,]+) USD", page)
        gateways, edges, usd = (int(number.replace(",", "")) for number in said.groups())
        for part, expected in (("gateway", gateways), ("edge", edges)):
            self.assertEqual(sum(region["sizes"][part]["machines"] for region in plan["regions"].values()), expected, part)
        self.assertLess(abs(usd - plan["monthly_usd"]), 5000, plan["monthly_usd"])

    def test_a_run_that_lost_messages_is_no_measurement(self):
        measured = json.loads(capacity.latest_measurement().read_text())
        measured["results"]["qos1"]["lost"] = 1
        with self.assertRaisesRegex(costs.Unusable, "lost"):
            costs.read(measured)
        del measured["results"]["qos1"]
        with self.assertRaisesRegex(costs.Unusable, "no qos1"):
            costs.read(measured)

    def test_a_wrong_fleet_is_refused(self):
        text = (HERE / "fleets/million-sessions.toml").read_text()
        for old, new, said in (("connections = 800_000", "", "lacks connections"),
                               ("keep_alive_s = 120", "keep_alive_s = 0", "at least 1"),
                               ("share = 0.6", "share = 0.7", "add up to 1"),
                               ("qos = 1", "qos = 0", "not of QoS 0")):
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write(text.replace(old, new))
                file.flush()
                with self.assertRaisesRegex(fleets.Invalid, said):
                    fleets.read(file.name)

    def test_programs_get_json(self):
        done = subprocess.run([sys.executable, HERE / "capacity.py", HERE / "fleets/million-sessions.toml", "--json"],
                              capture_output=True, text=True, check=True)
        sizes = json.load(io.StringIO(done.stdout))["regions"]["eu"]["sizes"]
        for part in model.PARTS:
            self.assertEqual(set(sizes[part]), {"machines", "type", "cores", "memory_gib", "disk_gib", "bound_by",
                                                "cores_needed", "memory_gib_needed"})

    def test_a_chart_is_drawn_to_scale(self):
        svg = xml.etree.ElementTree.fromstring(chart.bars("a < b", "x", [("one", {"edge": 1}), ("two", {"edge": 1, "gateway": 3})]))
        bars = [float(rect.get("width")) for rect in svg.iter("{http://www.w3.org/2000/svg}rect") if rect.get("height") == str(chart.BAR)]
        self.assertEqual(len(bars), 3)
        self.assertAlmostEqual(bars[2] / bars[0], 3, places=1)


if __name__ == "__main__":
    unittest.main()
