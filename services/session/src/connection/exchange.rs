//! Handles PUBLISH from the client and all acknowledgements, both ways (MQTT 5.0 section 4.3).

use millrace_mqtt::{
    Ack, PacketId, PacketType, Properties, Property, Publish, QoS, ReasonCode, Version, encode,
};

use super::Connection;
use crate::effect::{Publication, SessionEffect, Topic};
use crate::inbound::Receipt;
use crate::outbox::SlotState;
use crate::settings::RECEIVED_MAX;
use crate::{Out, Session, SessionSettings};

impl Connection {
    pub(super) fn publish<'a>(
        &mut self,
        publish: Publish<'a>,
        session: &mut Session,
        settings: &SessionSettings,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        let topic = if publish.properties.is_empty() {
            Topic::Named(publish.topic)
        } else {
            match self.inbound_topic(&publish, settings) {
                Ok(topic) => topic,
                Err((reason, what)) => return self.close(reason, what, out),
            }
        };
        match (publish.qos, publish.packet_id) {
            (QoS::ExactlyOnce, Some(id)) => {
                //= [MQTT-4.3.3-10] v5
                match session.inbound.get(id) {
                    Some(Receipt::Received { .. } | Receipt::Released) => {
                        self.ack(PacketType::PubRec, id, ReasonCode::SUCCESS, "", out);
                        return SessionEffect::None;
                    }
                    // The PUBREC follows once the message is stored.
                    Some(Receipt::Pending) => return SessionEffect::None,
                    None => {}
                }
                // A session remembers its packet ids beyond the connection.
                let known_max = settings.receive_maximum.max(RECEIVED_MAX);
                if self.is_over_receive_maximum(settings) || session.inbound.len() >= known_max.into() {
                    return self.over_receive_maximum(out);
                }
                session.inbound.insert(id);
                self.uncompleted += 1;
            }
            (QoS::AtLeastOnce, _) => {
                if self.is_over_receive_maximum(settings) {
                    return self.over_receive_maximum(out);
                }
                self.uncompleted += 1;
            }
            _ => {}
        }
        SessionEffect::Publish(Publication { topic, publish })
    }

    fn is_over_receive_maximum(&self, settings: &SessionSettings) -> bool {
        // A 3.x client cannot learn a maximum, so its packet ids are the limit.
        let maximum = if self.version == Version::V5 { settings.receive_maximum } else { u16::MAX };
        self.uncompleted >= maximum
    }

    //= [MQTT-3.3.4-8] v5
    fn over_receive_maximum<'a>(&mut self, out: &mut impl Out) -> SessionEffect<'a> {
        self.close(
            ReasonCode::RECEIVE_MAXIMUM_EXCEEDED,
            "more unacknowledged messages than Receive Maximum",
            out,
        )
    }

    fn inbound_topic<'a>(
        &mut self,
        publish: &Publish<'a>,
        settings: &SessionSettings,
    ) -> Result<Topic<'a>, (ReasonCode, &'static str)> {
        let mut alias = None;
        for property in publish.properties.without_user_properties() {
            match property {
                Property::TopicAlias(number) => alias = Some(number),
                //= [MQTT-3.3.4-6] v5
                Property::SubscriptionIdentifier(_) => {
                    return Err((ReasonCode::PROTOCOL_ERROR, "a subscription identifier from a client"));
                }
                _ => {}
            }
        }
        let Some(alias) = alias else { return Ok(Topic::Named(publish.topic)) };
        //= [MQTT-3.2.2-18] [MQTT-3.3.2-9] v5
        if alias == 0 || alias > settings.topic_alias_max {
            return Err((ReasonCode::TOPIC_ALIAS_INVALID, "topic alias over Topic Alias Maximum"));
        }
        //= [MQTT-3.3.2-7] v5
        let aliases = self.aliases.get_or_insert_default();
        if publish.topic.is_empty() {
            let unknown = (ReasonCode::PROTOCOL_ERROR, "a topic alias that was not set");
            return aliases.inbound(alias).map(Topic::Alias).ok_or(unknown);
        }
        aliases.set_inbound(alias, publish.topic);
        Ok(Topic::Named(publish.topic))
    }

    /// Acknowledges a QoS 1 or 2 publication; `reason` says whether it was refused.
    //= [MQTT-4.3.2-4] [MQTT-4.3.3-8] v5
    //= [MQTT-4.3.2-2] [MQTT-4.3.3-2] v3.1.1
    #[inline]
    pub fn published(
        &mut self,
        qos: QoS,
        id: PacketId,
        reason: ReasonCode,
        what: &str,
        session: &mut Session,
        out: &mut impl Out,
    ) {
        if qos == QoS::AtLeastOnce {
            self.completed();
            self.ack(PacketType::PubAck, id, reason, what, out);
        } else {
            if reason.is_error() {
                //= [MQTT-4.3.3-9] v5
                session.inbound.remove(id);
                self.completed();
            } else {
                match session.inbound.get(id) {
                    // An id that the store has (`kept`) is `Received` already.
                    Some(Receipt::Pending) => session.inbound.set(id, Receipt::Received { kept: false }),
                    Some(Receipt::Received { .. }) => {}
                    // The client abandoned the message meanwhile.
                    Some(Receipt::Released) | None => return,
                }
            }
            self.ack(PacketType::PubRec, id, reason, what, out);
        }
    }

    fn completed(&mut self) {
        self.uncompleted = self.uncompleted.saturating_sub(1);
    }

    fn ack(&self, kind: PacketType, id: PacketId, reason: ReasonCode, what: &str, out: &mut impl Out) {
        if reason == ReasonCode::SUCCESS || self.version != Version::V5 {
            return encode::plain_ack(kind, id, out.buffer());
        }
        let properties = self.reason_string(what, 0);
        let properties = Properties::from_validated(&properties);
        encode::ack(kind, &Ack { packet_id: id, reason, properties }, self.version, out.buffer());
    }

    pub(super) fn puback<'a>(
        &mut self,
        ack: Ack<'_>,
        session: &mut Session,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        let Some(outbox) = &mut session.outbox else { return SessionEffect::None };
        match outbox.state(ack.packet_id) {
            //= [MQTT-4.3.2-3] v5
            Some(SlotState::Published(entry)) if entry.qos == QoS::AtLeastOnce => {
                if session.is_stored && !entry.replay && entry.shared == 0 {
                    entry.message.count_acknowledged();
                }
                outbox.complete(ack.packet_id);
            }
            None => return SessionEffect::None,
            Some(_) => return self.close(ReasonCode::PROTOCOL_ERROR, "PUBACK for a QoS 2 message", out),
        }
        SessionEffect::Acknowledged
    }

    pub(super) fn pubrec<'a>(
        &mut self,
        ack: Ack<'_>,
        session: &mut Session,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        let id = ack.packet_id;
        match session.outbox.as_mut().and_then(|outbox| outbox.state(id)) {
            Some(SlotState::Published(entry)) if entry.qos == QoS::AtLeastOnce => {
                return self.close(ReasonCode::PROTOCOL_ERROR, "PUBREC for a QoS 1 message", out);
            }
            Some(_) if ack.reason.is_error() => {
                //= [MQTT-4.4.0-2] [MQTT-4.8.2-6] v5
                session.outbox().complete(id);
                return SessionEffect::Acknowledged;
            }
            //= [MQTT-4.3.3-4] v5
            //= [MQTT-4.3.3-1] v3.1.1
            Some(SlotState::Published(_)) if session.is_stored => {
                session.outbox().release(id, false);
                return SessionEffect::Received(id);
            }
            Some(SlotState::Releasing(_)) => {}
            Some(_) => {
                session.outbox().release(id, true);
                self.ack(PacketType::PubRel, id, ReasonCode::SUCCESS, "", out);
            }
            None if ack.reason.is_error() => {}
            None => self.ack(PacketType::PubRel, id, ReasonCode::PACKET_IDENTIFIER_NOT_FOUND, "", out),
        }
        SessionEffect::None
    }

    //= [MQTT-4.3.3-11] v5
    pub(super) fn pubrel<'a>(
        &mut self,
        ack: Ack<'_>,
        session: &mut Session,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        match session.inbound.get(ack.packet_id) {
            Some(Receipt::Received { kept: true }) => {
                session.inbound.set(ack.packet_id, Receipt::Released);
                return SessionEffect::Released(ack.packet_id);
            }
            // The PUBCOMP follows once the store has deleted the id.
            Some(Receipt::Released) => return SessionEffect::None,
            _ => {}
        }
        let known = session.inbound.remove(ack.packet_id);
        if known {
            self.completed();
        }
        let reason = if known { ReasonCode::SUCCESS } else { ReasonCode::PACKET_IDENTIFIER_NOT_FOUND };
        self.ack(PacketType::PubComp, ack.packet_id, reason, "", out);
        SessionEffect::None
    }

    /// The store has recorded the PUBREC.
    pub fn release(&mut self, id: PacketId, session: &mut Session, out: &mut impl Out) {
        let Some(outbox) = &mut session.outbox else { return };
        if let Some(SlotState::Releasing(_)) = outbox.state(id) {
            outbox.release(id, true);
            self.ack(PacketType::PubRel, id, ReasonCode::SUCCESS, "", out);
        }
    }

    /// The store has deleted the packet id.
    pub fn complete(&mut self, id: PacketId, session: &mut Session, out: &mut impl Out) {
        if session.inbound.get(id) == Some(Receipt::Released) {
            session.inbound.remove(id);
            self.completed();
            self.ack(PacketType::PubComp, id, ReasonCode::SUCCESS, "", out);
        }
    }

    pub(super) fn pubcomp<'a>(
        &mut self,
        ack: Ack<'_>,
        session: &mut Session,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        let Some(outbox) = &mut session.outbox else { return SessionEffect::None };
        match outbox.state(ack.packet_id) {
            Some(SlotState::Released(_)) => outbox.complete(ack.packet_id),
            Some(SlotState::Published(_) | SlotState::Releasing(_)) => {
                return self.close(
                    ReasonCode::PROTOCOL_ERROR,
                    "PUBCOMP for a message that was not released",
                    out,
                );
            }
            Some(SlotState::Done) | None => return SessionEffect::None,
        }
        SessionEffect::Acknowledged
    }
}
