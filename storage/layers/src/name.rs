//! Filters and topics as far as the index needs them, validated by the callers: levels, wildcards, groups, and the hash
//! that spreads names.

use crate::{
    error::{LayerError, LayerResult},
    limits::NAME_BYTES_MAX,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupedFilter<'a> {
    pub group: &'a [u8],
    pub filter: &'a [u8],
}

impl<'a> GroupedFilter<'a> {
    #[must_use]
    pub fn parse(name: &'a [u8]) -> Self {
        let shared = name.strip_prefix(b"$share/").and_then(|rest| {
            let slash = rest.iter().position(|byte| *byte == b'/')?;
            Some(Self { group: &rest[..slash], filter: &rest[slash + 1..] })
        });
        shared.unwrap_or(Self { group: b"", filter: name })
    }

    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        if self.group.is_empty() {
            return self.filter.to_vec();
        }
        [b"$share/", self.group, b"/", self.filter].concat()
    }

    /// Such a filter is in the wildcard part of the index.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.filter.iter().any(|byte| matches!(byte, b'+' | b'#'))
    }
}

/// A part of the wildcard filters in the index: filters with the same first level are in the same bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Bucket(u8);

impl Bucket {
    /// For filters whose first level is no wildcard.
    const HASHED: u8 = 64;

    /// For filters whose first level is a wildcard.
    pub(crate) const WILD: Self = Self(Self::HASHED);

    pub(crate) fn of_filter(filter: &[u8]) -> Self {
        match first_level(filter) {
            b"+" | b"#" => Self::WILD,
            level => Self::hashed(level),
        }
    }

    pub(crate) fn number(self) -> u64 {
        self.0.into()
    }

    fn hashed(level: &[u8]) -> Self {
        Self((hash(&[level]) % u64::from(Self::HASHED)) as u8)
    }
}

fn first_level(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == b'/').next().unwrap_or_default()
}

/// FNV-1a with a final mix. It is in stored keys, so it must never change; it need not resist attacks, which would
/// only slow down the attacker's own broker.
pub(crate) fn hash(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().copied().flatten();
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ hash >> 33
}

pub(crate) fn check(name: &[u8]) -> LayerResult<()> {
    check_length(name, NAME_BYTES_MAX)
}

pub(crate) fn check_length(name: &[u8], bytes_max: usize) -> LayerResult<()> {
    let bytes = name.len();
    if bytes <= bytes_max { Ok(()) } else { Err(LayerError::NameTooLong { bytes, bytes_max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_names_are_taken_apart_and_put_together() {
        for (name, group, filter) in [
            (&b"a/+/c"[..], &b""[..], &b"a/+/c"[..]),
            (b"$share/g/a/#", b"g", b"a/#"),
            (b"$share/g//x", b"g", b"/x"),
            (b"$SYS/#", b"", b"$SYS/#"),
        ] {
            let parsed = GroupedFilter::parse(name);
            assert_eq!(parsed, GroupedFilter { group, filter });
            assert_eq!(parsed.name(), name);
        }
    }

    #[test]
    fn the_hash_never_changes() {
        assert_eq!(hash(&[b"fleet"]), hash(&[b"fl", b"eet"]));
        assert_eq!((Bucket::of_filter(b"fleet/+"), Bucket::of_filter(b"/+")), (FLEET, EMPTY));
    }

    const FLEET: Bucket = Bucket(47);
    const EMPTY: Bucket = Bucket(18);
}
