use crate::ReasonCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The packet breaks the wire format: lengths, flags, reserved bits, UTF-8, values out of
    /// range.
    #[error("malformed packet: {0}")]
    Malformed(&'static str),
    /// The packet is well formed but not allowed here: a property twice, a packet type that a
    /// server never gets.
    #[error("protocol error: {0}")]
    Protocol(&'static str),
    #[error("unsupported protocol version")]
    UnsupportedVersion,
    /// Found before anything is allocated for it.
    #[error("packet of {size} bytes is over the limit of {limit}")]
    TooLarge {
        /// Bytes of the whole packet.
        size: u32,
        limit: u32,
    },
    /// The topic name is empty (3.x; in 5.0 an empty one without alias is a protocol error) or has
    /// a wildcard.
    #[error("malformed topic name")]
    TopicName,
    #[error("malformed topic filter")]
    TopicFilter,
    /// The session checks for an alias over the maximum.
    #[error("topic alias 0")]
    TopicAlias,
}

impl DecodeError {
    pub const fn reason(self) -> ReasonCode {
        match self {
            // 0x8F and 0x90 are for well-formed names and filters that the server does not accept
            // (section 2.4).
            //= [MQTT-4.13.1-1] v5
            Self::Malformed(_) | Self::TopicName | Self::TopicFilter => ReasonCode::MALFORMED_PACKET,
            Self::Protocol(_) => ReasonCode::PROTOCOL_ERROR,
            Self::UnsupportedVersion => ReasonCode::UNSUPPORTED_PROTOCOL_VERSION,
            Self::TooLarge { .. } => ReasonCode::PACKET_TOO_LARGE,
            Self::TopicAlias => ReasonCode::TOPIC_ALIAS_INVALID,
        }
    }
}
