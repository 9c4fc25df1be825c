//! Makes the stored queues of webhooks follow the webhook records of the control plane, and queues the disconnect events of
//! dead pods; [`crate::webhooks`] delivers.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_access::model::{Webhook, WebhookEvent};
use millrace_layers::sessions::{SessionId, SessionRecord};
use millrace_layers::webhooks::{self, WantedQueues, WebhookId};
use millrace_layers::{LayerError, accounts};
use millrace_storage::Read;
use serde_json::json;

use super::apply::Applier;
use super::writer::Writer;
use super::{Job, Write};
use crate::broker::Broker;
use crate::webhooks::EventKind;

/// Webhook records in one read: more than the control plane allows a broker, so that one read has them all.
const PAGE: usize = 100;

impl Writer<'_> {
    pub(super) fn follow_webhooks(&mut self) {
        for id in self.shared.brokers.take_changed_webhooks() {
            let Some(broker) = self.shared.brokers.peek(id) else { continue };
            self.write(vec![Job { write: Write::Webhooks(broker), ack: None }]);
        }
    }
}

impl Applier<'_> {
    pub(super) async fn sync_webhooks(&self, broker: &Arc<Broker>) -> Result<(), LayerError> {
        self.catch_up(&[broker]).await?;
        let all = accounts::webhooks(broker.id);
        let page = all.page::<Webhook>(self.tx, None, PAGE, Read::Serializable).await?;
        let wanted: Vec<WantedQueues> =
            page.items.iter().map(|(_, document)| wanted(&document.value)).collect();
        let synced = webhooks::sync(self.tx, broker.id, &wanted).await?;
        for WantedQueues { name, .. } in wanted.iter().filter(|wanted| !wanted.filters.is_empty()) {
            // The delivery task dropped the webhook from the list of queued webhooks if it was disabled, whatever waited.
            webhooks::enqueue(self.tx, WebhookId { broker: broker.id, name })?;
        }
        for (name, filter) in synced.refused {
            tracing::warn!(
                broker = &*broker.name,
                name,
                filter,
                "a webhook gets no messages of a filter, because the filter is too long or too many groups and webhooks share it"
            );
        }
        self.note_changes(broker, synced.changed.iter().map(|filter| &filter[..])).await
    }
}

impl Applier<'_> {
    /// Queues a disconnect event if the session, whose record is `record`, was connected to the dead pod `owner`.
    pub(super) fn queue_server_lost(
        &self,
        broker: &Arc<Broker>,
        id: SessionId<'_>,
        record: Option<&SessionRecord>,
        owner: &[u8],
    ) -> Result<(), LayerError> {
        if !broker.streams.has_webhooks() {
            return Ok(());
        }
        let stored = broker.streams.matches(EventKind::Disconnect.topic());
        let was_connected = record.is_some_and(|record| record.owner == owner && !record.is_detached());
        if stored.webhooks.is_empty() || !was_connected {
            return Ok(());
        }
        let client_id = String::from_utf8_lossy(id.client);
        let message =
            EventKind::Disconnect.message(&json!({ "client_id": client_id, "reason": "server_lost" }));
        self.append(broker, &message, 0, &stored)
    }
}

/// The topics whose messages are the webhook's events, where each other kind of event has a topic of its own.
fn wanted(webhook: &Webhook) -> WantedQueues {
    let mut filters = BTreeSet::new();
    if webhook.enabled {
        for event in &webhook.events {
            match event {
                WebhookEvent::Message => filters.extend(webhook.filters.iter().cloned()),
                WebhookEvent::Connect => drop(filters.insert(EventKind::Connect.topic().into())),
                WebhookEvent::Disconnect => drop(filters.insert(EventKind::Disconnect.topic().into())),
                WebhookEvent::LimitReached => drop(filters.insert(EventKind::LimitReached.topic().into())),
            }
        }
    }
    WantedQueues { name: webhook.name.clone(), filters }
}
