"""Present costs by resource, and the time until a resource runs out."""

from parts import COLOURS, board, graph, number

CPU = 'sum(rate(process_cpu_seconds_total{job="millrace"}[5m]))'
MESSAGES = "(sum(rate(millrace_messages_received_total[5m])) + sum(rate(millrace_messages_sent_total[5m])))"

# From the first one on it is time to add machines; from the second on an alert fires.
FULL = [(0.6, COLOURS[1]), (0.8, COLOURS[5])]

BOARD = board(
    "capacity",
    "Millrace: capacity",
    "What connections, messages and stored bytes cost on these machines, and when something runs out.",
    (
        None,
        [
            number("Connections used", "percentunit", "Of the open files that the fullest pod may have.", 'max(process_open_fds{job="millrace"} / process_max_fds{job="millrace"})', FULL),
            number("CPU used", "percentunit", "Of the machines.", '1 - avg(rate(node_cpu_seconds_total{mode="idle"}[5m]))', FULL),
            number("Memory used", "percentunit", "Of the fullest machine.", "max(1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)", FULL),
            number(
                "Store full in",
                "s",
                "If the store grows as in the last six hours; at most a year is shown.",
                "clamp_max(min(millrace_store_disk_free_bytes / (deriv(millrace_store_disk_bytes[6h]) > 0)), 31536000) or vector(31536000)",
                [(259200, COLOURS[0])],
                base=COLOURS[5],
            ),
        ],
    ),
    (
        "What does it cost?",
        [
            graph("CPU for each message", "s", "All CPU of the pods, by messages in and out.", (f"{CPU} / ({MESSAGES} > 0)", "CPU seconds")),
            graph(
                "Memory for each connection",
                "bytes",
                "Resident memory of the pods, by open connections.",
                ('sum(process_resident_memory_bytes{job="millrace"}) / (sum(millrace_connections_open) > 0)', "bytes"),
            ),
            graph(
                "Disk for each stored message",
                "bytes",
                "Written to the journal, by messages stored.",
                ("sum(rate(millrace_store_journal_bytes_total[5m])) / (sum(rate(millrace_messages_stored_total[5m])) > 0)", "bytes"),
                needs="the embedded engine",
            ),
        ],
    ),
    (
        "How does it grow?",
        [
            graph("Connections and sessions", "short", "Sessions that are not connected cost disk only.", ("sum(millrace_connections_open)", "connections"), ("sum(max by (broker) (millrace_sessions))", "sessions")),
            graph("Brokers in memory", "short", "Those with metrics of their own; a broker that nobody asks for is rows in the store.", ("count(count by (broker) (millrace_clients_connected))", "brokers")),
            graph("Store", "bytes", "Used by tables and journals.", ("sum(millrace_store_disk_bytes)", "used"), needs="the embedded engine"),
        ],
    ),
    (
        "Machines",
        [
            graph("CPU used", "percentunit", "Busy share of all cores.", ('1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[$__rate_interval]))', "{{instance}}"), most=1, line=0.85),
            graph("Memory", "bytes", "Available, and all.", ("node_memory_MemAvailable_bytes", "available on {{instance}}"), ("node_memory_MemTotal_bytes", "all of {{instance}}")),
            graph("Disk left", "percentunit", "Free share of each file system.", ('node_filesystem_avail_bytes{fstype!~"tmpfs|overlay|squashfs|ramfs"} / node_filesystem_size_bytes{fstype!~"tmpfs|overlay|squashfs|ramfs"}', "{{mountpoint}} of {{instance}}"), most=1),
            graph("Network", "binBps", "Received and sent by each machine.", ("sum by (instance) (rate(node_network_receive_bytes_total[$__rate_interval]))", "received by {{instance}}"), ("sum by (instance) (rate(node_network_transmit_bytes_total[$__rate_interval]))", "sent by {{instance}}"), needs="a network card"),
            graph("Clock offset", "s", "As the kernel knows it; sessions expire and wills fire by the clock.", ("node_timex_offset_seconds", "{{instance}}"), least=None),
            graph("Open files", "short", "Each connection is one.", ('process_open_fds{job="millrace"}', "{{instance}}")),
        ],
    ),
)
