#!/usr/bin/env python3
"""Measures what telemetry costs where packets are handled: the server's CPU time for each message, as a ratio to the same without
telemetry, for each scenario of the native driver.

    dashboards/cost.py [--rounds 5] [--scenario NAME,NAME] [--way NAME] [--seconds 4] [--json OUT.json] [--check] [--busy]
    dashboards/cost.py --instructions [--rounds 2] [--scenario NAME,NAME] [--way NAME] [--seconds 4]

It needs an idle machine, target/release/millrace and mqttload (MILLRACE, MQTTLOAD name others) and the collector
(dashboards/collector/build.sh). Each way (a set of telemetry flags, WAYS) is paired with a run without telemetry. The order of a
pair alternates, and its two runs give the ratio.
The way "off again" has no telemetry either: its ratios are the noise of the machine. `--check` fails when a median is above RATIO_MAX.
The server's CPU time includes the exporting thread.

`--instructions` counts instructions with valgrind instead (instructions.py), which works on a busy machine, too.
"""

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import instructions
from observe import HERE, HOST, Missing, Observe, program

ROOT = HERE.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
MILLRACE = os.environ.get("MILLRACE") or TARGET / "release/millrace"
MQTTLOAD = os.environ.get("MQTTLOAD") or TARGET / "release/mqttload"
PORTS_UP = int(os.environ.get("OBSERVE_PORTS_UP") or 20_000)
RUN_SECONDS_MAX = 300
RATIO_MAX = 1.02
# The part of all messages that `--trace-ratio 0.01` traces.
ASKED = 0.01
SCENARIOS = ["qos0-window", "qos1-closed", "fanout", "fanin-qos0", "fanin-qos1", "durable-publish", "durable-online"]
# A load average above this, per core, means that other programs run.
LOAD_MAX = 0.25
# Flags of each way besides --otlp-endpoint; a way with None has no telemetry. A run lasts seconds, so it exports ten times as often as a server does.
OFF, LIMITED, UNBOUNDED, DENSE = "off", "traces 1 %", "traces 1 %, unbounded", "traces 20 %, unbounded"
WAYS = {
    "off again": None,
    "metrics": ["--otlp-interval-s", "1"],
    # With the limit of traces per second that a server has by default; all but the slow scenarios reach it.
    LIMITED: ["--otlp-interval-s", "1", "--trace-ratio", "0.01"],
    UNBOUNDED: ["--otlp-interval-s", "1", "--trace-ratio", "0.01", "--traces-per-second-max", "100000"],
    # For scenarios whose cost of a message depends on the size of groups: 20 times the traces stand out of that noise.
    DENSE: ["--otlp-interval-s", "1", "--trace-ratio", "0.2", "--traces-per-second-max", "100000"],
}
# Code below takes flags of a way by position: the trace ratio is the fourth, and valgrind's runs replace the first two.
USUAL = ["off again", "metrics", LIMITED]
COUNTED = ["metrics", LIMITED, UNBOUNDED]
CHECKED = ("metrics", LIMITED)


def measure(scenario, way, endpoint, seconds):
    """One run: microseconds of the server's CPU for each thing that the scenario counts, and what mqttload said."""
    said = ran(scenario, way, endpoint, seconds)
    faults = {name: said[name] for name in ("lost", "repeated", "disordered", "unacked", "closed") if said[name]}
    if faults or not said["count"]:
        raise RuntimeError(f"{scenario}, {way}: {faults or 'nothing was counted'}")
    return 1e6 * said["server_cpu_s"] / said["count"], said


