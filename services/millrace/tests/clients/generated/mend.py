"""Mends what the generators cannot read in openapi.json, and says so. It prints nothing when there is nothing to mend.

    mend.py OPENAPI MENDED

Each mend is a flaw that remains to be mended in services/control/src; then its line is no longer printed, and it can be deleted.
No mend changes what the server sends.
"""

import json
import sys


def tuple_of_property(description):
    """oapi-codegen and openapi-python-client cannot read `items: false`, which closes a tuple."""
    for part in description["components"]["schemas"]["RetainedMessage"].get("allOf", []):
        pair = part.get("properties", {}).get("properties", {}).get("items", {})
        if pair.pop("prefixItems", None):
            pair.update(items={"type": "string"}, minItems=2, maxItems=2)
            return "RetainedMessage.properties: `items: false`"
    return None


def default_of_step(description):
    """No value is a string and an object at once."""
    found = False
    for item in description["paths"].values():
        for operation in item.values():
            for parameter in operation.get("parameters", []):
                parts = parameter["schema"].get("allOf", [])
                if len(parts) == 2 and parts[1].keys() == {"type", "default"}:
                    parameter["schema"] = {**parts[0], "default": parts[1]["default"]}
                    found = True
    return "parameter `step`: an `allOf` of a string and an object" if found else None


def licence(description):
    """openapi-generator refuses a licence without identifier."""
    known = description["info"]["license"]
    if "identifier" in known or "url" in known:
        return None
    known["identifier"] = known["name"]
    return "info.license without identifier"


def client(description):
    """oapi-codegen has a type Client of its own."""
    schemas = description["components"]["schemas"]
    if "Client" not in schemas:
        return None
    schemas["ConnectedClient"] = schemas.pop("Client")

    def rename(node):
        if isinstance(node, dict):
            if node.get("$ref") == "#/components/schemas/Client":
                node["$ref"] = "#/components/schemas/ConnectedClient"
            for value in node.values():
                rename(value)
        elif isinstance(node, list):
            for value in node:
                rename(value)

    rename(description)
    return "the schema `Client`"


def main(openapi, mended):
    with open(openapi) as file:
        description = json.load(file)
    for mend in (tuple_of_property, default_of_step, licence, client):
        flaw = mend(description)
        if flaw:
            print(f"MENDED: openapi.json: {flaw}: {mend.__doc__}")
    with open(mended, "w") as file:
        json.dump(description, file)


main(*sys.argv[1:])
