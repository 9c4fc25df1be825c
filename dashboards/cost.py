#!/usr/bin/env python3
"""Measures what telemetry costs where packets are handled: the server's CPU time for each message, as a ratio to the same without
telemetry, for each scenario of the native driver.

    dashboards/cost.py [--rounds 5] [--scenario NAME,NAME] [--seconds 4] [--json OUT.json] [--check]

It needs an idle machine, target/release/millrace and mqttload (MILLRACE, MQTTLOAD name others) and the collector
(dashboards/collector/build.sh). The ways take turns within a round, so that a change of the machine meets all of them. `--check` fails
when a median is above RATIO_MAX. The exporting thread's CPU time is the server's, so it counts.
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

from observe import HERE, HOST, Missing, Observe

ROOT = HERE.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
MILLRACE = os.environ.get("MILLRACE") or TARGET / "release/millrace"
MQTTLOAD = os.environ.get("MQTTLOAD") or TARGET / "release/mqttload"
PORTS_UP = int(os.environ.get("OBSERVE_PORTS_UP") or 20_000)
RUN_SECONDS_MAX = 300
RATIO_MAX = 1.02
SCENARIOS = ["qos0-window", "qos1-closed", "fanout", "fanin-qos0", "fanin-qos1", "durable-publish", "durable-online"]
# Beside --otlp-endpoint, which all but the first have.
WAYS = {
    "off": None,
    "metrics": ["--otlp-interval-s", "10"],
    "traces 1 %": ["--otlp-interval-s", "10", "--trace-ratio", "0.01"],
    # Without the cap on traces a second, which the fast scenarios reach.
    "traces 1 %, no cap": ["--otlp-interval-s", "10", "--trace-ratio", "0.01", "--traces-per-second-max", "100000"],
}


def measure(scenario, way, endpoint, seconds):
    """One run: microseconds of the server's CPU for each thing that the scenario counts, and what mqttload said."""
    flags = [] if WAYS[way] is None else ["--otlp-endpoint", endpoint, *WAYS[way]]
    command = [MQTTLOAD, "run", scenario, "--json", "--seconds", seconds, "--millrace-bin", MILLRACE, "--millrace-args", " ".join(flags)]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
    if done.returncode:
        raise RuntimeError(f"{scenario}, {way}: {(done.stdout + done.stderr)[-1000:]}")
    said = json.loads(done.stdout.strip().splitlines()[-1])
    faults = {name: said[name] for name in ("lost", "repeated", "disordered", "unacked", "closed") if said[name]}
    if faults or not said["count"]:
        raise RuntimeError(f"{scenario}, {way}: {faults or 'nothing was counted'}")
    return 1e6 * said["server_cpu_s"] / said["count"], said


def table(figures):
    lines = ["| scenario | " + " | ".join(WAYS) + " |", "|---|" + "---|" * len(WAYS)]
    for scenario, by_way in figures.items():
        base = statistics.median(by_way["off"])
        cells = [f"{base:.2f} µs"]
        for way in list(WAYS)[1:]:
            # Of runs that stood beside each other.
            ratios = [on / off for on, off in zip(by_way[way], by_way["off"])]
            cells.append(f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
        lines.append(f"| `{scenario}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def above(figures):
    """What costs more than it may."""
    for scenario, by_way in figures.items():
        for way in ("metrics", "traces 1 %"):
            ratio = statistics.median(on / off for on, off in zip(by_way[way], by_way["off"]))
            if ratio > RATIO_MAX:
                yield f"{scenario}, {way}: {ratio:.3f}"


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", default="4")
    parser.add_argument("--scenario", type=lambda text: text.split(","), default=SCENARIOS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


def main():
    args = parsed()
    tools = Path(os.environ.get("OBSERVE_TOOLS") or TARGET / "tools")
    for path in (MILLRACE, MQTTLOAD, tools / "otelcol"):
        if not Path(path).exists():
            raise Missing(f"there is no {path}: make bench and make observe make them")
    folder = Path(tempfile.mkdtemp(prefix="millrace-cost-"))
    observe = Observe(folder, tools, up=PORTS_UP)
    figures = {scenario: {way: [] for way in WAYS} for scenario in args.scenario}
    runs = []
    try:
        observe.prepare()
        observe.start_collector(tools / "otelcol")
        observe.wait("collector", f"http://{HOST}:{observe.ports['health']}/")
        for number in range(args.rounds):
            for scenario in args.scenario:
                # Each round begins with another way.
                ways = list(WAYS)[number % len(WAYS):] + list(WAYS)[:number % len(WAYS)]
                for way in ways:
                    cost, said = measure(scenario, way, observe.url("otlp_http"), args.seconds)
                    figures[scenario][way].append(cost)
                    runs.append({"round": number, "way": way, "cpu_us_each": cost, **said})
                    print(f"{number + 1}/{args.rounds} {scenario}, {way}: {cost:.3f} µs", file=sys.stderr, flush=True)
    finally:
        observe.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if args.json:
        about = {"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "load_after": os.getloadavg()[0]}
        args.json.write_text(json.dumps({"about": about, "runs": runs}, indent=1) + "\n")
    print(f"CPU of the server for each message, and its ratio to that without telemetry: median (range) of {args.rounds} rounds.\n")
    print(table(figures))
    if args.check and (found := list(above(figures))):
        sys.exit("above " + f"{RATIO_MAX}: " + "; ".join(found))


if __name__ == "__main__":
    try:
        main()
    except Missing as missing:
        sys.exit(f"SKIPPED: {missing}")
