//! The only module that reads the machine's clock and waits on it.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Counted from the first call in this process.
#[expect(clippy::disallowed_methods, reason = "a run against a real server happens in real time")]
pub(crate) fn now_ms() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(Instant::now);
    u64::try_from(origin.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Sleeps between two attempts to reach a port of another process.
#[expect(clippy::disallowed_methods, reason = "a port that is not open yet has no event to wait on")]
pub(crate) fn pause_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}
