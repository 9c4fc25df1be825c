//! The reasons why a packet is not decoded, and the reason code that each gets in a DISCONNECT.

use crate::ReasonCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The packet breaks the wire format: lengths, flags, reserved bits, UTF-8, values out of
    /// range.
    #[error("malformed packet: {0}")]
    Malformed(&'static str),
    /// The packet is well formed but not allowed here, such as a property twice or a packet type
    /// that only servers send.
    #[error("protocol error: {0}")]
    Protocol(&'static str),
    #[error("unsupported protocol version")]
    UnsupportedVersion,
    /// Found as soon as the fixed header is complete, so that no memory is allocated for the
    /// packet.
    #[error("packet of {size} bytes is over the limit of {limit}")]
    TooLarge {
        /// Bytes of the whole packet.
        size: u32,
        limit: u32,
    },
    /// The topic name is empty in 3.x, or has a wildcard. In 5.0 an empty name without an alias is
    /// a [`DecodeError::Protocol`].
    #[error("malformed topic name")]
    TopicName,
    #[error("malformed topic filter")]
    TopicFilter,
    /// The decoder knows no alias maximum: the session refuses an alias above it.
    #[error("topic alias 0")]
    TopicAlias,
    /// See [`crate::REPEATED_PROPERTIES_MAX`].
    #[error("more than {limit} user properties or subscription identifiers", limit = crate::REPEATED_PROPERTIES_MAX)]
    TooManyProperties,
}

impl DecodeError {
    pub const fn reason(self) -> ReasonCode {
        match self {
            // Section 2.4 keeps 0x8F and 0x90 for well-formed names and filters that the server
            // does not accept.
            //= [MQTT-4.13.1-1] v5
            Self::Malformed(_) | Self::TopicName | Self::TopicFilter => ReasonCode::MALFORMED_PACKET,
            Self::Protocol(_) => ReasonCode::PROTOCOL_ERROR,
            Self::UnsupportedVersion => ReasonCode::UNSUPPORTED_PROTOCOL_VERSION,
            Self::TooLarge { .. } => ReasonCode::PACKET_TOO_LARGE,
            Self::TopicAlias => ReasonCode::TOPIC_ALIAS_INVALID,
            Self::TooManyProperties => ReasonCode::QUOTA_EXCEEDED,
        }
    }
}
