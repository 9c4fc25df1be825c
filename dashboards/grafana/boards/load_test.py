"""A run of k6, and what the servers did meanwhile. k6 writes its metrics with its output experimental-prometheus-rw."""

from parts import COLOURS, board, graph, number, variable

K6 = "k6"
RUN = 'testid=~"$run"'


def rate(metric, by):
    return f"sum by ({by}) (rate({metric}{{{RUN}}}[$__rate_interval]))"


def count(metric):
    """k6 knows a counter from its first event on."""
    return f"sum({metric}{{{RUN}}}) or vector(0)"


def durations(metric):
    return [(f"max by (scenario) ({metric}_{stat}{{{RUN}}})", f"{stat}, {{{{scenario}}}}") for stat in ("p50", "p99", "max")]


BOARD = board(
    "load-test",
    "Millrace: load test",
    "A run of k6 beside what the servers did meanwhile.",
    (
        None,
        [
            number("Virtual users", "short", "Running now.", f"sum(k6_vus{{{RUN}}})", needs=K6),
            number("Published", "cps", "PUBLISH packets of all users.", f"sum(rate(k6_mqtt_messages_sent_total{{{RUN}}}[$__rate_interval]))", needs=K6),
            number("Delivery p99", "s", "From publish to the subscriber.", f"max(k6_mqtt_delivery_duration_p99{{{RUN}}})", needs=K6),
            number("Lost", "short", "Messages that were expected and did not come.", count("k6_mqtt_messages_lost_total"), [(1, COLOURS[5])], needs=K6),
        ],
    ),
    (
        "The clients",
        [
            graph(
                "Messages",
                "cps",
                "By scenario.",
                (rate("k6_mqtt_messages_sent_total", "scenario"), "sent, {{scenario}}"),
                (rate("k6_mqtt_messages_received_total", "scenario"), "received, {{scenario}}"),
                needs=K6,
            ),
            graph(
                "Connects and errors",
                "short",
                "Since the run began. A run with errors fails.",
                (f"sum by (scenario) (k6_mqtt_connects_total{{{RUN}}})", "connects, {{scenario}}"),
                (count("k6_mqtt_errors_total"), "errors"),
                needs=K6,
            ),
            graph("Virtual users", "short", "Running, and the most there may be.", (f"sum(k6_vus{{{RUN}}})", "running"), (f"sum(k6_vus_max{{{RUN}}})", "most"), needs=K6),
            graph("Time to publish", "s", "QoS 1: until PUBACK. QoS 2: until PUBCOMP.", *durations("k6_mqtt_publish_duration"), needs=K6),
            graph("Time to deliver", "s", "From publish to the subscriber.", *durations("k6_mqtt_delivery_duration"), needs=K6),
            graph("Time to connect", "s", "From the first packet to CONNACK.", *durations("k6_mqtt_connect_duration"), needs=K6),
            graph("Time to subscribe", "s", "From SUBSCRIBE to SUBACK.", *durations("k6_mqtt_subscribe_duration"), needs=K6),
            graph(
                "Network",
                "binBps",
                "Bytes that k6 sent and received.",
                (f"sum(rate(k6_mqtt_bytes_sent_total{{{RUN}}}[$__rate_interval]))", "sent"),
                (f"sum(rate(k6_mqtt_bytes_received_total{{{RUN}}}[$__rate_interval]))", "received"),
                needs=K6,
            ),
            graph(
                "Wrong deliveries",
                "short",
                "Since the run began; QoS 1 may repeat after a reconnect.",
                (count("k6_mqtt_messages_lost_total"), "lost"),
                (count("k6_mqtt_messages_repeated_total"), "repeated"),
                (count("k6_mqtt_messages_out_of_order_total"), "out of order"),
                (count("k6_mqtt_messages_stray_total"), "stray"),
                needs=K6,
            ),
        ],
    ),
    (
        "The servers",
        [
            graph(
                "Messages",
                "cps",
                "In and out of all pods.",
                ("sum(rate(millrace_messages_received_total[$__rate_interval]))", "in"),
                ("sum(rate(millrace_messages_sent_total[$__rate_interval]))", "out"),
                ("sum(rate(millrace_messages_dropped_total[$__rate_interval]))", "dropped"),
            ),
            graph(
                "Time to commit",
                "s",
                "From a message's arrival at a pod to its commit.",
                ("histogram_quantile(0.5, sum by (le) (rate(millrace_message_commit_seconds_bucket[$__rate_interval])))", "p50"),
                ("histogram_quantile(0.99, sum by (le) (rate(millrace_message_commit_seconds_bucket[$__rate_interval])))", "p99"),
            ),
            graph(
                "CPU",
                "percentunit",
                "Of each pod; 100 % is one core.",
                ('rate(process_cpu_seconds_total{job="millrace"}[$__rate_interval])', "{{instance}}"),
            ),
        ],
    ),
    variables=[variable("run", "Run", "k6_vus", "testid")],
)
