"""Files that root writes into folders of Envoy and FoundationDB: somebody who has taken over one of these programs may put links
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
        self.remake()

    def remake(self):
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
                self.remake()


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
        commands = [line.removeprefix("ExecStartPre=").removeprefix("-") for line in unit.splitlines() if line.startswith("ExecStartPre=")]
        public = self.folder / "ca-certificates.crt"
        public.write_text("public\n")
        self.commands = [
            shlex.split(
                as_nobody(command, "foundationdb")
                .replace("root:foundationdb", f"0:{NOBODY.pw_gid}")
                .replace("/etc/foundationdb", str(self.theirs))
                .replace("/etc/ssl/certs/ca-certificates.crt", str(public))
            )
            for command in commands
        ]

    def start(self):
        """As systemd starts the database, on a machine that cloud-init has written."""
        (self.theirs / "tls").mkdir()
        (self.theirs / "tls/ca.crt").write_text("own\n")
        (self.theirs / "foundationdb.conf").write_text("user = foundationdb\n")
        cluster = self.theirs / "fdb.cluster"
        cluster.write_text("old\n")
        os.chown(cluster, NOBODY.pw_uid, NOBODY.pw_gid)
        return [subprocess.run(command, capture_output=True, text=True).returncode for command in self.commands]

    def as_database(self, command):
        user = ["setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups"]
        return subprocess.run([*user, "sh", "-c", command], cwd=self.theirs, capture_output=True).returncode

    def test_both_authorities_are_in_one_file(self):
        self.assertEqual(self.start(), [0] * len(self.commands))
        self.assertEqual((self.theirs / "authorities.crt").read_text(), "own\npublic\n")

    def test_a_database_that_was_taken_over_gets_no_file_of_root_by_a_link(self):
        self.assert_links_lead_nowhere(["authorities.crt"], self.start)

    def test_a_database_that_was_taken_over_does_not_choose_what_fdbmonitor_starts_as_root(self):
        self.start()
        for command in ["rm -f foundationdb.conf", "mv foundationdb.conf x", "echo x >y; mv -f y foundationdb.conf", "mv tls x"]:
            self.assertNotEqual(self.as_database(command), 0, command)
        self.assertEqual((self.theirs / "foundationdb.conf").read_text(), "user = foundationdb\n")

    def test_the_database_writes_its_cluster_file_as_before(self):
        self.start()
        self.assertEqual(self.as_database("echo new >fdb.cluster.tmp && mv fdb.cluster.tmp fdb.cluster"), 0)
        self.assertEqual((self.theirs / "fdb.cluster").read_text(), "new\n")


if __name__ == "__main__":
    unittest.main()
