//! The audit log of an organisation, in commit order.

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Transaction};

use crate::{
    error::LayerResult,
    position::Position,
    tags,
    tuple::{Elements, Key},
};

/// Conflicts with no other transaction; `place` orders the entries of one transaction.
pub fn append(tx: &Transaction, organisation: &[u8], place: u16, entry: impl Into<Bytes>) -> LayerResult<()> {
    let prefix = log(organisation).before_position();
    Ok(tx.set_versionstamped_key(prefix, place.to_be_bytes(), [], entry)?)
}

/// Reads up to `limit` entries before a position in a snapshot, the latest first; the flag says whether there may be
/// more.
pub async fn page(
    tx: &Transaction,
    organisation: &[u8],
    before: Option<Position>,
    limit: usize,
) -> LayerResult<(Vec<(Position, Bytes)>, bool)> {
    let log = log(organisation);
    let range = log.children();
    let end =
        before.map_or(range.end, |before| Bytes::copy_from_slice(log.clone().position(before).as_ref()));
    let page = tx.range(KeyRange::new(range.begin, end), RangeOptions::last(limit).snapshot()).await?;
    let read =
        |row: millrace_storage::KeyValue| Ok((Elements::after(&log, &row.key)?.position()?, row.value));
    Ok((page.items.into_iter().map(read).collect::<LayerResult<_>>()?, page.more))
}

pub fn clear(tx: &Transaction, organisation: &[u8]) -> LayerResult<()> {
    Ok(tx.clear_range(log(organisation).children())?)
}

fn log(organisation: &[u8]) -> Key {
    Key::new(tags::REGION, tags::AUDIT).bytes(organisation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{database, run};

    #[test]
    fn the_latest_comes_first_and_pages_go_back() {
        let database = database();
        for first in [b"a", b"c"] {
            run(&database, async |tx| {
                append(tx, b"org", 0, Bytes::copy_from_slice(first))?;
                append(tx, b"org", 1, Bytes::copy_from_slice(&[first[0] + 1]))?;
                append(tx, b"other", 0, Bytes::from_static(b"x"))
            });
        }
        let (latest, more) = run(&database, async |tx| page(tx, b"org", None, 3).await);
        let text =
            |entries: &[(Position, Bytes)]| entries.iter().map(|(_, e)| e[0] as char).collect::<String>();
        assert_eq!((text(&latest), more), ("dcb".into(), true));
        let (rest, more) = run(&database, async |tx| page(tx, b"org", Some(latest[2].0), 3).await);
        assert_eq!((text(&rest), more), ("a".into(), false));
        run(&database, async |tx| clear(tx, b"org"));
        assert!(run(&database, async |tx| page(tx, b"org", None, 3).await).0.is_empty());
        assert_eq!(run(&database, async |tx| page(tx, b"other", None, 3).await).0.len(), 2);
    }
}
