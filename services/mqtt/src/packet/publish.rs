//! Decodes PUBLISH. This is the hot path, so it allocates nothing and branches little.

use crate::{
    DecodeError, PacketId, Properties, QoS, Version,
    property::{AllowedProperties, read_properties},
    topic,
    wire::{Reader, utf8},
};

/// Section 3.3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// The sender may have sent the packet before (DUP).
    pub dup: bool,
    pub qos: QoS,
    /// From a client: the server shall retain the message. From the server: the message was
    /// retained when the client subscribed.
    pub retain: bool,
    /// Empty only in 5.0, when a topic alias stands for the topic.
    pub topic: &'a str,
    /// Set exactly when `qos` is above 0.
    pub packet_id: Option<PacketId>,
    /// Empty for 3.x.
    pub properties: Properties<'a>,
    pub payload: &'a [u8],
}

#[inline]
pub(super) fn decode(first: u8, body: &[u8], version: Version) -> Result<Publish<'_>, DecodeError> {
    //= [MQTT-3.3.1-4] v5 v3.1.1
    let qos = QoS::from_bits(first >> 1 & 0x03).ok_or(DecodeError::Malformed("PUBLISH with QoS 3"))?;
    let mut dup = first & 0x08 != 0;
    if dup && qos == QoS::AtMostOnce {
        //= [MQTT-3.3.1-2] v5 v3.1.1
        if version != Version::V31 {
            return Err(DecodeError::Malformed("DUP with QoS 0"));
        }
        // 3.1 forbids nothing here, and gives DUP no meaning at QoS 0.
        dup = false;
    }
    let mut r = Reader::new(body);
    //= [MQTT-3.3.2-1] v5 v3.1.1
    let topic = utf8(r.binary()?)?;
    if !topic::has_name_chars(topic) {
        return Err(bad_topic(topic));
    }
    //= [MQTT-2.2.1-2] v5
    //= [MQTT-2.3.1-5] v3.1.1
    let packet_id = if qos == QoS::AtMostOnce { None } else { Some(r.packet_id()?) };
    let mut has_alias = false;
    let mut properties = Properties::EMPTY;
    if version == Version::V5 {
        let (read, seen) = read_properties(&mut r, &AllowedProperties::PUBLISH)?;
        properties = read;
        has_alias = seen.has_topic_alias();
    }
    if topic.is_empty() && !has_alias {
        return Err(no_topic(version));
    }
    Ok(Publish { dup, qos, retain: first & 0x01 != 0, topic, packet_id, properties, payload: r.rest() })
}

#[cold]
fn bad_topic(topic: &str) -> DecodeError {
    if topic.as_bytes().contains(&0) {
        //= [MQTT-1.5.4-2] v5
        //= [MQTT-1.5.3-2] v3.1.1
        DecodeError::Malformed("a string has U+0000")
    } else {
        //= [MQTT-3.3.2-2] v5 v3.1.1
        DecodeError::TopicName
    }
}

/// 5.0 calls an empty topic name without an alias a protocol error (section 3.3.2.1).
#[cold]
fn no_topic(version: Version) -> DecodeError {
    match version {
        Version::V5 => DecodeError::Protocol("an empty topic name without a topic alias"),
        //= [MQTT-4.7.3-1] v3.1.1
        Version::V31 | Version::V311 => DecodeError::TopicName,
    }
}
