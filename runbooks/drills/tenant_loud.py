"""One tenant has nearly all messages of the region; the operator finds the tenant by the broker's name and suspends it."""

import json
import socket
import threading

from observe import until
from stage import Publisher, Subscriber
from tenants import Tenant

# 40,000 messages a second: the alert needs 10,000 over five minutes.
BATCH, PAUSE_SECONDS = 2000, 0.05
OPERATOR = "MILLRACE_OPERATOR_TOKEN_FILE=operator-token millrace"


def text(value):
    return len(value).to_bytes(2, "big") + value.encode()


def flood(user, secret, over):
    """QoS 0 publishes, in batches, until the server closes the connection. The bytes are those of MQTT 3.1.1."""
    body = b"\x00\x04MQTT\x04\xc2\x00\x3c" + text("flood") + text(user) + text(secret)
    with socket.create_connection(("127.0.0.1", 1883)) as sock:
        sock.sendall(bytes([0x10, len(body)]) + body)
        assert sock.recv(4) == b"\x20\x02\x00\x00"
        packet = b"\x30\x0a" + text("loud") + b"nois"
        try:
            while not over.wait(PAUSE_SECONDS):
                sock.sendall(packet * BATCH)
        except OSError:
            pass


def run(drill):
    token = "an operator's token of 32 characters"
    (drill.folder / "operator-token").write_text(token)
    drill.server("--sign-up", "anybody", "--operator-token-file", drill.folder / "operator-token")
    loud, quiet = Tenant("loud"), Tenant("quiet")
    noisy, calm = loud.broker("Test bench"), quiet.broker("Plant 7")
    user, secret = quiet.device(calm, "pump")
    reader = drill.keep(Subscriber("reader", "plant/#", user=user, password=secret))
    drill.keep(Publisher("plant/a", rate=20, user=user, password=secret))
    drill.until_value(f'broker:millrace_messages:rate5m{{broker="{calm}"}}', lambda values: values and values[0] > 5)
    drill.until_no_alert()
    drill.say("FAULT a device of one tenant publishes as fast as it can")
    over = threading.Event()
    thread = threading.Thread(target=flood, args=(*loud.device(noisy, "bench"), over), daemon=True)
    thread.start()
    try:
        drill.fires("TenantLoud")
        drill.query("topk(5, broker:millrace_messages:rate5m)")
        before = len(reader.got)
        until(lambda: len(reader.got) > before + 50, "the neighbour gets nothing")
        drill.check("the neighbour's messages continue", True)
        drill.run(f"{OPERATOR} tenants loudest --limit 5")
        found = json.loads(drill.run(f"{OPERATOR} tenants find {noisy} --json"))
        tenant = found["tenant"]["id"]
        drill.check("the broker's name leads to its tenant", tenant == loud.organisation)
        drill.say("ACT   suspend the tenant")
        drill.run(f"{OPERATOR} tenants suspend {tenant} --reason 'floods the region' --yes")
        thread.join(60)
        drill.check("the device's connection was closed", not thread.is_alive())
    finally:
        over.set()
        thread.join()
    drill.ends("TenantLoud")
    drill.say("ACT   the owner has repaired the device: resume the tenant")
    drill.run(f"{OPERATOR} tenants resume {tenant}")
    before = len(reader.got)
    until(lambda: len(reader.got) > before + 20, "the neighbour gets nothing")
