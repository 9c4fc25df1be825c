#!/usr/bin/env python3
"""Shows what NATS servers and FoundationDB say of themselves as Prometheus metrics, for the collector to read.

    status_metrics.py --listen 127.0.0.1:7777 --nats http://127.0.0.1:8222 --nats ... [--fdb /etc/foundationdb/fdb.cluster]

NATS answers /varz with JSON, FoundationDB's `fdbcli --exec 'status json'` does: neither speaks Prometheus' format. Each scrape asks
both again. A server that does not answer has its `up` at 0, and FoundationDB its `available` too, so that an alert sees it; its other
metrics are missing.
"""

import argparse
import http.client
import json
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER_SECONDS_MAX = 5
ANSWER_BYTES_MAX = 32 * 1024 * 1024

# Name, type, help; then for NATS the field of /varz.
NATS = {
    "nats_connections": ("gauge", "Connections of pods.", "connections"),
    "nats_routes": ("gauge", "Connections to other servers of the cluster.", "routes"),
    "nats_remotes": ("gauge", "Other servers of the cluster that are connected.", "remotes"),
    "nats_subscriptions": ("gauge", "Subscriptions.", "subscriptions"),
    "nats_in_messages_total": ("counter", "Messages received.", "in_msgs"),
    "nats_out_messages_total": ("counter", "Messages sent.", "out_msgs"),
    "nats_in_bytes_total": ("counter", "Bytes received.", "in_bytes"),
    "nats_out_bytes_total": ("counter", "Bytes sent.", "out_bytes"),
    "nats_slow_consumers_total": ("counter", "Clients that were cut off because they did not read in time.", "slow_consumers"),
    "nats_resident_memory_bytes": ("gauge", "Resident memory.", "mem"),
    "nats_cpu_ratio": ("gauge", "CPU in use; 1 is one core.", "cpu"),
}
FDB = {
    "foundationdb_up": ("gauge", "1 when the status could be read."),
    "foundationdb_available": ("gauge", "1 while the database takes transactions."),
    "foundationdb_healthy": ("gauge", "1 while all copies of all data are there."),
    "foundationdb_processes": ("gauge", "Processes with a role."),
    "foundationdb_processes_failed": ("gauge", "Processes that are excluded, degraded or say that something is wrong."),
    "foundationdb_coordinators_unreachable": ("gauge", "Coordinators that do not answer."),
    "foundationdb_fault_tolerance": ("gauge", "Zones that may fail at once without a loss of data or of availability."),
    "foundationdb_storage_free_bytes": ("gauge", "Free bytes on the disk of the fullest storage server."),
    "foundationdb_storage_free_ratio": ("gauge", "Free share of the disk of the fullest storage server."),
    "foundationdb_log_free_ratio": ("gauge", "Free share of the disk of the fullest transaction log, which may be another disk."),
    "foundationdb_data_bytes": ("gauge", "Bytes of keys and values, one copy."),
    "foundationdb_backup_running": ("gauge", "1 while a backup runs; 0 also while no backup agent does."),
    "foundationdb_backup_behind_seconds": ("gauge", "Age of the last moment to which the running backup can be restored."),
    "foundationdb_probe_seconds": ("gauge", "The cluster's own measure of a transaction's steps."),
    "foundationdb_operations_total": ("counter", "Operations since the cluster recovered."),
}


def read_nats(url):
    with urllib.request.urlopen(f"{url}/varz", timeout=ANSWER_SECONDS_MAX) as answer:
        varz = json.loads(answer.read(ANSWER_BYTES_MAX))
    # In percent of a core.
    return varz | {"cpu": varz["cpu"] / 100}


def nats_samples(urls, read=read_nats):
    """All servers are asked at once: each may take 5 s, and Prometheus gives the scrape 10 s."""

    def ask(url):
        try:
            return read(url)
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            return None

    samples = []
    with ThreadPoolExecutor(max_workers=max(1, len(urls))) as pool:
        answers = list(pool.map(ask, urls))
    for url, varz in zip(urls, answers):
        samples.append(("nats_up", {"url": url}, int(varz is not None)))
        if varz is not None:
            labels = {"url": url, "server": varz.get("server_name", "")}
            samples += [(name, labels, varz[field]) for name, (_, _, field) in NATS.items() if field in varz]
    return samples


def read_fdb(cluster_file):
    command = ["fdbcli", "-C", cluster_file, "--timeout", str(ANSWER_SECONDS_MAX), "--exec", "status json"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS_MAX + 1, check=True).stdout
    # Warnings may stand before it.
    return json.loads(said[said.index("{") :])


