//! What the embedded engine counts, and what fjall tells.

use crate::stat::stats;

stats! {
    /// Of one data folder, since it was opened.
    Counters {
        syncs: Counter "millrace_store_syncs_total" [] "Times the journal was synced for a group.",
        journal_bytes: Counter "millrace_store_journal_bytes_total" [] "Bytes written to the journal.",
        reopened: Counter "millrace_store_reopened_total" [] "Times the files were opened again after a failure.",
        memory_bytes: Gauge "millrace_store_memory_bytes" [] "Bytes of writes that are in no table yet.",
        flushes: Gauge "millrace_store_unflushed" [] "Full pieces of memory that wait to be written into tables.",
        journals: Gauge "millrace_store_journals" [] "Journals that are needed until that is done.",
        cache_bytes: Gauge "millrace_store_cache_bytes" [] "Bytes of blocks of tables in memory.",
        tables: Gauge "millrace_store_tables" [] "Tables.",
        unmerged: Gauge "millrace_store_unmerged_tables" [] "Tables that were not merged yet.",
        merging: Gauge "millrace_store_compactions_running" [] "Merges of tables that are running.",
        merges: Counter "millrace_store_compactions_total" [] "Looks for tables to merge that are over, with the merge if there was one.",
        merge_micros: Counter "millrace_store_compaction_micros_total" [] "Time for which they took.",
        disk_bytes: Gauge "millrace_store_disk_bytes" [] "Bytes of tables and journals on the disk.",
        free_bytes: Gauge "millrace_store_disk_free_bytes" [] "Bytes that are free on it.",
    }
}
