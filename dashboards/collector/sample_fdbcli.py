#!/usr/bin/env python3
"""Answers `fdbcli --exec 'status json'` as a healthy FoundationDB of three processes does, for checks on machines without one.

The fields are those of a 7.1 cluster; the numbers are invented, and counters grow with the clock so that rates are not zero.
"""

import json
import time

GIB = 1 << 30


def process(number, roles, free_bytes):
    return {
        "address": f"10.0.0.{number}:4500",
        "class_type": "unset",
        "cpu": {"usage_cores": 0.2},
        "disk": {"busy": 0.01, "free_bytes": free_bytes, "total_bytes": 100 * GIB},
        "excluded": False,
        "locality": {"machineid": f"m{number}", "processid": f"p{number}", "zoneid": f"z{number}"},
        "machine_id": f"m{number}",
        "memory": {"available_bytes": 8 * GIB, "limit_bytes": 8 * GIB, "used_bytes": GIB},
        "messages": [],
        "roles": [{"id": f"{number}{place}", "role": role} for place, role in enumerate(roles)],
        "run_loop_busy": 0.05,
        "uptime_seconds": 3600.5,
        "version": "7.4.6",
    }


def status(now):
    def counted(per_second):
        return {"counter": int(now * per_second), "hz": float(per_second), "roughness": 0.5}

    return {
        "client": {
            "cluster_file": {"path": "/etc/foundationdb/fdb.cluster", "up_to_date": True},
            "coordinators": {"coordinators": [{"address": f"10.0.0.{number}:4500", "reachable": True} for number in (1, 2, 3)], "quorum_reachable": True},
            "database_status": {"available": True, "healthy": True},
            "messages": [],
            "timestamp": int(now),
        },
        "cluster": {
            "data": {
                "least_operating_space_bytes_storage_server": 20 * GIB,
                "moving_data": {"in_flight_bytes": 0, "in_queue_bytes": 0},
                "state": {"healthy": True, "min_replicas_remaining": 2, "name": "healthy"},
                "total_kv_size_bytes": 10 * GIB,
            },
            "database_available": True,
            "degraded_processes": 0,
            "fault_tolerance": {"max_zone_failures_without_losing_availability": 1, "max_zone_failures_without_losing_data": 1},
            "full_replication": True,
            "layers": {
                "_valid": True,
                "backup": {
                    "instances_running": 3,
                    "last_updated": now,
                    "paused": False,
                    "tags": {
                        "millrace": {
                            "current_container": "blobstore://@s3.eu-central-1.amazonaws.com/millrace?bucket=b&region=eu-central-1",
                            "last_restorable_seconds_behind": 42.5,
                            "last_restorable_version": int(now * 1e6) - 42500000,
                            "mutation_log_bytes_written": int(now * 20000),
                            "range_bytes_written": 10 * GIB,
                            "running_backup": True,
                            "running_backup_is_restorable": True,
                        },
                        "timestamp": now,
                    },
                    "total_workers": 30,
                },
            },
            "latency_probe": {
                "batch_priority_transaction_start_seconds": 0.002,
                "commit_seconds": 0.004,
                "immediate_priority_transaction_start_seconds": 0.0015,
                "read_seconds": 0.0005,
                "transaction_start_seconds": 0.002,
            },
            "processes": {
                "p1": process(1, ["coordinator", "cluster_controller", "storage"], 25 * GIB),
                "p2": process(2, ["coordinator", "master", "grv_proxy", "commit_proxy", "storage"], 80 * GIB),
                "p3": process(3, ["coordinator", "resolver", "log", "storage"], 60 * GIB),
            },
            "recovery_state": {"name": "fully_recovered"},
            "workload": {
                "bytes": {"read": counted(50000), "written": counted(20000)},
                "keys": {"read": counted(900)},
                "operations": {"location_requests": counted(1), "memory_errors": counted(0), "reads": counted(800), "writes": counted(400)},
                "transactions": {"committed": counted(90), "conflicted": counted(1), "started": counted(300)},
            },
        },
    }


if __name__ == "__main__":
    # fdbcli may warn before it answers.
    print("WARNING: Long delay (Ctrl-C to interrupt)")
    print(json.dumps(status(time.time()), indent=2))
