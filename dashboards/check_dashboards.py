#!/usr/bin/env python3
"""Starts a stack, the collector and Prometheus, drives real load, and runs the query of every panel and rule against them.

A query with an error, or a panel without a series, fails. A tool that this machine lacks is named in the panel's description ("Needs: k6.")
and listed with the reason. Without a FoundationDB the panels of its status read a sample of it (collector/sample_fdbcli.py), through the same
exporter. `--draw` also draws each dashboard from the results into grafana/pictures.
"""

import os
import re
import shutil
import socket
import sys
import threading
import time
from pathlib import Path

from stage import ROOT, TOOLS, Part, Publisher, Stack, Subscriber, alone, folder
from observe import HERE, HOST, PORTS, Missing, Observe, get, until
from lint import boards, declared, rules

LOAD_SECONDS = 60
# Rates need so long to level off after the load begins.
DRAW_AFTER_SECONDS = 25
HOLE_SECONDS_MAX = 60
RATE_INTERVAL = "20s"
# Traces and log lines are pushed. Metrics are scraped, so they are not pushed beside that.
OTLP = f"--otlp-endpoint http://{HOST}:{PORTS['otlp_http']} --otlp-interval-s 0 --trace-ratio 0.01"
VARIABLES = {"broker": "acme", "pod": ".*", "run": ".*"}


def substituted(expr):
    expr = expr.replace("$__rate_interval", RATE_INTERVAL).replace("$__interval", "5s").replace("$__range", "1m")
    return re.sub(r"\$\{?(\w+)\}?", lambda match: VARIABLES.get(match[1], match[0]), expr)


def needs(panel):
    """The part that a panel needs besides pods and Prometheus, such as "k6"."""
    found = re.search(r"Needs: (.*)\.$", panel.get("description", ""))
    return found[1] if found else None


# -- load


def send(port, text):
    """Sends bytes that are not MQTT, so that the server counts a refusal."""
    with socket.create_connection((HOST, port)) as sock:
        sock.sendall(text)
        sock.settimeout(5)
        try:
            while sock.recv(4096):
                pass
        except OSError:
            pass


def k6(observe, stage):
    """A scenario of loadtests/k6, where k6 was built (make k6): it writes to the same Prometheus."""
    program, script = TOOLS / "k6", ROOT / "loadtests/k6/scenarios/durable-online.js"
    program, script = os.environ.get("K6", program), Path(os.environ.get("K6_SCENARIO", script))
    if not Path(program).exists() or not script.exists():
        return []
    settings = {
        "K6_PROMETHEUS_RW_SERVER_URL": f"{observe.url('prometheus')}/api/v1/write",
        "K6_PROMETHEUS_RW_TREND_STATS": "p(50),p(99),max",
        "MQTT_URL": f"mqtt://{HOST}:1883",
        "LOAD_PAIRS": "5",
        "LOAD_RATE": "10",
        # Until it is stopped, because the checks take minutes on a busy machine.
        "LOAD_SECONDS": "3600",
    }
    command = [program, "run", "-o", "experimental-prometheus-rw", "--tag", "testid=check", script]
    part = Part("k6", stage / "k6.log", command, settings, stage)
    part.leave = part.stop
    return [part]


class Churn:
    """Clients that come and go, some of them wrong, so that lines of refusals and ends show something."""

    def __init__(self):
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        number = 0
        while not self.over.wait(0.3):
            number += 1
            Subscriber(f"visitor-{number % 5}", "plant/state", user="acme/ann", port=1883 + number % 3, lasts=False).leave()
            send(1883, b"GET / HTTP/1.1\r\n\r\n")
            send(8883, b"no TLS")
            get(f"http://{HOST}:{8080 + number % 3}/api/v1/openapi.json")
            secure = secure_client(f"visitor-{number % 5}")
            secure.disconnect()
            secure.loop_stop()

    def leave(self):
        self.over.set()
        self.thread.join()


def drive():
    """Loads two brokers on three pods with all qualities of service and offline sessions. Returns the clients: leave() ends each."""
    acme, globex = "acme/ann", "globex/bob"
    away = Subscriber("away", "plant/#", user=acme, port=1884)
    away.leave()
    people = [
        Subscriber("here", "plant/#", user=acme, port=1883),
        Subscriber("elsewhere", "plant/+/a", user=acme, port=1885),
        Subscriber("live", "plant/#", qos=0, user=globex, lasts=False),
        Publisher("plant/1/a", qos=1, rate=100, user=acme, port=1884),
        Publisher("plant/2/a", qos=0, rate=200, user=acme, port=1883),
        Publisher("plant/3/b", qos=2, rate=50, user=acme, port=1885),
        Publisher("plant/4", qos=1, rate=50, user=globex, port=1884),
    ]
    people[0].client.publish("plant/state", "on", 1, retain=True)
    gateway(people)
    people.append(Churn())
    return people


def secure_client(client_id):
    """A client that is connected through TLS."""
    import paho.mqtt.client as paho
    from paho.mqtt.enums import MQTTProtocolVersion

    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv311)
    client.tls_set(str(people_certificate))
    client.connect("localhost", 8883)
    client.loop_start()
    until(client.is_connected, "no client through the gateway")
    return client


