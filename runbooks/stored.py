"""A retained message and a delayed will, which one build stores and another build reads."""

import socket
import threading

from observe import HOST, until
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from stage import connect, make

# Longer than a build needs to drain and to start, so that the next build publishes the will.
DELAY_SECONDS = 30
PROPERTY = ("unit", "°C")


def properties(packet):
    """With a property, because a misread record shows there first."""
    made = Properties(packet)
    made.UserProperty, made.ContentType = PROPERTY, "text/plain"
    return made


def seen(message):
    return message.payload, message.properties.UserProperty, message.properties.ContentType


class Stored:
    def __init__(self, drill, port=1883, host=HOST, tls=None):
        self.drill, self.way, self.wills = drill, (port, False, host), {}
        self.tls = tls
        self.watcher = self.connected("watcher", "wills/#", lambda message: self.wills.update({message.topic: seen(message)}))
        drill.keep(self)

    def connected(self, name, topic, note):
        client, subscribed = make(name, None, tls=self.tls), threading.Event()
        client.on_connect = lambda client, *_: client.subscribe(topic, 1)
        client.on_subscribe = lambda *_: subscribed.set()
        client.on_message = lambda _, __, message: note(message)
        connect(client, *self.way)
        until(subscribed.is_set, f"{name} has no subscription")
        return client

    def store(self, name):
        """Stores a retained message, and a will whose client goes without DISCONNECT."""
        client = make(f"leaving-{name}", None, tls=self.tls)
        will = properties(PacketTypes.WILLMESSAGE)
        will.WillDelayInterval = DELAY_SECONDS
        client.will_set(f"wills/{name}", f"will of {name}", 1, properties=will)
        port, _, host = self.way
        connect(client, port, True, host)
        client.publish(f"retained/{name}", f"retained by {name}", 1, True, properties(PacketTypes.PUBLISH)).wait_for_publish(30)
        client.loop_stop()
        client.socket().shutdown(socket.SHUT_RDWR)
        client.socket().close()
        self.drill.say(f"{name} stores a retained message, and a will with a delay of {DELAY_SECONDS} s")

    def read(self, names, reader):
        """`reader` reads the retained messages of `names`, and publishes the will of the last."""
        last = names[-1]
        self.drill.check(f"the will of {last} waits", f"wills/{last}" not in self.wills)
        got = {}
        client = self.connected("retained-reader", "retained/#", lambda message: got.update({message.topic: (message.retain, *seen(message))}))
        until(lambda: len(got) >= len(names), f"{len(got)} of {len(names)} retained messages arrived")
        client.disconnect()
        client.loop_stop()
        wanted = {f"retained/{name}": (True, *self.wanted(f"retained by {name}")) for name in names}
        self.drill.check(f"{reader} reads the retained messages of {' and '.join(names)} as they were published", got == wanted)
        until(lambda: f"wills/{last}" in self.wills, f"no will of {last}", 3 * DELAY_SECONDS)
        self.drill.check(f"{reader} publishes the will of {last} as it was set", self.wills[f"wills/{last}"] == self.wanted(f"will of {last}"))

    @staticmethod
    def wanted(payload):
        return payload.encode(), [PROPERTY], "text/plain"

    def leave(self):
        self.watcher.disconnect()
        self.watcher.loop_stop()
