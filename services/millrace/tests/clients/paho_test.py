"""paho-mqtt (Python): MQTT 3.1, 3.1.1 and 5.0 over TCP and WebSocket."""

import queue
import socket
import threading
import time
from types import SimpleNamespace

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from checks import HOST, PAYLOADS, PORTS, SECONDS_MAX, before, deadline, equal, run

VERSIONS = {"3.1": paho.MQTTv31, "3.1.1": paho.MQTTv311, "5.0": paho.MQTTv5}
MESSAGES = 1000


def props(packet, **values):
    """Properties of a v5 packet: props("PUBLISH", MessageExpiryInterval=1)."""
    properties = Properties(getattr(PacketTypes, packet))
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            setattr(properties, name, one)
    return properties


class Client:
    """A client whose callbacks fill queues that a check waits for."""

    def __init__(self, way, client_id, durable=False, guarded=False, will=None, user=None, manual_ack=False, **connect):
        self.version, self.transport = way
        self.v5 = self.version == "5.0"
        self.port = PORTS["GUARDED" if guarded else "OPEN", self.transport]
        self.durable = durable
        if durable and self.v5:
            connect.setdefault("SessionExpiryInterval", 600)
        self.properties = connect
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=None if self.v5 else not durable,
            protocol=VERSIONS[self.version],
            transport=self.transport,
            reconnect_on_failure=False,
            manual_ack=manual_ack,
        )
        self.paho.max_inflight_messages_set(100)
        self.messages, self.connects, self.disconnects = queue.Queue(), queue.Queue(), queue.Queue()
        self.answers, self.changed = {}, threading.Condition()
        self.paho.on_connect = lambda _c, _u, flags, reason, properties: self.connects.put(
            SimpleNamespace(resumed=flags.session_present, reason=reason, properties=properties)
        )
        self.paho.on_disconnect = lambda _c, _u, _f, reason, _p: self.disconnects.put(reason)
        self.paho.on_message = lambda _c, _u, message: self.messages.put(message)
        self.paho.on_publish = lambda _c, _u, mid, reason, _p: self._answered(mid, reason)
        self.paho.on_subscribe = lambda _c, _u, mid, reasons, _p: self._answered(mid, reasons)
        self.paho.on_unsubscribe = lambda _c, _u, mid, reasons, _p: self._answered(mid, reasons)
        if user:
            self.paho.username_pw_set(*user)
        if will:
            self.paho.will_set(**will)

    def __enter__(self):
        return self.connect()

    def __exit__(self, *_):
        self.close()

    def connect(self, refused=False):
        if self.v5:
            properties = props("CONNECT", **self.properties)
            self.paho.connect(HOST, self.port, clean_start=not self.durable, properties=properties)
        else:
            self.paho.connect(HOST, self.port)
        self.paho.loop_start()
        self.hello = self.connects.get(timeout=SECONDS_MAX)
        equal(self.hello.reason.is_failure, refused, f"CONNACK {self.hello.reason}")
        return self

    def close(self):
        """Ends with DISCONNECT, whatever state it is in."""
        self.paho.disconnect()
        self.paho.loop_stop()

    def cut(self):
        """Ends the TCP connection without DISCONNECT."""
        sock = self.paho.socket()
        getattr(sock, "_socket", sock).shutdown(socket.SHUT_RDWR)
        self.disconnects.get(timeout=SECONDS_MAX)
        self.paho.loop_stop()

    def _answered(self, mid, reason):
        with self.changed:
            self.answers[mid] = reason
            self.changed.notify_all()

    def answer(self, mid):
        with self.changed:
            if not self.changed.wait_for(lambda: mid in self.answers, SECONDS_MAX):
                raise TimeoutError(f"no answer to packet {mid}")
            return self.answers.pop(mid)

    def subscribe(self, topic, qos=2, **identifier):
        """The reason codes as numbers."""
        filters = topic if isinstance(topic, list) else [(topic, qos)]
        if self.v5:
            filters = [
                (name, o if isinstance(o, SubscribeOptions) else SubscribeOptions(qos=o)) for name, o in filters
            ]
            _, mid = self.paho.subscribe(filters, properties=props("SUBSCRIBE", **identifier))
        else:
            _, mid = self.paho.subscribe(filters)
        return [code.value for code in self.answer(mid)]

    def unsubscribe(self, topic):
        _, mid = self.paho.unsubscribe(topic)
        return [code.value for code in self.answer(mid)]

    def send(self, topic, payload=b"x", qos=1, retain=False, **properties):
        """Does not wait for the acknowledgement."""
        properties = props("PUBLISH", **properties) if self.v5 else None
        return self.paho.publish(topic, payload, qos, retain, properties=properties).mid

    def publish(self, *args, **kwargs):
        """Waits for the acknowledgement; gives its reason code."""
        return self.answer(self.send(*args, **kwargs)).value

    def take(self, count=1):
        return [self.messages.get(timeout=SECONDS_MAX) for _ in range(count)]

    def one(self):
        return self.take()[0]

    def until(self, topic, payload=b"end"):
        """All messages before the one that says that there are no more."""
        got = []
        while (message := self.one()).payload != payload or message.topic != topic:
            got.append(message)
        return got


