//! The events of webhooks: CloudEvents 1.0 in JSON.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use millrace_layers::streams::StreamEntry;
use millrace_mqtt::{Properties, Property, QoS};
use millrace_session::Message;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::clock::Clock;
use crate::encoding::record;

/// An event of a client; a message has a topic of its own instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Connect,
    Disconnect,
    LimitReached,
}

impl EventKind {
    const ALL: [Self; 3] = [Self::Connect, Self::Disconnect, Self::LimitReached];

    /// The event's topic in the store, to which no client can publish.
    pub(crate) const fn topic(self) -> &'static str {
        match self {
            Self::Connect => "$SYS/webhooks/connect",
            Self::Disconnect => "$SYS/webhooks/disconnect",
            Self::LimitReached => "$SYS/webhooks/limit_reached",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Connect => "millrace.client.connected",
            Self::Disconnect => "millrace.client.disconnected",
            Self::LimitReached => "millrace.limit.reached",
        }
    }

    fn of_topic(topic: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.topic() == topic)
    }

    pub(crate) fn message(self, data: &Value) -> Arc<Message> {
        let data = data.to_string();
        let message =
            Message::new(self.topic().into(), QoS::AtMostOnce, false, Properties::EMPTY, data.as_bytes(), 0);
        Arc::new(message)
    }
}

/// `None` when the event cannot be decoded.
pub(super) fn event(broker: &str, entry: &StreamEntry, clock: &Clock) -> Option<Bytes> {
    let (message, _) = record::decode_entry(&entry.body, clock)?;
    let (kind, subject, data) = match EventKind::of_topic(message.topic()) {
        Some(kind) => {
            let data: Value = serde_json::from_slice(message.payload()).ok()?;
            (kind.name(), data["client_id"].clone(), data)
        }
        None => ("millrace.message.published", (&**message.topic()).into(), data(&message)),
    };
    let event = json!({
        "specversion": "1.0",
        "id": entry.position.to_string(),
        "source": format!("/brokers/{broker}"),
        "type": kind,
        "subject": subject,
        "time": rfc3339(entry.at_ms),
        "datacontenttype": "application/json",
        "data": data,
    });
    Some(event.to_string().into())
}

fn data(message: &Message) -> Value {
    let mut data = json!({
        "topic": &**message.topic(),
        "qos": message.qos() as u8,
        "retain": message.retain(),
    });
    match std::str::from_utf8(message.payload()) {
        Ok(text) => data["payload"] = text.into(),
        Err(_) => data["payload_base64"] = STANDARD.encode(message.payload()).into(),
    }
    let mut user_properties = Vec::new();
    for property in message.properties().iter() {
        match property {
            Property::ContentType(value) => data["content_type"] = value.into(),
            Property::ResponseTopic(value) => data["response_topic"] = value.into(),
            Property::CorrelationData(value) => {
                data["correlation_data_base64"] = STANDARD.encode(value).into();
            }
            Property::UserProperty(name, value) => user_properties.push(json!([name, value])),
            _ => {}
        }
    }
    if !user_properties.is_empty() {
        data["user_properties"] = user_properties.into();
    }
    data
}

fn rfc3339(unix_ms: u64) -> Option<String> {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_ms) * 1_000_000).ok()?;
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second, ms) = at.to_hms_milli();
    let month = u8::from(month);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"))
}

#[cfg(test)]
mod tests {
    use millrace_layers::Position;

    use super::*;

    fn event_of(message: &Message) -> Value {
        let clock = Clock::at(1_000_000);
        let body = record::encode_entry(message, 7, &clock).into();
        let position = Position([1; Position::LEN]);
        let entry = StreamEntry { position, at_ms: 1_764_201_600_123, body, sources: vec![0] };
        serde_json::from_slice(&event("acme", &entry, &clock).unwrap()).unwrap()
    }

    #[test]
    fn a_message_is_told_with_what_its_publisher_said() {
        let mut properties = Vec::new();
        Property::ContentType("text/plain").encode(&mut properties);
        Property::UserProperty("a", "b").encode(&mut properties);
        let properties = Properties::from_validated(&properties);
        let event = event_of(&Message::new("a/b".into(), QoS::AtLeastOnce, true, properties, b"21.5", 0));
        let expected = json!({
            "specversion": "1.0", "id": "01".repeat(12), "source": "/brokers/acme",
            "type": "millrace.message.published", "subject": "a/b", "time": "2025-11-27T00:00:00.123Z",
            "datacontenttype": "application/json",
            "data": { "topic": "a/b", "qos": 1, "retain": true, "payload": "21.5",
                      "content_type": "text/plain", "user_properties": [["a", "b"]] },
        });
        assert_eq!(event, expected);
        let binary = Message::new("a".into(), QoS::AtMostOnce, false, Properties::EMPTY, b"\xFF", 0);
        let data = &event_of(&binary)["data"];
        assert_eq!((&data["payload"], &data["payload_base64"]), (&Value::Null, &"/w==".into()));
    }

    #[test]
    fn what_a_client_did_is_told_as_it_was_noted() {
        for kind in EventKind::ALL {
            let noted = json!({ "client_id": "pump-7", "reason": "lost" });
            let event = event_of(&kind.message(&noted));
            assert_eq!(
                (&event["type"], &event["subject"], &event["data"]),
                (&kind.name().into(), &"pump-7".into(), &noted)
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_told() {
        let entry = StreamEntry {
            position: Position::MIN,
            at_ms: 0,
            body: Bytes::from_static(b"x"),
            sources: vec![],
        };
        assert_eq!(event("a", &entry, &Clock::at(0)), None);
    }
}
