#!/usr/bin/env python3
"""Finds security group rules that an interrupted apply made and did not write into Terraform's state.

The provider for AWS forgets a rule when Ctrl-C comes between the call that makes the rule and its tags
(https://github.com/hashicorp/terraform-provider-aws/issues/31729). The next apply then ends with InvalidPermission.Duplicate. In the folder
of the region, with the account's credentials:

    terraform plan -out=plan && terraform show -json plan | ../../orphans.py

prints a `terraform import` for each of them, and nothing where there are none.
"""

import json
import shlex
import subprocess
import sys

KINDS = {"aws_vpc_security_group_ingress_rule": False, "aws_vpc_security_group_egress_rule": True}


def planned(plan):
    """The rules that the plan would make in groups that exist: address by what AWS compares."""
    rules = {}
    for change in plan["resource_changes"]:
        after = change["change"]["after"] or {}
        # The id of a group that is yet to be made is unknown, so it is missing.
        if change["type"] in KINDS and change["change"]["actions"] == ["create"] and after.get("security_group_id"):
            peer = after.get("cidr_ipv4") or after.get("cidr_ipv6") or after.get("referenced_security_group_id") or after.get("prefix_list_id")
            key = (KINDS[change["type"]], after["security_group_id"], after["ip_protocol"], after.get("from_port"), after.get("to_port"), peer)
            rules[key] = change["address"]
    return rules


def existing(rule):
    peer = rule.get("CidrIpv4") or rule.get("CidrIpv6") or rule.get("ReferencedGroupInfo", {}).get("GroupId") or rule.get("PrefixListId")
    return rule["IsEgress"], rule["GroupId"], rule["IpProtocol"], rule.get("FromPort"), rule.get("ToPort"), peer


def orphans(plan, rules):
    """Pairs of address and id of the rules of AWS that the plan would make again."""
    wanted = planned(plan)
    return sorted((wanted[existing(rule)], rule["SecurityGroupRuleId"]) for rule in rules if existing(rule) in wanted)


def main():
    plan = json.load(sys.stdin)
    groups = sorted({group for _, group, *_ in planned(plan)})
    rules = []
    for group in groups:
        command = ["aws", "ec2", "describe-security-group-rules", "--filters", f"Name=group-id,Values={group}", "--output", "json"]
        rules += json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["SecurityGroupRules"]
    for address, rule in orphans(plan, rules):
        print(f"terraform import {shlex.quote(address)} {rule}")


if __name__ == "__main__":
    main()
