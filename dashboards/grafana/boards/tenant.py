"""One broker, as its tenant would ask about it."""

from parts import COLOURS, board, graph, number, variable

OF = 'broker="$broker"'


def rate(metric, by="broker"):
    return f"sum by ({by}) (rate({metric}{{{OF}}}[$__rate_interval]))"


def total(metric):
    return f"sum(rate({metric}{{{OF}}}[$__rate_interval]))"


BOARD = board(
    "tenant",
    "Millrace: one tenant",
    "One broker on all pods. Only the loudest brokers have metrics of their own (metrics_brokers_max); the API has those of any.",
    (
        None,
        [
            number("Clients", "short", "Connected now.", f"sum(millrace_clients_connected{{{OF}}})"),
            number("Messages in", "cps", "PUBLISH packets.", total("millrace_messages_received_total")),
            number("Messages out", "cps", "To its subscribers.", total("millrace_messages_sent_total")),
            number(
                "Not delivered",
                "cps",
                "Dropped, or missed because a limit had removed them.",
                f"{total('millrace_messages_dropped_total')} + {total('millrace_messages_missed_total')}",
                [(0.001, COLOURS[1])],
            ),
        ],
    ),
    (
        "Messages",
        [
            graph("In", "cps", "By quality of service.", (rate("millrace_messages_received_total", "qos"), "QoS {{qos}}"), stack=True),
            graph("Out", "cps", "Sent or queued to subscribers.", (rate("millrace_messages_sent_total"), "out")),
            graph("Dropped", "cps", "By reason.", (rate("millrace_messages_dropped_total", "reason"), "{{reason}}"), stack=True),
            graph(
                "Refused",
                "cps",
                "PUBLISH and SUBSCRIBE packets, by reason.",
                (rate("millrace_publishes_refused_total", "reason"), "publish: {{reason}}"),
                (rate("millrace_subscribes_refused_total", "reason"), "subscribe: {{reason}}"),
            ),
            graph(
                "Stored",
                "cps",
                "Written to the store, trimmed by a limit, and missed by a session.",
                (rate("millrace_messages_stored_total"), "stored"),
                (rate("millrace_messages_trimmed_total"), "trimmed"),
                (rate("millrace_messages_missed_total"), "missed"),
            ),
            graph(
                "Back-pressure",
                "cps",
                "How often a publisher was not read because its receivers were behind.",
                (rate("millrace_publisher_pauses_total"), "pauses"),
            ),
        ],
    ),
    (
        "Clients",
        [
            graph(
                "Clients and sessions",
                "short",
                "Sessions as the pod that knows most of them counts; those that are not connected wait for their client.",
                (f"sum(millrace_clients_connected{{{OF}}})", "connected"),
                (f"max(millrace_sessions{{{OF}}})", "sessions"),
            ),
            graph(
                "CONNECT packets",
                "cps",
                "Accepted, and refused by reason.",
                (rate("millrace_connects_total"), "accepted"),
                (rate("millrace_connects_refused_total", "reason"), "refused: {{reason}}"),
            ),
            graph(
                "Ends of connections",
                "cps",
                "By reason.",
                (rate("millrace_disconnects_total", "reason"), "{{reason}}"),
                stack=True,
            ),
            graph("Subscriptions", "short", "Of sessions in memory.", (f"sum(millrace_subscriptions{{{OF}}})", "subscriptions")),
            graph("Retained messages", "short", "As many as topics have one.", (f"max(millrace_retained_messages{{{OF}}})", "retained")),
            graph("Wills", "cps", "Will messages published.", (rate("millrace_wills_published_total"), "wills")),
            graph(
                "Ended by changed rules",
                "cps",
                "Subscriptions that the rules of their client do not allow any more.",
                (rate("millrace_subscriptions_revoked_total"), "subscriptions"),
            ),
        ],
    ),
    variables=[variable("broker", "Broker", "millrace_clients_connected", "broker", multi=False)],
)
