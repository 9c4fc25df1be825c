//! Watches the store for changes of brokers' access records.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use futures_util::future::join_all;
use millrace_layers::{LayerError, accounts};
use millrace_storage::{Read, block_on};

use super::load;
use super::service::AccessContext;
use crate::broker::{Broker, chunks};
use crate::mailbox::Mail;

/// A change applies to connected clients within two seconds, including reading and notifying.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const AT_ONCE: usize = 100;

pub(super) fn run(shared: &AccessContext, stopped: &Receiver<()>) {
    while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        for brokers in chunks(shared.brokers.each(), AT_ONCE) {
            let changes = block_on(join_all(brokers.iter().map(|broker| changes(shared, broker.id))));
            for (broker, changes) in brokers.iter().zip(changes) {
                let looked = match changes {
                    Ok(changes) if broker.has_changed(changes) => reload(shared, broker),
                    other => other.map(|_| ()),
                };
                if let Err(error) = looked {
                    tracing::warn!(%error, broker = &*broker.name, "the changes of access cannot be read: a broker's clients keep their permissions until the store answers");
                }
            }
        }
    }
}

async fn changes(shared: &AccessContext, broker: u64) -> Result<u64, LayerError> {
    shared.store.run(async |tx| accounts::changes(&tx, broker, Read::Snapshot).await).await
}

fn reload(shared: &AccessContext, broker: &Arc<Broker>) -> Result<(), LayerError> {
    broker.set_records(load(&shared.store, broker)?);
    shared.brokers.webhooks_changed(broker.id);
    for mailbox in &*shared.mailboxes {
        mailbox.deliver(&mut vec![Mail::AccessChanged(broker.clone())], 0);
    }
    Ok(())
}
