"""The first start of a machine that loses its power meanwhile, and a disk that becomes larger:
python3 terraform/modules/machine/boot/first_start_test.py

A root file system over this machine's takes what the boot writes. systemd's own programs enable the unit and judge its condition; a
stub of systemctl inside writes down which units it should start. Needs root.
"""

import hashlib
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

MODULE = pathlib.Path(__file__).parents[1]
UNIT = "millrace-boot.service"
PROGRAM = b"#!/bin/true\n"
WAIT_S = 180
INSIDE = """
set -e
mount -t overlay -o lowerdir=/,upperdir=$FOLDER/upper,workdir=$FOLDER/work overlay "$FOLDER/root"
mount -t proc proc "$FOLDER/root/proc"
mount --rbind /dev "$FOLDER/root/dev"
# Not as the first process, which for systemd's programs is systemd.
chroot "$FOLDER/root" "$@" || exit $?
"""


class Services(http.server.BaseHTTPRequestHandler):
    """The metadata service, S3 and Secrets Manager, whose secret has no value at first."""

    def do_PUT(self):
        self.answer(200, b"token")

    def do_GET(self):
        role = "/latest/meta-data/iam/security-credentials/"
        keys = b'{"AccessKeyId": "a", "SecretAccessKey": "s", "Token": "t"}'
        self.answer(200, {role: b"nats", f"{role}nats": keys, "/programs/tool": PROGRAM}[self.path])

    def do_POST(self):
        self.server.asked += 1
        if self.server.secret is None:
            self.answer(400, b'{"__type": "ResourceNotFoundException"}')
        else:
            self.answer(200, json.dumps({"SecretString": json.dumps(self.server.secret)}).encode())

    def answer(self, code, body):
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@unittest.skipUnless(os.geteuid() == 0 and all(map(shutil.which, ("unshare", "systemd-analyze", "systemctl"))), "root, unshare and systemd are needed")
class FirstStart(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("upper", "work", "root"):
            (self.folder / name).mkdir(mode=0o755)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Services)
        self.server.asked, self.server.secret = 0, None
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.write_files()

    def write_files(self):
        """The files of cloud-init."""
        self.config = {
            "region": "eu-central-1", "endpoint": self.url, "bucket": "programs", "disks": [], "owners": {}, "ready": None,
            "artifacts": [{"key": "tool", "sha256": hashlib.sha256(PROGRAM).hexdigest(), "path": "/usr/local/bin/tool"}],
            "users": ["node-exporter"], "units": ["nats.service"],
            "secret": {"name": "nats", "owner": "node-exporter", "directory": "/etc/nats/secrets"},
        }
        program = re.search(r'"/usr/local/sbin/millrace-boot" .*content = "(.*?\\n)", mode', (MODULE / "main.tf").read_text())[1]
        self.put("etc/millrace-boot.json", json.dumps(self.config))
        self.put("usr/local/sbin/millrace-boot", program.replace("\\n", "\n").replace('\\"', '"'))
        for name in ("aws.py", "boot.py"):
            self.put(f"usr/local/lib/millrace-boot/{name}", (MODULE / "boot" / name).read_text())
        self.put(f"etc/systemd/system/{UNIT}", (MODULE / "files" / UNIT).read_text(), 0o644)
        self.put("stubs/systemctl", '#!/bin/sh\necho "$@" >>/calls\n')

    def put(self, path, text, mode=0o755):
        file = self.folder / "upper" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def inside(self, *command):
        """Starts a command on the machine. The kernel ends all of it with its first process, as a loss of power does."""
        environment = {
            "HOME": "/root", "FOLDER": str(self.folder), "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.url,
            "PATH": f"/stubs:{os.environ['PATH']}:/usr/sbin:/sbin",
        }
        return subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", INSIDE, "sh", *command],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def starts_unit(self):
        """Whether systemd starts the unit with the machine."""
        wanted = self.folder / "upper/etc/systemd/system/multi-user.target.wants" / UNIT
        judged = self.inside("systemd-analyze", "condition", f"--unit={UNIT}")
        said = judged.communicate(timeout=WAIT_S)[0]
        self.assertIn("ConditionPathExists", said)
        return wanted.is_symlink() and judged.returncode == 0

    def unit_program(self):
        return re.search(r"(?m)^ExecStart=(.*)$", (MODULE / "files" / UNIT).read_text())[1].split()

    def calls(self):
        path = self.folder / "upper/calls"
        return path.read_text().splitlines() if path.exists() else []

    def lose_power_while_the_secret_is_awaited(self):
        first = self.inside(*self.unit_program())
        end = time.monotonic() + WAIT_S
        while not self.server.asked:
            self.assertTrue(first.poll() is None and time.monotonic() < end, "the boot does not ask for its secret")
            time.sleep(0.02)
        first.kill()
        first.communicate(timeout=WAIT_S)

    def test_a_machine_that_was_stopped_goes_on_at_its_next_start(self):
        command = json.loads(re.search(r"runcmd = \[(\[.*\])\]", (MODULE / "main.tf").read_text())[1])
        self.assertEqual(command, ["systemctl", "enable", "--now", "--no-block", UNIT])
        subprocess.run(["systemctl", f"--root={self.folder}/upper", "--quiet", "enable", UNIT], check=True)
        self.assertTrue(self.starts_unit(), "cloud-init enables the unit, and systemd does not start it")
        self.lose_power_while_the_secret_is_awaited()
        self.assertEqual(self.calls(), [])

        self.server.secret = {"tls.key": "key"}
        self.assertTrue(self.starts_unit(), "systemd does not start the unit again")
        second = self.inside(*self.unit_program())
        said = second.communicate(timeout=WAIT_S)[0]
        self.assertEqual(second.returncode, 0, said)
        self.assertEqual(self.calls(), ["daemon-reload", "enable --quiet nats.service", "restart --no-block nats.service"])
        self.assertEqual((self.folder / "upper/etc/nats/secrets/tls.key").read_text(), "key")
        self.assertEqual((self.folder / "upper/usr/local/bin/tool").read_bytes(), PROGRAM)
        self.assertFalse(self.starts_unit(), "a machine that has done its first start does it again at each start")

    def loop_device(self, image):
        made = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True)
        if made.returncode:
            self.skipTest(f"there is no loop device: {made.stderr.strip()}")
        self.addCleanup(subprocess.run, ["losetup", "--detach", made.stdout.strip()], check=True)
        return made.stdout.strip()

    def test_the_file_system_of_a_larger_disk_grows_while_it_is_used(self):
        image = self.folder / "image"
        image.touch()
        os.truncate(image, 16 << 20)
        device = self.loop_device(image)
        self.put("etc/fstab", "", 0o644)
        self.put("etc/millrace-boot.json", json.dumps(self.config | {"disks": [{"device": device, "path": "/data"}]}))
        disks = "/usr/local/sbin/millrace-boot disks >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }"
        size = "df --block-size=1 --output=size /data | tail -n 1"
        machine = self.inside("sh", "-c", f"{disks}; {size}; echo kept >/data/file; read -r _; {disks}; {size}; cat /data/file")
        before = int(machine.stdout.readline())
        os.truncate(image, 64 << 20)
        subprocess.run(["losetup", "--set-capacity", device], check=True)
        said = machine.communicate("\n", timeout=WAIT_S)[0]
        if "resize2fs: Permission denied" in said:
            self.assertIn(f"{device} is mounted on /data; on-line resizing required", said)
            self.skipTest("the kernel lets only a process with CAP_SYS_RESOURCE grow a file system that is mounted")
        self.assertRegex(said, r"^\d+\nkept\n$")
        after = int(said.split()[0])
        self.assertEqual((before < 16 << 20, 48 << 20 < after <= 64 << 20), (True, True), (before, after))


if __name__ == "__main__":
    unittest.main()
