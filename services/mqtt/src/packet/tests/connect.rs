use super::*;
use crate::{Properties, Property, QoS, ReasonCode};

const HEAD_5: &[u8] = b"\0\x04MQTT\x05";
const HEAD_311: &[u8] = b"\0\x04MQTT\x04";
const HEAD_31: &[u8] = b"\0\x06MQIsdp\x03";

/// A CONNECT with these flags, keep alive 60, and what follows it (for 5.0 without the property
/// length).
fn connect(version: Version, flags: u8, payload: &[u8]) -> Vec<u8> {
    match version {
        V5 => packet(0x10, &[HEAD_5, &[flags, 0, 60, 0], payload]),
        V311 => packet(0x10, &[HEAD_311, &[flags, 0, 60], payload]),
        V31 => packet(0x10, &[HEAD_31, &[flags, 0, 60], payload]),
    }
}

fn plain(version: Version) -> Connect<'static> {
    Connect {
        version,
        is_bridge: false,
        clean_start: true,
        keep_alive_s: 60,
        properties: Properties::EMPTY,
        client_id: "c",
        will: None,
        user_name: None,
        password: None,
    }
}

#[test]
fn the_least_connect_is_read_in_every_version() {
    //= [MQTT-3.1.3-3] v5 v3.1.1
    for version in ALL {
        let bytes = connect(version, 0x02, b"\0\x01c");
        assert_eq!(decode(0x10, &bytes[2..], None), Ok(Packet::Connect(plain(version))));
        assert_eq!(connect_version(&bytes[2..]), Some(version));
        // The client identifier must be there.
        malformed(version, &connect(version, 0x02, b""));
    }
}

#[test]
fn payload_fields_come_in_the_order_of_the_standard() {
    //= [MQTT-3.1.3-1] v5 v3.1.1
    //= [MQTT-3.1.2-9] v5 v3.1.1
    //= [MQTT-3.1.2-17] v5
    //= [MQTT-3.1.2-19] v5 v3.1.1
    //= [MQTT-3.1.2-21] v3.1.1
    for version in ALL {
        let will_properties: &[u8] = if version == V5 { b"\x05\x18\0\0\0\x07" } else { b"" };
        let payload = [b"\0\x01c", will_properties, b"\0\x01t\0\x02wp\0\x01u\0\x01p"].concat();
        let expected = Connect {
            clean_start: false,
            will: Some(Will {
                qos: QoS::ExactlyOnce,
                retain: true,
                properties: Properties(will_properties.get(1..).unwrap_or_default()),
                topic: "t",
                payload: b"wp",
            }),
            user_name: Some("u"),
            password: Some(b"p"),
            ..plain(version)
        };
        assert_eq!(read(version, &connect(version, 0xF4, &payload)), Ok(Packet::Connect(expected)));
    }
}

#[test]
fn connect_properties_are_read() {
    let bytes = packet(0x10, &[HEAD_5, b"\x02\0\0\x08\x11\0\0\0\x0A\x21\0\x14", b"\0\0"]);
    let Ok(Packet::Connect(connect)) = read(V5, &bytes) else { panic!("{:?}", read(V5, &bytes)) };
    let properties: Vec<_> = connect.properties.iter().collect();
    assert_eq!(properties, [Property::SessionExpiryInterval(10), Property::ReceiveMaximum(20)]);
    assert_eq!(connect.client_id, "");
}

#[test]
fn other_protocol_names_and_levels_are_not_supported() {
    for head in [
        &b"\0\x04MQTT\x03"[..],
        b"\0\x04MQTT\x06",
        b"\0\x04MQTT\0",
        b"\0\x04mqtt\x05",
        b"\0\x06MQIsdp\x04",
        b"\0\x06MQIsdp\x05",
        b"\0\x00\x05",
        b"\0\x04MQTT\x85",
        b"\0\x04MQTT\x83",
        b"\0\x06MQIsdp\x84",
    ] {
        let bytes = packet(0x10, &[head, b"\x02\0\0\0\0\0"]);
        assert_eq!(decode(0x10, &bytes[2..], None), Err(DecodeError::UnsupportedVersion), "{head:02X?}");
        assert_eq!(connect_version(&bytes[2..]), None);
    }
    assert!(matches!(decode(0x10, b"\0\x04MQT", None), Err(DecodeError::Malformed(_))));
}

