//! The user of this process, as audit logs name operators.

/// The user who called `sudo`, otherwise the one that the environment names.
pub(crate) fn own_name() -> String {
    let named = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let number = || format!("user {}", rustix::process::getuid().as_raw());
    named.filter(|name| !name.is_empty()).unwrap_or_else(number)
}
