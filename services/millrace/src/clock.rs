//! The time of day of commands and of the control plane.

#[allow(clippy::disallowed_methods, reason = "the one clock of commands and of the control plane")]
pub(crate) fn now_ms() -> u64 {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)
}
