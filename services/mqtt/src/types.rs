//! Small types that several packets share: versions, QoS, packet types, subscription options.

use std::num::NonZeroU16;

/// MQTT 5.0 section 2.2.1.
pub type PacketId = NonZeroU16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Version {
    V31 = 3,
    V311 = 4,
    V5 = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum QoS {
    #[default]
    AtMostOnce = 0,
    AtLeastOnce = 1,
    ExactlyOnce = 2,
}

impl QoS {
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

/// MQTT 5.0 section 2.1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
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
    /// `bits` are the high four bits of a packet's first byte; `None` for 0 and above 15.
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
    /// After every SUBSCRIBE.
    #[default]
    Send = 0,
    SendIfNew = 1,
    DoNotSend = 2,
}

impl RetainHandling {
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::Send),
            1 => Some(Self::SendIfNew),
            2 => Some(Self::DoNotSend),
            _ => None,
        }
    }
}

/// The options of one topic filter of a SUBSCRIBE. 3.1 and 3.1.1 have the QoS only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SubscribeOptions {
    pub qos: QoS,
    pub no_local: bool,
    pub retain_as_published: bool,
    pub retain_handling: RetainHandling,
}

impl SubscribeOptions {
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
