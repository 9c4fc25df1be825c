"""Whether the monthly costs on the pages are those of the capacity model, and add up.

    costs.py ROOT

1. Each line of FIRST-DEVICE.md's table that has a part of the model is what capacity.py computes today.
2. The columns of both tables add up, and both pages come to the same sum.
3. The machines of fleet.toml are those of the example.
4. Both pages know how many of AWS's services are inside the network, and what each costs.
5. The quota of virtual CPUs has room for the region, and for the spare machines of an upgrade of all groups at once.
"""

import json
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(sys.argv[1])
EXAMPLES = ["small", "production"]
# A line of the page, and the model's name of it.
LINES = {"gateways": "gateway", "edge": "edge", "FoundationDB with disks": "store", "NATS": "fabric", "traffic to the internet": "egress"}
# A machine of the model, and the variable of modules/region.
MACHINES = {"gateway": "gateway", "edge": "edge", "store": "foundationdb", "fabric": "nats"}
# An interface endpoint in three zones for a month, in eu-central-1.
ENDPOINT_USD = 3 * 730 * 0.012
PROCESSORS = {"small": 2, "medium": 2, "large": 2, "xlarge": 4, "2xlarge": 8}
# Columns of README.md's table: part, then machines and USD of each example, such as `2 t3.medium, t3.small` and `70`.
# Lines of README.md with machines, each with its machines that a group replaces, with a spare one first.
IN_GROUPS = {"gateways": 1, "edge": 1, "FoundationDB": 0, "NATS": 0, "control, telemetry": 1}
wrong = []


def figure(text):
    found = re.search(r"\d[\d,]*", text)
    return int(found[0].replace(",", "")) if found else None


def table(page, heading):
    """The rows of the first table below a heading, as lists of cells."""
    text = (ROOT / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]


def model(example):
    program, fleet = ROOT / "loadtests/capacity/capacity.py", ROOT / f"terraform/examples/{example}/fleet.toml"
    answer = json.loads(subprocess.run([sys.executable, "-B", program, "--json", fleet], capture_output=True, check=True).stdout)
    (region,) = answer["regions"].values()
    return region["monthly_usd"] | {"capacity model": answer["monthly_usd"]}


def expect(what, found, expected, tolerance=0.5):
    if found is None or abs(found - expected) > tolerance:
        wrong.append(f"{what}: the page says {found}, it is {expected:.0f}")


def first_device():
    rows = {row[0].strip("*"): row[1:] for row in table("terraform/FIRST-DEVICE.md", "What it costs a month")}
    sums = []
    for column, example in enumerate(EXAMPLES):
        costs = model(example)
        for line, part in LINES.items() | {("capacity model", "capacity model")}:
            expect(f"FIRST-DEVICE.md, {example}, {line}", figure(rows[line][column]), costs[part])
        beside = sum(figure(row[column]) or 0 for line, row in rows.items() if line.startswith("not in the model"))
        sums.append(costs["capacity model"] + beside)
        expect(f"FIRST-DEVICE.md, {example}, together", figure(rows["together, about"][column]), sums[-1], 50)
    return [(sums[column], model(example)["egress"]) for column, example in enumerate(EXAMPLES)]


def readme(sums):
    rows = table("terraform/README.md", "What it costs")
    for column, (example, (together, egress)) in enumerate(zip(EXAMPLES, sums)):
        cells = [figure(row[2 + 2 * column]) for row in rows[1:] if not row[0].startswith("**")]
        total = figure(rows[-1][2 + 2 * column])
        expect(f"README.md, {example}, a month", total, sum(cells), 50)
        expect(f"README.md, {example}, with traffic", round(sum(cells) + egress), together, 50)


def machines():
    defaults = (ROOT / "terraform/modules/region/variables.tf").read_text()
    for example in EXAMPLES:
        own = (ROOT / f"terraform/examples/{example}/main.tf").read_text()
        fleet = tomllib.loads((ROOT / f"terraform/examples/{example}/fleet.toml").read_text())
        for part, variable in MACHINES.items():
            kind = rf'\b{variable}\s*=\s*(?:optional\([^)]*\), )?{{ type = "([^"]+)"'
            found = re.search(kind, own) or re.search(kind, defaults)
            if found is None or found[1] != fleet["machines"][part]["type"]:
                wrong.append(f"{example}: the machine of {part} in fleet.toml is not that of the example: {found and found[1]}")


def endpoints():
    variables = (ROOT / "terraform/modules/network/variables.tf").read_text().split('variable "interface_endpoints"')[1]
    names = re.findall(r'"([\w.]+)"', re.search(r"default\s*=\s*\[(.*?)\]", variables, re.S)[1])
    cells = next(row for row in table("terraform/README.md", "What it costs") if row[0].startswith("AWS's services"))
    for count, usd in [cells[1:3], cells[3:5]]:
        expect("README.md, AWS's services inside the network, number", figure(count), len(names))
        expect("README.md, AWS's services inside the network", figure(usd), len(names) * ENDPOINT_USD, 5)
    for page in ["README.md", "FIRST-DEVICE.md"]:
        text = " ".join((ROOT / "terraform" / page).read_text().split())
        found = re.search(r'`nat_gateways = "none"`.*?Auto Scaling.*?(\d+)', text)
        expect(f"{page}, the endpoint of Auto Scaling", found and int(found[1]), ENDPOINT_USD)


def quota():
    rows = {row[0]: row for row in table("terraform/README.md", "What it costs")}
    text = " ".join((ROOT / "terraform/FIRST-DEVICE.md").read_text().split())
    said = re.search(r"`small` has (\d+) virtual CPUs and needs (\d+) for an upgrade; `production` has (\d+) and needs (\d+)", text)
    percent = int(re.search(r"max_healthy_percentage = (\d+)", (ROOT / "terraform/modules/group/main.tf").read_text())[1])
    for column, example in enumerate(EXAMPLES):
        running = spare = 0
        for line, in_groups in IN_GROUPS.items():
            for number, machines in enumerate(rows[line][1 + 2 * column].split(", ")):
                count, kind = re.fullmatch(r"(?:(\d+) )?\w+\.(\w+)", machines).groups(default="1")
                running += int(count) * PROCESSORS[kind]
                if number < in_groups:
                    spare += (math.ceil(int(count) * percent / 100) - int(count)) * PROCESSORS[kind]
        expect(f"FIRST-DEVICE.md, {example}, virtual CPUs", int(said[1 + 2 * column]), running)
        expect(f"FIRST-DEVICE.md, {example}, virtual CPUs for an upgrade", int(said[2 + 2 * column]), running + spare)
    expect("FIRST-DEVICE.md, the quota of the command", figure(text.split("--desired-value ")[1]), int(said[2]))


readme(first_device())
machines()
endpoints()
quota()
print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
print(f"costs of the pages: {len(wrong)} wrong")
sys.exit(1 if wrong else 0)
