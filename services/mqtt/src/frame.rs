//! Finds packet boundaries in a byte stream.

use crate::{DecodeError, packet, wire};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Packet type and flags.
    pub first: u8,
    /// Variable header and payload.
    pub body: &'a [u8],
    /// Bytes of the whole packet with its fixed header: where the next packet begins.
    pub size: usize,
}

/// Finds one whole packet at the start of `buf`. `Ok(Err(needed))` means that the packet is
/// incomplete: `buf` must grow to `needed` bytes, more if the fixed header itself is incomplete.
///
/// # Errors
/// A remaining length of more than four bytes, a first byte that no version allows, and a packet
/// over `packet_size_max` bytes, each as soon as the fixed header is complete.
#[inline]
pub fn frame(buf: &[u8], packet_size_max: u32) -> Result<Result<Frame<'_>, usize>, DecodeError> {
    let Some((&first, rest)) = buf.split_first() else { return Ok(Err(2)) };
    packet::check_first_byte(first)?;
    let Some((body_len, len_len)) = wire::read_var_int(rest)? else { return Ok(Err(buf.len() + 1)) };
    // Cannot overflow: 5 + 268,435,455 at most.
    let size = 1 + len_len as u32 + body_len;
    if size > packet_size_max {
        return Err(DecodeError::TooLarge { size, limit: packet_size_max });
    }
    let size = size as usize;
    match buf.get(1 + len_len..size) {
        Some(body) => Ok(Ok(Frame { first, body, size })),
        None => Ok(Err(size)),
    }
}

#[cfg(test)]
mod tests;