def payloads(messages):
    return [message.payload for message in messages]


# -- every version and transport


def carries_payloads(way, p):
    """Payloads arrive unchanged, with the lower QoS of publication and subscription. After UNSUBSCRIBE nothing arrives."""
    with Client(way, "sub") as sub, Client(way, "pub") as pub:
        for granted in (0, 1, 2):
            equal(sub.subscribe(f"{p}/{granted}/#", granted), [granted], "SUBACK")
            for qos in (0, 1, 2):
                for payload in PAYLOADS:
                    pub.publish(f"{p}/{granted}/é", payload, qos)
                for payload, got in zip(PAYLOADS, sub.take(len(PAYLOADS))):
                    equal(got.payload, payload, "payload")
                    equal((got.topic, got.qos, got.retain), (f"{p}/{granted}/é", min(qos, granted), False))
        sub.unsubscribe(f"{p}/2/#")
        pub.publish(f"{p}/2/a")
        pub.publish(f"{p}/1/end", b"end")
        equal(sub.until(f"{p}/1/end"), [], "after UNSUBSCRIBE")


def keeps_retained(way, p):
    topic = f"{p}/kept"
    with Client(way, "pub") as pub, Client(way, "live") as live:
        live.subscribe(f"{p}/#")

        def news():
            """The retained messages that a new subscriber gets."""
            with Client(way, "new") as new:
                new.subscribe(f"{p}/#")
                pub.publish(f"{p}/end", b"end", 2)
                return [(m.topic, m.payload, m.qos, m.retain) for m in new.until(f"{p}/end")]

        pub.publish(topic, b"first", 1, retain=True)
        equal(news(), [(topic, b"first", 1, True)], "set")
        pub.publish(topic, b"second", 2, retain=True)
        equal(news(), [(topic, b"second", 2, True)], "replaced")
        pub.publish(topic, b"not kept", 1)
        equal(news(), [(topic, b"second", 2, True)], "a message without retain changes nothing")
        pub.publish(topic, b"", 1, retain=True)
        equal(news(), [], "cleared")
        # A message with QoS 2 arrives when its handshake is over, so those with QoS 1 may pass it.
        got = sorted((m.qos, m.payload, m.retain) for m in live.take(8) if m.payload != b"end")
        equal(got, [(1, b"", False), (1, b"first", False), (1, b"not kept", False), (2, b"second", False)], "live")


def publishes_the_will(way, p):
    will = {"topic": f"{p}/will", "payload": b"gone", "qos": 1}
    with Client(way, "sub") as sub:
        sub.subscribe(f"{p}/#")
        Client(way, "mortal", will=will).connect().cut()
        got = sub.one()
        equal((got.topic, got.payload, got.qos, got.retain), (f"{p}/will", b"gone", 1, False))

        Client(way, "mortal", will=will).connect().close()
        # The same client id: that the broker answers says that it is done with the connection before.
        with Client(way, "mortal") as again:
            again.publish(f"{p}/end", b"end")
        equal(payloads(sub.until(f"{p}/end")), [], "no will after DISCONNECT")

        Client(way, "mortal", will={**will, "retain": True}).connect().cut()
        equal(sub.one().payload, b"gone")
        with Client(way, "new") as new:
            new.subscribe(f"{p}/will")
            equal(new.one().retain, True, "retained will")
            new.publish(f"{p}/will", b"", retain=True)


