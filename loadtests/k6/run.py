#!/usr/bin/env python3
"""Runs one scenario with k6 against a Millrace of its own, and says what each message cost the server. `all` runs each, one after
the other, and fails when one does.

    loadtests/k6/run.py SCENARIO|all [--record] [k6 arguments]
    loadtests/k6/run.py SCENARIO --beside PROGRAM [k6 arguments]

MQTT_URL names a broker that runs already; then nothing is known of its CPU. LOAD_... variables size the scenario.
K6 and MILLRACE name the programs, REPORTS the folder of the reports. Exit code 99: a threshold was crossed, or the run is slower than the
record of a quiet machine (slowdown.py). `--record` writes each scenario's run into README.md, and on a quiet machine the medians of three
runs as that record. `--beside` starts another Millrace, such as the build before a change, and runs the scenario against both at the same
time, PAIRS times: exit code 99 means that this one is slower. Results go to the Prometheus of `make observe` while it runs (OBSERVE_PORTS_UP as there).
"""

import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import report  # noqa: E402
import slowdown  # noqa: E402

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target"))
K6 = os.environ.get("K6", str(TARGET / "tools/k6"))
MILLRACE = os.environ.get("MILLRACE", str(TARGET / "release/millrace"))
START_SECONDS_MAX = 10
STOP_SECONDS_MAX = 15
ROUNDS = 3
PAIRS = int(os.environ.get("PAIRS", 3))
# A machine with a higher load average makes no record, because later runs would be compared with it.
QUIET_LOAD_MAX = 1
# By name: the scenario, the scheme of its URL, and the version. With MQTT_URL the URL decides.
VARIANTS = {
    "connect-tls": ("connect", "mqtts", "5.0"),
    "durable-online-wss": ("durable-online", "wss", "5.0"),
    "fanin-qos1-v311": ("fanin-qos1", "mqtt", "3.1.1"),
    "fanin-qos1-ws": ("fanin-qos1", "ws", "5.0"),
    "will-tls": ("will", "mqtts", "5.0"),
}
# `urls` has the URL of each scheme.
Server = collections.namedtuple("Server", "process port http urls ca")


def scenarios():
    """The files that are no library of the others, and the variants."""
    files = [path.stem for path in (HERE / "scenarios").glob("*.js") if "export const options" in path.read_text()]
    return sorted([*files, *VARIANTS])


