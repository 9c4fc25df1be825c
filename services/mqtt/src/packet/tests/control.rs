use super::*;
use crate::{Properties, Property, ReasonCode};

#[test]
fn the_first_packet_is_a_connect() {
    //= [MQTT-3.1.0-1] v5 v3.1.1
    for first in [0x20, 0x30, 0x40, 0x62, 0x82, 0xA2, 0xC0, 0xE0, 0xF0] {
        let result = decode(first, b"\0\x01a", None);
        assert!(matches!(result, Err(DecodeError::Protocol(_))), "{first:02X} {result:?}");
    }
}

#[test]
fn reserved_flags_and_type_0_are_malformed() {
    //= [MQTT-2.1.3-1] v5
    //= [MQTT-2.2.2-1] v3.1.1
    //= [MQTT-3.14.1-1] v5 v3.1.1
    //= [MQTT-3.15.1-1] v5
    for kind in [0, 1, 2, 4, 5, 7, 9, 11, 12, 13, 14, 15] {
        for flags in (0..16).filter(|&flags| kind == 0 || flags != 0) {
            for version in [Some(V311), Some(V5)] {
                let result = decode(kind << 4 | flags, b"", version);
                assert!(matches!(result, Err(DecodeError::Malformed(_))), "{kind} {flags} {result:?}");
            }
        }
    }
}

#[test]
fn version_3_1_may_set_the_header_flags_that_it_does_not_use() {
    for flags in 0..16 {
        assert_eq!(read(V31, &[0xC0 | flags, 0]), Ok(Packet::PingReq));
        for first in [0x40, 0x50, 0x70] {
            assert!(read(V31, &[first | flags, 2, 0, 1]).is_ok(), "{first} {flags}");
        }
        assert!(read(V31, &[0xE0 | flags, 0]).is_ok());
        // QoS 1 is what these have.
        assert_eq!(read(V31, &[0x60 | flags, 2, 0, 1]).is_ok(), flags & 0x06 == 0x02, "{flags}");
    }
}

#[test]
fn pings_have_no_content() {
    for version in ALL {
        assert_eq!(read(version, b"\xC0\0"), Ok(Packet::PingReq));
        assert_eq!(read(version, b"\xD0\0"), Ok(Packet::PingResp));
        malformed(version, b"\xC0\x01\0");
        malformed(version, b"\xD0\x01\0");
    }
}

#[test]
fn disconnect_leaves_out_what_it_need_not_say() {
    let disconnect = |reason, properties| {
        Ok(Packet::Disconnect(Disconnect { reason, properties: Properties(properties) }))
    };
    for version in ALL {
        assert_eq!(read(version, b"\xE0\0"), disconnect(ReasonCode::SUCCESS, b""));
    }
    assert_eq!(read(V5, b"\xE0\x01\x04"), disconnect(ReasonCode::DISCONNECT_WITH_WILL, b""));
    assert_eq!(read(V5, b"\xE0\x02\x8E\0"), disconnect(ReasonCode::SESSION_TAKEN_OVER, b""));
    assert_eq!(read(V5, b"\xE0\x07\0\x05\x11\0\0\0\0"), disconnect(ReasonCode::SUCCESS, b"\x11\0\0\0\0"));
    malformed(V5, b"\xE0\x03\0\0\0");
    malformed(V5, b"\xE0\x02\0\x01");
    malformed(V311, b"\xE0\x01\0");
    malformed(V31, b"\xE0\x01\0");
}

#[test]
fn disconnect_has_a_reason_of_its_own_table() {
    //= [MQTT-3.14.2-1] v5
    for reason in 0..=u8::MAX {
        let legal = ReasonCode(reason).is_legal_in(PacketType::Disconnect);
        assert_eq!(read(V5, &[0xE0, 1, reason]).is_ok(), legal, "{reason:02X}");
    }
    protocol_error(V5, b"\xE0\x01\x01");
}

#[test]
fn auth_has_a_reason_and_a_method() {
    //= [MQTT-3.15.2-1] v5
    let bytes = b"\xF0\x0C\x18\x0A\x15\0\x01m\x16\0\x03abc";
    let Ok(Packet::Auth(auth)) = read(V5, bytes) else { panic!("{:?}", read(V5, bytes)) };
    assert_eq!(auth.reason, ReasonCode::CONTINUE_AUTHENTICATION);
    let properties: Vec<_> = auth.properties.iter().collect();
    assert_eq!(properties, [Property::AuthenticationMethod("m"), Property::AuthenticationData(b"abc")]);

    let success = Auth { reason: ReasonCode::SUCCESS, properties: Properties::EMPTY };
    assert_eq!(read(V5, b"\xF0\0"), Ok(Packet::Auth(success)));
    for reason in 0..=u8::MAX {
        let legal = matches!(reason, 0x00 | 0x18 | 0x19);
        assert_eq!(read(V5, &[0xF0, 6, reason, 4, 0x15, 0, 1, b'm']).is_ok(), legal, "{reason:02X}");
    }
    protocol_error(V5, b"\xF0\x02\x18\0");
    protocol_error(V5, b"\xF0\x06\0\x04\x1F\0\x01r");
    malformed(V5, b"\xF0\x01\x18");
    malformed(V5, b"\xF0\x07\x18\x04\x15\0\x01m\0");
}

#[test]
fn auth_is_a_packet_of_version_5() {
    for version in [V31, V311] {
        protocol_error(version, b"\xF0\0");
    }
}
