"""Finds alerts that no promtool test expects to fire. lint.py gives it the rules and the tests; test_expected.py has examples."""

import re


def untested(rules, tests):
    """Yields a sentence for each alerting rule that no test expects with its labels (severity, window) and its summary. Two rules of one
    alert differ in these. An empty `exp_alerts` proves nothing about a rule that never fires."""
    fired = [(test["alertname"], alert) for group in tests for test in group.get("alert_rule_test", []) for alert in test.get("exp_alerts") or []]
    for rule in rules:
        if "alert" in rule and not any(name == rule["alert"] and is_of(alert, rule) for name, alert in fired):
            yield f"no test makes {rule['alert']} fire with the labels {rule['labels']} and its summary"


def is_of(alert, rule):
    labels, annotations = alert.get("exp_labels", {}), alert.get("exp_annotations", {})
    said = re.split(r"\{\{.*?\}\}", rule["annotations"]["summary"])
    summary = ".*".join(re.escape(part) for part in said)
    return rule["labels"].items() <= labels.items() and re.fullmatch(summary, annotations.get("summary", "")) is not None
