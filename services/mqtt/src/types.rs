//! The small value types that packets are made of.

use std::num::NonZeroU16;

/// A packet identifier, 1 to 65,535 (MQTT 5.0 section 2.2.1).
pub type PacketId = NonZeroU16;

/// The protocol version that a CONNECT names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Version {
    /// MQTT 3.1, protocol name `MQIsdp`, level 3.
    V31 = 3,
    /// MQTT 3.1.1, protocol name `MQTT`, level 4.
    V311 = 4,
    /// MQTT 5.0, protocol name `MQTT`, level 5.
    V5 = 5,
}

/// Quality of service: how often a message is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum QoS {
    /// At most once.
    #[default]
    AtMostOnce = 0,
    /// At least once.
    AtLeastOnce = 1,
    /// Exactly once.
    ExactlyOnce = 2,
}

impl QoS {
    /// The quality of service of two bits on the wire; `None` for 3 (and anything above).
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

/// Control packet types (MQTT 5.0 section 2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum PacketType {
    Connect = 1,
    ConnAck = 2,
    Publish = 3,
    PubAck = 4,
    PubRec = 5,
    PubRel = 6,
    PubComp = 7,
    Subscribe = 8,
    SubAck = 9,
    Unsubscribe = 10,
    UnsubAck = 11,
    PingReq = 12,
    PingResp = 13,
    Disconnect = 14,
    Auth = 15,
}

impl PacketType {
    /// The packet type of the high four bits of a first byte; `None` for 0 (and anything above 15).
    pub const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            1 => Self::Connect,
            2 => Self::ConnAck,
            3 => Self::Publish,
            4 => Self::PubAck,
            5 => Self::PubRec,
            6 => Self::PubRel,
            7 => Self::PubComp,
            8 => Self::Subscribe,
            9 => Self::SubAck,
            10 => Self::Unsubscribe,
            11 => Self::UnsubAck,
            12 => Self::PingReq,
            13 => Self::PingResp,
            14 => Self::Disconnect,
            15 => Self::Auth,
            _ => return None,
        })
    }
}

/// When retained messages are sent for a subscription (MQTT 5.0 section 3.8.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum RetainHandling {
    /// At every SUBSCRIBE.
    #[default]
    Send = 0,
    /// Only when the subscription did not exist before.
    SendIfNew = 1,
    /// Never.
    DoNotSend = 2,
}

impl RetainHandling {
    /// The retain handling of two bits on the wire; `None` for 3 (and anything above).
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::Send),
            1 => Some(Self::SendIfNew),
            2 => Some(Self::DoNotSend),
            _ => None,
        }
    }
}

/// The options byte of one topic filter of a SUBSCRIBE. 3.1 and 3.1.1 have the quality of service only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SubscribeOptions {
    /// The highest quality of service at which messages are sent.
    pub qos: QoS,
    /// Do not send what this same client published.
    pub no_local: bool,
    /// Keep the RETAIN flag of the message as it was published.
    pub retain_as_published: bool,
    /// When retained messages are sent.
    pub retain_handling: RetainHandling,
}

impl SubscribeOptions {
    /// The options byte as `version` has it: 3.1 and 3.1.1 know only the quality of service.
    pub const fn to_bits(self, version: Version) -> u8 {
        match version {
            Version::V31 | Version::V311 => self.qos as u8,
            Version::V5 => {
                self.qos as u8
                    | (self.no_local as u8) << 2
                    | (self.retain_as_published as u8) << 3
                    | (self.retain_handling as u8) << 4
            }
        }
    }
}
