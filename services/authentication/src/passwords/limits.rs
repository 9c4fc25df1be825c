//! Limits of password checks. They bound what clients can cost each other, so they are no settings.

/// How many checks may wait.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Of all brokers together.
    pub all_max: usize,
    /// Of one broker.
    pub broker_max: usize,
}

/// At 25 ms a check, one broker's are some 25 seconds of one core: who connects waits no longer.
pub const WAITING: Waiting = Waiting { all_max: 10_000, broker_max: 1_000 };

/// Right passwords that are remembered, 20 bytes each: a reconnect storm of so many clients costs no checks.
pub const RIGHT_MAX: usize = 100_000;
/// Time for which a right password is remembered, seconds. A changed hash is another entry.
pub const RIGHT_S: u32 = 300;
/// Wrong passwords that are remembered.
pub const WRONG_MAX: usize = 20_000;
/// Time for which a wrong password is remembered, seconds: a client that tries the same one again and again costs
/// one check in this time.
pub const WRONG_S: u32 = 10;

/// How far the threads that check step back behind event loops (`nice`, 0 to 19): to a third of a loop's share of a core,
/// so that checks go on beside other programs.
pub const NICE: i32 = 5;
/// Threads that check, at most, 19 MiB each while they do.
pub const THREADS_MAX: usize = 16;
