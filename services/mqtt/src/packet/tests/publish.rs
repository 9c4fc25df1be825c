use super::*;
use crate::{Properties, QoS};

fn publish(topic: &'static str, payload: &'static [u8]) -> Publish<'static> {
    Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic,
        packet_id: None,
        properties: Properties::EMPTY,
        payload,
    }
}

#[test]
fn flags_topic_and_payload_are_read() {
    //= [MQTT-2.2.1-2] v5
    //= [MQTT-2.3.1-5] v3.1.1
    //= [MQTT-3.3.2-1] v5 v3.1.1
    for version in [V31, V311] {
        assert_eq!(read(version, b"\x30\x07\0\x03a/bhi"), Ok(Packet::Publish(publish("a/b", b"hi"))));
        assert_eq!(read(version, b"\x30\x03\0\x01a"), Ok(Packet::Publish(publish("a", b""))));
        let expected = Publish {
            dup: true,
            qos: QoS::ExactlyOnce,
            retain: true,
            packet_id: Some(id(258)),
            ..publish("a", b"x")
        };
        assert_eq!(read(version, b"\x3D\x06\0\x01a\x01\x02x"), Ok(Packet::Publish(expected)));
    }
    assert_eq!(read(V5, b"\x30\x08\0\x03a/b\0hi"), Ok(Packet::Publish(publish("a/b", b"hi"))));
    let expected = Publish {
        qos: QoS::AtLeastOnce,
        packet_id: Some(id(1)),
        properties: Properties(b"\x01\x01"),
        ..publish("a", b"x")
    };
    assert_eq!(read(V5, b"\x32\x09\0\x01a\0\x01\x02\x01\x01x"), Ok(Packet::Publish(expected)));
}

#[test]
fn qos_3_does_not_exist() {
    //= [MQTT-3.3.1-4] v5 v3.1.1
    for version in ALL {
        malformed(version, b"\x36\x07\0\x01a\0\x01\0x");
        // Also where framing did not refuse it before.
        assert!(decode(0x36, b"\0\x01a\0\x01\0x", Some(version)).is_err());
    }
}

#[test]
fn dup_is_0_for_qos_0() {
    //= [MQTT-3.3.1-2] v5 v3.1.1
    for version in [V311, V5] {
        malformed(version, b"\x38\x05\0\x01a\0x");
    }
    // 3.1 forbids nothing, and DUP says nothing at QoS 0.
    assert_eq!(read(V31, b"\x38\x04\0\x01ax"), Ok(Packet::Publish(publish("a", b"x"))));
}

#[test]
fn a_packet_identifier_is_never_0() {
    //= [MQTT-2.3.1-1] v3.1.1
    for version in ALL {
        malformed(version, b"\x32\x06\0\x01a\0\0\0");
        malformed(version, b"\x34\x06\0\x01a\0\0\0");
    }
}

#[test]
fn a_topic_name_is_utf8_without_nul() {
    //= [MQTT-3.3.2-1] v5 v3.1.1
    //= [MQTT-1.5.4-1] v5
    //= [MQTT-1.5.4-2] v5
    //= [MQTT-1.5.3-1] v3.1.1
    //= [MQTT-1.5.3-2] v3.1.1
    for version in ALL {
        malformed(version, b"\x30\x04\0\x01\xFF\0");
        malformed(version, b"\x30\x06\0\x03\xED\xA0\x80\0");
        malformed(version, b"\x30\x05\0\x02a\0\0");
        malformed(version, b"\x30\x00");
        malformed(version, b"\x30\x03\0\x02a");
    }
    // U+FEFF is kept.
    assert_eq!(read(V311, b"\x30\x05\0\x03\xEF\xBB\xBF"), Ok(Packet::Publish(publish("\u{FEFF}", b""))));
}

#[test]
fn a_topic_name_has_no_wildcard() {
    //= [MQTT-3.3.2-2] v5 v3.1.1
    //= [MQTT-4.7.0-1] v5
    //= [MQTT-4.7.1-1] v3.1.1
    for version in ALL {
        for bytes in [&b"\x30\x04\0\x01#\0"[..], b"\x30\x06\0\x03a/+\0", b"\x30\x06\0\x03a#b\0"] {
            assert_eq!(read(version, bytes), Err(DecodeError::TopicName), "{version:?} {bytes:02X?}");
        }
    }
}

#[test]
fn an_empty_topic_name_needs_an_alias() {
    //= [MQTT-4.7.3-1] v5 v3.1.1
    protocol_error(V5, b"\x30\x03\0\0\0");
    let expected = Publish { properties: Properties(b"\x23\0\x05"), ..publish("", b"x") };
    assert_eq!(read(V5, b"\x30\x07\0\0\x03\x23\0\x05x"), Ok(Packet::Publish(expected)));
    for version in [V31, V311] {
        assert_eq!(read(version, b"\x30\x02\0\0"), Err(DecodeError::TopicName));
    }
}

#[test]
fn cut_properties_are_malformed() {
    malformed(V5, b"\x30\x03\0\x01a");
    malformed(V5, b"\x30\x05\0\x01a\x02\x01");
    malformed(V5, b"\x30\x05\0\x01a\x01\x01");
}
