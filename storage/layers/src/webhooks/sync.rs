//! Creates, changes and removes the queues of webhooks according to their records.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction};

use super::{Hook, state};
use crate::{
    BrokerId, accounts,
    error::{LayerError, LayerResult},
    name::{self, GroupedFilter},
    rows,
    streams::{self, Source, StreamId},
    subscriptions::members,
    tags,
    tuple::{Elements, Key},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub name: String,
    /// Filters of the topics whose messages become events; none for a disabled webhook.
    pub filters: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    pub changed: BTreeSet<Bytes>,
    /// Webhooks and filters beyond a limit.
    pub refused: Vec<(String, String)>,
}

/// Whether a broker has webhooks, or rows of former ones, in a snapshot.
pub async fn concerns(tx: &Transaction, broker: BrokerId) -> LayerResult<bool> {
    let is_any = async |range: KeyRange| -> LayerResult<bool> {
        Ok(!tx.range(range, RangeOptions::first(1).snapshot()).await?.items.is_empty())
    };
    Ok(is_any(accounts::webhooks(broker).range()).await? || is_any(sources_of(broker).children()).await?)
}

/// Makes the queues of a broker's webhooks as `wanted` says, and removes all others. Events of a removed filter are
/// lost, and counted. An in-memory filter index must be up to date before the call.
pub async fn sync(tx: &Transaction, broker: BrokerId, wanted: &[Wanted]) -> LayerResult<Synced> {
    let mut synced = Synced::default();
    let mut has: BTreeMap<String, BTreeMap<String, Source>> = BTreeMap::new();
    let prefix = sources_of(broker);
    for row in rows::all(tx, prefix.children(), Read::Serializable).await? {
        let mut key = Elements::after(&prefix, &row.key)?;
        let (name, filter) = (text(key.bytes()?)?, text(key.bytes()?)?);
        has.entry(name).or_default().insert(filter, decode(row.value)?);
    }
    for Wanted { name, filters } in wanted {
        let hook = Hook { broker, name };
        let had = has.remove(name).unwrap_or_default();
        leave(tx, hook, had.iter().filter(|(filter, _)| !filters.contains(*filter)), &mut synced).await?;
        for filter in filters.iter().filter(|filter| !had.contains_key(*filter)) {
            match join(tx, hook, filter).await {
                Ok(()) => drop(synced.changed.insert(Bytes::copy_from_slice(filter.as_bytes()))),
                Err(LayerError::TooManyGroups | LayerError::NameTooLong { .. }) => {
                    synced.refused.push((name.clone(), filter.clone()));
                }
                Err(error) => return Err(error),
            }
        }
    }
    for (name, had) in has {
        let hook = Hook { broker, name: &name };
        leave(tx, hook, had.iter(), &mut synced).await?;
        forget(tx, hook)?;
    }
    Ok(synced)
}

/// Removes the state, the dead letters and the log of a deleted webhook, whose queue the next [`sync`] removes.
pub fn forget(tx: &Transaction, hook: Hook<'_>) -> LayerResult<()> {
    tx.clear(hook.key(tags::HOOK))?;
    super::letters::clear(tx, hook)?;
    super::log::clear(tx, hook)?;
    super::drop_queued(tx, hook)
}

async fn join(tx: &Transaction, hook: Hook<'_>, filter: &str) -> LayerResult<()> {
    let group = hook.group();
    let indexed = GroupedFilter { group: group.as_bytes(), filter: filter.as_bytes() };
    name::check(&indexed.name())?;
    let since = tx.read_version().await?;
    let (stream, _) = members::join(tx, hook.broker, indexed, since).await?;
    let mut value = Vec::with_capacity(16);
    value.put_u64(since);
    value.put_u64(stream);
    Ok(tx.set(source_key(hook, filter), value)?)
}

async fn leave(
    tx: &Transaction,
    hook: Hook<'_>,
    gone: impl Iterator<Item = (&String, &Source)>,
    synced: &mut Synced,
) -> LayerResult<()> {
    let group = hook.group();
    let mut lost = 0;
    for (filter, source) in gone {
        lost += streams::totals(tx, hook.broker, source.stream).await?.entries;
        let indexed = GroupedFilter { group: group.as_bytes(), filter: filter.as_bytes() };
        members::leave(tx, hook.broker, indexed, source.stream).await?;
        tx.clear(source_key(hook, filter))?;
        synced.changed.insert(Bytes::copy_from_slice(filter.as_bytes()));
    }
    if lost > 0 {
        let mut state = state::get(tx, hook, Read::Serializable).await?;
        state.lost += lost;
        // The failed event is gone, so its attempts do not count any more.
        (state.attempts, state.failing_since_ms, state.next_attempt_ms) = (0, 0, 0);
        state::set(tx, hook, &state)?;
    }
    Ok(())
}

pub(super) async fn sources(tx: &Transaction, hook: Hook<'_>) -> LayerResult<Vec<Source>> {
    let rows = rows::all(tx, hook.key(tags::HOOK_SOURCE).children(), Read::Serializable).await?;
    rows.into_iter().map(|row| decode(row.value)).collect()
}

fn decode(mut value: Bytes) -> LayerResult<Source> {
    let since = value.try_get_u64()?;
    let stream: StreamId = value.try_get_u64()?;
    Ok(Source { stream, since })
}

fn text(bytes: Vec<u8>) -> LayerResult<String> {
    String::from_utf8(bytes).map_err(|_| LayerError::Corrupt("webhook"))
}

fn sources_of(broker: BrokerId) -> Key {
    Key::new(broker, tags::HOOK_SOURCE)
}

fn source_key(hook: Hook<'_>, filter: &str) -> Key {
    hook.key(tags::HOOK_SOURCE).bytes(filter.as_bytes())
}
