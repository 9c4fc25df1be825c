#!/usr/bin/env python3
"""Reads an applied region as an attacker would: what is public, what each role may do, and which secrets are in state and user data.

    terraform show -json | exposure.py NAME       NAME is the region's; the AWS services are where AWS_ENDPOINT_URL says
"""

import base64
import gzip
import json
import re
import sys
import urllib.parse

import boto3

NAME = sys.argv[1]

# Everything that somebody on the internet reaches: security group and port.
PUBLIC = {("gateway-balancer", 8883), ("gateway-balancer", 443), ("control-balancer", 443)}
BALANCERS = {f"{NAME}-gateway", f"{NAME}-control"}

SHELL = {"ssm:UpdateInstanceInformation on *"} | {
    f"ssmmessages:{verb}{kind}Channel on *" for verb in ("Create", "Open") for kind in ("Control", "Data")
}
COMMON = SHELL | {"s3:GetObject on artifacts", "kms:Decrypt on the key, via s3 and secretsmanager"}
OWN_SECRET = {"secretsmanager:GetSecretValue on {role}'s secret"}
BACKUPS = {f"s3:{action} on backups" for action in ("PutObject", "GetObject", "DeleteObject", "AbortMultipartUpload", "ListBucket")}
# By kind of machine: all that its role may do.
MAY = {
    "edge": COMMON | OWN_SECRET | {"autoscaling:CompleteLifecycleAction on its own group"},
    "control": COMMON | OWN_SECRET,
    "gateway": COMMON | OWN_SECRET | {"ec2:DescribeInstances on *"},
    "nats": COMMON | OWN_SECRET,
    "foundationdb": COMMON | OWN_SECRET | BACKUPS | {"kms:GenerateDataKey on the key, via s3"},
    "telemetry": COMMON | {"ec2:DescribeInstances on *", "ec2:DescribeAvailabilityZones on *"},
}

# Types of resources that contain a secret, and a pattern of texts that are one.
SECRET_TYPES = {"aws_secretsmanager_secret_version", "aws_iam_access_key", "random_password", "tls_private_key", "aws_ssm_parameter"}
# An address of NATS may have a user without a scheme before it.
SECRET_TEXT = re.compile(r"BEGIN [A-Z ]*PRIVATE KEY|\b(AKIA|ASIA)[A-Z0-9]{16}\b|://[^\s\"\\@]+@|\bnats = [^\]\n]*@")
HAVE_USER_DATA = {"aws_instance", "aws_launch_template"}

found = []


def list_of(value):
    return value if isinstance(value, list) else [value]


def resources(module):
    yield from module.get("resources", [])
    for child in module.get("child_modules", []):
        yield from resources(child)


def public(state):
    ec2 = boto3.client("ec2")
    groups = {group["GroupId"]: group["GroupName"] for group in ec2.describe_security_groups()["SecurityGroups"]}
    inside = {vpc["CidrBlock"] for vpc in ec2.describe_vpcs()["Vpcs"]}
    for rule in ec2.describe_security_group_rules()["SecurityGroupRules"]:
        kind = groups[rule["GroupId"]].removeprefix(f"{NAME}-")
        from_where = rule.get("CidrIpv4") or rule.get("CidrIpv6")
        # The account's own default network has groups, too, which no machine is in.
        if rule["IsEgress"] or not from_where or from_where in inside or groups[rule["GroupId"]] == "default":
            continue
        if (kind, rule["FromPort"]) not in PUBLIC or rule["FromPort"] != rule["ToPort"]:
            found.append(f"the internet may connect to {kind}, ports {rule['FromPort']} to {rule['ToPort']}")
    if (facing := {it["values"]["name"] for it in state if it["type"] == "aws_lb" and not it["values"]["internal"]}) != BALANCERS:
        found.append(f"load balancers that face the internet: {sorted(facing)}")
    exposed = {
        link["SubnetId"]
        for table in ec2.describe_route_tables()["RouteTables"]
        if any(route.get("GatewayId", "").startswith("igw-") for route in table["Routes"])
        for link in table["Associations"]
        if "SubnetId" in link
    }
    for reservation in ec2.describe_instances()["Reservations"]:
        for machine in reservation["Instances"]:
            if machine["SubnetId"] in exposed:
                found.append(f"the machine {machine['InstanceId']} is in a subnet with a way to the internet gateway")


def permission(action, statement, resource, kind, key):
    """One line for what a statement allows. Where that is as it should be, the line has names of MAY."""
    condition = statement.get("Condition", {}).get("StringEquals", {}).get("kms:ViaService")
    end = resource.removeprefix("arn:aws:")
    if resource == key:
        via = sorted(name.split(".")[0] for name in list_of(condition or []))
        end = "the key" + (f", via {' and '.join(via)}" if via else "")
    elif match := re.match(rf"s3:::{NAME}-(artifacts|backups)-\d+(/.*)?$", end):
        # A program is one object, not all of the bucket.
        end = end if match[1] == "artifacts" and (not match[2] or "*" in match[2]) else match[1]
    elif re.fullmatch(rf"secretsmanager:[^*]*:secret:{NAME}/{kind}-\w+", end):
        end = "{role}'s secret"
    elif re.fullmatch(rf"autoscaling:[^*:]+:\d+:autoScalingGroup:\*:autoScalingGroupName/{NAME}-{kind}", end):
        end = "its own group"
    return f"{action} on {end}"