def shares_in_turns(way, p):
    topic = f"{p}/work"
    members = [Client(way, f"member{n}").connect() for n in range(3)]
    with Client(way, "pub") as pub:
        for member in members:
            equal(member.subscribe(f"$share/group/{topic}", 1), [1])
        for n in range(30):
            pub.publish(topic, b"%d" % n)
        got = [member.take(10) for member in members]
        equal(sorted(int(m.payload) for one in got for m in one), list(range(30)), "each message once")

        # One leaves while messages come; what it does not acknowledge any more goes to the others.
        waiting = [pub.send(topic, b"%d" % n) for n in range(15)]
        members[0].close()
        waiting += [pub.send(topic, b"%d" % n) for n in range(15, 30)]
        for mid in waiting:
            pub.answer(mid)
        seen, end = set(), deadline()
        while seen != set(range(30)):
            before(end, f"after one left there is no {set(range(30)) - seen}")
            for member in members:
                while not member.messages.empty():
                    seen.add(int(member.one().payload))
        for n in range(20):
            pub.publish(topic, b"%d" % n)
        equal(sorted(int(m.payload) for one in members[1:] for m in one.take(10)), list(range(20)), "two members left")
        equal(members[0].messages.qsize(), 0)
    for member in members[1:]:
        member.close()


def hands_over_what_was_not_acknowledged(way, p):
    topic = f"{p}/work"
    lazy = Client(way, "lazy", manual_ack=True).connect()
    with Client(way, "pub") as pub, Client(way, "busy") as busy:
        lazy.subscribe(f"$share/group/{topic}", 1)
        for n in range(5):
            pub.publish(topic, b"%d" % n)
        lazy.take(5)
        busy.subscribe(f"$share/group/{topic}", 1)
        lazy.cut()
        equal(sorted(payloads(busy.take(5))), [b"%d" % n for n in range(5)])


def resumes(way, p):
    sub = Client(way, "sub", durable=True).connect()
    equal(bool(sub.hello.resumed), False, "session present")
    sub.subscribe(f"{p}/#")
    with Client(way, "pub") as pub:
        for round_ in range(3):
            sub.cut()
            for n in range(100):
                equal(pub.publish(f"{p}/{round_}", b"%d" % n, 1 + n % 2), 0)
            sub.connect()
            if VERSIONS[way[0]] != paho.MQTTv31:
                equal(sub.hello.resumed, True, "session present")
            pub.publish(f"{p}/end", b"end", 2)
            got = sub.until(f"{p}/end")
            # paho gives a QoS 2 message away at its PUBREL, so after QoS 1 messages that came later.
            for qos in (1, 2):
                order = [m.payload for m in got if m.qos == qos]
                equal(order, [b"%d" % n for n in range(qos - 1, 100, 2)], f"QoS {qos}: once and in order")
    sub.close()
    with Client(way, "sub") as clean:
        equal(bool(clean.hello.resumed), False, "session present after a clean start")


def sends_again(way, p):
    sub = Client(way, "sub", durable=True, manual_ack=True).connect()
    sub.subscribe(f"{p}/#", 1)
    with Client(way, "pub") as pub:
        for n in range(5):
            pub.publish(p, b"%d" % n)
        first = sub.take(5)
        equal([m.dup for m in first], [False] * 5, "dup")
        sub.paho.ack(first[0].mid, 1)
        sub.cut()
        sub.connect()
        again = sub.take(4)
        # The acknowledgement of the first may have been lost with the connection.
        if again[0].payload == b"0":
            again = again[1:] + sub.take(1)
        equal([(m.payload, m.mid, m.dup) for m in again], [(m.payload, m.mid, True) for m in first[1:]])
    sub.close()


def keeps_order(way, p):
    with Client(way, "sub") as sub, Client(way, "pub1") as pub1, Client(way, "pub2") as pub2:
        for qos in (0, 1, 2):
            sub.subscribe(f"{p}/{qos}/#")
            for n in range(MESSAGES):
                for pub in (pub1, pub2):
                    last = pub.send(f"{p}/{qos}/{pub is pub1}", b"%d" % n, qos)
            got = sub.take(2 * MESSAGES)
            pub2.answer(last)
            for pub in (True, False):
                order = [int(m.payload) for m in got if m.topic.endswith(str(pub))]
                equal(order, list(range(MESSAGES)), f"order of one publisher at QoS {qos}")


