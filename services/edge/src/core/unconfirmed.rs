//! Keeps refusals that a publisher may not know of: its connection may end before the PUBACK or PUBREC arrives, and then
//! the publisher sends the message again. Until it knows, the store refuses its later messages, see `store::writer`. A refusal
//! counts until the connection ends, or with a stored packet id (QoS 2) until the session's client has got the answer.

use std::collections::HashMap;

use millrace_mqtt::{PacketId, QoS, ReasonCode};

use super::connection::NONE;
use super::{ConnectionEnd, Core};
use crate::connection_id::ConnectionId;
use crate::jobs::{PublishAck, PublisherKey, Write};

/// By the connection that got the refusal.
pub(super) type RefusalsByConnection = HashMap<ConnectionId, PublisherRefusals>;

pub(super) struct PublisherRefusals {
    publisher: PublisherKey,
    of_connection: u32,
    of_session: u32,
    last: Option<PacketId>,
}

impl PublisherRefusals {
    fn new(publisher: PublisherKey) -> Self {
        Self { publisher, of_connection: 0, of_session: 0, last: None }
    }
}

impl Core {
    /// Notes a refusal that the connection at `slot` got; [`NONE`]: no connection gets it.
    pub(super) fn note_unconfirmed(&mut self, ack: &PublishAck, slot: u32) {
        if !ack.holds_back {
            return;
        }
        let (publisher, connection) = (ack.publisher(), ack.ends_with());
        let receiver = self.connections.get(slot as usize).filter(|receiver| receiver.session != NONE);
        let receiver = receiver.map(|_| self.id_of(slot));
        // A publisher without reason codes was disconnected instead, and sends the message again on its next
        // connection.
        let Some(receiver) = receiver.filter(|receiver| connection.is_none_or(|of| of == *receiver)) else {
            let count = connection.is_none().then_some(1);
            return self.queue_job(Write::Confirmed { publisher, connection, count });
        };
        let refusals =
            self.store_jobs.unconfirmed.entry(receiver).or_insert_with(|| PublisherRefusals::new(publisher));
        refusals.last = Some(ack.packet_id);
        match connection {
            Some(_) => refusals.of_connection += 1,
            None => refusals.of_session += 1,
        }
    }

    /// A client that uses a packet id for a new message has got the answer for the old one, and all earlier answers.
    //= [MQTT-4.4.0-1] v5
    pub(super) fn note_reuse(&mut self, ack: &PublishAck) {
        let knows =
            |refusals: &PublisherRefusals| ack.qos > QoS::AtMostOnce && refusals.last == Some(ack.packet_id);
        if !self.store_jobs.unconfirmed.is_empty()
            && self.store_jobs.unconfirmed.get(&ack.connection).is_some_and(knows)
            && let Some(refusals) = self.store_jobs.unconfirmed.remove(&ack.connection)
        {
            let of_connection = refusals.of_connection;
            self.confirm(ack.connection, &refusals, (of_connection > 0).then_some(Some(of_connection)));
        }
    }

    pub(super) fn has_unconfirmed(&self, slot: u32) -> bool {
        !self.store_jobs.unconfirmed.is_empty() && self.store_jobs.unconfirmed.contains_key(&self.id_of(slot))
    }

    pub(super) fn forget_unconfirmed(&mut self, slot: u32) {
        if self.store_jobs.unconfirmed.is_empty() {
            return;
        }
        let connection = self.id_of(slot);
        if let Some(refusals) = self.store_jobs.unconfirmed.remove(&connection) {
            self.confirm(connection, &refusals, Some(None));
        }
    }

    /// `of_connection`: what to confirm for the connection, if anything; `Some(None)`: it has ended.
    fn confirm(
        &mut self,
        connection: ConnectionId,
        refusals: &PublisherRefusals,
        of_connection: Option<Option<u32>>,
    ) {
        let publisher = refusals.publisher;
        if let Some(count) = of_connection {
            self.queue_job(Write::Confirmed { publisher, connection: Some(connection), count });
        }
        if refusals.of_session > 0 {
            let count = Some(refusals.of_session);
            self.queue_job(Write::Confirmed { publisher, connection: None, count });
        }
    }

    /// Closes a connection whose messages were refused because of an earlier refusal: the store accepts messages
    /// again.
    pub(super) fn send_again(&mut self, connection: ConnectionId) {
        let Some(session) = self.connection_of(connection).map(|connection| connection.session) else {
            return;
        };
        let Some(local) = self.sessions.get(session as usize) else { return };
        let publisher = PublisherKey { broker: local.broker.id, publisher: local.publisher };
        // The end of the connection also confirms refusals that have not arrived here.
        self.store_jobs.unconfirmed.entry(connection).or_insert_with(|| PublisherRefusals::new(publisher));
        let reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
        let what = "messages could not be stored: connect again and send what was not acknowledged";
        self.say_and_close(connection.slot, reason, what, ConnectionEnd::Error(reason));
    }
}
