"""The drill of runbooks/capacity-nearly-out.md for CPU: another program uses the CPU of a pod's machine; it is found and ended. The machine is
a cgroup with one CPU, which the node exporter shows as a machine of its own."""

from observe import until
from stage import Part, Publisher, Subscriber

MEMORY_BYTES = 1 << 30
USED = 'sum by (instance) (rate(node_cpu_seconds_total{mode!~"idle|iowait"}[10s])) / count by (instance) (node_cpu_seconds_total{mode="idle"})'


def run(drill):
    machine = drill.machine(MEMORY_BYTES)
    server = drill.server(before=machine.enter)
    drill.shows(machine)
    reader = drill.keep(Subscriber("reader", "drill/#"))
    writer = drill.keep(Publisher("drill/a", rate=50))
    drill.until_value(USED, lambda values: values and values[0] < 0.6)
    until(lambda: "CpuNearlyOut" not in drill.observe.alerts(), "CpuNearlyOut fires before the fault")
    drill.until_no_alert()
    drill.say("FAULT another program computes without a pause")
    # nice: the node exporter shares this CPU and must keep answering, because an unanswered scrape would end the alert.
    hog = drill.keep(Part("hog", drill.folder / "hog.log", [*machine.enter, "nice", "-n", "19", "sh", "-c", "while :; do :; done"]))
    drill.until_value(USED, lambda values: values and values[0] > 0.9)
    drill.fires("CpuNearlyOut")
    drill.query(USED)
    drill.query('rate(process_cpu_seconds_total{job="millrace"}[10s])')
    drill.query("topk(5, broker:millrace_messages:rate5m)")
    found = drill.run(f"ps -o pcpu,comm --sort=-pcpu -p $(paste -sd, {machine.groups['cpu']}/cgroup.procs) | head -3")
    drill.check("ps names that program first", found.splitlines()[1].split()[-1] == "sh")
    drill.say("ACT   end that program")
    hog.kill()
    drill.ends("CpuNearlyOut")
    drill.query(USED)
    drill.check("the server runs as before", server.process.poll() is None)
    drill.all_arrived(writer, reader)
