"""FoundationDB clusters of the drills: each process stands for a machine of its own, so that one can be lost."""

import os
import subprocess

from observe import HOST, Missing, program, until
from stage import Part, millrace

PORT = 4600
HOW = "https://github.com/apple/foundationdb/releases"
START_SECONDS_MAX = 120


class Cluster:
    def __init__(self, drill, machines, redundancy):
        if "foundationdb" not in subprocess.run([millrace(), "--version"], capture_output=True, text=True).stdout:
            raise Missing("this millrace is built without FoundationDB")
        self.folder = drill.folder / "fdb"
        self.folder.mkdir()
        self.file = self.folder / "fdb.cluster"
        self.addresses = [f"{HOST}:{PORT + number}" for number in range(machines)]
        self.file.write_text(f"drill:drill@{','.join(self.addresses)}\n")
        # Commands of the pages find the cluster as on a machine of the region.
        os.environ["FDB_CLUSTER_FILE"] = str(self.file)
        server = program("fdbserver", how=HOW)
        program("fdbcli", how=HOW)
        self.machines = [drill.keep(self.machine(server, number)) for number in range(machines)]
        until(lambda: "created" in self.ask(f"configure new {redundancy} ssd"), "the cluster is not made", START_SECONDS_MAX)
        until(lambda: "Healthy" in self.ask("status"), "the cluster is not healthy", START_SECONDS_MAX)
        drill.say(f"FoundationDB runs as {machines} machines, redundancy {redundancy}")

    def machine(self, server, number):
        home = self.folder / f"machine-{number}"
        (home / "logs").mkdir(parents=True)
        name = f"machine-{number}"
        where = [f"--{kind}={HOST}:{PORT + number}" for kind in ("public-address", "listen-address")]
        kept = [f"--datadir={home}/data", f"--logdir={home}/logs", f"--locality-machineid={name}", f"--locality-zoneid={name}"]
        # Not every file system of a container has the kernel's asynchronous I/O.
        command = [server, f"--cluster-file={self.file}", *where, *kept, "--knob_disable_posix_kernel_aio=1"]
        return Part(name, home / "server.log", command)

    def ask(self, command):
        done = subprocess.run(["fdbcli", "-C", self.file, "--timeout", "10", "--exec", command], capture_output=True, text=True)
        return done.stdout + done.stderr

    @property
    def flags(self):
        """Flags of a server that uses it as its store."""
        return ["--store", "foundationdb", "--fdb-cluster-file", self.file, "--pod", "pod-1"]
