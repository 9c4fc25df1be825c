#!/usr/bin/env python3
"""Machines and monthly cost of a fleet, from the measured CPU time and bytes of each connection, message and session.

    loadtests/capacity/capacity.py FLEET.toml                     a table
    loadtests/capacity/capacity.py FLEET.toml --json              sizes for programs, such as Terraform
    loadtests/capacity/capacity.py FLEET.toml --compare           beside what others have published
    loadtests/capacity/capacity.py --charts FOLDER                the charts of the README
    loadtests/capacity/capacity.py --figures                      write the figures of Terraform's module

--measured FILE takes another file of measure.py.
"""

import argparse
import json
import pathlib
import sys
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import chart  # noqa: E402
import costs  # noqa: E402
import fleet as fleets  # noqa: E402
import model  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TERRAFORM = HERE.parents[1] / "terraform"
FIGURES = TERRAFORM / "modules/capacity/figures.json"
GIB = 2**30


def latest_measurement():
    """The newest committed file; its name has its date."""
    return max(HERE.glob("measured-*.json"))


def table(plan, measured):
    lines = [f"{plan['name']}: {plan['monthly_usd']:,.0f} USD a month, "
             f"{plan['usd_per_1000_connections']:.2f} USD for 1000 connections; measured on {measured['measured_on']}"]
    for name, region in plan["regions"].items():
        lines.append(f"  {name}: {region['publishes_per_s']:,.0f} publishes and {region['deliveries_per_s']:,.0f} deliveries a second")
        for part, size in region["sizes"].items():
            lines.append(f"    {part:8} {size['machines']:5} x {size['type']:14} for {size['cores_needed']:10,.1f} cores, "
                         f"{size['memory_gib_needed']:10,.1f} GiB; bound by {size['bound_by']:8} {region['monthly_usd'][part]:12,.0f} USD")
        lines.append(f"    egress {region['monthly_usd']['egress']:76,.0f} USD")
    return "\n".join(lines)


def comparison(cost, fleet):
    """The bars of two charts, cores and GiB of memory: what the model says that Millrace uses for the fleet, by part, beside the brokers of
    published.toml. Their machines were rented for the same number of connections ("provisioned"), or their published use of one
    connection or message is scaled to the fleet ("used")."""
    needed = model.demand(cost, fleet)
    connections = fleet["fleet"]["connections"]
    parts = [part for part in model.PARTS if needed[part]["cores"]]
    cores = [("Millrace, used", {part: needed[part]["cores"] for part in parts})]
    memory = [("Millrace, used", {part: needed[part]["memory_bytes"] / GIB for part in ("edge", "gateway")})]
    for setup in tomllib.loads((HERE / "published.toml").read_text())["setup"]:
        if "cores" in setup:
            cores.append((f"{setup['name']}, provisioned", {"published": setup["cores"]}))
            memory.append((f"{setup['name']}, provisioned", {"published": setup["memory_gib"]}))
        if "bytes_per_connection" in setup:
            memory.append((f"{setup['name']}, used", {"published": setup["bytes_per_connection"] * connections / GIB}))
        if "messages_per_core_s" in setup:
            messages = needed["publishes_per_s"] + needed["deliveries_per_s"]
            cores.append((f"{setup['name']}, used", {"published": messages / setup["messages_per_core_s"]}))
    return cores, memory


def lines_of(bars, unit):
    return "\n".join(f"  {label:28} {sum(parts.values()):10,.0f} {unit}  "
                     + ", ".join(f"{part} {value:,.0f}" for part, value in parts.items()) for label, parts in bars)


def charts(folder, cost, measured):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    note = (f"Millrace: measured on {measured['measured_on']}, with the kernel's sockets. Others, as published: "
            "EMQX 5.0 and TBMQ 1: the rented machines; the rest: what was in use.")
    for name, tls in (("100-million-plain", "without TLS"), ("100-million", "with TLS")):
        cores, memory = comparison(cost, fleets.read(HERE / f"fleets/{name}.toml"))
        write(folder, f"{name}-memory", f"100 million connections, {tls}: memory", "GiB", memory, note)
        write(folder, f"{name}-cores", f"100 million connections, 1 M publishes/s, {tls}: cores", "cores", cores, note)
    rows = []
    for path in sorted((HERE / "fleets").glob("*.toml")):
        fleet = fleets.read(path)
        plan, monthly = model.plan(cost, fleet), {}
        for region in plan["regions"].values():
            for part, usd in region["monthly_usd"].items():
                monthly[part] = monthly.get(part, 0) + usd
        rows.append((f"{plan['name']}", {part: usd for part, usd in monthly.items() if usd}))
    write(folder, "monthly-cost", "Monthly cost of the fleets", "USD, list prices as assumed", rows, note)


def figures(cost, measured):
    """Figures that terraform/modules/capacity multiplies, and the machines of its examples by this model. CPU as things a second."""
    a = fleets.defaults()["assumptions"]
    examples = {}
    for path in sorted(TERRAFORM.glob("examples/*/fleet.toml")):
        (region,) = model.plan(cost, fleets.read(path))["regions"].values()
        examples[path.parent.name] = {part: size["machines"] for part, size in region["sizes"].items()}
    return {
        "measured_on": measured["measured_on"],
        "cpu_use_max": a["cpu_use_max"],
        "memory_use_max": a["memory_use_max"],
        "gateway_bytes_per_connection": round(cost.gateway_tls_bytes + 2 * cost.socket_bytes),
        "gateway_connects_per_core": round(1e6 / cost.gateway_tls_connect_us),
        # Both publishers and subscribers have a share of a message, and Terraform counts them apart.
        "gateway_messages_per_core": round(2e6 / cost.gateway_qos1_us),
        "edge_bytes_per_connection": round(cost.connection_bytes + cost.socket_bytes),
        "edge_messages_per_core": round(2e6 / cost.qos1_us),
        "edge_durable_per_core": round(1e6 / cost.online_us),
        "store_writes_per_core": a["store_writes_per_core_s"],
        "store_writes_per_message": a["store_writes_per_message"],
        "examples": examples,
    }


def write(folder, name, title, unit, rows, note):
    (folder / f"{name}.svg").write_text(chart.bars(title, unit, rows, note))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fleet", nargs="?")
    parser.add_argument("--measured", default=None, help="a file of measure.py; the newest beside this program unless given")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--charts", metavar="FOLDER")
    parser.add_argument("--figures", action="store_true")
    options = parser.parse_args()
    if not (options.fleet or options.charts or options.figures):
        parser.error("a fleet, --charts or --figures is needed")
    try:
        measured = json.loads(pathlib.Path(options.measured or latest_measurement()).read_text())
        cost = costs.read(measured)
        if options.charts:
            charts(options.charts, cost, measured)
        if options.figures:
            FIGURES.write_text(json.dumps(figures(cost, measured), indent=1) + "\n")
        if options.fleet:
            fleet = fleets.read(options.fleet)
            if options.compare:
                cores, memory = comparison(cost, fleet)
                print(f"{fleet['name']}\n{lines_of(cores, 'cores')}\n{lines_of(memory, 'GiB')}")
            elif options.json:
                print(json.dumps({"measured_on": measured["measured_on"], **model.plan(cost, fleet)}, indent=1))
            else:
                print(table(model.plan(cost, fleet), measured))
    except (costs.Unusable, fleets.Invalid, OSError, tomllib.TOMLDecodeError) as error:
        sys.exit(f"capacity: {error}")


if __name__ == "__main__":
    main()
