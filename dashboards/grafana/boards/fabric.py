"""Messages between pods through NATS, and their losses."""

from parts import board, graph


def rate(metric, by="instance"):
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


def delay(q):
    return f"histogram_quantile({q}, sum by (le) (rate(millrace_fabric_delay_seconds_bucket[$__rate_interval])))"


NATS = "NATS"

BOARD = board(
    "fabric",
    "Millrace: fabric",
    "Live messages between pods: do all hear each other, how fast, and what is lost on the way.",
    (
        "Do the pods hear each other?",
        [
            graph("Connected to NATS", "short", "1 while it is.", ("millrace_fabric_connected", "{{instance}}"), most=1.2),
            graph("Other pods alive", "short", "As each pod sees it.", ("millrace_fabric_pods", "{{instance}}")),
            graph(
                "Gaps",
                "cps",
                "Times that messages of another pod were missing. What is durable is then read from the store.",
                (rate("millrace_fabric_gaps_total"), "gaps on {{instance}}"),
                (rate("millrace_fabric_connects_total"), "connects to NATS of {{instance}}"),
            ),
        ],
    ),
    (
        "What goes between them?",
        [
            graph(
                "Messages",
                "cps",
                "Sent to other pods, not sent because none listens, and received.",
                (rate("millrace_fabric_messages_sent_total", "job"), "sent"),
                (rate("millrace_fabric_messages_unwanted_total", "job"), "no pod listens"),
                (rate("millrace_fabric_messages_received_total", "job"), "received"),
            ),
            graph(
                "Network",
                "binBps",
                "Bytes given to NATS and received from it.",
                (rate("millrace_fabric_sent_bytes_total", "job"), "sent"),
                (rate("millrace_fabric_received_bytes_total", "job"), "received"),
            ),
            graph(
                "Time to the other pod",
                "s",
                "From the sender's event loop or writer to the receiving pod. The clocks of both pods differ by that much, too.",
                (delay(0.5), "p50"),
                (delay(0.99), "p99"),
            ),
            graph(
                "Messages in a batch",
                "short",
                "The more, the less each costs.",
                (
                    "sum(rate(millrace_fabric_messages_sent_total[$__rate_interval]))"
                    " / (sum(rate(millrace_fabric_batches_sent_total[$__rate_interval])) > 0)",
                    "messages",
                ),
                fractions=True,
            ),
            graph(
                "Messages nobody here wanted",
                "percentunit",
                "Share of those received. Digests of filters keep it low.",
                (
                    "sum(rate(millrace_region_messages_needless_total[$__rate_interval]))"
                    " / (sum(rate(millrace_region_messages_received_total[$__rate_interval])) > 0) or vector(0)",
                    "needless",
                ),
            ),
            graph(
                "Dropped",
                "cps",
                "Live messages that were not sent, by reason, or not taken in time.",
                (rate("millrace_fabric_messages_dropped_total", "reason"), "{{reason}}"),
                (rate("millrace_region_messages_dropped_total", "job"), "event loop behind"),
            ),
            graph(
                "Waiting to be sent",
                "bytes",
                "By pod.",
                ("millrace_fabric_queue_bytes", "{{instance}}"),
            ),
        ],
    ),
    (
        "What is wrong between them?",
        [
            graph(
                "Frames and messages not taken",
                "cps",
                "Frames by reason, and messages of other pods that were missing.",
                (rate("millrace_fabric_frames_discarded_total", "reason"), "{{reason}}"),
                (rate("millrace_fabric_messages_missed_total", "job"), "messages missing"),
            ),
            graph(
                "Joins and errors of NATS",
                "cps",
                "Joins of brokers over the limit or without the confirmation of all pods, and errors that a NATS server sent.",
                (rate("millrace_fabric_joins_refused_total", "job"), "joins refused"),
                (rate("millrace_fabric_joins_unconfirmed_total", "job"), "joins not confirmed"),
                (rate("millrace_fabric_server_errors_total", "job"), "errors of NATS"),
            ),
            graph(
                "Brokers and peers",
                "short",
                "Brokers and groups joined, receivers whose messages are numbered, other pods with a broker of the pod, and those that get all of it.",
                ("sum by (instance) (millrace_fabric_joined)", "joined on {{instance}}"),
                ("sum(millrace_fabric_streams)", "receivers"),
                ("sum(millrace_region_peers)", "peers"),
                ("sum(millrace_region_peers_in_doubt)", "peers in doubt"),
            ),
            graph(
                "Announcements",
                "cps",
                "Digests of filters and new filters that were sent, and digests that may have been outdated.",
                (rate("millrace_region_digests_sent_total", "job"), "digests"),
                (rate("millrace_region_filters_sent_total", "job"), "new filters"),
                (rate("millrace_region_digests_doubted_total", "job"), "in doubt"),
                width=12,
            ),
            graph(
                "Batches",
                "cps",
                "Received, parts of batches that were too long for one NATS message, and counts by which a receiver notices a loss.",
                (rate("millrace_fabric_batches_received_total", "job"), "received"),
                (rate("millrace_fabric_parts_sent_total", "job"), "parts sent"),
                (rate("millrace_fabric_heartbeats_sent_total", "job"), "counts sent"),
                width=12,
            ),
        ],
    ),
    (
        "NATS servers",
        [
            graph("Servers", "short", "1 while it answers.", ('label_replace(nats_up, "host", "$1", "url", "https?://([^/]+).*")', "{{host}}"), most=1.2, needs=NATS),
            graph(
                "Messages",
                "cps",
                "Into and out of each server, its routes included.",
                ("rate(nats_in_messages_total[$__rate_interval])", "in {{server}}"),
                ("rate(nats_out_messages_total[$__rate_interval])", "out {{server}}"),
                needs=NATS,
            ),
            graph(
                "Connections and subscriptions",
                "short",
                "Pods and their subjects: they grow with pods and brokers, never with devices.",
                ("nats_connections", "connections {{server}}"),
                ("nats_subscriptions", "subscriptions {{server}}"),
                needs=NATS,
            ),
            graph("Memory", "bytes", "By server.", ("nats_resident_memory_bytes", "{{server}}"), needs=NATS),
            graph("CPU", "percentunit", "100 % is one core.", ("nats_cpu_ratio", "{{server}}"), needs=NATS),
            graph(
                "Slow consumers",
                "cps",
                "Pods that a server cut off because they did not read in time.",
                ("rate(nats_slow_consumers_total[$__rate_interval])", "{{server}}"),
                ("rate(millrace_fabric_slow_consumer_total[$__rate_interval])", "as {{instance}} saw it"),
                needs=NATS,
            ),
        ],
    ),
)
