//! PUBACK, PUBREC, PUBREL and PUBCOMP: their lengths, reason codes and flags in each version.

use super::*;
use crate::{Properties, ReasonCode};

type Wrap = fn(Ack<'static>) -> Packet<'static>;

/// First byte, packet and a reason code other than success.
const KINDS: [(u8, Wrap, u8); 4] = [
    (0x40, Packet::PubAck, 0x10),
    (0x50, Packet::PubRec, 0x97),
    (0x62, Packet::PubRel, 0x92),
    (0x70, Packet::PubComp, 0x92),
];

#[test]
fn two_bytes_are_success_in_every_version() {
    for (first, wrap, _) in KINDS {
        for version in ALL {
            let ack = Ack { packet_id: id(258), reason: ReasonCode::SUCCESS, properties: Properties::EMPTY };
            assert_eq!(read(version, &[first, 2, 1, 2]), Ok(wrap(ack)));
            malformed(version, &[first, 2, 0, 0]);
            malformed(version, &[first, 1, 0]);
            malformed(version, &[first, 0]);
        }
    }
}

#[test]
fn version_5_adds_a_reason_and_then_properties() {
    for (first, wrap, reason) in KINDS {
        let ack = Ack { packet_id: id(1), reason: ReasonCode(reason), properties: Properties::EMPTY };
        assert_eq!(read(V5, &[first, 3, 0, 1, reason]), Ok(wrap(ack)));
        assert_eq!(read(V5, &[first, 4, 0, 1, reason, 0]), Ok(wrap(ack)));
        let ack = Ack { properties: Properties(b"\x1F\0\x01x"), ..ack };
        assert_eq!(read(V5, &[first, 8, 0, 1, reason, 4, 0x1F, 0, 1, b'x']), Ok(wrap(ack)));
        malformed(V5, &[first, 5, 0, 1, reason, 0, 0]);
        malformed(V5, &[first, 4, 0, 1, reason, 1]);
        malformed(V5, &[first, 7, 0, 1, reason, 3, 0x21, 0, 1]);
        for version in [V31, V311] {
            malformed(version, &[first, 3, 0, 1, reason]);
        }
    }
}

#[test]
fn a_reason_of_another_packet_is_a_protocol_error() {
    //= [MQTT-3.4.2-1] v5
    //= [MQTT-3.5.2-1] v5
    //= [MQTT-3.6.2-1] v5
    //= [MQTT-3.7.2-1] v5
    for (first, _, _) in KINDS {
        for reason in 0..=u8::MAX {
            let kind = PacketType::from_bits(first >> 4).expect("a type");
            let legal = ReasonCode(reason).is_legal_in(kind);
            assert_eq!(read(V5, &[first, 3, 0, 1, reason]).is_ok(), legal, "{kind:?} {reason:02X}");
        }
        protocol_error(V5, &[first, 3, 0, 1, 0x81]);
    }
}

#[test]
fn pubrel_has_the_flags_0010() {
    //= [MQTT-3.6.1-1] v5 v3.1.1
    for flags in 0..16 {
        for version in ALL {
            // 3.1 has DUP here, and does not use RETAIN.
            let legal = flags == 2 || (version == V31 && flags & 0x06 == 0x02);
            assert_eq!(decode(0x60 | flags, b"\0\x01", Some(version)).is_ok(), legal, "{version:?} {flags}");
        }
    }
}