def ran(scenario, way, endpoint, seconds):
    """Runs a scenario without valgrind, and returns the output of mqttload."""
    flags = [] if WAYS.get(way) is None else ["--otlp-endpoint", endpoint, *WAYS[way]]
    command = [MQTTLOAD, "run", scenario, "--json", "--seconds", seconds, "--millrace-bin", MILLRACE, "--millrace-args", " ".join(flags)]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
    if done.returncode:
        raise RuntimeError(f"{scenario}, {way}: {(done.stdout + done.stderr)[-1000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def pairs(scenarios, ways, round_number):
    """The comparisons of a round: (scenario, way, order of its two runs). The order alternates, so that a machine that slows down does not favour one."""
    for scenario in scenarios:
        for way in ways:
            yield scenario, way, (OFF, way) if round_number % 2 == 0 else (way, OFF)


def ratios(figures, scenario, way):
    return [on / off for off, on in figures[scenario][way]]


def table(figures):
    """`figures` has pairs of costs, off and on, by scenario and way."""
    ways = list(next(iter(figures.values())))
    lines = ["| scenario | off | " + " | ".join(ways) + " |", "|---|" + "---|" * (len(ways) + 1)]
    for scenario, by_way in figures.items():
        cells = [f"{statistics.median(off for found in by_way.values() for off, _ in found):.2f} µs"]
        for way in ways:
            found = ratios(figures, scenario, way)
            cells.append(f"{statistics.median(found):.3f} ({min(found):.3f} to {max(found):.3f})")
        lines.append(f"| `{scenario}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def above(figures):
    """The measured ways whose median CPU cost is over RATIO_MAX."""
    for scenario, by_way in figures.items():
        for way in CHECKED:
            if way in by_way and (ratio := statistics.median(ratios(figures, scenario, way))) > RATIO_MAX:
                yield f"{scenario}, {way}: {ratio:.3f}"


def check_idle():
    if (load := os.getloadavg()[0]) > LOAD_MAX * os.cpu_count():
        raise Missing(f"the machine is busy: its load is {load:.1f}. Wait until it is below {LOAD_MAX * os.cpu_count():g}, or add --busy")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", default="4")
    parser.add_argument("--scenario", type=lambda text: text.split(","), default=SCENARIOS)
    parser.add_argument("--way", action="append", help=f"one of {', '.join(WAYS)}; may be repeated")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--instructions", action="store_true", help="count instructions with valgrind; needs no idle machine")
    parser.add_argument("--busy", action="store_true", help="measure although the machine is not idle")
    args = parser.parse_args()
    args.way = args.way or (COUNTED if args.instructions else USUAL)
    if unknown := set(args.way) - set(WAYS):
        parser.error(f"there is no way {', '.join(unknown)}; there are: {', '.join(WAYS)}")
    return args


def rounds(args, endpoint):
    """All runs of all rounds: the pairs of costs by scenario and way, and what mqttload said of each run."""
    figures = {scenario: {way: [] for way in args.way} for scenario in args.scenario}
    runs = []
    for number in range(args.rounds):
        for scenario, way, order in pairs(args.scenario, args.way, number):
            costs = {}
            for one in order:
                costs[one], said = measure(scenario, one, endpoint, args.seconds)
                runs.append({"round": number, "pair": way, "way": one, "cpu_us_each": costs[one], **said})
            figures[scenario][way].append((costs[OFF], costs[way]))
            print(f"{number + 1}/{args.rounds} {scenario}, {way}: {costs[way] / costs[OFF]:.3f}", file=sys.stderr, flush=True)
    return figures, runs


def counted(args):
    """Instructions for each message of event loops and writer, as ratios to the run without telemetry, and those of the exporting thread.
    The last column is what a server with the default limit of traces costs at the scenario's rate without valgrind."""
    program("valgrind", how="apt-get install valgrind")
    collector = instructions.Collector()
    print("| scenario | off | " + " | ".join(args.way) + " | messages a second, traced, ratio, exporter |\n|---|" + "---|" * (len(args.way) + 2))
    for scenario in args.scenario:
        found, traces = {way: [] for way in (OFF, *args.way)}, None
        # On a busy machine the rate is lower, so the traced share and its cost are higher.
        said = ran(scenario, OFF, None, args.seconds)
        native = said["count"] / said["wall_s"]
        for _, way in ((number, way) for number in range(args.rounds) for way in found):
            flags = [] if WAYS.get(way) is None else ["--otlp-endpoint", collector.endpoint, *instructions.INTERVAL, *WAYS[way][2:]]
            if way == LIMITED:
                flags += ["--traces-per-second-max", traces.limit]
            cost = instructions.measure(MILLRACE, MQTTLOAD, scenario, flags, args.seconds)
            traces = traces or instructions.Traces(native, cost["rate"])
            found[way].append(cost)
            print(f"{scenario}, {way}: {cost}", file=sys.stderr, flush=True)
        costs = {way: {kind: statistics.median(cost[kind] for cost in all_) for kind in all_[0]} for way, all_ in found.items()}
        off = costs.pop(OFF)
        cells = [f"{off['messages']:,.1f}", *(counted_cell(off, cost) for cost in costs.values()), native_cell(traces, off, costs)]
        print(f"| `{scenario}` | " + " | ".join(cells) + " |", flush=True)


def counted_cell(off, cell):
    text = f"{cell['messages'] / off['messages']:.3f}, exporter {cell['exporter'] / off['messages']:.3f}"
    if not cell["traced"]:
        return text
    each = [instructions.each(off, cell, kind) for kind in instructions.KINDS]
    return f"{text}; {cell['traced']:.2%} traced, each {each[0]:,.0f} and {each[1]:,.0f} instructions"


def native_cell(traces, off, costs):
    """The last column: from the cost of one trace (instructions.each) and the share of messages that a server without valgrind traces."""
    way = DENSE if DENSE in costs else UNBOUNDED
    cost = costs.get(way)
    if not cost or not cost["traced"]:
        return f"{traces.native:,.0f}"
    share = traces.share(cost, times=ASKED / float(WAYS[way][3]))
    ratios = [share * instructions.each(off, cost, kind) / off["messages"] for kind in instructions.KINDS]
    return f"{traces.native:,.0f}, {share:.4%}, {1 + ratios[0]:.4f}, {ratios[1]:.4f}"


def main():
    args = parsed()
    if args.instructions:
        return counted(args)
    if not args.busy:
        check_idle()
    tools = Path(os.environ.get("OBSERVE_TOOLS") or TARGET / "tools")
    for path in (MILLRACE, MQTTLOAD, tools / "otelcol"):
        if not Path(path).exists():
            raise Missing(f"there is no {path}: make bench and make observe make them")
    folder = Path(tempfile.mkdtemp(prefix="millrace-cost-"))
    observe = Observe(folder, tools, up=PORTS_UP)
    try:
        observe.prepare()
        observe.start_collector(tools / "otelcol")
        observe.wait("collector", f"http://{HOST}:{observe.ports['health']}/")
        figures, runs = rounds(args, observe.url("otlp_http"))
    finally:
        observe.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if args.json:
        about = {"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "load_after": os.getloadavg()[0]}
        args.json.write_text(json.dumps({"about": about, "runs": runs}, indent=1) + "\n")
    print(f"CPU of the server for each message, and its ratio to that of the run beside it without telemetry: median (range) of {args.rounds} pairs.\n")
    print(table(figures))
    if args.check and (found := list(above(figures))):
        sys.exit("above " + f"{RATIO_MAX}: " + "; ".join(found))


if __name__ == "__main__":
    try:
        main()
    except Missing as missing:
        sys.exit(f"SKIPPED: {missing}")
