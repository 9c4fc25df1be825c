"""aiomqtt (Python, asyncio): MQTT 3.1.1 and 5.0 over TCP and WebSocket."""

import asyncio

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from checks import HOST, PAYLOADS, PORTS, SECONDS_MAX, equal, run

VERSIONS = {"3.1.1": aiomqtt.ProtocolVersion.V311, "5.0": aiomqtt.ProtocolVersion.V5}
MESSAGES = 1000


def client(way, client_id, kind="OPEN", **options):
    version, transport = way
    return aiomqtt.Client(
        HOST,
        PORTS[kind, transport],
        identifier=client_id,
        protocol=VERSIONS[version],
        transport=transport,
        websocket_path="/mqtt" if transport == "websockets" else None,
        max_queued_incoming_messages=0,
        timeout=SECONDS_MAX,
        **options,
    )


async def take(sub, count):
    return [await asyncio.wait_for(anext(sub.messages), SECONDS_MAX) for _ in range(count)]


async def carries_payloads(way, p):
    async with client(way, "sub") as sub, client(way, "pub") as pub:
        await sub.subscribe(f"{p}/#", qos=2)
        for qos in (0, 1, 2):
            for payload in PAYLOADS:
                await pub.publish(f"{p}/{qos}", payload, qos)
            for payload, got in zip(PAYLOADS, await take(sub, len(PAYLOADS))):
                equal((got.topic.value, got.payload, got.qos), (f"{p}/{qos}", payload, qos))


async def keeps_order(way, p):
    async with client(way, "sub") as sub, client(way, "pub") as pub:
        await sub.subscribe(f"{p}/#", qos=2)
        for qos in (0, 1, 2):
            for n in range(MESSAGES):
                await pub.publish(f"{p}/{qos}", b"%d" % n, qos)
            got = await take(sub, MESSAGES)
            equal([m.payload for m in got], [b"%d" % n for n in range(MESSAGES)], f"QoS {qos}")


async def keeps_retained(way, p):
    async with client(way, "pub") as pub, client(way, "new") as new:
        await pub.publish(f"{p}/kept", b"kept", 1, retain=True)
        await new.subscribe(f"{p}/#")
        equal([(m.payload, m.retain) for m in await take(new, 1)], [(b"kept", True)])


async def checks_passwords(way, _p):
    async with client(way, "ann", "GUARDED", username="ann", password="right"):
        pass
    try:
        async with client(way, "ann", "GUARDED", username="ann", password="wrong"):
            raise AssertionError("a wrong password was taken")
    except aiomqtt.MqttError:
        pass


async def answers_requests(way, p):
    async with client(way, "server") as server, client(way, "asker") as asker:
        await server.subscribe(f"{p}/ask")
        await asker.subscribe(f"{p}/answer")
        properties = Properties(PacketTypes.PUBLISH)
        properties.ResponseTopic, properties.CorrelationData = f"{p}/answer", b"\x00\x01"
        await asker.publish(f"{p}/ask", b"2 + 2", 1, properties=properties)
        (ask,) = await take(server, 1)
        back = Properties(PacketTypes.PUBLISH)
        back.CorrelationData = ask.properties.CorrelationData
        await server.publish(ask.properties.ResponseTopic, b"4", 1, properties=back)
        equal([(m.payload, m.properties.CorrelationData) for m in await take(asker, 1)], [(b"4", b"\x00\x01")])


EVERYWHERE = [carries_payloads, keeps_order, keeps_retained, checks_passwords]


def checks():
    for version in VERSIONS:
        for transport in ("tcp", "websockets"):
            way = (version, transport)
            for check in EVERYWHERE + ([answers_requests] if version == "5.0" else []):
                topic = f"{version}/{transport}/{check.__name__}"
                name = f"{version} over {transport} {check.__name__.replace('_', ' ')}"
                yield name, lambda c=check, w=way, t=topic: asyncio.run(c(w, t))


if __name__ == "__main__":
    run("aiomqtt", checks())
