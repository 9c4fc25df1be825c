//! Passes the webhooks whose queues have grown from the writer, after the commit, to the task that delivers events. The task also
//! searches the store for queues, so a notice that a crash loses only delays a delivery.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Webhooks with new events, by broker id and name, until the delivering task takes them.
#[derive(Default)]
pub(crate) struct QueuedWebhooks {
    noted: Mutex<BTreeSet<(u64, Arc<str>)>>,
    notify: Notify,
}

impl QueuedWebhooks {
    pub(crate) fn note(&self, queued_webhooks: BTreeSet<(u64, Arc<str>)>) {
        if queued_webhooks.is_empty() {
            return;
        }
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).extend(queued_webhooks);
        self.notify.notify_one();
    }

    pub(crate) fn take(&self) -> BTreeSet<(u64, Arc<str>)> {
        std::mem::take(&mut self.noted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) async fn wait(&self) {
        self.notify.notified().await;
    }
}
