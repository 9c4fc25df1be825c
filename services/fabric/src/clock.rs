//! The only place in this crate that reads a clock.

use std::time::Instant;

/// Milliseconds since the fabric started.
pub(crate) type Millis = u64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct FabricClock(Instant);

impl FabricClock {
    pub(crate) fn start() -> Self {
        Self(instant())
    }

    pub(crate) fn now(&self) -> Millis {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[allow(clippy::disallowed_methods)]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
