//! The pods of a region: their leases, their commit markers, and notices of sessions that they have lost.
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
pub struct Lost {
    pub session: OwnedSession,
    /// The epoch at which the pod owned it.
    pub epoch: u64,
}

pub fn renew(tx: &Transaction, pod: &[u8], until_ms: u64) -> LayerResult<()> {
    Ok(tx.set(pods().bytes(pod), Bytes::copy_from_slice(&until_ms.to_be_bytes()))?)
}

/// A snapshot read.
pub async fn list(tx: &Transaction, limit: usize) -> LayerResult<Vec<Pod>> {
    let prefix = pods();
    let page = tx.range(prefix.children(), RangeOptions::first(limit).snapshot()).await?;
    let read = |mut row: KeyValue| {
        let name = Elements::after(&prefix, &row.key)?.bytes()?.into();
        Ok(Pod { name, until_ms: row.value.try_get_u64()? })
    };
    page.items.into_iter().map(read).collect()
}

/// Removes the lease of a pod that has not renewed it. The commit marker and the notices stay until [`tidy`], because
/// the pod may still run and need them: the marker after a lost answer to a commit, the notices to close lost sessions.
pub async fn remove(tx: &Transaction, pod: &Pod) -> LayerResult<()> {
    if is_unchanged(tx, pod).await? {
        tx.clear(pods().bytes(&pod.name))?;
    }
    Ok(())
}

/// True while the pod has not renewed its lease; a later renewal conflicts with the transaction.
pub async fn is_unchanged(tx: &Transaction, pod: &Pod) -> LayerResult<bool> {
    let value = tx.get(pods().bytes(&pod.name), Read::Serializable).await?;
    Ok(value.is_some_and(|value| *value == pod.until_ms.to_be_bytes()))
}

/// A commit marker stays for so many versions: about a day, as FoundationDB counts a million a second.
pub const MARK_VERSIONS: u64 = 86_400 * 1_000_000;

/// Removes rows of pods that do not run any more: commit markers of versions below `before`, and notices to pods
/// without lease and marker. Reads about `limit` rows of each kind after the pod `from`, and returns the last pod, or
/// `None` at the end.
pub async fn tidy(
    tx: &Transaction,
    before: StoreVersion,
    from: Option<&[u8]>,
    limit: usize,
) -> LayerResult<Option<Bytes>> {
    let (mut last, mut ends) = (None, true);
    let mut left = all_marks().children();
    if let Some(from) = from {
        left.begin = marks(from).end().into();
    }
    let page = tx.range(left, RangeOptions::first(limit).snapshot()).await?;
    ends &= page.items.len() < limit;
    for row in page.items {
        let mut elements = Elements::after(&all_marks(), &row.key)?;
        let pod = elements.bytes()?;
        if elements.position()?.stamp().version() < before {
            tx.clear(row.key)?;
        }
        last = Some(pod);
    }
    // Further pods may have markers that were not read.
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
        let marks = tx.range(marks(&pod).children(), RangeOptions::first(1)).await?;
        if lease.is_none() && marks.items.is_empty() {
            tx.clear_range(notices(&pod).children())?;
        }
        from = Some(pod);
    }
    Ok(from.map(Bytes::from))
}

/// Removes the commit marker of a pod that stops and waits for no answer.
pub fn unmark(tx: &Transaction, pod: &[u8]) -> LayerResult<()> {
    Ok(tx.clear_range(marks(pod).children())?)
}

/// Leaves a pod the notice that it has lost a session.
pub fn tell(tx: &Transaction, pod: &[u8], session: SessionId<'_>, epoch: u64) -> LayerResult<()> {
    let key = notices(pod).uint(session.broker).bytes(session.client);
    Ok(tx.set(key, Bytes::copy_from_slice(&epoch.to_be_bytes()))?)
}

