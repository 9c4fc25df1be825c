//! The only place that reads a clock.

#[cfg(test)]
pub(crate) mod simulated;

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

use millrace_session::Seconds;

/// Time since the process started, which event loops read once a turn and pass on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    source: TimeSource,
    /// Milliseconds since 1970 at the start, from which stored times derive.
    unix_start_ms: u64,
    /// Microseconds within that millisecond, so that spans of several pods can be compared.
    unix_start_us: u32,
}

/// Where the time comes from. A simulation moves a time of its own, and waiting lets others act.
#[derive(Clone, Copy, Debug)]
enum TimeSource {
    /// The machine's clock, since this moment.
    Machine(Instant),
    /// Microseconds of the simulation at the start.
    #[cfg(test)]
    Simulated(u64),
}

pub(crate) type Millis = u64;

/// Quarters of a [`Seconds`], for deadlines that a second more would miss.
pub(crate) type Ticks = u32;

pub(crate) const TICKS_PER_S: Ticks = 4;
const TICK_MS: Millis = 1000 / TICKS_PER_S as Millis;

impl Clock {
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn start() -> Self {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let unix_start_us = unix.subsec_micros() % 1000;
        Self { unix_start_us, ..Self::at(u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)) }
    }

    #[allow(clippy::disallowed_methods)]
    pub(crate) fn at(unix_start_ms: u64) -> Self {
        Self { source: TimeSource::Machine(Instant::now()), unix_start_ms, unix_start_us: 0 }
    }

    /// The same clock, `ms` milliseconds ahead of the machine's.
    pub(crate) fn ahead(self, ms: i64) -> Self {
        Self { unix_start_ms: self.unix_start_ms.saturating_add_signed(ms), ..self }
    }

    /// A clock of a pod in a simulation.
    #[cfg(test)]
    pub(crate) fn simulated(unix_start_ms: u64) -> Self {
        Self { source: TimeSource::Simulated(simulated::micros()), unix_start_ms, unix_start_us: 0 }
    }

    #[cfg(test)]
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self.source, TimeSource::Simulated(_))
    }

    fn elapsed(&self) -> Duration {
        match self.source {
            TimeSource::Machine(start) => start.elapsed(),
            #[cfg(test)]
            TimeSource::Simulated(start_us) => Duration::from_micros(simulated::micros() - start_us),
        }
    }

    pub(crate) fn block_on_for<F: Future>(&self, future: Pin<&mut F>, wait: Duration) -> Option<F::Output> {
        match self.source {
            TimeSource::Machine(_) => millrace_storage::block_on_for(future, wait),
            #[cfg(test)]
            TimeSource::Simulated(_) => simulated::block_on_for(future, wait),
        }
    }

    pub(crate) fn now(&self) -> Millis {
        u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn micros(&self) -> u64 {
        u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn unix_now_ms(&self) -> u64 {
        self.unix_start_ms + self.now()
    }

    pub(crate) fn unix_ns(&self, micros: u64) -> u64 {
        1000 * (1000 * self.unix_start_ms + u64::from(self.unix_start_us) + micros)
    }

    pub(crate) fn unix_at(&self, at: Millis) -> u64 {
        self.unix_start_ms.saturating_add(at)
    }

    /// The inverse of [`Self::unix_at`], below the MAX that stands for "never"; 0 before the start.
    pub(crate) fn at_unix(&self, unix_ms: u64) -> Millis {
        unix_ms.saturating_sub(self.unix_start_ms).min(Millis::MAX - 1)
    }

    pub(crate) fn unix_ms(&self, at: Seconds) -> u64 {
        self.unix_at(1000 * Millis::from(at))
    }

    /// The inverse of [`Self::unix_ms`], below the MAX that stands for "never"; 0 before the start.
    pub(crate) fn seconds_of_unix_ms(&self, unix_ms: u64) -> Seconds {
        Seconds::try_from(self.at_unix(unix_ms) / 1000).unwrap_or(Seconds::MAX - 1)
    }
}

/// Begins at 1, because 0 stands for "never": up to a second ahead of [`Clock::now`].
pub(crate) fn seconds(now: Millis) -> Seconds {
    Seconds::try_from(now / 1000 + 1).unwrap_or(Seconds::MAX)
}

pub(crate) fn ticks(now: Millis) -> Ticks {
    Ticks::try_from(now / TICK_MS + Millis::from(TICKS_PER_S)).unwrap_or(Ticks::MAX)
}

pub(crate) fn tick_ms(tick: Ticks) -> Millis {
    Millis::from(tick.saturating_sub(TICKS_PER_S)) * TICK_MS
}

pub(crate) fn ticks_of(at: Seconds) -> Ticks {
    at.saturating_mul(TICKS_PER_S)
}
