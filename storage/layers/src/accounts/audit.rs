//! The audit log of an organisation, in commit order.

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Transaction, after};

use crate::{
    error::LayerResult,
    position::Position,
    tags,
    tuple::{Elements, Key},
};

/// Conflicts with no other transaction; `number` orders the entries of one transaction.
pub fn append(
    tx: &Transaction,
    organisation: &[u8],
    number: u16,
    entry: impl Into<Bytes>,
) -> LayerResult<()> {
    let prefix = log(organisation).before_position();
    Ok(tx.set_versionstamped_key(prefix, number.to_be_bytes(), [], entry)?)
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

/// Removes the oldest entries of a log while they are old, at most `limit` of them, and returns whether old ones may be left. `is_old`
/// gets an entry.
pub async fn trim(
    tx: &Transaction,
    organisation: &[u8],
    limit: usize,
    is_old: impl Fn(&[u8]) -> bool,
) -> LayerResult<bool> {
    let all = log(organisation).children();
    let page = tx.range(all.clone(), RangeOptions::first(limit).snapshot()).await?;
    let old = page.items.iter().take_while(|row| is_old(&row.value)).count();
    if let Some(last) = page.items[..old].last() {
        tx.clear_range(KeyRange { begin: all.begin, end: after(&last.key) })?;
    }
    Ok(page.more && old == page.items.len())
}

/// The first log with entries after the log `from`, in order of ids, as a snapshot read.
pub async fn next_log(tx: &Transaction, from: Option<&[u8]>) -> LayerResult<Option<Bytes>> {
    let logs = Key::new(tags::REGION, tags::AUDIT);
    let begin = from.map_or(logs.children().begin, |from| log(from).end().into());
    let range = KeyRange::new(begin, logs.end());
    let page = tx.range(range, RangeOptions::first(1).snapshot()).await?;
    let Some(row) = page.items.first() else { return Ok(None) };
    Ok(Some(Elements::after(&logs, &row.key)?.bytes()?.into()))
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
        let next = |from: Option<&'static [u8]>| run(&database, async |tx| next_log(tx, from).await);
        assert_eq!(next(None).as_deref(), Some(&b"org"[..]));
        assert_eq!(next(Some(b"org")).as_deref(), Some(&b"other"[..]));
        assert_eq!(next(Some(b"other")), None);
        let trim =
            |limit| run(&database, async |tx| trim(tx, b"org", limit, |entry| entry < &b"c"[..]).await);
        assert_eq!((trim(1), trim(9), trim(9)), (true, false, false));
        let (left, _) = run(&database, async |tx| page(tx, b"org", None, 9).await);
        assert_eq!(text(&left), "dc");
        run(&database, async |tx| clear(tx, b"org"));
        assert!(run(&database, async |tx| page(tx, b"org", None, 3).await).0.is_empty());
        assert_eq!(run(&database, async |tx| page(tx, b"other", None, 3).await).0.len(), 2);
    }
    #[test]
    fn long_old_entries_are_all_removed() {
        let database = database();
        for _ in 0..40 {
            run(&database, async |tx| append(tx, b"org", 0, vec![b'o'; 60_000]));
        }
        while run(&database, async |tx| trim(tx, b"org", 500, |_| true).await) {}
        assert!(run(&database, async |tx| page(tx, b"org", None, 3).await).0.is_empty());
    }
}
