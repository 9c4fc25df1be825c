"""Whether the Terraform provider and services/control/openapi.json fit, without a server and without Go.

    contract.py ROOT

1. Each operation that the provider calls is in the description, with its method and path.
2. Each JSON field of the generated types is a property of the schema of that name.
3. Each attribute (`tfsdk`) of a model is a property of one of the schemas that the model stands for, or a parameter of a path.
4. Each property that the API takes has an attribute, so that nothing new in the API goes unnoticed.
"""

import json
import re
import sys
from pathlib import Path

# The model of each file: the schemas that it is sent as and read from.
MODELS = {
    "brokerModel": ["NewBroker", "BrokerChange", "Broker"],
    "limits": ["Limits"],
    "brokerLimits": ["BrokerLimits"],
    "clientLimits": ["ClientLimits"],
    "endpoint": ["Endpoint"],
    "endpoints": ["Endpoints"],
    "rule": ["Rule"],
    "credentialModel": ["NewCredential", "CredentialChange", "MadeCredential", "Rotation"],
    "claimTokenModel": ["NewClaimToken", "MadeClaimToken"],
    "groupModel": ["GroupSettings", "ShownGroup"],
    "clientCaModel": ["ClientCaSettings", "ShownClientCa"],
    "jwtIssuerModel": ["JwtIssuerSettings", "ShownJwtIssuer"],
    "issuerKey": ["IssuerKey"],
    "claims": ["ClaimMapping"],
    "webhookModel": ["WebhookSettings", "ShownWebhook"],
    "accessModel": ["AccessSettings"],
    "accessWebhook": ["AccessWebhook"],
    "spendCapModel": ["NewSpendCap", "SpendCap"],
    "tokenModel": ["NewToken", "MadeToken"],
    "memberModel": ["NewInvitation", "MemberChange", "Member", "MadeInvitation"],
    "brokerData": ["Broker"],
    "regionsData": ["Regions"],
    "regionData": ["Region"],
    "settings": [],
}
# Attributes that are the provider's own, and why.
OWN = {
    ("credentialModel", "secret_version"): "its change calls rotate_credential",
    ("memberModel", "invitation_token"): "`token` of MadeInvitation",
    ("settings", "endpoint"): "the address of the API",
    ("settings", "token"): "the API token",
}
# Properties of requests without an attribute, and why.
UNSET = {("AccessSettings", "by_settings"): "the resource takes the broker out of the server's settings, as the default false says"}
# Schemas of requests. Each of their properties must have an attribute in a model of theirs.
REQUESTS = re.compile(r"^New|Change$|Settings$|^Rotation$|^AccessWebhook$|^Rule$|Limits$|^IssuerKey$|^ClaimMapping$")


def main(root):
    provider = root / "terraform/provider/internal"
    description = json.loads((root / "services/control/openapi.json").read_text())
    schemas = description["components"]["schemas"]
    wrong = []

    def properties(schema):
        found = set(schema.get("properties", {}))
        if "$ref" in schema:
            found |= properties(schemas[schema["$ref"].rsplit("/", 1)[-1]])
        for part in ("allOf", "oneOf", "anyOf"):
            for it in schema.get(part, []):
                found |= properties(it)
        return found

    def fields(schema):
        """Properties at any depth: lists have their items in place."""
        found = properties(schema)
        for it in [*schema.get("properties", {}).values(), schema.get("items")]:
            if isinstance(it, dict):
                found |= fields(it)
        for part in ("allOf", "oneOf", "anyOf"):
            for it in schema.get(part, []):
                found |= fields(it)
        return found

    operations, parameters = 0, set()
    known = {
        it["operationId"]: (method.upper(), path)
        for path, item in description["paths"].items()
        for method, it in item.items()
        if isinstance(it, dict) and "operationId" in it
    }
    generated = (provider / "api/operations.gen.go").read_text()
    for name, method, path in re.findall(r'Name: "(\w+)", Method: "(\w+)", Path: "([^"]+)"', generated):
        operations += 1
        parameters |= set(re.findall(r"{(\w+)}", path))
        if known.get(name) != (method, path):
            wrong.append(f"operations.gen.go: {name} is {method} {path}; openapi.json has {known.get(name)}")

    types = (provider / "api/types.gen.go").read_text()
    json_fields = 0
    by_go_name = {re.sub(r"_", "", name): schema for name, schema in schemas.items()}
    for name, body in re.findall(r"^type (\w+) struct {\n(.*?)^}", types, re.M | re.S):
        if name.endswith("Params"):
            continue
        schema = by_go_name.get(name) or by_go_name.get(re.sub(r"\d+$", "", name))
        names = re.findall(r'json:"(\w+)', body)
        if schema is None:
            wrong.append(f"types.gen.go: openapi.json has no schema {name}")
            continue
        for field in names:
            json_fields += 1
            if field not in fields(schema):
                wrong.append(f"types.gen.go: {name}.{field} is not in openapi.json")

    models = {}
    for file in sorted((provider / "provider").glob("*.go")):
        for name, body in re.findall(r"^type (\w+) struct {\n(.*?)^}", file.read_text(), re.M | re.S):
            attributes = re.findall(r'tfsdk:"(\w+)"', body)
            if attributes:
                models[name] = (file.name, attributes)
    for name in models.keys() ^ MODELS.keys():
        wrong.append(f"contract.py: the model {name} is listed here, or there, but not in both")
    offered = {}
    for name, (file, attributes) in models.items():
        own = {attribute for model, attribute in OWN if model == name}
        for schema in MODELS.get(name, []):
            offered.setdefault(schema, set()).update(attributes)
        allowed = set().union(*(properties(schemas[it]) for it in MODELS.get(name, []) if it in schemas), parameters)
        wrong += [f"{file}: {name}.{it} is not in openapi.json" for it in attributes if it not in allowed | own]
    for schema, attributes in offered.items():
        if schema not in schemas:
            wrong.append(f"contract.py: openapi.json has no schema {schema}")
        elif REQUESTS.search(schema):
            unset = {it for of, it in UNSET if of == schema}
            missing = properties(schemas[schema]) - attributes - unset
            wrong += [f"openapi.json: {schema}.{it} has no attribute" for it in sorted(missing)]

    for line in wrong:
        print(line, file=sys.stderr)
    count = sum(len(attributes) for _, attributes in models.values())
    print(f"contract of the provider: {operations} operations, {json_fields} fields, {count} attributes: {len(wrong)} wrong")
    # A pattern that matches nothing would find nothing wrong.
    return 1 if wrong or min(operations, json_fields, count) < 30 else 0


sys.exit(main(Path(sys.argv[1])))
