//! Metrics of the writer's transactions.

use millrace_layers::LayerError;
use millrace_storage::{Attempt, StoreError};

use crate::metrics::{self, Count, Histogram, Metric};

/// Only the writer adds to it.
#[derive(Debug, Default)]
pub(super) struct TransactionMetrics {
    /// Times from submission to commit.
    pub(super) acknowledged: Histogram,
    /// Transactions that wrote something, with all attempts.
    pub(super) seconds: Histogram,
    conflicts: Count,
    retries: Count,
}

impl TransactionMetrics {
    /// Called when an attempt begins, so that a transaction that never ends is counted too.
    pub(super) fn note_attempt(&self, before: Attempt, now: Attempt) {
        self.retries.add((now.number - before.number) as usize);
        self.conflicts.add((now.conflicts - before.conflicts) as usize);
    }

    /// Called with the result of the last attempt.
    pub(super) fn note_end<T>(&self, result: &Result<T, LayerError>) {
        let is_conflict = matches!(result, Err(LayerError::Store(StoreError::Conflict | StoreError::TooOld)));
        self.conflicts.add(usize::from(is_conflict));
    }

    pub(super) fn write(&self, out: &mut String) {
        Histogram::write(
            out,
            "millrace_message_commit_seconds",
            "Time from a QoS 1 or 2 message to its commit, after which it is acknowledged.",
            std::slice::from_ref(&self.acknowledged),
        );
        Histogram::write(
            out,
            "millrace_store_transaction_seconds",
            "Time from taking jobs to the commit of their transaction, with all its attempts.",
            std::slice::from_ref(&self.seconds),
        );
        let counters = [
            Metric {
                kind: "counter",
                name: "millrace_store_transaction_conflicts_total",
                labels: "",
                help: "Attempts of the writer's transactions that ended because another transaction had changed what they read, or because they were too old.",
            },
            Metric {
                kind: "counter",
                name: "millrace_store_transaction_retries_total",
                labels: "",
                help: "Attempts of the writer's transactions after the first, for any reason.",
            },
        ];
        metrics::write(out, &counters, &[(String::new(), vec![self.conflicts.get(), self.retries.get()])]);
    }
}
