"""observe.py links the runbooks of alerts: python3 -m unittest discover dashboards."""

import re
import socket
import tempfile
import unittest
from pathlib import Path
from unittest.mock import patch

from observe import FOUNDATIONDB, HERE, HOST, PORTS, Observe, linked

RULES = [path.read_text() for path in (HERE / "prometheus/rules").glob("*.yaml")]


class Runbooks(unittest.TestCase):
    def observe(self, **options):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with socket.socket() as free:
            free.bind((HOST, 0))
            up = free.getsockname()[1] - PORTS["runbooks"]
        observe = Observe(folder.name, "/nonexistent", up, **options)
        self.addCleanup(observe.stop)
        observe.prepare()
        observe.start_runbooks()
        return observe

    def written(self, observe):
        return "".join(path.read_text() for path in (observe.folder / "rules").glob("*.yaml"))

    def test_each_alert_links_a_page_that_opens_and_names_it(self):
        observe = self.observe()
        found = re.findall(r"- alert: (\w+)\n.*?runbook_url: (\S+)\n", self.written(observe), re.S)
        self.assertEqual(len(found), "".join(RULES).count("- alert: "))
        for alert, url in found:
            self.assertIn(alert, observe.runbook(url))

    def test_a_page_that_is_not_there_is_an_error(self):
        observe = self.observe()
        with self.assertRaisesRegex(ValueError, "nothing-like-it.md does not open"):
            observe.runbook(f"{observe.runbooks}/nothing-like-it.md")
        with self.assertRaisesRegex(ValueError, "runbooks/pod-down.md does not open"):
            observe.runbook("runbooks/pod-down.md")

    def test_an_operator_may_keep_the_pages_elsewhere(self):
        observe = self.observe(runbooks="https://git.example.org/runbooks/")
        self.assertIsNone(observe.pages)
        urls = set(re.findall(r"runbook_url: (\S+)", self.written(observe)))
        self.assertIn("https://git.example.org/runbooks/pod-down.md", urls)
        self.assertTrue(all(url.startswith("https://git.example.org/runbooks/") for url in urls))

    def test_nothing_else_of_the_rules_changes(self):
        for rules in RULES:
            self.assertEqual(linked(rules, "https://a").replace("https://a/", "runbooks/"), rules)


class Status(unittest.TestCase):
    """Which NATS servers and which FoundationDB the status process asks."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.observe = Observe(Path(folder.name) / "observe", "/nonexistent")
        self.observe.cluster = None
        self.observe.targets.mkdir(parents=True)
        self.observe.stack = Path(folder.name) / "stack"
        self.cluster = self.observe.stack / "fdb/fdb.cluster"
        self.cluster.parent.mkdir(parents=True)

    def look(self, *ports):
        """The command of the status process that `look` starts while these ports listen, if it starts one."""
        commands = []
        with patch("observe.is_listening", lambda port: port in ports), patch.object(
            self.observe, "spawn", lambda _, *command, **__: commands.append([str(part) for part in command])
        ):
            self.observe.look()
        return commands

    def test_the_foundationdb_of_a_stack_is_asked_as_soon_as_it_is_there(self):
        self.assertEqual(self.look(), [])
        [command] = self.look(8222)
        self.assertNotIn("--fdb", command)
        self.assertEqual(self.look(8222), [], "nothing new")
        self.cluster.touch()
        self.assertEqual(self.look(8222), [], "a file of an earlier run")
        [command] = self.look(8222, FOUNDATIONDB)
        self.assertEqual(command[-2:], ["--fdb", str(self.cluster)])
        self.assertEqual(self.look(8222, FOUNDATIONDB), [], "nothing new")


if __name__ == "__main__":
    unittest.main()
