#!/usr/bin/env python3
"""Writes a list of components (CycloneDX 1.5) of the program millrace, from `cargo metadata` on standard input.

The argument is the program's features. Only what the program itself is built of is listed: no tools of its tests.
"""

import json
import sys

metadata = json.load(sys.stdin)
features = [name for name in sys.argv[1:] if name != "none"]
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


listed = sorted((packages[each] for each in seen if each != root["id"]), key=lambda each: (each["name"], each["version"]))
document = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {
        "component": component(root) | {"type": "application"},
        "properties": [{"name": "millrace:features", "value": ",".join(features) or "none"}],
    },
    "components": [component(package) for package in listed],
    "dependencies": [
        {"ref": reference(packages[each]), "dependsOn": sorted({reference(packages[dep]) for dep in normal(nodes[each])})}
        for each in sorted(seen)
    ],
}
json.dump(document, sys.stdout, indent=1)
print()
