"""A tenant's device publishes a hundred times as much as before; a spend cap stops what it costs."""

from observe import until
from stage import Publisher, Subscriber
from tenants import Tenant

# The rule compares with the day before, so the drill divides durations by more than the usual 12.
SPEED = 360
QUIET_SECONDS = 45


def run(drill):
    import time

    drill.server("--sign-up", "anybody", "--price", "messages_in=1000000", "--usage-interval-s", "1")
    tenant = Tenant("ann")
    broker = tenant.broker("Plant 7")
    user, secret = tenant.device(broker, "pump")
    reader = drill.keep(Subscriber("reader", "plant/#", qos=0, user=user, password=secret, lasts=False))
    usual = drill.keep(Publisher("plant/usual", qos=0, rate=4, user=user, password=secret))
    began = time.monotonic()
    until(lambda: time.monotonic() > began + QUIET_SECONDS, "", QUIET_SECONDS + 5)
    drill.query(f'broker:millrace_messages:rate5m{{broker="{broker}"}}')
    drill.until_no_alert()
    drill.say("FAULT a retry without a pause")
    runaway = drill.keep(Publisher("plant/retry", rate=400, user=user, password=secret))
    drill.fires("TenantRunsAway")
    tenant.log_in()
    drill.run(f"millrace usage --broker {broker}")
    drill.run(f"millrace clients list --broker {broker} --limit 5")
    drill.say("ACT   the owner sets a spend cap that is reached")
    drill.run(f"millrace caps set 1000 --action stop --broker {broker}")
    drill.until_value("sum by (reason) (rate(millrace_publishes_refused_total{reason=\"spend_cap\"}[10s])) + on () group_left ()"
                      " sum(rate(millrace_connects_refused_total{reason=\"spend_cap\"}[10s]))", lambda values: values and values[0] > 0)
    drill.run(f"millrace caps show --broker {broker}")
    drill.ends("TenantRunsAway")
    drill.say("ACT   the device is repaired, and the owner removes the cap")
    runaway.leave()
    drill.run(f"millrace caps delete --broker {broker} --yes")
    before = len(reader.got)
    until(lambda: len(reader.got) > before + 10, "the broker's messages do not continue")
    drill.check("the broker's usual messages continue", True)
    usual.leave()
