//! Limits the changes of one account that run at once, so that one tenant cannot use all changes that the server runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use uuid::Uuid;

use super::problem::{Answer, Problem};
use crate::limits::{CHANGES_MAX, SHARE_LEFT_TO_OTHERS};

#[derive(Clone, Default)]
pub(crate) struct Changes(Arc<Mutex<Running>>);

#[derive(Default)]
struct Running {
    all: usize,
    by_account: HashMap<Uuid, usize>,
}

/// Counts one change until it is dropped.
pub(crate) struct ChangeShare {
    changes: Changes,
    account: Uuid,
}

impl Changes {
    /// The more changes run, the fewer one account may have, so that a few accounts never take all.
    pub(crate) fn take(&self, account: Uuid) -> Answer<ChangeShare> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = running.by_account.get(&account).copied().unwrap_or_default();
        let most = (CHANGES_MAX.saturating_sub(running.all) / SHARE_LEFT_TO_OTHERS).max(1);
        if own >= most {
            let detail = format!("{own} changes of yours are under way: wait for their answers");
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail));
        }
        running.by_account.insert(account, own + 1);
        running.all += 1;
        drop(running);
        Ok(ChangeShare { changes: self.clone(), account })
    }
}

impl Drop for ChangeShare {
    fn drop(&mut self) {
        let mut running = self.changes.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.all -= 1;
        let own = running.by_account.entry(self.account).or_default();
        *own -= 1;
        if *own == 0 {
            running.by_account.remove(&self.account);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_accounts_that_make_all_changes_they_may_leave_room_to_others() {
        let (changes, mut held) = (Changes::default(), Vec::new());
        for id in 1..=8 {
            held.extend(std::iter::from_fn(|| changes.take(Uuid::from_u128(id)).ok()));
        }
        assert!(CHANGES_MAX - held.len() >= CHANGES_MAX / 10, "{}", held.len());
        assert!(changes.take(Uuid::from_u128(9)).is_ok());
        held.clear();
        assert!(changes.take(Uuid::from_u128(1)).is_ok());
        let left = changes.0.lock().unwrap();
        assert_eq!((left.all, left.by_account.len()), (0, 0));
    }
}
