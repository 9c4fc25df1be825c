#!/usr/bin/env python3
"""Compares stored publishes on a FoundationDB cluster with the commits of a bare client of the same cluster.

Each round measures the commits of one bare client, one after the other, with one append and with 100 appends each (rows 0 and 5 of
the store's `benches/engine.rs`), then publishes to sessions that are offline: one publisher that waits for each PUBACK, PUBLISHERS
that do so, and PUBLISHERS with 100 in flight each. Prints the medians. The server shares the cores of this
machine with the cluster and the driver, so the ratios are upper bounds.

    cargo build --release -p millrace -p millrace-loadtests --features millrace/foundationdb
    storage/tests/foundationdb.sh with loadtests/cluster.py --rounds 5
"""

import argparse
import json
import os
import re
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", type=Path, default=RELEASE / "millrace", help="built with FoundationDB")
    parser.add_argument("--mqttload", type=Path, default=RELEASE / "mqttload")
    parser.add_argument("--publishers", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flags", default="", help="more flags of the server")
    return parser.parse_args()


def bare_commit_us(row, batch, commits=1_000):
    # The bench divides the number of records by 20 for rows with small transactions.
    records = commits * batch * (20 if batch < 100 else 1)
    bench = ["cargo", "bench", "--quiet", "--package=millrace-storage", "--features=foundationdb", "--bench=engine"]
    done = subprocess.run([*bench, "--", str(records), str(row)], cwd=ROOT, capture_output=True, text=True, check=True)
    figures = re.search(rf"^ +{batch} +1000 +1 \|.*\| +(\d+) +\d+ \|", done.stdout, re.M)
    if not figures:
        raise SystemExit(f"no row of the bench: {done.stdout}")
    return int(figures[1])


def publish(args, scenario, publishers, prefix):
    server = (
        f"cluster={args.millrace} serve --store foundationdb --fdb-cluster-file {os.environ['FDB_CLUSTER_FILE']} --fdb-prefix {prefix} "
        f"--mqtt-listen 127.0.0.1:{{port}} --ws-listen off --http-listen off {args.flags}"
    )
    command = [args.mqttload, "run", scenario, "--broker", server, "--json"]
    command += ["--pairs", str(publishers), "--seconds", str(args.seconds)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{scenario} with {publishers} publishers failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def main():
    args = arguments()
    commits, hundreds, single, closed, window = [], [], [], [], []
    for number in range(args.rounds):
        commits.append(bare_commit_us(0, 1))
        hundreds.append(bare_commit_us(5, 100))
        prefix = f"run{number}"
        single.append(publish(args, "durable-publish-closed", 1, f"{prefix}-1"))
        closed.append(publish(args, "durable-publish-closed", args.publishers, f"{prefix}-2"))
        window.append(publish(args, "durable-publish", args.publishers, f"{prefix}-3"))
        print(
            f"round {number + 1}: commit {commits[-1]} us, PUBACK {single[-1]['ack_p50_us']:.0f} us with 1 publisher and "
            f"{closed[-1]['ack_p50_us']:.0f} us with {args.publishers}",
            flush=True,
        )
    one, hundred = statistics.median(commits), statistics.median(hundreds)
    print(f"commit of a bare client: p50 {one:.0f} us with one append, {hundred:.0f} us with 100")
    for name, runs in (("1 publisher", single), (f"{args.publishers} publishers", closed)):
        ratio = statistics.median(run["ack_p50_us"] / bare for run, bare in zip(runs, commits))
        print(f"{name}, each waits for its PUBACK: p50 {statistics.median(run['ack_p50_us'] for run in runs):.0f} us, {ratio:.2f} commits")
    for name, runs in (("one by one", closed), ("100 in flight each", window)):
        rate = statistics.median(run["count"] / run["server_cpu_s"] for run in runs)
        print(f"{args.publishers} publishers, {name}: {rate / 1_000:.1f} k acknowledged publishes per CPU second of the server")


if __name__ == "__main__":
    main()
