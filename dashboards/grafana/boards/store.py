"""Commits of the store, their delays, and free space."""

from parts import COLOURS, board, graph, number

FDB = "FoundationDB"
EMBEDDED = "the embedded engine"


def quantile(q):
    buckets = "sum by (le) (rate(millrace_message_commit_seconds_bucket[$__rate_interval]))"
    return f"histogram_quantile({q}, {buckets})"


def transaction(q):
    buckets = "sum by (le) (rate(millrace_store_transaction_seconds_bucket[$__rate_interval]))"
    return f"histogram_quantile({q}, {buckets})"


def rate(metric, by="instance"):
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


BOARD = board(
    "store",
    "Millrace: store",
    "How fast messages become durable, what holds that up, and how full the store is.",
    (
        None,
        [
            number("Commit p50", "s", "Half of QoS 1 and 2 messages are durable within this time.", quantile(0.5)),
            number("Commit p99", "s", "99 % are.", quantile(0.99), [(0.05, COLOURS[1]), (0.25, COLOURS[5])]),
            number(
                "Messages stored",
                "cps",
                "Written once, however many sessions they are for.",
                "sum(rate(millrace_messages_stored_total[$__rate_interval]))",
            ),
            number(
                "Disk left",
                "percentunit",
                "Of the fullest store's disk.",
                "min(millrace_store_disk_free_bytes / millrace_store_disk_size_bytes or foundationdb_storage_free_ratio)",
                [(0.15, COLOURS[0])],
                base=COLOURS[5],
            ),
        ],
    ),
    (
        "Commits",
        [
            graph(
                "Time to commit",
                "s",
                "From a message's arrival at the store's thread until it is durable. The objective is 50 ms.",
                (quantile(0.5), "p50"),
                (quantile(0.95), "p95"),
                (quantile(0.99), "p99"),
                line=0.05,
            ),
            graph(
                "Transactions",
                "cps",
                "Committed, the groups in which they were, and the syncs of the journal.",
                (rate("millrace_store_transactions_total", "job"), "transactions"),
                (rate("millrace_store_groups_total", "job"), "groups"),
                (rate("millrace_store_syncs_total", "job"), "syncs"),
            ),
            graph(
                "Time of a transaction",
                "s",
                "From taking jobs to their commit, with all attempts of the transaction.",
                (transaction(0.5), "p50"),
                (transaction(0.99), "p99"),
            ),
            graph(
                "Conflicts and retries",
                "cps",
                "Attempts that another transaction prevented, and attempts after the first.",
                (rate("millrace_store_transaction_conflicts_total", "job"), "conflicts"),
                (rate("millrace_store_transaction_retries_total", "job"), "retries"),
            ),
            graph(
                "Transactions refused",
                "cps",
                "By reason. Conflicts are tried again.",
                (rate("millrace_store_refused_total", "reason"), "{{reason}}"),
            ),
            graph(
                "Messages",
                "cps",
                "Stored, or left out because every session had acknowledged them before the commit.",
                (rate("millrace_messages_stored_total", "job"), "stored"),
                (rate("millrace_messages_unstored_total", "job"), "acknowledged before"),
            ),
            graph(
                "Removed by limits",
                "cps",
                "Trimmed from a stream, and missed by a session because of that.",
                (rate("millrace_messages_trimmed_total", "job"), "trimmed"),
                (rate("millrace_messages_missed_total", "job"), "missed"),
            ),
            graph(
                "Waiting to be stored",
                "bytes",
                "Above store_bytes_max publishers are not read.",
                ("millrace_store_queue_bytes", "queue of {{instance}}"),
                ("millrace_store_waiting_bytes", "next group of {{instance}}"),
            ),
        ],
    ),
    (
        "Embedded engine",
        [
            graph(
                "Compactions and stalls",
                "cps",
                "Compactions that ended, and groups that waited for flushes or compactions.",
                (rate("millrace_store_compactions_total", "job"), "compactions"),
                (rate("millrace_store_stalls_total", "job"), "stalls"),
                needs=EMBEDDED,
            ),
            graph(
                "Transactions waiting",
                "short",
                "Transactions that wait for the next group, and running compactions.",
                ("sum by (instance) (millrace_store_waiting_transactions)", "{{instance}}"),
                ("sum(millrace_store_compactions_running)", "compactions"),
            ),
            graph(
                "Keys written",
                "cps",
                "Set or deleted, once for each group.",
                (rate("millrace_store_keys_written_total"), "{{instance}}"),
                needs=EMBEDDED,
            ),
            graph(
                "Time in commits, compactions and stalls",
                "percentunit",
                "Share of time, of the busiest pod. Stalls delay commits.",
                (rate("millrace_store_commit_seconds_total").join(["max(", ")"]), "commits"),
                (rate("millrace_store_compaction_seconds_total").join(["max(", ")"]), "compactions"),
                (rate("millrace_store_stall_seconds_total").join(["max(", ")"]), "stalls"),
            ),
            graph(
                "Written",
                "binBps",
                "Keys and values, and the journal.",
                (rate("millrace_store_written_bytes_total", "job"), "keys and values"),
                (rate("millrace_store_journal_bytes_total", "job"), "journal"),
                needs=EMBEDDED,
            ),
            graph(
                "Disk",
                "bytes",
                "Tables and journals, and what is free.",
                ("sum by (instance) (millrace_store_disk_bytes)", "used by {{instance}}"),
                ("min by (instance) (millrace_store_disk_free_bytes)", "free for {{instance}}"),
                needs=EMBEDDED,
            ),
            graph(
                "Memory",
                "bytes",
                "Memtables and cached blocks.",
                ("sum by (instance) (millrace_store_memory_bytes)", "memtables of {{instance}}"),
                ("sum by (instance) (millrace_store_cache_bytes)", "cache of {{instance}}"),
                needs=EMBEDDED,
            ),
            graph(
                "Tables",
                "short",
                "Tables that compaction has not merged slow reads down.",
                ("sum(millrace_store_tables)", "tables"),
                ("sum(millrace_store_unmerged_tables)", "not merged"),
                ("sum(millrace_store_unflushed_memtables)", "memtables to flush"),
                ("sum(millrace_store_journals)", "journals"),
                needs=EMBEDDED,
            ),
            graph(
                "Failures",
                "cps",
                "Times the engine failed, and opened its files again.",
                (rate("millrace_store_failures_total", "job"), "failures"),
                (rate("millrace_store_reopened_total", "job"), "reopened"),
                needs=EMBEDDED,
            ),
        ],
    ),
    (
        "FoundationDB",
        [
            graph(
                "Cluster",
                "short",
                "1 while it is available, and while all copies of data are there.",
                ("foundationdb_available", "available"),
                ("foundationdb_healthy", "healthy"),
                needs=FDB,
            ),
            graph(
                "Latency probe",
                "s",
                "The cluster's own measure of a read version, a read and a commit.",
                ("foundationdb_probe_seconds", "{{operation}}"),
                needs=FDB,
            ),
            graph(
                "Operations",
                "cps",
                "Transactions started, committed and in conflict; reads and writes.",
                ("rate(foundationdb_operations_total[$__rate_interval])", "{{operation}}"),
                needs=FDB,
            ),
            graph(
                "Storage left",
                "percentunit",
                "Of the fullest storage server's disk.",
                ("foundationdb_storage_free_ratio", "free"),
                most=1,
                needs=FDB,
            ),
            graph(
                "Client library",
                "percentunit",
                "Share of time in which its one network thread is busy. At 0.8 a pod needs more processes.",
                ("millrace_store_client_busy_ratio", "{{instance}}"),
                line=0.8,
                needs="pods on FoundationDB",
            ),
            graph(
                "Reads that failed",
                "cps",
                "Of pods, by their client library.",
                (rate("millrace_store_read_failures_total"), "{{instance}}"),
                needs="pods on FoundationDB",
            ),
            graph(
                "Processes",
                "short",
                "By role.",
                ("foundationdb_processes", "{{role}}"),
                needs=FDB,
            ),
        ],
    ),
)
