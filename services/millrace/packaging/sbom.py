#!/usr/bin/env python3
"""Writes a list of components (CycloneDX 1.5) of the program millrace: its libraries, and those of the web console in it.

    sbom.py ROOT CONSOLE FEATURES      the repository, its services/console, and the features that `millrace --version` names

Only what this machine's program is built of is listed: no tools of its tests, and no libraries of other systems.
"""

import json
import pathlib
import subprocess
import sys
import urllib.parse

root_folder, console = map(pathlib.Path, sys.argv[1:3])
features = [name for name in sys.argv[3].split(",") if name != "none"]


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=root_folder).stdout


host = next(line.split(" ")[1] for line in run("rustc", "-vV").splitlines() if line.startswith("host: "))
asked = [f"--features=millrace/{name}" for name in features]
metadata = json.loads(run("cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={host}", *asked))
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
root = next(package for package in metadata["packages"] if package["name"] == "millrace")


def normal(node):
    """Dependencies that are built into the program."""
    return [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]


seen, queue = set(), [root["id"]]
while queue:
    current = queue.pop()
    if current not in seen:
        seen.add(current)
        queue += normal(nodes[current])


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package):
    entry = {
        "type": "library",
        "bom-ref": reference(package),
        "purl": reference(package),
        "name": package["name"],
        "version": package["version"],
    }
    if package["license"]:
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    return entry


def console_components():
    """Libraries of the console, whose files services/millrace/build.rs puts into the program. Its lock file marks tools as dev."""
    if not (console / "dist/app/index.html").exists():
        return
    for place, package in json.loads((console / "package-lock.json").read_text())["packages"].items():
        if place and not package.get("dev"):
            name = place.rpartition("node_modules/")[2]
            purl = f"pkg:npm/{urllib.parse.quote(name)}@{package['version']}"
            # A version can lie in two places.
            entry = {"type": "library", "bom-ref": f"{purl}#{place}", "purl": purl, "name": name, "version": package["version"]}
            if "license" in package:
                entry["licenses"] = [{"expression": package["license"]}]
            yield entry


listed = sorted((packages[each] for each in seen if each != root["id"]), key=lambda each: (each["name"], each["version"]))
document = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {
        "component": component(root) | {"type": "application"},
        "properties": [{"name": "millrace:features", "value": ",".join(features) or "none"}],
    },
    "components": [*(component(package) for package in listed), *console_components()],
    "dependencies": [
        {"ref": reference(packages[each]), "dependsOn": sorted({reference(packages[dep]) for dep in normal(nodes[each])})}
        for each in sorted(seen)
    ],
}
json.dump(document, sys.stdout, indent=1)
print()
