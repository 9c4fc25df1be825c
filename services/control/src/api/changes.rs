//! Limits the changes of one account that run at once, so that one tenant cannot use all changes that the server runs.

use axum::http::StatusCode;
use uuid::Uuid;

use super::problem::{Answer, Problem};
use super::shares::{Share, Shares};
use crate::limits::{CHANGES_MAX, SHARE_LEFT_TO_OTHERS};

#[derive(Clone, Default)]
pub(crate) struct Changes(Shares);

impl Changes {
    /// The more changes run, the fewer one account may have, so that a few accounts never take all.
    pub(crate) fn take(&self, account: Uuid) -> Answer<Share> {
        self.0.take(vec![account], 1, |running, _| {
            let own = running.of(account);
            let most = (CHANGES_MAX.saturating_sub(running.all) / SHARE_LEFT_TO_OTHERS).max(1);
            if own >= most {
                let detail = format!("{own} changes of yours are under way: wait for their answers");
                return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail));
            }
            Ok(())
        })
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
        let left = changes.0.lock();
        assert_eq!((left.all, left.holders()), (0, 0));
    }
}
