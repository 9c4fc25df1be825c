//! Due times of sessions: delayed wills and expiries, in order of time.
//!
//! They belong to the region, not to a broker, so that a sweep finds them without reading each of a million idle
//! brokers. They are spread over a few shards, because later due times are appended at the end, and all writers would
//! share one end.
//!
//! A row only says when to look at the session: [`crate::sessions::settle`] decides in the same transaction whether the
//! will fires or the session ends.

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction};

use crate::{
    BrokerId, SessionId,
    error::{LayerError, LayerResult},
    name, tags,
    tuple::{Elements, Key},
};

pub const SHARDS: u8 = 8;

/// Sorts a will before an expiry of the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DueKind {
    /// A delayed will fires unless its client has returned.
    Will,
    Expiry,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Due {
    pub at_ms: u64,
    pub broker: BrokerId,
    pub client: Bytes,
    pub kind: DueKind,
}

impl Due {
    pub(crate) fn new(id: SessionId<'_>, kind: DueKind, at_ms: u64) -> Self {
        Self { at_ms, broker: id.broker, client: Bytes::copy_from_slice(id.client), kind }
    }

    #[must_use]
    pub fn shard(&self) -> u8 {
        (name::hash(&[&self.broker.to_be_bytes(), &self.client]) % u64::from(SHARDS)) as u8
    }

    fn key(&self) -> Key {
        let kind = if self.kind == DueKind::Will { 0 } else { 1 };
        shard_key(self.shard()).uint(self.at_ms).uint(self.broker).bytes(&self.client).uint(kind)
    }

    fn read(prefix: &Key, key: &[u8]) -> LayerResult<Self> {
        let mut elements = Elements::after(prefix, key)?;
        let (at_ms, broker) = (elements.uint()?, elements.uint()?);
        let client = elements.bytes()?.into();
        let kind = match elements.uint()? {
            0 => DueKind::Will,
            1 => DueKind::Expiry,
            _ => return Err(LayerError::Corrupt("key")),
        };
        Ok(Self { at_ms, broker, client, kind })
    }
}

pub fn schedule(tx: &Transaction, due: &Due) -> LayerResult<()> {
    Ok(tx.set(due.key(), Bytes::new())?)
}

/// `due` must have the time for which it was scheduled, because the time is part of the key.
pub fn cancel(tx: &Transaction, due: &Due) -> LayerResult<()> {
    Ok(tx.clear(due.key())?)
}

/// The due times of a shard until `until_ms`. With `from` without the earlier ones: the embedded engine keeps removed
/// rows until a compaction, and a read from the start of the shard passes all of them.
#[derive(Clone, Copy, Debug)]
pub struct DueRange<'a> {
    pub shard: u8,
    pub from: Option<&'a Due>,
    pub until_ms: u64,
}

impl DueRange<'_> {
    #[must_use]
    pub fn until(shard: u8, until_ms: u64) -> Self {
        Self { shard, from: None, until_ms }
    }

    fn keys(&self) -> KeyRange {
        let end = shard_key(self.shard).uint(self.until_ms.saturating_add(1));
        let all = KeyRange::new(shard_key(self.shard).children().begin, end);
        match self.from {
            Some(due) => KeyRange::new(due.key(), all.end),
            None => all,
        }
    }
}

/// Removes and returns up to `limit` due times, the oldest first, so the caller must handle them in this transaction.
/// Concurrent callers conflict.
pub async fn take_due(tx: &Transaction, range: DueRange<'_>, limit: usize) -> LayerResult<Vec<Due>> {
    let mut taken = Vec::new();
    for row in tx.range(range.keys(), RangeOptions::first(limit)).await?.items {
        taken.push(Due::read(&shard_key(range.shard), &row.key)?);
        tx.clear(&row.key)?;
    }
    Ok(taken)
}

/// Removes and returns the listed due times that are still there. Callers conflict only about the same ones.
pub async fn take_listed(tx: &Transaction, listed: &[Due]) -> LayerResult<Vec<Due>> {
    let mut taken = Vec::new();
    for due in listed {
        if tx.get(due.key(), Read::Serializable).await?.is_some() {
            tx.clear(due.key())?;
            taken.push(due.clone());
        }
    }
    Ok(taken)
}

/// The due times that [`take_due`] would take, read in a snapshot.
pub async fn list_due(tx: &Transaction, range: DueRange<'_>, limit: usize) -> LayerResult<Vec<Due>> {
    let page = tx.range(range.keys(), RangeOptions::first(limit).snapshot()).await?;
    page.items.iter().map(|row| Due::read(&shard_key(range.shard), &row.key)).collect()
}

fn shard_key(shard: u8) -> Key {
    Key::new(tags::REGION, tags::DUE).uint(shard.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use millrace_storage::block_on;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{database, run};

    #[derive(Clone, Debug)]
    enum Step {
        Schedule(Due),
        Cancel(Due),
        Take { now_ms: u64, limit: usize },
    }

    fn dues() -> impl Strategy<Value = Due> {
        (0..6u64, 1..3u64, 0..4u8, any::<bool>()).prop_map(|(at_ms, broker, client, will)| Due {
            at_ms: at_ms * 100,
            broker,
            client: Bytes::copy_from_slice(&[client]),
            kind: if will { DueKind::Will } else { DueKind::Expiry },
        })
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => dues().prop_map(Step::Schedule),
            1 => dues().prop_map(Step::Cancel),
            1 => (0..700u64, 1..5usize).prop_map(|(now_ms, limit)| Step::Take { now_ms, limit }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn due_rows_are_taken_once_and_in_order(steps in proptest::collection::vec(steps(), 1..30)) {
            let database = database();
            let mut model = BTreeSet::new();
            for step in steps {
                match &step {
                    Step::Schedule(due) => { model.insert(due.clone()); }
                    Step::Cancel(due) => { model.remove(due); }
                    Step::Take { .. } => {}
                }
                for shard in 0..SHARDS {
                    let taken = run(&database, async |tx| match &step {
                        Step::Schedule(due) if due.shard() == shard => schedule(tx, due).map(|()| Vec::new()),
                        Step::Cancel(due) if due.shard() == shard => cancel(tx, due).map(|()| Vec::new()),
                        Step::Take { now_ms, limit } => {
                            take_due(tx, DueRange::until(shard, *now_ms), *limit).await
                        }
                        _ => Ok(Vec::new()),
                    });
                    if let Step::Take { now_ms, limit } = step {
                        let due = model.iter().filter(|due| due.shard() == shard && due.at_ms <= now_ms);
                        let expected: Vec<Due> = due.take(limit).cloned().collect();
                        prop_assert_eq!(&taken, &expected);
                        model.retain(|due| !expected.contains(due));
                    }
                }
            }
            for from in &model {
                let range = DueRange { from: Some(from), ..DueRange::until(from.shard(), 700) };
                let listed = block_on(list_due(&database.begin_unretried(), range, 100)).unwrap();
                let expected = model.range(from..).filter(|due| due.shard() == from.shard());
                prop_assert_eq!(listed, expected.cloned().collect::<Vec<_>>());
            }
        }
    }
}
