//! The one place that reads a clock.

use std::time::Instant;

use millrace_session::Seconds;

/// Time since the process started. Read once a turn; everything else is told the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

/// Milliseconds since the process started.
pub(crate) type Millis = u64;

impl Clock {
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now(&self) -> Millis {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Whole seconds of a time in milliseconds. Starts at 1, so that 0 can stand for "never".
pub(crate) fn seconds(now: Millis) -> Seconds {
    Seconds::try_from(now / 1000 + 1).unwrap_or(Seconds::MAX)
}
