//! Randomness of the system.

/// Random bytes.
///
/// # Errors
/// The system has none to give, which it says at the start if ever.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
