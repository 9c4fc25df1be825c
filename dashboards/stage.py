"""Servers, a stack and MQTT clients for check_dashboards.py and the drills. They run in their own network and mount namespace,
so fixed ports are free and mounts do not reach the machine."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from observe import HOST, Missing, get, program, stop, until

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
TOOLS = Path(os.environ.get("OBSERVE_TOOLS") or TARGET / "tools")
ALONE = "STAGE_ALONE"


def alone():
    """Runs this program again in its own network and mount namespace."""
    # SIGTERM must run the `finally` blocks that stop all parts, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if ALONE in os.environ:
        return
    # Preferably without a user namespace: in one, a Machine could not mount control groups.
    for how in (["unshare", "-nm"], ["unshare", "-rnm"]):
        if shutil.which("unshare") and shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin") and not subprocess.call(
            [*how, "true"], stderr=subprocess.DEVNULL
        ):
            script = 'PATH=$PATH:/usr/sbin ip link set lo up && exec "$@"'
            command = [*how, "sh", "-c", script, "sh", sys.executable, *sys.argv]
            os.execvpe("unshare", command, os.environ | {ALONE: "1"})
    raise Missing("it needs unshare (util-linux) and ip (iproute2), and the right to make a network namespace")


def millrace():
    path = Path(os.environ.get("MILLRACE") or TARGET / "release/millrace").resolve()
    if not path.exists():
        raise Missing(f"there is no {path}: cargo build --release -p millrace")
    return path


class Part:
    """A process with its output in a file; after `kill`, `start` runs the same command again."""

    def __init__(self, name, log, command, settings=None, folder=None):
        self.name, self.log, self.command = name, Path(log), [str(part) for part in command]
        self.settings, self.folder = os.environ | (settings or {}), folder
        self.start()

    def start(self):
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.settings, cwd=self.folder,
                start_new_session=True,
            )

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        stop(self.process)

    def text(self):
        return self.log.read_text(errors="replace")


class Server(Part):
    """One millrace on the usual ports."""

    http = f"http://{HOST}:8080"

    def __init__(self, folder, *flags, data=None, before=()):
        """`before` is a command that runs the server, such as prlimit with a limit. With `--store` it keeps nothing in a folder."""
        self.data = Path(data or folder / "data")
        kept = [] if "--store" in flags else ["--data-dir", self.data]
        super().__init__("millrace", folder / "millrace.log", [*before, millrace(), "serve", *kept, "--ws-listen", "off", *flags])

    def start(self):
        super().start()
        self.is_well()

    def is_well(self):
        def look():
            if self.process.poll() is not None:
                raise RuntimeError(self.text()[-1500:])
            try:
                return get(f"{self.http}/healthz")
            except OSError:
                return False

        return until(look, "millrace is not well")


class Stack(Part):
    """`make stack`: three NATS servers, three pods, Envoy. A killed part stays down until `start_part`."""

    def __init__(self, folder, **settings):
        self.home = folder / "stack"
        settings = {
            "STACK_DIR": str(self.home),
            "STACK_CERTIFICATES": str(folder / "certs"),
            "STACK_MILLRACE": str(millrace()),
            "STACK_NATS_SERVER": str(TOOLS / "nats-server"),
            "STACK_ENVOY": str(TARGET / "envoy/bin/envoy"),
            # Seconds until the stack itself starts a killed part again: never during a test.
            "STACK_AGAIN_S": "3600",
        } | settings
        self.again = {}
        super().__init__("stack", folder / "stack.log", [ROOT / "services/stack/stack.sh", "run"], settings)

    def start(self):
        super().start()

        def look():
            if self.process.poll() is not None:
                raise RuntimeError(self.text()[-1500:])
            return "all is up" in self.text()

        until(look, "the stack is not up", 150)

    def pid(self, part):
        return int((self.home / "pids" / part).read_text())

    def kill_part(self, part):
        """Sends SIGKILL, and remembers command, environment and folder for `start_part`."""
        pid = self.pid(part)
        proc = Path(f"/proc/{pid}")
        command = [word for word in proc.joinpath("cmdline").read_bytes().decode().split("\0") if word]
        settings = dict(line.split("=", 1) for line in proc.joinpath("environ").read_bytes().decode().split("\0") if "=" in line)
        self.again[part] = (command, settings, os.readlink(proc / "cwd"))
        os.killpg(pid, signal.SIGKILL)
        until(lambda: not proc.exists() or " Z " in proc.joinpath("stat").read_text(), f"{part} does not end")

    def start_part(self, part):
        command, settings, folder = self.again.pop(part)
        return Part(part, self.home / "logs" / f"{part}-again.log", command, settings, folder)


class Machine:
    """A control group with one CPU and `memory_bytes`, whose /proc/stat and /proc/meminfo lxcfs shows to the node exporter."""

    KINDS = ("memory", "cpuset", "cpu", "cpuacct")
    FILES = ("stat", "meminfo")

    def __init__(self, folder, memory_bytes):
        lxcfs, home = program("lxcfs", how="apt-get install lxcfs"), Path("/sys/fs/cgroup")
        self.memory_bytes = memory_bytes
        self.groups = {kind: home / kind / folder.name for kind in self.KINDS}
        try:
            for group in self.groups.values():
                group.mkdir()
        except OSError as error:
            raise Missing(f"a machine of its own needs root and the control groups {', '.join(self.KINDS)} (version 1): {error}") from None
        self.put("memory", "memory.limit_in_bytes", memory_bytes)
        self.put("cpuset", "cpuset.mems", (home / "cpuset/cpuset.mems").read_text())
        self.put("cpuset", "cpuset.cpus", max(os.sched_getaffinity(0)))
        # The largest share that the kernel accepts, so that other programs on this CPU hardly slow the control group.
        self.put("cpu", "cpu.shares", 1 << 18)
        self.proc = folder / "machine"
        self.proc.mkdir()
        command = [lxcfs, "--foreground", "--enable-cfs", f"--pidfile={folder / 'lxcfs.pid'}", self.proc]
        self.lxcfs = Part("lxcfs", folder / "lxcfs.log", command)
        until(lambda: (self.proc / "proc/stat").exists(), f"lxcfs does not start: {self.lxcfs.text()}")

    def put(self, kind, name, value):
        (self.groups[kind] / name).write_text(str(value))

    @property
    def enter(self):
        """Prefix of a command that runs it in the control group."""
        join = "; ".join(f"echo $$ >{group}/cgroup.procs" for group in self.groups.values())
        return ["sh", "-ec", f'{join}; exec "$@"', "sh"]

    @property
    def see(self):
        """Like `enter`, for a program that reads /proc: it sees the files of lxcfs."""
        mounts = "; ".join(f"mount --bind {self.proc}/proc/{name} /proc/{name}" for name in self.FILES)
        # The first read of lxcfs shows all CPUs, and the exporter would remember them.
        first = "until [ $(grep -c '^cpu[0-9]' /proc/stat) = 1 ]; do sleep 0.2; done"
        return [*self.enter, "unshare", "-m", "sh", "-ec", f'{mounts}; {first}; exec "$@"', "sh"]

    def stop(self):
        subprocess.run(["umount", "--lazy", self.proc], check=False)
        self.lxcfs.stop()
        for group in self.groups.values():
            until(lambda group=group: not (group / "cgroup.procs").read_text(), f"{group} has processes")
            group.rmdir()


class Subscriber:
    """Collects all payloads in `got`."""

    def __init__(self, client_id, topic, qos=1, port=1883, user=None, lasts=True, password="", host=HOST, tls=None):
        self.got = []
        self.subscribed = threading.Event()
        self.client = make(client_id, user, password, tls)
        self.client.on_connect = lambda client, *_: client.subscribe(topic, qos)
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.on_message = lambda _, __, message: self.got.append(message.payload.decode())
        connect(self.client, port, lasts, host)
        if not self.subscribed.wait(30):
            raise TimeoutError(f"{client_id} has no subscription")

    def leave(self):
        self.client.disconnect()
        self.client.loop_stop()


class Publisher:
    """Publishes increasing numbers, `rate` a second, and records which were acknowledged or refused. It reconnects. `sent` has the
    number by packet id, and an id is used again after 65,535 messages, so a run must stay below that many."""

    def __init__(self, topic, qos=1, rate=50, port=1883, user=None, size=100, password="", host=HOST, tls=None):
        self.topic, self.qos, self.pause, self.size = topic, qos, 1 / rate, size
        self.sent, self.acknowledged, self.refused = {}, set(), set()
        self.client = make(f"publisher-{topic.replace('/', '-')}-{user or ''}", user, password, tls)
        self.client.on_publish = self.note
        connect(self.client, port, True, host)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def note(self, _client, _data, mid, reason, _properties):
        (self.refused if reason.is_failure else self.acknowledged).add(self.sent.get(mid))

    def run(self):
        number = 0
        while not self.over.wait(self.pause):
            # At most 500 messages are unacknowledged; with QoS 0 the answer may come before `sent` has the message.
            if self.qos == 0 or len(self.sent) - len(self.acknowledged) - len(self.refused) < 500:
                payload = f"{number}".ljust(self.size)
                self.sent[self.client.publish(self.topic, payload, self.qos).mid] = number
                number += 1

    def settle(self):
        """Stops publishing, and waits for the answer to each message."""
        self.over.set()
        self.thread.join()
        until(lambda: len(self.acknowledged | self.refused) >= len(set(self.sent.values())), "messages without an answer")
        return self

    def leave(self):
        self.over.set()
        self.client.disconnect()
        self.client.loop_stop()


def make(client_id, user, password="", tls=None):
    """`tls` is an ssl.SSLContext."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5)
    client.reconnect_delay_set(1, 2)
    if user:
        client.username_pw_set(user, password)
    if tls:
        client.tls_set_context(tls)
    return client


def connect(client, port, lasts, host=HOST):
    """A session that lasts outlives its connection by an hour."""
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = 3600 if lasts else 0
    client.connect(host, port, clean_start=not lasts, properties=properties)
    client.loop_start()


def folder():
    return Path(tempfile.mkdtemp(prefix="millrace-stage-"))
