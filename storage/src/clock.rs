//! Reads the machine's monotonic clock; no other module of this crate reads it.

use std::time::Instant;

#[allow(clippy::disallowed_methods)]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