@contextlib.contextmanager
def server(program=MILLRACE):
    """A Millrace on free ports of 127.0.0.1, with every transport."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w+") as log:
        subprocess.run([program, "dev-certs", "--out", f"{folder}/tls"], check=True, capture_output=True)
        ports = [f"--{name}-listen=127.0.0.1:0" for name in ("mqtt", "mqtts", "ws", "wss", "http")]
        command = [program, "serve", *ports, f"--tls-dir={folder}/tls", f"--data-dir={folder}/data", "--sign-up=anybody"]
        # Settings of this machine's own broker must not reach this one.
        own = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE")}
        process = subprocess.Popen(command, stderr=log, env=own)
        try:
            end = time.monotonic() + START_SECONDS_MAX
            while not (http := re.search(r"HTTP is open at (http://[^/]+)/", pathlib.Path(log.name).read_text())):
                if process.poll() is not None or time.monotonic() > end:
                    sys.exit(f"FAILED: the broker did not start: {pathlib.Path(log.name).read_text()}")
                time.sleep(0.02)
            urls = dict(re.findall(r" is open at (?=(\w+):)(\S+)", pathlib.Path(log.name).read_text()))
            yield Server(process, int(urls["mqtt"].rpartition(":")[2]), http[1], urls, f"{folder}/tls/ca.crt")
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


def observed(scenario):
    """Arguments and settings of k6 that send its results to the Prometheus of `make observe`, where that runs."""
    prometheus = f"http://127.0.0.1:{9090 + int(os.environ.get('OBSERVE_PORTS_UP') or 0)}"
    if "K6_PROMETHEUS_RW_SERVER_URL" in os.environ:
        return [], {}

    def data(path):
        with urllib.request.urlopen(f"{prometheus}/api/v1/{path}", timeout=2) as answer:
            return json.load(answer)["data"]

    try:
        takes = data("status/flags").get("web.enable-remote-write-receiver") == "true"
        # Only the Prometheus of `make observe` scrapes a collector under this name.
        is_ours = data("query?" + urllib.parse.urlencode({"query": 'up{job="region"}'}))["result"]
    except (OSError, ValueError, KeyError):
        return [], {}
    if not takes or not is_ours:
        return [], {}
    name = f"{scenario}-{time.strftime('%m%d-%H%M%S', time.gmtime())}"
    print(f"Prometheus: {prometheus} gets the results as testid={name}", flush=True)
    return ["-o", "experimental-prometheus-rw", "--tag", f"testid={name}"], {
        "K6_PROMETHEUS_RW_SERVER_URL": f"{prometheus}/api/v1/write", "K6_PROMETHEUS_RW_TREND_STATS": "p(50),p(99),max",
    }


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
    process = subprocess.Popen(
        [K6, "run", "--quiet", "--address=", f"--summary-export={summary}", *arguments,
         str(HERE / f"scenarios/{VARIANTS.get(scenario, [scenario])[0]}.js")],
        env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    metrics = json.loads(summary.read_text())["metrics"] if summary.exists() else {}
    return process.returncode, metrics, usage.ru_utime + usage.ru_stime


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


def measure(scenario, arguments, reports, settings=None, program=MILLRACE, way=contextlib.nullcontext):
    """Runs a scenario against a server of its own. Returns k6's exit code, its metrics and the cost in CPU time. `settings` are k6's
    variables. `way` gets the server's URL and yields the one that clients use, such as a proxy's."""
    _, scheme, version = VARIANTS.get(scenario, (scenario, "mqtt", None))
    with server(program) as own, way(own.urls[scheme]) as url:
        environment = {**(settings or {}), "MQTT_URL": url, "MILLRACE_HTTP": own.http}
        environment |= {"MQTT_CA": own.ca} if scheme in ("mqtts", "wss") else {}
        environment |= {"MQTT_VERSION": version} if version else {}
        before = cpu_seconds(own.process.pid)
        code, metrics, k6_cpu = run_k6(scenario, arguments, environment, reports)
        return code, metrics, cost(metrics, cpu_seconds(own.process.pid) - before, k6_cpu)


def judged(scenario, metrics, used, probes, settings):
    """Rows of slowdown.py, and a sentence for each."""
    quiet = slowdown.record()
    if settings or quiet is None or scenario not in quiet["scenarios"]:
        return [], "slowdown: not judged: " + ("the record is of the usual settings" if settings else "quiet.json has no record of it")
    slower = slowdown.factor(probes, quiet["machine"])
    if slower > slowdown.FACTOR_MAX:
        return [], f"slowdown: SKIPPED: this machine is {slower:.1f} times slower than the recorded one, or busy"
    rows = list(slowdown.judge(slowdown.figures(metrics, used), quiet["scenarios"][scenario], slower))
    return rows, "\n".join(slowdown.sentences(rows, slower))


def pairs(scenario, arguments, reports, programs, ways=(contextlib.nullcontext, contextlib.nullcontext)):
    """Runs a scenario against two programs at the same time, PAIRS times. Returns the figures of each pair, and k6's worst exit code."""
    found, worst = [], 0
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for _ in range(PAIRS):
            runs = [pool.submit(measure, scenario, arguments, reports / name, None, program, way)
                    for name, program, way in zip(("this", "beside"), programs, ways)]
            runs = [one.result() for one in runs]
            worst = max(worst, *(code for code, _, _ in runs))
            found.append([slowdown.figures(metrics, used) for _, metrics, used in runs])
    return found, worst


def beside(scenario, arguments, reports, other):
    found, code = pairs(scenario, arguments, reports, (MILLRACE, other))
    rows = list(slowdown.judge_pairs(found))
    print("\n".join(slowdown.sentences(rows, 1, "the other program's")))
    if not rows:
        print("FAILED: no figure has enough samples")
    code = code or (99 if not rows or any(row[-1] for row in rows) else 0)
    print(f"{scenario}, {PAIRS} pairs: {'passed' if code == 0 else f'FAILED with exit code {code}'}", flush=True)
    return code