def has_many_subscriptions(way, p):
    topics = [f"{p}/{n}/x" for n in range(MESSAGES)]
    with Client(way, "many") as many, Client(way, "pub") as pub:
        for start in range(0, MESSAGES, 100):
            equal(many.subscribe([(topic, 1) for topic in topics[start:start + 100]]), [1] * 100)
        for topic in topics:
            pub.send(topic, topic.encode(), 1)
        equal(sorted(m.topic for m in many.take(MESSAGES)), sorted(topics))
        equal(many.unsubscribe(topics), [0] * MESSAGES if many.v5 else [])


def checks_passwords(way, _p):
    for user in (None, ("ann", "wrong"), ("bob", "right"), ("ann", "")):
        wrong = Client(way, "who", guarded=True, user=user)
        wrong.connect(refused=True)
        wanted = {0x86, 0x87}  # paho gives the codes of 3.x as those of 5.0 too
        assert wrong.hello.reason.value in wanted, f"{user}: {wrong.hello.reason}"
        wrong.paho.loop_stop()
    Client(way, "who", guarded=True, user=("ann", "right")).connect().close()


def obeys_rules(way, p):
    with Client(way, "ann", guarded=True, user=("ann", "right")) as ann:
        refused = {"5.0": 0x87}.get(way[0], 0x80)
        filters = [("free/#", 1), ("readonly/#", 1), ("writeonly/#", 1), ("closed/a", 1)]
        equal(ann.subscribe(filters), [1, 1, refused, refused], "SUBACK")
        for qos in (0, 1, 2):
            for topic in ("readonly/a", "closed/a"):
                # 3.x has no way to say no but to take the message and drop it. paho sends a PUBREL even after a PUBREC
                # that refuses, and gives the answer to that one.
                said = [0, 0x87, 0x92][qos] if ann.v5 else 0
                equal(ann.publish(topic, b"no", qos), said, f"{topic} at QoS {qos}")
        equal(ann.publish("free/end", b"end"), 0)
        equal(ann.until("free/end"), [], "what was denied")


# -- 5.0


def carries_properties(way, p):
    sent = {
        "PayloadFormatIndicator": 1,
        "ContentType": "text/plain",
        "ResponseTopic": f"{p}/answer",
        "CorrelationData": b"\x00\xff",
        "UserProperty": [("a", "1"), ("b", "2"), ("a", "3")],
    }
    with Client(way, "sub") as sub, Client(way, "pub") as pub:
        sub.subscribe(p)
        pub.publish(p, b"", 1, **sent)
        got = sub.one().properties
        for name, value in sent.items():
            equal(getattr(got, name), value, name)
        equal(hasattr(got, "SubscriptionIdentifier"), False)


def answers_requests(way, p):
    with Client(way, "server") as server, Client(way, "asker") as asker:
        server.subscribe(f"{p}/ask")
        asker.subscribe(f"{p}/answer/asker")
        for n in range(10):
            asker.send(f"{p}/ask", b"%d" % n, ResponseTopic=f"{p}/answer/asker", CorrelationData=b"c%d" % n)
        for _ in range(10):
            ask = server.one()
            server.send(ask.properties.ResponseTopic, ask.payload * 2, CorrelationData=ask.properties.CorrelationData)
        equal([(m.payload, m.properties.CorrelationData) for m in asker.take(10)],
              [(b"%d%d" % (n, n), b"c%d" % n) for n in range(10)])


