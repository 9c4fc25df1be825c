#!/usr/bin/env python3
"""Turns Kubernetes' OpenAPI definitions into the JSON schemas that kubeconform reads: one file a kind.

    kubernetes_schemas.py FOLDER swagger SWAGGER        Kubernetes' own kinds
    kubernetes_schemas.py FOLDER crds FILE...           kinds of an operator, from its CustomResourceDefinitions in JSON or YAML

An object may have no field that is not described, so that a misspelt one is found.
"""

import json
import pathlib
import sys

PREFIX = "#/definitions/"
# Fields whose JSON has other types than the definitions say.
LOOSE = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
}


def point(value):
    """References go to the one file with all definitions."""
    if isinstance(value, dict):
        return {
            key: f"_definitions.json{inner}" if key == "$ref" and isinstance(inner, str) else point(inner)
            for key, inner in value.items()
        }
    return [point(inner) for inner in value] if isinstance(value, list) else value


def closed(name, definition):
    if name in LOOSE:
        return LOOSE[name]
    if "properties" in definition and "additionalProperties" not in definition:
        return definition | {"additionalProperties": False}
    return definition


def file_name(kind):
    parts = [kind["kind"].lower(), kind["group"].split(".")[0], kind["version"]]
    return "-".join(part for part in parts if part) + ".json"


def closed_inside(schema):
    """closed() for every object inside a schema that has no references."""
    if isinstance(schema, list):
        return [closed_inside(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: closed_inside(inner) for key, inner in schema.items()}
    is_object = schema.get("type") == "object" and isinstance(schema.get("properties"), dict)
    return closed("", schema) if is_object and not schema.get("x-kubernetes-preserve-unknown-fields") else schema


def read(file):
    text = pathlib.Path(file).read_text()
    if file.endswith(".json"):
        return json.loads(text)
    import yaml  # Not everywhere; Kubernetes' own definitions need none.

    return yaml.safe_load(text)


def crds(folder, *files):
    for file in files:
        spec = read(file)["spec"]
        for version in spec["versions"]:
            kind = {"kind": spec["names"]["kind"], "group": spec["group"], "version": version["name"]}
            (folder / file_name(kind)).write_text(json.dumps(closed_inside(version["schema"]["openAPIV3Schema"])))


def swagger(folder, file):
    definitions = json.loads(pathlib.Path(file).read_text())["definitions"]
    definitions = {name: point(closed(name, definition)) for name, definition in definitions.items()}
    (folder / "_definitions.json").write_text(json.dumps({"definitions": definitions}))
    for definition in definitions.values():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            (folder / file_name(kind)).write_text(json.dumps(definition))


def main(folder, what, *files):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    {"swagger": swagger, "crds": crds}[what](folder, *files)


main(*sys.argv[1:])
