#!/usr/bin/env python3
"""Sends one message through a server of two pods that exports to a collector. Checks that the collector receives the spans of all
steps of the message, all metrics of /metrics under the same names, and log lines.

MILLRACE names another binary than target/release/millrace. `--without` removes flags of the server, to see the check fail:
`--without otlp_endpoint`.
"""

import os
import re
import shutil
import sys

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from observe import HERE, HOST, Missing, Observe, get, is_listening, until
from stage import TOOLS, Part, Server, Subscriber, alone, connect, folder, make

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
UNSAMPLED = "0af7651916cd43dd8448eb211c80319c"
TOPIC, PAYLOAD = "plant/otlp", "follow me"
# The steps of a QoS 1 message with a receiver on another pod, by the pod that takes them.
STEPS = {
    "pod-1": {"publish", "decode", "authorise", "match", "append", "commit", "acknowledge"},
    "pod-2": {"fabric", "deliver"},
}
ARRIVE_SECONDS_MAX = 60
FLAGS = {
    "otlp_endpoint": None,
    "otlp_interval_s": "1",
    # Only traces that a publisher begins are recorded.
    "trace_ratio": "0",
    "pods": "2",
    "nats": f"nats://{HOST}:4222",
}


# -- the collector's output


def spans(text):
    """Reads the spans from the collector's detailed output; `pod` names the sender."""
    found, pod, span = [], None, None
    for line in text.splitlines():
        if match := re.match(r"\s+-> service\.instance\.id: Str\((.*)\)", line):
            pod = match[1]
        elif re.match(r"Span #\d+", line):
            span = {"pod": pod, "attributes": {}}
            found.append(span)
        elif re.match(r"(Resource|Scope)(Spans|Logs|Metrics) #\d+", line):
            span = None
        elif span is not None:
            if match := re.match(r"\s+-> ([\w.]+): \w+\((.*)\)", line):
                span["attributes"][match[1]] = match[2]
            elif match := re.match(r"    (\w[\w ]*?)\s*: ?(.*)", line):
                span[match[1]] = match[2]
    return found


def names(page):
    return set(re.findall(r"^# TYPE (\S+) ", page, re.M))


# -- checks


def check_trace(log, problems):
    def of_trace():
        return [span for span in spans(log.read_text(errors="replace")) if span["Trace ID"] == TRACE]

    def is_whole():
        found = of_trace()
        return all({span["Name"] for span in found if span["pod"] == pod} >= steps for pod, steps in STEPS.items())

    try:
        until(is_whole, "spans are missing", ARRIVE_SECONDS_MAX)
    except TimeoutError:
        seen = sorted((span["pod"], span["Name"]) for span in of_trace())
        return problems.append(f"spans are missing: {seen} arrived, {STEPS} should have")
    found = of_trace()
    publish = [span for span in found if span["Name"] == "publish"]
    if [span["Parent ID"] for span in publish] != [CALLER]:
        problems.append(f"one span continues the caller's: {publish}")
    for span in found:
        if span["Name"] != "publish" and span["Parent ID"] != publish[0]["ID"]:
            problems.append(f"is not a part of the publish: {span}")
        if span["End time"] < span["Start time"]:
            problems.append(f"ends before it begins: {span}")
        if span["attributes"].get("messaging.destination.name") != TOPIC:
            problems.append(f"does not name its topic: {span}")
    if any(span["Trace ID"] == UNSAMPLED for span in spans(log.read_text(errors="replace"))):
        problems.append("a trace that its caller does not record was exported")
    print(f"trace: {len(found)} spans: " + ", ".join(f"{span['pod']} {span['Name']}" for span in found))


