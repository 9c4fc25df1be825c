//! Reason codes (MQTT 5.0 section 2.4): their names, and which packet may carry which.

use std::fmt;

use crate::PacketType;

/// A reason code of MQTT 5.0 (section 2.4), or the return code of a 3.x CONNACK or SUBACK with the
/// same byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReasonCode(pub u8);

impl ReasonCode {
    /// Also "normal disconnection" and "granted QoS 0".
    pub const SUCCESS: Self = Self(0x00);
    pub const GRANTED_QOS_1: Self = Self(0x01);
    pub const GRANTED_QOS_2: Self = Self(0x02);
    pub const DISCONNECT_WITH_WILL: Self = Self(0x04);
    pub const NO_MATCHING_SUBSCRIBERS: Self = Self(0x10);
    pub const NO_SUBSCRIPTION_EXISTED: Self = Self(0x11);
    pub const CONTINUE_AUTHENTICATION: Self = Self(0x18);
    pub const RE_AUTHENTICATE: Self = Self(0x19);
    pub const UNSPECIFIED_ERROR: Self = Self(0x80);
    pub const MALFORMED_PACKET: Self = Self(0x81);
    pub const PROTOCOL_ERROR: Self = Self(0x82);
    pub const IMPLEMENTATION_SPECIFIC_ERROR: Self = Self(0x83);
    pub const UNSUPPORTED_PROTOCOL_VERSION: Self = Self(0x84);
    pub const CLIENT_IDENTIFIER_NOT_VALID: Self = Self(0x85);
    pub const BAD_USER_NAME_OR_PASSWORD: Self = Self(0x86);
    pub const NOT_AUTHORIZED: Self = Self(0x87);
    pub const SERVER_UNAVAILABLE: Self = Self(0x88);
    pub const SERVER_BUSY: Self = Self(0x89);
    pub const BANNED: Self = Self(0x8A);
    pub const SERVER_SHUTTING_DOWN: Self = Self(0x8B);
    pub const BAD_AUTHENTICATION_METHOD: Self = Self(0x8C);
    pub const KEEP_ALIVE_TIMEOUT: Self = Self(0x8D);
    pub const SESSION_TAKEN_OVER: Self = Self(0x8E);
    pub const TOPIC_FILTER_INVALID: Self = Self(0x8F);
    pub const TOPIC_NAME_INVALID: Self = Self(0x90);
    pub const PACKET_IDENTIFIER_IN_USE: Self = Self(0x91);
    pub const PACKET_IDENTIFIER_NOT_FOUND: Self = Self(0x92);
    pub const RECEIVE_MAXIMUM_EXCEEDED: Self = Self(0x93);
    pub const TOPIC_ALIAS_INVALID: Self = Self(0x94);
    pub const PACKET_TOO_LARGE: Self = Self(0x95);
    pub const MESSAGE_RATE_TOO_HIGH: Self = Self(0x96);
    pub const QUOTA_EXCEEDED: Self = Self(0x97);
    pub const ADMINISTRATIVE_ACTION: Self = Self(0x98);
    pub const PAYLOAD_FORMAT_INVALID: Self = Self(0x99);
    pub const RETAIN_NOT_SUPPORTED: Self = Self(0x9A);
    pub const QOS_NOT_SUPPORTED: Self = Self(0x9B);
    pub const USE_ANOTHER_SERVER: Self = Self(0x9C);
    pub const SERVER_MOVED: Self = Self(0x9D);
    pub const SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: Self = Self(0x9E);
    pub const CONNECTION_RATE_EXCEEDED: Self = Self(0x9F);
    pub const MAXIMUM_CONNECT_TIME: Self = Self(0xA0);
    pub const SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: Self = Self(0xA1);
    pub const WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: Self = Self(0xA2);
}

impl ReasonCode {
    pub const fn is_error(self) -> bool {
        self.0 >= 0x80
    }