def roles(state):
    iam = boto3.client("iam")
    [key] = {it["values"]["arn"] for it in state if it["type"] == "aws_kms_key"}
    seen = set()
    for role in iam.list_roles()["Roles"]:
        name = role["RoleName"]
        match = re.fullmatch(NAME + r"-([a-z]+)(-\d+-(store|bus))?-[a-z]+-[a-z]+-\d", name)
        kind = match and match[1]
        if kind not in MAY:
            found.append(f"the role {name} is of no kind of machine")
            continue
        seen.add(kind)
        users = {json.dumps(it["Principal"]) for it in role["AssumeRolePolicyDocument"]["Statement"]}
        if users != {'{"Service": "ec2.amazonaws.com"}'}:
            found.append(f"the role {name} may be taken by {sorted(users)}")
        if iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
            found.append(f"the role {name} has a policy of somebody else")
        may = set()
        for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]:
            document = iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
            document = document if isinstance(document, dict) else json.loads(urllib.parse.unquote(document))
            for statement in list_of(document["Statement"]):
                if statement["Effect"] != "Allow":
                    continue
                for action in list_of(statement["Action"]):
                    may |= {permission(action, statement, it, kind, key) for it in list_of(statement["Resource"])}
        found.extend(f"the role {name} may {it}" for it in sorted(may - MAY[kind]))
        found.extend(f"the role {name} may no longer {it}" for it in sorted(MAY[kind] - may))
    if seen != set(MAY):
        found.append(f"no role was found of {sorted(set(MAY) - seen)}")


def is_everybody(principal):
    return any("*" in list_of(who) for who in (principal.values() if isinstance(principal, dict) else [principal]))


def buckets():
    s3 = boto3.client("s3")
    names = [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    if len(names) != 3:
        found.append(f"other buckets than artifacts, backups and logs: {names}")
    for name in names:
        block = s3.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"]
        if not all(block.values()):
            found.append(f"the bucket {name} may become public: {block}")
        statements = json.loads(s3.get_bucket_policy(Bucket=name)["Policy"])["Statement"]
        if not any(it["Effect"] == "Deny" and "aws:SecureTransport" in json.dumps(it.get("Condition")) for it in statements):
            found.append(f"the bucket {name} may be read without TLS")
        if any(it["Effect"] == "Allow" and is_everybody(it["Principal"]) for it in statements):
            found.append(f"the policy of the bucket {name} lets everybody in")


def services(state):
    """AWS's services inside the network. Session Manager's channels have no policy; modules/network says why."""
    for it in state:
        if it["type"] == "aws_vpc_endpoint" and (name := it["values"]["service_name"].split(".")[-1]) != "ssmmessages":
            if "aws:PrincipalAccount" not in (it["values"]["policy"] or ""):
                found.append(f"the service {name} inside the network takes keys of another account, which can carry data out")


def machines(state):
    """Disks and the metadata service, as Terraform's state has them."""
    for it in state:
        values, kind = it["values"], it["type"]
        options = values.get("metadata_options") or [] if kind in ("aws_instance", "aws_launch_template") else []
        if kind in ("aws_instance", "aws_launch_template") and (
            not options or options[0]["http_tokens"] != "required" or options[0]["http_put_response_hop_limit"] != 1
        ):
            found.append(f"{it['address']}: a program that is tricked into a request reads the role's keys")
        disks = [values] if kind == "aws_ebs_volume" else values.get("root_block_device") or []
        disks = disks + [mapping["ebs"][0] for mapping in values.get("block_device_mappings") or []]
        found.extend(f"{it['address']}: a disk without encryption" for disk in disks if str(disk["encrypted"]).lower() != "true")


def user_data(values):
    """The texts of a machine's user data, which may be compressed, in base64 or plain. The provider's state
    has only the SHA-1 of some texts."""
    for name in ("user_data", "user_data_base64"):
        value = values.get(name)
        if not value or re.fullmatch(r"[0-9a-f]{40}", value):
            continue
        try:
            data = base64.b64decode(value, validate=True)
            yield (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode()
        except (OSError, EOFError, ValueError):
            yield value


def secrets(state):
    read = 0
    for it in state:
        if it["type"] in SECRET_TYPES:
            found.append(f"{it['address']} has a secret in Terraform's state")
        texts = list(user_data(it["values"]))
        if it["type"] in HAVE_USER_DATA and not texts:
            found.append(f"{it['address']} has no user data that this check can read")
        read += bool(texts)
        if match := SECRET_TEXT.search(json.dumps(it["values"])):
            found.append(f"{it['address']} has a secret in Terraform's state: {match[0][:20]}")
        found.extend(f"{it['address']} has a secret in its user data: {match[0][:20]}" for text in texts if (match := SECRET_TEXT.search(text)))
    if read < len(MAY):
        found.append(f"the user data of {read} resources was read, which is too few")


state = [it for it in resources(json.load(sys.stdin)["values"]["root_module"]) if it["mode"] == "managed"]
public(state)
roles(state)
buckets()
services(state)
machines(state)
secrets(state)
for line in found:
    print(f"EXPOSED: {line}")
print(f"exposure: {len(state)} resources read, {len(found)} findings")
sys.exit(bool(found))
