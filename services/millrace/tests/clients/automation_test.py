"""Node-RED and Telegraf: programs that stay connected, keep a session, and come back to what waited for it."""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import paho.mqtt.client as paho

from checks import HOST, PORTS, SECONDS_MAX, before, equal, run

HERE, CACHE = Path(os.environ["here"]), Path(os.environ["cache"])
NODE_RED = CACHE / "node-red/node_modules/node-red/red.js"
TELEGRAF = os.environ.get("TELEGRAF")
MESSAGES = 100
# A value that is none of the messages.
PROBE = 1_000_000
# Node-RED compiles its nodes when it starts, on a machine that may be busy.
START_SECONDS_MAX = 60


class Program:
    """A process that has started when its output has a line with `ready`."""

    def __init__(self, command, ready, folder):
        self.lines = []
        self.started, self.settled = False, threading.Event()
        self.process = subprocess.Popen(
            [str(word) for word in command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        threading.Thread(target=self._read, args=(ready,), daemon=True).start()

    def _read(self, ready):
        for line in self.process.stdout:
            self.lines.append(line)
            if ready in line:
                self.started = True
                self.settled.set()
        self.settled.set()

    def __enter__(self):
        self.settled.wait(START_SECONDS_MAX)
        if not self.started:
            self.process.kill()
            raise TimeoutError("it did not start: " + "".join(self.lines[-15:]))
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Client:
    """A client of paho that subscribes to one filter, if it has one, and publishes with QoS 1."""

    def __init__(self, topic_filter=None):
        self.messages, subscribed = queue.Queue(), threading.Event()
        self.paho = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self.paho.on_message = lambda _c, _u, message: self.messages.put(message)
        self.paho.on_subscribe = lambda *_: subscribed.set()
        self.paho.connect(HOST, PORTS["OPEN", "tcp"])
        self.paho.loop_start()
        if topic_filter:
            self.paho.subscribe(topic_filter, qos=1)
            if not subscribed.wait(SECONDS_MAX):
                raise TimeoutError("SUBACK")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.paho.disconnect()
        self.paho.loop_stop()

    def publish(self, topic, payload, retain=False):
        self.paho.publish(topic, payload, 1, retain).wait_for_publish(SECONDS_MAX)

    def take(self, count):
        return [self.messages.get(timeout=SECONDS_MAX) for _ in range(count)]


# -- Node-RED


def flows(prefix, version):
    """Messages of in/# go to out with their topic as a property of the payload; the client announces to the broker that it is online."""
    broker = {
        "id": "broker", "type": "mqtt-broker", "broker": HOST, "port": str(PORTS["OPEN", "tcp"]), "clientid": prefix,
        "autoConnect": True, "usetls": False, "protocolVersion": version, "keepalive": "60", "cleansession": False,
        "sessionExpiry": "600", "autoUnsubscribe": False, "birthTopic": f"{prefix}/status", "birthQos": "1", "birthPayload": "here",
        "birthRetain": "true", "closeTopic": f"{prefix}/status", "closeQos": "1", "closePayload": "gone",
        "closeRetain": "true", "willTopic": f"{prefix}/status", "willQos": "1", "willPayload": "lost",
        "willRetain": "true",
    }  # fmt: skip
    place = {"z": "flow", "x": 100, "y": 100}
    return [
        {"id": "flow", "type": "tab", "label": "flow", "disabled": False},
        broker,
        {"id": "in", "type": "mqtt in", "topic": f"{prefix}/in/#", "qos": "1", "datatype": "utf8", "broker": "broker",
         "nl": False, "rap": True, "rh": 0, "inputs": 0, "wires": [["move"]], **place},
        {"id": "move", "type": "function", "func": f"msg.payload = JSON.stringify([msg.topic, msg.payload, msg.qos, msg.retain]);"
         f"msg.topic = '{prefix}/out'; msg.retain = false; return msg;", "outputs": 1, "wires": [["out"]], **place},
        {"id": "out", "type": "mqtt out", "topic": "", "qos": "1", "retain": "", "broker": "broker", "wires": [], **place},
    ]  # fmt: skip


def node_red(version):
    prefix = f"node-red/{version}"
    with tempfile.TemporaryDirectory() as folder, Client(f"{prefix}/#") as beside:
        shutil.copy(HERE / "node-red/settings.js", folder)
        Path(folder, "flows.json").write_text(json.dumps(flows(prefix, version)))
        command = ["node", NODE_RED, "--userDir", folder, "--settings", Path(folder, "settings.js")]

        def came(wanted):
            """The next message of this topic: what the flow sends, or its state."""
            while True:
                message = beside.messages.get(timeout=START_SECONDS_MAX)
                if message.topic == f"{prefix}/{wanted}":
                    return message.payload.decode()

        beside.publish(f"{prefix}/in/kept", "kept", retain=True)
        with Program(command, "Started flows", folder):
            equal(came("status"), "here", "the birth message")
            equal(json.loads(came("out")), [f"{prefix}/in/kept", "kept", 1, True], "the retained message")
            for n in range(MESSAGES):
                beside.publish(f"{prefix}/in/{n}", str(n))
            for n in range(MESSAGES):
                equal(json.loads(came("out")), [f"{prefix}/in/{n}", str(n), 1, False], "a live message")
        equal(came("status"), "gone", "the close message")
        for n in range(MESSAGES):
            beside.publish(f"{prefix}/in/{n}", f"away {n}")
        waited = []
        with Program(command, "Started flows", folder):
            while len(waited) < MESSAGES:
                one = json.loads(came("out"))
                # Between them may be the retained message, and what it had not acknowledged when it ended.
                if one[1].startswith("away") and one not in waited:
                    waited.append(one)
        equal(waited, [[f"{prefix}/in/{n}", f"away {n}", 1, False] for n in range(MESSAGES)], "what waited")


def node_red_lost():
    """The will of a runtime that is killed."""
    prefix = "node-red/lost"
    with tempfile.TemporaryDirectory() as folder, Client(f"{prefix}/status") as beside:
        shutil.copy(HERE / "node-red/settings.js", folder)
        Path(folder, "flows.json").write_text(json.dumps(flows(prefix, "4")))
        command = ["node", NODE_RED, "--userDir", folder, "--settings", Path(folder, "settings.js")]
        with Program(command, "Started flows", folder) as program:
            equal(beside.messages.get(timeout=START_SECONDS_MAX).payload, b"here", "the birth message")
            program.process.kill()
            equal(beside.take(1)[0].payload, b"lost", "the will")


# -- Telegraf


def telegraf(version):
    prefix = f"telegraf/{version.replace('.', '-')}"
    server = f"tcp://{HOST}:{PORTS['OPEN', 'tcp']}"
    with tempfile.TemporaryDirectory() as folder, Client(f"{prefix}/out/#") as beside:
        config = Path(folder, "telegraf.conf")
        config.write_text(f"""
[agent]
  interval = "1s"
  flush_interval = "1s"
  omit_hostname = true
[[inputs.mqtt_consumer]]
  servers = ["{server}"]
  topics = ["$share/agents/{prefix}/in/#"]
  topic_tag = ""
  qos = 1
  persistent_session = true
  client_id = "{prefix}"
  data_format = "influx"
[[outputs.mqtt]]
  servers = ["{server}"]
  protocol = "{version}"
  topic = "{prefix}/out/{{{{ .PluginName }}}}"
  qos = 1
  data_format = "influx"
""")

        def take(timeout):
            """The values of the next message, which may have several lines."""
            lines = beside.messages.get(timeout=timeout).payload.decode().splitlines()
            return {int(line.split()[1].removeprefix("value=").removesuffix("i")) for line in lines}

        def publish(values):
            for value in values:
                beside.publish(f"{prefix}/in/{value}", f"sensor value={value}i")

        def take_all(values):
            """Takes these values; those that were not acknowledged when Telegraf ended come again between them."""
            missing = set(values)
            while missing:
                missing -= take(START_SECONDS_MAX)

        def wait_until_subscribed():
            end = time.monotonic() + START_SECONDS_MAX
            while True:
                publish([PROBE])
                try:
                    return take(1)
                except queue.Empty:
                    before(end, "Telegraf does not subscribe")

        command = [TELEGRAF, "--config", config]
        with Program(command, "Connected [", folder):
            wait_until_subscribed()
            publish(range(MESSAGES))
            take_all(range(MESSAGES))
        publish(range(MESSAGES, 2 * MESSAGES))
        with Program(command, "Connected [", folder):
            take_all(range(MESSAGES, 2 * MESSAGES))


if __name__ == "__main__":
    suite = sys.argv[1]
    checks = {
        "nodered": [
            ("Node-RED 3.1.1: a flow, retained messages, birth and close messages, and what waited", lambda: node_red("4")),
            ("Node-RED 5.0: a flow, retained messages, birth and close messages, and what waited", lambda: node_red("5")),
            ("Node-RED: the will of a runtime that is killed", node_red_lost),
        ],
        "telegraf": [
            ("Telegraf: a shared subscription, and what waited; it publishes with 3.1.1", lambda: telegraf("3.1.1")),
            ("Telegraf: a shared subscription, and what waited; it publishes with 5.0", lambda: telegraf("5")),
        ],
    }
    run(suite, checks[suite])
