//! Refusals of which a publisher may not know: its connection may end before the PUBACK or PUBREC arrives, and then the
//! publisher sends the message again. Until then the store refuses its later messages, see `store::writer`.

use std::collections::HashMap;

use millrace_mqtt::{PacketId, QoS, ReasonCode};

use super::connection::{ConnectionId, NONE};
use super::{Core, Ended};
use crate::store::{Ack, PublisherKey, Write};

/// By connection that was answered with a refusal.
pub(super) type Unconfirmed = HashMap<ConnectionId, Refusals>;

pub(super) struct Refusals {
    publisher: PublisherKey,
    count: u32,
    /// Packet id of the last refusal.
    last: PacketId,
}

impl Core {
    /// A message was refused, and the connection at `slot` got the answer; [`NONE`]: no connection gets it.
    pub(super) fn note_refused(&mut self, ack: &Ack, slot: u32) {
        if !ack.holds_back {
            return;
        }
        let publisher = ack.publisher();
        // Without a reason code the connection was closed, and the publisher sends the message again on its next one.
        if slot == NONE || self.connections.get(slot as usize).is_none_or(|receiver| receiver.session == NONE)
        {
            return self.leave_job(Write::Confirmed { publisher, count: 1 });
        }
        let receiver = self.id_of(slot);
        let refusals =
            self.unconfirmed.entry(receiver).or_insert(Refusals { publisher, count: 0, last: ack.packet_id });
        refusals.count += 1;
        refusals.last = ack.packet_id;
    }

    /// A client that gives a packet id to another message has its answer, and with it all earlier ones.
    //= [MQTT-4.4.0-1] v5
    pub(super) fn note_reuse(&mut self, ack: &Ack) {
        let knows = |refusals: &Refusals| ack.qos > QoS::AtMostOnce && refusals.last == ack.packet_id;
        if !self.unconfirmed.is_empty() && self.unconfirmed.get(&ack.connection).is_some_and(knows) {
            self.confirm(ack.connection);
        }
    }

    pub(super) fn has_unconfirmed(&self, slot: u32) -> bool {
        !self.unconfirmed.is_empty() && self.unconfirmed.contains_key(&self.id_of(slot))
    }

    pub(super) fn forget_unconfirmed(&mut self, slot: u32) {
        if !self.unconfirmed.is_empty() {
            self.confirm(self.id_of(slot));
        }
    }

    fn confirm(&mut self, connection: ConnectionId) {
        if let Some(Refusals { publisher, count, .. }) = self.unconfirmed.remove(&connection) {
            self.leave_job(Write::Confirmed { publisher, count });
        }
    }

    /// The store accepts messages again, and refuses those of this connection because of an earlier refusal.
    pub(super) fn send_again(&mut self, connection: ConnectionId) {
        if self.connection_of(connection).is_some_and(|connection| connection.session != NONE) {
            let reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
            let what = "messages could not be stored: connect again and send what was not acknowledged";
            self.say_and_close(connection.slot, reason, what, Ended::Error(reason));
        }
    }
}
