"""Is the region healthy, who is loud, what runs out next?"""

from parts import COLOURS, board, graph, number, ranking

RED, ORANGE = COLOURS[5], COLOURS[1]


def burn(name, allowed):
    """Burn rate of the error budget: 1 uses it up exactly at the end of its window. `allowed` is the share of errors."""
    return f"region:{name}_errors:ratio_rate5m / {allowed}"


def firing(severity):
    """A query and its legend: firing alerts by name, and a line at zero without one."""
    alerts = f'count by (alertname) (ALERTS{{alertstate="firing", severity="{severity}"}})'
    return f'{alerts} or label_replace(vector(0), "alertname", "none", "", "")', f"{severity}: {{{{alertname}}}}"


BOARD = board(
    "region",
    "Millrace: region",
    "Is the region healthy, who is loud, and what runs out next?",
    (
        None,
        [
            number(
                "Pages firing",
                "short",
                "Alerts that page somebody. Their names are below, their pages in runbooks/.",
                'count(ALERTS{alertstate="firing", severity="page"}) or vector(0)',
                [(1, RED)],
                width=4,
            ),
            number(
                "Parts that do not answer",
                "short",
                "Pods, gateways, exporters and parts of telemetry that are not scraped.",
                "sum(1 - up)",
                [(1, RED)],
                width=4,
            ),
            number("Connections", "short", "Open connections of all pods.", "sum(millrace_connections_open)", width=4),
            number(
                "Messages in",
                "cps",
                "PUBLISH packets from clients.",
                "sum(rate(millrace_messages_received_total[$__rate_interval]))",
                width=4,
            ),
            number(
                "Messages out",
                "cps",
                "Messages to subscribers.",
                "sum(rate(millrace_messages_sent_total[$__rate_interval]))",
                width=4,
            ),
            number(
                "Commit p99",
                "s",
                "99 % of QoS 1 and 2 messages are durable, and acknowledged, within this time.",
                "histogram_quantile(0.99, sum by (le) (rate(millrace_message_commit_seconds_bucket[5m])))",
                [(0.05, ORANGE), (0.25, RED)],
                width=4,
            ),
        ],
    ),
    (
        "Is it healthy?",
        [
            graph(
                "Error budgets",
                "short",
                "How many times too fast each is used, over five minutes. 1 lasts for a month; above the line for an hour, somebody is paged. Lost deliveries of one broker alone are a ticket.",
                (burn("commit", 0.01), "late commits"),
                (burn("connect", 0.001), "refused CONNECT packets"),
                (burn("delivery", 0.001), "lost deliveries"),
                line=14.4,
                fractions=True,
                width=6,
            ),
            graph(
                "Parts that do not answer, by kind",
                "short",
                "millrace is a pod, envoy a gateway, host a node exporter, status what asks NATS and FoundationDB.",
                ("sum by (job) (1 - up)", "{{job}}"),
                width=6,
            ),
            graph(
                "Alerts firing",
                "short",
                "By name; the page of each is in runbooks/.",
                firing("page"),
                firing("ticket"),
                width=6,
            ),
            graph(
                "Sent to the collector",
                "cps",
                "Spans, log records and data points of pods with otlp_endpoint, by what became of it. The failed and those of a full queue are lost; clients notice nothing.",
                (
                    "sum by (signal, result) (rate(millrace_otlp_items_total[$__rate_interval]))",
                    "{{signal}}: {{result}}",
                ),
                width=6,
                needs="otlp_endpoint",
            ),
        ],
    ),
    (
        "What does it do?",
        [
            graph(
                "Messages",
                "cps",
                "In by quality of service, and out.",
                ("sum by (qos) (rate(millrace_messages_received_total[$__rate_interval]))", "in, QoS {{qos}}"),
                ("sum(rate(millrace_messages_sent_total[$__rate_interval]))", "out"),
            ),
            graph(
                "CONNECT packets",
                "cps",
                "Accepted and refused, all reasons.",
                ("sum(rate(millrace_connects_total[$__rate_interval]))", "accepted"),
                ("sum(rate(millrace_connects_refused_total[$__rate_interval]))", "refused"),
                ("sum(rate(millrace_connects_waited_total[$__rate_interval]))", "waited for their turn"),
            ),
            graph(
                "Network",
                "binBps",
                "Bytes from and to clients.",
                ("sum(rate(millrace_received_bytes_total[$__rate_interval]))", "in"),
                ("sum(rate(millrace_sent_bytes_total[$__rate_interval]))", "out"),
            ),
            ranking(
                "Loudest brokers",
                "cps",
                "Messages in and out. Brokers without metrics of their own are together _other.",
                "topk(10, broker:millrace_messages:rate5m)",
                "{{broker}}",
            ),
            ranking(
                "Brokers with most clients",
                "short",
                "Connected clients.",
                "topk(10, sum by (broker) (millrace_clients_connected))",
                "{{broker}}",
            ),
            graph(
                "Not delivered",
                "cps",
                "Messages dropped, and stored messages that a limit removed.",
                ("sum by (reason) (rate(millrace_messages_dropped_total[$__rate_interval]))", "{{reason}}"),
                ("sum(rate(millrace_messages_missed_total[$__rate_interval]))", "missed by a session"),
            ),
        ],
    ),
    (
        "What runs out next?",
        [
            graph(
                "CPU of pods",
                "percentunit",
                "100 % is one core.",
                ('rate(process_cpu_seconds_total{job="millrace"}[$__rate_interval])', "{{instance}}"),
                width=6,
            ),
            graph(
                "Memory of machines left",
                "percentunit",
                "Available of all. Below the line somebody is paged.",
                ("node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes", "{{instance}}"),
                most=1,
                line=0.1,
                width=6,
            ),
            graph(
                "Disk of the store left",
                "percentunit",
                "Free of all. Below the line somebody is paged.",
                (
                    "millrace_store_disk_free_bytes / millrace_store_disk_size_bytes or foundationdb_storage_free_ratio",
                    "{{instance}}",
                ),
                most=1,
                line=0.15,
                width=6,
            ),
            graph(
                "Open files used",
                "percentunit",
                "Each connection is an open file. Above the line there is a ticket.",
                ('process_open_fds{job="millrace"} / process_max_fds{job="millrace"}', "{{instance}}"),
                most=1,
                line=0.8,
                width=6,
            ),
        ],
    ),
)
