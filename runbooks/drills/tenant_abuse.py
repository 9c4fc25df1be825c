"""The drill of runbooks/tenant-abuse.md: somebody guesses passwords of a tenant's broker, the alert fires, the address is banned, and
the alert ends. Without --metrics-brokers-max the metrics would not name the broker."""

import socket
import threading

from tenants import Tenant


def connect_packet(*texts):
    """MQTT 3.1.1 with client id, user name and password."""
    body = b"\x00\x04MQTT\x04\xc2\x00\x3c" + b"".join(len(text).to_bytes(2, "big") + text.encode() for text in texts)
    return bytes([0x10, len(body)]) + body


def guess(broker, over):
    number = 0
    while not over.wait(0.05):
        with socket.create_connection(("127.0.0.1", 1883)) as sock:
            sock.sendall(connect_packet(f"guess-{number}", f"{broker}/admin", f"secret{number}"))
            sock.recv(4)
        number += 1


def run(drill):
    drill.server("--sign-up", "anybody", "--metrics-brokers-max", "20")
    tenant = Tenant("ann")
    broker = tenant.broker("Plant 7")
    drill.say("a tenant has a broker")
    drill.until_no_alert()
    drill.say("FAULT somebody tries passwords, over and over")
    over = threading.Event()
    threads = [threading.Thread(target=guess, args=(broker, over), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        drill.fires("CredentialsGuessed")
        drill.say("ACT   ban the address for a day")
        tenant.log_in()
        drill.run(f"millrace clients ban guesser --broker {broker} --address 127.0.0.1/32 --for-s 86400 --reason 'guesses passwords'")
        drill.run(f"millrace clients bans --broker {broker}")
        drill.until_value('sum(rate(millrace_connects_refused_total{reason="banned"}[10s]))', lambda values: values and values[0] > 1)
        drill.until_value('sum(rate(millrace_connects_refused_total{reason="credentials"}[10s]))', lambda values: values == [0])
        drill.check("the banned address costs no more password checks", True)
        drill.say("the guesser gives up")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    drill.ends("CredentialsGuessed")
