"""From costs and a fleet to machines and money. Every formula stands here; assumptions come with the fleet."""

import math

HOURS_PER_MONTH = 730
SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600
PARTS = ("edge", "gateway", "store", "fabric")


def demand(costs, fleet, share=1.0):
    """CPU (cores) and memory, disk and network (bytes) that a share of a fleet needs of each part, with nothing to spare."""
    f, a = fleet["fleet"], fleet["assumptions"]
    connections = f["connections"] * share
    pings = connections / f["keep_alive_s"]
    storm = connections / f["zones"] / f["reconnect_within_s"]
    edge_us = pings * costs.ping_us + storm * (costs.connect_us + (costs.session_back_us if f["persistent"] else 0))
    gateway_us = pings * costs.gateway_ping_us + storm * (costs.gateway_tls_connect_us if f["tls"] else costs.gateway_qos1_us)
    sent = received = stored = crossing = egress = disk = 0.0
    for flow in fleet["traffic"]:
        publishes = flow["publishes_per_s"] * share
        deliveries = publishes * flow["subscribers"]
        edge_us += publishes * message_us(costs, flow)
        pair = costs.gateway_qos1_us if flow["qos"] else costs.gateway_qos0_us
        # The gateway sees a message twice: half of what a pair costs it is the publisher's, half each subscriber's.
        gateway_us += pair / 2 * (publishes + deliveries)
        sent, received = sent + publishes, received + deliveries
        stored += publishes if flow["durable"] else 0
        if flow["durable"]:
            disk += publishes * flow["kept_s"] * (flow["payload_bytes"] + costs.stored_overhead_bytes)
        crossing += publishes * a["share_of_messages_between_pods"]
        egress += deliveries * (flow["payload_bytes"] + a["overhead_bytes_per_message"])
    sessions = (f["sessions"] if f["persistent"] else 0) * share
    retained = f["retained_messages"] * share * f["retained_bytes"]
    gateway_bytes = costs.gateway_tls_bytes if f["tls"] else costs.gateway_plain_bytes
    return {
        "edge": {"cores": edge_us / 1e6, "connections": connections,
                 "memory_bytes": connections * (costs.connection_bytes + costs.socket_bytes)},
        "gateway": {"cores": gateway_us / 1e6, "connections": connections,
                    # One socket to the client, one to the edge.
                    "memory_bytes": connections * (gateway_bytes + 2 * costs.socket_bytes)},
        "store": {
            "cores": stored * a["store_writes_per_message"] * a["store_copies"] / a["store_writes_per_core_s"],
            "memory_bytes": 0.0,
            "disk_bytes": (disk + sessions * costs.session_bytes + retained) * a["store_copies"],
        },
        "fabric": {"cores": crossing / a["fabric_messages_per_core_s"], "memory_bytes": 0.0},
        "publishes_per_s": sent, "deliveries_per_s": received, "egress_bytes_per_s": egress,
    }


def message_us(costs, flow):
    """Edge CPU for one publish and all its deliveries."""
    subscribers = flow["subscribers"]
    payload = costs.payload_byte_us * flow["payload_bytes"] * (1 + subscribers) / 2
    acknowledgement = (costs.qos1_us - costs.qos0_us) / 2 if flow["qos"] else 0
    if flow["durable"]:
        online = flow["online_share"]
        first = online * costs.online_us + (1 - online) * (costs.stored_us + costs.drained_us)
    else:
        first = costs.qos1_us if flow["qos"] else costs.qos0_us
    if subscribers == 0:
        return first / 2 + payload
    return first + (subscribers - 1) * (costs.further_us + acknowledgement) + payload


def machines(needed, machine, a, zones):
    """How many machines carry this with one zone lost, and which resource says so."""
    wanted = {
        "cpu": needed["cores"] / (machine["cores"] * a["cores_per_measured_core"] * a["cpu_use_max"]),
        "memory": needed["memory_bytes"] / (machine["memory_gib"] * 2**30 * a["memory_use_max"]),
    }
    if needed.get("connections"):
        wanted["connections"] = needed["connections"] / machine.get("connections_max", a["connections_per_machine_max"])
    if needed.get("disk_bytes"):
        wanted["disk"] = needed["disk_bytes"] / (machine["disk_gib"] * 2**30 * a["disk_use_max"])
    bound = max(wanted, key=wanted.get)
    if not wanted[bound]:
        return 0, "nothing"
    # When a zone is gone, the other zones must carry the whole load.
    left = math.ceil(wanted[bound] / (zones - 1)) if zones > 1 else math.ceil(wanted[bound])
    return left * zones, bound


def plan(costs, fleet):
    """Machines and monthly cost of a fleet, by region: what --json prints."""
    a, prices = fleet["assumptions"], fleet["prices"]
    regions, total = {}, 0.0
    for region in fleet["regions"]:
        needed = demand(costs, fleet, region["share"])
        sizes, monthly = {}, {}
        for part in PARTS:
            machine = fleet["machines"][part]
            count, bound = machines(needed[part], machine, a, fleet["fleet"]["zones"])
            sizes[part] = {
                "machines": count, "type": machine["type"], "cores": machine["cores"], "memory_gib": machine["memory_gib"],
                "disk_gib": machine["disk_gib"] if needed[part].get("disk_bytes") else 0, "bound_by": bound,
                "cores_needed": round(needed[part]["cores"], 2),
                "memory_gib_needed": round(needed[part]["memory_bytes"] / 2**30, 2),
            }
            monthly[part] = count * (machine["usd_per_hour"] * HOURS_PER_MONTH
                                     + sizes[part]["disk_gib"] * prices["disk_usd_per_gib_month"])
        monthly["egress"] = needed["egress_bytes_per_s"] * SECONDS_PER_MONTH / 2**30 * prices["egress_usd_per_gib"]
        regions[region["name"]] = {"sizes": sizes, "monthly_usd": {part: round(usd, 2) for part, usd in monthly.items()},
                                   "publishes_per_s": needed["publishes_per_s"], "deliveries_per_s": needed["deliveries_per_s"]}
        total += sum(monthly.values())
    return {"name": fleet["name"], "connections": fleet["fleet"]["connections"], "monthly_usd": round(total, 2),
            "usd_per_1000_connections": round(1000 * total / fleet["fleet"]["connections"], 4), "regions": regions}
