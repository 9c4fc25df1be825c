"""The backlog of an abandoned session fills the store's disk; the session is purged, and the disk fills up no further."""

from observe import until
from stage import Publisher, Subscriber
from store_full import Disk
from tenants import Tenant

# The alert looks at six hours, and three days ahead.
SPEED = 720
FREE = "millrace_store_disk_free_bytes"


def run(drill):
    drill.run("mkdir disk && mount -t tmpfs -o size=3g tmpfs disk && df -h disk | tail -1")
    drill.keep(Disk(drill.folder / "disk"))
    drill.server("--sign-up", "anybody", "--queue-bytes-max", str(2 << 30), data=drill.folder / "disk/data")
    drill.run("head -c 2000M /dev/zero > disk/other; df -h disk | tail -1")
    tenant = Tenant("ann")
    broker = tenant.broker("Plant")
    user, secret = tenant.device(broker, "logger")
    Subscriber("abandoned", "plant/#", user=user, password=secret).leave()
    drill.until_value(FREE, lambda values: values and values[0] < 1200 << 20)
    until(lambda: "StoreFillsUp" not in drill.observe.alerts(), "StoreFillsUp fires before the fault", 120)
    drill.until_no_alert()
    drill.say("FAULT messages come for a session that nobody reads any more")
    user, secret = tenant.device(broker, "pump")
    writer = drill.keep(Publisher("plant/a", rate=40, size=150_000, user=user, password=secret))
    drill.fires("StoreFillsUp")
    drill.query(FREE)
    drill.query("deriv(millrace_store_disk_free_bytes[30s])")
    drill.run("du -xsh disk/* | sort -h | tail -3")
    drill.query("topk(5, sum by (broker) (rate(millrace_messages_stored_total[10s])))")
    drill.run(f"millrace streams list --broker {broker} --data-dir disk/data")
    drill.run(f"millrace sessions list --broker {broker} --data-dir disk/data")
    drill.say("ACT   purge the session, as its owner agreed")
    drill.run(f"millrace sessions purge abandoned --broker {broker} --data-dir disk/data --yes")
    # Less than a hundredth of what it was: an alert also ends when a busy machine misses scrapes.
    drill.until_value(f"deriv({FREE}[30s])", lambda values: values and values[0] > -30_000)
    drill.ends("StoreFillsUp")
    drill.query(FREE)
    writer.settle()
    drill.check(f"{len(writer.acknowledged)} messages were acknowledged, {len(writer.refused)} refused", not writer.refused)
