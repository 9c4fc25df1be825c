//! Integers, strings and binary data in wire format (MQTT 5.0 section 1.5).

use crate::DecodeError;

/// Largest variable byte integer, and so the largest remaining length.
pub(crate) const VAR_INT_MAX: u32 = 268_435_455;

/// Bytes of the longest string or binary field, because its length prefix has two bytes.
pub(crate) const FIELD_BYTES_MAX: usize = u16::MAX as usize;

const CUT: DecodeError = DecodeError::Malformed("a field is cut short");

/// Reads fields from the front of a packet's bytes. A method consumes what it reads, or fails; none
/// panics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        let (&byte, rest) = self.0.split_first().ok_or(CUT)?;
        self.0 = rest;
        Ok(byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        let (&bytes, rest) = self.0.split_first_chunk().ok_or(CUT)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(bytes))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        let (&bytes, rest) = self.0.split_first_chunk().ok_or(CUT)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(bytes))
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(CUT)?;
        self.0 = rest;
        Ok(bytes)
    }

    #[inline]
    pub(crate) fn var_int(&mut self) -> Result<u32, DecodeError> {
        let (value, len) = read_var_int(self.0)?.ok_or(CUT)?;
        self.take(len)?;
        Ok(value)
    }

    /// Binary data, or the bytes of a string, with a length prefix of two bytes.
    #[inline]
    pub(crate) fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u16()?;
        self.take(len.into())
    }

    /// Checks what section 1.5.4 requires: UTF-8 without U+0000.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<&'a str, DecodeError> {
        utf8(self.string_bytes()?)
    }

    /// The bytes of a string, checked as [`Reader::string`] does. Names of properties and filters are short and
    /// mostly ASCII, and a packet can have 200,000 of them: the general check of UTF-8 would take most of the time.
    #[inline]
    pub(crate) fn string_bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let bytes = self.binary()?;
        let is_plain = bytes.iter().fold(true, |plain, &byte| plain & (byte != 0) & byte.is_ascii());
        //= [MQTT-1.5.4-2] v5
        //= [MQTT-1.5.3-2] v3.1.1
        if !is_plain && utf8(bytes)?.as_bytes().contains(&0) {
            return Err(DecodeError::Malformed("a string has U+0000"));
        }
        Ok(bytes)
    }

    #[inline]
    pub(crate) fn packet_id(&mut self) -> Result<crate::PacketId, DecodeError> {
        //= [MQTT-2.3.1-1] v3.1.1
        crate::PacketId::new(self.u16()?).ok_or(DecodeError::Malformed("packet identifier 0"))
    }

    #[inline]
    pub(crate) const fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Malformed("bytes after the last field")) }
    }
}

/// Rust's `str` is what the standard calls well-formed UTF-8: no surrogates, no overlong forms, and
/// U+FEFF is a character like any other.
#[inline]
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, DecodeError> {
    //= [MQTT-1.5.4-1] v5
    //= [MQTT-1.5.4-3] v5
    //= [MQTT-1.5.3-1] v3.1.1
    //= [MQTT-1.5.3-3] v3.1.1
    std::str::from_utf8(bytes).map_err(|_| DecodeError::Malformed("a string is not UTF-8"))
}

pub(crate) const NOT_SHORTEST: DecodeError =
    DecodeError::Malformed("a variable byte integer is longer than it need be");

/// Returns the integer and its length in bytes; `None` while `buf` ends within the integer.
#[inline]
pub(crate) fn read_var_int(buf: &[u8]) -> Result<Option<(u32, usize)>, DecodeError> {
    match read_remaining_length(buf)? {
        //= [MQTT-1.5.5-1] v5
        Some((value, len)) if len != var_int_len(value as usize) => Err(NOT_SHORTEST),
        other => Ok(other),
    }
}

/// Like [`read_var_int`], but takes more bytes than the integer needs, which only 5.0 forbids.
#[inline]
pub(crate) fn read_remaining_length(buf: &[u8]) -> Result<Option<(u32, usize)>, DecodeError> {
    let Some(&byte) = buf.first() else { return Ok(None) };
    if byte < 0x80 {
        return Ok(Some((u32::from(byte), 1)));
    }
    let mut value = u32::from(byte & 0x7F);
    for len in 2..=4 {
        let Some(&byte) = buf.get(len - 1) else { return Ok(None) };
        value |= u32::from(byte & 0x7F) << (7 * (len - 1));
        if byte < 0x80 {
            return Ok(Some((value, len)));
        }
    }
    Err(DecodeError::Malformed("a variable byte integer has more than four bytes"))
}

#[inline]
pub(crate) const fn var_int_len(value: usize) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}

/// Writes the shortest encoding. A value over [`VAR_INT_MAX`] has no encoding and is lowered to it.
#[inline]
pub(crate) fn put_var_int(value: usize, out: &mut Vec<u8>) {
    debug_assert!(value <= VAR_INT_MAX as usize, "{value} is over the largest variable byte integer");
    let mut rest = value.min(VAR_INT_MAX as usize);
    while rest >= 0x80 {
        out.push((rest & 0x7F) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[inline]
pub(crate) fn put_binary(bytes: &[u8], out: &mut Vec<u8>) {
    debug_assert!(bytes.len() <= FIELD_BYTES_MAX, "a field of {} bytes", bytes.len());
    let bytes = bytes.get(..FIELD_BYTES_MAX).unwrap_or(bytes);
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[inline]
pub(crate) fn put_string(text: &str, out: &mut Vec<u8>) {
    debug_assert!(text.len() <= FIELD_BYTES_MAX, "a string of {} bytes", text.len());
    put_binary(fit(text).as_bytes(), out);
}

/// Cuts `text` between two characters to the length of a string field, so that the packet stays
/// well formed.
#[inline]
pub(crate) fn fit(text: &str) -> &str {
    if text.len() <= FIELD_BYTES_MAX { text } else { &text[..text.floor_char_boundary(FIELD_BYTES_MAX)] }
}

#[cfg(test)]
mod tests;
