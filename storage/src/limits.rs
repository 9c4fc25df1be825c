//! Limits of keys, values and transactions. They are FoundationDB's, which cannot be configured,
//! less what our engine over it needs. Every engine has the same limits, so that nothing works on
//! one engine and fails on another.

use std::time::Duration;

/// Age of a transaction at which it can no longer read or commit.
pub const TRANSACTION_AGE_MAX: Duration = Duration::from_secs(5);

/// Bytes of a transaction: keys, values and conflict ranges, counted by [`cost`] and
/// [`range_cost`].
pub const TRANSACTION_BYTES_MAX: usize = 10_000_000;

/// Bytes of the longest prefix that the keys of a store have in a cluster.
pub const PREFIX_BYTES_MAX: usize = 16;

/// Bytes of a key: FoundationDB's 10,000, less the prefix, and less four bytes for the offset of a
/// versionstamp.
pub const KEY_BYTES_MAX: usize = 10_000 - PREFIX_BYTES_MAX - 4;

pub const VALUE_BYTES_MAX: usize = 100_000;

/// Bytes of keys and values after which a range read ends its page, whatever its row limit, which
/// bounds the memory of a read.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Keys from here on belong to the engine.
pub const KEY_SPACE_END: &[u8] = b"\xff";

/// FoundationDB's overhead of a write and its conflict range: two records of 44 and 24 bytes, a
/// byte after the key, and the prefix in up to four ends.
const OVERHEAD: usize = 44 + 24 + 2 + 4 * PREFIX_BYTES_MAX + 4;

/// The bytes of [`TRANSACTION_BYTES_MAX`] that one write uses: its key three times (the write and
/// both ends of its conflict range), its value, and FoundationDB's overhead.
#[must_use]
pub fn cost(key: usize, value: usize) -> usize {
    3 * key + value + OVERHEAD
}

/// The bytes that the write of a range uses: both ends twice, also when one key is deleted.
#[must_use]
pub fn range_cost(begin: usize, end: usize) -> usize {
    2 * (begin + end) + OVERHEAD
}
