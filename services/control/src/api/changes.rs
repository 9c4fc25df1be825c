//! Limits the changes of one account, or of one stranger's network, that run at once, so that neither can use all changes that
//! the server runs.

use std::net::IpAddr;

use axum::http::StatusCode;
use uuid::Uuid;

use super::problem::{Answer, Problem};
use super::shares::{Share, Shares};
use crate::limits::{CHANGES_MAX, SHARE_LEFT_TO_OTHERS};
use crate::network::network;

#[derive(Clone, Default)]
pub(crate) struct Changes(Shares);

impl Changes {
    pub(crate) fn take(&self, account: Uuid) -> Answer<Share> {
        self.take_for(account, "of yours")
    }

    /// A change of somebody who has not signed in, such as a sign-up.
    pub(crate) fn take_as_stranger(&self, address: Option<IpAddr>) -> Answer<Share> {
        self.take_for(holder(address), "from your network")
    }

    /// The more changes run, the fewer one holder may have, so that a few holders never take all.
    fn take_for(&self, holder: Uuid, whose: &str) -> Answer<Share> {
        self.0.take(vec![holder], 1, |running, _| {
            let own = running.of(holder);
            let most = (CHANGES_MAX.saturating_sub(running.all) / SHARE_LEFT_TO_OTHERS).max(1);
            if own >= most {
                let detail = format!("{own} changes {whose} are under way: wait for their answers");
                return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail));
            }
            Ok(())
        })
    }
}

/// A hash, so that no address has the id of an account.
fn holder(address: Option<IpAddr>) -> Uuid {
    let network = network(address).map(|address| address.to_string()).unwrap_or_default();
    let hash = blake3::derive_key("millrace 2026-11 changes of a stranger's network", network.as_bytes());
    Uuid::from_u64_pair(
        u64::from_be_bytes(std::array::from_fn(|at| hash[at])),
        u64::from_be_bytes(std::array::from_fn(|at| hash[at + 8])),
    )
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
