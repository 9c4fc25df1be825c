"""python3 terraform/modules/machine/boot/boot_test.py"""

import ast
import http.server
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse
from unittest import mock

CONFIG = '{"region": "eu-central-1", "endpoint": null}'
with mock.patch.object(pathlib.Path, "read_text", return_value=CONFIG):
    import aws
    import boot

ROMFS = b"-rom1fs-"


@unittest.skipUnless(shutil.which("blkid") and shutil.which("mkfs.ext4"), "blkid or mkfs.ext4 is not installed")
class Disks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.disk = pathlib.Path(self.folder.name, "disk")
        with self.disk.open("wb") as file:
            file.truncate(8 << 20)

    def tearDown(self):
        self.folder.cleanup()

    def format(self):
        subprocess.run(["mkfs.ext4", "-q", str(self.disk)], check=True)

    def test_a_new_disk_is_empty(self):
        self.assertTrue(boot.is_empty(self.disk))

    def test_a_disk_with_data_is_not_empty(self):
        self.format()
        self.assertFalse(boot.is_empty(self.disk))

    def test_a_disk_with_two_signatures_is_left_to_a_person(self):
        self.format()
        with self.disk.open("r+b") as file:
            file.write(ROMFS)
        with self.assertRaisesRegex(LookupError, "a person must look at this disk"):
            boot.is_empty(self.disk)

    def test_a_disk_that_cannot_be_read_is_not_formatted(self):
        self.disk.unlink()
        with self.assertRaises(OSError):
            boot.is_empty(self.disk)


@unittest.skipUnless(os.geteuid() == 0, "only root gives files away")
class Owners(unittest.TestCase):
    def test_a_disk_of_a_machine_before_belongs_to_the_user_whatever_its_number_was(self):
        user = pwd.getpwnam("daemon")
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as other:
            file, link = pathlib.Path(folder, "data/wal"), pathlib.Path(folder, "data/link")
            file.parent.mkdir()
            file.touch()
            link.symlink_to(other.name)
            for path in (file.parent, file):
                os.chown(path, 4999, 4999)
            boot.own(folder, "daemon")
            for path in (folder, file.parent, file, link):
                self.assertEqual((os.lstat(path).st_uid, os.lstat(path).st_gid), (user.pw_uid, user.pw_gid), path)
            self.assertEqual(os.stat(other.name).st_uid, 0)

    def test_a_missing_folder_is_made(self):
        with tempfile.TemporaryDirectory() as folder:
            boot.own(f"{folder}/new/data", "daemon")
            self.assertEqual(os.stat(f"{folder}/new/data").st_uid, pwd.getpwnam("daemon").pw_uid)


class Secrets(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "tls.key")
        chown = mock.patch.object(os, "fchown")
        chown.start()
        self.addCleanup(chown.stop)

    def test_a_secret_file_is_never_open_to_others(self):
        self.path.write_text("old")
        boot.put(self.path, "new", "nobody")
        self.assertEqual((self.path.read_text(), self.path.stat().st_mode & 0o777), ("new", 0o400))

    def test_the_owner_of_the_folder_gets_no_other_file_by_a_link(self):
        """/etc/foundationdb belongs to the database's user, and root writes the backup's credentials there."""
        other = self.path.with_name("shadow")
        other.write_text("root's")
        unlink = pathlib.Path.unlink

        def plant(path, **arguments):
            unlink(path, **arguments)
            path.symlink_to(other)

        with mock.patch.object(pathlib.Path, "unlink", plant), mock.patch.object(shutil, "chown") as chown:
            with self.assertRaises(FileExistsError):
                boot.put(self.path, "new", "nobody")
        self.assertEqual((other.read_text(), chown.called), ("root's", False))


class Certificates(unittest.TestCase):
    SECRET = {"name": "edge", "owner": "nobody"}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for patch in (
            mock.patch.object(os, "fchown"), mock.patch.object(boot, "METRICS", self.folder / "state/metrics"),
            mock.patch.dict(boot.CONFIG, {"secret": self.SECRET | {"directory": str(self.folder)}}),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def certificate(self, days):
        """A certificate and the moment at which it ends."""
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "/dev/null", "-subj", "/CN=edge", "-days", str(days)]
        pem = subprocess.run(made, capture_output=True, text=True, check=True).stdout
        return pem, int(time.time()) + days * 86400

    def fetch(self, values):
        with mock.patch.object(boot.AWS, "secret", return_value=values):
            boot.secrets()
        return (self.folder / "state/metrics/certificates.prom").read_text()

    def test_the_first_end_of_each_file_is_a_metric(self):
        early, late = self.certificate(10), self.certificate(800)
        shown = self.fetch({"tls.crt": late[0], "ca.crt": late[0] + early[0], "tls.key": "-----BEGIN PRIVATE KEY-----", "password": "word"})
        ends = {line.split('"')[1]: int(line.split()[-1]) for line in shown.splitlines() if not line.startswith("#")}
        self.assertEqual(sorted(ends), [f"{self.folder}/ca.crt", f"{self.folder}/tls.crt"])
        for name, (_, expected) in {"ca.crt": early, "tls.crt": late}.items():
            self.assertAlmostEqual(ends[f"{self.folder}/{name}"], expected, delta=60)
        self.assertEqual((self.folder / "state/metrics/certificates.prom").stat().st_mode & 0o777, 0o644)

    def test_a_machine_without_certificates_has_the_folder(self):
        """The node exporter reports a missing folder as an error, which is an alert."""
        old = os.umask(0o077)
        self.addCleanup(os.umask, old)
        boot.make_metrics()
        self.assertEqual([path.stat().st_mode & 0o777 for path in (boot.METRICS.parent, boot.METRICS)], [0o755, 0o755])

    def test_a_new_certificate_replaces_the_metric(self):
        self.fetch({"tls.crt": self.certificate(10)[0]})
        shown = self.fetch({"tls.crt": self.certificate(800)[0]})
        self.assertGreater(int(shown.split()[-1]), time.time() + 700 * 86400)

    def test_secrets_arrive_although_a_certificate_cannot_be_read(self):
        broken = "-----BEGIN CERTIFICATE-----\nword\n-----END CERTIFICATE-----\n"
        with mock.patch.object(boot.AWS, "secret", return_value={"tls.crt": broken}), mock.patch.object(boot, "say") as say:
            self.assertTrue(boot.secrets())
        self.assertIn("nobody watches when the certificates end", say.call_args[0][0])
        self.assertEqual((self.folder / "tls.crt").read_text(), broken)


