"""gmqtt (Python, asyncio): MQTT 3.1.1 and 5.0 over TCP."""

import asyncio
import logging

from gmqtt import Client as Gmqtt
from gmqtt import Message, Subscription
from gmqtt.mqtt.constants import MQTTv50, MQTTv311

from checks import HOST, PAYLOADS, PORTS, SECONDS_MAX, equal, run

VERSIONS = {"3.1.1": MQTTv311, "5.0": MQTTv50}
MESSAGES = 1000


class Client:
    def __init__(self, version, client_id, clean=True, will=None, user=None, guarded=False, **properties):
        self.version, self.guarded, self.is_cut = version, guarded, False
        self.gmqtt = Gmqtt(client_id, clean_session=clean, will_message=will, logger=None, **properties)
        self.gmqtt.stop_reconnect()
        if user:
            self.gmqtt.set_auth_credentials(*user)
        self.messages, self.subscribed, self.connects = asyncio.Queue(), asyncio.Queue(), asyncio.Queue()
        self.gmqtt.on_message = self._on_message
        self.gmqtt.on_subscribe = lambda _c, _mid, reasons, _p: self.subscribed.put_nowait(list(reasons))
        self.gmqtt.on_connect = lambda _c, flags, reason, properties: self.connects.put_nowait((flags, properties))

    def _on_message(self, _client, topic, payload, qos, properties):
        self.messages.put_nowait((topic, bytes(payload), qos, properties))
        return 0

    async def __aenter__(self):
        port = PORTS["GUARDED" if self.guarded else "OPEN", "tcp"]
        await asyncio.wait_for(self.gmqtt.connect(HOST, port, version=VERSIONS[self.version]), SECONDS_MAX)
        self.hello = await asyncio.wait_for(self.connects.get(), SECONDS_MAX)
        return self

    async def __aexit__(self, *_):
        if not self.is_cut:
            await self.gmqtt.disconnect()

    def cut(self):
        """Ends the TCP connection without DISCONNECT."""
        self.is_cut = True
        self.gmqtt._connection._transport.abort()

    async def subscribe(self, topic, qos=2, **properties):
        self.gmqtt.subscribe(Subscription(topic, qos=qos, **properties))
        return await asyncio.wait_for(self.subscribed.get(), SECONDS_MAX)

    def publish(self, topic, payload=b"x", qos=1, **properties):
        self.gmqtt.publish(Message(topic, payload, qos=qos, **properties))

    async def take(self, count=1):
        return [await asyncio.wait_for(self.messages.get(), SECONDS_MAX) for _ in range(count)]


async def carries_payloads(version, p):
    async with Client(version, "sub") as sub, Client(version, "pub") as pub:
        equal(await sub.subscribe(f"{p}/#"), [2], "SUBACK")
        for qos in (0, 1, 2):
            for payload in PAYLOADS:
                pub.publish(f"{p}/{qos}", payload, qos)
            for payload, got in zip(PAYLOADS, await sub.take(len(PAYLOADS))):
                equal(got[:3], (f"{p}/{qos}", payload, qos))


async def keeps_order(version, p):
    async with Client(version, "sub") as sub, Client(version, "pub") as pub:
        await sub.subscribe(f"{p}/#")
        for qos in (0, 1, 2):
            for n in range(MESSAGES):
                pub.publish(f"{p}/{qos}", b"%d" % n, qos)
            equal([m[1] for m in await sub.take(MESSAGES)], [b"%d" % n for n in range(MESSAGES)], f"QoS {qos}")


async def keeps_retained(version, p):
    async with Client(version, "pub") as pub:
        await pub.subscribe(f"{p}/#")
        pub.publish(f"{p}/kept", b"kept", retain=True)
        await pub.take()
        async with Client(version, "new") as new:
            await new.subscribe(f"{p}/#")
            (got,) = await new.take()
            equal((got[1], got[3]["retain"]), (b"kept", 1))


async def publishes_the_will(version, p):
    async with Client(version, "sub") as sub:
        await sub.subscribe(f"{p}/#")
        will = Message(f"{p}/will", b"gone", qos=1)
        async with Client(version, "mortal", will=will) as mortal:
            mortal.cut()
            equal((await sub.take())[0][1], b"gone")
        async with Client(version, "mortal", will=will):
            pass
        async with Client(version, "mortal") as again:
            again.publish(f"{p}/end", b"end")
            equal((await sub.take())[0][1], b"end", "no will after DISCONNECT")


async def resumes(version, p):
    kept = {"session_expiry_interval": 600} if version == "5.0" else {}
    async with Client(version, "sub", clean=False, **kept) as sub, Client(version, "pub") as pub:
        equal(sub.hello[0] & 1, 0, "session present")
        await sub.subscribe(f"{p}/#")
        await pub.subscribe(f"{p}/#")
        sub.cut()
        for n in range(100):
            pub.publish(f"{p}/x", b"%d" % n, 1 + n % 2)
        await pub.take(100)
        async with Client(version, "sub", clean=False, **kept) as again:
            equal(again.hello[0] & 1, 1, "session present")
            got = await again.take(100)
            for qos in (1, 2):
                equal([m[1] for m in got if m[2] == qos], [b"%d" % n for n in range(qos - 1, 100, 2)], f"QoS {qos}")


async def checks_passwords(version, _p):
    async with Client(version, "ann", user=("ann", "right"), guarded=True):
        pass
    try:
        async with Client(version, "ann", user=("ann", "wrong"), guarded=True):
            raise AssertionError("a wrong password was taken")
    except AssertionError:
        raise
    except Exception as error:  # gmqtt has no one type for it
        assert "MQTTConnectError" in type(error).__name__ or isinstance(error, TimeoutError), repr(error)


async def carries_properties(version, p):
    async with Client(version, "sub", topic_alias_maximum=5) as sub, Client(version, "pub") as pub:
        await sub.subscribe(f"{p}/#", subscription_identifier=9)
        pub.publish(p, b"x", user_property=[("a", "1"), ("a", "2")], response_topic="r", correlation_data=b"\x01",
                    message_expiry_interval=60, content_type="text/plain")
        got = (await sub.take())[0][3]
        equal(got["user_property"], [("a", "1"), ("a", "2")])
        equal((got["response_topic"], got["correlation_data"]), (["r"], [b"\x01"]))
        equal((got["content_type"], got["subscription_identifier"]), (["text/plain"], [9]))
        assert 50 < got["message_expiry_interval"][0] <= 60, got


EVERYWHERE = [carries_payloads, keeps_order, keeps_retained, publishes_the_will, resumes, checks_passwords]


def checks():
    for version in VERSIONS:
        for check in EVERYWHERE + ([carries_properties] if version == "5.0" else []):
            topic = f"{version}/{check.__name__}"
            yield f"{version} {check.__name__.replace('_', ' ')}", lambda c=check, v=version, t=topic: asyncio.run(c(v, t))


if __name__ == "__main__":
    # It logs every end of a connection, wanted or not.
    logging.disable()
    run("gmqtt", checks())
