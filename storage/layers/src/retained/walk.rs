//! Compares stored topics with a filter, in key order. After a topic that does not match, it names the next key that can match, so that
//! a read skips the topics between.

use std::cmp::Ordering;

use bytes::Bytes;

use super::below;
use crate::tuple::Key;

/// Rows of one read when the walk may skip most of them.
const PAGE_WITH_GAPS: usize = 16;

/// Rows of one read when most of them match.
const PAGE_WITHOUT_GAPS: usize = 256;

/// A filter, as the walk compares it with topics in key order.
pub(super) struct Pattern<'a> {
    root: &'a Key,
    levels: Vec<&'a [u8]>,
    everything: bool,
}

pub(super) enum WalkStep {
    /// With the name of the topic.
    Matches(Vec<u8>),
    /// No topic before this key matches.
    GoTo(Bytes),
}

impl<'a> Pattern<'a> {
    pub(super) fn new(root: &'a Key, filter: &'a [u8]) -> Self {
        Self { root, levels: filter.split(|byte| *byte == b'/').collect(), everything: false }
    }

    /// Matches all topics, also those that begin with `$`.
    pub(super) fn everything(root: &'a Key) -> Self {
        Self { root, levels: vec![b"#"], everything: true }
    }

    /// The keys below the levels before the first wildcard, where all matching topics are.
    pub(super) fn range(&self) -> (Bytes, Bytes) {
        let exact = self.levels.iter().take_while(|level| !is_wildcard(level));
        let start = below(self.root.clone(), exact);
        (Bytes::copy_from_slice(start.as_ref()), start.end().into())
    }

    /// How many rows to read at once, for a caller that wants `limit` of them.
    pub(super) fn page(&self, limit: usize) -> usize {
        let ends_in_rest = self.levels.last() == Some(&&b"#"[..]);
        let wildcards = self.levels.iter().filter(|level| is_wildcard(level)).count();
        let page = if ends_in_rest && wildcards == 1 { PAGE_WITHOUT_GAPS } else { PAGE_WITH_GAPS };
        page.min(limit + 1)
    }

    pub(super) fn judge(&self, topic: &[Vec<u8>]) -> WalkStep {
        let first = topic.first().map_or(&b""[..], Vec::as_slice);
        if !self.everything && is_wildcard(self.levels[0]) && first.starts_with(b"$") {
            return self.go_behind_dollar();
        }
        for (depth, level) in self.levels.iter().enumerate() {
            match (*level, topic.get(depth)) {
                (b"#", _) => return WalkStep::Matches(topic.join(&b'/')),
                (b"+", Some(_)) => {}
                (b"+", None) => return go_to(self.key(topic).children().begin),
                (exact, None) => return go_to(self.key(topic).bytes(exact).as_ref()),
                (exact, Some(level)) => match level.as_slice().cmp(exact) {
                    Ordering::Less => return go_to(self.key(&topic[..depth]).bytes(exact).as_ref()),
                    Ordering::Equal => {}
                    Ordering::Greater => return go_to(self.key(&topic[..depth]).end()),
                },
            }
        }
        match topic.get(..self.levels.len()) {
            Some(matched) if matched.len() < topic.len() => go_to(self.key(matched).end()),
            _ => WalkStep::Matches(topic.join(&b'/')),
        }
    }

    /// Skips the topics that begin with `$`, because a wildcard does not match such a first level.
    fn go_behind_dollar(&self) -> WalkStep {
        // The key of a first level that begins with the byte after `$`, without the terminator of its string: it sorts after every
        // level that begins with `$` and before all later ones.
        let mut key = self.root.clone().bytes(&[b'$' + 1]).as_ref().to_vec();
        key.pop();
        go_to(key)
    }

    fn key(&self, levels: &[Vec<u8>]) -> Key {
        below(self.root.clone(), levels)
    }
}

fn go_to(key: impl AsRef<[u8]>) -> WalkStep {
    WalkStep::GoTo(Bytes::copy_from_slice(key.as_ref()))
}

fn is_wildcard(level: &[u8]) -> bool {
    matches!(level, b"+" | b"#")
}
