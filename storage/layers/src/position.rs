use std::fmt;
use std::str::FromStr;

use bytes::{Buf, Bytes};
use millrace_storage::{StoreVersion, Versionstamp};

use crate::error::{LayerError, LayerResult};

/// The position of a message in commit order: its transaction's versionstamp, and its number there; as a cursor it
/// includes all messages up to this one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub [u8; Self::LEN]);

impl Position {
    pub const LEN: usize = Versionstamp::LEN + 2;

    pub const MIN: Self = Self([0; Self::LEN]);

    pub const MAX: Self = Self([0xff; Self::LEN]);

    /// Message `number` of a transaction.
    #[must_use]
    pub fn new(stamp: Versionstamp, number: u16) -> Self {
        let mut bytes = [0; Self::LEN];
        bytes[..Versionstamp::LEN].copy_from_slice(&stamp.0);
        bytes[Versionstamp::LEN..].copy_from_slice(&number.to_be_bytes());
        Self(bytes)
    }

    /// After everything that a read at `version` sees, and before everything else.
    #[must_use]
    pub fn end_of(version: StoreVersion) -> Self {
        Self::new(Versionstamp::new(version, u16::MAX), u16::MAX)
    }

    /// The last position before this one: a cursor without this message.
    #[must_use]
    pub fn before(mut self) -> Self {
        for byte in self.0.iter_mut().rev() {
            *byte = byte.wrapping_sub(1);
            if *byte != u8::MAX {
                return self;
            }
        }
        Self::MIN
    }

    #[must_use]
    pub fn stamp(&self) -> Versionstamp {
        let mut stamp = [0; Versionstamp::LEN];
        stamp.copy_from_slice(&self.0[..Versionstamp::LEN]);
        Versionstamp(stamp)
    }

    #[must_use]
    pub fn number(&self) -> u16 {
        u16::from_be_bytes([self.0[Self::LEN - 2], self.0[Self::LEN - 1]])
    }
}

pub(crate) fn position(value: &mut Bytes) -> LayerResult<Position> {
    let mut position = Position::MIN;
    value.try_copy_to_slice(&mut position.0)?;
    Ok(position)
}

/// Hexadecimal digits, which sort like the positions.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Position {
    type Err = LayerError;

    fn from_str(text: &str) -> Result<Self, LayerError> {
        let mut bytes = [0; Self::LEN];
        if text.len() != 2 * Self::LEN || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(LayerError::Corrupt("position"));
        }
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| LayerError::Corrupt("position"))?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{}", self.stamp(), self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_sort_by_commit_and_then_by_number() {
        let at = |version, number, user| Position::new(Versionstamp::new(version, number), user);
        let sorted = [Position::MIN, at(1, 0, 0), at(1, 0, 1), at(1, 1, 0), Position::end_of(1), at(2, 0, 0)];
        assert!(sorted.is_sorted());
        for position in [at(1, 0, 1), at(1, 1, 0), at(2, 0, 0), at(1 << 40, 0, 0)] {
            assert!(position.before() < position, "{position:?}");
        }
        assert_eq!(at(7, 0, 1).before(), at(7, 0, 0));
        assert_eq!(at(7, 1, 0).before(), at(7, 0, u16::MAX));
        assert_eq!(Position::MIN.before(), Position::MIN);
        assert_eq!(at(7, 8, 9).to_string().parse(), Ok(at(7, 8, 9)));
        assert!("00".repeat(11).parse::<Position>().is_err() && "0é".repeat(8).parse::<Position>().is_err());
        assert_eq!((at(7, 8, 9).stamp(), at(7, 8, 9).number()), (Versionstamp::new(7, 8), 9));
    }
}
