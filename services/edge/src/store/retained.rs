//! Retained messages: read from the store at the start. Written by [`super::writer`].

use std::sync::Arc;

use millrace_layers::{Error, Store, retained};
use millrace_storage::{Read, block_on};

use super::record;
use crate::broker::Broker;
use crate::clock::{Clock, seconds};

/// Messages read at a time.
const PAGE: usize = 1000;

/// Reads all retained messages of a broker into its tree; what expired meanwhile is left out.
pub(super) fn load(store: &Store, clock: &Clock, broker: &Broker) -> Result<(), Error> {
    let now = seconds(clock.now());
    let mut from = None;
    loop {
        let (id, at) = (broker.id, &from);
        let page = store.run(async |tx| retained::all(&tx, id, at.as_ref(), PAGE, Read::Snapshot).await);
        let page = block_on(page)?;
        for item in page.items {
            let topic = std::str::from_utf8(&item.topic).map_err(|_| Error::Corrupt("topic"))?;
            let message = record::decode(topic.into(), &item.body, clock).ok_or(Error::Corrupt("message"))?;
            if !message.is_expired(now) {
                broker.retained.insert(topic, Arc::new(message));
            }
        }
        from = page.next;
        if from.is_none() {
            return Ok(());
        }
    }
}
