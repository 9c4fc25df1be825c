"""The clients that generated/generate.sh makes from openapi.json, against a running server.

Each client has all operations of the description, and its driver goes through the life of a broker: see STEPS. A client that
could not be generated here was named as SKIPPED before."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from checks import equal, run
from tenant import Api

SUITE = "generated"
ROOT = Path(__file__).parents[4]
WORK = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "generated"
STEPS = ["broker", "credential", "rule", "publish", "usage", "delete", "problem"]
SCOPES = [f"{what}:{how}" for what in ("brokers", "access", "messages") for how in ("read", "write")]
DRIVER_SECONDS_MAX = 120


def words(operation):
    return "".join(word.capitalize() for word in operation.split("_"))


def in_go(operation):
    return f") {words(operation)}WithResponse("


def in_typescript(operation):
    name = words(operation)
    return f" {name[0].lower()}{name[1:]}Raw("


# Name, how its driver is run, where its sources are, and how an operation is found in them.
CLIENTS = [
    ("go", ["./driver"], "millrace/client.go", in_go),
    ("typescript", ["node", "build/driver.js"], "millrace/apis/*.ts", in_typescript),
    ("python", ["../generators/bin/python", "driver.py"], "millrace/api/*/*.py", lambda operation: f"/{operation}.py\n"),
]


def has_all_operations(name, sources, sign):
    description = json.loads((ROOT / "services/control/openapi.json").read_text())
    text = "".join(f"{it}\n{it.read_text()}" for it in (WORK / name).glob(sources))
    operations = [it["operationId"] for item in description["paths"].values() for it in item.values() if "operationId" in it]
    equal([it for it in operations if sign(it) not in text], [], "operations without function")
    if len(operations) < 100:
        raise AssertionError(f"the description has {len(operations)} operations")


def drive(name, command, environment):
    program = command[0] if command[0] == "node" else str(WORK / name / command[0])
    ended = subprocess.run(
        [program, *command[1:]], cwd=WORK / name, env={**os.environ, **environment}, timeout=DRIVER_SECONDS_MAX,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    if ended.returncode:
        raise AssertionError(ended.stdout[-2000:])
    equal(re.findall("^done: (.*)$", ended.stdout, re.M), STEPS, "steps")


def main():
    clients = [it for it in CLIENTS if (WORK / f"{it[0]}.sha256").exists()]
    if not clients:
        sys.exit(f"FAILED: {SUITE}: no client was generated")
    api = Api(os.environ["OPEN_HTTP"])
    organisation = api.sign_up(os.environ["OPEN_LOG"])
    token = api("POST", f"{organisation}/tokens", {"name": "generated", "scopes": SCOPES})["secret"]
    environment = {
        "MILLRACE_API": api.url, "MILLRACE_TOKEN": token, "MILLRACE_ORGANISATION": organisation.rsplit("/", 1)[-1],
    }
    checks = []
    for name, command, sources, sign in clients:
        checks += [
            (f"{name}: has every operation", lambda it=(name, sources, sign): has_all_operations(*it)),
            (f"{name}: {', '.join(STEPS)}", lambda it=(name, command): drive(*it, environment)),
        ]
    run(SUITE, checks)


main()
