//! The workload's environment: time, waits and random numbers from one host, so that a seed gives
//! the same run.

use std::{sync::Arc, time::Duration};

use millrace_storage::Host;

/// The run's first moment in unix milliseconds; not 0, which means "never" in some rows.
const BEGIN_MS: u64 = 1_000_000;

/// Host of a run, with helpers for waits and random numbers.
#[derive(Clone)]
pub struct World(Arc<dyn Host>);

impl World {
    /// Uses a host for time, waits and randomness.
    #[must_use]
    pub fn new(host: Arc<dyn Host>) -> Self {
        Self(host)
    }

    /// For the store, which uses the same host.
    #[must_use]
    pub fn host(&self) -> Arc<dyn Host> {
        self.0.clone()
    }

    pub(crate) fn now_ms(&self) -> u64 {
        BEGIN_MS + u64::try_from(self.0.now().as_millis()).unwrap_or(u64::MAX / 2)
    }

    pub(crate) async fn pause_ms(&self, milliseconds: u64) {
        self.0.pause(Duration::from_millis(milliseconds)).await;
    }

    /// A random number below `end`, which is not 0.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.0.random() % end
    }

    pub(crate) fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn pick<T: Copy>(&self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap_or(0)]
    }
}
