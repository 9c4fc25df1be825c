"""Judges whether a run is slower than the run of a quiet machine that quiet.json records, or slower than another program that runs
beside it.

Thresholds in milliseconds must hold on a busy machine, too, so a slowdown of ten times passes them. Medians and the server's CPU for each
delivery vary little with other programs. They are compared with the record, after a probe of this machine before and after the run: a
machine on which a round trip, a sync or a computation takes twice as long may be twice as slow. A machine that is slower than
FACTOR_MAX is not judged.

Two programs that run at the same time need no record and no probe, because other programs slow both of them.
"""

import json
import os
import pathlib
import statistics
import tempfile
import time

import socket

RECORD = pathlib.Path(__file__).resolve().parent / "quiet.json"
# A slowdown of 3 must be seen, and quiet runs differ by up to a third.
RATIO_MAX = 2.2
FACTOR_MAX = 3
SAMPLES_MIN = 50
ROUND_TRIPS, SYNCS, COMPUTATIONS = 1000, 50, 20


def median_us(run, times):
    took = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        took.append(time.perf_counter() - began)
    return 1e6 * statistics.median(took)


def probe():
    """Microseconds of a round trip between two processes, of a sync to the disk of temporary files, and of a computation."""
    here, there = socket.socketpair()
    echo = os.fork()
    if echo == 0:
        here.close()
        while data := there.recv(64):
            there.sendall(data)
        os._exit(0)
    there.close()

    def round_trip():
        here.sendall(b"ping")
        here.recv(64)

    with tempfile.TemporaryFile() as file:

        def sync():
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())

        measured = {
            "round_trip_us": median_us(round_trip, ROUND_TRIPS),
            "sync_us": median_us(sync, SYNCS),
            "computation_us": median_us(lambda: sum(range(100_000)), COMPUTATIONS),
        }
    here.close()
    os.waitpid(echo, 0)
    return {name: round(value, 1) for name, value in measured.items()}


def factor(probes, recorded):
    """How much slower than the recorded machine this one may be; at least 1."""
    return max(1.0, *(probe[name] / recorded[name] for probe in probes for name in recorded))


def figures(metrics, used):
    """The medians of a run in milliseconds, and the server's CPU for each delivery. A time that a scenario divides by tags counts by its
    parts. A time with fewer than SAMPLES_MIN samples is left out."""
    times = {name: metric for name, metric in metrics.items() if "_duration" in name and "med" in metric and not name.startswith("iteration")}
    divided = {name.partition("{")[0] for name in times if "{" in name}
    found = {f"{name} median, ms": metric["med"] for name, metric in times.items()
             if name not in divided and metric["med"] > 0 and metric["count"] >= SAMPLES_MIN}
    found = {name: value for name, value in found.items() if not name.startswith("http_") or name.startswith("http_req_duration")}
    if cpu := used.get("server_us_per_delivery"):
        found["server CPU for each delivery, µs"] = cpu
    return {name: round(value, 3) for name, value in sorted(found.items())}


def judge(measured, recorded, slower):
    """A row for each figure: its name, the value, the recorded one, the ratio, and whether it is too slow."""
    for name, before in recorded.items():
        if name not in measured:
            yield [name, None, before, None, True]
            continue
        ratio = measured[name] / before
        yield [name, measured[name], before, ratio, ratio > RATIO_MAX * slower]


def judge_pairs(pairs):
    """The rows of `judge` for pairs of (after, before), the figures of two programs that ran at the same time: values and ratio are medians."""
    for name in sorted({name for pair in pairs for figures in pair for name in figures}):
        if not all(name in figures for pair in pairs for figures in pair):
            yield [name, None, None, None, True]
            continue
        after, before, ratio = (statistics.median(values) for values in zip(*(
            (after[name], before[name], after[name] / before[name]) for after, before in pairs)))
        yield [name, after, before, ratio, ratio > RATIO_MAX]


def record():
    return json.loads(RECORD.read_text()) if RECORD.exists() else None


def sentences(rows, slower, of="the record of"):
    for name, value, before, ratio, is_slow in rows:
        said = "is missing" if value is None else f"{value:g}, {ratio:.2f} times {of} {before:g}"
        yield f"slowdown: {'CROSSED ' if is_slow else ''}{name}: {said}; at most {RATIO_MAX * slower:.2f} times"
