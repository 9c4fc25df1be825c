"""Another program takes the memory of a pod's machine; it is found and ended, before the kernel kills the pod."""

from observe import until
from stage import Part, Publisher, Subscriber

MEMORY_BYTES = 1 << 30
LEFT = "node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes"


def run(drill):
    machine = drill.machine(MEMORY_BYTES)
    server = drill.server("--memory-max", str(MEMORY_BYTES), before=machine.enter)
    drill.shows(machine)
    reader = drill.keep(Subscriber("reader", "drill/#"))
    writer = drill.keep(Publisher("drill/a", rate=50))
    drill.until_value(LEFT, lambda values: values and values[0] > 0.3)
    until(lambda: "MemoryNearlyOut" not in drill.observe.alerts(), "MemoryNearlyOut fires before the fault")
    drill.until_no_alert()
    take = int(drill.values("node_memory_MemAvailable_bytes")[0] - 0.06 * MEMORY_BYTES)
    drill.say(f"FAULT another program takes {take >> 20} MiB")
    # The zeros have no line end, so tail holds all of them in memory.
    hog = drill.keep(Part("hog", drill.folder / "hog.log", [*machine.enter, "sh", "-c", f"(head -c {take} /dev/zero; sleep 600) | tail"]))
    drill.fires("MemoryNearlyOut")
    drill.query(LEFT)
    drill.query("millrace_memory_pressure")
    drill.query('process_resident_memory_bytes{job="millrace"} / on (instance) millrace_memory_budget_bytes')
    drill.run(f"ps -o rss,comm --sort=-rss -p $(paste -sd, {machine.groups['memory']}/cgroup.procs) | head -3")
    drill.say("ACT   end that program")
    hog.kill()
    drill.ends("MemoryNearlyOut")
    drill.query(LEFT)
    drill.check("the server was not killed", server.process.poll() is None)
    drill.all_arrived(writer, reader)