def run(scenario, arguments, reports):
    """Runs a scenario, writes its report, and returns k6's exit code, or 99 when it is slower than the record."""
    settings = {name: value for name, value in os.environ.items() if name.startswith(("LOAD_", "MQTT_")) and name != "MQTT_PASSWORD"}
    rows, used = [], {}
    more, environment = observed(scenario)
    arguments = [*more, *arguments]
    if "MQTT_URL" in os.environ:
        code, metrics, _ = run_k6(scenario, arguments, environment, reports)
    else:
        probes = [slowdown.probe()]
        code, metrics, used = measure(scenario, arguments, reports, environment)
        probes.append(slowdown.probe())
        (reports / f"{scenario}.cost.json").write_text(json.dumps({"scenario": scenario, **used}) + "\n")
        print(f"cost: {json.dumps(used)}")
        rows, said = judged(scenario, metrics, used, probes, settings)
        print(said)
    code = code or (99 if any(row[-1] for row in rows) else 0)
    (reports / f"{scenario}.html").write_text(report.page(scenario, code, metrics, used, settings, f"{scenario}.graphs.html", rows))
    print(f"report: {reports / scenario}.html")
    print(f"{scenario}: {'passed' if code == 0 else f'FAILED with k6 exit code {code}'}", flush=True)
    return code


def record(arguments, reports):
    """Writes the table of README.md, and on a quiet machine quiet.json. Returns 1 when a run failed."""
    if settings := [name for name in os.environ if name.startswith(("LOAD_", "MQTT_"))]:
        sys.exit(f"a record is of the usual settings: unset {', '.join(settings)}")
    load = os.getloadavg()[0]
    is_quiet = load < QUIET_LOAD_MAX
    probes, found, lines, failed = [slowdown.probe()], {}, [], []
    for scenario in scenarios():
        runs = []
        for _ in range(ROUNDS if is_quiet else 1):
            code, metrics, used = measure(scenario, arguments, reports)
            if code:
                failed.append(scenario)
                print(f"FAILED: {scenario} with k6 exit code {code}: it has no record", flush=True)
                lines += report.recorded(scenario, metrics, {})
                break
            runs.append(slowdown.figures(metrics, used))
        if scenario in failed:
            continue
        probes.append(slowdown.probe())
        found[scenario] = {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}
        lines += report.recorded(scenario, metrics, found[scenario])
        print(f"{scenario}: {json.dumps(found[scenario], ensure_ascii=False)}", flush=True)
    commit = re.search(r"^commit: (\w+)", subprocess.run([MILLRACE, "--version"], capture_output=True, text=True).stdout, re.M)
    made = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit[1] if commit else "unknown",
            "load_average": round(load, 1), "cpus": os.cpu_count()}
    machine = {name: round(statistics.median(one[name] for one in probes), 1) for name in probes[0]}
    if is_quiet:
        slowdown.RECORD.write_text(json.dumps({**made, "machine": machine, "scenarios": found}, indent=2, ensure_ascii=False) + "\n")
    else:
        print(f"quiet.json stays as it is: the load average was {load:.1f}, and {QUIET_LOAD_MAX} is the most")
    page = HERE / "README.md"
    page.write_text(report.inserted(page.read_text(), made, lines))
    return 1 if failed else 0


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in (*scenarios(), "all"):
        sys.exit(f"usage: run.py SCENARIO|all [k6 arguments]; the scenarios are: {', '.join(scenarios())}")
    reports = pathlib.Path(os.environ.get("REPORTS", TARGET / "loadtests"))
    if "--record" in sys.argv:
        sys.exit(record([word for word in sys.argv[2:] if word != "--record"], reports))
    if "--beside" in sys.argv:
        at = sys.argv.index("--beside")
        if "MQTT_URL" in os.environ or sys.argv[1] == "all" or len(sys.argv) == at + 1:
            sys.exit("--beside starts two programs: name one scenario and the other program, and unset MQTT_URL")
        sys.exit(beside(sys.argv[1], sys.argv[2:at] + sys.argv[at + 2:], reports, sys.argv[at + 1]))
    if sys.argv[1] != "all":
        sys.exit(run(sys.argv[1], sys.argv[2:], reports))
    codes = {scenario: run(scenario, sys.argv[2:], reports) for scenario in scenarios()}
    failed = [scenario for scenario, code in codes.items() if code]
    print(f"scenarios: {len(codes) - len(failed)} passed, {len(failed)} failed" + (f": {', '.join(failed)}" if failed else ""))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
