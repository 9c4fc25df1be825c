#!/usr/bin/env python3
"""Migrates a filled store between two data folders: whole, then with kill -9 and resumption. Both copies must equal the source.

    loadtests/migrate.py --millrace target/release/millrace                              seconds
    loadtests/migrate.py --millrace ... --retained 1000000 --sessions 100000             the size of a region
    storage/tests/foundationdb.sh with loadtests/migrate.py --millrace ...               to FoundationDB and back

With FDB_CLUSTER_FILE the store goes to that cluster and from there to a folder, and both ways are killed once.
Prints time, rows a second, memory and downtime.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import stored_data
from server import serving

# Each run is killed so long after it has begun to copy, as a fraction of the time of a whole migration.
KILLS = (0.02, 0.04, 0.08, 0.16)
# A target of this size has copied keys.
COPIED_MB = 0.5
# A server must refuse an incomplete target. This check ends a server that starts all the same after this time.
SERVE_S = 60
CLUSTER, PREFIX = "foundationdb", "check-migrate"
UNFINISHED = "run the same `millrace migrate` again"


def number(text):
    return int(text.replace(",", ""))


class Migration:
    def __init__(self, program, source, target, *flags):
        self.target, self.log = target, pathlib.Path(f"{source if target == CLUSTER else target}.log")
        self.began = time.monotonic()
        with self.log.open("w") as log:
            self.process = subprocess.Popen([program, "migrate", source, target, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ended(self):
        """Waits for the end; returns exit code, seconds, CPU seconds and peak memory in MB."""
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.process.returncode, time.monotonic() - self.began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6

    def killed_after(self, seconds):
        """Kills it some seconds after it has begun to copy a folder. Like killed(), it returns whether the copy was incomplete."""
        # Not poll(), which would reap the process: ended() could not read its memory. A process that is not reaped has no exe.
        while pathlib.Path(f"/proc/{self.process.pid}/exe").exists() and stored_data.size_mb(self.target) < COPIED_MB:
            time.sleep(0.01)
        time.sleep(seconds)
        return self.killed()

    def killed(self):
        os.kill(self.process.pid, signal.SIGKILL)
        code, *_ = self.ended()
        output = self.log.read_text()
        assert code in (0, -9), f"millrace migrate ended with {code}: {output[-500:]}"
        # It prints this line before it closes both stores, so a kill in between still finds a complete copy.
        return "Both stores are equal" not in output

    def copied(self):
        """The last number of copied keys that it printed."""
        found = re.findall(r"^Copied ([\d,]+) keys", self.log.read_text(), re.M)
        return number(found[-1]) if found else None


def uninterrupted(program, source, target, *flags):
    """Migrates to the end; returns seconds, CPU seconds, peak memory in MB, compared keys, and copied keys if it printed some."""
    migration = Migration(program, source, target, *flags)
    code, seconds, cpu_s, memory_mb = migration.ended()
    output = migration.log.read_text()
    assert code == 0, f"millrace migrate ended with {code}: {output[-500:]}"
    keys = re.search(r"Both stores are equal: ([\d,]+) keys", output)
    assert keys, f"millrace migrate does not say that both stores are equal: {output[-500:]}"
    return seconds, cpu_s, memory_mb, number(keys[1]), migration.copied()


def interrupted(program, source, target, seconds):
    """Kills a migration and resumes it, once for each of KILLS, until one ends before its kill. Returns how often the copy was incomplete;
    each time a server must refuse to start on the target."""
    kills = 0
    for part in KILLS:
        if not Migration(program, source, target).killed_after(part * seconds):
            break
        refused = subprocess.run(
            [program, "serve", "--data-dir", target, "--mqtt-listen", "127.0.0.1:0", "--ws-listen", "off", "--http-listen", "off"],
            capture_output=True, text=True, timeout=SERVE_S,
        )
        assert refused.returncode == 1 and UNFINISHED in refused.stderr, f"a server did not refuse an incomplete store: {refused.stderr[-500:]}"
        kills += 1
    assert kills, "each migration had ended before it could be killed: fill the store with more"
    return kills


def resumed_once(program, source, target, *flags):
    """Kills a migration when it says that it has copied keys, and resumes it; returns what uninterrupted() does."""
    migration = Migration(program, source, target, *flags)
    while not migration.copied() and pathlib.Path(f"/proc/{migration.process.pid}/exe").exists():
        time.sleep(0.01)
    assert migration.killed(), "the migration had ended before it could be killed: fill the store with more"
    return uninterrupted(program, source, target, *flags)


def there_and_back(program, source, back, cluster, sizes):
    """Migrates a folder to the cluster and from there to another folder, which must equal the first."""
    flags = ("--fdb-cluster-file", cluster, "--fdb-prefix", PREFIX)
    for way in ((source, CLUSTER), (CLUSTER, back)):
        seconds, cpu_s, memory_mb, keys, copied = resumed_once(program, *way, *flags)
        assert copied is None or copied < keys, f"the resumed migration began anew: it copied {copied} of {keys} keys"
        name = "to the cluster" if CLUSTER == way[1] else "from the cluster"
        print(f"{name}, killed once: the resumed run took {seconds:.1f} s, {cpu_s:.1f} s of the CPU, copied {copied} of {keys} keys, "
              f"with at most {memory_mb:.0f} MB of memory", flush=True)
    print(f"equal exports of both folders, {check_equal(program, source, back, *sizes)} lines each", flush=True)


def check_equal(program, source, target, retained, sessions):
    """Returns how many lines the exports have."""
    wanted, found = stored_data.export(program, source), stored_data.export(program, target)
    stored_data.check_export(wanted, retained, sessions)
    different = [command for command in wanted if wanted[command] != found[command]]
    assert not different, f"the exports of {source} and {target} differ: {', '.join(different)}"
    return sum(lines for lines, _ in wanted.values())


def check_clients(program, data, args):
    began = time.monotonic()
    with serving(program, data=data) as (port, _, _):
        print(f"a server on the target accepted clients after {time.monotonic() - began:.1f} s", flush=True)
        devices = stored_data.read_queues(port, args.sessions, args.sample)
        read = stored_data.read_retained(port)
    assert read == args.retained, f"a client got {read} of {args.retained} retained messages"
    print(f"{devices} devices came back and each got its queue; a client got {read} retained messages", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", required=True, help="the program")
    parser.add_argument("--retained", type=int, default=50_000, help="retained messages")
    parser.add_argument("--sessions", type=int, default=2_000, help="sessions with queues")
    parser.add_argument("--sample", type=int, default=2_000, help="sessions that come back at the end")
    parser.add_argument("--folder", help="an existing folder for the stores, which stay there; a store that is filled is used again")
    args = parser.parse_args()
    program = str(pathlib.Path(args.millrace).resolve())
    with contextlib.nullcontext(args.folder) if args.folder else tempfile.TemporaryDirectory() as folder:
        source, straight, resumed = (f"{folder}/{name}" for name in ("source", "straight", "resumed"))
        cluster = os.environ.get("FDB_CLUSTER_FILE")
        for target in (straight, resumed):
            shutil.rmtree(target, ignore_errors=True)
        if not pathlib.Path(source).exists():
            began = time.monotonic()
            with serving(program, data=source) as (port, _, _):
                stored_data.fill(port, args.retained, args.sessions)
            print(f"filled in {time.monotonic() - began:.0f} s: {args.retained} retained messages, {args.sessions} sessions with queues, "
                  f"{stored_data.size_mb(source):.0f} MB on the disk", flush=True)
        if cluster:
            there_and_back(program, source, resumed, cluster, (args.retained, args.sessions))
            check_clients(program, resumed, args)
            print("check-migrate: passed, with FoundationDB")
            return
        seconds, cpu_s, memory_mb, keys, _ = uninterrupted(program, source, straight)
        print(f"migrated in {seconds:.1f} s, {cpu_s:.1f} s of the CPU: {keys} keys, {keys / seconds:.0f} a second, at most {memory_mb:.0f} MB of memory, "
              f"{stored_data.size_mb(straight):.0f} MB on the disk", flush=True)
        print(f"downtime: {seconds:.1f} s, and the stop and start of the server", flush=True)
        kills = interrupted(program, source, resumed, seconds)
        rest_s, _, _, again, copied = uninterrupted(program, source, resumed)
        assert again == keys, f"the resumed migration has {again} keys of {keys}"
        assert copied is None or copied < keys, f"the resumed migration began anew: it copied {copied} of {keys} keys"
        print(f"killed {kills} times and resumed: the last run took {rest_s:.1f} s"
              f"{'' if copied is None else f' and copied {copied} of {keys} keys'}; no server started on the incomplete store", flush=True)
        for target in (straight, resumed):
            lines = check_equal(program, source, target, args.retained, args.sessions)
        print(f"equal exports of all three stores, {lines} lines each", flush=True)
        check_clients(program, resumed, args)
    print("check-migrate: passed")


if __name__ == "__main__":
    sys.exit(main())
