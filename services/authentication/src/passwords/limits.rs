//! Limits of password checks: constants rather than settings, because they bound what clients can
//! cost each other.

use crate::QueueLimits;

/// Queued checks. At 25 ms a check, one broker's full queue takes 25 s of one core, and clients do
/// not wait longer for a CONNACK.
pub const WAITING: QueueLimits = QueueLimits { all_max: 10_000, broker_max: 1_000 };

/// Cached right passwords, 20 bytes each: a storm of so many reconnects costs no checks.
pub const RIGHT_MAX: usize = 100_000;
/// Seconds for which a right password stays cached. A changed hash makes another entry, so nothing
/// is cleared.
pub const RIGHT_S: u32 = 300;
pub const WRONG_MAX: usize = 20_000;
/// Seconds for which a wrong password stays cached: a client that retries it costs one check in
/// this time.
pub const WRONG_S: u32 = 10;

/// Lowers the priority of checking threads below the event loops (`nice`, 0 to 19), to a third of a
/// loop's share of a core. A higher value would starve the checks beside other programs.
pub const NICE: i32 = 5;
/// One for each core, up to this many, because each uses 19 MiB during a check.
pub const THREADS_MAX: usize = 16;
