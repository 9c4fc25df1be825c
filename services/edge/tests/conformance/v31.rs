//! The parts of MQTT 3.1 (MQIsdp) that its clients need. That version has no numbered statements; the sections are those of its
//! specification.

use millrace_mqtt::Version::V31;
use millrace_mqtt::{Connect, Packet, PacketType, Publish, QoS, Version};

use crate::common::{Client, Server, ack, connect, id, publish, publish_qos, will};

const ALL: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

#[test]
fn a_client_is_accepted_without_a_session_present_flag() {
    let server = Server::start();
    for _ in 0..2 {
        // The second time the session is there, but a CONNACK of 3.1 has no Session Present (section 3.2).
        let mut ann = Client::raw(&server);
        ann.version = V31;
        ann.send_bytes(b"\x10\x11\0\x06MQIsdp\x03\x00\0\0\0\x03ann");
        assert_eq!(ann.recv_bytes().unwrap(), [0x20, 2, 0, 0]);
        ann.disconnect();
    }
}

#[test]
fn messages_go_both_ways_at_every_qos() {
    let server = Server::start();
    let mut ann = Client::connect(&server, V31, "ann");
    let mut bob = Client::connect(&server, V31, "bob");
    for (number, granted) in ALL.into_iter().enumerate() {
        bob.subscribe("t/+", granted);
        for published in ALL {
            let number = u16::try_from(number + 1).unwrap();
            ann.publish(match published {
                QoS::AtMostOnce => publish("t/x", b"x"),
                qos => publish_qos(qos, number, "t/x", b"x"),
            });
            let sent = bob.recv_publish();
            assert_eq!((sent.qos, sent.topic, sent.payload), (granted.min(published), "t/x", &b"x"[..]));
            let Some(packet_id) = sent.packet_id else { continue };
            if sent.qos == QoS::AtLeastOnce {
                bob.send(&Packet::PubAck(ack(packet_id)));
                continue;
            }
            bob.send(&Packet::PubRec(ack(packet_id)));
            bob.recv_ack(PacketType::PubRel, packet_id);
            bob.send(&Packet::PubComp(ack(packet_id)));
        }
    }
    bob.unsubscribe(&["t/+"]);
    ann.publish(publish("t/x", b"x"));
    bob.expect_nothing();
}

#[test]
fn clients_of_all_versions_reach_each_other() {
    let server = Server::start();
    let versions = [V31, Version::V311, Version::V5];
    let mut all = versions.map(|version| Client::connect(&server, version, &format!("{version:?}")));
    for client in &mut all {
        client.subscribe("t", QoS::ExactlyOnce);
    }
    for from in 0..3 {
        let payload = [from as u8];
        all[from].send(&Packet::Publish(publish("t", &payload)));
        for to in &mut all {
            assert_eq!(to.recv_publish().payload, payload);
        }
    }
}

#[test]
fn an_empty_client_identifier_is_refused_with_return_code_2() {
    let server = Server::start();
    for clean_start in [true, false] {
        let mut ann = Client::raw(&server);
        ann.send(&Packet::Connect(Connect { clean_start, ..connect(V31, "") }));
        assert_eq!(ann.recv_bytes().unwrap(), [0x20, 2, 0, 2]);
        ann.expect_close();
    }
}

#[test]
fn a_session_is_resumed_with_what_was_not_acknowledged() {
    let server = Server::start();
    let kept = || Connect { clean_start: false, ..connect(V31, "bob") };
    let mut ann = Client::connect(&server, V31, "ann");
    let mut bob = Client::open(&server, kept());
    bob.subscribe("t", QoS::ExactlyOnce);
    ann.publish(publish_qos(QoS::AtLeastOnce, 1, "t", b"one"));
    ann.publish(publish_qos(QoS::ExactlyOnce, 2, "t", b"two"));
    let sent = [bob.recv_publish(), bob.recv_publish()];
    bob.cut();
    ann.publish(publish_qos(QoS::AtLeastOnce, 1, "t", b"three"));
    let mut bob = Client::open(&server, kept());
    for publish in sent {
        assert_eq!(bob.recv_publish(), Publish { dup: true, ..publish });
    }
    let waited = bob.recv_publish();
    assert_eq!((waited.payload, waited.dup), (&b"three"[..], false));
    bob.disconnect();
    // A clean session ends it.
    Client::connect(&server, V31, "bob").disconnect();
    Client::open(&server, kept()).expect_nothing();
}

#[test]
fn packets_that_are_sent_again_may_have_dup_where_3_1_has_it() {
    // Section 2.1: DUP is also of PUBREL, SUBSCRIBE and UNSUBSCRIBE.
    let server = Server::start();
    let mut ann = Client::connect(&server, V31, "ann");
    ann.send_bytes(b"\x8A\x06\0\x01\0\x01t\x01");
    assert_eq!(ann.recv_bytes().unwrap(), b"\x90\x03\0\x01\x01");
    ann.send(&Packet::Publish(publish_qos(QoS::ExactlyOnce, 7, "u", b"x")));
    ann.recv_ack(PacketType::PubRec, id(7));
    ann.send_bytes(b"\x6A\x02\0\x07");
    ann.recv_ack(PacketType::PubComp, id(7));
    ann.send_bytes(b"\xAA\x05\0\x02\0\x01t");
    assert_eq!(ann.recv_bytes().unwrap(), b"\xB0\x02\0\x02");
}

#[test]
fn user_name_and_password_flags_may_stand_without_their_fields() {
    // Section 3.1: the remaining length prevails over the flags.
    let server = Server::start();
    let mut ann = Client::raw(&server);
    ann.version = V31;
    ann.send_bytes(b"\x10\x11\0\x06MQIsdp\x03\xC2\0\0\0\x03ann");
    assert_eq!(ann.recv_bytes().unwrap(), [0x20, 2, 0, 0]);
    ann.ping();
}

#[test]
fn wills_retained_messages_and_takeover_work_as_in_3_1_1() {
    let server = Server::start();
    let mut bob = Client::connect(&server, V31, "bob");
    bob.publish(Publish { retain: true, ..publish("kept", b"k") });
    bob.subscribe("#", QoS::AtMostOnce);
    let sent = bob.recv_publish();
    assert_eq!((sent.retain, sent.payload), (true, &b"k"[..]));
    let mut ann =
        Client::open(&server, Connect { will: Some(will("will/ann", b"gone")), ..connect(V31, "ann") });
    let _again = Client::connect(&server, V31, "ann");
    ann.expect_close();
    assert_eq!(bob.recv_publish().payload, b"gone");
}

#[test]
fn a_violation_ends_the_connection() {
    let server = Server::start();
    for bytes in [
        &b"\x36\x06\0\x01t\0\x01x"[..],
        b"\x30\x03\0\0x",
        b"\x82\x02\0\x01",
        b"\xF0\0",
        b"\x10\x11\0\x06MQIsdp\x03\x02\0\0\0\x03ann",
    ] {
        let mut ann = Client::connect(&server, V31, "ann");
        ann.send_bytes(bytes);
        ann.expect_close();
    }
}
