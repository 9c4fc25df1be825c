"""A unit that runs now and then fails on a machine with a real systemd, and runs again after the repair."""

import shutil
import subprocess

from observe import HERE, Missing, until
from stage import Part

UNIT = "millrace-backup-expire"
STATE = f'node_systemd_unit_state{{name="{UNIT}.service", state=~"failed|activating"}}'
FILES = {
    "default.target": "[Unit]\nDescription=A machine with one unit\nRequires=dbus.service\nAfter=dbus.service\n",
    f"{UNIT}.service": "[Unit]\nDescription=Removes old backups\n[Service]\nType=oneshot\n"
    "ExecStart=/bin/sh -c 'test -e /run/key || { echo \"HTTP status 403: no key of the bucket\"; exit 1; }'\n",
}


class Booted(Part):
    """systemd in namespaces of its own, on the files of this machine. Changes are in memory. Its network is that of the drill."""

    def __init__(self, folder):
        self.home = folder / "machine"
        units = self.home / "seed/etc/systemd/system"
        self.home.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.home], check=True)
        units.mkdir(parents=True)
        for name, text in FILES.items():
            (units / name).write_text(text)
        boot = HERE.parent / "terraform/checks/region/machine.sh"
        self.groups = self.home / "cgroup/millrace-drill"
        super().__init__("systemd", folder / "systemd.log", [boot, "drill", self.home, "/"])

    def first(self):
        """The first process of the machine."""
        return next(iter((self.groups / "init.scope/cgroup.procs").read_text().split()), None)

    @property
    def enter(self):
        return ["nsenter", "--target", self.first(), "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--root", "--wdns=/", "--"]

    def is_up(self):
        if self.process.poll() is not None:
            raise Missing(f"systemd does not start here: {self.text()[-500:]}")
        try:
            said = subprocess.run([*self.enter, "systemctl", "is-system-running"], capture_output=True, text=True).stdout
        except (OSError, TypeError):
            return False
        # Units of this machine may fail in it.
        return said.strip() in ("running", "degraded")

    def stop(self):
        (self.groups / "cgroup.kill").write_text("1")
        self.process.wait()
        until(lambda: "populated 0" in (self.groups / "cgroup.events").read_text(), "the machine has processes")
        for group in sorted(self.groups.rglob("*"), reverse=True):
            group.is_dir() and group.rmdir()
        self.groups.rmdir()
        subprocess.run(["umount", self.home / "cgroup"], check=True)
        subprocess.run(["umount", "--lazy", self.home], check=True)


def run(drill):
    for name in ("/lib/systemd/systemd", "dbus-daemon", "nsenter"):
        if not shutil.which(name):
            raise Missing(f"a machine with systemd needs {name}: apt-get install systemd dbus util-linux")
    machine = drill.keep(Booted(drill.folder))
    until(machine.is_up, "systemd does not start")
    subprocess.run([*machine.enter, "systemctl", "reset-failed"], check=True)
    drill.say("a machine of its own: systemd with one unit")
    (drill.folder / "on-machine").write_text(f'#!/bin/sh\nexec {" ".join(machine.enter)} "$@"\n')
    (drill.folder / "on-machine").chmod(0o755)
    drill.host = machine.enter
    drill.node_exporter_flags = ["--collector.systemd", "--collector.systemd.unit-include=millrace-.*[.]service"]
    drill.server()
    drill.until_no_alert()
    drill.say(f"FAULT the key of the bucket is gone when a timer starts {UNIT}")
    drill.run(f"./on-machine systemctl start {UNIT}", fails=True)
    drill.fires("UnitFailed")
    drill.query(STATE)
    drill.run("./on-machine systemctl --failed; ./on-machine systemctl list-units --state=activating")
    drill.run(f"./on-machine journalctl -u {UNIT} -n 30")
    drill.say("ACT   bring the key back, and start the unit")
    drill.run("./on-machine touch /run/key")
    drill.run(f"./on-machine systemctl status {UNIT}", lines=4, fails=True)
    drill.run(f"./on-machine systemctl start {UNIT}")
    drill.ends("UnitFailed")
    drill.until_value(f"max({STATE})", lambda values: values == [0])
    drill.run("./on-machine systemctl --failed")
