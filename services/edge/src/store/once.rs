//! Transactions whose answer is lost. A cluster says then that it does not know whether an attempt was committed; done again it would
//! store messages twice, and fire the wills of connections that it takes over from itself. So each attempt leaves a mark of its own
//! in its transaction, the next one looks for it, and what the one that was committed did is kept until then.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};

use millrace_storage::Versionstamp;

use super::apply::Applied;

/// Numbers that no other process and no other transaction has.
pub(super) struct Marks {
    process: u64,
    transactions: u64,
}

impl Marks {
    pub(super) fn new() -> Self {
        Self { process: RandomState::new().hash_one(0), transactions: 0 }
    }

    /// The first number of a transaction's attempts, of which there are fewer than 2^16.
    pub(super) fn next(&mut self) -> u128 {
        self.transactions += 1;
        u128::from(self.process) << 64 | u128::from(self.transactions) << 16
    }
}

/// What the attempts of one transaction did.
pub(super) struct Attempts {
    first: u128,
    applied: RefCell<Vec<Applied>>,
    committed: RefCell<Option<usize>>,
}

impl Attempts {
    pub(super) fn new(first: u128) -> Self {
        Self { first, applied: RefCell::default(), committed: RefCell::default() }
    }

    /// An attempt is about to be committed. Returns its number.
    pub(super) fn push(&self, applied: Applied) -> u128 {
        let mut all = self.applied.borrow_mut();
        all.push(applied);
        self.first + all.len() as u128 - 1
    }

    /// If the mark is of one of these, it was committed.
    pub(super) fn find(&self, number: u128, stamp: Versionstamp) -> Option<Versionstamp> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let is_known = at < self.applied.borrow().len();
        is_known.then(|| {
            *self.committed.borrow_mut() = Some(at);
            stamp
        })
    }

    /// What the attempt did that was committed: the last one, if no earlier one was found to be.
    pub(super) fn into_committed(self) -> Applied {
        let mut applied = self.applied.into_inner();
        match self.committed.into_inner() {
            Some(at) => applied.swap_remove(at),
            None => applied.pop().unwrap_or_default(),
        }
    }
}
