//! The state of one network connection, from CONNECT to the close.

mod client_disconnect;
mod enhanced;
mod exchange;
mod subscribe;

use std::sync::Arc;

use millrace_mqtt::{
    Connect, DecodeError, Disconnect, Packet, PacketType, Properties, Property, ReasonCode, Version, decode,
    encode,
};

use crate::aliases::{Aliases, OutboundAlias};
use crate::effect::{Closing, SessionEffect};
use crate::{Out, Session, SessionSettings, connack};

/// Most bytes of an acknowledgement without its reason string and reason codes.
const ACK_BYTES_MAX: usize = 16;

const CONNECT_LEVEL_AT: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Silent,
    Connecting,
    Challenged,
    Open,
}

#[derive(Debug)]
pub struct Connection {
    phase: Phase,
    version: Version,
    request_problem_information: bool,
    is_bridge: bool,
    /// The CONNECT named the authentication method of [`SessionSettings`].
    has_method: bool,
    has_requested_expiry: bool,
    keep_alive_s: u16,
    requested_keep_alive_s: u16,
    receive_maximum: u16,
    /// The client's incomplete QoS 1 and 2 messages of this connection alone, which the server's Receive Maximum limits.
    uncompleted: u16,
    topic_alias_max: u16,
    packet_size_max: u32,
    aliases: Option<Box<Aliases>>,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            phase: Phase::Silent,
            version: Version::V311,
            request_problem_information: true,
            is_bridge: false,
            has_method: false,
            has_requested_expiry: false,
            keep_alive_s: 0,
            requested_keep_alive_s: 0,
            receive_maximum: u16::MAX,
            uncompleted: 0,
            topic_alias_max: 0,
            packet_size_max: u32::MAX,
            aliases: None,
        }
    }
}

impl Connection {
    pub fn new() -> Self {
        Self::default()
    }

    /// The version to decode the next packet with; `None` before the CONNECT, which names it.
    pub fn decoding_version(&self) -> Option<Version> {
        (self.phase != Phase::Silent).then_some(self.version)
    }

    /// 3.1.1 before the CONNECT.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    #[inline]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// 0 for none. The connection is dead after one and a half times this without a packet.
    pub fn keep_alive_s(&self) -> u16 {
        self.keep_alive_s
    }

    #[inline]
    pub fn alias_bytes(&self) -> usize {
        self.aliases.as_ref().map_or(0, |aliases| aliases.inbound_bytes())
    }

    pub fn topic_of_inbound_alias(&self, alias: u16) -> Option<Arc<str>> {
        self.aliases.as_ref()?.inbound(alias)
    }

    pub fn topic_of_outbound_alias(&self, alias: u16) -> Option<Arc<str>> {
        self.aliases.as_ref()?.outbound_topic(alias)
    }

    pub(crate) fn requested_keep_alive_s(&self) -> u16 {
        self.requested_keep_alive_s
    }

    pub(crate) fn open(&mut self, has_requested_expiry: bool) {
        self.has_requested_expiry = has_requested_expiry;
        self.phase = Phase::Open;
    }

    /// True when the client takes a PUBLISH as encoded for all clients of this version: no alias, no size limit.
    #[inline]
    pub fn takes_shared_bytes(&self) -> bool {
        self.phase == Phase::Open && self.topic_alias_max == 0 && self.packet_size_max == u32::MAX
    }

    pub(crate) fn window_max(&self, settings: &SessionSettings) -> usize {
        //= [MQTT-3.3.4-9] v5
        usize::from(self.receive_maximum.min(settings.inflight_max))
    }

    #[inline]
    pub(crate) fn has_packet_size_max(&self) -> bool {
        self.packet_size_max != u32::MAX
    }

    pub(crate) fn packet_size_max(&self) -> usize {
        self.packet_size_max as usize
    }

    //= [MQTT-3.1.2-26] [MQTT-3.1.2-27] v5
    pub(crate) fn outbound_alias(&mut self, topic: &Arc<str>) -> OutboundAlias {
        if self.topic_alias_max == 0 {
            return OutboundAlias::Plain;
        }
        self.aliases.get_or_insert_default().outbound(topic, self.topic_alias_max)
    }

    /// Takes back an alias of a PUBLISH that is not sent, so that the client never learns it.
    pub(crate) fn unset_alias(&mut self, topic: &Arc<str>) {
        if let Some(aliases) = &mut self.aliases {
            aliases.unset(topic);
        }
    }

