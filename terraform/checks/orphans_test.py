#!/usr/bin/env python3
"""Tests orphans.py with a plan and the rules of a group, as Terraform and AWS write them.

    python3 terraform/checks/orphans_test.py
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import orphans  # noqa: E402 # beside the folder of this file

TYPE = "aws_vpc_security_group_egress_rule"


def change(address, actions=("create",), **peer):
    after = {"security_group_id": "sg-1", "ip_protocol": "-1", "from_port": None, "to_port": None, **peer}
    return {"address": address, "type": TYPE, "change": {"actions": list(actions), "after": after}}


def rule(name, **peer):
    return {"SecurityGroupRuleId": name, "GroupId": "sg-1", "IsEgress": True, "IpProtocol": "-1", **peer}


class Orphans(unittest.TestCase):
    def test_a_rule_is_known_by_its_peer(self):
        peers = {
            "four": ({"cidr_ipv4": "10.1.0.0/16"}, {"CidrIpv4": "10.1.0.0/16"}),
            "six": ({"cidr_ipv6": "2001:db8:1::/48"}, {"CidrIpv6": "2001:db8:1::/48"}),
            "group": ({"referenced_security_group_id": "sg-2"}, {"ReferencedGroupInfo": {"GroupId": "sg-2"}}),
            "list": ({"prefix_list_id": "pl-1"}, {"PrefixListId": "pl-1"}),
        }
        plan = {"resource_changes": [change(name, **planned) for name, (planned, _) in peers.items()]}
        rules = [rule(f"sgr-{name}", **existing) for name, (_, existing) in peers.items()]
        self.assertEqual(orphans.orphans(plan, rules), sorted((name, f"sgr-{name}") for name in peers))

    def test_another_network_is_another_rule(self):
        for key, existing, wanted in [("cidr_ipv6", "2001:db8:1::/48", "2001:db8:2::/48"), ("cidr_ipv4", "10.1.0.0/16", "10.2.0.0/16")]:
            plan = {"resource_changes": [change("new", **{key: wanted})]}
            aws = "CidrIpv6" if key == "cidr_ipv6" else "CidrIpv4"
            self.assertEqual(orphans.orphans(plan, [rule("sgr-old", **{aws: existing})]), [])

    def test_a_rule_that_the_plan_keeps_is_none(self):
        plan = {"resource_changes": [change("kept", actions=("no-op",), cidr_ipv4="10.1.0.0/16")]}
        self.assertEqual(orphans.orphans(plan, [rule("sgr-kept", CidrIpv4="10.1.0.0/16")]), [])


if __name__ == "__main__":
    unittest.main()
