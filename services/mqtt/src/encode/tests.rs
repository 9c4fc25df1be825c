use super::*;
use crate::{ConnAck, Connect, Disconnect, Publish, QoS, Version::*};

fn bytes(p: &Packet<'_>, version: Version) -> Vec<u8> {
    let mut out = Vec::new();
    packet(p, version, &mut out);
    out
}

fn id(id: u16) -> PacketId {
    PacketId::new(id).expect("not 0")
}

#[test]
fn what_need_not_be_said_is_left_out() {
    let success = Ack { packet_id: id(1), reason: ReasonCode::SUCCESS, properties: Properties::EMPTY };
    let refused = Ack { reason: ReasonCode::QUOTA_EXCEEDED, ..success };
    let explained = Ack { properties: Properties(b"\x1F\0\x01x"), ..success };
    let table: &[(Packet<'_>, Version, &[u8])] = &[
        (Packet::PubAck(success), V5, b"\x40\x02\0\x01"),
        (Packet::PubRel(success), V311, b"\x62\x02\0\x01"),
        (Packet::PubRec(refused), V5, b"\x50\x03\0\x01\x97"),
        (Packet::PubRec(refused), V311, b"\x50\x02\0\x01"),
        (Packet::PubAck(explained), V5, b"\x40\x08\0\x01\0\x04\x1F\0\x01x"),
        (Packet::PubAck(explained), V31, b"\x40\x02\0\x01"),
        (Packet::PingReq, V5, b"\xC0\0"),
        (Packet::PingResp, V31, b"\xD0\0"),
        (
            Packet::Disconnect(Disconnect { reason: ReasonCode::SUCCESS, properties: Properties::EMPTY }),
            V5,
            b"\xE0\0",
        ),
        (
            Packet::Disconnect(Disconnect { reason: ReasonCode::SERVER_BUSY, properties: Properties::EMPTY }),
            V5,
            b"\xE0\x02\x89\0",
        ),
        (
            Packet::Disconnect(Disconnect { reason: ReasonCode::SERVER_BUSY, properties: Properties::EMPTY }),
            V311,
            b"\xE0\0",
        ),
    ];
    for (packet, version, expected) in table {
        assert_eq!(bytes(packet, *version), *expected, "{packet:?} {version:?}");
    }
}

#[test]
fn a_packet_without_properties_says_so() {
    //= [MQTT-2.2.2-1] v5
    let publish = Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic: "t",
        packet_id: None,
        properties: Properties::EMPTY,
        payload: b"x",
    };
    assert_eq!(bytes(&Packet::Publish(publish), V5), b"\x30\x05\0\x01t\0x");
    let connack =
        ConnAck { session_present: false, reason: ReasonCode::SUCCESS, properties: Properties::EMPTY };
    assert_eq!(bytes(&Packet::ConnAck(connack), V5), b"\x20\x03\0\0\0");
    let mut out = Vec::new();
    subscribe_ack(PacketType::SubAck, id(1), Properties::EMPTY, &[ReasonCode::GRANTED_QOS_1], V5, &mut out);
    subscribe_ack(PacketType::UnsubAck, id(1), Properties::EMPTY, &[ReasonCode::SUCCESS], V5, &mut out);
    assert_eq!(out, b"\x90\x04\0\x01\0\x01\xB0\x04\0\x01\0\0");
}

#[test]
fn a_publish_head_joins_two_slices_of_properties_and_knows_its_size() {
    let head = PublishHead {
        dup: true,
        qos: QoS::AtLeastOnce,
        retain: true,
        topic: "a/b",
        packet_id: Some(id(258)),
        properties: Properties(b"\x01\x01"),
        more: Properties(b"\x0B\x07"),
        payload_len: 200,
    };
    for (version, expected) in [
        (V5, &b"\x3B\xD4\x01\0\x03a/b\x01\x02\x04\x0B\x07\x01\x01"[..]),
        (V311, b"\x3B\xCF\x01\0\x03a/b\x01\x02"),
        (V31, b"\x3B\xCF\x01\0\x03a/b\x01\x02"),
    ] {
        let mut out = Vec::new();
        head.encode(version, &mut out);
        assert_eq!(out, expected, "{version:?}");
        assert_eq!(head.packet_size(version), out.len() + 200);
    }
}

#[test]
fn a_publish_of_qos_0_has_no_dup_and_no_packet_identifier() {
    //= [MQTT-2.2.1-2] v5
    //= [MQTT-2.3.1-5] v3.1.1
    //= [MQTT-3.3.1-2] v5 v3.1.1
    let head = PublishHead {
        dup: true,
        qos: QoS::AtMostOnce,
        retain: false,
        topic: "t",
        packet_id: None,
        properties: Properties::EMPTY,
        more: Properties::EMPTY,
        payload_len: 0,
    };
    let mut out = Vec::new();
    head.encode(V311, &mut out);
    head.encode(V5, &mut out);
    assert_eq!(out, b"\x30\x03\0\x01t\x30\x04\0\x01t\0");
}

#[test]
fn a_refusal_never_says_that_a_session_is_present() {
    //= [MQTT-3.2.2-6] v5
    //= [MQTT-3.2.2-4] v3.1.1
    let connack =
        ConnAck { session_present: true, reason: ReasonCode::NOT_AUTHORIZED, properties: Properties::EMPTY };
    assert_eq!(bytes(&Packet::ConnAck(connack.clone()), V5), b"\x20\x03\0\x87\0");
    assert_eq!(bytes(&Packet::ConnAck(connack.clone()), V311), b"\x20\x02\0\x05");
    assert_eq!(
        bytes(&Packet::ConnAck(ConnAck { reason: ReasonCode::SUCCESS, ..connack }), V31),
        b"\x20\x02\0\0"
    );
}

#[test]
fn a_suback_of_3_has_one_failure_code() {
    //= [MQTT-3.9.3-2] v3.1.1
    let reasons = [ReasonCode::SUCCESS, ReasonCode::GRANTED_QOS_2, ReasonCode::NOT_AUTHORIZED];
    for version in [V31, V311] {
        let mut out = Vec::new();
        subscribe_ack(PacketType::SubAck, id(1), Properties::EMPTY, &reasons, version, &mut out);
        subscribe_ack(PacketType::UnsubAck, id(1), Properties::EMPTY, &reasons, version, &mut out);
        assert_eq!(out, b"\x90\x05\0\x01\x00\x02\x80\xB0\x02\0\x01", "{version:?}");
    }
}

#[test]
fn a_password_without_a_user_name_is_written_for_version_5_only() {
    //= [MQTT-3.1.2-22] v3.1.1
    let connect = |version| Connect {
        version,
        is_bridge: false,
        clean_start: true,
        keep_alive_s: 0,
        properties: Properties::EMPTY,
        client_id: "",
        will: None,
        user_name: None,
        password: Some(b"p"),
    };
    assert_eq!(bytes(&Packet::Connect(connect(V5)), V5), b"\x10\x10\0\x04MQTT\x05\x42\0\0\0\0\0\0\x01p");
    assert_eq!(bytes(&Packet::Connect(connect(V311)), V311), b"\x10\x0C\0\x04MQTT\x04\x02\0\0\0\0");
    assert_eq!(bytes(&Packet::Connect(connect(V31)), V31), b"\x10\x0E\0\x06MQIsdp\x03\x02\0\0\0\0");
}