/// Lists up to `limit` notices to a pod, as a snapshot read; [`heard`] removes them.
pub async fn told(tx: &Transaction, pod: &[u8], limit: usize) -> LayerResult<Vec<Lost>> {
    let prefix = notices(pod);
    let page = tx.range(prefix.children(), RangeOptions::first(limit).snapshot()).await?;
    let read = |mut row: KeyValue| {
        let mut elements = Elements::after(&prefix, &row.key)?;
        let session = OwnedSession { broker: elements.uint()?, client: elements.bytes()?.into() };
        Ok(Lost { session, epoch: row.value.try_get_u64()? })
    };
    page.items.into_iter().map(read).collect()
}

/// Removes notices that a pod has handled, in the order of [`told`], but no later notice of the same session.
pub async fn heard(tx: &Transaction, pod: &[u8], told: &[Lost]) -> LayerResult<()> {
    let key = |lost: &Lost| notices(pod).uint(lost.session.broker).bytes(&lost.session.client);
    let (Some(first), Some(last)) = (told.first(), told.last()) else { return Ok(()) };
    let range = KeyRange::new(key(first).as_ref(), after(key(last).as_ref()));
    // New notices may stand in between.
    let page = tx.range(range, RangeOptions::first(2 * told.len())).await?;
    let heard = |row: &KeyValue| {
        told.iter().any(|lost| *row.value == lost.epoch.to_be_bytes() && *row.key == *key(lost).as_ref())
    };
    for row in page.items.into_iter().filter(heard) {
        tx.clear(row.key)?;
    }
    Ok(())
}

/// Replaces the pod's commit marker by a number of this transaction alone, which shows after a lost answer that the
/// transaction was committed.
pub fn mark(tx: &Transaction, pod: &[u8], number: u128) -> LayerResult<()> {
    mark_after(tx, pod, number, None)
}

/// [`mark`] for a pod that knows the key of its last marker: it clears only this key, because clearing a range on the
/// embedded engine reads the range, past all markers that were cleared before.
pub fn mark_after(tx: &Transaction, pod: &[u8], number: u128, last: Option<Versionstamp>) -> LayerResult<()> {
    let prefix = marks(pod);
    match last {
        Some(last) => tx.clear(prefix.clone().position(Position::new(last, 0)))?,
        None => tx.clear_range(prefix.children())?,
    }
    let value = Bytes::copy_from_slice(&number.to_be_bytes());
    Ok(tx.set_versionstamped_key(prefix.before_position(), [0; 2], [], value)?)
}

pub async fn marked(tx: &Transaction, pod: &[u8]) -> LayerResult<Option<(u128, Versionstamp)>> {
    let prefix = marks(pod);
    let last = RangeOptions { reverse: true, ..RangeOptions::first(1) };
    let page = tx.range(prefix.children(), last).await?;
    let Some(mut row) = page.items.into_iter().next() else { return Ok(None) };
    let stamp = Elements::after(&prefix, &row.key)?.position()?.stamp();
    Ok(Some((row.value.try_get_u128()?, stamp)))
}

fn pods() -> Key {
    Key::new(tags::REGION, tags::POD)
}

fn all_marks() -> Key {
    Key::new(tags::REGION, tags::MARK)
}

