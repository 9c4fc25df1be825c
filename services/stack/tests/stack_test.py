"""Tests `make stack`: starts one region of real parts, and checks what clients of two brokers see, also while a part is killed.

The cases share one stack and run in order. A Client with `pod` connects to that pod, and others connect through the gateway.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import equal, run
from region import PODS, SCRIPT, START_SECONDS_MAX, Client, Stack, is_listening, is_running, until

SUITE = "stack"
OWN_SETTINGS = {"GATEWAY_THREADS": "none", "MILLRACE_KEEP_ALIVE_MAX_S": "none"}
# The stack would also name settings of the shell that runs this suite.
for name in [name for name in os.environ if name.startswith(("GATEWAY_", "MILLRACE_"))]:
    del os.environ[name]


def says_what_is_real(stack):
    table = stack.text()
    for part in ["nats-1", "nats-2", "nats-3", "pod-1", "pod-2", "pod-3", "gateway"]:
        equal(bool(re.search(rf"^  {part} +\S.* \d+ +real", table, re.M)), True, f"{part} in {table}")
    for words in ["NOTE: embedded engine", "STAND-IN for FoundationDB", "one process for the three of them"]:
        equal(words in table, stack.is_stand_in(), f"{words} in {table}")


def own_settings_are_named(stack):
    """Settings of the operator's own broker would change the pods: they are left out, and the first line says so."""
    line = f"stack: not used here: {' '.join(sorted(OWN_SETTINGS))}. They are settings of your own broker or gateway"
    equal(line in stack.text(), True, stack.text()[:500])


def second_stack(stack):
    ended = subprocess.run([SCRIPT, "run"], env={**os.environ, **stack.settings}, capture_output=True, text=True)
    said = f"a stack runs already (in {stack.folder}/stack): stop it with Ctrl-C in its terminal, or with: kill {stack.process.pid}"
    equal((ended.returncode, said in ended.stderr), (1, True), ended.stderr)


def own_broker_only(stack):
    """A message reaches the clients of its broker on all pods and behind the gateway, and no client of another broker."""
    there = [Client(stack, "tls"), Client(stack, "wss", wss=True)]
    there += [Client(stack, f"on-{pod}", pod=pod) for pod in PODS]
    others = [Client(stack, "tls", broker="globex"), Client(stack, "on-3", broker="globex", pod=3)]
    for client in there + others:
        client.wants("#")
    said = []
    for number, publisher in enumerate(there):
        said.append(f"of {number}")
        publisher.says("a/b", said[-1])
        for client in there:
            client.gets_only(said[-1])
    others[0].says("a/b", "of globex")
    for client in others:
        client.gets_only("of globex")
    there[0].says("a/b", "end")
    for client in there:
        client.gets_only("end")
    for client in there + others:
        client.leaves()


