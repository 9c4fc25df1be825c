//! Encodes keys as FoundationDB's tuple layer does: keys sort like their tuples, and other tools can read them. It
//! has only the types in use: byte strings, unsigned integers, the 12-byte versionstamp.

use millrace_storage::KeyRange;

use crate::{
    error::{LayerError, LayerResult},
    position::Position,
};

const BYTES: u8 = 0x01;
/// The code of zero; the code of an integer of n bytes is n more.
const INT_ZERO: u8 = 0x14;
const VERSIONSTAMP: u8 = 0x33;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(Vec<u8>);

impl Key {
    /// The tag determines the rest of the key.
    pub(crate) fn new(broker: u64, tag: &[u8]) -> Self {
        Self(Vec::with_capacity(64)).uint(broker).bytes(tag)
    }

    /// A single element, to follow a position.
    pub(crate) fn element(value: u64) -> Self {
        Self(Vec::new()).uint(value)
    }

    pub(crate) fn name(value: &[u8]) -> Self {
        Self(Vec::new()).bytes(value)
    }

    pub(crate) fn uint(mut self, value: u64) -> Self {
        let zeros = value.leading_zeros() as usize / 8;
        let digits = &value.to_be_bytes()[zeros..];
        self.0.push(INT_ZERO + (8 - zeros) as u8);
        self.0.extend_from_slice(digits);
        self
    }

    pub(crate) fn bytes(mut self, value: &[u8]) -> Self {
        self.0.push(BYTES);
        for part in value.split_inclusive(|byte| *byte == 0) {
            self.0.extend_from_slice(part);
            if part.ends_with(&[0]) {
                self.0.push(0xff);
            }
        }
        self.0.push(0);
        self
    }

    pub(crate) fn position(self, position: Position) -> Self {
        let mut key = self.before_position();
        key.0.extend_from_slice(&position.0);
        key
    }

    pub(crate) fn before_position(mut self) -> Self {
        self.0.push(VERSIONSTAMP);
        self
    }

    /// All keys with further elements after this one, without the key itself. Not every key that begins with these
    /// bytes, because 0xff after a byte string would continue that string.
    pub(crate) fn children(&self) -> KeyRange {
        KeyRange::new(self.with(0), self.end())
    }

    /// All keys whose next element is a byte string that begins with `start`.
    pub(crate) fn beginning_with(&self, start: &[u8]) -> KeyRange {
        let mut key = self.clone().bytes(start);
        // Without its terminator the byte string continues.
        key.0.pop();
        KeyRange::prefix(key)
    }

    pub(crate) fn end(&self) -> Vec<u8> {
        self.with(0xff)
    }

    fn with(&self, byte: u8) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() + 1);
        bytes.extend_from_slice(&self.0);
        bytes.push(byte);
        bytes
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

pub(crate) struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// Begins after the elements of `prefix`.
    pub(crate) fn after(prefix: &Key, key: &'a [u8]) -> LayerResult<Self> {
        key.strip_prefix(prefix.as_ref()).map(Self).ok_or(CORRUPT)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn uint(&mut self) -> LayerResult<u64> {
        let code = self.0.first().ok_or(CORRUPT)?;
        let length = code.checked_sub(INT_ZERO).filter(|length| *length <= 8).ok_or(CORRUPT)?;
        let (digits, rest) = self.0[1..].split_at_checked(length.into()).ok_or(CORRUPT)?;
        self.0 = rest;
        Ok(digits.iter().fold(0, |value, digit| value << 8 | u64::from(*digit)))
    }

    pub(crate) fn bytes(&mut self) -> LayerResult<Vec<u8>> {
        let mut rest = self.0.strip_prefix(&[BYTES]).ok_or(CORRUPT)?;
        let mut value = Vec::new();
        loop {
            let zero = rest.iter().position(|byte| *byte == 0).ok_or(CORRUPT)?;
            value.extend_from_slice(&rest[..zero]);
            rest = &rest[zero + 1..];
            match rest.strip_prefix(&[0xff]) {
                Some(more) => (value.push(0), rest = more),
                None => break,
            };
        }
        self.0 = rest;
        Ok(value)
    }

    pub(crate) fn position(&mut self) -> LayerResult<Position> {
        let rest = self.0.strip_prefix(&[VERSIONSTAMP]).ok_or(CORRUPT)?;
        let (position, rest) = rest.split_first_chunk().ok_or(CORRUPT)?;
        self.0 = rest;
        Ok(Position(*position))
    }
}