fn marks(pod: &[u8]) -> Key {
    all_marks().bytes(pod)
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
    fn a_pod_is_forgotten_unless_it_was_only_late() {
        let database = Database::memory();
        run(&database, async |tx| renew(tx, b"a", 5).and(renew(tx, b"b", 7)));
        let all = || run(&database, async |tx| list(tx, 10).await);
        let [a, b] = &all()[..] else { panic!("{:?}", all()) };
        assert_eq!((&a.name[..], a.until_ms, b.until_ms), (&b"a"[..], 5, 7));
        run(&database, async |tx| renew(tx, b"a", 9));
        run(&database, async |tx| remove(tx, a).await);
        run(&database, async |tx| remove(tx, b).await);
        assert_eq!(all(), [Pod { name: "a".into(), until_ms: 9 }]);
    }

    #[test]
    fn the_last_transaction_of_a_pod_is_known() {
        let database = Database::memory();
        let marked = |pod: &'static [u8]| run(&database, async |tx| marked(tx, pod).await);
        assert_eq!(marked(b"a"), None);
        for number in [1, u128::MAX, 7] {
            let commit = database.run_committed(|tx, _| async move { mark(&tx, b"a", number) });
            let ((), committed) = millrace_storage::block_on(commit).unwrap();
            assert_eq!(marked(b"a"), committed.versionstamp.map(|stamp| (number, stamp)));
        }
        run(&database, async |tx| renew(tx, b"a", 5));
        assert_eq!(marked(b"b"), None);
        // Found by the simulation: who was buried while it waited for an answer must still find its mark.
        run(&database, async |tx| remove(tx, &Pod { name: "a".into(), until_ms: 5 }).await);
        assert_eq!(marked(b"a").map(|(number, _)| number), Some(7));
        run(&database, async |tx| unmark(tx, b"a"));
        assert_eq!(marked(b"a"), None);
    }

    #[test]
    fn nothing_is_left_of_pods_that_are_gone_and_nothing_is_lost_of_those_that_may_be_alive() {
        for limit in [1, 2, 100] {
            let database = Database::memory();
            let id = SessionId { broker: 3, client: b"x" };
            run(&database, async |tx| {
                [&b"gone"[..], b"idle", b"late", b"lives", b"never"]
                    .map(|pod| tell(tx, pod, id, 5))
                    .into_iter()
                    .collect::<LayerResult<()>>()?;
                mark(tx, b"gone", 1)?;
                mark(tx, b"idle", 2)?;
                renew(tx, b"idle", 9)?;
                renew(tx, b"lives", 9)
            });
            let before = run(&database, async |tx| Ok(tx.read_version().await? + 1));
            run(&database, async |tx| renew(tx, b"other", 9));
            run(&database, async |tx| mark(tx, b"late", 3));
            let mut from: Option<Bytes> = None;
            for _ in 0..20 {
                let at = from.take();
                from = run(&database, async |tx| tidy(tx, before, at.as_deref(), limit).await);
                if from.is_none() {
                    break;
                }
            }
            assert_eq!(from, None, "it ends");
            let told = |pod: &'static [u8]| run(&database, async |tx| told(tx, pod, 9).await).len();
            let marked = |pod: &'static [u8]| run(&database, async |tx| marked(tx, pod).await).is_some();
            assert_eq!(
                [&b"gone"[..], b"idle", b"late", b"lives", b"never"].map(told),
                [0, 1, 1, 1, 0],
                "{limit}"
            );
            assert_eq!([&b"gone"[..], b"idle", b"late"].map(marked), [false, false, true], "{limit}");
        }
    }

    #[test]
    fn a_pod_is_told_what_it_lost_until_it_has_heard_it() {
        let database = Database::memory();
        let id = |client: &'static str| SessionId { broker: 3, client: client.as_bytes() };
        run(&database, async |tx| {
            tell(tx, b"a", id("x"), 5)?;
            tell(tx, b"a", id("x"), 6)?;
            tell(tx, b"a", id("y"), 7)?;
            tell(tx, b"ab", id("z"), 8)
        });
        let told = |pod: &'static [u8], limit| run(&database, async |tx| told(tx, pod, limit).await);
        let heard = |pod: &'static [u8], told: &[Lost]| run(&database, async |tx| heard(tx, pod, told).await);
        let lost = |client: &'static str, epoch| Lost {
            session: OwnedSession { broker: 3, client: client.into() },
            epoch,
        };
        assert_eq!(told(b"a", 1), [lost("x", 6)]);
        assert_eq!(told(b"a", 10), [lost("x", 6), lost("y", 7)], "the answer may be lost");
        run(&database, async |tx| tell(tx, b"a", id("y"), 9));
        heard(b"a", &[lost("x", 6), lost("y", 7)]);
        assert_eq!((told(b"a", 10), told(b"ab", 10)), (vec![lost("y", 9)], vec![lost("z", 8)]));
        heard(b"a", &[lost("x", 6), lost("y", 9)]);
        assert_eq!(told(b"a", 10), []);
    }
}
