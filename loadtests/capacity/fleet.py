"""Reads a fleet file (TOML, such as fleets/million-sessions.toml) into a dict for model.py, and refuses numbers without a meaning.

In [[traffic]], `durable` says that a message is stored, `kept_s` for how long on average, and `online_share` says
which share of the messages finds its first subscriber connected. `connections_max` of a machine stands in place of
`connections_per_machine_max`.
"""

import pathlib
import tomllib

# Keys of each table, and what they must be at least.
FLEET = {"connections": 1, "keep_alive_s": 1, "tls": 0, "persistent": 0, "sessions": 0, "retained_messages": 0,
         "retained_bytes": 0, "zones": 1, "reconnect_within_s": 1}
TRAFFIC = {"publishes_per_s": 0, "subscribers": 0, "qos": 0, "payload_bytes": 0, "durable": 0, "online_share": 0, "kept_s": 0}
MACHINE = {"cores": 1, "memory_gib": 1, "usd_per_hour": 0}


class Invalid(Exception):
    pass


def check(where, table, keys):
    for key, least in keys.items():
        if key not in table:
            raise Invalid(f"{where} lacks {key}")
        if not table[key] >= least:
            raise Invalid(f"{where}: {key} must be at least {least}, not {table[key]}")


def defaults():
    return tomllib.loads(pathlib.Path(__file__).with_name("assumptions.toml").read_text())


def read(path):
    """A fleet of a TOML file. assumptions.toml completes its assumptions, prices and machines."""
    path = pathlib.Path(path)
    fleet = tomllib.loads(path.read_text())
    assumed = defaults()
    for table in ("assumptions", "prices", "machines"):
        fleet[table] = {**assumed[table], **fleet.get(table, {})}
    check("[fleet]", fleet["fleet"], FLEET)
    for flow in fleet.get("traffic", []):
        check("[[traffic]]", flow, TRAFFIC)
        if flow["qos"] > 2 or flow["online_share"] > 1 or (flow["durable"] and flow["qos"] == 0):
            raise Invalid("[[traffic]]: qos is 0 to 2, online_share at most 1, and durable messages are not of QoS 0")
    for part, machine in fleet["machines"].items():
        check(f"[machines.{part}]", machine, MACHINE)
        if "connections_max" in machine:
            check(f"[machines.{part}]", machine, {"connections_max": 1})
    if abs(sum(region["share"] for region in fleet.get("regions", [])) - 1) > 1e-9:
        raise Invalid("the shares of the [[regions]] must add up to 1")
    fleet.setdefault("traffic", [])
    return fleet
