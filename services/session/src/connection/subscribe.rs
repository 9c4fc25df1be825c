//! SUBSCRIBE and UNSUBSCRIBE of a connection, and their acknowledgements.

use millrace_mqtt::{
    PacketId, PacketType, Properties, ReasonCode, Subscribe, SubscribeOptions, Unsubscribe, Version, encode,
    topic,
};

use super::Connection;
use crate::Out;
use crate::effect::SessionEffect;

impl Connection {
    pub(super) fn subscribe<'a>(
        &mut self,
        subscribe: Subscribe<'a>,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        //= [MQTT-3.8.3-4] v5
        if subscribe.filters.has_shared_no_local() {
            return self.close(ReasonCode::PROTOCOL_ERROR, "No Local on a shared subscription", out);
        }
        if !self.takes_reasons(subscribe.filters.clone()) {
            return self.close(ReasonCode::PACKET_TOO_LARGE, "SUBACK over Maximum Packet Size", out);
        }
        SessionEffect::Subscribe(subscribe)
    }

    pub(super) fn unsubscribe<'a>(
        &mut self,
        unsubscribe: Unsubscribe<'a>,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        if !self.takes_reasons(unsubscribe.filters.clone()) {
            return self.close(ReasonCode::PACKET_TOO_LARGE, "UNSUBACK over Maximum Packet Size", out);
        }
        SessionEffect::Unsubscribe(unsubscribe)
    }

    /// True when an answer with one reason code per filter fits into the client's Maximum Packet Size. The codes cannot be
    /// omitted.
    //= [MQTT-3.1.2-24] v5
    fn takes_reasons(&self, filters: impl Iterator) -> bool {
        if !self.has_packet_size_max() {
            return true;
        }
        let body = 3 + filters.count();
        let length = 1 + [128, 16_384, 2_097_152].iter().filter(|limit| body >= **limit).count();
        1 + length + body <= self.packet_size_max()
    }

    /// The effective options of a subscription. A bridge (3.x only) gets No Local, so that it does not receive its own messages,
    /// and Retain As Published, so that retained messages stay retained on its side. A shared subscription cannot have No Local.
    pub fn options_of(&self, filter: &str, options: SubscribeOptions) -> SubscribeOptions {
        if !self.is_bridge {
            return options;
        }
        let no_local = topic::Filter::parse(filter).is_some_and(|filter| filter.share.is_none());
        SubscribeOptions { no_local, retain_as_published: true, ..options }
    }

    //= [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.8.4-6] v5
    //= [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.8.4-5] v3.1.1
    pub fn subscribed(&self, id: PacketId, reasons: &[ReasonCode], what: &str, out: &mut impl Out) {
        self.subscribe_ack(PacketType::SubAck, id, reasons, what, out);
    }

    //= [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT-3.11.3-1] v5
    //= [MQTT-3.10.4-4] [MQTT-3.10.4-5] v3.1.1
    pub fn unsubscribed(&self, id: PacketId, reasons: &[ReasonCode], out: &mut impl Out) {
        self.subscribe_ack(PacketType::UnsubAck, id, reasons, "", out);
    }

    fn subscribe_ack(
        &self,
        kind: PacketType,
        id: PacketId,
        reasons: &[ReasonCode],
        what: &str,
        out: &mut impl Out,
    ) {
        let three_x: Vec<ReasonCode>;
        let reasons = if self.version == Version::V5 || !reasons.iter().any(|reason| reason.is_error()) {
            reasons
        } else {
            //= [MQTT-3.9.3-2] v3.1.1
            let failure =
                |reason: &ReasonCode| if reason.is_error() { ReasonCode::UNSPECIFIED_ERROR } else { *reason };
            three_x = reasons.iter().map(failure).collect();
            &three_x
        };
        let properties = self.reason_string(what, reasons.len());
        let properties = Properties::from_validated(&properties);
        encode::subscribe_ack(kind, id, properties, reasons, self.version, out.buffer());
    }
}
