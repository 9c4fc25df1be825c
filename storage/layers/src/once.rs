//! Recognizes whether a transaction with a lost answer was committed. A repeat would store messages twice, and fire the
//! wills of connections that the transaction itself took over. So each attempt writes its own commit marker
//! ([`pods::write_marker`]) in its transaction; the next attempt looks for the marker, and returns the result of the committed
//! attempt.

use std::cell::{Cell, RefCell};

use millrace_storage::{Transaction, Versionstamp};

use crate::{error::LayerResult, pods};

/// Numbers for commit markers, unique among all processes and transactions.
#[derive(Debug)]
pub struct MarkerNumbers {
    process: u64,
    transactions: u64,
}

impl MarkerNumbers {
    /// `process` must be unique among all processes that ever used the store.
    #[must_use]
    pub fn new(process: u64) -> Self {
        Self { process, transactions: 0 }
    }

    /// The attempts of the next transaction, 2^16 at most: their numbers end where those of the transaction after it begin.
    pub fn attempts<T>(&mut self) -> Attempts<T> {
        self.transactions += 1;
        let first = u128::from(self.process) << 64 | u128::from(self.transactions) << 16;
        Attempts { first, outputs: RefCell::default(), committed: Cell::default() }
    }
}

#[derive(Debug)]
pub struct Attempts<T> {
    first: u128,
    outputs: RefCell<Vec<T>>,
    committed: Cell<Option<usize>>,
}

impl<T> Attempts<T> {
    /// Registers an attempt before its commit, and returns the number for its commit marker.
    pub fn push(&self, output: T) -> u128 {
        let mut outputs = self.outputs.borrow_mut();
        outputs.push(output);
        self.first + outputs.len() as u128 - 1
    }

    /// After an unknown result, the next attempt asks here: returns the versionstamp of the attempt that the pod's
    /// commit marker names, if any.
    pub async fn find(&self, tx: &Transaction, pod: &[u8]) -> LayerResult<Option<Versionstamp>> {
        let marked = pods::last_marker(tx, pod).await?;
        let found = marked.and_then(|(number, stamp)| {
            let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
            (at < self.outputs.borrow().len()).then_some((at, stamp))
        });
        self.committed.set(found.map(|(at, _)| at));
        Ok(found.map(|(_, stamp)| stamp))
    }

    /// The result of the committed attempt: the last one, unless [`Self::find`] found an earlier one.
    pub fn into_committed(self) -> Option<T> {
        let mut outputs = self.outputs.into_inner();
        let last = outputs.len().checked_sub(1)?;
        Some(outputs.swap_remove(self.committed.get().unwrap_or(last)))
    }
}

#[cfg(test)]
mod tests {
    use millrace_storage::block_on;

    use super::*;
    use crate::testing::{database, run};

    #[test]
    fn the_next_attempt_finds_the_committed_one_and_other_transactions_do_not() {
        let database = database();
        let mut marks = MarkerNumbers::new(7);
        let attempts = marks.attempts();
        attempts.push("lost");
        let number = attempts.push("committed");
        run(&database, async |tx| pods::write_marker(tx, b"pod", number));
        attempts.push("not committed");
        let find = |attempts: &Attempts<&str>, pod: &'static [u8]| {
            let tx = database.begin_unretried();
            block_on(attempts.find(&tx, pod)).unwrap()
        };
        let other = marks.attempts();
        other.push("another");
        assert_eq!((find(&other, b"pod"), find(&attempts, b"other")), (None, None));
        assert!(find(&attempts, b"pod").is_some());
        assert_eq!((attempts.into_committed(), other.into_committed()), (Some("committed"), Some("another")));
    }
}
