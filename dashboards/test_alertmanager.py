"""Which alerts the real Alertmanager keeps from people with prometheus/alertmanager.yml: python3 -m unittest discover dashboards."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
PATH = os.environ.get("PATH", "") + ":/usr/sbin"
PROGRAM = shutil.which("prometheus-alertmanager", path=PATH) or shutil.which("alertmanager", path=PATH)
WAIT_S = 60


def alert(name, severity, **labels):
    return {"alertname": name, "severity": severity, "region": "eu", **labels}


@unittest.skipUnless(PROGRAM, "Alertmanager is not installed: apt-get install prometheus-alertmanager")
class Inhibition(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        cls.url = f"http://{address}/api/v2"
        log = open(Path(folder.name, "log"), "w")
        cls.addClassCleanup(log.close)
        server = subprocess.Popen(
            [PROGRAM, f"--config.file={HERE / 'prometheus/alertmanager.yml'}", f"--storage.path={folder.name}/data",
             "--cluster.listen-address=", f"--web.listen-address={address}"], stdout=log, stderr=log)
        cls.addClassCleanup(server.wait)
        cls.addClassCleanup(server.terminate)
        cls.until(lambda: cls.call("/status"))

    @classmethod
    def call(cls, path, body=None):
        request = urllib.request.Request(cls.url + path, None if body is None else json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return json.loads(answer.read() or "true")
        except OSError:
            return None

    @classmethod
    def until(cls, condition):
        end = time.monotonic() + WAIT_S
        while not (found := condition()):
            if time.monotonic() > end:
                raise TimeoutError("Alertmanager does not do this in time")
            time.sleep(0.05)
        return found

    def muted(self, *alerts):
        """Sends alerts of a region of this test, and returns those that no receiver gets."""
        region = self.id().rsplit(".")[-1]
        # A pair that is always muted: once it is, Alertmanager has seen the alerts before it as well.
        last = [alert("Last", severity, instance="x") for severity in ("page", "ticket")]
        sent = [it | {"region": region} for it in (*alerts, *last)]
        self.assertTrue(self.call("/alerts", [{"labels": it} for it in sent]))

        def seen():
            found = [it for it in self.call("/alerts") or [] if it["labels"]["region"] == region and it["status"]["inhibitedBy"]]
            muted = [{name: text for name, text in it["labels"].items() if name != "region"} for it in found]
            return muted if any(it["alertname"] == "Last" for it in muted) else None

        return [it for it in self.until(seen) if it["alertname"] != "Last"]

    def assert_mutes(self, page, ticket):
        ticket = {name: text for name, text in ticket.items() if name != "region"}
        self.assertEqual(self.muted(page, ticket), [ticket])

    def test_a_page_mutes_the_ticket_about_the_same_disk(self):
        disk = {"instance": "g-1", "mountpoint": "/"}
        self.assert_mutes(alert("DiskNearlyFull", "page", **disk), alert("DiskNearlyFull", "ticket", **disk))

    def test_a_page_mutes_the_ticket_of_the_same_objective(self):
        self.assert_mutes(alert("CommitsLate", "page", window="1h"), alert("CommitsLate", "ticket", window="3d"))

    def test_a_page_mutes_the_ticket_of_the_same_gateway_with_the_same_cluster(self):
        gateway = {"instance": "g-1", "envoy_cluster_name": "edge"}
        self.assert_mutes(alert("GatewayWithoutPods", "page", **gateway), alert("GatewayWithoutPods", "ticket", **gateway))

    def test_a_page_mutes_no_ticket_about_another_machine_disk_or_certificate(self):
        pages = [
            alert("DiskNearlyFull", "page", instance="g-1", mountpoint="/"),
            alert("MachineCertificateExpires", "page", instance="e-1", filepath="/etc/millrace/secrets/tls.crt"),
            alert("GatewayWithoutPods", "page", instance="g-1"),
        ]
        tickets = [
            alert("DiskNearlyFull", "ticket", instance="foundationdb-1", mountpoint="/var/lib/foundationdb/log"),
            alert("DiskNearlyFull", "ticket", instance="g-1", mountpoint="/var"),
            alert("MachineCertificateExpires", "ticket", instance="e-2", filepath="/etc/millrace/secrets/tls.crt"),
            alert("MachineCertificateExpires", "ticket", instance="e-1", filepath="/etc/millrace/secrets/ca.crt"),
            alert("GatewayWithoutPods", "ticket", instance="g-2"),
        ]
        self.assertEqual(self.muted(*pages, *tickets), [])

    def test_without_telemetry_nothing_but_the_watchdog_is_heard(self):
        lost, watchdog = alert("TelemetryMissing", "page", job="region"), alert("Watchdog", "none")
        down = alert("PodDown", "page", instance="e-1")
        self.assertEqual([it["alertname"] for it in self.muted(lost, watchdog, down)], ["PodDown"])


if __name__ == "__main__":
    unittest.main()
