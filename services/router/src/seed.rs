use std::hash::{BuildHasher, Hasher};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

/// Clients choose the topic levels, so the seed of their hash is random outside of tests and
/// simulations: a tenant cannot prepare collisions.
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