def knows_topic_aliases(way, p):
    with Client(way, "sub", TopicAliasMaximum=5) as sub, Client(way, "pub") as pub:
        assert pub.hello.properties.TopicAliasMaximum >= 2
        sub.subscribe(f"{p}/#")
        for qos in (0, 1, 2):
            pub.publish(f"{p}/{qos}", b"0", qos, TopicAlias=1)
            pub.publish("", b"1", qos, TopicAlias=1)
            pub.publish("", b"2", qos, TopicAlias=1)
            got, names = sub.take(3), {}
            for message in got:
                alias = getattr(message.properties, "TopicAlias", None)
                if message.topic and alias:
                    names[alias] = message.topic
                equal(message.topic or names[alias], f"{p}/{qos}", "topic")
            equal([m.topic for m in got], [f"{p}/{qos}", "", ""], "the broker uses aliases")
        # A second client without aliases gets whole topics.
        with Client(way, "plain") as plain:
            plain.subscribe(f"{p}/#")
            pub.publish("", b"3", TopicAlias=1)
            got = plain.one()
            equal((got.topic, hasattr(got.properties, "TopicAlias")), (f"{p}/2", False))


def honours_receive_maximum(way, p):
    with Client(way, "sub", manual_ack=True, ReceiveMaximum=1) as sub, Client(way, "pub") as pub:
        sub.subscribe(f"{p}/work", 1)
        sub.subscribe(f"{p}/live", 0)
        for n in range(5):
            pub.publish(f"{p}/work", b"%d" % n)
        for n in range(5):
            # QoS 0 is not counted: when it is here, a second message of QoS 1 would be too.
            pub.publish(f"{p}/live", b"%d" % n, 0)
            got = sorted(sub.take(2), key=lambda m: m.qos)
            equal([(m.qos, m.payload) for m in got], [(0, b"%d" % n), (1, b"%d" % n)])
            sub.paho.ack(got[1].mid, 1)


def lets_messages_expire(way, p):
    sub = Client(way, "sub", durable=True).connect()
    sub.subscribe(f"{p}/#")
    sub.close()
    with Client(way, "pub") as pub:
        pub.publish(f"{p}/short", b"expires", MessageExpiryInterval=1)
        pub.publish(f"{p}/long", b"stays", MessageExpiryInterval=60)
        pub.publish(f"{p}/kept", b"expires", retain=True, MessageExpiryInterval=1)
        end = deadline()
        while True:
            before(end, "the retained message does not expire")
            with Client(way, "new") as new:
                new.subscribe(f"{p}/kept")
                pub.publish(f"{p}/kept", b"end")
                if not new.until(f"{p}/kept"):
                    break
        sub.connect()
        got = [m for m in sub.until(f"{p}/kept") if m.topic != f"{p}/kept"]
        equal(payloads(got), [b"stays"])
        left = got[0].properties.MessageExpiryInterval
        assert 30 < left < 60, f"{left} s are left of 60"
    sub.close()


def lets_sessions_expire(way, p):
    with Client(way, "sub") as sub:
        sub.subscribe(f"{p}/will")
        # The will comes when the session ends, which is before its own delay is over.
        will = {"topic": f"{p}/will", "payload": b"over", "qos": 1, "properties": props("WILLMESSAGE", WillDelayInterval=600)}
        short = Client(way, "short", durable=True, SessionExpiryInterval=1, will=will).connect()
        began = time.monotonic()
        short.cut()
        equal(sub.one().payload, b"over")
        assert time.monotonic() - began >= 0.9, "too early"
        short.connect()
        equal(short.hello.resumed, False, "session present")
        short.close()


def waits_with_the_will(way, p):
    with Client(way, "sub") as sub:
        sub.subscribe(f"{p}/#")
        will = {"topic": f"{p}/will", "payload": b"late", "qos": 1, "properties": props("WILLMESSAGE", WillDelayInterval=1)}
        mortal = Client(way, "mortal", durable=True, will=will).connect()
        mortal.cut()
        mortal.connect()
        mortal.publish(f"{p}/end", b"end")
        equal(sub.until(f"{p}/end"), [], "who is back in time is not dead")
        mortal.cut()
        equal(sub.one().payload, b"late")


def names_subscriptions(way, p):
    with Client(way, "sub") as sub:
        sub.subscribe(f"{p}/#", 0, SubscriptionIdentifier=7)
        sub.subscribe(f"{p}/+/b", 2, SubscriptionIdentifier=268435455)
        sub.subscribe(f"{p}/a/b", 1)
        sub.publish(f"{p}/a/b", b"x", 2)
        got = sub.one()
        equal((got.qos, sorted(got.properties.SubscriptionIdentifier)), (2, [7, 268435455]))
        sub.publish(f"{p}/end", b"end", 1)
        equal(sub.until(f"{p}/end"), [], "one copy")


