"""A second region is made beside the first: they share nothing, and a tenant moves a broker, with its messages, to the new one."""

import urllib.error

from observe import HOST, get, until
from stage import Part, Publisher, Subscriber, millrace
from tenants import Tenant

PORTS = {"mqtt": 2883, "http": 9080, "admin": 9190}
NEW = f"http://{HOST}:{PORTS['http']}"


def flags(name):
    return ("--sign-up", "anybody", "--region", name, "--endpoint-domain", f"{name}.mqtt.test")


def region(drill, name):
    listen = [word for part, port in PORTS.items() for word in (f"--{part}-listen", f"{HOST}:{port}")]
    command = [millrace(), "serve", "--data-dir", drill.folder / name, "--ws-listen", "off", *listen, *flags(name)]
    part = drill.keep(Part(name, drill.folder / f"{name}.log", command))

    def is_well():
        try:
            return get(f"{NEW}/healthz")
        except OSError:
            return False

    drill.say(f"the region {name} runs: {until(is_well, part.text()).strip()}")


def refused(tenant, path, body):
    try:
        tenant.ask(path, body)
    except urllib.error.HTTPError as error:
        return error.code
    return None


def run(drill):
    drill.server(*flags("eu-1"))
    tenant = Tenant("ann")
    old = tenant.broker("plant")
    user, secret = tenant.device(old, "pump")
    # A session with messages that wait, which its client reads before it moves.
    Subscriber("meter", "plant/#", user=user, password=secret).leave()
    writer = drill.keep(Publisher("plant/a", rate=50, user=user, password=secret))
    drill.until_value("sum(millrace_clients_connected)", lambda values: values == [1])
    region(drill, "eu-2")
    drill.observe.add("millrace", f"{HOST}:{PORTS['admin']}", {"instance": "eu-2"})
    drill.until_value('up{job="millrace", instance="eu-2"}', lambda values: values == [1])

    drill.say("CHECK the regions share nothing")
    account = {"email": "bob@example.org", "password": "a sentence for nobody"}
    drill.check("a second tenant of the old region signs in there", refused(Tenant("bob"), "/sign-in", account) is None)
    elsewhere = Tenant("ann", NEW)
    code = refused(elsewhere, "/sign-in", account)
    drill.check(f"it cannot sign in at the new region: {code}", code == 401)
    names = [one["name"] for one in elsewhere.ask(f"/organisations/{elsewhere.organisation}/brokers")["items"]]
    drill.check("the new region has none of the old one's brokers", old not in names)
    drill.check("nothing of the old region's broker is in the new one's metrics", f'broker="{old}"' not in get(f"http://{HOST}:{PORTS['admin']}/metrics"))

    drill.say("ACT   make the broker in the new region, with new credentials, and move the publisher")
    new = elsewhere.broker("plant")
    new_user, new_secret = elsewhere.device(new, "pump")
    writer.settle().leave()
    # The subscription comes first, so that it gets every message.
    reader = drill.keep(Subscriber("meter", "plant/#", port=PORTS["mqtt"], user=new_user, password=new_secret))
    moved = drill.keep(Publisher("plant/a", rate=50, port=PORTS["mqtt"], user=new_user, password=new_secret))
    drill.say("ACT   read what waits in the old region, then delete the old broker")
    last = Subscriber("meter", "plant/#", user=user, password=secret)
    until(lambda: not writer.acknowledged - {int(payload) for payload in last.got}, "messages are left in the old region")
    drill.check(f"all {len(writer.acknowledged)} messages that waited in the old region arrived", True)
    last.leave()
    tenant.ask(f"/organisations/{tenant.organisation}/brokers/{old}", method="DELETE")
    left = [one["name"] for one in tenant.ask(f"/organisations/{tenant.organisation}/brokers")["items"]]
    drill.check("the old region has no such broker any more", old not in left)
    until(lambda: len(moved.acknowledged) > 100, "the publisher does not continue")
    drill.all_arrived(moved, reader)
    drill.until_no_alert()
