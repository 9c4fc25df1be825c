//! These limits bound the cost that clients can cause each other, so they are constants rather than
//! settings.

#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    pub all_max: usize,
    pub broker_max: usize,
}

/// At 25 ms a check, one broker's queue takes some 25 s of one core, and clients do not wait longer
/// for a CONNACK.
pub const WAITING: QueueLimits = QueueLimits { all_max: 10_000, broker_max: 1_000 };

/// Cached right passwords, 20 bytes each: a reconnect storm of that many clients costs no checks.
pub const RIGHT_MAX: usize = 100_000;
/// Lifetime in seconds; a changed hash is another entry.
pub const RIGHT_S: u32 = 300;
pub const WRONG_MAX: usize = 20_000;
/// Lifetime in seconds: a client that retries with a wrong password costs one check in this time.
pub const WRONG_S: u32 = 10;

/// Lowers the priority of checking threads below the event loops (`nice`, 0 to 19), to a third of a
/// loop's share of a core. A higher value would starve the checks beside other programs.
pub const NICE: i32 = 5;
/// Each thread uses 19 MiB during a check.
pub const THREADS_MAX: usize = 16;
