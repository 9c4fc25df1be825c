"""A device's secret is rotated with an overlap, then deleted: each secret is refused once it should be."""

import time

from observe import until
from stage import make
from tenants import Tenant

OVERLAP_SECONDS = 20


def is_accepted(user, secret):
    """Whether a client with this secret is accepted."""
    answers = []
    client = make("pump", user, secret)
    client.on_connect = lambda _client, _data, _flags, reason, _properties: answers.append(not reason.is_failure)
    client.connect("127.0.0.1", 1883)
    client.loop_start()
    until(lambda: answers, "no CONNACK")
    client.disconnect()
    client.loop_stop()
    return answers[0]


def run(drill):
    drill.server("--sign-up", "anybody")
    tenant = Tenant("ann")
    broker = tenant.broker("Plant 7")
    user, old = tenant.device(broker, "pump-7")
    tenant.log_in()
    drill.check("the device connects with its secret", is_accepted(user, old))
    drill.until_no_alert()
    drill.say("ACT   make another secret; both are good for a while")
    said = drill.run(f"millrace credentials rotate pump-7 --broker {broker} --overlap-s {OVERLAP_SECONDS}")
    # The secret is the longest text without a space in the output.
    new = max(said.split(), key=len)
    began = time.monotonic()
    drill.check("the device connects with the new secret, and with the old one", is_accepted(user, new) and is_accepted(user, old))
    until(lambda: time.monotonic() > began + OVERLAP_SECONDS and not is_accepted(user, old), "the old secret is still good")
    drill.check("after the overlap the old secret is refused, and the new one is good", is_accepted(user, new))
    drill.say("ACT   the new secret may be known, too: delete the credential")
    drill.run(f"millrace credentials delete pump-7 --broker {broker} --yes")
    until(lambda: not is_accepted(user, new), "the deleted credential is still good")
    drill.check("the deleted credential is refused", True)
    drill.run("millrace audit --limit 5")
