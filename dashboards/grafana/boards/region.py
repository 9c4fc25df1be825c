"""Is the region healthy, who is loud, what runs out next?"""

from parts import COLOURS, board, graph, number, ranking

RED, ORANGE = COLOURS[5], COLOURS[1]


def burn(name):
    return f"region:{name}_errors:ratio_rate5m"


BOARD = board(
    "region",
    "Millrace: region",
    "Is the region healthy, who is loud, and what runs out next?",
    (
        None,
        [
            number("Connections", "short", "Open connections of all pods.", "sum(millrace_connections_open)"),
            number(
                "Messages in",
                "cps",
                "PUBLISH packets from clients.",
                "sum(rate(millrace_messages_received_total[$__rate_interval]))",
            ),
            number(
                "Messages out",
                "cps",
                "Messages to subscribers.",
                "sum(rate(millrace_messages_sent_total[$__rate_interval]))",
            ),
            number(
                "Commit p99",
                "s",
                "99 % of QoS 1 and 2 messages are durable, and acknowledged, within this time.",
                "histogram_quantile(0.99, sum by (le) (rate(millrace_message_commit_seconds_bucket[5m])))",
                [(0.05, ORANGE), (0.25, RED)],
            ),
        ],
    ),
    (
        "Is it healthy?",
        [
            graph(
                "Objectives missed",
                "percentunit",
                "Share of late commits, refused CONNECT packets and lost deliveries over five minutes.",
                (burn("commit"), "commits late (1 % allowed)"),
                (burn("connect"), "connects refused (0.1 %)"),
                (burn("delivery"), "deliveries lost (0.1 %)"),
            ),
            graph(
                "Parts that answer",
                "short",
                "Targets of each kind that were scraped; a step down is a part that is gone.",
                ("sum by (job) (up)", "{{job}}"),
            ),
            graph(
                "Alerts firing",
                "short",
                "By severity; their pages are in runbooks/.",
                ('count(ALERTS{alertstate="firing", severity="page"}) or vector(0)', "pages"),
                ('count(ALERTS{alertstate="firing", severity="ticket"}) or vector(0)', "tickets"),
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
                "1 is one core.",
                ('rate(process_cpu_seconds_total{job="millrace"}[$__rate_interval])', "{{instance}}"),
            ),
            graph(
                "Memory of machines left",
                "percentunit",
                "Available of all.",
                ("node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes", "{{instance}}"),
                most=1,
            ),
            graph(
                "Open files used",
                "percentunit",
                "Each connection is an open file.",
                ('process_open_fds{job="millrace"} / process_max_fds{job="millrace"}', "{{instance}}"),
                line=0.8,
            ),
        ],
    ),
)
