//! Maps keys of a store to keys of the cluster by adding the store's prefix, with which the prefix of no other
//! store may begin.

use bytes::Bytes;

use super::error::ConnectError;
use crate::{engine::stamped::Stamped, key::KeyRange, limits::PREFIX_BYTES_MAX, read::KeyValue};

pub(super) struct Space {
    prefix: Vec<u8>,
}

impl Space {
    pub(super) fn new(prefix: &[u8]) -> Result<Self, ConnectError> {
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || prefix[0] == 0xff {
            return Err(ConnectError::PrefixNotAllowed);
        }
        Ok(Self { prefix: prefix.into() })
    }

    pub(super) fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.prefix, key].concat()
    }

    pub(super) fn ends(&self, range: &KeyRange) -> (Vec<u8>, Vec<u8>) {
        (self.key(&range.begin), self.key(&range.end))
    }

    /// A key with a gap for the versionstamp, then the gap's offset: four bytes, little-endian.
    pub(super) fn stamped(&self, stamped: &Stamped) -> Vec<u8> {
        let offset = u32::try_from(self.prefix.len() + stamped.offset).expect("an offset in a key");
        [&self.prefix, &stamped.template[..], &offset.to_le_bytes()].concat()
    }

    pub(super) fn row(&self, key: &[u8], value: &[u8]) -> KeyValue {
        let key = Bytes::copy_from_slice(&key[self.prefix.len()..]);
        KeyValue { key, value: Bytes::copy_from_slice(value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_two_prefixes_do_not_meet() {
        let (a, b) = (Space::new(b"a").unwrap(), Space::new(b"b").unwrap());
        let everything = KeyRange::prefix(b"");
        let (begin, end) = a.ends(&everything);
        for key in [&b"\0"[..], b"k", b"\xfe\xff\xff"] {
            assert!((&begin..&end).contains(&&a.key(key)) && !(&begin..&end).contains(&&b.key(key)));
            assert_eq!(a.row(&a.key(key), b"v").key, key);
        }
    }

    #[test]
    fn the_place_of_the_stamp_counts_the_prefix() {
        let space = Space::new(b"ab").unwrap();
        let stamped = Stamped { template: b"log/..........xy".into(), offset: 4, value: Bytes::new() };
        assert_eq!(space.stamped(&stamped), b"ablog/..........xy\x06\0\0\0");
    }

    #[test]
    fn prefixes_have_limits() {
        assert!(Space::new(&[b'p'; PREFIX_BYTES_MAX]).is_ok());
        for refused in [&[b'p'; PREFIX_BYTES_MAX + 1][..], b"\xff", b""] {
            assert!(Space::new(refused).is_err());
        }
    }
}
