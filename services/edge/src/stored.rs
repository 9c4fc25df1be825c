//! Decodes stored messages and options for people who inspect a store. Only the edge knows their format, and no event loop needs
//! this module.

use millrace_mqtt::{Property, topic};
use millrace_session::Message;

use crate::clock::Clock;
use crate::encoding::record;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedMessage {
    pub qos: u8,
    /// Unix milliseconds, in whole seconds; `None` when it never expires.
    pub expires_at_ms: Option<u64>,
    /// Names and values, for people.
    pub properties: Vec<(String, Vec<u8>)>,
    /// As in a packet of 5.0, without their length.
    pub encoded_properties: Vec<u8>,
    pub payload: Vec<u8>,
}

/// A retained message; `None` for an unknown format.
#[must_use]
pub fn retained(topic: &str, body: &[u8]) -> Option<DecodedMessage> {
    let clock = unix_clock();
    record::decode(topic.into(), body, &clock).map(|message| taken_apart(&message, &clock))
}

/// A message of a stream, and its topic; `None` for an unknown format.
#[must_use]
pub fn entry(body: &[u8]) -> Option<(String, DecodedMessage)> {
    let clock = unix_clock();
    let (message, _) = record::decode_entry(body, &clock)?;
    Some((message.topic().as_ref().into(), taken_apart(&message, &clock)))
}

/// A clock whose process started in 1970, so that the expiry times of messages are unix times.
fn unix_clock() -> Clock {
    Clock::at(0)
}

fn taken_apart(message: &Message, clock: &Clock) -> DecodedMessage {
    DecodedMessage {
        qos: message.qos() as u8,
        expires_at_ms: message.expires_at_ms().map(|at| clock.unix_at(at)),
        properties: message.properties().iter().map(named).collect(),
        encoded_properties: message.properties().as_bytes().to_vec(),
        payload: message.payload().to_vec(),
    }
}

fn named(property: Property<'_>) -> (String, Vec<u8>) {
    match property {
        Property::ContentType(value) => ("content type".into(), value.into()),
        Property::ResponseTopic(value) => ("response topic".into(), value.into()),
        Property::CorrelationData(value) => ("correlation data".into(), value.into()),
        Property::UserProperty(name, value) => (format!("user property {name}"), value.into()),
        Property::PayloadFormatIndicator(1) => ("payload format".into(), b"UTF-8".into()),
        other => ("property".into(), format!("{other:?}").into_bytes()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionOptions {
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    /// 0: retained messages with each SUBSCRIBE; 1: with the first one only; 2: never.
    pub retain_handling: u8,
}

#[must_use]
pub fn subscription_options(bits: u8) -> SubscriptionOptions {
    SubscriptionOptions {
        qos: bits & 3,
        no_local: bits & 4 != 0,
        retain_as_published: bits & 8 != 0,
        retain_handling: bits >> 4 & 3,
    }
}

/// True for a valid topic filter; shared subscriptions are filters, too.
#[must_use]
pub fn is_filter(text: &str) -> bool {
    topic::Filter::parse(text).is_some()
}

/// True if a topic filter, without a group, matches a topic.
#[must_use]
pub fn is_for(filter: &str, topic: &str) -> bool {
    topic::matches(filter, topic)
}

#[must_use]
pub fn is_topic(text: &str) -> bool {
    topic::is_valid_name(text)
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::{Properties, QoS};

    use super::*;

    #[test]
    fn a_stored_message_is_taken_apart() {
        let mut properties = Vec::new();
        Property::ContentType("text/plain").encode(&mut properties);
        Property::UserProperty("unit", "°C").encode(&mut properties);
        Property::MessageExpiryInterval(60).encode(&mut properties);
        let properties = Properties::from_validated(&properties);
        let clock = Clock::at(1_000_000_000_000);
        let message = Message::new("a".into(), QoS::AtLeastOnce, true, properties, b"21", 5_000);
        let stored = retained("a", &record::encode(&message, &clock)).unwrap();
        assert_eq!((stored.qos, &stored.payload[..]), (1, &b"21"[..]));
        assert_eq!(stored.expires_at_ms, Some(1_000_000_065_000));
        let properties: Vec<_> =
            stored.properties.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        assert_eq!(
            properties,
            [("content type", &b"text/plain"[..]), ("user property unit", "°C".as_bytes())]
        );
        assert_eq!(retained("a", b"\xff of another version"), None);
        assert_eq!(entry(&record::encode_entry(&message, 7, &clock)), Some(("a".into(), stored)));
        assert_eq!(entry(b"of another version"), None);
    }

    #[test]
    fn options_are_taken_apart() {
        let options =
            SubscriptionOptions { qos: 2, no_local: true, retain_as_published: false, retain_handling: 1 };
        assert_eq!(subscription_options(0b01_0110), options);
    }
}