def gateway(people):
    client = secure_client("secure")
    people.append(type("Secure", (), {"leave": staticmethod(lambda: (client.disconnect(), client.loop_stop()))}))


people_certificate = None


# -- checks


def lacking(has_database):
    """The value of `needs` in metrics.toml of metrics that pods with this store do not have."""
    return "the embedded engine" if has_database else "FoundationDB"


def check_pages(has_database, problems):
    """/metrics of a running pod against metrics.toml: names, types and help, and that nothing is missing."""
    text = "".join(get(f"http://{HOST}:{port}/metrics") for port in (8090, 8091))
    shown = {name: (kind, about) for name, about, kind in re.findall(r"# HELP (\S+) (.*)\n# TYPE \S+ (\w+)", text)}
    known = {metric["name"]: metric for metric in declared()}
    for name, (kind, about) in shown.items():
        metric = known.get(name)
        if metric is None:
            problems.append(f"/metrics has {name}, which is not declared")
        elif (metric["type"], metric["help"]) != (kind, about):
            problems.append(f"/metrics says of {name}: {kind}, {about}")
    for name in sorted(set(known) - set(shown)):
        if known[name].get("needs") != lacking(has_database):
            problems.append(f"/metrics lacks {name}")
    for name, labels in re.findall(r"^(\w+)\{(.*)\} ", text, re.M):
        name = re.sub(r"_(bucket|sum|count)$", "", name) if name not in known else name
        for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
            values = known.get(name, {}).get("labels", {}).get(label)
            if values is None and label != "le" or values and value not in values:
                problems.append(f'/metrics has {name} with {label}="{value}", which is not declared')
    print(f"/metrics: {len(shown)} metrics, as declared")


def answers(observe, expr):
    """Whether a query has data. A scrape that a busy machine missed leaves a hole of some seconds."""

    def has_data():
        return any(series["value"][1] != "NaN" for series in observe.query(expr))

    try:
        return until(has_data, "no data", HOLE_SECONDS_MAX)
    except TimeoutError:
        return False


def check_panels(observe, here, has_database, problems):
    counts, skipped = {}, {}
    names = {metric["name"] for metric in declared() if metric.get("needs") == lacking(has_database)}

    def is_absent(expr):
        return all(names & set(re.findall(r"\w+", way)) for way in expr.split(" or "))

    for path, _, panel in boards():
        if panel["type"] == "row":
            continue
        if (need := needs(panel)) and need not in here:
            skipped.setdefault(need, []).append(f"{path.stem}: {panel['title']}")
            continue
        asked = [target for target in panel["targets"] if not is_absent(target["expr"])]
        if not asked:
            problems.append(f"{path.stem}: {panel['title']} is for another store, which its description does not say")
        for target in asked:
            try:
                has_data = answers(observe, substituted(target["expr"]))
            except ValueError as error:
                problems.append(f"{path.stem}: {panel['title']}: {error}: {target['expr']}")
                continue
            if not has_data:
                problems.append(f"{path.stem}: {panel['title']} is empty: {target['expr']}")
        counts[path.stem] = counts.get(path.stem, 0) + 1
    for name, count in counts.items():
        print(f"{name}: {count} panels were asked")
    for need, panels in skipped.items():
        print(f"SKIPPED: {len(panels)} panels that need {need}, which is not here: {'; '.join(panels)}")


def sample(observe, stage):
    """Has the exporter ask the sample, after the pictures: their numbers are measured."""
    observe.fdbcli = stage / "bin"
    observe.fdbcli.mkdir()
    (observe.fdbcli / "fdbcli").symlink_to(HERE / "collector/sample_fdbcli.py")
    observe.cluster = "sample.cluster"
    observe.end("status")
    observe.add_status(observe.nats_ports)
    until(lambda: observe.query("foundationdb_up == 1"), "the exporter does not read the sample", 180)
    print("FoundationDB: it is not here, so its panels read a sample of `status json`, through the real exporter")


# Metrics of rules that only a machine of Terraform or the chart has: the file that makes each, and the text in it. check-region boots
# such machines.
OF_DEPLOYMENTS = {
    "region_machines_wanted": ("modules/telemetry/main.tf", 'record = "region_machines_wanted"'),
    "region_pods_wanted": ("chart/templates/telemetry.yaml", "record: region_pods_wanted"),
    "x509_cert_not_after": ("modules/machine/boot/boot.py", "# TYPE x509_cert_not_after gauge"),
    "node_systemd_unit_state": ("modules/machine/files/node-exporter.service", "--collector.systemd"),
    "node_textfile_scrape_error": ("modules/machine/files/node-exporter.service", "--collector.textfile"),
}


# Metrics of rules that the sample has, and a cluster only with a running backup.
OF_BACKUPS = {"foundationdb_backup_behind_seconds"}


