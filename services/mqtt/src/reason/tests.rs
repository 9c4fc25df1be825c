use super::*;
use PacketType as T;

const KINDS: [PacketType; 9] =
    [T::ConnAck, T::PubAck, T::PubRec, T::PubRel, T::PubComp, T::SubAck, T::UnsubAck, T::Disconnect, T::Auth];

#[test]
fn a_code_prints_the_name_of_the_standard() {
    assert_eq!(ReasonCode::MALFORMED_PACKET.to_string(), "Malformed Packet (0x81)");
    assert_eq!(format!("{:?}", ReasonCode::SUCCESS), "Success (0x00)");
    assert_eq!(ReasonCode(0x7F).to_string(), "Unknown (0x7F)");
}

#[test]
fn every_named_code_is_legal_somewhere_and_no_other_is() {
    for code in (0..=u8::MAX).map(ReasonCode) {
        let legal = KINDS.iter().any(|&kind| code.is_legal_in(kind));
        // 0x8D, 0x8E and the like are DISCONNECT's alone; every name has at least one packet.
        assert_eq!(code.name() != "Unknown", legal, "{code}");
    }
}

#[test]
fn each_packet_has_its_own_codes() {
    //= [MQTT-3.4.2-1] v5
    //= [MQTT-3.5.2-1] v5
    //= [MQTT-3.6.2-1] v5
    //= [MQTT-3.7.2-1] v5
    //= [MQTT-3.14.2-1] v5
    let publish_acks: &[u8] = &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
    let release_acks: &[u8] = &[0x00, 0x92];
    let table: &[(PacketType, &[u8])] = &[
        (
            T::ConnAck,
            &[
                0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95,
                0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
            ],
        ),
        (T::PubAck, publish_acks),
        (T::PubRec, publish_acks),
        (T::PubRel, release_acks),
        (T::PubComp, release_acks),
        (T::SubAck, &[0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2]),
        (T::UnsubAck, &[0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91]),
        (
            T::Disconnect,
            &[
                0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90, 0x93,
                0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
            ],
        ),
        (T::Auth, &[0x00, 0x18, 0x19]),
        (T::Publish, &[]),
        (T::PingReq, &[]),
    ];
    for &(kind, codes) in table {
        for byte in 0..=u8::MAX {
            assert_eq!(ReasonCode(byte).is_legal_in(kind), codes.contains(&byte), "{kind:?} {byte:02X}");
        }
    }
}

#[test]
fn a_client_disconnects_with_some_of_the_codes() {
    //= [MQTT-3.14.2-1] v5
    let of_client = [0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99];
    for code in (0..=u8::MAX).map(ReasonCode) {
        let legal = code.is_legal_in_disconnect_of_client();
        assert_eq!(legal, of_client.contains(&code.0), "{code}");
        assert!(!legal || code.is_legal_in(T::Disconnect), "{code}");
    }
}

#[test]
fn refusals_have_a_return_code_in_3_or_none() {
    for (code, return_code) in [
        (ReasonCode::SUCCESS, Some(0)),
        (ReasonCode(5), Some(5)),
        (ReasonCode::UNSUPPORTED_PROTOCOL_VERSION, Some(1)),
        (ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, Some(2)),
        (ReasonCode::SERVER_BUSY, Some(3)),
        (ReasonCode::BAD_USER_NAME_OR_PASSWORD, Some(4)),
        (ReasonCode::NOT_AUTHORIZED, Some(5)),
        (ReasonCode::MALFORMED_PACKET, None),
        (ReasonCode::PACKET_TOO_LARGE, None),
    ] {
        assert_eq!(code.to_return_code().map(|code| code.0), return_code, "{code}");
    }
}
