#!/usr/bin/env python3
"""Runs k6 and the native driver on the same scenario, by turns against servers of their own, and prints a Markdown table.

    loadtests/k6/compare.py [--rounds 3] [--seconds 5] [SCENARIO...]

K6, MILLRACE and MQTTLOAD name the programs. The table has medians, and for each what is counted: deliveries, connections or sessions.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import run  # noqa: E402

MQTTLOAD = pathlib.Path(os.environ.get("MQTTLOAD") or run.TARGET / "release/mqttload")
RUN_SECONDS_MAX = 300
# By scenario: the counted event, mqttload's flags, and k6's settings for the same sizes.
SCENARIOS = {
    "fanin-qos0": ("delivery", ["--pairs", "100"], {"LOAD_PUBLISHERS": "100"}),
    "fanin-qos1": ("delivery", ["--pairs", "100"], {"LOAD_PUBLISHERS": "100"}),
    "fanout": ("delivery", ["--subscribers", "200", "--window", "100"], {"LOAD_RECEIVERS": "200", "LOAD_AHEAD": "100"}),
    "durable-online": ("delivery", ["--pairs", "50", "--window", "10"], {"LOAD_PAIRS": "50", "LOAD_WINDOW": "10"}),
    "connect": ("connection", ["--connects", "2000"], {"LOAD_CONNECTIONS": "2000", "LOAD_RATE": "500", "LOAD_MESSAGES": "1"}),
    "reconnect": ("session", ["--sessions", "500", "--backlog", "10"], {"LOAD_SESSIONS": "500", "LOAD_MESSAGES": "10"}),
}
# The comparison is of CPU time, so a busy machine must not fail k6's thresholds of latency.
PATIENT = {f"LOAD_{what}_MS": "60000" for what in ("DELIVERY_P99", "PUBLISH_P99", "CONNECT_P99")}
# mqttload sends as fast as its windows allow.
FAST = {"LOAD_RATE": "0"}
# It compares latency, and mqttload has a command of its own for it.
FAIRNESS = "fairness"


def native(name, seconds):
    """Runs a scenario in mqttload: (messages counted, CPU seconds of the driver, CPU seconds of the server)."""
    command = [MQTTLOAD, "run", name, "--json", "--seconds", seconds, "--millrace-bin", run.MILLRACE, *SCENARIOS[name][1]]
    result = json.loads(output(command).strip().splitlines()[-1])
    return result["count"], result["driver_cpu_s"], result["server_cpu_s"]


def k6(name, seconds):
    with tempfile.TemporaryDirectory() as reports:
        output([HERE / "run.py", name], FAST | SCENARIOS[name][2] | PATIENT | {"LOAD_SECONDS": str(seconds), "REPORTS": reports})
        used = json.loads(pathlib.Path(reports, f"{name}.cost.json").read_text())
    counted = {"connection": "LOAD_CONNECTIONS", "session": "LOAD_SESSIONS"}.get(SCENARIOS[name][0])
    count = int(SCENARIOS[name][2][counted]) if counted else used["received"]
    return count, used["k6_cpu_s"], used["server_cpu_s"]


def output(command, settings=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=RUN_SECONDS_MAX,
                          env=os.environ | (settings or {}))
    if done.returncode:
        sys.exit(f"FAILED: {' '.join(str(word) for word in command)}: {(done.stdout + done.stderr)[-1500:]}")
    return done.stdout


def row(name, driver, runs):
    """Medians of the runs."""
    counts, drivers, servers = ([values[place] for values in runs] for place in range(3))
    each = [statistics.median(1e6 * cpu / count for cpu, count in zip(used, counts)) for used in (drivers, servers)]
    return f"| `{name}` | {driver} | {statistics.median(counts):,.0f} | " + " | ".join(f"{value:.2f} µs" for value in each) + " |"


def fairness(seconds, rounds):
    """How much the p99 of a steady tenant rises beside a noisy neighbour, as each driver measures it."""
    folder = pathlib.Path(run.MILLRACE).parent
    native_ratio = output([HERE.parent / "fairness.sh", "--seconds", seconds, "--rounds", rounds], {"BIN": str(folder)})
    with tempfile.TemporaryDirectory() as reports:
        output([HERE / "run.py", FAIRNESS], PATIENT | {"LOAD_SECONDS": str(seconds), "REPORTS": reports})
        ratio = json.loads(pathlib.Path(reports, f"{FAIRNESS}.json").read_text())["metrics"]["neighbour_p99_ratio"]["value"]
    return native_ratio.strip(), f"k6: {ratio:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenarios", nargs="*", default=[*SCENARIOS, FAIRNESS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    args = parser.parse_args()
    print("| scenario | driver | counted | CPU of the driver for each | CPU of the server for each |\n|---|---|---|---|---|")
    for name in (name for name in args.scenarios if name in SCENARIOS):
        pairs = [(native(name, args.seconds), k6(name, args.seconds)) for _ in range(args.rounds)]
        print(row(name, f"mqttload, by the {SCENARIOS[name][0]}", [pair[0] for pair in pairs]), flush=True)
        print(row(name, "k6", [pair[1] for pair in pairs]), flush=True)
    if FAIRNESS in args.scenarios:
        print("\n".join(fairness(args.seconds, args.rounds)))


if __name__ == "__main__":
    main()
