use std::hash::{BuildHasher, Hasher};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

/// The seed of the hash of topic levels. It is random, except in tests and simulations, because
/// clients choose the levels and could otherwise prepare collisions.
#[derive(Clone, Debug)]
pub(crate) struct Seed(SeedableRandomState);

impl Seed {
    pub(crate) fn random() -> Self {
        Self(SeedableRandomState::random())
    }

    pub(crate) fn fixed(seed: u64) -> Self {
        Self(SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()))
    }

    #[inline]
    pub(crate) fn hash(&self, text: &str) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(text.as_bytes());
        hasher.finish()
    }
}