def obeys_subscription_options(way, p):
    with Client(way, "sub") as sub, Client(way, "pub") as pub:
        pub.publish(f"{p}/kept", b"kept", retain=True)
        none = SubscribeOptions(qos=1, noLocal=True, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
        sub.subscribe([(f"{p}/#", none)])
        sub.publish(f"{p}/own", b"own")
        pub.publish(f"{p}/end", b"end")
        equal(sub.until(f"{p}/end"), [], "no local, no retained message")
        new = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB, retainAsPublished=True)
        sub.subscribe([(f"{p}/#", new)])
        pub.publish(f"{p}/end", b"end")
        equal(sub.until(f"{p}/end"), [], "the subscription is not new")
        sub.unsubscribe(f"{p}/#")
        sub.subscribe([(f"{p}/#", new)])
        equal(sub.one().payload, b"kept")
        pub.publish(f"{p}/kept", b"as published", retain=True)
        equal(sub.one().retain, True)


def says_reasons(way, p):
    with Client(way, "sub") as sub, Client(way, "pub") as pub:
        # For QoS 2 paho gives the reason of PUBCOMP alone.
        equal(pub.publish(f"{p}/nobody"), 0x10, "no matching subscribers")
        sub.subscribe(f"{p}/#")
        for qos in (1, 2):
            equal(pub.publish(f"{p}/a", b"x", qos), 0, "somebody")
        equal(sub.unsubscribe([f"{p}/#", f"{p}/never"]), [0, 0x11])


def assigns_client_ids(way, _p):
    with Client(way, "") as one, Client(way, "") as other:
        ids = [client.hello.properties.AssignedClientIdentifier for client in (one, other)]
        assert all(ids) and ids[0] != ids[1], ids
        equal(hasattr(Client(way, "named").connect().hello.properties, "AssignedClientIdentifier"), False)


def takes_over(way, p):
    first = Client(way, "same", durable=True).connect()
    first.subscribe(f"{p}/#")
    with Client(way, "same", durable=True) as second:
        equal(first.disconnects.get(timeout=SECONDS_MAX).value, 0x8E, "DISCONNECT")
        equal(second.hello.resumed, True)
        second.publish(p, b"mine")
        equal(second.one().payload, b"mine")
    first.paho.loop_stop()


def honours_maximum_packet_size(way, p):
    with Client(way, "sub", MaximumPacketSize=1000) as sub, Client(way, "pub") as pub:
        sub.subscribe(f"{p}/#")
        for qos in (0, 1, 2):
            pub.publish(f"{p}/large", b"x" * 1000, qos)
        pub.publish(f"{p}/end", b"end")
        equal(sub.until(f"{p}/end"), [], "too large for this client")
        largest = pub.hello.properties.MaximumPacketSize
        pub.publish(f"{p}/large", b"x" * (largest - 100), 1)
        pub.send(f"{p}/large", b"x" * largest, 0)
        equal(pub.disconnects.get(timeout=SECONDS_MAX).value, 0x95, "too large for the broker")


EVERYWHERE = [
    carries_payloads,
    keeps_retained,
    publishes_the_will,
    shares_in_turns,
    hands_over_what_was_not_acknowledged,
    resumes,
    sends_again,
    keeps_order,
    has_many_subscriptions,
    checks_passwords,
    obeys_rules,
]
V5 = [
    carries_properties,
    answers_requests,
    knows_topic_aliases,
    honours_receive_maximum,
    lets_messages_expire,
    lets_sessions_expire,
    waits_with_the_will,
    names_subscriptions,
    obeys_subscription_options,
    says_reasons,
    assigns_client_ids,
    takes_over,
    honours_maximum_packet_size,
]


def checks():
    for version in VERSIONS:
        for transport in ("tcp", "websockets"):
            for check in EVERYWHERE + (V5 if version == "5.0" else []):
                name = check.__name__.replace("_", " ")
                topic = f"{version}/{transport}/{check.__name__}"
                yield f"{version} over {transport} {name}", lambda c=check, w=(version, transport), t=topic: c(w, t)


if __name__ == "__main__":
    run("paho", checks())
