//! The machine's monotonic clock. No other module reads it.

use std::time::Instant;

#[allow(clippy::disallowed_methods)]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
