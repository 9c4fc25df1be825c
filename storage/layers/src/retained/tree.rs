//! Topics of retained messages as a tree: one level of it at a time, with the messages below each, because a key has an
//! element for each level of its topic.

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction};

use super::{below, levels};
use crate::{BrokerId, error::LayerResult, tags, tuple::Key};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    pub level: Bytes,
    pub has_message: bool,
    /// Messages of this topic and of all below it, as far as they were counted.
    pub messages: usize,
    pub is_more: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branches {
    pub items: Vec<Branch>,
    pub more: bool,
}

/// Lists up to `limit` levels below a topic (`None`: the first levels) after the level `after`, and counts up to
/// `counted` messages of each, so that the product of both bounds the work.
pub async fn branches(
    tx: &Transaction,
    broker: BrokerId,
    topic: Option<&[u8]>,
    after: Option<&[u8]>,
    limit: usize,
    counted: usize,
) -> LayerResult<Branches> {
    let root = Key::new(broker, tags::RETAINED);
    let parents: Vec<_> = topic.map(|topic| topic.split(|byte| *byte == b'/').collect()).unwrap_or_default();
    let parent = below(root.clone(), &parents);
    let end = Bytes::from(parent.end());
    let mut begin = match after {
        Some(level) => Bytes::from(parent.clone().bytes(level).end()),
        None => parent.children().begin,
    };
    let options = RangeOptions { limit: counted + 1, reverse: false, read: Read::Snapshot };
    let mut found = Branches::default();
    while begin < end {
        let rows = tx.range(KeyRange { begin: begin.clone(), end: end.clone() }, options).await?;
        let Some(first) = rows.items.first() else { break };
        if found.items.len() >= limit {
            found.more = true;
            break;
        }
        let level = levels(&root, &first.key)?.into_iter().nth(parents.len()).unwrap_or_default();
        let child = parent.clone().bytes(&level);
        let child_end = Bytes::from(child.end());
        let messages = rows.items.iter().take_while(|row| row.key < child_end).count();
        found.items.push(Branch {
            has_message: first.key == child.as_ref(),
            messages: messages.min(counted),
            is_more: messages > counted,
            level: level.into(),
        });
        begin = child_end;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retained::set;
    use crate::testing::{BROKER, database, run};

    fn shown(found: &Branches) -> Vec<(&str, bool, usize, bool)> {
        let text = |level| std::str::from_utf8(level).unwrap();
        found.items.iter().map(|one| (text(&one.level), one.has_message, one.messages, one.is_more)).collect()
    }

    #[test]
    fn each_level_says_what_is_below_it() {
        let database = database();
        let topics = ["a", "a/b", "a/b/c", "a/bb", "a/c/d/e", "b/x", "c", "/empty", "a//x"];
        run(&database, async |tx| {
            for topic in topics {
                set(tx, BROKER, topic.as_bytes(), &Bytes::from_static(b"body")).await?;
            }
            set(tx, BROKER + 1, b"other", &Bytes::from_static(b"body")).await
        });
        let look = |topic: Option<&'static str>, after: Option<&'static str>, limit, counted| {
            run(&database, async |tx| {
                branches(tx, BROKER, topic.map(str::as_bytes), after.map(str::as_bytes), limit, counted).await
            })
        };
        let top = look(None, None, 9, 9);
        let expected =
            [("", false, 1, false), ("a", true, 6, false), ("b", false, 1, false), ("c", true, 1, false)];
        assert_eq!((shown(&top), top.more), (expected.to_vec(), false));
        let below_a = look(Some("a"), None, 9, 9);
        let expected =
            [("", false, 1, false), ("b", true, 2, false), ("bb", true, 1, false), ("c", false, 1, false)];
        assert_eq!(shown(&below_a), expected);
        assert_eq!(shown(&look(Some("a/c/d"), None, 9, 9)), [("e", true, 1, false)]);
        assert_eq!(shown(&look(Some("nothing"), None, 9, 9)), []);
        assert_eq!(shown(&look(None, None, 9, 2))[1], ("a", true, 2, true));
        let page = look(None, Some("a"), 1, 9);
        assert_eq!((shown(&page), page.more), (vec![("b", false, 1, false)], true));
        let last = look(None, Some("b"), 1, 9);
        assert_eq!((shown(&last), last.more), (vec![("c", true, 1, false)], false));
    }
}
