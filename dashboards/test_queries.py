"""queries.py finds each name and value that is not declared: python3 -m unittest discover dashboards."""

import unittest

from queries import Known, unknown, unknown_values

METRICS = [
    {"name": "millrace_publishes_refused_total", "type": "counter", "labels": {"broker": [], "reason": ["store", "topic_bytes", "spend_cap"]}},
    {"name": "millrace_http_request_seconds", "type": "histogram", "labels": {"method": ["GET", "PUT"]}},
    {"name": "process_open_fds", "type": "gauge"},
]
KNOWN = Known(METRICS, {"broker:millrace_messages:rate5m"})

RIGHT = [
    'sum by (instance, reason) (rate(millrace_publishes_refused_total{broker="any", reason="store"}[1m])) > 0',
    'rate(millrace_publishes_refused_total{reason!~"store|t.*s", job="millrace"}[$__rate_interval])',
    'rate(millrace_publishes_refused_total{reason=~"$reason", reason!=""}[5m])',
    'sum by (le) (rate(millrace_http_request_seconds_bucket{le="0.05", method=~"(GET|PUT)"}[5m]))',
    "millrace_publishes_refused_total / on (url) nats_up",
    "topk(5, broker:millrace_messages:rate5m)",
    'node_systemd_unit_state{state="failed"} == 1',
    "process_open_fds",
]
WRONG = {
    'rate(millrace_publishes_refused_total{reason="unstorable"}[1m])': 'millrace_publishes_refused_total has no reason="unstorable"',
    'rate(millrace_publishes_refused_total{reason!="unstorable"}[1m])': 'millrace_publishes_refused_total has no reason="unstorable"',
    'rate(millrace_publishes_refused_total{reason=~"store|unstorable"}[1m])': 'millrace_publishes_refused_total has no reason="unstorable"',
    'rate(millrace_publishes_refused_total{broker="}", cause="store"}[1m])': "millrace_publishes_refused_total has no label cause",
    'millrace_http_request_seconds_count{method="POST"}': 'millrace_http_request_seconds_count has no method="POST"',
    'millrace_http_request_seconds_sum{le="1"}': "millrace_http_request_seconds_sum has no label le",
    "sum by (cause) (millrace_publishes_refused_total)": "millrace_publishes_refused_total has no label cause",
    "millrace_publish_refused_total > 0": "millrace_publish_refused_total is not declared in services/edge/metrics.toml",
    "topk(5, broker:millrace_messages:rate1m)": "no rule records broker:millrace_messages:rate1m",
}


class Queries(unittest.TestCase):
    def test_a_query_of_declared_names_and_values_has_no_problem(self):
        for expr in RIGHT:
            with self.subTest(expr):
                self.assertEqual([], list(unknown(expr, KNOWN)))

    def test_each_name_and_value_that_is_not_declared_is_found(self):
        for expr, problem in WRONG.items():
            with self.subTest(expr):
                self.assertEqual([problem], list(unknown(expr, KNOWN)))

    def test_a_selector_in_the_text_of_a_page_is_found(self):
        page = 'Then `millrace_publishes_refused_total{reason="rate"}` grows beside `millrace_publishes_refused_total`.'
        self.assertEqual(['millrace_publishes_refused_total has no reason="rate"'], list(unknown_values(page, KNOWN)))


if __name__ == "__main__":
    unittest.main()
