//! The options and results of reads.

use bytes::Bytes;

use crate::key::{KeyRange, after};

/// Decides whether a later commit to the keys read makes the transaction conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Read {
    /// Conflicts, so the result still holds at the commit.
    #[default]
    Serializable,
    /// Does not conflict; the result held at the read version.
    Snapshot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeOptions {
    /// Most keys of the page; at least 1.
    pub limit: usize,
    pub reverse: bool,
    pub read: Read,
}

impl RangeOptions {
    #[must_use]
    pub fn first(limit: usize) -> Self {
        Self { limit, reverse: false, read: Read::Serializable }
    }

    /// The last keys of the range, the very last one first.
    #[must_use]
    pub fn last(limit: usize) -> Self {
        Self { reverse: true, ..Self::first(limit) }
    }

    #[must_use]
    pub fn snapshot(self) -> Self {
        Self { read: Read::Snapshot, ..self }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangePage {
    /// In the order of the read, which `reverse` turns round.
    pub items: Vec<KeyValue>,
    /// The range may have keys after the last item, because a page may end before its limit: see
    /// [`crate::limits::PAGE_BYTES_MAX`].
    pub more: bool,
}

impl RangePage {
    /// The part of `range` that this page has read completely, which is what a read conflicts on.
    pub(crate) fn answers(&self, range: &KeyRange, reverse: bool) -> KeyRange {
        let mut read = range.clone();
        if let Some(last) = self.items.last().filter(|_| self.more) {
            if reverse {
                read.begin = last.key.clone();
            } else {
                read.end = after(&last.key);
            }
        }
        read
    }
}
