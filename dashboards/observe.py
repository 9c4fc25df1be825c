#!/usr/bin/env python3
"""Runs the collector, Prometheus and Alertmanager beside a server or a stack on this machine, on loopback only.

`make observe` runs it until Ctrl-C. check_dashboards.py and the drills of runbooks/ use the class Observe.
Environment variables: OBSERVE_DIR is the folder for data and logs, OBSERVE_PORTS_UP is added to every port, OBSERVE_INTERVAL is the scrape interval.
OBSERVE_MILLRACE has addresses of /metrics; by default those of `make run` and `make stack`, whose ports STACK_PORTS_UP raises.
OBSERVE_RUNBOOKS is the URL of the folder runbooks/ that alerts link; by default this program serves the folder.
"""

import contextlib
import functools
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"
PORTS = {
    "prometheus": 9090,
    "alertmanager": 9093,
    "exporter": 8889,
    "collector": 8888,
    "health": 13133,
    "otlp_grpc": 4317,
    "otlp_http": 4318,
    "host": 9100,
    "status": 7777,
    "grafana": 3000,
    "runbooks": 9095,
}
# Ports with metrics of `make run` and `make stack`.
MILLRACE, ENVOY, NATS = [8090, 8091, 8092], 9902, [8222, 8223, 8224]
# The port of the FoundationDB that `make stack` starts.
FOUNDATIONDB = 4550
# Longest time until a part answers, and until it ends after SIGTERM.
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 10
# Interval of looking which servers run, so that Prometheus scrapes them.
LOOK_SECONDS = 3


class Missing(Exception):
    """A program is not installed; the text names it and says how to get it."""


def is_listening(port):
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex((HOST, port)) == 0


def get(url, seconds=10):
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        return answer.read().decode()


def until(condition, what, seconds_max=START_SECONDS_MAX):
    """Waits until condition() is true, and returns its value."""
    end = time.monotonic() + seconds_max
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.1)
    return found


def program(*names, how):
    for name in names:
        if found := shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/share/grafana/bin"):
            return found
    raise Missing(f"{names[0]} is not installed: {how}")


def fill(text, names):
    for name, value in names.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def linked(rules, runbooks):
    """Rules whose alerts link their page under the URL `runbooks`; in the files the link is relative to the repository."""
    return rules.replace("runbook_url: runbooks/", f"runbook_url: {runbooks.rstrip('/')}/")


class Pages(http.server.SimpleHTTPRequestHandler):
    """Serves the runbooks. Markdown is sent as text, because browsers show text and download Markdown."""

    extensions_map = {".md": "text/plain; charset=utf-8", ".txt": "text/plain; charset=utf-8"}

    def log_message(self, *_):
        pass


