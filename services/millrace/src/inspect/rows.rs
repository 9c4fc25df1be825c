//! Rows of answers: one row is one JSON object, on the socket and with `--json`. Times are unix
//! milliseconds. Invalid UTF-8 in a name, which no client can send, is replaced.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum InspectRow {
    Session(SessionRow),
    SessionDetails(Box<SessionDetailsRow>),
    SessionPurged(SessionPurged),
    Stream(StreamRow),
    StreamDetails(Box<StreamDetails>),
    StreamPurged {
        filter: String,
        messages: u64,
        bytes: u64,
    },
    Retained(RetainedMessageRow),
    RetainedDetails(Box<RetainedDetails>),
    RetainedPurged {
        topic: String,
    },
    BackupProgress {
        bytes: u64,
    },
    BackupDone {
        target: String,
        bytes: u64,
        /// The one version of all keys of a cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    ClusterRestored {
        cluster_file: String,
        version: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RowState {
    Connected,
    /// The server ended before the connection did; its next start removes the entry.
    CutOff,
    Offline,
    Expired,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionRow {
    pub(crate) client_id: String,
    pub(crate) state: RowState,
    pub(crate) offline_since_ms: Option<u64>,
    /// `None` never expires.
    pub(crate) expiry_s: Option<u32>,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) subscriptions: usize,
    /// Unacknowledged messages after the cursor; messages of shared subscriptions wait in their
    /// group and do not count.
    pub(crate) waiting: u64,
    pub(crate) waiting_is_more: bool,
    pub(crate) waiting_bytes: u64,
    pub(crate) oldest_waiting_at_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionDetailsRow {
    #[serde(flatten)]
    pub(crate) session: SessionRow,
    pub(crate) epoch: u64,
    /// The session acknowledged every message up to this position.
    pub(crate) cursor: String,
    pub(crate) acknowledged_after_cursor: usize,
    /// Messages that a limit removed before they were read.
    pub(crate) missed_at_least: u64,
    pub(crate) missed_at_most: u64,
    pub(crate) will: Option<WillRow>,
    pub(crate) filters: Vec<SubscriptionRow>,
    pub(crate) inbound_packet_ids: Vec<u16>,
    pub(crate) outbound_packet_ids: Vec<u16>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WillRow {
    pub(crate) delay_s: u32,
    pub(crate) bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SubscriptionRow {
    pub(crate) filter: String,
    pub(crate) qos: u8,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    pub(crate) retain_handling: u8,
    /// 0 for none.
    pub(crate) identifier: u32,
    /// `None` without stored messages.
    pub(crate) stream: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionPurged {
    pub(crate) client_id: String,
    /// The server never published the session's will.
    pub(crate) will_lost: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamRow {
    /// The filter, with its `$share/group/`.
    pub(crate) filter: String,
    pub(crate) id: u64,
    pub(crate) subscribers: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) partitions: u8,
    pub(crate) oldest_at_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamDetails {
    #[serde(flatten)]
    pub(crate) stream: StreamRow,
    /// Everything up to this position is trimmed.
    pub(crate) floor: String,
    pub(crate) first: Vec<EntryRow>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EntryRow {
    pub(crate) position: String,
    pub(crate) at_ms: u64,
    /// Bytes of topic, properties and payload as stored.
    pub(crate) bytes: usize,
    /// `None` for a message in an unknown format.
    pub(crate) topic: Option<String>,
    /// Beginning of the payload, or of the stored bytes, escaped.
    pub(crate) head: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RetainedMessageRow {
    pub(crate) topic: String,
    pub(crate) qos: u8,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) payload_bytes: usize,
    pub(crate) payload_head: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RetainedDetails {
    pub(crate) topic: String,
    pub(crate) qos: u8,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) payload_bytes: usize,
    #[serde(flatten)]
    pub(crate) payload: Payload,
}

/// As text in JSON when they are text.
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

    /// Empty when the server sent invalid base64.
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
            let line = serde_json::to_string(&InspectRow::RetainedDetails(Box::new(details))).unwrap();
            let InspectRow::RetainedDetails(back) = serde_json::from_str(&line).unwrap() else {
                panic!("{line}")
            };
            assert_eq!(back.payload.bytes(), bytes, "{line}");
        }
    }
}
