"""What root writes into folders that belong to Envoy and to FoundationDB: whoever takes over one of these programs may put links
there. `nobody` stands for their users. Needs root.

    python3 terraform/checks/folders_test.py
"""

import os
import pathlib
import pwd
import shlex
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
NOBODY = pwd.getpwnam("nobody")


def as_nobody(text, user):
    """The script with another user for setpriv."""
    for flag, number in [("--reuid", NOBODY.pw_uid), ("--regid", NOBODY.pw_gid)]:
        text = text.replace(f"{flag}={user}", f"{flag}={number}")
    return text


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)
        self.theirs = self.folder / "theirs"
        self.fresh()

    def fresh(self):
        shutil.rmtree(self.theirs, ignore_errors=True)
        self.theirs.mkdir()
        os.chown(self.theirs, NOBODY.pw_uid, NOBODY.pw_gid)

    def assert_links_lead_nowhere(self, names, run):
        for name in names:
            with self.subTest(name):
                others = self.folder / "shadow"
                others.write_text("root's")
                (self.theirs / name).symlink_to(others)
                run()
                self.assertEqual((others.read_text(), others.stat().st_uid), ("root's", 0))
                self.fresh()


@unittest.skipUnless(os.getuid() == 0 and shutil.which("setpriv"), "root and setpriv are needed")
class Pods(Folder):
    def setUp(self):
        super().setUp()
        self.roots = self.folder / "root"
        self.roots.mkdir()
        shutil.copy(ROOT / "gateway/gateway.sh", self.folder)
        self.list = self.program("list", "#!/bin/sh\necho 10.0.0.7 10.0.0.8\n")
        script = (ROOT / "terraform/modules/gateway/files/gateway-pods.sh").read_text()
        for old, new in [
            ("/usr/local/sbin/millrace-boot", str(self.list)),
            ("/usr/local/lib/millrace/gateway.sh", str(self.folder / "gateway.sh")),
        ]:
            assert old in script, f"gateway-pods.sh has no {old}"
            script = script.replace(old, new)
        self.script = self.program("script", as_nobody(script, "envoy"))

    def program(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def run_script(self):
        variables = {"PODS_TAGS": "a=b", "PODS_PORTS": "1884/8080", "GATEWAY_DIR": str(self.theirs), "RUNTIME_DIRECTORY": str(self.roots)}
        return subprocess.run(["bash", self.script], env=os.environ | variables, capture_output=True, text=True)

    def test_pods_are_written_for_envoy_and_again_when_they_are_missing(self):
        pods = self.theirs / "pods.yaml"
        for _ in range(2):
            answer = self.run_script()
            self.assertEqual((answer.returncode, answer.stdout), (0, "pods: 10.0.0.7:1884/8080 10.0.0.8:1884/8080\n"), answer.stderr)
            self.assertIn("10.0.0.8", pods.read_text())
            self.assertEqual(pods.stat().st_uid, NOBODY.pw_uid)
            answer = self.run_script()
            self.assertEqual((answer.returncode, answer.stdout), (0, ""), "an unchanged list is written again")
            pods.unlink()

    def test_a_gateway_that_was_taken_over_gets_no_file_of_root_by_a_link(self):
        self.assert_links_lead_nowhere(["pods.yaml.new", "pods.yaml", "pods.list"], self.run_script)


@unittest.skipUnless(os.getuid() == 0 and shutil.which("setpriv"), "root and setpriv are needed")
class Authorities(Folder):
    def setUp(self):
        super().setUp()
        unit = (ROOT / "terraform/modules/foundationdb/files/foundationdb.conf").read_text()
        (command,) = [line.removeprefix("ExecStartPre=-") for line in unit.splitlines() if line.startswith("ExecStartPre=")]
        command = as_nobody(command, "foundationdb").replace("/etc/foundationdb", str(self.theirs))
        self.public = self.folder / "ca-certificates.crt"
        self.public.write_text("public\n")
        self.command = shlex.split(command.replace("/etc/ssl/certs/ca-certificates.crt", str(self.public)))

    def run_command(self):
        (self.theirs / "tls").mkdir()
        (self.theirs / "tls/ca.crt").write_text("own\n")
        return subprocess.run(self.command, capture_output=True, text=True)

    def test_both_authorities_are_in_one_file(self):
        self.assertEqual(self.run_command().returncode, 0)
        self.assertEqual((self.theirs / "authorities.crt").read_text(), "own\npublic\n")

    def test_a_database_that_was_taken_over_gets_no_file_of_root_by_a_link(self):
        self.assert_links_lead_nowhere(["authorities.crt"], self.run_command)


if __name__ == "__main__":
    unittest.main()