class Retries(unittest.TestCase):
    def test_a_package_is_installed_when_another_installation_has_ended(self):
        """dpkg fails while Debian's own upgrades hold its lock."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(boot.time, "sleep"):
            lock = pathlib.Path(folder, "lock")
            lock.touch()
            tries = []

            def install(package):
                tries.append(package)
                if len(tries) == 2:
                    lock.unlink()
                boot.run("test", "!", "-e", str(lock))

            boot.until_it_works(install, "millrace.deb")
            self.assertEqual(len(tries), 2)


class Services(http.server.BaseHTTPRequestHandler):
    """The metadata service, Auto Scaling, and the machine's own program."""

    NO_WAIT = b"<Message>No active Lifecycle Action found with instance ID i-7</Message>"
    ROLE = "/latest/meta-data/iam/security-credentials/"
    METADATA = {
        ROLE: b"edge",
        f"{ROLE}edge": b'{"AccessKeyId": "a", "SecretAccessKey": "s", "Token": "t"}',
        "/latest/meta-data/instance-id": b"i-7",
    }

    def do_PUT(self):
        self.answer(200, b"token")

    def do_GET(self):
        if self.path == "/healthz":
            self.answer(self.server.health.pop(0))
        elif self.path in self.METADATA:
            self.answer(200, self.METADATA[self.path])
        else:
            self.server.calls.append(dict(urllib.parse.parse_qsl(self.path.partition("?")[2])))
            self.answer(*self.server.answers.pop(0))

    def answer(self, code, body=b""):
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Serves(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Services)
        self.server.calls = []
        url = f"http://127.0.0.1:{self.server.server_port}"
        self.ready = {"group": "millrace-eu-edge", "hook": "serves", "url": f"{url}/healthz"}
        for patch in (
            mock.patch.object(aws, "METADATA", url),
            mock.patch.object(boot, "AWS", aws.Aws("eu-central-1", url)),
            mock.patch.object(boot.time, "sleep"),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def after(self, health, answers):
        self.server.health, self.server.answers = health, answers
        boot.until_it_works(boot.serves, self.ready)
        return self.server.calls

    def test_auto_scaling_hears_of_a_machine_when_its_program_serves(self):
        calls = self.after([503, 503, 200], [(200, b"")])
        self.assertEqual(len(calls), 1)
        expected = {
            "Action": "CompleteLifecycleAction",
            "AutoScalingGroupName": "millrace-eu-edge",
            "LifecycleHookName": "serves",
            "LifecycleActionResult": "CONTINUE",
            "InstanceId": "i-7",
        }
        self.assertEqual(calls[0], calls[0] | expected)

    def test_a_refused_call_is_made_again(self):
        self.assertEqual(len(self.after([200, 200], [(500, b""), (200, b"")])), 2)
        self.server.calls.clear()
        self.assertEqual(len(self.after([200, 200], [(400, b"AccessDenied"), (200, b"")])), 2)

    def test_a_machine_that_auto_scaling_does_not_wait_for_goes_on(self):
        self.assertEqual(len(self.after([200], [(400, Services.NO_WAIT)])), 1)


class UserData(unittest.TestCase):
    def test_a_program_without_comments_is_the_same(self):
        modules = pathlib.Path(__file__).parents[2]
        for module, paths in {
            "machine": [modules / "machine/boot/aws.py", modules / "machine/boot/boot.py"],
            "telemetry": [modules.parents[1] / "dashboards/collector/status_metrics.py"],
        }.items():
            text = (modules / module / "main.tf").read_text()
            patterns = [it.replace('\\"', '"') for it in re.findall(r'"/(\(\?ms?\)\^ [*+](?:#|\\"{1}).*?)/", ""', text)]
            comments, documentation = [it for it in patterns if "runbook" not in it][-2:]
            for path in paths:
                program = path.read_text()
                short = re.sub(documentation, "", re.sub(comments, "", program))
                self.assertLess(len(short), len(program))
                self.assertEqual(self.code(short), self.code(program), path)

    def code(self, text):
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
                del node.body[0]
        return ast.dump(tree)


if __name__ == "__main__":
    unittest.main()