const CORRUPT: LayerError = LayerError::Corrupt("key");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn empty() -> Key {
        Key(Vec::new())
    }

    #[test]
    fn the_encoding_is_that_of_the_tuple_layer() {
        for (value, encoded) in [
            (0, &[0x14][..]),
            (1, &[0x15, 1]),
            (255, &[0x15, 255]),
            (256, &[0x16, 1, 0]),
            (u64::MAX, &[0x1c, 255, 255, 255, 255, 255, 255, 255, 255]),
        ] {
            assert_eq!(empty().uint(value).as_ref(), encoded);
        }
        assert_eq!(empty().bytes(b"foo\0bar").as_ref(), b"\x01foo\x00\xffbar\x00");
        assert_eq!(empty().position(Position([7; 12])).as_ref(), [&[0x33][..], &[7; 12]].concat());
    }

    #[test]
    fn children_are_keys_with_more_elements_and_no_others() {
        let children = empty().bytes(b"a").children();
        assert!(children.contains(empty().bytes(b"a").bytes(b"b").as_ref()));
        assert!(children.contains(empty().bytes(b"a").uint(u64::MAX).as_ref()));
        assert!(!children.contains(empty().bytes(b"a").as_ref()));
        assert!(!children.contains(empty().bytes(b"a\0b").as_ref()));
    }

    #[test]
    fn a_byte_string_that_begins_with_another_is_in_its_range() {
        for start in [&b""[..], b"a", b"a\0", b"\0", b"a\xff", b"\xff\xff"] {
            let range = empty().uint(7).beginning_with(start);
            for more in [&b""[..], b"b", b"\0", b"\xff", b"\0\xff"] {
                assert!(
                    range.contains(empty().uint(7).bytes(&[start, more].concat()).as_ref()),
                    "{start:?} {more:?}"
                );
            }
        }
        let range = empty().bytes(b"org").beginning_with(b"ab");
        for other in [&b"a"[..], b"ac", b"aa\xff", b"", b"a\0b", b"b"] {
            assert!(!range.contains(empty().bytes(b"org").bytes(other).as_ref()), "{other:?}");
        }
        assert!(!range.contains(empty().bytes(b"orf").bytes(b"ab").as_ref()));
        assert!(!range.contains(empty().bytes(b"org\0").bytes(b"ab").as_ref()));
    }

    #[test]
    fn foreign_bytes_are_refused() {
        for bytes in [&b""[..], b"\x01abc", b"\x15", b"\x13\x01", b"\x33\x01\x02"] {
            let elements = || Elements(bytes);
            assert!(
                elements().bytes().is_err() && elements().uint().is_err() && elements().position().is_err()
            );
        }
    }

    type Tuple = (u64, Vec<u8>, Vec<u8>, u64);

    fn encode(tuple: &Tuple) -> Key {
        empty().uint(tuple.0).bytes(&tuple.1).bytes(&tuple.2).uint(tuple.3)
    }

    fn tuples() -> impl Strategy<Value = Tuple> {
        let bytes = || proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 0..5);
        let uint = || prop_oneof![0..4u64, any::<u64>(), (0..64u32).prop_map(|shift| 1 << shift)];
        (uint(), bytes(), bytes(), uint())
    }

    proptest! {
        #[test]
        fn keys_sort_as_their_tuples_and_read_back(a in tuples(), b in tuples()) {
            let (x, y) = (encode(&a), encode(&b));
            prop_assert_eq!(a.cmp(&b), x.as_ref().cmp(y.as_ref()));
            let mut elements = Elements(x.as_ref());
            let back = (elements.uint().unwrap(), elements.bytes().unwrap(), elements.bytes().unwrap(), elements.uint().unwrap());
            prop_assert!(elements.is_empty());
            prop_assert_eq!(back, a);
        }
    }
}
