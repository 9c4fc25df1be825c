//! Counters of the commit thread.

use std::time::Duration;

use bytes::Bytes;

use super::backend::KeyWrite;
use crate::{
    error::StoreError,
    stat::{StoreCount, stats},
};

stats! {
    Counters {
        transactions: Counter "millrace_store_transactions_total" [] "Transactions that were committed.",
        groups: Counter "millrace_store_groups_total" [] "Groups in which transactions were committed, with one sync each.",
        keys: Counter "millrace_store_keys_written_total" [] "Keys that were set or deleted, once for each group.",
        bytes: Counter "millrace_store_written_bytes_total" [] "Bytes of the keys and values that were set or deleted.",
        conflicts: Counter "millrace_store_refused_total" ["reason=\"conflict\""] "Transactions that were not committed, by reason.",
        too_old: Counter "millrace_store_refused_total" ["reason=\"too_old\""] "Transactions that were not committed, by reason.",
        disk_full: Counter "millrace_store_refused_total" ["reason=\"disk_full\""] "Transactions that were not committed, by reason.",
        failed: Counter "millrace_store_refused_total" ["reason=\"failed\""] "Transactions that were not committed, by reason.",
        busy: Counter "millrace_store_refused_total" ["reason=\"busy\""] "Transactions that were not committed, by reason.",
        unknown: Counter "millrace_store_refused_total" ["reason=\"unknown\""] "Transactions that were not committed, by reason.",
        commit_micros: Counter "millrace_store_commit_seconds_total" [] "Sum of the times of commits. The embedded engine commits transactions in groups.",
        last_commit_micros: Gauge "millrace_store_last_commit_seconds" [] "Time that the last group took to commit.",
        stalls: Counter "millrace_store_stalls_total" [] "Groups that waited because flushes or compactions were behind the writes.",
        stall_micros: Counter "millrace_store_stall_seconds_total" [] "Time that groups waited for flushes or compactions.",
        failures: Counter "millrace_store_failures_total" [] "Times the store failed and had to recover.",
        waiting: Gauge "millrace_store_waiting_transactions" [] "Transactions that wait for their commit.",
        waiting_bytes: Gauge "millrace_store_waiting_bytes" [] "Bytes of transactions that wait for the next group.",
    }
}

pub(super) struct Written {
    transactions: u64,
    keys: u64,
    bytes: u64,
}

impl Written {
    pub(super) fn of(writes: &[KeyWrite], transactions: usize) -> Self {
        let bytes = |write: &KeyWrite| write.key.len() + write.value.as_ref().map_or(0, Bytes::len);
        Self {
            transactions: transactions as u64,
            keys: writes.len() as u64,
            bytes: writes.iter().map(bytes).sum::<usize>() as u64,
        }
    }
}

impl Counters {
    pub(super) fn committed(&self, written: &Written, took: Duration) {
        self.transactions.add(written.transactions);
        self.groups.add(1);
        self.keys.add(written.keys);
        self.bytes.add(written.bytes);
        self.commit_micros.add(micros(took));
        self.last_commit_micros.set(micros(took));
    }

    pub(super) fn refused(&self, error: &StoreError) -> &StoreCount {
        match error {
            StoreError::Conflict => &self.conflicts,
            StoreError::TooOld => &self.too_old,
            StoreError::DiskFull { .. } => &self.disk_full,
            StoreError::Busy => &self.busy,
            StoreError::CommitUnknown => &self.unknown,
            _ => &self.failed,
        }
    }
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