#[test]
fn the_reserved_flag_is_0() {
    //= [MQTT-3.1.2-3] v5 v3.1.1
    for version in [V311, V5] {
        malformed(version, &connect(version, 0x03, b"\0\x01c"));
    }
}

#[test]
fn without_a_will_its_flags_and_fields_are_not_there() {
    //= [MQTT-3.1.2-11] v5 v3.1.1
    //= [MQTT-3.1.2-13] v5 v3.1.1
    //= [MQTT-3.1.2-15] v3.1.1
    for version in [V311, V5] {
        for flags in [0x08, 0x10, 0x18, 0x20] {
            malformed(version, &connect(version, flags, b"\0\x01c"));
        }
    }
    for version in ALL {
        malformed(version, &connect(version, 0x02, b"\0\x01c\0\x01t\0\x02wp"));
    }
}

#[test]
fn a_will_has_qos_0_to_2_and_all_its_fields() {
    //= [MQTT-3.1.2-9] v5 v3.1.1
    //= [MQTT-3.1.2-12] v5
    //= [MQTT-3.1.2-14] v3.1.1
    for version in ALL {
        let will_properties: &[u8] = if version == V5 { b"\0" } else { b"" };
        let fields = [b"\0\x01c", will_properties, b"\0\x01t\0\x01p"].concat();
        for flags in [0x04, 0x0C, 0x14] {
            assert!(read(version, &connect(version, flags, &fields)).is_ok());
        }
        malformed(version, &connect(version, 0x1C, &fields));
        for cut in 3..fields.len() {
            malformed(version, &connect(version, 0x04, &fields[..cut]));
        }
    }
}

#[test]
fn a_will_topic_is_a_topic_name_in_utf8() {
    //= [MQTT-3.1.3-11] v5
    //= [MQTT-3.1.3-10] v3.1.1
    //= [MQTT-4.7.0-1] v5
    //= [MQTT-4.7.1-1] v3.1.1
    for version in ALL {
        let will = |topic: &[u8]| {
            let will_properties: &[u8] = if version == V5 { b"\0" } else { b"" };
            connect(version, 0x04, &[b"\0\x01c", will_properties, topic, b"\0\x01p"].concat())
        };
        malformed(version, &will(b"\0\x01\xFF"));
        malformed(version, &will(b"\0\x01\0"));
        for topic in [&b"\0\0"[..], b"\0\x01#", b"\0\x03a/+"] {
            assert_eq!(read(version, &will(topic)), Err(DecodeError::TopicName), "{topic:02X?}");
        }
    }
}

#[test]
fn credentials_are_there_exactly_when_their_flags_are_set() {
    //= [MQTT-3.1.2-16] v5
    //= [MQTT-3.1.2-17] v5
    //= [MQTT-3.1.2-18] v5 v3.1.1
    //= [MQTT-3.1.2-19] v5 v3.1.1
    //= [MQTT-3.1.2-20] v3.1.1
    //= [MQTT-3.1.2-21] v3.1.1
    for version in ALL {
        // More fields than flags.
        malformed(version, &connect(version, 0x02, b"\0\x01c\0\x01u"));
        malformed(version, &connect(version, 0x82, b"\0\x01c\0\x01u\0\x01p"));
    }
    for version in [V311, V5] {
        // More flags than fields.
        malformed(version, &connect(version, 0x82, b"\0\x01c"));
        malformed(version, &connect(version, 0xC2, b"\0\x01c\0\x01u"));
    }
}

#[test]
fn version_3_1_allows_flags_without_their_fields() {
    assert_eq!(read(V31, &connect(V31, 0xC2, b"\0\x01c")), Ok(Packet::Connect(plain(V31))));
    let expected = Connect { user_name: Some("u"), ..plain(V31) };
    assert_eq!(read(V31, &connect(V31, 0xC2, b"\0\x01c\0\x01u")), Ok(Packet::Connect(expected)));
    malformed(V31, &connect(V31, 0x82, b"\0\x01c\0\x02u"));
}

