#!/usr/bin/env python3
"""Runs one scenario with k6 against a Millrace of its own, and says what each message cost the server. `all` runs each, one after
the other, and fails when one does.

    loadtests/k6/run.py SCENARIO|all [k6 arguments]

MQTT_URL names a broker that runs already; then nothing is known of its CPU. LOAD_... variables size the scenario.
K6 and MILLRACE name the programs, REPORTS the folder of the reports. Exit code 99: a threshold was crossed.
"""

import contextlib
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import report  # noqa: E402

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target"))
K6 = os.environ.get("K6", str(TARGET / "tools/k6"))
MILLRACE = os.environ.get("MILLRACE", str(TARGET / "release/millrace"))
START_SECONDS_MAX = 10
STOP_SECONDS_MAX = 15


def scenarios():
    """The files that are no library of the others."""
    return sorted(path.stem for path in (HERE / "scenarios").glob("*.js") if "export const options" in path.read_text())


@contextlib.contextmanager
def server(*flags):
    """A Millrace on free ports of 127.0.0.1: its process, MQTT port and HTTP address."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w+") as log:
        command = [MILLRACE, "serve", "--mqtt-listen=127.0.0.1:0", "--ws-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0",
                   f"--data-dir={folder}/data", "--sign-up=anybody", *flags]
        # Settings of this machine's own broker must not reach this one.
        own = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE")}
        process = subprocess.Popen(command, stderr=log, env=own)
        try:
            end = time.monotonic() + START_SECONDS_MAX
            while not (http := re.search(r"HTTP is open at (http://[^/]+)/", pathlib.Path(log.name).read_text())):
                if process.poll() is not None or time.monotonic() > end:
                    sys.exit(f"FAILED: the broker did not start: {pathlib.Path(log.name).read_text()}")
                time.sleep(0.02)
            mqtt = re.search(r"mqtt://127\.0\.0\.1:(\d+)", pathlib.Path(log.name).read_text())
            yield process, int(mqtt[1]), http[1]
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def cpu_seconds(pid):
    """User and system time of all threads of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_k6(scenario, arguments, environment, reports):
    """Runs k6 and returns its exit code, its summary and its CPU seconds."""
    reports.mkdir(parents=True, exist_ok=True)
    summary = reports / f"{scenario}.json"
    summary.unlink(missing_ok=True)
    environment = {
        "K6_WEB_DASHBOARD": "true", "K6_WEB_DASHBOARD_PORT": "-1", "K6_WEB_DASHBOARD_PERIOD": "1s",
        "K6_WEB_DASHBOARD_EXPORT": str(reports / f"{scenario}.graphs.html"), "K6_NO_USAGE_REPORT": "true",
        **os.environ, **environment,
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        [K6, "run", "--quiet", f"--summary-export={summary}", *arguments, str(HERE / f"scenarios/{scenario}.js")],
        env=environment)
    code = process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return code, json.loads(summary.read_text())["metrics"] if summary.exists() else {}, cpu


def cost(metrics, server_cpu, k6_cpu):
    """Microseconds of CPU for each message that the server took or gave."""
    def count(name):
        return metrics.get(name, {}).get("count", 0)
    received = count("mqtt_messages_received")
    each = {"server_us_per_delivery": server_cpu, "k6_us_per_delivery": k6_cpu} if received else {}
    return {
        "sent": count("mqtt_messages_sent"), "received": received, "connects": count("mqtt_connects"),
        "server_cpu_s": round(server_cpu, 3), "k6_cpu_s": round(k6_cpu, 3),
        **{name: round(1e6 * seconds / received, 3) for name, seconds in each.items()},
    }


def run(scenario, arguments, reports):
    """Runs a scenario, writes its report, and returns k6's exit code."""
    used = {}
    if "MQTT_URL" in os.environ:
        code, metrics, _ = run_k6(scenario, arguments, {}, reports)
    else:
        with server() as (process, port, http):
            before = cpu_seconds(process.pid)
            code, metrics, k6_cpu = run_k6(
                scenario, arguments, {"MQTT_URL": f"mqtt://127.0.0.1:{port}", "MILLRACE_HTTP": http}, reports)
            used = cost(metrics, cpu_seconds(process.pid) - before, k6_cpu)
        (reports / f"{scenario}.cost.json").write_text(json.dumps({"scenario": scenario, **used}) + "\n")
        print(f"cost: {json.dumps(used)}")
    settings = {name: value for name, value in os.environ.items() if name.startswith(("LOAD_", "MQTT_")) and name != "MQTT_PASSWORD"}
    (reports / f"{scenario}.html").write_text(report.page(scenario, code, metrics, used, settings, f"{scenario}.graphs.html"))
    print(f"report: {reports / scenario}.html")
    print(f"{scenario}: {'passed' if code == 0 else f'FAILED with k6 exit code {code}'}", flush=True)
    return code


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in (*scenarios(), "all"):
        sys.exit(f"run.py SCENARIO|all [k6 arguments]; there are: {', '.join(scenarios())}")
    reports = pathlib.Path(os.environ.get("REPORTS", TARGET / "loadtests"))
    if sys.argv[1] != "all":
        sys.exit(run(sys.argv[1], sys.argv[2:], reports))
    codes = {scenario: run(scenario, sys.argv[2:], reports) for scenario in scenarios()}
    failed = [scenario for scenario, code in codes.items() if code]
    print(f"scenarios: {len(codes) - len(failed)} passed, {len(failed)} failed" + (f": {', '.join(failed)}" if failed else ""))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
