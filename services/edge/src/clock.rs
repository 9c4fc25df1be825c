//! The only place that reads a clock.

use std::time::{Instant, SystemTime};

use millrace_session::Seconds;

/// Time since the process started, which event loops read once a turn and pass on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    /// Milliseconds since 1970 at the start, from which stored times derive.
    unix_start_ms: u64,
    /// Microseconds within that millisecond, so that spans of several pods can be compared.
    unix_start_us: u32,
}

pub(crate) type Millis = u64;

impl Clock {
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn start() -> Self {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let unix_start_us = unix.subsec_micros() % 1000;
        Self { unix_start_us, ..Self::at(u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)) }
    }

    #[allow(clippy::disallowed_methods)]
    pub(crate) fn at(unix_start_ms: u64) -> Self {
        Self { start: Instant::now(), unix_start_ms, unix_start_us: 0 }
    }

    /// The same clock, `ms` milliseconds ahead of the machine's.
    pub(crate) fn ahead(self, ms: i64) -> Self {
        Self { unix_start_ms: self.unix_start_ms.saturating_add_signed(ms), ..self }
    }

    pub(crate) fn now(&self) -> Millis {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn micros(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn unix_now_ms(&self) -> u64 {
        self.unix_start_ms + self.now()
    }

    pub(crate) fn unix_ns(&self, micros: u64) -> u64 {
        1000 * (1000 * self.unix_start_ms + u64::from(self.unix_start_us) + micros)
    }

    pub(crate) fn unix_ms(&self, at: Seconds) -> u64 {
        self.unix_start_ms + 1000 * u64::from(at)
    }

    /// The second of this process at `unix_ms`; 0 before its start.
    pub(crate) fn seconds_of_unix_ms(&self, unix_ms: u64) -> Seconds {
        Seconds::try_from(unix_ms.saturating_sub(self.unix_start_ms) / 1000).unwrap_or(Seconds::MAX - 1)
    }
}

/// Starts at 1, so that 0 can stand for "never".
pub(crate) fn seconds(now: Millis) -> Seconds {
    Seconds::try_from(now / 1000 + 1).unwrap_or(Seconds::MAX)
}