def fdb_samples(cluster_file, read=read_fdb):
    """Fields of FoundationDB 7.4's machine-readable status; each may be missing while the cluster recovers."""
    try:
        status = read(cluster_file)
    except (OSError, ValueError, subprocess.SubprocessError):
        return [("foundationdb_up", {}, 0), ("foundationdb_available", {}, 0)]
    cluster = status.get("cluster", {})
    processes = cluster.get("processes", {}).values()
    roles = {}
    for process in processes:
        for role in process.get("roles", []):
            roles[role["role"]] = roles.get(role["role"], 0) + 1
    failed = sum(bool(process.get("excluded") or process.get("degraded") or process.get("messages")) for process in processes)
    samples = [
        ("foundationdb_up", {}, 1),
        ("foundationdb_available", {}, int(status.get("client", {}).get("database_status", {}).get("available", False))),
        ("foundationdb_healthy", {}, int(cluster.get("data", {}).get("state", {}).get("healthy", False))),
        ("foundationdb_processes_failed", {}, failed),
        *loss_samples(status.get("client", {}), cluster),
        *(("foundationdb_processes", {"role": role}, count) for role, count in sorted(roles.items())),
    ]
    if disk := fullest_disk(processes, "storage"):
        samples.append(("foundationdb_storage_free_bytes", {}, disk["free_bytes"]))
        samples.append(("foundationdb_storage_free_ratio", {}, disk["free_bytes"] / disk["total_bytes"]))
    if disk := fullest_disk(processes, "log"):
        samples.append(("foundationdb_log_free_ratio", {}, disk["free_bytes"] / disk["total_bytes"]))
    samples += backup_samples(cluster.get("layers", {}))
    if (used := cluster.get("data", {}).get("total_kv_size_bytes")) is not None:
        samples.append(("foundationdb_data_bytes", {}, used))
    probe = cluster.get("latency_probe", {})
    for field, value in sorted(probe.items()):
        if field in ("transaction_start_seconds", "read_seconds", "commit_seconds"):
            samples.append(("foundationdb_probe_seconds", {"operation": field.removesuffix("_seconds")}, value))
    workload = cluster.get("workload", {})
    for kind in ("transactions", "operations"):
        for operation, rates in sorted(workload.get(kind, {}).items()):
            if isinstance(rates, dict) and "counter" in rates:
                samples.append(("foundationdb_operations_total", {"operation": f"{kind}: {operation}"}, rates["counter"]))
    return samples


def loss_samples(client, cluster):
    """A process that is gone is not in the status, and the cluster is healthy again once it has copied the data of that process."""
    coordinators = client.get("coordinators", {}).get("coordinators")
    if coordinators is not None:
        yield "foundationdb_coordinators_unreachable", {}, sum(not one.get("reachable") for one in coordinators)
    if tolerance := cluster.get("fault_tolerance"):
        yield "foundationdb_fault_tolerance", {}, min(tolerance.values())


def fullest_disk(processes, role):
    disks = [process.get("disk", {}) for process in processes if any(one["role"] == role for one in process.get("roles", []))]
    return min((disk for disk in disks if disk.get("total_bytes")), key=lambda disk: disk["free_bytes"] / disk["total_bytes"], default=None)


def backup_samples(layers):
    """The backup agents write this part of the status. Its tags are gone two minutes after the last agent, and it is
    not `_valid` while the cluster is not available."""
    if not layers.get("_valid"):
        return []
    # Beside the tags stands the time at which they were written.
    tags = [tag for tag in layers.get("backup", {}).get("tags", {}).values() if isinstance(tag, dict)]
    running = [tag for tag in tags if tag.get("running_backup")]
    behind = [tag["last_restorable_seconds_behind"] for tag in running if "last_restorable_seconds_behind" in tag]
    samples = [("foundationdb_backup_running", {}, int(bool(running)))]
    return samples + ([("foundationdb_backup_behind_seconds", {}, max(behind))] if behind else [])


def text(samples):
    declared = {name: (kind, about) for name, (kind, about, _) in NATS.items()}
    declared |= FDB | {"nats_up": ("gauge", "1 when the server answers.")}
    lines = []
    for name in sorted({name for name, _, _ in samples}):
        kind, about = declared[name]
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        for _, labels, value in (sample for sample in samples if sample[0] == name):
            shown = ",".join(f'{key}="{escaped(label)}"' for key, label in labels.items())
            lines.append(f"{name}{{{shown}}} {value}" if shown else f"{name} {value}")
    return "\n".join(lines) + "\n"


def escaped(label):
    return str(label).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--listen", default="127.0.0.1:7777")
    options.add_argument("--nats", action="append", default=[], metavar="URL")
    options.add_argument("--fdb", metavar="CLUSTER_FILE")
    options = options.parse_args()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            with ThreadPoolExecutor(max_workers=1) as pool:
                of_fdb = pool.submit(fdb_samples, options.fdb) if options.fdb else None
                samples = nats_samples(options.nats) + (of_fdb.result() if of_fdb else [])
            body = text(samples).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    host, _, port = options.listen.rpartition(":")
    ThreadingHTTPServer((host, int(port)), Page).serve_forever()


if __name__ == "__main__":
    main()
