//! Random numbers from the operating system.

/// Fails when the system has no randomness; such a system fails at the start already.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
