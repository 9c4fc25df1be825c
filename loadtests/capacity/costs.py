"""The cost of one connection, connect, message, byte and session, read from a file of measure.py. No cost is typed in here."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Costs:
    """CPU in microseconds of one core of the measured machine, memory and disk in bytes."""

    connection_bytes: float
    connect_us: float
    # One message from one publisher to one subscriber, each in a packet of its own.
    qos0_us: float
    qos1_us: float
    # Each further subscriber of the same message.
    further_us: float
    payload_byte_us: float
    ping_us: float
    # The kernel's memory for one end of an open TCP connection; memory of the process does not have it.
    socket_bytes: float
    # QoS 1 for persistent sessions: published and delivered while the subscriber is online; published while it is not,
    # and drained when it is back.
    online_us: float
    stored_us: float
    drained_us: float
    # On the disk for each stored message, beside its payload.
    stored_overhead_bytes: float
    session_bytes: float
    session_back_us: float
    gateway_qos1_us: float
    # Envoy's memory of an idle connection, and its CPU for a TLS handshake and a CONNECT.
    gateway_plain_bytes: float
    gateway_tls_bytes: float
    gateway_tls_connect_us: float

    # The gateway was measured with QoS 1 only. Its four packets pass one by one; QoS 0 and a ping have two.
    @property
    def gateway_qos0_us(self):
        return self.gateway_qos1_us / 2

    @property
    def gateway_ping_us(self):
        return self.gateway_qos1_us / 2


class Unusable(Exception):
    """The file of measurements lacks something, or has a run that lost messages."""


def us_each(measured, name):
    """Server CPU for each thing that a scenario counts."""
    result = measured["results"].get(name)
    if result is None:
        raise Unusable(f"the measurements have no {name}; measure.py makes them")
    faults = {fault: result.get(fault, 0) for fault in ("lost", "repeated", "forgotten") if result.get(fault)}
    if faults or not result["count"]:
        raise Unusable(f"{name} is no measurement: {faults or 'it counted nothing'}")
    return 1e6 * result["server_cpu_s"] / result["count"]


def of_gateway(measured, name):
    if name not in measured.get("gateway", {}):
        raise Unusable(f"the measurements have no {name} of the gateway; measure.py FILE --gateway adds it")
    return measured["gateway"][name]


def payload_bytes(result):
    arguments = result["arguments"]
    return int(arguments[arguments.index("--payload-bytes") + 1])


def read(measured):
    """The costs that a file of measure.py holds."""
    results = measured["results"]
    qos0, qos1 = us_each(measured, "qos0"), us_each(measured, "qos1")
    byte = (us_each(measured, "qos0-large") - qos0) / (payload_bytes(results["qos0-large"]) - payload_bytes(results["qos0"]))
    return Costs(
        connection_bytes=results["idle-subscribed"]["bytes_per_connection"],
        connect_us=results["connect"]["us_per_connect"],
        # The load driver sends QoS 0 in batches, which single devices do not, so its figure is too low for them. QoS 1 has four
        # packets (two PUBLISH, two PUBACK), not batched: half of its cost stands for the two of QoS 0.
        qos0_us=max(qos1 / 2, qos0),
        qos1_us=qos1,
        further_us=us_each(measured, "fanout"),
        payload_byte_us=max(byte, 0.0),
        ping_us=qos1 / 2,
        socket_bytes=measured["socket_bytes"],
        online_us=us_each(measured, "durable-online"),
        stored_us=us_each(measured, "durable-publish"),
        drained_us=us_each(measured, "durable-drain"),
        stored_overhead_bytes=results["sessions"]["window_disk_bytes"] - payload_bytes(results["sessions"]),
        session_bytes=results["sessions"]["folder_bytes_each"],
        session_back_us=us_each(measured, "reconnect"),
        gateway_qos1_us=us_each(measured, "gateway-qos1"),
        gateway_plain_bytes=of_gateway(measured, "plain_bytes_per_connection"),
        gateway_tls_bytes=of_gateway(measured, "tls_bytes_per_connection"),
        gateway_tls_connect_us=of_gateway(measured, "tls_connect_us"),
    )
