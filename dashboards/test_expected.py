"""expected.py finds each rule that no test makes fire: python3 -m unittest discover dashboards."""

import unittest

from expected import untested


def rule(labels, summary="{{ $value | humanizePercentage }} of messages are late"):
    return {"alert": "CommitsLate", "labels": labels, "annotations": {"summary": summary}}


def tests(*alerts):
    return [{"promql_expr_test": []}, {"alert_rule_test": [{"alertname": "CommitsLate", "exp_alerts": list(alerts)}]}]


def fired(labels, summary="25% of messages are late"):
    return {"exp_labels": labels | {"instance": "a"}, "exp_annotations": {"summary": summary}}


PAGE = {"severity": "page", "window": "1h"}
WRONG = {
    "an alert that is expected not to fire": tests(),
    "another severity": tests(fired(PAGE | {"severity": "ticket"})),
    "another window": tests(fired(PAGE | {"window": "6h"})),
    "the summary of another rule": tests(fired(PAGE, "25% of messages are lost")),
    "another alert": [{"alert_rule_test": [{"alertname": "ConnectsFail", "exp_alerts": [fired(PAGE)]}]}],
}


class Expected(unittest.TestCase):
    def test_a_rule_that_a_test_makes_fire_has_no_problem(self):
        self.assertEqual([], list(untested([rule(PAGE), {"record": "a:b:c"}], tests(fired(PAGE)))))

    def test_each_rule_that_no_test_makes_fire_is_found(self):
        for what, wrong in WRONG.items():
            with self.subTest(what):
                self.assertEqual(1, len(list(untested([rule(PAGE)], wrong))))


if __name__ == "__main__":
    unittest.main()
