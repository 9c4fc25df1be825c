//! The environment of the store: time, randomness, and a way to wait. Tests and simulations bring
//! their own, so that a seed reproduces a run.

use std::{
    future::Future,
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime},
};

use crate::{clock::instant, timer::Timer};

pub type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

pub trait Host: Send + Sync + 'static {
    /// The monotonic time since some fixed moment.
    fn now(&self) -> Duration;

    /// The time of day in unix milliseconds, or the time since the host's own start.
    fn unix_ms(&self) -> u64 {
        u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX)
    }

    /// A random number, which spreads retries.
    fn random(&self) -> u64;

    fn pause(&self, duration: Duration) -> Pause;
}

/// The machine's clock, and a timer thread that starts with the first wait.
pub struct System {
    start: Instant,
    seed: RandomState,
    drawn: AtomicU64,
    timer: Timer,
}

impl System {
    #[must_use]
    pub fn new() -> Self {
        Self { start: instant(), seed: RandomState::new(), drawn: AtomicU64::new(0), timer: Timer::default() }
    }
}

impl Default for System {
    fn default() -> Self {
        Self::new()
    }
}

impl Host for System {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    #[allow(clippy::disallowed_methods)]
    fn unix_ms(&self) -> u64 {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)
    }

    fn random(&self) -> u64 {
        self.seed.hash_one(self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    fn pause(&self, duration: Duration) -> Pause {
        Box::pin(self.timer.after(instant() + duration))
    }
}