class Observe:
    def __init__(self, folder, tools, up=0, interval="5s", rules=HERE / "prometheus/rules", region="local", host=(), runbooks=None):
        """`folder` gets data and logs, `tools` has the collector, and `up` is added to every port. `host` is a command that runs the
        exporter of this machine. `runbooks` is the URL of the pages that alerts link; None serves them here."""
        self.folder, self.tools, self.rules = Path(folder).resolve(), Path(tools).resolve(), Path(rules)
        self.ports = {name: port + up for name, port in PORTS.items()}
        self.runbooks, self.pages = runbooks, None
        self.alertmanager = HERE / "prometheus/alertmanager.yml"
        # FoundationDB's cluster file, and a folder whose fdbcli is asked instead of the machine's.
        self.cluster, self.fdbcli = os.environ.get("FDB_CLUSTER_FILE"), None
        # The folder of `make stack`, whose FoundationDB is asked without a cluster file.
        self.stack = None
        self.interval, self.region, self.host = interval, region, host
        self.node_exporter_flags = ()
        self.targets = self.folder / "targets"
        self.processes, self.nats_ports = {}, []
        # NATS ports, cluster file and folder of fdbcli that the running status process has.
        self.status_asks = ([], None, None)
        self.found = {name: {} for name in ("millrace", "envoy", "status", "host")}

    # -- parts

    def url(self, name):
        return f"http://{HOST}:{self.ports[name]}"

    def spawn(self, name, *command, **settings):
        log = (self.folder / "logs" / f"{name}.log").open("ab")
        # The part gets a session of its own, so that Ctrl-C only ends this program, which stops the parts in order.
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | settings,
        )
        self.processes[name] = process
        return process

    def check_ports(self):
        for name, port in self.ports.items():
            if is_listening(port):
                raise Missing(
                    f"another program listens on {HOST}:{port} ({name}): stop it, or move all ports: OBSERVE_PORTS_UP=10000 make observe"
                )

    def start(self):
        prometheus = program("prometheus", how="apt-get install prometheus")
        alertmanager = program("prometheus-alertmanager", "alertmanager", how="apt-get install prometheus-alertmanager")
        collector = self.tools / "otelcol"
        if not collector.exists():
            raise Missing(f"there is no {collector}: dashboards/collector/build.sh makes it, and so does make observe")
        self.check_ports()
        self.prepare()
        self.start_runbooks()
        self.start_host()
        self.start_collector(collector)
        self.start_alertmanager(alertmanager)
        # Prometheus repeats an alert that reached no Alertmanager only after a minute.
        self.wait("alertmanager", self.url("alertmanager") + "/-/ready")
        self.start_prometheus(prometheus)
        self.wait("collector", f"http://{HOST}:{self.ports['health']}/")
        self.wait("prometheus", self.url("prometheus") + "/-/ready")

    def prepare(self):
        for part in ("logs", "targets", "prometheus", "alertmanager", "rules"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        for name in self.found:
            self.write_targets(name)

    def start_runbooks(self):
        if not self.runbooks:
            pages = functools.partial(Pages, directory=HERE.parent / "runbooks")
            self.pages = http.server.ThreadingHTTPServer((HOST, self.ports["runbooks"]), pages)
            threading.Thread(target=self.pages.serve_forever, daemon=True).start()
            self.runbooks = self.url("runbooks")
        for old in (self.folder / "rules").glob("*.yaml"):
            old.unlink()
        for path in self.rules.glob("*.yaml"):
            (self.folder / "rules" / path.name).write_text(linked(path.read_text(), self.runbooks))

    def start_host(self):
        try:
            exporter = program("prometheus-node-exporter", "node_exporter", how="apt-get install prometheus-node-exporter")
        except Missing as missing:
            return print(f"SKIPPED: metrics of this machine: {missing}")
        self.spawn("host", *self.host, exporter, f"--web.listen-address={HOST}:{self.ports['host']}", "--web.disable-exporter-metrics",
                   "--collector.disable-defaults",
                   *(f"--collector.{name}" for name in ("cpu", "meminfo", "filesystem", "netdev", "diskstats", "loadavg", "timex")),
                   *self.node_exporter_flags)
        self.add("host", f"{HOST}:{self.ports['host']}", {"instance": "machine-1"})

    def start_collector(self, collector, *more):
        """`more` are configurations that change the first."""
        ports = {f"OBSERVE_{name.upper()}_PORT": str(port) for name, port in self.ports.items()}
        configs = (HERE / "collector/config.yaml", *more)
        self.spawn("collector", collector, *(f"--config={config}" for config in configs),
                   OBSERVE_TARGETS=str(self.targets), OBSERVE_INTERVAL=self.interval, **ports)

    def start_alertmanager(self, alertmanager):
        self.spawn("alertmanager", alertmanager, f"--config.file={self.alertmanager}",
                   f"--storage.path={self.folder / 'alertmanager'}", "--cluster.listen-address=",
                   f"--web.listen-address={HOST}:{self.ports['alertmanager']}", f"--web.external-url={self.url('alertmanager')}")

    def start_prometheus(self, prometheus):
        names = {"INTERVAL": self.interval, "REGION": self.region, "RULES": str(self.folder / "rules")}
        names |= {f"{name.upper()}_PORT": str(port) for name, port in self.ports.items()}
        config = self.folder / "prometheus.yml"
        config.write_text(fill((HERE / "prometheus/prometheus.yml").read_text(), names))
        self.spawn("prometheus", prometheus, f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'prometheus'}",
                   "--storage.tsdb.retention.time=7d", "--web.enable-remote-write-receiver",
                   f"--web.listen-address={HOST}:{self.ports['prometheus']}", f"--web.external-url={self.url('prometheus')}")

    def start_grafana(self):
        """Starts Grafana if it is installed, and returns whether it did."""
        try:
            grafana = program("grafana", "grafana-server", how="https://grafana.com/grafana/download")
        except Missing as missing:
            print(f"SKIPPED: Grafana: {missing}")
            return False
        command = [grafana, "server"] if Path(grafana).name == "grafana" else [grafana]
        self.spawn("grafana", *command, "--homepath=/usr/share/grafana", PROMETHEUS_URL=self.url("prometheus"),
                   DASHBOARDS=str(HERE / "grafana/json"), GF_PATHS_PROVISIONING=str(HERE / "grafana/provisioning"),
                   GF_PATHS_DATA=str(self.folder / "grafana"), GF_SERVER_HTTP_ADDR=HOST,
                   GF_SERVER_HTTP_PORT=str(self.ports["grafana"]), GF_AUTH_ANONYMOUS_ENABLED="true")
        return True

    def wait(self, name, url):
        def is_ready():
            if self.processes[name].poll() is not None:
                tail = (self.folder / "logs" / f"{name}.log").read_text()[-1500:]
                raise RuntimeError(f"{name} ended with {self.processes[name].returncode}: {tail}")
            try:
                return get(url) or True
            except OSError:
                return False

        until(is_ready, f"{name} is not ready after {START_SECONDS_MAX} s: see {self.folder}/logs/{name}.log")

    # -- targets

    def write_targets(self, name):
        groups = [{"targets": [at], "labels": labels} for at, labels in self.found[name].items()]
        path = self.targets / f"{name}.json"
        # Renamed, so that nobody reads half of it.
        path.with_suffix(".new").write_text(json.dumps(groups))
        path.with_suffix(".new").rename(path)

    def add(self, name, address, labels=None):
        """A target stays when it does not answer any more: that is what alerts are about."""
        if address not in self.found[name]:
            self.found[name][address] = labels or {}
            self.write_targets(name)

    def add_status(self, nats_ports):
        """One process asks all NATS servers, and FoundationDB; it is started again when there is another server."""
        self.nats_ports = nats_ports
        if self.status_asks == (nats_ports, self.cluster, self.fdbcli):
            return
        self.status_asks = (nats_ports, self.cluster, self.fdbcli)
        if old := self.processes.pop("status", None):
            stop(old)
        at = f"{HOST}:{self.ports['status']}"
        urls = [part for port in nats_ports for part in ("--nats", f"http://{HOST}:{port}")]
        self.spawn("status", sys.executable, HERE / "collector/status_metrics.py", "--listen", at, *urls,
                   *(["--fdb", self.cluster] if self.cluster else []),
                   **({"PATH": f"{self.fdbcli}:{os.environ['PATH']}"} if self.fdbcli else {}))
        self.add("status", at)

    def look(self, up=0):
        """Finds the parts of `make run` or `make stack`."""
        for number, port in enumerate(MILLRACE, 1):
            if is_listening(port + up):
                self.add("millrace", f"{HOST}:{port + up}", {"instance": f"pod-{number}"})
        if is_listening(ENVOY + up):
            self.add("envoy", f"{HOST}:{ENVOY + up}", {"instance": "gateway-1"})
        cluster = self.stack and Path(self.stack) / "fdb/fdb.cluster"
        if not self.cluster and cluster and cluster.exists() and is_listening(FOUNDATIONDB + up):
            self.cluster = str(cluster)
        self.add_status([port + up for port in NATS if is_listening(port + up) or port + up in self.nats_ports])

    # -- what Prometheus says

    def query(self, expr, at=None):
        return self.ask("query", query=expr, **({"time": at} if at else {}))

    def ask(self, path, **parameters):
        url = f"{self.url('prometheus')}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            answer = json.loads(get(url, 30))
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error)["error"]) from None
        return answer["data"].get("result", answer["data"])

    def runbook(self, url):
        """The page that an alert links, as whoever is paged opens it."""
        try:
            return get(url)
        except (OSError, ValueError) as error:
            raise ValueError(f"the runbook {url} does not open: {error}") from None

    def alerts(self):
        """Names of firing alerts."""
        return {alert["labels"]["alertname"] for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"}

    # -- the end

    def stop(self):
        for name in reversed(list(self.processes)):
            self.end(name)
        if self.pages:
            self.pages.shutdown()
            self.pages.server_close()

    def end(self, name):
        """Stops a part, and what it has started: each part has a session of its own."""
        process = self.processes.pop(name)
        stop(process)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()


def stop(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main():
    environ = os.environ.get
    target = Path(environ("CARGO_TARGET_DIR") or HERE.parent / "target")
    up = int(environ("OBSERVE_PORTS_UP") or 0)
    tools = environ("OBSERVE_TOOLS") or target / "tools"
    folder, interval = environ("OBSERVE_DIR") or target / "observe", environ("OBSERVE_INTERVAL") or "5s"
    observe = Observe(folder, tools, up, interval, runbooks=environ("OBSERVE_RUNBOOKS"))
    observe.stack = environ("STACK_DIR") or target / "stack"
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.set())
    with observe:
        has_grafana = observe.start_grafana()
        for address in filter(None, (environ("OBSERVE_MILLRACE") or "").split(",")):
            observe.add("millrace", address)
        for name in ("prometheus", "alertmanager", *(["grafana"] if has_grafana else [])):
            print(f"  {name:14} {observe.url(name)}")
        print(f"  {'OTLP':14} {observe.url('otlp_http')} and {HOST}:{observe.ports['otlp_grpc']} (gRPC)")
        print(f"  {'runbooks':14} {observe.runbooks}")
        print(f"  {'k6':14} K6_PROMETHEUS_RW_SERVER_URL={observe.url('prometheus')}/api/v1/write")
        print("Ctrl-C stops all. Servers of make run and make stack are found as they come.", flush=True)
        known = None
        while not stopped.wait(LOOK_SECONDS):
            if not environ("OBSERVE_MILLRACE"):
                observe.look(int(environ("STACK_PORTS_UP") or 0))
            if known != (now := {name: len(found) for name, found in observe.found.items()}):
                known = now
                print("watching: " + ", ".join(f"{count} {name}" for name, count in now.items() if count), flush=True)
            for name, process in observe.processes.items():
                if process.poll() is not None:
                    sys.exit(f"{name} ended with {process.returncode}: see {observe.folder}/logs/{name}.log")
    print("stopped")


if __name__ == "__main__":
    try:
        main()
    except Missing as missing:
        sys.exit(f"observe: {missing}")
