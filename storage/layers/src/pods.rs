//! The pods of a region: their leases, their commit markers, and notices of sessions that they have lost. A commit marker
//! shows a pod that got no answer to a commit whether the transaction was committed.
//!
//! When a pod has not renewed its lease for too long, another pod takes it for dead and ends its connections. The pod
//! may still run and only be slow: then the epochs of its sessions keep it from writing, and notices say which sessions
//! it has lost.

use bytes::{Buf, Bytes};
use millrace_storage::{
    KeyRange, KeyValue, RangeOptions, Read, StoreVersion, Transaction, Versionstamp, after,
};

use crate::{
    error::LayerResult,
    position::Position,
    rows,
    sessions::{OwnedSession, SessionId},
    tags,
    tuple::{Elements, Key},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The owner that the records of its sessions name.
    pub name: Bytes,
    /// The end of the lease by the pod's own clock, unix milliseconds.
    pub until_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSession {
    pub session: OwnedSession,
    /// The epoch at which the pod owned it.
    pub epoch: u64,
}

pub fn renew(tx: &Transaction, pod: &[u8], until_ms: u64) -> LayerResult<()> {
    Ok(tx.set(pods().bytes(pod), Bytes::copy_from_slice(&until_ms.to_be_bytes()))?)
}

/// Lists all pods that have a lease, as a snapshot read.
pub async fn list(tx: &Transaction) -> LayerResult<Vec<Pod>> {
    let prefix = pods();
    let read = |mut row: KeyValue| {
        let name = Elements::after(&prefix, &row.key)?.bytes()?.into();
        Ok(Pod { name, until_ms: row.value.try_get_u64()? })
    };
    rows::all(tx, prefix.children(), Read::Snapshot).await?.into_iter().map(read).collect()
}

pub async fn get(tx: &Transaction, name: &[u8]) -> LayerResult<Option<Pod>> {
    let value = tx.get(pods().bytes(name), Read::Serializable).await?;
    let read =
        |mut value: Bytes| Ok(Pod { name: Bytes::copy_from_slice(name), until_ms: value.try_get_u64()? });
    value.map(read).transpose()
}

/// Removes the lease of a pod that has not renewed it. The commit marker and the notices stay until [`remove_stale_rows`], because
/// the pod may still run and need them: the marker after a lost answer to a commit, the notices to close lost sessions.
pub async fn remove(tx: &Transaction, pod: &Pod) -> LayerResult<()> {
    if is_unchanged(tx, pod).await? {
        tx.clear(pods().bytes(&pod.name))?;
    }
    Ok(())
}

/// True while the pod has not renewed its lease; a later renewal conflicts with the transaction.
pub async fn is_unchanged(tx: &Transaction, pod: &Pod) -> LayerResult<bool> {
    Ok(get(tx, &pod.name).await?.is_some_and(|known| known == *pod))
}

/// Versions for which a commit marker stays: about a day, because FoundationDB counts a million a second.
pub const MARKER_VERSIONS: u64 = 86_400 * 1_000_000;

/// Removes rows of pods that do not run any more: commit markers of versions below `before`, and notices to pods
/// without lease and marker. Reads about `limit` rows of each kind after the pod `from`, and returns the last pod, or
/// `None` at the end.
pub async fn remove_stale_rows(
    tx: &Transaction,
    before: StoreVersion,
    from: Option<&[u8]>,
    limit: usize,
) -> LayerResult<Option<Bytes>> {
    let (mut last, mut ends) = (None, true);
    let mut left = all_markers().children();
    if let Some(from) = from {
        left.begin = markers(from).end().into();
    }
    let page = tx.range(left, RangeOptions::first(limit).snapshot()).await?;
    ends &= page.items.len() < limit;
    for row in page.items {
        let mut elements = Elements::after(&all_markers(), &row.key)?;
        let pod = elements.bytes()?;
        if elements.position()?.stamp().version() < before {
            tx.clear(row.key)?;
        }
        last = Some(pod);
    }
    // Both kinds of rows continue from one pod, so notices are read only up to the last pod whose markers were read.
    let through = last.clone().filter(|_| !ends);
    let mut from = from.map(<[u8]>::to_vec);
    for _ in 0..limit {
        let mut range = all_notices().children();
        if let Some(from) = &from {
            range.begin = notices(from).end().into();
        }
        if let Some(through) = &through {
            range.end = notices(through).end().into();
        }
        let page = tx.range(range, RangeOptions::first(1).snapshot()).await?;
        let Some(row) = page.items.first() else { return Ok(through.map(Bytes::from)) };
        let pod = Elements::after(&all_notices(), &row.key)?.bytes()?;
        // A pod that starts writes a lease or a marker, and so conflicts with these serializable reads.
        let lease = tx.get(pods().bytes(&pod), Read::Serializable).await?;
        let markers = tx.range(markers(&pod).children(), RangeOptions::first(1)).await?;
        if lease.is_none() && markers.items.is_empty() {
            tx.clear_range(notices(&pod).children())?;
        }
        from = Some(pod);
    }
    Ok(from.map(Bytes::from))
}

/// Removes the commit marker of a pod that stops and waits for no answer.
pub fn clear_marker(tx: &Transaction, pod: &[u8]) -> LayerResult<()> {
    Ok(tx.clear_range(markers(pod).children())?)
}

pub fn notify_lost(tx: &Transaction, pod: &[u8], session: SessionId<'_>, epoch: u64) -> LayerResult<()> {
    let key = notices(pod).uint(session.broker).bytes(session.client);
    Ok(tx.set(key, Bytes::copy_from_slice(&epoch.to_be_bytes()))?)
}

/// Notifies a pod of a session that it has lost without a release, and makes its transactions that [`watch_losses`] conflict.
pub fn take_away(tx: &Transaction, pod: &[u8], session: SessionId<'_>, epoch: u64) -> LayerResult<()> {
    notify_lost(tx, pod, session, epoch)?;
    Ok(tx.add_write_conflict_range(losses(pod))?)
}

pub fn watch_losses(tx: &Transaction, pod: &[u8]) -> LayerResult<()> {
    Ok(tx.add_read_conflict_range(losses(pod))?)
}

fn losses(pod: &[u8]) -> KeyRange {
    let key = notices(pod);
    KeyRange::new(key.as_ref(), after(key.as_ref()))
}

/// Lists up to `limit` notices to a pod, as a snapshot read; [`acknowledge_lost`] removes them.
pub async fn lost_sessions(tx: &Transaction, pod: &[u8], limit: usize) -> LayerResult<Vec<LostSession>> {
    let prefix = notices(pod);
    let page = tx.range(prefix.children(), RangeOptions::first(limit).snapshot()).await?;
    let read = |mut row: KeyValue| {
        let mut elements = Elements::after(&prefix, &row.key)?;
        let session = OwnedSession { broker: elements.uint()?, client: elements.bytes()?.into() };
        Ok(LostSession { session, epoch: row.value.try_get_u64()? })
    };
    page.items.into_iter().map(read).collect()
}

/// Removes notices that the pod has handled, in the order of [`lost_sessions`], but no later notice of the same session.
pub async fn acknowledge_lost(tx: &Transaction, pod: &[u8], handled: &[LostSession]) -> LayerResult<()> {
    let key = |lost: &LostSession| notices(pod).uint(lost.session.broker).bytes(&lost.session.client);
    let (Some(first), Some(last)) = (handled.first(), handled.last()) else { return Ok(()) };
    let range = KeyRange::new(key(first).as_ref(), after(key(last).as_ref()));
    // New notices may stand in between.
    let page = tx.range(range, RangeOptions::first(2 * handled.len())).await?;
    let is_handled = |row: &KeyValue| {
        handled.iter().any(|lost| *row.value == lost.epoch.to_be_bytes() && *row.key == *key(lost).as_ref())
    };
    for row in page.items.into_iter().filter(is_handled) {
        tx.clear(row.key)?;
    }
    Ok(())
}

/// Replaces the pod's commit marker by a number of this transaction alone, which shows after a lost answer that the
/// transaction was committed.
pub fn write_marker(tx: &Transaction, pod: &[u8], number: u128) -> LayerResult<()> {
    put_marker(tx, pod, number, None)
}

/// [`write_marker`] for a pod that knows the key of its last marker: it clears only this key, because clearing a range on the
/// embedded engine reads the range, past all markers that were cleared before.
pub fn put_marker(tx: &Transaction, pod: &[u8], number: u128, last: Option<Versionstamp>) -> LayerResult<()> {
    let prefix = markers(pod);
    match last {
        Some(last) => tx.clear(prefix.clone().position(Position::new(last, 0)))?,
        None => tx.clear_range(prefix.children())?,
    }
    let value = Bytes::copy_from_slice(&number.to_be_bytes());
    Ok(tx.set_versionstamped_key(prefix.before_position(), [0; 2], [], value)?)
}

pub async fn last_marker(tx: &Transaction, pod: &[u8]) -> LayerResult<Option<(u128, Versionstamp)>> {
    let prefix = markers(pod);
    let last = RangeOptions { reverse: true, ..RangeOptions::first(1) };
    let page = tx.range(prefix.children(), last).await?;
    let Some(mut row) = page.items.into_iter().next() else { return Ok(None) };
    let stamp = Elements::after(&prefix, &row.key)?.position()?.stamp();
    Ok(Some((row.value.try_get_u128()?, stamp)))
}

fn pods() -> Key {
    Key::new(tags::REGION, tags::POD)
}

fn all_markers() -> Key {
    Key::new(tags::REGION, tags::MARK)
}

fn markers(pod: &[u8]) -> Key {
    all_markers().bytes(pod)
}

fn all_notices() -> Key {
    Key::new(tags::REGION, tags::NOTICE)
}

fn notices(pod: &[u8]) -> Key {
    all_notices().bytes(pod)
}

#[cfg(test)]
mod tests {
    use millrace_storage::Database;

    use super::*;
    use crate::testing::run;

    #[test]
    fn a_lease_is_removed_unless_it_was_renewed() {
        let database = Database::memory();
        run(&database, async |tx| renew(tx, b"a", 5).and(renew(tx, b"b", 7)));
        let all = || run(&database, async |tx| list(tx).await);
        let [a, b] = &all()[..] else { panic!("{:?}", all()) };
        assert_eq!((&a.name[..], a.until_ms, b.until_ms), (&b"a"[..], 5, 7));
        run(&database, async |tx| renew(tx, b"a", 9));
        run(&database, async |tx| remove(tx, a).await);
        run(&database, async |tx| remove(tx, b).await);
        assert_eq!(all(), [Pod { name: "a".into(), until_ms: 9 }]);
    }

    #[test]
    fn more_than_a_thousand_pods_are_all_listed() {
        let database = Database::memory();
        run(&database, async |tx| (0..2_500u64).try_for_each(|pod| renew(tx, &pod.to_be_bytes(), pod)));
        let all = run(&database, async |tx| list(tx).await);
        assert!(all.iter().map(|pod| pod.until_ms).eq(0..2_500));
        assert_eq!(run(&database, async |tx| get(tx, &all[2_400].name).await), Some(all[2_400].clone()));
        assert_eq!(run(&database, async |tx| get(tx, b"none").await), None);
    }

    #[test]
    fn the_marker_names_a_pods_last_transaction() {
        let database = Database::memory();
        let marked = |pod: &'static [u8]| run(&database, async |tx| last_marker(tx, pod).await);
        assert_eq!(marked(b"a"), None);
        for number in [1, u128::MAX, 7] {
            let commit = database.run_committed(|tx, _| async move { write_marker(&tx, b"a", number) });
            let ((), committed) = millrace_storage::block_on(commit).unwrap();
            assert_eq!(marked(b"a"), committed.versionstamp.map(|stamp| (number, stamp)));
        }
        run(&database, async |tx| renew(tx, b"a", 5));
        assert_eq!(marked(b"b"), None);
        // Found by the simulation: a pod declared dead while it waits for an answer must still find its marker.
        run(&database, async |tx| remove(tx, &Pod { name: "a".into(), until_ms: 5 }).await);
        assert_eq!(marked(b"a").map(|(number, _)| number), Some(7));
        run(&database, async |tx| clear_marker(tx, b"a"));
        assert_eq!(marked(b"a"), None);
    }

    #[test]
    fn rows_of_gone_pods_are_removed_and_rows_of_possibly_live_pods_stay() {
        for limit in [1, 2, 100] {
            let database = Database::memory();
            let id = SessionId { broker: 3, client: b"x" };
            run(&database, async |tx| {
                [&b"gone"[..], b"idle", b"late", b"lives", b"never"]
                    .map(|pod| notify_lost(tx, pod, id, 5))
                    .into_iter()
                    .collect::<LayerResult<()>>()?;
                write_marker(tx, b"gone", 1)?;
                write_marker(tx, b"idle", 2)?;
                renew(tx, b"idle", 9)?;
                renew(tx, b"lives", 9)
            });
            let before = run(&database, async |tx| Ok(tx.read_version().await? + 1));
            run(&database, async |tx| renew(tx, b"other", 9));
            run(&database, async |tx| write_marker(tx, b"late", 3));
            let mut from: Option<Bytes> = None;
            for _ in 0..20 {
                let at = from.take();
                from = run(&database, async |tx| remove_stale_rows(tx, before, at.as_deref(), limit).await);
                if from.is_none() {
                    break;
                }
            }
            assert_eq!(from, None, "it ends");
            let notices =
                |pod: &'static [u8]| run(&database, async |tx| lost_sessions(tx, pod, 9).await).len();
            let marked = |pod: &'static [u8]| run(&database, async |tx| last_marker(tx, pod).await).is_some();
            assert_eq!(
                [&b"gone"[..], b"idle", b"late", b"lives", b"never"].map(notices),
                [0, 1, 1, 1, 0],
                "{limit}"
            );
            assert_eq!([&b"gone"[..], b"idle", b"late"].map(marked), [false, false, true], "{limit}");
        }
    }

    #[test]
    fn a_notice_of_a_lost_session_stays_until_it_is_acknowledged() {
        let database = Database::memory();
        let id = |client: &'static str| SessionId { broker: 3, client: client.as_bytes() };
        run(&database, async |tx| {
            notify_lost(tx, b"a", id("x"), 5)?;
            notify_lost(tx, b"a", id("x"), 6)?;
            notify_lost(tx, b"a", id("y"), 7)?;
            notify_lost(tx, b"ab", id("z"), 8)
        });
        let listed =
            |pod: &'static [u8], limit| run(&database, async |tx| lost_sessions(tx, pod, limit).await);
        let acknowledge = |pod: &'static [u8], handled: &[LostSession]| {
            run(&database, async |tx| acknowledge_lost(tx, pod, handled).await);
        };
        let lost = |client: &'static str, epoch| LostSession {
            session: OwnedSession { broker: 3, client: client.into() },
            epoch,
        };
        assert_eq!(listed(b"a", 1), [lost("x", 6)]);
        assert_eq!(listed(b"a", 10), [lost("x", 6), lost("y", 7)], "the answer may be lost");
        run(&database, async |tx| notify_lost(tx, b"a", id("y"), 9));
        acknowledge(b"a", &[lost("x", 6), lost("y", 7)]);
        assert_eq!((listed(b"a", 10), listed(b"ab", 10)), (vec![lost("y", 9)], vec![lost("z", 8)]));
        acknowledge(b"a", &[lost("x", 6), lost("y", 9)]);
        assert_eq!(listed(b"a", 10), []);
    }
}