    /// The name in section 2.4, or `Unknown`.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0x00 => "Success",
            0x01 => "Granted QoS 1",
            0x02 => "Granted QoS 2",
            0x04 => "Disconnect with Will Message",
            0x10 => "No matching subscribers",
            0x11 => "No subscription existed",
            0x18 => "Continue authentication",
            0x19 => "Re-authenticate",
            0x80 => "Unspecified error",
            0x81 => "Malformed Packet",
            0x82 => "Protocol Error",
            0x83 => "Implementation specific error",
            0x84 => "Unsupported Protocol Version",
            0x85 => "Client Identifier not valid",
            0x86 => "Bad User Name or Password",
            0x87 => "Not authorized",
            0x88 => "Server unavailable",
            0x89 => "Server busy",
            0x8A => "Banned",
            0x8B => "Server shutting down",
            0x8C => "Bad authentication method",
            0x8D => "Keep Alive timeout",
            0x8E => "Session taken over",
            0x8F => "Topic Filter invalid",
            0x90 => "Topic Name invalid",
            0x91 => "Packet Identifier in use",
            0x92 => "Packet Identifier not found",
            0x93 => "Receive Maximum exceeded",
            0x94 => "Topic Alias invalid",
            0x95 => "Packet too large",
            0x96 => "Message rate too high",
            0x97 => "Quota exceeded",
            0x98 => "Administrative action",
            0x99 => "Payload format invalid",
            0x9A => "Retain not supported",
            0x9B => "QoS not supported",
            0x9C => "Use another server",
            0x9D => "Server moved",
            0x9E => "Shared Subscriptions not supported",
            0x9F => "Connection rate exceeded",
            0xA0 => "Maximum connect time",
            0xA1 => "Subscription Identifiers not supported",
            0xA2 => "Wildcard Subscriptions not supported",
            _ => "Unknown",
        }
    }

    /// True when the table of reason codes of this packet type lists the code, for either sender.
    pub const fn is_legal_in(self, kind: PacketType) -> bool {
        use PacketType as T;
        match kind {
            //= [MQTT-3.2.2-8] v5
            T::ConnAck => {
                matches!(self.0, 0x00 | 0x80..=0x8A | 0x8C | 0x90 | 0x95 | 0x97 | 0x99..=0x9D | 0x9F)
            }
            //= [MQTT-3.4.2-1] v5
            //= [MQTT-3.5.2-1] v5
            T::PubAck | T::PubRec => {
                matches!(self.0, 0x00 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99)
            }
            //= [MQTT-3.6.2-1] v5
            //= [MQTT-3.7.2-1] v5
            T::PubRel | T::PubComp => matches!(self.0, 0x00 | 0x92),
            //= [MQTT-3.9.3-2] v5
            T::SubAck => {
                matches!(self.0, 0x00..=0x02 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91 | 0x97 | 0x9E | 0xA1 | 0xA2)
            }
            //= [MQTT-3.11.3-2] v5
            T::UnsubAck => matches!(self.0, 0x00 | 0x11 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91),
            // The table of section 3.14 omits 0x8C, which section 2.4 allows in DISCONNECT.
            //= [MQTT-3.14.2-1] v5
            T::Disconnect => matches!(
                self.0,
                0x00 | 0x04 | 0x80..=0x83 | 0x87 | 0x89 | 0x8B..=0x90 | 0x93..=0xA2
            ),
            //= [MQTT-3.15.2-1] v5
            T::Auth => matches!(self.0, 0x00 | 0x18 | 0x19),
            _ => false,
        }
    }

    /// True when a client may send the code in a DISCONNECT (section 3.14.2.1). Only a server sends the others.
    pub const fn is_legal_in_disconnect_of_client(self) -> bool {
        matches!(self.0, 0x00 | 0x04 | 0x80..=0x83 | 0x90 | 0x93..=0x99)
    }

    /// The CONNACK return code of 3.x with the same meaning; a return code (0 to 5) is returned
    /// unchanged. `None` when none fits: 3.1.1 then requires the server to close without a CONNACK.
    pub const fn to_return_code(self) -> Option<Self> {
        match self.0 {
            0..=5 => Some(self),
            0x84 => Some(Self(1)),
            0x85 => Some(Self(2)),
            0x88 | 0x89 | 0x8B | 0x97 | 0x9C | 0x9D | 0x9F => Some(Self(3)),
            0x86 | 0x8C => Some(Self(4)),
            0x87 | 0x8A => Some(Self(5)),
            //= [MQTT-3.2.2-6] v3.1.1
            _ => None,
        }
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (0x{:02X})", self.name(), self.0)
    }
}

impl fmt::Debug for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
