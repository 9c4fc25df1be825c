//! Answers to PUBLISH packets: at once, or when the store has committed or refused the message.

use millrace_mqtt::{Publish, QoS, ReasonCode, Version};

use crate::core::connection::NONE;
use crate::core::{ConnectionEnd, Core, parts};
use crate::jobs::{IdWrite, Ids, PublishAck, Write};

impl Core {
    pub(super) fn answer_publish(
        &mut self,
        slot: u32,
        publish: &Publish<'_>,
        topic: &str,
        reason: ReasonCode,
        what: &'static str,
    ) {
        if reason.is_error() {
            tracing::debug!(topic, %reason, what, "PUBLISH refused");
            self.trace_refused_publish(slot, topic, reason, what);
        }
        let Some(id) = publish.packet_id else { return };
        let (protocol, mut out, session) = parts!(self, slot);
        let session = &mut self.sessions[session as usize].session;
        let ends_3_x = matches!(reason, ReasonCode::QUOTA_EXCEEDED | ReasonCode::TOPIC_NAME_INVALID);
        if ends_3_x && protocol.version() != Version::V5 {
            // The server cannot send a reason, and the client keeps the message until it is acknowledged.
            //= [MQTT-3.3.5-2] v3.1.1
            session.forget_received(id);
            return self.end(slot, ConnectionEnd::Error(reason), true);
        }
        // A 3.x client has no reason codes for any other refusal: it gets a positive acknowledgement.
        //= [MQTT-3.3.5-2] v3.1.1
        let before = out.len();
        protocol.published(publish.qos, id, reason, what, session, &mut out);
        out.note_answers(before);
    }

    /// The store has committed, or refused, the messages that these publishers wait for.
    //= [MQTT-4.3.2-4] [MQTT-4.3.3-8] v5
    pub(in crate::core) fn stored(&mut self, acks: &[PublishAck], stored: bool) {
        for ack in acks {
            if ack.waits_for_commit
                && let Some(connection) = self.connection_of(ack.connection)
            {
                connection.uncommitted -= 1;
            }
            if ack.qos == QoS::AtMostOnce {
                continue;
            }
            let local = self.sessions.get_mut(ack.session.slot as usize);
            let Some(local) = local.filter(|local| local.generation == ack.session.generation) else {
                if !stored {
                    self.note_unconfirmed(ack, NONE);
                }
                continue;
            };
            // A QoS 1 message is published anew on a new connection; the state of a QoS 2 message is the session's.
            let of_session = local.connection;
            if ack.keeps_id && stored && !local.session.keep_received(ack.packet_id) {
                // The client released the id before it got the server's answer.
                let (session, target) = (local.key(), ack.session);
                let ids =
                    Ids { session, target, write: IdWrite::Forget(ack.packet_id), unordered_ids: false };
                self.queue_job(Write::Ids(Box::new(ids)));
            }
            let slot = match ack.qos {
                QoS::ExactlyOnce => of_session,
                _ => self
                    .connection_of(ack.connection)
                    // A closing connection no longer has its session: after DISCONNECT nothing may be sent.
                    .filter(|connection| connection.session == ack.session.slot)
                    .map_or(NONE, |_| ack.connection.slot),
            };
            self.acknowledge_stored(ack, slot, stored);
            if !stored {
                self.note_unconfirmed(ack, slot);
            }
        }
    }

    fn acknowledge_stored(&mut self, ack: &PublishAck, slot: u32, stored: bool) {
        if !stored {
            let broker = &self.sessions[ack.session.slot as usize].broker;
            self.broker_counters(broker).publish_store.add(1);
        }
        let session = &mut self.sessions[ack.session.slot as usize].session;
        if slot == NONE {
            match (ack.qos, stored) {
                (QoS::ExactlyOnce, true) => session.mark_received(ack.packet_id),
                (QoS::ExactlyOnce, false) => session.forget_received(ack.packet_id),
                _ => {}
            }
            return;
        }
        let (protocol, mut out, _) = parts!(self, slot);
        let (reason, what) = match stored {
            true => (ReasonCode::SUCCESS, ""),
            false => (
                ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
                "the message could not be stored: try again later",
            ),
        };
        if stored || protocol.version() == Version::V5 {
            let before = out.len();
            protocol.published(ack.qos, ack.packet_id, reason, what, session, &mut out);
            return out.note_answers(before);
        }
        // A 3.x client cannot get a reason code: without an acknowledgement it sends the message again.
        session.forget_received(ack.packet_id);
        self.end(slot, ConnectionEnd::Error(reason), true);
    }
}
