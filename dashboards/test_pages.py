"""pages.py finds each kind of name that does not exist: python3 -m unittest discover dashboards."""

import unittest

from pages import Known, unknown

KNOWN = Known({"millrace_connects_total"}, {"PodDown"}, {"Millrace: edge"})

RIGHT = """
PodDown: the log says "the store accepts writes again", and
`/healthz` says "draining: 12 connections are left". See "Millrace: edge" and `drain_rate`.
`GET .../webhooks/HOOK/status` answers. `millrace_connects_total{reason="x"}` grows. QoS 1 waits.
```sh
journalctl -u millrace | grep 'the store' | tail
systemctl restart millrace-gateway       # "ok", or "draining: N connections are left"
GATEWAY_PODS=x gateway/gateway.sh run
millrace limits set broker.publishes_per_s=1
```
"""

WRONG = {
    "PodDown:": ("PodsDown:", "there is no alert PodsDown"),
    "accepts writes again": ("accepts orders again", 'nothing says "the store accepts orders again"'),
    "12 connections are left": ("12 clients are left", 'nothing says "draining: 12 clients are left"'),
    "N connections": ("N clients", 'nothing says "draining: N clients are left"'),
    "Millrace: edge": ("Millrace: ledge", 'nothing says "Millrace: ledge"'),
    "drain_rate": ("drain_speed", "nothing is called drain_speed"),
    "GET .../webhooks": ("DELETE .../webhooks", "the API has no DELETE /webhooks/HOOK/status"),
    "HOOK/status": ("HOOK/state", "the API has no GET /webhooks/HOOK/state"),
    "millrace_connects_total": ("millrace_connect_total", "there is no metric millrace_connect_total"),
    "'the store'": ("'the shop'", 'no line of the log has "the shop"'),
    "restart millrace-gateway": ("restart millrace-gate", "there is no unit millrace-gate"),
    "-u millrace": ("-u millraced", "there is no unit millraced"),
    "GATEWAY_PODS": ("GATEWAY_PODDS", "nothing reads GATEWAY_PODDS"),
    "publishes_per_s": ("publish_per_s", "there is no limit publish_per_s"),
}


class Pages(unittest.TestCase):
    def test_a_page_without_mistakes_has_no_problem(self):
        self.assertEqual([], list(unknown(RIGHT, KNOWN)))

    def test_each_name_that_does_not_exist_is_found(self):
        for right, (wrong, problem) in WRONG.items():
            with self.subTest(wrong):
                self.assertEqual(1, RIGHT.count(right))
                self.assertIn(problem, list(unknown(RIGHT.replace(right, wrong), KNOWN)))


if __name__ == "__main__":
    unittest.main()
