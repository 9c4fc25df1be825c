//! The only module that reads the machine's clock and waits on it, because latencies and deadlines
//! need it.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Counted from the first call in this process.
#[expect(clippy::disallowed_methods, reason = "a load driver measures wall time; everything else calls this")]
pub(crate) fn now_ns() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(Instant::now);
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Interval of polling what the kernel has no event for: a port, a process, its memory.
#[expect(
    clippy::disallowed_methods,
    reason = "polling /proc and another process's port has no event to wait on"
)]
pub(crate) fn pause_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

pub(crate) fn seconds_ns(seconds: f64) -> u64 {
    Duration::try_from_secs_f64(seconds).map_or(u64::MAX, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

pub(crate) fn ns_seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}
