//! Limits the changes of one account, or of one stranger's network, that run at once, so that neither can use all changes that
//! the server runs.

use std::net::IpAddr;

use axum::http::StatusCode;
use uuid::Uuid;

use super::problem::{ApiResult, Problem};
use super::shares::{HolderShares, Share};
use crate::domain::Caller;
use crate::limits::{CHANGES_MAX, HOLDER_DIVISOR};
use crate::network::network;

/// Strangers are counted apart: many networks together would leave little to accounts.
#[derive(Clone, Default)]
pub(crate) struct ChangePermits {
    of_accounts: HolderShares,
    of_unauthenticated: HolderShares,
}

impl ChangePermits {
    /// The tokens of an account that only read have a share of their own, so that a leaked one does not use up the account's.
    pub(crate) fn take(&self, caller: &Caller) -> ApiResult<Share> {
        let account = caller.account();
        let holder = match caller.is_token_that_only_reads() {
            true => hashed("millrace 2026-11 changes of tokens that only read", account.as_bytes()),
            false => account,
        };
        take(&self.of_accounts, holder, CHANGES_MAX, "of yours")
    }

    pub(crate) fn take_unauthenticated(&self, address: Option<IpAddr>) -> ApiResult<Share> {
        take(&self.of_unauthenticated, holder(address), CHANGES_MAX / 2, "from your network")
    }
}

/// The more changes run, the fewer one holder may have, so that a few holders never take all.
fn take(shares: &HolderShares, holder: Uuid, all_max: usize, whose: &str) -> ApiResult<Share> {
    shares.take(vec![holder], 1, |running, _| {
        let own = running.of(holder);
        let most = (all_max.saturating_sub(running.all) / HOLDER_DIVISOR).max(1);
        if own >= most {
            let detail = format!("{own} changes {whose} are under way: wait for their answers");
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail));
        }
        Ok(())
    })
}

fn holder(address: Option<IpAddr>) -> Uuid {
    let network = address.map(network).map(|address| address.to_string()).unwrap_or_default();
    hashed("millrace 2026-11 changes of a stranger's network", network.as_bytes())
}

/// Makes the id of a holder that is no account. A hash, so that it differs from the id of every account.
fn hashed(context: &str, holder: &[u8]) -> Uuid {
    let hash = blake3::derive_key(context, holder);
    Uuid::from_u64_pair(
        u64::from_be_bytes(std::array::from_fn(|at| hash[at])),
        u64::from_be_bytes(std::array::from_fn(|at| hash[at + 8])),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Principal;

    fn person(id: u128) -> Caller {
        let who = Principal::Person { user: Uuid::from_u128(id), email: String::new(), sign_in: [0; 32] };
        Caller { who, address: None, agent: None }
    }

    #[test]
    fn a_few_accounts_that_make_all_changes_they_may_leave_room_to_others() {
        let (changes, mut held) = (ChangePermits::default(), Vec::new());
        for id in 1..=8 {
            held.extend(std::iter::from_fn(|| changes.take(&person(id)).ok()));
        }
        assert!(CHANGES_MAX - held.len() >= CHANGES_MAX / 10, "{}", held.len());
        assert!(changes.take(&person(9)).is_ok());
        held.clear();
        assert!(changes.take(&person(1)).is_ok());
        let left = changes.of_accounts.lock();
        assert_eq!((left.all, left.holders()), (0, 0));
    }

    #[test]
    fn strangers_of_many_networks_leave_accounts_what_they_had() {
        let (changes, mut held) = (ChangePermits::default(), Vec::new());
        for number in 0..=255 {
            let address = IpAddr::from([10, 0, 0, number]);
            held.extend(std::iter::from_fn(|| changes.take_unauthenticated(Some(address)).ok()));
        }
        let own = std::iter::from_fn(|| changes.take(&person(1)).ok());
        assert!(own.take(60).collect::<Vec<_>>().len() >= 50);
    }
}