def check_metrics(observe, problems):
    """This collector scrapes nothing, so it has only metrics that the server exported."""
    shown = names(get(f"http://{HOST}:8090/metrics"))

    def arrived():
        page = get(f"{observe.url('exporter')}/metrics")
        pattern = rf'^millrace_messages_received_total{{.*instance="pod-1".*qos="1".*}} [1-9]'
        return page if re.search(pattern, page, re.M) and not shown - names(page) else None

    try:
        page = until(arrived, "metrics are missing", ARRIVE_SECONDS_MAX)
    except TimeoutError:
        page = get(f"{observe.url('exporter')}/metrics")
        return problems.append(f"metrics are missing: {sorted(shown - names(page)) or 'messages that pod-1 received'}")
    if lost := re.findall(r'^millrace_otlp_items_total\{.*result="(?:failed|queue_full)".*\} [1-9].*', page, re.M):
        problems.append(f"items were lost: {lost}")
    print(f"metrics: {len(shown)} under the names of /metrics")


def check_logs(log, problems):
    def arrived():
        return re.search(r"Body: Str\(HTTP is open at", log.read_text(errors="replace"))

    try:
        until(arrived, "", ARRIVE_SECONDS_MAX)
    except TimeoutError:
        return problems.append("no log line arrived")
    if "sign-up#" in log.read_text(errors="replace"):
        problems.append("the secret link of the first account was exported")
    print("logs: lines of the server's start")


# -- the message


def publish(client, trace, flags):
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [("traceparent", f"00-{trace}-{CALLER}-{flags}"), ("tracestate", "vendor=1")]
    client.publish(TOPIC, PAYLOAD, 1, properties=properties).wait_for_publish(30)


def drive(problems):
    """A publisher on one pod, a receiver on the other. The receiver's session ends with its connection: a persistent session could read
    the message from the store instead of taking the live copy, and the trace would lack the network."""
    got = []
    # Each pod opens its ports by itself: the health of the first says nothing of the second.
    until(lambda: is_listening(1883) and is_listening(1884), "the pods do not listen")
    receiver = Subscriber("receiver", "plant/#", port=1884, lasts=False)
    receiver.client.on_message = lambda _, __, message: got.append(message)
    sender = make("sender", None)
    connect(sender, 1883, False)
    until(sender.is_connected, "no publisher")
    publish(sender, UNSAMPLED, "00")
    publish(sender, TRACE, "01")
    until(lambda: len(got) >= 2, "the messages did not arrive")
    passed_on = [dict(message.properties.UserProperty) for message in got]
    if {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=1"} not in passed_on:
        problems.append(f"the trace context was not passed on unaltered: {passed_on}")
    for client in (sender, receiver.client):
        client.disconnect()
        client.loop_stop()


def main():
    alone()
    stage, problems, parts = folder(), [], []
    for tool in ("otelcol", "nats-server"):
        if not (TOOLS / tool).exists():
            raise Missing(f"there is no {TOOLS / tool}: make check-otlp makes it")
    observe = Observe(stage / "observe", TOOLS, interval="2s")
    without = sys.argv[sys.argv.index("--without") + 1 :] if "--without" in sys.argv else []
    try:
        observe.prepare()
        observe.start_collector(TOOLS / "otelcol", HERE / "collector/detailed.yaml")
        observe.wait("collector", f"http://{HOST}:{observe.ports['health']}/")
        parts.append(Part("nats", stage / "nats.log", [TOOLS / "nats-server", "-a", HOST, "-p", "4222"]))
        flags = FLAGS | {"otlp_endpoint": observe.url("otlp_http")}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items() if name not in without]
        parts.append(Server(stage, *flags))
        drive(problems)
        log = observe.folder / "logs/collector.log"
        check_trace(log, problems)
        check_metrics(observe, problems)
        check_logs(log, problems)
    finally:
        for part in reversed(parts):
            part.stop()
        observe.stop()
        if "OTLP_KEEP" not in os.environ:
            shutil.rmtree(stage, ignore_errors=True)
    for problem in problems:
        print(f"FAILED: {problem}")
    print(f"OTLP: {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    try:
        main()
    except Missing as missing:
        sys.exit(f"SKIPPED: {missing}")
