//! Reads a broker before its first client connects: retained messages and the filter index.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::future::join_all;
use millrace_layers::index::{self, IndexPart, IndexRow, IndexedStream};
use millrace_layers::{BrokerId, LayerError, Position, Store, metering, retained, sessions, subscriptions};
use millrace_storage::{Read, Transaction, block_on};

use super::bugs::{WriterBug, has_bug};
use super::{expiry, record};
use crate::broker::{Broker, Brokers, retained_size};
use crate::clock::Clock;

const PAGE: usize = 1000;

/// Returns the number of the broker's sessions that wait for their clients.
pub(super) fn all(
    store: &Store,
    clock: &Clock,
    brokers: &Brokers,
    broker: &Broker,
    is_shared: bool,
) -> Result<usize, LayerError> {
    retained(store, clock, brokers, broker, is_shared)?;
    block_on(filters(store, broker))?;
    sessions(store, broker)
}

fn sessions(store: &Store, broker: &Broker) -> Result<usize, LayerError> {
    let id = broker.id;
    let (waiting, first) = block_on(store.run(async |tx| {
        let waiting = metering::held(&tx, id).await?.sessions;
        Ok((waiting, sessions::list(&tx, id, None, 1).await?))
    }))?;
    // The first one may have its client on another pod, and then does not wait.
    broker.has_sessions.store(!first.is_empty(), Ordering::Relaxed);
    Ok(usize::try_from(waiting).unwrap_or(usize::MAX))
}

/// Also removes expired messages from the store. Stops where memory has no room for more: the broker then lacks the
/// rest.
fn retained(
    store: &Store,
    clock: &Clock,
    brokers: &Brokers,
    broker: &Broker,
    is_shared: bool,
) -> Result<(), LayerError> {
    let now = clock.now();
    let mut from = None;
    loop {
        let (id, at) = (broker.id, &from);
        let page = store.run(async |tx| {
            let page = retained::all(&tx, id, at.as_ref(), PAGE, Read::Snapshot).await?;
            Ok((page, tx.read_version().await?))
        });
        let (page, version) = block_on(page)?;
        let mut expired = Vec::new();
        for item in page.items {
            let topic = std::str::from_utf8(&item.topic).map_err(|_| LayerError::Corrupt("topic"))?;
            let message =
                record::decode(topic.into(), &item.body, clock).ok_or(LayerError::Corrupt("message"))?;
            if is_shared {
                // The loaded message gives way to those that pods commit later, but not to a late notice of an older one.
                message.set_position(Some(Position::end_of(version).0));
            }
            if message.is_expired(now) {
                expired.push(item.topic);
            } else if brokers.may_retain(broker, retained_size(&message)) {
                broker.retain(&Arc::new(message));
            } else {
                broker.retained_memory.is_incomplete.store(true, Ordering::Relaxed);
            }
        }
        if !expired.is_empty() {
            let expired: Vec<&[u8]> = expired.iter().map(AsRef::as_ref).collect();
            if let Err(error) = block_on(expiry::clear(store, clock, id, &expired)) {
                tracing::warn!(%error, "expired retained messages could not be removed from the store, where they take space for now");
            }
        }
        if broker.retained_memory.is_incomplete.load(Ordering::Relaxed) {
            tracing::warn!(
                broker = &*broker.name,
                loaded_bytes = broker.retained_bytes(),
                "the retained messages of this broker do not all fit in memory: subscriptions that need them are refused until retained_memory_max is larger or messages are removed, and the server is started again"
            );
            return Ok(());
        }
        from = page.next;
        if from.is_none() {
            return Ok(());
        }
    }
}

async fn filters(store: &Store, broker: &Broker) -> Result<(), LayerError> {
    let id = broker.id;
    // Later changes of the index are read as changes, from this version on.
    let through = store.run(async |tx| Ok(tx.read_version().await?)).await?;
    let mut found = HashSet::new();
    for part in [IndexPart::Exact, IndexPart::Wildcard] {
        let mut from: Option<Bytes> = None;
        loop {
            let page = store
                .run(async |tx| {
                    let rows = index::list(&tx, id, part, from.as_deref(), PAGE).await?;
                    let counts = join_all(rows.iter().map(|row| subscribers(&tx, id, &row.streams))).await;
                    Ok(rows.into_iter().zip(counts.into_iter().collect::<Result<Vec<_>, _>>()?).collect())
                })
                .await?;
            let page: Vec<(IndexRow, Vec<u64>)> = page;
            for (IndexRow { filter, streams }, subscribers) in page.iter() {
                let name = std::str::from_utf8(filter).map_err(|_| LayerError::Corrupt("filter"))?;
                broker.streams.set(name, streams, subscribers);
                found.insert(filter.clone());
            }
            match page.into_iter().last() {
                Some((row, _)) => from = Some(row.filter),
                None => break,
            }
        }
    }
    broker.streams.retain(&found);
    broker.streams.set_through(through);
    Ok(())
}

/// Reads changes of the index by other pods, as the transaction sees them; returns whether there are any.
pub(super) async fn changes(tx: &Transaction, store: &Store, broker: &Broker) -> Result<bool, LayerError> {
    let version = tx.read_version().await?;
    if broker.streams.through() >= version || has_bug(WriterBug::IgnoresOthersFilters) {
        return Ok(false);
    }
    let rows = index::changes(tx, broker.id, broker.streams.through()).await?;
    let has_changes = rows.as_ref().is_none_or(|rows| !rows.is_empty());
    match rows {
        Some(rows) => broker.streams.change(&rows),
        None => filters(store, broker).await?,
    }
    broker.streams.set_through(version);
    Ok(has_changes)
}

pub(super) async fn subscribers(
    tx: &Transaction,
    broker: BrokerId,
    streams: &[IndexedStream],
) -> Result<Vec<u64>, LayerError> {
    let mut subscribers = Vec::with_capacity(streams.len());
    for indexed in streams {
        subscribers.push(subscriptions::subscribers(tx, broker, indexed.stream).await?);
    }
    Ok(subscribers)
}
