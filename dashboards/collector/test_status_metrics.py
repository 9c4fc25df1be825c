"""status_metrics.py on answers as NATS and FoundationDB give them: python3 -m unittest discover dashboards/collector."""

import http.client
import os
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

from status_metrics import FDB, backup_samples, fdb_samples, nats_samples, text

STATUS = {
    "client": {"database_status": {"available": True, "healthy": True}},
    "cluster": {
        "data": {"state": {"healthy": True}, "total_kv_size_bytes": 1000},
        "latency_probe": {"commit_seconds": 0.004, "read_seconds": 0.001, "transaction_start_seconds": 0.002},
        "workload": {
            "transactions": {"committed": {"counter": 7, "hz": 1, "roughness": 0}},
            "operations": {"reads": {"counter": 9, "hz": 1, "roughness": 0}},
        },
        "processes": {
            "a": {"roles": [{"role": "storage"}], "disk": {"free_bytes": 25, "total_bytes": 100}},
            "b": {"roles": [{"role": "storage"}], "disk": {"free_bytes": 80, "total_bytes": 100}, "degraded": True},
            "c": {"roles": [{"role": "log"}], "disk": {"free_bytes": 4, "total_bytes": 100}},
            "d": {"roles": [{"role": "log"}]},
        },
    },
}


def refuse(_):
    raise OSError("connection refused")


class Status(unittest.TestCase):
    def test_nats_says_what_it_has_and_a_server_that_is_gone_is_down(self):
        varz = {"server_name": 'n"1', "connections": 3, "in_msgs": 5, "cpu": 0.5}
        page = text(nats_samples(["http://a", "http://b"], lambda url: varz if url == "http://a" else refuse(url)))
        for line in [
            'nats_up{url="http://a"} 1',
            'nats_up{url="http://b"} 0',
            'nats_connections{url="http://a",server="n\\"1"} 3',
            "# TYPE nats_in_messages_total counter",
        ]:
            self.assertIn(line, page.splitlines())

    def test_servers_that_do_not_answer_take_their_time_together(self):
        """One after the other they would take longer than a scrape may: NatsNodeDown would be silent when two are gone."""
        all_asked = threading.Barrier(3)

        def read(_):
            try:
                all_asked.wait(timeout=10)
            except threading.BrokenBarrierError:
                return {}
            raise TimeoutError

        self.assertEqual([value for _, _, value in nats_samples(["http://a", "http://b", "http://c"], read)], [0, 0, 0])

    def test_a_server_that_ends_in_the_middle_of_its_answer_hides_no_other(self):
        def read(url):
            if url == "http://a":
                raise http.client.IncompleteRead(b"{")
            return {"server_name": "b"}

        self.assertEqual([value for _, _, value in nats_samples(["http://a", "http://b"], read)], [0, 1])

    def test_foundationdb_has_the_fullest_disk_and_the_roles(self):
        lines = text(fdb_samples("fdb.cluster", lambda _: STATUS)).splitlines()
        for line in [
            "foundationdb_available 1",
            "foundationdb_healthy 1",
            'foundationdb_processes{role="storage"} 2',
            "foundationdb_processes_failed 1",
            "foundationdb_storage_free_ratio 0.25",
            "foundationdb_log_free_ratio 0.04",
            'foundationdb_probe_seconds{operation="commit"} 0.004',
            'foundationdb_operations_total{operation="operations: reads"} 9',
        ]:
            self.assertIn(line, lines)

    def test_a_machine_that_is_gone_shows_although_all_copies_are_there_again(self):
        """As a cluster of three machines with two copies answers some seconds after one of them was killed."""
        coordinators = [{"address": f"10.0.0.{number}:4500", "reachable": number > 1} for number in (1, 2, 3)]
        tolerance = {"max_zone_failures_without_losing_availability": 0, "max_zone_failures_without_losing_data": 1}
        status = {
            "client": {"coordinators": {"coordinators": coordinators, "quorum_reachable": True}},
            "cluster": {"data": {"state": {"healthy": True}}, "fault_tolerance": tolerance},
        }
        lines = text(fdb_samples("fdb.cluster", lambda _: status)).splitlines()
        for line in ["foundationdb_healthy 1", "foundationdb_coordinators_unreachable 1", "foundationdb_fault_tolerance 0"]:
            self.assertIn(line, lines)

    def test_every_metric_of_foundationdb_comes_from_what_fdbcli_prints(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "fdbcli").symlink_to(Path(__file__).resolve().with_name("sample_fdbcli.py"))
            with mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}):
                samples = fdb_samples("fdb.cluster")
        self.assertEqual({name for name, _, _ in samples}, set(FDB))
        self.assertIn(("foundationdb_storage_free_ratio", {}, 0.25), samples)
        self.assertIn(("foundationdb_processes", {"role": "storage"}, 3), samples)

    def test_a_backup_that_stopped_or_whose_agents_are_gone_does_not_run(self):
        runs = {"running_backup": True, "last_restorable_seconds_behind": 42.5}
        tags = {"millrace": runs, "timestamp": 1.5}
        for layers, expected in [
            ({"_valid": True, "backup": {"tags": tags}}, [1, 42.5]),
            # The first snapshot is not complete.
            ({"_valid": True, "backup": {"tags": {"millrace": {"running_backup": True}}}}, [1]),
            ({"_valid": True, "backup": {"tags": {"millrace": runs | {"running_backup": False}}}}, [0]),
            ({"_valid": True}, [0]),
            # Nobody can say while the cluster is not available.
            ({"_valid": False, "_error": "timed_out"}, []),
            ({}, []),
        ]:
            self.assertEqual([value for _, _, value in backup_samples(layers)], expected, layers)

    def test_a_cluster_that_does_not_answer_is_not_available(self):
        self.assertIn("foundationdb_available 0", text(fdb_samples("fdb.cluster", refuse)).splitlines())
        lines = text(fdb_samples("fdb.cluster", lambda _: {})).splitlines()
        self.assertEqual([line for line in lines if not line.startswith("#")][:2], ["foundationdb_available 0", "foundationdb_healthy 0"])


if __name__ == "__main__":
    unittest.main()
