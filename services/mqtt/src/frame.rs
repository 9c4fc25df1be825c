//! Finds packet boundaries in a byte stream.

use crate::{DecodeError, Packet, Version, packet, wire};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Packet type and flags.
    pub first: u8,
    /// Variable header and payload.
    pub body: &'a [u8],
    /// Bytes of the whole packet with its fixed header: where the next packet begins.
    pub size: usize,
}

impl<'a> Frame<'a> {
    /// Whether the remaining length takes the fewest bytes.
    #[inline]
    pub const fn has_shortest_length(&self) -> bool {
        self.size - self.body.len() == 1 + wire::var_int_len(self.body.len())
    }

    /// Like [`crate::decode`]. 5.0 also refuses a remaining length that could be shorter, which 3.x does not forbid.
    ///
    /// # Errors
    /// A packet that breaks a rule of its version.
    #[inline]
    pub fn decode(&self, version: Option<Version>) -> Result<Packet<'a>, DecodeError> {
        let packet = packet::decode(self.first, self.body, version)?;
        //= [MQTT-1.5.5-1] v5
        if !self.has_shortest_length() {
            let version =
                if let Packet::Connect(connect) = &packet { Some(connect.version) } else { version };
            if version == Some(Version::V5) {
                return Err(wire::NOT_SHORTEST);
            }
        }
        Ok(packet)
    }
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
    let Some((body_len, len_len)) = wire::read_remaining_length(rest)? else { return Ok(Err(buf.len() + 1)) };
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
