//! The embedded engine's own counters and those that fjall reports.

use crate::stat::stats;

stats! {
    Counters {
        syncs: Counter "millrace_store_syncs_total" [] "Times the journal was synced for a group.",
        journal_bytes: Counter "millrace_store_journal_bytes_total" [] "Bytes written to the journal.",
        reopened: Counter "millrace_store_reopened_total" [] "Times the files were opened again after a failure.",
        memory_bytes: Gauge "millrace_store_memory_bytes" [] "Bytes in memtables, also in those that are tables already and that open transactions still read.",
        flushes: Gauge "millrace_store_unflushed_memtables" [] "Sealed memtables that wait for their flush.",
        journals: Gauge "millrace_store_journals" [] "Journal files that are kept until their memtables are flushed.",
        cache_bytes: Gauge "millrace_store_cache_bytes" [] "Bytes of table blocks in the cache.",
        tables: Gauge "millrace_store_tables" [] "Tables on disk.",
        unmerged: Gauge "millrace_store_unmerged_tables" [] "Tables of the first level, which compaction has not merged yet.",
        merging: Gauge "millrace_store_compactions_running" [] "Compactions that run now.",
        merges: Counter "millrace_store_compactions_total" [] "Compactions that ended, also those that found nothing to merge.",
        merge_micros: Counter "millrace_store_compaction_seconds_total" [] "Time that compactions took.",
        disk_bytes: Gauge "millrace_store_disk_bytes" [] "Bytes of tables and journals on disk.",
        size_bytes: Gauge "millrace_store_disk_size_bytes" [] "Size of the disk of the data folder.",
        free_bytes: Gauge "millrace_store_disk_free_bytes" [] "Bytes free on the disk of the data folder.",
    }
}
