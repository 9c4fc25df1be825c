//! Counters of a cluster's transactions.

use std::time::Duration;

use crate::{
    error::StoreError,
    stat::{StoreCount, stats},
    version::Committed,
};

stats! {
    Counters {
        transactions: Counter "millrace_store_transactions_total" [] "Transactions that were committed.",
        conflicts: Counter "millrace_store_refused_total" ["reason=\"conflict\""] "Transactions that were not committed, by reason.",
        too_old: Counter "millrace_store_refused_total" ["reason=\"too_old\""] "Transactions that were not committed, by reason.",
        failed: Counter "millrace_store_refused_total" ["reason=\"failed\""] "Transactions that were not committed, by reason.",
        busy: Counter "millrace_store_refused_total" ["reason=\"busy\""] "Transactions that were not committed, by reason.",
        unknown: Counter "millrace_store_refused_total" ["reason=\"unknown\""] "Transactions that were not committed, by reason.",
        read_failures: Counter "millrace_store_read_failures_total" [] "Reads that failed.",
        commit_micros: Counter "millrace_store_commit_seconds_total" [] "Sum of the times of commits. The embedded engine commits transactions in groups.",
        waiting: Gauge "millrace_store_waiting_transactions" [] "Transactions that wait for their commit.",
        busy_permille: Gauge "millrace_store_client_busy_ratio" [] "Share of time in which the network thread of the client library is busy.",
    }
}

impl Counters {
    pub(super) fn ended(&self, result: &Result<Committed, StoreError>, took: Duration) {
        self.waiting.subtract(1);
        self.commit_micros.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        match result {
            Ok(_) => self.transactions.add(1),
            Err(error) => self.refused(error).add(1),
        }
    }

    pub(super) fn refused(&self, error: &StoreError) -> &StoreCount {
        match error {
            StoreError::Conflict => &self.conflicts,
            StoreError::TooOld => &self.too_old,
            StoreError::Busy => &self.busy,
            StoreError::CommitUnknown => &self.unknown,
            _ => &self.failed,
        }
    }
}