def check_foreign_names(observe, has_database, problems):
    """The rules read no metric of other programs that does not exist: such an alert would never fire."""
    pattern = r"\b(?:nats|foundationdb|envoy|node|x509|region)_\w+"
    names = set()
    for _, rule in rules():
        bare = re.sub(r'"[^"]*"|\w+:\w+:\w+|(?:by|on) *\([^)]*\)', "", rule["expr"])
        names |= set(re.findall(pattern, re.sub(r"\w+ *(?:=~|!~|!=|=(?!=))", "", bare)))
    found = 0
    if has_database:
        print(f"SKIPPED: metrics that need a backup of FoundationDB, which is not here: {' '.join(sorted(OF_BACKUPS))}")
        names -= OF_BACKUPS
    for name in sorted(names):
        if name in OF_DEPLOYMENTS:
            path, text = OF_DEPLOYMENTS[name]
            if text not in (ROOT / "terraform" / path).read_text():
                problems.append(f"rules read {name}, which {path} does not make")
        # A counter of Envoy has _total from the collector, and none from Envoy: rules have both.
        elif f"{name}_total" in names:
            continue
        elif not answers(observe, name):
            problems.append(f"rules read {name}, which no exporter has")
        else:
            found += 1
    for name in sorted(set(OF_DEPLOYMENTS) - names):
        problems.append(f"no rule reads {name}, which is listed as one of Terraform's or of the chart's")
    print(f"rules: {found} metrics of other programs are there, {len(OF_DEPLOYMENTS)} are made by Terraform's machines and by the chart")


def check_rules(observe, problems):
    """Each rule is evaluated without an error, and each that records has recorded something."""
    groups = observe.ask("rules")["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        if rule["health"] != "ok":
            problems.append(f"rule {rule['name']}: {rule['health']}: {rule.get('lastError')}")
        if rule["type"] == "recording" and not answers(observe, rule["name"]):
            problems.append(f"rule {rule['name']} records nothing")
    print(f"rules: {sum(len(group['rules']) for group in groups)} evaluated, {len(list(rules()))} in the files")


def check_links(observe, problems):
    """The link of each alert, as Prometheus sends it, opens a page that names the alert."""
    alerts = [rule for group in observe.ask("rules")["groups"] for rule in group["rules"] if rule["type"] == "alerting"]
    for rule in alerts:
        url = rule["annotations"]["runbook_url"]
        try:
            if rule["name"] not in observe.runbook(url):
                problems.append(f"{url}, which {rule['name']} links, does not name it")
        except ValueError as error:
            problems.append(f"{rule['name']}: {error}")
    print(f"runbooks: the links of {len(alerts)} alerts were opened")


def check_runbooks(observe, problems):
    """Prometheus takes each query of a page; without its fault it may be empty."""
    asked = 0
    for path in sorted((ROOT / "runbooks").glob("*.md")):
        for expr in re.findall(r"'query=([^']*)'", path.read_text()):
            asked += 1
            try:
                observe.query(expr)
            except ValueError as error:
                problems.append(f"{path.name}: {error}: {expr}")
    print(f"runbooks: {asked} queries were asked")


def main():
    alone()
    global people_certificate
    if not (TOOLS / "otelcol").exists():
        raise Missing("there is no collector: dashboards/collector/build.sh makes it, and make check-dashboards does")
    stage, problems = folder(), []
    stack = Stack(stage, STACK_FLAGS=OTLP)
    people_certificate = stage / "certs/ca.crt"
    people = []
    try:
        with Observe(stage / "observe", TOOLS, interval="5s") as observe:
            observe.stack = stack.home
            observe.look()
            has_database = bool(observe.cluster)
            for kind, count in (("millrace", 3), ("envoy", 1), ("status", 1), ("host", 1)):
                until(lambda: len(observe.query(f'up{{job="{kind}"}} == 1')) == count, f"no metrics of {kind}", 120)
            people = drive() + k6(observe, stage)
            began = time.time()
            until(lambda: time.time() > began + LOAD_SECONDS, "", LOAD_SECONDS + 5)
            # Pictures and checks take seconds more, in which they slow the load.
            end = time.time()
            here = {None, "NATS", "Envoy", "otlp_endpoint"} | ({"k6"} if observe.query("k6_vus") else set())
            here |= {"FoundationDB", "pods on FoundationDB"} if has_database else {"the embedded engine"}
            if "--draw" in sys.argv:
                import draw

                draw.all_boards(observe, began + DRAW_AFTER_SECONDS, end, substituted, lambda panel: needs(panel) in here)
            if not has_database:
                sample(observe, stage)
                here.add("FoundationDB")
            check_pages(has_database, problems)
            check_rules(observe, problems)
            check_foreign_names(observe, has_database, problems)
            check_panels(observe, here, has_database, problems)
            check_links(observe, problems)
            check_runbooks(observe, problems)
    finally:
        for person in people:
            person.leave()
        stack.stop()
        shutil.rmtree(stage, ignore_errors=True)
    for problem in problems:
        print(f"FAILED: {problem}")
    print(f"dashboards: {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    try:
        main()
    except Missing as missing:
        sys.exit(f"SKIPPED: {missing}")
