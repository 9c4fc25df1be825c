//! What is to happen to sessions at some time: wills and expiries, in order of time.
//!
//! They belong to the region, not to a broker: whoever sweeps must find them without asking each of a million idle brokers. They are
//! spread over a few shards, for what is due next week is appended at the end, and one end would be a place that all write.
//!
//! A row only says when to look. Whether a will fires or a session ends is decided by the session, in the same transaction:
//! [`crate::sessions::settle`].

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Transaction};

use crate::{
    BrokerId,
    error::{Error, Result},
    name,
    sessions::SessionId,
    tags,
    tuple::{Elements, Key},
};

/// Shards of the region's due times. Each is swept by itself.
pub const SHARDS: u8 = 8;

/// What is due. A will comes before an expiry of the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The will of a session that nobody came back to.
    Will,
    /// The end of a session.
    Expiry,
}

/// Something that is due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Due {
    /// When, in unix milliseconds.
    pub at_ms: u64,
    /// The broker.
    pub broker: BrokerId,
    /// The client id of the session.
    pub client: Bytes,
    /// What.
    pub kind: Kind,
}

impl Due {
    pub(crate) fn new(id: SessionId<'_>, kind: Kind, at_ms: u64) -> Self {
        Self { at_ms, broker: id.broker, client: Bytes::copy_from_slice(id.client), kind }
    }

    /// The shard that it is in.
    #[must_use]
    pub fn shard(&self) -> u8 {
        (name::hash(&[&self.broker.to_be_bytes(), &self.client]) % u64::from(SHARDS)) as u8
    }

    fn key(&self) -> Key {
        let kind = if self.kind == Kind::Will { 0 } else { 1 };
        shard_key(self.shard()).uint(self.at_ms).uint(self.broker).bytes(&self.client).uint(kind)
    }

    fn read(prefix: &Key, key: &[u8]) -> Result<Self> {
        let mut elements = Elements::after(prefix, key)?;
        let (at_ms, broker) = (elements.uint()?, elements.uint()?);
        let client = elements.bytes()?.into();
        let kind = match elements.uint()? {
            0 => Kind::Will,
            1 => Kind::Expiry,
            _ => return Err(Error::Corrupt("key")),
        };
        Ok(Self { at_ms, broker, client, kind })
    }
}

/// Schedules something.
///
/// # Errors
/// The store's.
pub fn schedule(tx: &Transaction, due: &Due) -> Result<()> {
    Ok(tx.set(due.key(), Bytes::new())?)
}

/// Takes something back that was scheduled for the same time.
///
/// # Errors
/// The store's.
pub fn cancel(tx: &Transaction, due: &Due) -> Result<()> {
    Ok(tx.clear(due.key())?)
}

/// Takes what is due in a shard at `now_ms`, the oldest first, at most `limit`. What is taken is gone once this transaction
/// commits, so it must be dealt with in it. Two that take the same conflict.
///
/// # Errors
/// The store's.
pub async fn take_due(tx: &Transaction, shard: u8, now_ms: u64, limit: usize) -> Result<Vec<Due>> {
    let prefix = shard_key(shard);
    let end = prefix.clone().uint(now_ms.saturating_add(1));
    let range = KeyRange::new(prefix.children().begin, end);
    let mut taken = Vec::new();
    for row in tx.range(range, RangeOptions::first(limit)).await?.items {
        taken.push(Due::read(&prefix, &row.key)?);
        tx.clear(&row.key)?;
    }
    Ok(taken)
}

/// When the next thing of a shard is due. A snapshot read: to know how long to sleep.
///
/// # Errors
/// The store's.
pub async fn next_due(tx: &Transaction, shard: u8) -> Result<Option<u64>> {
    let prefix = shard_key(shard);
    let page = tx.range(prefix.children(), RangeOptions::first(1).snapshot()).await?;
    page.items.first().map(|row| Due::read(&prefix, &row.key).map(|due| due.at_ms)).transpose()
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
            kind: if will { Kind::Will } else { Kind::Expiry },
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
        fn what_is_due_is_taken_once_and_in_order(steps in proptest::collection::vec(steps(), 1..30)) {
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
                        Step::Take { now_ms, limit } => take_due(tx, shard, *now_ms, *limit).await,
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
            for shard in 0..SHARDS {
                let first = model.iter().find(|due| due.shard() == shard).map(|due| due.at_ms);
                prop_assert_eq!(block_on(next_due(&database.begin_unretried(), shard)).unwrap(), first);
            }
        }
    }
}
