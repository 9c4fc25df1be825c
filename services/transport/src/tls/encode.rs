//! Appends what rustls encodes to a buffer that grows as needed.

use std::io;

use rustls::unbuffered::{EncodeError, EncryptError, InsufficientSizeError};

/// An error that says how much room is needed, or that more room does not help.
pub(super) trait Short {
    fn needed(&self) -> Option<usize>;
}

impl Short for EncodeError {
    fn needed(&self) -> Option<usize> {
        match self {
            Self::InsufficientSize(InsufficientSizeError { required_size }) => Some(*required_size),
            Self::AlreadyEncoded => None,
        }
    }
}

impl Short for EncryptError {
    fn needed(&self) -> Option<usize> {
        match self {
            Self::InsufficientSize(InsufficientSizeError { required_size }) => Some(*required_size),
            Self::EncryptExhausted => None,
        }
    }
}

/// Appends the output of `write`, which first reports how much room it needs.
pub(super) fn encode<E: Short + Into<Box<dyn std::error::Error + Send + Sync>>>(
    out: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
) -> io::Result<()> {
    let len = out.len();
    let written = match write(&mut []) {
        Err(error) => match error.needed() {
            Some(needed) => {
                out.reserve_exact(needed);
                out.resize(len + needed, 0);
                write(&mut out[len..]).map_err(invalid)?
            }
            None => return Err(invalid(error)),
        },
        Ok(written) => written,
    };
    out.truncate(len + written);
    Ok(())
}

pub(super) fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
