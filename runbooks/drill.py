#!/usr/bin/env python3
"""Runs the drill of a runbook: `make drill NAME=pod-down`. Without a name it lists the drills; `all` runs each in turn.

A drill starts servers, the collector and Prometheus with the project's rules, and causes the fault. It waits for the alert, does
what the runbook says, and waits until the alert ends. Everything runs in its own network namespace. Alerts would take minutes, so
SPEED divides all durations of the rules: 12, or the value of a drill whose alert looks back for a day.
`--write` saves the transcript in runbooks/transcripts.
The exit status is 0 when all drills passed, 1 when one failed, and 77 when none failed but this machine lacks what one needs.
"""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "dashboards"), str(HERE / "drills")]
from observe import HERE as DASHBOARDS  # noqa: E402
from observe import HOST, Missing, Observe, get, program, until  # noqa: E402
from statuses import FAILED, PASSED, SKIPPED, summary  # noqa: E402
from stage import TOOLS, Machine, Part, Server, Stack, alone, folder, millrace  # noqa: E402

SPEED = float(os.environ.get("SPEED") or 12)
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Shortest range of a rate and shortest `for`: a rate needs a few scrapes, and scrapes come every second.
WINDOW_SECONDS_MIN, FOR_SECONDS_MIN = 10, 2
ALERT_SECONDS_MAX = 240
# Alerts that the state of this machine may cause, so a drill does not wait for their end.
MACHINE_ALERTS = {"ClockSkew", "MemoryNearlyOut", "CpuNearlyOut", "StoreNearlyFull", "StoreFillsUp", "DiskNearlyFull"}


def shorter(text, speed):
    """Rules with every duration divided by `speed`."""

    def short(number, unit, least):
        return f"{max(least, round(int(number) * SECONDS[unit] / speed))}s"

    text = re.sub(r"\[(\d+)([smhd])\]", lambda found: f"[{short(*found.groups(), WINDOW_SECONDS_MIN)}]", text)
    text = re.sub(r"(\d+) \* 86400", lambda found: f"{int(found[1]) * 86400 / speed:g}", text)
    text = re.sub(r"(for: |offset )(\d+)([smhd])", lambda found: found[1] + short(found[2], found[3], FOR_SECONDS_MIN), text)
    return text


