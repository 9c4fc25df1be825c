//! The control packets and their decoder.

mod ack;
mod connect;
mod disconnect;
mod publish;
mod subscribe;

use crate::{DecodeError, PacketType, Version};

pub use ack::Ack;
pub(crate) use connect::BRIDGE;
pub use connect::{ConnAck, Connect, Will, connect_version};
pub use disconnect::{Auth, Disconnect};
pub use publish::Publish;
pub use subscribe::{SubAck, Subscribe, SubscribeFilters, UnsubAck, Unsubscribe, UnsubscribeFilters};

/// The fields borrow from the bytes that [`decode`] was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    Connect(Connect<'a>),
    ConnAck(ConnAck<'a>),
    Publish(Publish<'a>),
    PubAck(Ack<'a>),
    PubRec(Ack<'a>),
    PubRel(Ack<'a>),
    PubComp(Ack<'a>),
    Subscribe(Subscribe<'a>),
    SubAck(SubAck<'a>),
    Unsubscribe(Unsubscribe<'a>),
    UnsubAck(UnsubAck<'a>),
    PingReq,
    PingResp,
    Disconnect(Disconnect<'a>),
    Auth(Auth<'a>),
}

impl Packet<'_> {
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::Connect(_) => PacketType::Connect,
            Self::ConnAck(_) => PacketType::ConnAck,
            Self::Publish(_) => PacketType::Publish,
            Self::PubAck(_) => PacketType::PubAck,
            Self::PubRec(_) => PacketType::PubRec,
            Self::PubRel(_) => PacketType::PubRel,
            Self::PubComp(_) => PacketType::PubComp,
            Self::Subscribe(_) => PacketType::Subscribe,
            Self::SubAck(_) => PacketType::SubAck,
            Self::Unsubscribe(_) => PacketType::Unsubscribe,
            Self::UnsubAck(_) => PacketType::UnsubAck,
            Self::PingReq => PacketType::PingReq,
            Self::PingResp => PacketType::PingResp,
            Self::Disconnect(_) => PacketType::Disconnect,
            Self::Auth(_) => PacketType::Auth,
        }
    }
}

/// Decodes one packet, whether a client or a server sends it; the session decides which packets a
/// server may receive. `version` is `None` before the CONNECT, when any other packet is a protocol
/// error.
#[inline]
pub fn decode<'a>(first: u8, body: &'a [u8], version: Option<Version>) -> Result<Packet<'a>, DecodeError> {
    match version {
        Some(version) if first >> 4 == PacketType::Publish as u8 => {
            publish::decode(first, body, version).map(Packet::Publish)
        }
        _ => decode_other(first, body, version),
    }
}

fn decode_other<'a>(first: u8, body: &'a [u8], version: Option<Version>) -> Result<Packet<'a>, DecodeError> {
    check_first_byte(first)?;
    let kind = PacketType::from_bits(first >> 4).ok_or(BAD_FIRST_BYTE)?;
    if kind == PacketType::Connect {
        let connect = connect::decode(body)?;
        check_flags(first, connect.version)?;
        return Ok(Packet::Connect(connect));
    }
    //= [MQTT-3.1.0-1] v5 v3.1.1
    let version = version.ok_or(DecodeError::Protocol("the first packet is not a CONNECT"))?;
    check_flags(first, version)?;
    match kind {
        PacketType::Connect => connect::decode(body).map(Packet::Connect),
        PacketType::ConnAck => connect::decode_connack(body, version).map(Packet::ConnAck),
        PacketType::Publish => publish::decode(first, body, version).map(Packet::Publish),
        PacketType::PubAck => ack::decode(kind, body, version).map(Packet::PubAck),
        PacketType::PubRec => ack::decode(kind, body, version).map(Packet::PubRec),
        PacketType::PubRel => ack::decode(kind, body, version).map(Packet::PubRel),
        PacketType::PubComp => ack::decode(kind, body, version).map(Packet::PubComp),
        PacketType::Subscribe => subscribe::decode_subscribe(body, version).map(Packet::Subscribe),
        PacketType::SubAck => subscribe::decode_suback(body, version).map(Packet::SubAck),
        PacketType::Unsubscribe => subscribe::decode_unsubscribe(body, version).map(Packet::Unsubscribe),
        PacketType::UnsubAck => subscribe::decode_unsuback(body, version).map(Packet::UnsubAck),
        PacketType::PingReq if body.is_empty() => Ok(Packet::PingReq),
        PacketType::PingResp if body.is_empty() => Ok(Packet::PingResp),
        PacketType::PingReq | PacketType::PingResp => Err(DecodeError::Malformed("a ping with content")),
        PacketType::Disconnect => disconnect::decode_disconnect(body, version).map(Packet::Disconnect),
        PacketType::Auth => disconnect::decode_auth(body, version).map(Packet::Auth),
    }
}

const BAD_FIRST_BYTE: DecodeError = DecodeError::Malformed("packet type or flags that do not exist");

/// The allowed flags of each packet type, one bit for each value of the four flag bits.
type AllowedFlags = [u16; 16];

//= [MQTT-2.1.3-1] v5
//= [MQTT-2.2.2-1] v3.1.1
//= [MQTT-2.2.2-2] v3.1.1
//= [MQTT-3.14.1-1] v5 v3.1.1
//= [MQTT-3.15.1-1] v5
const FLAGS: AllowedFlags = {
    let mut flags = [1; 16];
    flags[0] = 0;
    // Any DUP and RETAIN, any QoS but 3.
    //= [MQTT-3.3.1-4] v5 v3.1.1
    flags[PacketType::Publish as usize] = 0b0011_1111_0011_1111;
    //= [MQTT-3.6.1-1] v5 v3.1.1
    //= [MQTT-3.8.1-1] v5 v3.1.1
    //= [MQTT-3.10.1-1] v5 v3.1.1
    flags[PacketType::PubRel as usize] = 1 << 0b0010;
    flags[PacketType::Subscribe as usize] = 1 << 0b0010;
    flags[PacketType::Unsubscribe as usize] = 1 << 0b0010;
    flags
};

/// 3.1 calls the other bits unused (its section 2.1).
const FLAGS_3_1: AllowedFlags = {
    let mut flags = [u16::MAX; 16];
    flags[0] = 0;
    flags[PacketType::Publish as usize] = FLAGS[PacketType::Publish as usize];
    // QoS 1. DUP says that the packet was sent before; RETAIN is unused.
    let qos_1 = 1 << 0b0010 | 1 << 0b0011 | 1 << 0b1010 | 1 << 0b1011;
    flags[PacketType::PubRel as usize] = qos_1;
    flags[PacketType::Subscribe as usize] = qos_1;
    flags[PacketType::Unsubscribe as usize] = qos_1;
    // 3.1 has no AUTH.
    flags[PacketType::Auth as usize] = FLAGS[PacketType::Auth as usize];
    flags
};

/// Fails for a packet type or flags that no version allows. Checking 3.1 is enough, because 3.1
/// allows everything that the other versions allow.
#[inline]
pub(crate) const fn check_first_byte(first: u8) -> Result<(), DecodeError> {
    check(first, &FLAGS_3_1)
}

#[inline]
const fn check_flags(first: u8, version: Version) -> Result<(), DecodeError> {
    match version {
        Version::V31 => check(first, &FLAGS_3_1),
        Version::V311 | Version::V5 => check(first, &FLAGS),
    }
}

#[inline]
const fn check(first: u8, flags: &AllowedFlags) -> Result<(), DecodeError> {
    if flags[(first >> 4) as usize] >> (first & 0x0F) & 1 == 1 { Ok(()) } else { Err(BAD_FIRST_BYTE) }
}

#[cfg(test)]
mod tests;
