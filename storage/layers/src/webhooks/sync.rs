//! Creates, changes and removes the queues of webhooks according to their records.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction};

use super::{WebhookId, state};
use crate::{
    BrokerId, accounts,
    error::{LayerError, LayerResult},
    name::{self, GroupedFilter},
    rows,
    streams::{self, StreamId, StreamSource},
    subscriptions::members,
    tags,
    tuple::{Elements, Key},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedQueues {
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
pub async fn has_any(tx: &Transaction, broker: BrokerId) -> LayerResult<bool> {
    let is_any = async |range: KeyRange| -> LayerResult<bool> {
        Ok(!tx.range(range, RangeOptions::first(1).snapshot()).await?.items.is_empty())
    };
    Ok(is_any(accounts::webhooks(broker).range()).await? || is_any(sources_of(broker).children()).await?)
}

/// Makes the queues of a broker's webhooks as `wanted` says, and removes all others. Events of a removed filter are
/// lost, and counted. An in-memory filter index must be up to date before the call.
pub async fn sync(tx: &Transaction, broker: BrokerId, wanted: &[WantedQueues]) -> LayerResult<Synced> {
    let mut synced = Synced::default();
    let mut has: BTreeMap<String, BTreeMap<String, StreamSource>> = BTreeMap::new();
    let prefix = sources_of(broker);
    for row in rows::all(tx, prefix.children(), Read::Serializable).await? {
        let mut key = Elements::after(&prefix, &row.key)?;
        let (name, filter) = (text(key.bytes()?)?, text(key.bytes()?)?);
        has.entry(name).or_default().insert(filter, decode(row.value)?);
    }
    for WantedQueues { name, filters } in wanted {
        let webhook = WebhookId { broker, name };
        let had = has.remove(name).unwrap_or_default();
        leave(tx, webhook, had.iter().filter(|(filter, _)| !filters.contains(*filter)), &mut synced).await?;
        for filter in filters.iter().filter(|filter| !had.contains_key(*filter)) {
            match join(tx, webhook, filter).await {
                Ok(()) => drop(synced.changed.insert(Bytes::copy_from_slice(filter.as_bytes()))),
                Err(LayerError::TooManyGroups | LayerError::NameTooLong { .. }) => {
                    synced.refused.push((name.clone(), filter.clone()));
                }
                Err(error) => return Err(error),
            }
        }
    }
    for (name, had) in has {
        let webhook = WebhookId { broker, name: &name };
        leave(tx, webhook, had.iter(), &mut synced).await?;
        forget(tx, webhook)?;
    }
    Ok(synced)
}

/// Removes the state, the dead letters and the log of a deleted webhook, whose queue the next [`sync`] removes.
pub fn forget(tx: &Transaction, webhook: WebhookId<'_>) -> LayerResult<()> {
    tx.clear(webhook.key(tags::WEBHOOK_STATE))?;
    super::dead_letters::clear(tx, webhook)?;
    super::log::clear(tx, webhook)?;
    super::remove_queued(tx, webhook)
}

async fn join(tx: &Transaction, webhook: WebhookId<'_>, filter: &str) -> LayerResult<()> {
    let group = webhook.group();
    let indexed = GroupedFilter { group: group.as_bytes(), filter: filter.as_bytes() };
    name::check(&indexed.name())?;
    let since = tx.read_version().await?;
    let (stream, _) = members::join(tx, webhook.broker, indexed, since).await?;
    let mut value = Vec::with_capacity(16);
    value.put_u64(since);
    value.put_u64(stream);
    Ok(tx.set(source_key(webhook, filter), value)?)
}

async fn leave(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    gone: impl Iterator<Item = (&String, &StreamSource)>,
    synced: &mut Synced,
) -> LayerResult<()> {
    let group = webhook.group();
    let mut lost = 0;
    for (filter, source) in gone {
        lost += streams::totals(tx, webhook.broker, source.stream).await?.entries;
        let indexed = GroupedFilter { group: group.as_bytes(), filter: filter.as_bytes() };
        members::leave(tx, webhook.broker, indexed, source.stream).await?;
        tx.clear(source_key(webhook, filter))?;
        synced.changed.insert(Bytes::copy_from_slice(filter.as_bytes()));
    }
    if lost > 0 {
        let mut state = state::get(tx, webhook, Read::Serializable).await?;
        state.lost += lost;
        // The failed event is gone, so its attempts do not count any more.
        (state.attempts, state.failing_since_ms, state.next_attempt_ms) = (0, 0, 0);
        state::set(tx, webhook, &state)?;
    }
    Ok(())
}

pub(super) async fn sources(tx: &Transaction, webhook: WebhookId<'_>) -> LayerResult<Vec<StreamSource>> {
    let rows = rows::all(tx, webhook.key(tags::WEBHOOK_SOURCE).children(), Read::Serializable).await?;
    rows.into_iter().map(|row| decode(row.value)).collect()
}

fn decode(mut value: Bytes) -> LayerResult<StreamSource> {
    let since = value.try_get_u64()?;
    let stream: StreamId = value.try_get_u64()?;
    Ok(StreamSource { stream, since })
}

fn text(bytes: Vec<u8>) -> LayerResult<String> {
    String::from_utf8(bytes).map_err(|_| LayerError::Corrupt("webhook"))
}

fn sources_of(broker: BrokerId) -> Key {
    Key::new(broker, tags::WEBHOOK_SOURCE)
}

fn source_key(webhook: WebhookId<'_>, filter: &str) -> Key {
    webhook.key(tags::WEBHOOK_SOURCE).bytes(filter.as_bytes())
}
