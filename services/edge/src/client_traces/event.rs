//! An event of a trace, made from a packet or from a decision of the server.

use std::borrow::Cow;

use millrace_mqtt::{
    Ack, Connect, Packet, PacketType, Properties, Property, Publish, ReasonCode, SubscribeFilters,
    UnsubscribeFilters, Version, decode,
};
use serde::{Deserialize, Serialize};

/// Topics, filters, names and reasons are cut to this length.
const TEXT_BYTES_MAX: usize = 1_024;
/// Filters of one packet that an event names; it counts the others.
const FILTERS_MAX: usize = 100;
/// The fields of an event and of one filter in JSON, besides their texts.
const EVENT_BYTES: usize = 200;
const FILTER_BYTES: usize = 100;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PacketDirection {
    In,
    Out,
    #[default]
    Server,
}

/// A field is absent where the packet does not have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientTraceEvent {
    pub at_ms: u64,
    pub direction: PacketDirection,
    /// Name of the packet in capitals; for a decision of the server `refused`, `dropped` or `closed`.
    pub kind: Cow<'static, str>,
    pub bytes: Option<u64>,
    pub packet_id: Option<u16>,
    pub topic: Option<String>,
    pub qos: Option<u8>,
    pub retain: Option<bool>,
    pub dup: Option<bool>,
    pub payload_bytes: Option<u64>,
    pub session_present: Option<bool>,
    pub reason_code: Option<u8>,
    pub reason: Option<String>,
    pub filters: Vec<ClientTraceFilter>,
    /// Number of filters after the first `FILTERS_MAX`.
    pub more_filters: u64,
    pub messages: Option<u64>,
    pub connect: Option<Box<Connecting>>,
}

/// A filter of a SUBSCRIBE or UNSUBSCRIBE, and the server's answer in its SUBACK or UNSUBACK.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTraceFilter {
    pub filter: Option<String>,
    pub qos: Option<u8>,
    pub reason_code: Option<u8>,
}

/// The parts of a CONNECT that other packets do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connecting {
    pub user: Option<String>,
    pub address: Option<String>,
    pub protocol: String,
    pub keep_alive_s: u16,
    pub clean_start: bool,
    pub will_topic: Option<String>,
}

pub(crate) fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

fn version_name(version: Version) -> &'static str {
    match version {
        Version::V31 => "3.1",
        Version::V311 => "3.1.1",
        Version::V5 => "5.0",
    }
}

fn name(kind: PacketType) -> &'static str {
    match kind {
        PacketType::Connect => "CONNECT",
        PacketType::ConnAck => "CONNACK",
        PacketType::Publish => "PUBLISH",
        PacketType::PubAck => "PUBACK",
        PacketType::PubRec => "PUBREC",
        PacketType::PubRel => "PUBREL",
        PacketType::PubComp => "PUBCOMP",
        PacketType::Subscribe => "SUBSCRIBE",
        PacketType::SubAck => "SUBACK",
        PacketType::Unsubscribe => "UNSUBSCRIBE",
        PacketType::UnsubAck => "UNSUBACK",
        PacketType::PingReq => "PINGREQ",
        PacketType::PingResp => "PINGRESP",
        PacketType::Disconnect => "DISCONNECT",
        PacketType::Auth => "AUTH",
    }
}

/// CONNACK in 3.1 and 3.1.1 (section 3.2.2.3) has codes of its own.
fn return_code_name(code: u8) -> &'static str {
    match code {
        0 => "Connection accepted",
        1 => "Unacceptable protocol version",
        2 => "Identifier rejected",
        3 => "Server unavailable",
        4 => "Bad user name or password",
        5 => "Not authorized",
        _ => "Unknown",
    }
}

impl ClientTraceEvent {
    pub(crate) fn bytes(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let filters: usize = self.filters.iter().map(|one| length(&one.filter) + FILTER_BYTES).sum();
        EVENT_BYTES + length(&self.topic) + length(&self.reason) + filters
    }

    pub(crate) fn decided(kind: &'static str, at_ms: u64, reason: &str) -> Self {
        Self { at_ms, kind: kind.into(), reason: Some(cut(reason)), ..Self::default() }
    }

    /// Messages that the server did not take from the client, or did not deliver to it.
    pub(crate) fn dropped(at_ms: u64, topic: &str, messages: u64, reason: &str) -> Self {
        let (topic, messages) = (Some(cut(topic)), Some(messages));
        Self { topic, messages, ..Self::decided("dropped", at_ms, reason) }
    }