#[test]
fn version_3_1_may_set_the_flags_that_it_does_not_use() {
    // Bit 0, and QoS and RETAIN of a will that is not there.
    for flags in [0x03, 0x0A, 0x12, 0x1A, 0x22, 0x3B] {
        assert_eq!(
            read(V31, &connect(V31, flags, b"\0\x01c")),
            Ok(Packet::Connect(plain(V31))),
            "{flags:02X}"
        );
    }
    let fields = b"\0\x01c\0\x01t\0\x01p";
    malformed(V31, &connect(V31, 0x1D, fields));
    assert!(read(V31, &connect(V31, 0x05, fields)).is_ok());
    for flags in 0..16 {
        for version in ALL {
            let mut bytes = connect(version, 0x02, b"\0\x01c");
            bytes[0] |= flags;
            assert_eq!(read(version, &bytes).is_ok(), flags == 0 || version == V31, "{version:?} {flags}");
        }
    }
}

#[test]
fn a_bridge_sets_the_highest_bit_of_its_protocol_level() {
    for (version, level_at) in [(V31, 10), (V311, 8)] {
        let mut bytes = connect(version, 0x02, b"\0\x01c");
        bytes[level_at] |= 0x80;
        let expected = Connect { is_bridge: true, ..plain(version) };
        assert_eq!(read(version, &bytes), Ok(Packet::Connect(expected.clone())));
        assert_eq!(connect_version(&bytes[2..]), Some(version));
        let mut encoded = Vec::new();
        crate::encode::packet(&Packet::Connect(expected), version, &mut encoded);
        assert_eq!(encoded, bytes);
    }
}

#[test]
fn only_version_5_has_a_password_without_a_user_name() {
    //= [MQTT-3.1.2-22] v3.1.1
    for version in [V31, V311] {
        malformed(version, &connect(version, 0x42, b"\0\x01c\0\x01p"));
    }
    let expected = Connect { password: Some(b"p"), ..plain(V5) };
    assert_eq!(read(V5, &connect(V5, 0x42, b"\0\x01c\0\x01p")), Ok(Packet::Connect(expected)));
}

#[test]
fn client_id_and_user_name_are_utf8_and_a_password_is_any_bytes() {
    //= [MQTT-3.1.3-4] v5 v3.1.1
    //= [MQTT-3.1.3-12] v5
    //= [MQTT-3.1.3-11] v3.1.1
    for version in ALL {
        malformed(version, &connect(version, 0x02, b"\0\x01\xFF"));
        malformed(version, &connect(version, 0x02, b"\0\x01\0"));
        malformed(version, &connect(version, 0x82, b"\0\x01c\0\x02\xC0\xAF"));
        assert!(read(version, &connect(version, 0xC2, b"\0\x01c\0\x01u\0\x02\xFF\0")).is_ok());
    }
}

#[test]
fn connack_is_read_in_every_version() {
    let connack = |session_present, reason, properties| {
        Ok(Packet::ConnAck(ConnAck { session_present, reason, properties: Properties(properties) }))
    };
    assert_eq!(read(V5, b"\x20\x03\x01\0\0"), connack(true, ReasonCode::SUCCESS, b""));
    assert_eq!(
        read(V5, b"\x20\x06\0\x87\x03\x21\0\x01"),
        connack(false, ReasonCode::NOT_AUTHORIZED, b"\x21\0\x01")
    );
    assert_eq!(read(V311, b"\x20\x02\x01\0"), connack(true, ReasonCode::SUCCESS, b""));
    assert_eq!(read(V311, b"\x20\x02\0\x05"), connack(false, ReasonCode(5), b""));
    assert_eq!(read(V31, b"\x20\x02\x01\0"), connack(false, ReasonCode::SUCCESS, b""));
}

#[test]
fn a_bad_connack_is_refused() {
    //= [MQTT-3.2.2-1] v5
    for version in [V311, V5] {
        malformed(version, b"\x20\x03\x02\0\0");
    }
    for version in ALL {
        malformed(version, b"\x20\x01\0");
        malformed(version, b"\x20\x04\0\0\0\0");
    }
    malformed(V5, b"\x20\x02\0\0");
    malformed(V311, b"\x20\x03\0\0\0");
    protocol_error(V5, b"\x20\x03\0\x01\0");
    protocol_error(V5, b"\x20\x03\0\x8D\0");
    protocol_error(V311, b"\x20\x02\0\x06");
    // A refusal has no session.
    protocol_error(V5, b"\x20\x03\x01\x80\0");
    protocol_error(V311, b"\x20\x02\x01\x05");
}