class Drill:
    def __init__(self, name, speed=SPEED):
        self.name, self.speed, self.folder, self.began, self.lines = name, speed, folder(), time.monotonic(), []
        self.parts, self.observe, self.host, self.alertmanager = [], None, (), None
        # Further rules by file name, as a deployment adds them.
        self.rules, self.node_exporter_flags = {}, ()

    # -- the transcript

    def say(self, text):
        text = text.replace(str(self.folder), "$DRILL").replace(str(millrace()), "millrace").replace(str(HERE.parent) + "/", "")
        text = text.replace(str(TOOLS) + "/", "")
        line = f"[{time.monotonic() - self.began:5.0f} s] {text}"
        self.lines.append(line)
        print(line, flush=True)

    def run(self, command, lines=8, fails=False):
        """Runs a command of the runbook; the transcript gets its first `lines` lines of output."""
        self.say(f"$ {command}")
        path = f"{millrace().parent}:{TOOLS}:{os.environ['PATH']}:/usr/sbin"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=self.folder, env=os.environ | {"PATH": path})
        said = (done.stdout + done.stderr).rstrip()
        for line in [line for line in said.splitlines() if not line.startswith("Copied ")][:lines]:
            self.say(f"  {line[:160]}")
        if not fails and done.returncode:
            raise AssertionError(f"exit code {done.returncode}: {said[-500:]}")
        return said

    # -- parts: processes and clients that end with the drill

    def keep(self, part):
        self.parts.append(part)
        return part

    def server(self, *flags, **settings):
        server = self.keep(Server(self.folder, *flags, **settings))
        self.say(f"a server runs: {server.is_well().strip()}")
        self.watch()
        return server

    def stack(self, **settings):
        stack = self.keep(Stack(self.folder, **settings))
        self.say("a stack runs: three NATS servers, three pods, Envoy")
        self.watch()
        return stack

    def machine(self, memory_bytes):
        """A control group that looks like a machine to the node exporter. Call it before `server`."""
        machine = self.keep(Machine(self.folder, memory_bytes))
        self.host = machine.see
        self.say(f"a machine of its own: one CPU and {memory_bytes >> 20} MiB of memory, a control group that lxcfs shows")
        return machine

    def shows(self, machine):
        self.until_value("node_memory_MemTotal_bytes", lambda values: values and values[0] < machine.memory_bytes * 1.01)

    def watch(self):
        rules = self.folder / "rules"
        rules.mkdir()
        for path in (DASHBOARDS / "prometheus/rules").glob("*.yaml"):
            (rules / path.name).write_text(shorter(path.read_text(), self.speed))
        for name, text in self.rules.items():
            (rules / name).write_text(text)
        self.observe = Observe(self.folder / "observe", TOOLS, interval="1s", rules=rules, host=self.host)
        self.observe.node_exporter_flags = self.node_exporter_flags
        self.observe.alertmanager = self.alertmanager or self.observe.alertmanager
        self.observe.start()
        self.observe.look()
        self.say(f"collector, Prometheus and Alertmanager run; durations of rules are divided by {self.speed:g}")
        self.until_value('up{job="millrace"}', lambda values: values and min(values) == 1)

    def until_no_alert(self):
        """Waits until no alert fires: on a busy machine a late scrape can raise one at the start."""

        def firing():
            return self.observe.alerts() - MACHINE_ALERTS - {"Watchdog"}

        until(lambda: not firing(), f"alerts fire before the fault: {firing()}", ALERT_SECONDS_MAX)

    def break_syncs(self, server, how, paths=()):
        """Makes the server's syncs slow or fail until the returned part stops; with `paths`, only syncs of these files.
        `how` is strace's: delay_exit=MICROSECONDS or error=EIO."""
        strace = program("strace", how="apt-get install strace")
        syncs = "fsync,fdatasync"
        only = [word for path in paths for word in ("-P", path)]
        command = [strace, "-f", "-p", server.process.pid, "-e", f"trace={syncs}", "-e", f"inject={syncs}:{how}", "-o", self.folder / "syncs", *only]
        part = self.keep(Part("strace", self.folder / "strace.log", command))
        until(lambda: "attached" in part.text() or part.process.poll() is not None, "strace does not attach")
        if part.process.poll() is not None:
            raise Missing(f"strace may not trace here: {part.text()}")
        return part

    def query(self, expr):
        """Runs a query of the runbook; the transcript gets its first series."""
        self.say(f"$ curl -sG $prometheus --data-urlencode '{'query=' + expr}'")
        for series in self.observe.query(expr)[:5]:
            labels = ", ".join(f"{name}={value}" for name, value in series["metric"].items() if name != "__name__")
            self.say(f"  {labels or 'all'}: {float(series['value'][1]):g}")

    # -- conditions to wait for

    def values(self, expr):
        return [float(series["value"][1]) for series in self.observe.query(expr)]

    def until_value(self, expr, is_it, seconds_max=ALERT_SECONDS_MAX):
        until(lambda: is_it(self.values(expr)), f"{expr} is {self.values(expr)}", seconds_max)
        self.say(f"{expr} = {', '.join(f'{value:g}' for value in self.values(expr)) or 'nothing'}")

    def fires(self, alert):
        until(lambda: alert in self.observe.alerts(), f"{alert} does not fire: {self.observe.ask('alerts')}", ALERT_SECONDS_MAX)
        url = f"http://{HOST}:{self.observe.ports['alertmanager']}/api/v2/alerts"

        def sent():
            return [one for one in json.loads(get(url)) if one["labels"]["alertname"] == alert]

        sent_alert = until(sent, f"Alertmanager has no {alert}", 60)[0]
        self.say(f"ALERT {alert} ({sent_alert['labels']['severity']}): {sent_alert['annotations']['summary']}")
        url = sent_alert["annotations"]["runbook_url"]
        if alert not in self.observe.runbook(url):
            raise AssertionError(f"{url} does not name {alert}")
        self.say(f"      {url} opens")

    def ends(self, alert):
        until(lambda: alert not in self.observe.alerts(), f"{alert} does not end", ALERT_SECONDS_MAX)
        self.say(f"OVER  {alert}")

    def check(self, what, is_so):
        if not is_so:
            raise AssertionError(what)
        self.say(f"CHECK {what}")

    def all_arrived(self, writer, reader):
        """Stops the publisher, waits for its answers, and checks that the subscriber has all that was acknowledged."""
        writer.settle()

        def missing():
            return writer.acknowledged - {int(payload) for payload in reader.got}

        until(lambda: not missing(), "acknowledged messages that did not arrive")
        acknowledged, refused = len(writer.acknowledged), len(writer.refused)
        self.check(f"{acknowledged} messages were acknowledged, {refused} refused; all acknowledged ones arrived", not missing())

    def end(self):
        if self.observe:
            self.observe.stop()
        for part in reversed(self.parts):
            getattr(part, "leave", None) and part.leave()
            getattr(part, "stop", None) and part.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def made():
    """The day and the build of a transcript."""
    commit = re.search(r"^commit: (\w+)", subprocess.run([millrace(), "--version"], capture_output=True, text=True).stdout, re.M)
    return f"{time.strftime('%Y-%m-%d', time.gmtime())}, millrace of commit {commit[1] if commit else 'unknown'}"


def drills():
    return sorted(path.stem.replace("_", "-") for path in (HERE / "drills").glob("*.py") if path.stem != "tenants")


def run(name, write):
    module = importlib.import_module(name.replace("-", "_"))
    print(f"== {name}: {module.__doc__.splitlines()[0]}", flush=True)
    drill = Drill(name, getattr(module, "SPEED", SPEED))
    try:
        module.run(drill)
        drill.say("the drill passed")
    except Missing:
        raise
    except Exception as error:
        drill.say(f"FAILED: {error!r}")
        print(f"logs are in {drill.folder}")
        drill.folder = Path("/nonexistent")
        return FAILED
    finally:
        drill.end()
    if write:
        (HERE / "transcripts").mkdir(exist_ok=True)
        (HERE / "transcripts" / f"{name}.txt").write_text("\n".join([f"make drill NAME={name}", made(), *drill.lines]) + "\n")
    return PASSED


def main():
    names = [word for word in sys.argv[1:] if not word.startswith("--")]
    if not names:
        print("drills: " + " ".join(drills()))
        return
    names = drills() if names == ["all"] else names
    if unknown := set(names) - set(drills()):
        sys.exit(f"there is no drill {', '.join(unknown)}; there are: {' '.join(drills())}")
    alone()
    if len(names) == 1:
        sys.exit(run(names[0], "--write" in sys.argv))
    # One process each, so that a drill inherits no open files or threads of the one before.
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    lines, status = summary({name: subprocess.call([sys.executable, __file__, name, *options]) for name in names})
    print("\n".join(lines))
    sys.exit(status)


if __name__ == "__main__":
    try:
        main()
    except Missing as missing:
        print(f"SKIPPED: {missing}", file=sys.stderr)
        sys.exit(SKIPPED)
