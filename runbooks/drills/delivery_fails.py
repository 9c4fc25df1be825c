"""A subscriber does not read what it has subscribed to; its messages are dropped, its neighbour's are not."""

import socket
import threading

from stage import Publisher, Subscriber

PROMETHEUS = "curl -sG http://127.0.0.1:9090/api/v1/query --data-urlencode"
DROPPED = 'sum(rate(millrace_messages_dropped_total{reason="busy_socket"}[10s]))'


class Sleeper:
    """Subscribes with MQTT 3.1.1 and QoS 0, and reads nothing until it is woken."""

    def __init__(self, topic):
        self.sock = socket.create_connection(("127.0.0.1", 1883))
        self.sock.sendall(b"\x10\x13\x00\x04MQTT\x04\x02\x00\x00\x00\x07sleeper")
        assert self.sock.recv(4) == b"\x20\x02\x00\x00"
        body = b"\x00\x01" + len(topic).to_bytes(2, "big") + topic.encode() + b"\x00"
        self.sock.sendall(bytes([0x82, len(body)]) + body)
        assert self.sock.recv(5) == b"\x90\x03\x00\x01\x00"

    def wake(self):
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            while self.sock.recv(1 << 20):
                pass
        except OSError:
            pass

    def leave(self):
        self.sock.close()


def run(drill):
    drill.server()
    # The server would pause a publisher whose only receiver lags, and drop nothing.
    neighbour = drill.keep(Subscriber("neighbour", "drill/#", qos=0, lasts=False))
    drill.keep(Publisher("drill/a", qos=0, rate=100, size=20_000))
    drill.until_value("sum(rate(millrace_messages_sent_total[10s]))", lambda values: values and values[0] > 20)
    drill.until_no_alert()
    drill.say("FAULT a subscriber stops reading")
    sleeper = drill.keep(Sleeper("drill/#"))
    drill.fires("DeliveryFails")
    drill.run(f"{PROMETHEUS} 'query=topk(5, sum by (broker, reason) (rate(millrace_messages_dropped_total[25s]) > 0))'")
    drill.until_value(DROPPED, lambda values: values and values[0] > 1)
    before = len(neighbour.got)
    drill.until_value("sum(rate(millrace_messages_sent_total[10s]))", lambda values: values and values[0] > 20)
    drill.check(f"the neighbour has {before} messages and continues", before > 0)
    drill.say("ACT   its owner repairs it: it reads")
    sleeper.wake()
    drill.until_value(DROPPED, lambda values: values == [0])
    drill.ends("DeliveryFails")
