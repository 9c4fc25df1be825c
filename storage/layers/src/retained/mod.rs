//! Retained messages, keyed by the levels of their topics, so that a filter reads what it leads to and steps over the rest.
//!
//! Writes read nothing that conflicts: of several writers of a topic the last in commit order wins.

mod tree;
mod walk;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction, after};
pub use tree::{Branch, Branches, branches};
use walk::{Pattern, WalkStep};

use crate::{
    BrokerId,
    error::LayerResult,
    limits::{RETAINED_PAGE_BYTES, RETAINED_READS, RETAINED_SKIPS_PER_ITEM, TOPIC_BYTES_MAX},
    metering::{self, Level},
    name,
    rows::Blob,
    tags,
    tuple::{Elements, Key},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedRow {
    pub topic: Bytes,
    pub body: Bytes,
}

/// Where a page ended; bookmarks sort in the order of pages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bookmark(Bytes);

impl Bookmark {
    /// At the message of a topic: a page that ends here or before does not have the topic.
    #[must_use]
    pub fn at(broker: BrokerId, topic: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(blob(broker, topic).row.as_ref()))
    }

    /// After the message of a topic, whether there is one or not, for callers that know only the topic at which a page
    /// ended.
    #[must_use]
    pub fn after(broker: BrokerId, topic: &[u8]) -> Self {
        Self(after(blob(broker, topic).row.as_ref()))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetainedPage {
    pub items: Vec<RetainedRow>,
    /// Where to continue; `None` at the end. A page may end early, even empty, after many keys that did not match.
    pub next: Option<Bookmark>,
    /// Topics that were compared with the filter.
    pub examined: usize,
    /// With `next`: the last one of them. [`Bookmark::after`] it continues the page, too.
    pub examined_to: Option<Bytes>,
    /// Bytes of keys and values that were read, whether their topics matched or not.
    pub bytes: usize,
}

impl RetainedPage {
    fn continued_at(self, next: Bytes, root: &Key, examined: Option<Bytes>) -> LayerResult<Self> {
        let examined = examined.map(|key| levels(root, &key)).transpose()?;
        let examined_to = examined.map(|levels| levels.join(&b'/').into());
        Ok(Self { next: Some(Bookmark(next)), examined_to, ..self })
    }
}

/// Retains a message on its topic. The size of the message before is of a snapshot, so that writers do not conflict:
/// of pods that write the same topic at the same moment, one does not see the other's, and the counted bytes are off by the difference.
///
/// # Errors
/// [`crate::LayerError::NameTooLong`], [`crate::LayerError::BodyTooLarge`], or the store's.
pub async fn set(tx: &Transaction, broker: BrokerId, topic: &[u8], body: &Bytes) -> LayerResult<()> {
    name::check_length(topic, TOPIC_BYTES_MAX)?;
    let before = blob(broker, topic).replace(tx, Some(body)).await?;
    count_change(tx, broker, before, body.len())
}

pub async fn clear(tx: &Transaction, broker: BrokerId, topic: &[u8]) -> LayerResult<()> {
    if topic.len() > TOPIC_BYTES_MAX {
        return Ok(());
    }
    let before = blob(broker, topic).replace(tx, None).await?;
    count_change(tx, broker, before, 0)
}

/// Removes the message of a topic if its body is unwanted. A write of the topic that is committed meanwhile conflicts.
pub async fn clear_if(
    tx: &Transaction,
    broker: BrokerId,
    topic: &[u8],
    is_unwanted: impl Fn(&Bytes) -> bool,
) -> LayerResult<()> {
    match get(tx, broker, topic, Read::Serializable).await? {
        Some(body) if is_unwanted(&body) => clear(tx, broker, topic).await,
        _ => Ok(()),
    }
}

fn count_change(tx: &Transaction, broker: BrokerId, before: usize, now: usize) -> LayerResult<()> {
    let more = (now as u64).wrapping_sub(before as u64).cast_signed();
    metering::change(tx, broker, Level::Retained, more, tx.unix_ms())
}

pub async fn get(tx: &Transaction, broker: BrokerId, topic: &[u8], read: Read) -> LayerResult<Option<Bytes>> {
    if topic.len() > TOPIC_BYTES_MAX {
        return Ok(None);
    }
    blob(broker, topic).get(tx, read).await
}

/// A page of the retained messages that match a filter (without `$share/group/`). The work is bounded for every filter:
/// a page ends after `limit` messages, [`RETAINED_PAGE_BYTES`] read, many topics that did not match, or many reads.
pub async fn matching(
    tx: &Transaction,
    broker: BrokerId,
    filter: &[u8],
    from: Option<&Bookmark>,
    limit: usize,
    read: Read,
) -> LayerResult<RetainedPage> {
    let root = Key::new(broker, tags::RETAINED);
    page_of(tx, broker, &root, &Pattern::new(&root, filter), from, limit, read).await
}

/// A page of all retained messages, those of topics that begin with `$` too.
pub async fn all(
    tx: &Transaction,
    broker: BrokerId,
    from: Option<&Bookmark>,
    limit: usize,
    read: Read,
) -> LayerResult<RetainedPage> {
    let root = Key::new(broker, tags::RETAINED);
    page_of(tx, broker, &root, &Pattern::everything(&root), from, limit, read).await
}

async fn page_of(
    tx: &Transaction,
    broker: BrokerId,
    root: &Key,
    pattern: &Pattern<'_>,
    from: Option<&Bookmark>,
    limit: usize,
    read: Read,
) -> LayerResult<RetainedPage> {
    let (mut begin, end) = pattern.range();
    if let Some(Bookmark(from)) = from {
        begin = from.clone().max(begin);
    }
    let options = RangeOptions { limit: pattern.page(limit), reverse: false, read };
    let examined_max = limit.max(1) * RETAINED_SKIPS_PER_ITEM;
    let reads_max = limit.clamp(RETAINED_READS.0, RETAINED_READS.1);
    let (mut page, mut reads, mut examined) = (RetainedPage::default(), 0, None);
    while begin < end {
        if reads == reads_max || page.bytes >= RETAINED_PAGE_BYTES {
            return page.continued_at(begin, root, examined);
        }
        reads += 1;
        let rows = tx.range(KeyRange { begin: begin.clone(), end: end.clone() }, options).await?;
        let Some(last) = rows.items.last().map(|row| row.key.clone()) else { break };
        for row in rows.items {
            let row_bytes = row.key.len() + row.value.len();
            if row.key < begin {
                page.bytes += row_bytes;
                continue;
            }
            if page.items.len() >= limit || page.bytes >= RETAINED_PAGE_BYTES || page.examined >= examined_max
            {
                return page.continued_at(row.key, root, examined);
            }
            page.examined += 1;
            page.bytes += row_bytes;
            examined = Some(row.key.clone());
            match pattern.judge(&levels(root, &row.key)?) {
                WalkStep::Matches(topic) => {
                    let in_row = row.value.len();
                    let body = blob(broker, &topic).rest(tx, row.value).await?;
                    page.bytes += body.len().saturating_sub(in_row);
                    page.items.push(RetainedRow { topic: topic.into(), body });
                }
                WalkStep::GoTo(next) => begin = next,
            }
        }
        if !rows.more {
            break;
        }
        begin = begin.max(after(&last));
    }
    Ok(page)
}

fn levels(root: &Key, key: &[u8]) -> LayerResult<Vec<Vec<u8>>> {
    let mut elements = Elements::after(root, key)?;
    let mut levels = Vec::new();
    while !elements.is_empty() {
        levels.push(elements.bytes()?);
    }
    Ok(levels)
}

fn below(root: Key, levels: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Key {
    levels.into_iter().fold(root, |key, level| key.bytes(level.as_ref()))
}

fn blob(broker: BrokerId, topic: &[u8]) -> Blob {
    let levels = || topic.split(|byte| *byte == b'/');
    Blob {
        row: below(Key::new(broker, tags::RETAINED), levels()),
        chunks: below(Key::new(broker, tags::RETAINED_CHUNK), levels()),
    }
}
