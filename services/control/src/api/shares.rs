//! Counts how much of a common amount is in use, in all and by each holder: answers in memory, changes under way, streams.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

#[derive(Clone, Default)]
pub(super) struct HolderShares(Arc<Mutex<HeldAmounts>>);

#[derive(Default)]
pub(super) struct HeldAmounts {
    pub(super) all: usize,
    by_holder: HashMap<Uuid, usize>,
}

impl HeldAmounts {
    pub(super) fn of(&self, holder: Uuid) -> usize {
        self.by_holder.get(&holder).copied().unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn holders(&self) -> usize {
        self.by_holder.len()
    }
}

/// An amount that its holders have until it is dropped.
pub(crate) struct Share {
    shares: HolderShares,
    holders: Vec<Uuid>,
    amount: usize,
}

impl HolderShares {
    /// Takes an amount that counts once in all and fully for each of its holders, such as a person and an organisation, unless
    /// `refuse` finds that too much is in use.
    pub(super) fn take<E>(
        &self,
        holders: Vec<Uuid>,
        amount: usize,
        refuse: impl FnOnce(&HeldAmounts, &[Uuid]) -> Result<(), E>,
    ) -> Result<Share, E> {
        let mut held = self.lock();
        refuse(&held, &holders)?;
        held.all += amount;
        for id in &holders {
            *held.by_holder.entry(*id).or_default() += amount;
        }
        drop(held);
        Ok(Share { shares: self.clone(), holders, amount })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HeldAmounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.lock();
        held.all -= self.amount;
        for id in &self.holders {
            let own = held.by_holder.entry(*id).or_default();
            *own -= self.amount;
            if *own == 0 {
                held.by_holder.remove(id);
            }
        }
    }
}