    pub(crate) fn packet(
        packet: &Packet<'_>,
        version: Version,
        direction: PacketDirection,
        size: usize,
        at_ms: u64,
    ) -> Self {
        let kind = name(packet.packet_type()).into();
        let mut event = Self { at_ms, direction, kind, bytes: Some(size as u64), ..Self::default() };
        match packet {
            Packet::Connect(connect) => event.connect = Some(Box::new(connecting(connect))),
            Packet::ConnAck(ack) => {
                event.session_present = Some(ack.session_present);
                event.give_reason(ack.reason, ack.properties);
                if version != Version::V5 {
                    event.reason = Some(return_code_name(ack.reason.0).into());
                }
            }
            Packet::Publish(publish) => event.give_publish(publish),
            Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
                event.give_ack(ack, version);
            }
            Packet::Subscribe(subscribe) => {
                event.packet_id = Some(subscribe.packet_id.get());
                event.give_subscribe(subscribe.filters.clone());
            }
            Packet::SubAck(ack) => event.give_answers(ack.packet_id.get(), ack.reasons),
            Packet::Unsubscribe(unsubscribe) => {
                event.packet_id = Some(unsubscribe.packet_id.get());
                event.give_unsubscribe(unsubscribe.filters.clone());
            }
            Packet::UnsubAck(ack) => event.give_answers(ack.packet_id.get(), ack.reasons),
            Packet::PingReq | Packet::PingResp => {}
            Packet::Disconnect(disconnect) if version == Version::V5 => {
                event.give_reason(disconnect.reason, disconnect.properties);
                if disconnect.reason == ReasonCode::SUCCESS {
                    event.reason = Some("Normal disconnection".into());
                }
            }
            Packet::Disconnect(_) => {}
            Packet::Auth(auth) => event.give_reason(auth.reason, auth.properties),
        }
        event
    }

    /// The event of a packet of `size` bytes that begins with `head`; `None` when `head` does not reach its topic.
    pub(crate) fn beginning(
        head: &[u8],
        version: Version,
        direction: PacketDirection,
        size: usize,
        at_ms: u64,
    ) -> Option<Self> {
        let (first, rest) = head.split_first()?;
        let lengths = rest.iter().position(|byte| byte & 0x80 == 0)? + 1;
        let body = &rest[lengths..];
        let missing = size - head.len();
        if let Ok(packet) = decode(*first, body, Some(version))
            && (missing == 0 || matches!(packet, Packet::Publish(_)))
        {
            let mut event = Self::packet(&packet, version, direction, size, at_ms);
            if let Some(bytes) = &mut event.payload_bytes {
                *bytes += missing as u64;
            }
            return Some(event);
        }
        let kind = PacketType::from_bits(first >> 4)?;
        let mut event =
            Self { at_ms, direction, kind: name(kind).into(), bytes: Some(size as u64), ..Self::default() };
        if kind == PacketType::Publish {
            // `head` ends within the topic or the properties, so the packet cannot be decoded.
            let (length, text) = body.split_first_chunk::<2>()?;
            let topic = &text[..text.len().min(usize::from(u16::from_be_bytes(*length)))];
            event.topic = Some(cut(&String::from_utf8_lossy(topic)));
            (event.qos, event.retain) = (Some(first >> 1 & 3), Some(first & 1 != 0));
        }
        Some(event)
    }

    fn give_publish(&mut self, publish: &Publish<'_>) {
        self.topic = Some(publish.topic).filter(|topic| !topic.is_empty()).map(cut);
        self.packet_id = publish.packet_id.map(std::num::NonZero::get);
        self.qos = Some(publish.qos as u8);
        (self.retain, self.dup) = (Some(publish.retain), Some(publish.dup));
        self.payload_bytes = Some(publish.payload.len() as u64);
    }

    fn give_ack(&mut self, ack: &Ack<'_>, version: Version) {
        self.packet_id = Some(ack.packet_id.get());
        if version == Version::V5 {
            self.give_reason(ack.reason, ack.properties);
        }
    }

    fn give_reason(&mut self, reason: ReasonCode, properties: Properties<'_>) {
        let said = properties.iter().find_map(|property| match property {
            Property::ReasonString(said) => Some(said),
            _ => None,
        });
        self.reason_code = Some(reason.0);
        self.reason = Some(match said {
            Some(said) => cut(&format!("{}: {said}", reason.name())),
            None => reason.name().to_owned(),
        });
    }

    fn give_subscribe(&mut self, filters: SubscribeFilters<'_>) {
        self.more_filters = filters.clone().skip(FILTERS_MAX).count() as u64;
        let named = filters.take(FILTERS_MAX);
        self.filters = named
            .map(|(filter, options)| ClientTraceFilter {
                filter: Some(cut(filter)),
                qos: Some(options.qos as u8),
                reason_code: None,
            })
            .collect();
    }

    fn give_unsubscribe(&mut self, filters: UnsubscribeFilters<'_>) {
        self.more_filters = filters.clone().skip(FILTERS_MAX).count() as u64;
        let named = filters.take(FILTERS_MAX);
        self.filters = named
            .map(|filter| ClientTraceFilter { filter: Some(cut(filter)), ..ClientTraceFilter::default() })
            .collect();
    }

    fn give_answers(&mut self, packet_id: u16, reasons: &[u8]) {
        self.packet_id = Some(packet_id);
        self.more_filters = reasons.len().saturating_sub(FILTERS_MAX) as u64;
        let named = reasons.iter().take(FILTERS_MAX);
        self.filters = named
            .map(|code| ClientTraceFilter { reason_code: Some(*code), ..ClientTraceFilter::default() })
            .collect();
    }

    /// `asked`: the filters of the packet that this SUBACK or UNSUBACK answers.
    pub(crate) fn name_filters(&mut self, asked: Vec<ClientTraceFilter>) {
        if self.filters.is_empty() {
            // UNSUBACK has no reason codes in 3.1 and 3.1.1.
            self.filters = asked;
            return;
        }
        for (answer, asked) in self.filters.iter_mut().zip(asked) {
            (answer.filter, answer.qos) = (asked.filter, asked.qos);
        }
    }
}

