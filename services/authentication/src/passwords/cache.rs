//! Remembers the results of password checks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millrace_access::secrets::VerifiedCache;

use super::limits::{RIGHT_MAX, RIGHT_S, WRONG_MAX, WRONG_S};
use super::{CheckOutcome, PasswordRequest};

/// Right and wrong passwords have separate caches, so that guesses evict no right password.
pub(super) struct Remembered(Mutex<Both>);

struct Both {
    right: VerifiedCache,
    wrong: VerifiedCache,
}

impl Remembered {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let right = VerifiedCache::new(key, RIGHT_MAX, RIGHT_S);
        let wrong = VerifiedCache::new(key, WRONG_MAX, WRONG_S);
        Self(Mutex::new(Both { right, wrong }))
    }

    pub(super) fn find<C>(&self, request: &PasswordRequest<C>, now_s: u32) -> Option<CheckOutcome> {
        let user = user(request);
        let both = self.lock();
        let has = |cache: &VerifiedCache, hash: &str| cache.contains(&user, &request.password, hash, now_s);
        if request.hashes.iter().any(|hash| has(&both.right, hash)) {
            return Some(CheckOutcome::Right);
        }
        request.hashes.iter().all(|hash| has(&both.wrong, hash)).then_some(CheckOutcome::Wrong)
    }

    pub(super) fn insert<C>(&self, request: &PasswordRequest<C>, hash: &str, is_right: bool, now_s: u32) {
        let mut both = self.lock();
        let cache = if is_right { &mut both.right } else { &mut both.wrong };
        cache.insert(&user(request), &request.password, hash, now_s);
    }

    fn lock(&self) -> MutexGuard<'_, Both> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Includes the broker, because brokers can have users of the same name.
fn user<C>(request: &PasswordRequest<C>) -> String {
    format!("{}/{}", request.broker, request.user)
}
