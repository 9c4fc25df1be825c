//! What is read of a broker before the first client connects to it: retained messages and the filter index.

use std::sync::Arc;

use millrace_layers::index::{self, Indexed, Wildcard};
use millrace_layers::{BrokerId, sessions, subscriptions};
use millrace_layers::{Bucket, Error, Store, retained};
use millrace_storage::{Read, Transaction, block_on};

use super::record;
use crate::broker::Broker;
use crate::clock::{Clock, seconds};

/// Rows read at a time.
const PAGE: usize = 1000;

/// Reads what a broker needs. Returns how many sessions it has.
pub(super) fn all(store: &Store, clock: &Clock, broker: &Broker) -> Result<usize, Error> {
    retained(store, clock, broker)?;
    filters(store, broker)?;
    sessions(store, broker)
}

fn sessions(store: &Store, broker: &Broker) -> Result<usize, Error> {
    let id = broker.id;
    let (mut count, mut from) = (0, None);
    loop {
        let after: Option<&[u8]> = from.as_deref();
        let page = block_on(store.run(async |tx| sessions::list(&tx, id, after, PAGE).await))?;
        count += page.len();
        match page.into_iter().last() {
            Some((client, _)) => from = Some(client),
            None => return Ok(count),
        }
    }
}

/// Reads all retained messages of a broker into its tree; what expired meanwhile is removed.
fn retained(store: &Store, clock: &Clock, broker: &Broker) -> Result<(), Error> {
    let now = seconds(clock.now());
    let mut from = None;
    loop {
        let (id, at) = (broker.id, &from);
        let page = store.run(async |tx| retained::all(&tx, id, at.as_ref(), PAGE, Read::Snapshot).await);
        let page = block_on(page)?;
        let mut expired = Vec::new();
        for item in page.items {
            let topic = std::str::from_utf8(&item.topic).map_err(|_| Error::Corrupt("topic"))?;
            let message = record::decode(topic.into(), &item.body, clock).ok_or(Error::Corrupt("message"))?;
            if message.is_expired(now) {
                expired.push(item.topic);
            } else {
                broker.retained.insert(topic, Arc::new(message));
            }
        }
        if !expired.is_empty() {
            let expired = &expired;
            let cleared = block_on(store.run(async |tx| {
                for topic in expired {
                    retained::clear(&tx, id, topic).await?;
                }
                Ok(())
            }));
            if let Err(error) = cleared {
                tracing::warn!(%error, "expired retained messages stay in the store for now");
            }
        }
        from = page.next;
        if from.is_none() {
            return Ok(());
        }
    }
}

/// Reads which streams there are.
fn filters(store: &Store, broker: &Broker) -> Result<(), Error> {
    let id = broker.id;
    let add = |filters: &[Wildcard]| {
        for Wildcard { filter, streams } in filters {
            let filter = std::str::from_utf8(filter).map_err(|_| Error::Corrupt("filter"))?;
            let subscribers = block_on(store.run(async |tx| subscribers(&tx, id, streams).await))?;
            broker.streams.set(filter, streams, &subscribers);
        }
        Ok::<_, Error>(filters.last().map(|last| last.filter.clone()))
    };
    for bucket in Bucket::all() {
        let mut from: Option<bytes::Bytes> = None;
        loop {
            let page = store.run(async |tx| index::load_page(&tx, id, bucket, from.as_deref(), PAGE).await);
            let page = block_on(page)?;
            from = add(&page.filters)?;
            if !page.more {
                break;
            }
        }
    }
    let mut from: Option<bytes::Bytes> = None;
    loop {
        let page = block_on(store.run(async |tx| index::list_exact(&tx, id, from.as_deref(), PAGE).await))?;
        from = add(&page)?;
        if from.is_none() {
            return Ok(());
        }
    }
}

/// How many subscribers each of these streams has.
pub(super) async fn subscribers(
    tx: &Transaction,
    broker: BrokerId,
    streams: &[Indexed],
) -> Result<Vec<u64>, Error> {
    let mut subscribers = Vec::with_capacity(streams.len());
    for indexed in streams {
        subscribers.push(subscriptions::subscribers(tx, broker, indexed.stream).await?);
    }
    Ok(subscribers)
}
