//! Wakes the delivering task for queues that have grown.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Webhooks with new events, until the delivering task takes them.
#[derive(Default)]
pub(crate) struct Hooked {
    noted: Mutex<BTreeSet<(u64, Arc<str>)>>,
    notify: Notify,
}

impl Hooked {
    pub(crate) fn note(&self, hooked: BTreeSet<(u64, Arc<str>)>) {
        if hooked.is_empty() {
            return;
        }
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).extend(hooked);
        self.notify.notify_one();
    }

    pub(crate) fn take(&self) -> BTreeSet<(u64, Arc<str>)> {
        std::mem::take(&mut self.noted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) async fn wait(&self) {
        self.notify.notified().await;
    }
}