    /// `session` is set once the CONNECT is accepted.
    #[inline]
    pub fn input<'a>(
        &mut self,
        packet: Packet<'a>,
        session: Option<&mut Session>,
        settings: &SessionSettings,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        let Some(session) = session.filter(|_| self.phase == Phase::Open) else {
            return self.input_before_open(packet, settings, out);
        };
        match packet {
            Packet::Publish(publish) => self.publish(publish, session, settings, out),
            Packet::PubAck(ack) => self.puback(ack, session, out),
            Packet::PubRec(ack) => self.pubrec(ack, session, out),
            Packet::PubRel(ack) => self.pubrel(ack, session, out),
            Packet::PubComp(ack) => self.pubcomp(ack, session, out),
            Packet::Subscribe(subscribe) => self.subscribe(subscribe, out),
            Packet::Unsubscribe(unsubscribe) => self.unsubscribe(unsubscribe, out),
            Packet::PingReq => {
                //= [MQTT-3.12.4-1] v5 v3.1.1
                encode::packet(&Packet::PingResp, self.version, out.buffer());
                SessionEffect::None
            }
            Packet::Disconnect(disconnect) => self.client_disconnects(&disconnect, session, settings, out),
            //= [MQTT-3.1.0-2] v5 v3.1.1
            Packet::Connect(_) => self.close(ReasonCode::PROTOCOL_ERROR, "a second CONNECT", out),
            Packet::Auth(auth) => self.auth(auth, settings, out),
            Packet::ConnAck(_) | Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp => {
                self.close(ReasonCode::PROTOCOL_ERROR, "a packet that only a server sends", out)
            }
        }
    }

    fn input_before_open<'a>(
        &mut self,
        packet: Packet<'a>,
        settings: &SessionSettings,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        match (self.phase, packet) {
            (Phase::Silent, Packet::Connect(connect)) => self.connect(connect, settings, out),
            (Phase::Challenged, packet) => self.input_while_challenged(packet, settings, out),
            //= [MQTT-3.1.0-1] v5 v3.1.1
            (Phase::Silent, _) => SessionEffect::Close(Closing {
                reason: ReasonCode::PROTOCOL_ERROR,
                what: "the first packet is not CONNECT",
            }),
            _ => SessionEffect::Close(Closing {
                reason: ReasonCode::PROTOCOL_ERROR,
                what: "a packet before CONNACK",
            }),
        }
    }

    fn connect<'a>(
        &mut self,
        connect: Connect<'a>,
        settings: &SessionSettings,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        self.phase = Phase::Connecting;
        self.version = connect.version;
        self.is_bridge = connect.is_bridge;
        self.requested_keep_alive_s = connect.keep_alive_s;
        self.keep_alive_s = connect.keep_alive_s;
        let longest = settings.keep_alive_max_s;
        if self.version == Version::V5
            && longest > 0
            && (connect.keep_alive_s == 0 || connect.keep_alive_s > longest)
        {
            self.keep_alive_s = longest;
        }
        let mut method = None;
        for property in connect.properties.iter() {
            match property {
                Property::ReceiveMaximum(maximum) => self.receive_maximum = maximum,
                Property::MaximumPacketSize(maximum) => self.packet_size_max = maximum,
                Property::TopicAliasMaximum(maximum) => {
                    self.topic_alias_max = maximum.min(settings.topic_alias_outbound_max);
                }
                Property::RequestProblemInformation(wanted) => self.request_problem_information = wanted == 1,
                Property::AuthenticationMethod(named) => method = Some(named),
                _ => {}
            }
        }
        self.has_method = method.is_some();
        if method.is_some() && method != settings.authentication_method {
            //= [MQTT-4.12.0-1] v5
            return self.refused(
                ReasonCode::BAD_AUTHENTICATION_METHOD,
                "authentication method not supported",
                out,
            );
        }
        if connect.client_id.len() > usize::from(settings.client_id_bytes_max) {
            //= [MQTT-3.1.3-8] v5
            //= [MQTT-3.1.3-9] v3.1.1
            return self.refused(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, "client identifier too long", out);
        }
        if connect.client_id.is_empty()
            && (self.version == Version::V31 || (self.version == Version::V311 && !connect.clean_start))
        {
            //= [MQTT-3.1.3-8] [MQTT-3.1.3-9] v3.1.1
            let what = "an empty client identifier needs a clean session";
            return self.refused(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, what, out);
        }
        SessionEffect::Connect(Box::new(connect))
    }

    fn refused<'a>(
        &mut self,
        reason: ReasonCode,
        what: &'static str,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        self.refuse(reason, what, out);
        SessionEffect::Close(Closing { reason, what })
    }

    /// Answers undecodable bytes. `frame` is the first byte and the body, if the frame was complete: an undecodable CONNECT may still
    /// show its version.
    //= [MQTT-4.13.1-1] v5
    pub fn undecodable(
        &mut self,
        error: DecodeError,
        frame: Option<(u8, &[u8])>,
        out: &mut impl Out,
    ) -> Closing {
        let is_connect = frame.is_some_and(|(first, _)| first >> 4 == PacketType::Connect as u8);
        let answer =
            if self.phase == Phase::Challenged { PacketType::ConnAck } else { PacketType::Disconnect };
        let reason = match error.reason() {
            //= [MQTT-3.1.0-2] v5
            _ if is_connect && self.phase != Phase::Silent => ReasonCode::PROTOCOL_ERROR,
            reason if self.phase == Phase::Silent || reason.is_legal_in(answer) => reason,
            _ => ReasonCode::PROTOCOL_ERROR,
        };
        let what = match error {
            DecodeError::Malformed(what) | DecodeError::Protocol(what) => what,
            DecodeError::UnsupportedVersion => "unsupported protocol version: use MQTT 3.1, 3.1.1 or 5.0",
            DecodeError::TooLarge { .. } => "the packet is over the limit",
            DecodeError::TopicName => "a topic name is empty or has a wildcard",
            DecodeError::TopicFilter => "a topic filter is empty or has a wildcard that is not a whole level",
            DecodeError::TopicAlias => "topic alias 0",
            DecodeError::TooManyProperties => "more than 10,000 user properties",
        };
        if self.phase == Phase::Open {
            self.disconnect(reason, what, out);
        } else if self.phase == Phase::Challenged {
            self.refuse(reason, what, out);
        } else if self.phase == Phase::Silent
            && let Some((first, body)) = frame
            && first >> 4 == PacketType::Connect as u8
        {
            let version = match (connect_level(body), error) {
                //= [MQTT-3.1.2-2] v5 v3.1.1
                (Some(6..), DecodeError::UnsupportedVersion) if !is_laid_out_as_v311(body) => Version::V5,
                (Some(5), _) => Version::V5,
                (Some(_), DecodeError::UnsupportedVersion) => Version::V311,
                _ => return Closing { reason, what },
            };
            // Without a text, because the client's Maximum Packet Size is unknown.
            //= [MQTT-3.2.2-19] v5
            connack::refusal(version, reason, "", None, usize::MAX, out);
        }
        Closing { reason, what }
    }

    /// Sends a DISCONNECT to a 5.0 client, and nothing to a 3.x client.
    //= [MQTT-3.14.0-1] v5
    pub fn disconnect(&mut self, reason: ReasonCode, what: &'static str, out: &mut impl Out) -> Closing {
        self.disconnect_to(reason, what, None, out)
    }

    pub fn disconnect_to(
        &mut self,
        reason: ReasonCode,
        what: &'static str,
        server_reference: Option<&str>,
        out: &mut impl Out,
    ) -> Closing {
        if self.version == Version::V5 && self.phase == Phase::Open {
            //= [MQTT-3.14.2-3] v5
            let properties = connack::closing_properties(server_reference, what, self.packet_size_max());
            let properties = Properties::from_validated(&properties);
            encode::packet(
                &Packet::Disconnect(Disconnect { reason, properties }),
                self.version,
                out.buffer(),
            );
        }
        Closing { reason, what }
    }

    fn close<'a>(&mut self, reason: ReasonCode, what: &'static str, out: &mut impl Out) -> SessionEffect<'a> {
        SessionEffect::Close(self.disconnect(reason, what, out))
    }

    /// The reason string of an acknowledgement with `more` bytes behind its properties. Empty when the client does not want one,
    /// or when the packet would be too large for the client.
    //= [MQTT-3.1.2-29] [MQTT-3.4.2-2] [MQTT-3.5.2-2] [MQTT-3.6.2-2] [MQTT-3.7.2-2] [MQTT-3.9.2-1] v5
    fn reason_string(&self, what: &str, more: usize) -> Vec<u8> {
        let mut properties = Vec::new();
        let is_wanted = self.version == Version::V5 && self.request_problem_information && !what.is_empty();
        if is_wanted && what.len() + more + ACK_BYTES_MAX <= self.packet_size_max() {
            Property::ReasonString(what).encode(&mut properties);
        }
        properties
    }
}

fn connect_level(body: &[u8]) -> Option<u8> {
    match body {
        [0, 4, b'M', b'Q', b'T', b'T', level, ..] => Some(*level & 0x7F), // Bridges set the highest bit.
        [0, 6, b'M', b'Q', b'I', b's', b'd', b'p', _, ..] => Some(3),
        _ => None,
    }
}

/// True for a CONNECT of an unknown version that has no properties: it is refused as by 3.1.1.
fn is_laid_out_as_v311(body: &[u8]) -> bool {
    let mut body = body.to_vec();
    body[CONNECT_LEVEL_AT] = 4;
    decode((PacketType::Connect as u8) << 4, &body, None).is_ok()
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