def mqttjs(stack):
    """mqtt.js over WSS meets paho on each pod."""
    reader = [Client(stack, f"reads-{pod}", pod=pod).wants("from/js") for pod in PODS]
    command = ["node", Path(__file__).parent / "wss.mjs", str(stack.port("wss")), stack.folder / "certs/ca.crt"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    equal(ended.returncode, 0, ended.stderr)
    for client in reader:
        client.gets_only("over wss")
        client.leaves()


def session_moves(stack):
    Client(stack, "moves", pod=1, lasts=True).wants("moves").leaves()
    sender = Client(stack, "sender")
    expected = []
    for pod in [2, 3, None, 1]:
        expected = [f"before {pod}: {number}" for number in range(5)]
        sender.says("moves", *expected)
        client = Client(stack, "moves", pod=pod, lasts=True)
        equal(client.has_session, True, "session present")
        client.gets_only(*expected)
        client.leaves()
    sender.leaves()


def nats_dies(stack):
    """Kills the NATS server of pod 2: durable messages still arrive, and live ones arrive once the pod has another server."""
    durable = Client(stack, "durable", pod=3, lasts=True).wants("durable")
    live = Client(stack, "live", pod=1).wants("live")
    sender = Client(stack, "sender", pod=2)
    port = int(re.search(r"127\.0\.0\.1:(\d+)", stack.health(2)).group(1))
    victim = f"nats-{port - stack.port('nats') + 1}"
    os.kill(stack.pid(victim), signal.SIGKILL)
    expected = [f"message {number}" for number in range(20)]
    sender.says("durable", *expected)
    durable.gets(*expected)

    def arrives():
        sender.says("live", "ping")
        return not live.messages.empty()

    until(arrives, lambda: f"nothing live arrives: {stack.health(1)} {stack.health(2)}")
    for client in (durable, live, sender):
        equal(client.connects.empty(), True, "a client had to come back")
        client.leaves()
    stack.says(f"{victim} runs again")
    stack.hears_others()


def envoy_dies(stack):
    clients = [Client(stack, "tls", lasts=True), Client(stack, "wss", wss=True, lasts=True)]
    for client in clients:
        client.wants("envoy")
    sender = Client(stack, "sender", pod=2)
    os.kill(stack.envoy(), signal.SIGKILL)
    sender.says("envoy", "while it was away")
    stack.says("gateway runs again")
    for client in clients:
        equal(client.connected(), True, "session present")
        client.gets("while it was away")
        client.leaves()
    sender.leaves()


def pod_dies(stack):
    """Kills a pod: its clients reconnect through the gateway and get what they missed, and the will of a client that stays away fires."""
    back = Client(stack, "back", lasts=True).wants("back")
    pod = until(lambda: [pod for pod, count in zip(PODS, stack.clients("acme")) if count], "on no pod")[0]
    others = [number for number in PODS if number != pod]
    doomed = Client(stack, "doomed", pod=pod, will="of doomed")
    heir = Client(stack, "heir", pod=others[0]).wants("wills")
    sender = Client(stack, "sender", pod=others[1])
    victim = stack.pid_of_pod(pod)
    doomed.reconnect_delay_set(120, 120)
    os.kill(victim, signal.SIGKILL)
    sender.says("back", "while it was away")
    equal(back.connected(), True, "session present")
    back.gets("while it was away")
    heir.gets("of doomed")
    stack.says(f"pod-{pod} runs again")
    stack.hears_others()
    for client in (back, doomed, heir, sender):
        client.leaves()


def ends_in_order(stack, with_signal, code):
    client = Client(stack, "keeps", pod=1)
    client.says("kept", "from before", retain=True)
    client.leaves()
    pids = stack.pids()
    equal(len(pids) >= 5, True, f"processes {pids}")
    equal(stack.ends(with_signal), code, f"exit code: {stack.text()[-300:]}")
    equal([pid for pid in pids if is_running(pid)], [], "processes that are left")
    equal([port for port in (stack.port("mqtts"), stack.port("mqtt"), stack.port("nats")) if is_listening(port)], [], "ports")


def kept_and_broken(stack):
    """With STACK_KEEP the stack has its data again. A part that ends by itself ends the stack, which prints the part's last lines."""
    client = Client(stack, "looks", pod=2).wants("kept")
    client.gets_only("from before")
    client.leaves()
    pids = stack.pids()
    os.kill(stack.pid("nats-3"), signal.SIGTERM)
    equal(stack.ends(), 1, "exit code")
    equal("nats-3: [" in stack.text() and "stack: nats-3 ended with code" in stack.text(), True, stack.text()[-500:])
    equal([pid for pid in pids if is_running(pid)], [], "processes that are left")


def taken_port(stack):
    """The stack names a port that another program uses before it starts any part."""
    taken = stack.settings | {"STACK_DIR": str(stack.folder / "another")}
    ended = subprocess.run([SCRIPT, "run"], env={**os.environ, **taken}, capture_output=True, text=True)
    equal((ended.returncode, "another program listens on 127.0.0.1:" in ended.stderr), (1, True), ended.stderr)


def again(stack):
    """Starts a second stack in the folder of the first, with its data."""
    kept = Stack(stack.folder, "again.log", STACK_KEEP="1")
    try:
        kept_and_broken(kept.is_up())
    finally:
        kept.terminate()


def piped(stack):
    """As `make stack 2>&1 | tee log`: Ctrl-C ends tee, and the stack has nowhere to write to."""
    log = stack.folder / "piped.log"
    command = ["bash", "-c", '"$0" run 2>&1 | tee "$1"', str(SCRIPT), str(log)]
    shell = subprocess.Popen(
        command, env={**os.environ, **stack.settings}, start_new_session=True, stdout=subprocess.DEVNULL
    )
    try:
        text = lambda: log.read_text() if log.exists() else ""
        until(lambda: "all is up" in text(), lambda: f"it does not start: {text()[-500:]}", START_SECONDS_MAX)
        pids = stack.pids()
        os.killpg(shell.pid, signal.SIGINT)
        shell.wait()
        until(lambda: not [pid for pid in pids if is_running(pid)], lambda: "processes are left")
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGTERM)


# The runner sends SIGTERM to a suite that takes too long: exiting here ends the stack too.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
with tempfile.TemporaryDirectory() as temporary:
    stack = Stack(Path(temporary), **OWN_SETTINGS)
    try:
        stack.is_up()
        of_a_pod = [("clients of a killed pod are back, and wills fire", lambda: pod_dies(stack))]
        if stack.is_stand_in():
            print(f"SKIPPED: {SUITE}: a pod that is killed alone: the pods are processes of their own with FoundationDB only")
            of_a_pod = []
        run(
            SUITE,
            [
                ("it starts, and says which parts are real", lambda: says_what_is_real(stack)),
                ("it names settings of the shell that it does not use", lambda: own_settings_are_named(stack)),
                ("a second one says that one runs", lambda: second_stack(stack)),
                ("a port that is taken is named", lambda: taken_port(stack)),
                ("a server name reaches its broker on all pods, and only that", lambda: own_broker_only(stack)),
                ("mqtt.js over WSS reaches clients of all pods", lambda: mqttjs(stack)),
                ("a session goes from pod to pod", lambda: session_moves(stack)),
                ("clients continue while a NATS server is killed", lambda: nats_dies(stack)),
                ("clients come back after Envoy was killed", lambda: envoy_dies(stack)),
                *of_a_pod,
                ("Ctrl-C ends it in order, and leaves no process", lambda: ends_in_order(stack, signal.SIGINT, 0)),
                ("it continues with its data, and ends when a part breaks", lambda: again(stack)),
                # The last case, because it starts a stack without STACK_KEEP, which deletes the data.
                ("Ctrl-C ends it also when its output goes to tee", lambda: piped(stack)),
            ],
        )
    finally:
        stack.terminate()