fn connecting(connect: &Connect<'_>) -> Connecting {
    Connecting {
        user: connect.user_name.map(cut),
        address: None,
        protocol: version_name(connect.version).into(),
        keep_alive_s: connect.keep_alive_s,
        clean_start: connect.clean_start,
        will_topic: connect.will.as_ref().map(|will| cut(will.topic)),
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::{PacketId, QoS, Will, encode};

    use super::*;

    fn of(packet: &Packet<'_>, version: Version, kept: usize) -> ClientTraceEvent {
        let mut bytes = Vec::new();
        encode::packet(packet, version, &mut bytes);
        let kept = kept.min(bytes.len());
        ClientTraceEvent::beginning(&bytes[..kept], version, PacketDirection::Out, bytes.len(), 1).unwrap()
    }

    fn publish<'a>(topic: &'a str, payload: &'a [u8]) -> Packet<'a> {
        let (dup, retain, properties) = (false, true, Properties::EMPTY);
        let packet_id = PacketId::new(7);
        Packet::Publish(Publish { dup, qos: QoS::AtLeastOnce, retain, topic, packet_id, properties, payload })
    }

    #[test]
    fn a_publish_says_its_sizes_and_never_its_payload() {
        let payload = b"secret".repeat(1_000);
        for kept in [100, usize::MAX] {
            let event = of(&publish("plant/1", &payload), Version::V5, kept);
            assert_eq!(
                (event.topic.as_deref(), event.qos, event.packet_id),
                (Some("plant/1"), Some(1), Some(7))
            );
            assert_eq!(event.payload_bytes, Some(6_000), "{kept} bytes kept");
            assert!(!serde_json::to_string(&event).unwrap().contains("secret"));
        }
        let long = "x/".repeat(3_000);
        let event = of(&publish(&long, b""), Version::V311, 2_048);
        assert_eq!((event.topic.unwrap().len(), event.qos), (TEXT_BYTES_MAX, Some(1)));
    }

    #[test]
    fn a_connect_says_no_password_and_no_will_payload() {
        let connect = Connect {
            version: Version::V5,
            is_bridge: false,
            clean_start: true,
            keep_alive_s: 9,
            properties: Properties::EMPTY,
            client_id: "pump",
            will: Some(Will {
                qos: QoS::AtMostOnce,
                retain: false,
                properties: Properties::EMPTY,
                topic: "gone",
                payload: b"secret",
            }),
            user_name: Some("bob"),
            password: Some(b"secret"),
        };
        let event = of(&Packet::Connect(connect), Version::V5, usize::MAX);
        let said = event.connect.clone().unwrap();
        assert_eq!((said.user.as_deref(), said.will_topic.as_deref()), (Some("bob"), Some("gone")));
        assert!(!serde_json::to_string(&event).unwrap().contains("secret"));
    }

    #[test]
    fn reason_codes_have_their_names_in_each_version() {
        let refused = |version, code| {
            let ack = millrace_mqtt::ConnAck {
                session_present: false,
                reason: ReasonCode(code),
                properties: Properties::EMPTY,
            };
            of(&Packet::ConnAck(ack), version, usize::MAX).reason.unwrap()
        };
        assert_eq!(refused(Version::V5, 0x87), "Not authorized");
        assert_eq!(refused(Version::V311, 5), "Not authorized");
        assert_eq!(refused(Version::V311, 1), "Unacceptable protocol version");
    }
}
