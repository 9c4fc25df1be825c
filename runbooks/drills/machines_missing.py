"""A machine of a region ends and leaves service discovery; the alert comes from the count that Terraform records, and ends with a new machine."""

from observe import HOST, program
from stage import Part

ROLE, WANTED = "nats", 3
PORT = 9110
RUNNING = 'count by (role) (up{job="host"})'


def machine(drill, number):
    """A node exporter stands for each machine, as each machine of terraform/ has one."""
    exporter = program("prometheus-node-exporter", "node_exporter", how="apt-get install prometheus-node-exporter")
    address = f"{HOST}:{PORT + number}"
    part = drill.keep(Part(f"machine-{number}", drill.folder / f"machine-{number}.log", [
        exporter, f"--web.listen-address={address}", "--web.disable-exporter-metrics", "--collector.disable-defaults", "--collector.loadavg",
    ]))
    drill.observe.add("host", address, {"instance": f"{ROLE}-{number}", "role": ROLE})
    return part


def run(drill):
    # terraform/modules/telemetry writes this file for each kind of machine.
    drill.rules["machines.yaml"] = (
        "groups:\n- name: machines\n  rules:\n  - record: region_machines_wanted\n"
        f"    expr: vector({WANTED})\n    labels: {{role: {ROLE}}}\n"
    )
    drill.server()
    machines = [machine(drill, number) for number in range(1, WANTED + 1)]
    drill.until_value(RUNNING, lambda values: WANTED in values)
    drill.query("region_machines_wanted")
    drill.until_value('ALERTS{alertname="MachinesMissing"}', lambda values: not values)
    drill.until_no_alert()
    drill.say("FAULT a machine ends, and service discovery forgets it")
    machines[1].kill()
    del drill.observe.found["host"][f"{HOST}:{PORT + 2}"]
    drill.observe.write_targets("host")
    drill.fires("MachinesMissing")
    drill.query(RUNNING)
    drill.check("no alert on a target that is down fires", not drill.observe.alerts() & {"PodDown", "TelemetryIncomplete"})
    drill.say("ACT   a new machine takes its place")
    machine(drill, WANTED + 1)
    drill.ends("MachinesMissing")
    drill.query(RUNNING)
