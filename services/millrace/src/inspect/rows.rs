//! Rows of answers: one row is one JSON object, on the socket and with `--json`. Times are unix milliseconds. Invalid
//! UTF-8 in a name, which no client can send, is replaced.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

/// A row of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Row {
    Session(Session),
    SessionDetails(Box<SessionDetails>),
    SessionPurged(SessionPurged),
    Stream(Stream),
    StreamDetails(Box<StreamDetails>),
    StreamPurged { filter: String, messages: u64, bytes: u64 },
    Retained(Retained),
    RetainedDetails(Box<RetainedDetails>),
    RetainedPurged { topic: String },
    BackupProgress { bytes: u64 },
    BackupDone { target: String, bytes: u64 },
}

/// Whether a session has a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Connected,
    /// The server ended before the connection did; its next start cleans up.
    CutOff,
    Offline,
    /// The server will remove it.
    Expired,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) client_id: String,
    pub(crate) state: State,
    pub(crate) offline_since_ms: Option<u64>,
    /// `None` is never.
    pub(crate) expiry_s: Option<u32>,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) subscriptions: usize,
    /// Unacknowledged messages after its cursor, without those of shared subscriptions, which wait in the group.
    pub(crate) waiting: u64,
    /// Whether the count ended at its limit.
    pub(crate) waiting_is_more: bool,
    pub(crate) waiting_bytes: u64,
    pub(crate) oldest_waiting_at_ms: Option<u64>,
}

/// All of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionDetails {
    #[serde(flatten)]
    pub(crate) session: Session,
    pub(crate) epoch: u64,
    /// Every message up to this position is acknowledged.
    pub(crate) cursor: String,
    /// Acknowledged messages after the cursor.
    pub(crate) acknowledged_after_cursor: usize,
    /// Messages that a limit removed before they were read.
    pub(crate) missed_at_least: u64,
    pub(crate) missed_at_most: u64,
    pub(crate) will: Option<Will>,
    pub(crate) filters: Vec<Subscription>,
    pub(crate) inbound_packet_ids: Vec<u16>,
    pub(crate) outbound_packet_ids: Vec<u16>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Will {
    pub(crate) delay_s: u32,
    pub(crate) bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Subscription {
    pub(crate) filter: String,
    pub(crate) qos: u8,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    pub(crate) retain_handling: u8,
    /// 0 is none.
    pub(crate) identifier: u32,
    /// `None` when nothing is stored for it.
    pub(crate) stream: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionPurged {
    pub(crate) client_id: String,
    /// It had a will that nobody published.
    pub(crate) will_lost: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stream {
    /// With its `$share/group/`.
    pub(crate) filter: String,
    pub(crate) id: u64,
    pub(crate) subscribers: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) partitions: u8,
    pub(crate) oldest_at_ms: Option<u64>,
}

/// A stream and its first messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamDetails {
    #[serde(flatten)]
    pub(crate) stream: Stream,
    /// The position up to which everything is trimmed.
    pub(crate) floor: String,
    pub(crate) first: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) position: String,
    pub(crate) at_ms: u64,
    /// Stored bytes, with topic and properties.
    pub(crate) bytes: usize,
    /// `None` when the message has an unknown format.
    pub(crate) topic: Option<String>,
    /// The first bytes of its payload, or of the stored bytes, escaped.
    pub(crate) head: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Retained {
    pub(crate) topic: String,
    pub(crate) qos: u8,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) payload_bytes: usize,
    /// Its first bytes, escaped.
    pub(crate) payload_head: String,
}

/// A retained message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RetainedDetails {
    pub(crate) topic: String,
    pub(crate) qos: u8,
    pub(crate) expires_at_ms: Option<u64>,
    /// Names and values, escaped.
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) payload_bytes: usize,
    #[serde(flatten)]
    pub(crate) payload: Payload,
}

/// Bytes in JSON: as text when they are text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Payload {
    #[serde(rename = "payload")]
    Text(String),
    #[serde(rename = "payload_base64")]
    Base64(String),
}

impl Payload {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes)
            .map_or_else(|error| Self::Base64(BASE64_STANDARD.encode(error.as_bytes())), Self::Text)
    }

    /// The bytes; empty when the server sent invalid base64.
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Base64(text) => BASE64_STANDARD.decode(text).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_comes_through_json_as_it_was() {
        for bytes in [&b""[..], b"21.5", "°C \n\0".as_bytes(), b"\xff\0\x01"] {
            let details = RetainedDetails {
                topic: "a".into(),
                qos: 1,
                expires_at_ms: None,
                properties: Vec::new(),
                payload_bytes: bytes.len(),
                payload: Payload::new(bytes.to_vec()),
            };
            let line = serde_json::to_string(&Row::RetainedDetails(Box::new(details))).unwrap();
            let Row::RetainedDetails(back) = serde_json::from_str(&line).unwrap() else { panic!("{line}") };
            assert_eq!(back.payload.bytes(), bytes, "{line}");
        }
    }
}
