//! A range of keys, from a first key to before an end.

use bytes::Bytes;

/// Keys from `begin` up to but without `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub begin: Bytes,
    pub end: Bytes,
}

impl KeyRange {
    #[must_use]
    pub fn new(begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Self {
        Self { begin: Bytes::copy_from_slice(begin.as_ref()), end: Bytes::copy_from_slice(end.as_ref()) }
    }

    #[must_use]
    pub fn key(key: impl AsRef<[u8]>) -> Self {
        let end = after(key.as_ref());
        Self { begin: end.slice(..end.len() - 1), end }
    }

    /// All keys that begin with `prefix`, `prefix` included. An empty prefix, or one of only 0xff
    /// bytes, gives the whole key space.
    #[must_use]
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        let begin = Bytes::copy_from_slice(prefix.as_ref());
        let mut end = prefix.as_ref().to_vec();
        while end.last() == Some(&0xff) {
            end.pop();
        }
        match end.last_mut() {
            Some(last) => *last += 1,
            None => end.push(0xff),
        }
        Self { begin, end: end.into() }
    }

    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.begin <= *key && *key < *self.end
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.begin >= self.end
    }

    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.begin < other.end && other.begin < self.end
    }
}

#[must_use]
pub fn after(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_covers_what_begins_with_it_and_nothing_else() {
        let range = KeyRange::prefix(b"ab");
        assert!(range.contains(b"ab") && range.contains(b"ab\xff\xff"));
        assert!(!range.contains(b"ac") && !range.contains(b"aa\xff"));
        assert_eq!(KeyRange::prefix(b"a\xff").end, Bytes::from_static(b"b"));
        assert_eq!(KeyRange::prefix(b"").end, Bytes::from_static(b"\xff"));
    }

    #[test]
    fn a_key_is_the_only_one_in_its_range() {
        let range = KeyRange::key(b"k");
        assert!(range.contains(b"k") && !range.contains(b"k\0") && !range.contains(b"j\xff"));
    }
}
