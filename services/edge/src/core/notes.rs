//! Records the incidents of a tenant's clients, such as refusals and drops, for the tenant.

use std::sync::Arc;

use millrace_session::{Delivered, DropReason};
use serde_json::json;

use super::Core;
use super::connection::NONE;
use crate::broker::Broker;
use crate::incidents::{NewIncident, StoredIncidentKind};
use crate::quota::Limit;
use crate::webhooks;

impl Core {
    /// Returns true if the incident has just begun.
    pub(super) fn note(&self, broker: &Broker, note: &NewIncident<'_>, count: u64) -> bool {
        broker.incidents.is_on() && broker.incidents.note(note, count, self.process.clock.unix_now_ms())
    }

    pub(super) fn note_of(&self, slot: u32, note: NewIncident<'_>) {
        let connection = &self.connections[slot as usize];
        if connection.session == NONE {
            return;
        }
        let local = &self.sessions[connection.session as usize];
        self.note(&local.broker, &note.of(local.session.client_id(), connection.who.user()), 1);
    }

    pub(super) fn reached(&mut self, slot: u32, limit: Limit) {
        let connection = &self.connections[slot as usize];
        if connection.session == NONE {
            return;
        }
        let local = &self.sessions[connection.session as usize];
        let (broker, client_id) = (local.broker.clone(), local.session.client_id().clone());
        let user = connection.who.user().map(str::to_owned);
        self.reached_by(&broker, limit, Some(&client_id), user.as_deref());
    }

    /// Records that a limit was reached, and sends webhooks an event when that begins.
    pub(super) fn reached_by(
        &mut self,
        broker: &Arc<Broker>,
        limit: Limit,
        client_id: Option<&str>,
        user: Option<&str>,
    ) {
        limit.counter(self.counters()).add(1);
        let note = NewIncident { client_id, user, ..NewIncident::limit(limit) };
        if self.note(broker, &note, 1) && broker.streams.has_webhooks() {
            let data = json!({
                "client_id": client_id,
                "user": user,
                "limit": limit.name(),
                "reason": limit.meaning(),
            });
            self.queue_event(broker, webhooks::EventKind::LimitReached, &data);
        }
    }
}

pub(super) fn note_dropped(broker: &Broker, outcome: Delivered, client_id: &str, count: u64, now_ms: u64) {
    let Delivered::Dropped(
        reason @ (DropReason::Busy | DropReason::QueueFull | DropReason::Memory | DropReason::TooLarge),
    ) = outcome
    else {
        return;
    };
    let note = NewIncident::new(StoredIncidentKind::MessagesDropped, "", drop_reason(reason));
    broker.incidents.note(&note.of(client_id, None), count, now_ms);
}

pub(super) fn drop_reason(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Busy => "the client reads messages more slowly than they arrive",
        DropReason::QueueFull => "as many messages wait for the client as may",
        DropReason::Memory => "the messages that wait for clients have reached their memory limit",
        DropReason::TooLarge => "the message is larger than the client accepts",
        DropReason::Expired => "the message has expired",
        DropReason::Offline => "the client is offline",
    }
}
