"""One of three FoundationDB machines ends, then a second one: the cluster is degraded, then unavailable. The runbook brings it back."""

from clusters import Cluster
from observe import until
from stage import Publisher, Subscriber

HEALTHY, TOLERANCE = "foundationdb_healthy", "foundationdb_fault_tolerance"


def run(drill):
    cluster = Cluster(drill, machines=3, redundancy="double")
    drill.server(*cluster.flags)
    Subscriber("away", "drill/#").leave()
    writer = drill.keep(Publisher("drill/a", rate=20))
    drill.until_value("sum(rate(millrace_messages_received_total[10s]))", lambda values: values and values[0] > 10)
    drill.until_value(HEALTHY, lambda values: values == [1])
    drill.until_value(TOLERANCE, lambda values: values == [1])
    drill.until_no_alert()
    drill.query("sum by (role) (foundationdb_processes)")
    first, second, _ = cluster.machines
    drill.say(f"FAULT kill -9 of fdbserver on {first.name}")
    before = len(writer.acknowledged)
    first.kill()
    drill.fires("FoundationDBDegraded")
    drill.query("foundationdb_coordinators_unreachable")
    drill.query(TOLERANCE)
    drill.run("fdbcli --exec 'status details' | grep -A4 -E 'Replication health|Fault Tolerance|Coordinators'", lines=12)
    until(lambda: len(writer.acknowledged) > before + 100, "messages are not acknowledged")
    drill.check("messages are acknowledged without the machine", True)
    drill.say(f"FAULT kill -9 of fdbserver on {second.name}, too")
    second.kill()
    drill.fires("FoundationDBUnavailable")
    drill.run("fdbcli --timeout 20 --exec 'status details'", lines=20, fails=True)
    drill.query("sum by (reason) (rate(millrace_publishes_refused_total[10s])) > 0")
    drill.say("ACT   start the database on the machines that status names")
    for machine in (first, second):
        machine.start()
    drill.ends("FoundationDBUnavailable")
    drill.ends("FoundationDBDegraded")
    drill.until_value(HEALTHY, lambda values: values == [1])
    drill.until_value(TOLERANCE, lambda values: values == [1])
    drill.run("fdbcli --exec 'status details' | grep -E 'Replication health|Fault Tolerance'")
    drill.run("grep -o 'the store answers again' millrace.log | head -1")
    writer.settle()
    reader = drill.keep(Subscriber("away", "drill/#"))
    drill.all_arrived(writer, reader)
