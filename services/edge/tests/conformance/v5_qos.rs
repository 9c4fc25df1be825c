//! Acknowledgements (sections 3.4 to 3.7 and 4.3 of MQTT 5.0).

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Ack, Connect, Packet, PacketType, Properties, Property, Publish, QoS, ReasonCode};

use crate::clock::pass;
use crate::common::{Client, Server, ack, connect, id, list, properties, publish, publish_qos};

/// ann, whose session outlives its connections.
fn kept(clean_start: bool) -> Connect<'static> {
    Connect {
        clean_start,
        properties: properties(&[Property::SessionExpiryInterval(60)]),
        ..connect(V5, "ann")
    }
}

/// A subscriber with QoS 2 of everything in "a/#", and a publisher.
fn pair(server: &Server) -> (Client, Client) {
    let mut ann = Client::open(server, kept(true));
    ann.subscribe("a/#", QoS::ExactlyOnce);
    (ann, Client::connect(server, V5, "bob"))
}

fn nack(number: u16, reason: ReasonCode) -> Ack<'static> {
    Ack { packet_id: id(number), reason, properties: Properties::EMPTY }
}

#[test]
fn a_publish_is_answered_as_its_qos_asks() {
    //= [MQTT-3.3.4-1] [MQTT-2.2.1-5] [MQTT-4.3.2-4] [MQTT-4.3.3-8] [MQTT-4.3.3-11] v5
    let server = Server::start();
    let (mut ann, mut bob) = pair(&server);
    bob.send(&Packet::Publish(publish("a/0", b"0")));
    bob.expect_nothing();
    for number in [1, 77, u16::MAX] {
        bob.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, number, "a/1", b"1")));
        assert_eq!(bob.recv(), Packet::PubAck(ack(id(number))));
        bob.send(&Packet::Publish(publish_qos(QoS::ExactlyOnce, number, "a/2", b"2")));
        assert_eq!(bob.recv(), Packet::PubRec(ack(id(number))));
        bob.send(&Packet::PubRel(ack(id(number))));
        assert_eq!(bob.recv(), Packet::PubComp(ack(id(number))));
    }
    let topics: Vec<_> = (0..7).map(|_| ann.recv_publish().topic).collect();
    assert_eq!(topics, ["a/0", "a/1", "a/2", "a/1", "a/2", "a/1", "a/2"]);
}

#[test]
fn the_server_gives_each_message_a_packet_id_of_its_own() {
    //= [MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.3-1] [MQTT-4.3.2-2] [MQTT-4.3.3-2] v5
    let server = Server::start();
    let (mut ann, mut bob) = pair(&server);
    let mut in_use = HashSet::new();
    for number in 1..=100 {
        let qos = if number % 2 == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
        bob.publish(publish_qos(qos, 7, "a/1", b"x"));
        let received = ann.recv_publish();
        let packet_id = received.packet_id.unwrap();
        assert_eq!((received.qos, received.dup), (qos, false));
        assert!(in_use.insert(packet_id), "{packet_id} is in use");
        // Some are acknowledged at once, most stay in use.
        if number % 10 == 0 {
            ann.send(&Packet::PubAck(ack(packet_id)));
            in_use.remove(&packet_id);
        }
    }
}

#[test]
fn a_qos_1_message_is_unacknowledged_until_puback() {
    //= [MQTT-4.3.2-3] [MQTT-4.4.0-1] [MQTT-3.3.1-1] [MQTT-4.3.2-2] v5
    let server = Server::start();
    let (mut ann, mut bob) = pair(&server);
    bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a/1", b"x"));
    let first = ann.recv_publish();
    assert!(!first.dup);
    for _ in 0..2 {
        // Nothing is sent again while the connection stands.
        ann.expect_nothing();
        ann.cut();
        ann = Client::open(&server, kept(false));
        let again = ann.recv_publish();
        assert_eq!(again, Publish { dup: true, ..first.clone() });
    }
    ann.send(&Packet::PubAck(ack(first.packet_id.unwrap())));
    ann.ping();
    ann.cut();
    let mut ann = Client::open(&server, kept(false));
    ann.expect_nothing();
}

#[test]
fn a_qos_2_message_is_unacknowledged_until_pubrec_and_its_pubrel_until_pubcomp() {
    //= [MQTT-4.3.3-3] [MQTT-4.3.3-4] [MQTT-4.3.3-5] [MQTT-4.3.3-6] [MQTT-4.4.0-1] [MQTT-2.2.1-5] v5
    let server = Server::start();
    let (mut ann, mut bob) = pair(&server);
    bob.publish(publish_qos(QoS::ExactlyOnce, 1, "a/1", b"x"));
    let first = ann.recv_publish();
    let packet_id = first.packet_id.unwrap();
    ann.cut();
    let mut ann = Client::open(&server, kept(false));
    assert_eq!(ann.recv_publish(), Publish { dup: true, ..first });
    ann.send(&Packet::PubRec(ack(packet_id)));
    assert_eq!(ann.recv(), Packet::PubRel(ack(packet_id)));
    for _ in 0..2 {
        ann.expect_nothing();
        ann.cut();
        ann = Client::open(&server, kept(false));
        assert_eq!(ann.recv(), Packet::PubRel(ack(packet_id)));
    }
    ann.send(&Packet::PubComp(ack(packet_id)));
    ann.ping();
    ann.cut();
    let mut ann = Client::open(&server, kept(false));
    ann.expect_nothing();
}

#[test]
fn what_the_client_refuses_is_not_sent_again() {
    //= [MQTT-4.4.0-2] v5
    let server = Server::start();
    let (mut ann, mut bob) = pair(&server);
    bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a/1", b"1"));
    let packet_id = ann.recv_publish().packet_id.unwrap();
    ann.send(&Packet::PubAck(nack(packet_id.get(), ReasonCode::QUOTA_EXCEEDED)));
    bob.publish(publish_qos(QoS::ExactlyOnce, 1, "a/1", b"2"));
    let packet_id = ann.recv_publish().packet_id.unwrap();
    ann.send(&Packet::PubRec(nack(packet_id.get(), ReasonCode::QUOTA_EXCEEDED)));
    // No PUBREL either.
    ann.expect_nothing();
    ann.cut();
    let mut ann = Client::open(&server, kept(false));
    ann.expect_nothing();
}

#[test]
fn after_puback_the_packet_id_stands_for_a_new_message() {
    //= [MQTT-4.3.2-5] v5
    let server = Server::start();
    let (mut ann, mut bob) = pair(&server);
    for (dup, payload) in [(false, b"1"), (true, b"2"), (true, b"3")] {
        bob.publish(Publish { dup, ..publish_qos(QoS::AtLeastOnce, 9, "a/1", payload) });
        assert_eq!(ann.recv_publish().payload, payload);
    }
}

#[test]
fn until_pubrel_a_packet_id_stands_for_the_same_message() {
    //= [MQTT-4.3.3-10] [MQTT-4.3.3-12] v5
    let server = Server::start();
    let (mut ann, mut bob) = pair(&server);
    let again = |dup| Packet::Publish(Publish { dup, ..publish_qos(QoS::ExactlyOnce, 9, "a/1", b"x") });
    for dup in [false, true, false, true] {
        bob.send(&again(dup));
        assert_eq!(bob.recv(), Packet::PubRec(ack(id(9))));
    }
    ann.recv_publish();
    ann.expect_nothing();
    bob.send(&Packet::PubRel(ack(id(9))));
    assert_eq!(bob.recv(), Packet::PubComp(ack(id(9))));
    // From then on it is new.
    bob.send(&again(true));
    assert_eq!(bob.recv(), Packet::PubRec(ack(id(9))));
    ann.recv_publish();
}

#[test]
fn a_message_is_received_once_over_two_connections() {
    //= [MQTT-4.3.3-10] [MQTT-3.1.2-5] v5
    let server = Server::start();
    let mut watcher = Client::connect(&server, V5, "watcher");
    watcher.subscribe("b", QoS::ExactlyOnce);
    let mut ann = Client::open(&server, kept(true));
    ann.send(&Packet::Publish(publish_qos(QoS::ExactlyOnce, 9, "b", b"x")));
    ann.recv_ack(PacketType::PubRec, id(9));
    ann.cut();
    let mut ann = Client::open(&server, kept(false));
    let again = Publish { dup: true, ..publish_qos(QoS::ExactlyOnce, 9, "b", b"x") };
    assert_eq!(ann.publish(again), ReasonCode::SUCCESS);
    watcher.recv_publish();
    watcher.expect_nothing();
}

#[test]
fn a_refused_qos_2_message_leaves_its_packet_id_free() {
    //= [MQTT-4.3.3-9] [MQTT-3.5.2-1] v5
    let server = Server::start();
    let (mut ann, mut bob) = pair(&server);
    let refused = bob.publish(publish_qos(QoS::ExactlyOnce, 9, "$SYS/x", b"x"));
    assert_eq!(refused, ReasonCode::NOT_AUTHORIZED);
    // The same id again, with DUP: a new message, not a repeat.
    let next = Publish { dup: true, ..publish_qos(QoS::ExactlyOnce, 9, "a/1", b"y") };
    assert_eq!(bob.publish(next), ReasonCode::SUCCESS);
    assert_eq!(ann.recv_publish().payload, b"y");
}

#[test]
fn unknown_packet_ids_are_answered_with_0x92() {
    //= [MQTT-3.6.2-1] [MQTT-3.7.2-1] [MQTT-4.3.3-11] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    client.send(&Packet::PubRel(ack(id(5))));
    assert_eq!(client.recv_ack(PacketType::PubComp, id(5)).reason.0, 0x92);
    client.send(&Packet::PubRec(ack(id(6))));
    assert_eq!(client.recv_ack(PacketType::PubRel, id(6)).reason.0, 0x92);
}

#[test]
fn reason_codes_say_what_became_of_a_message() {
    //= [MQTT-3.4.2-1] [MQTT-3.5.2-1] v5
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no_b");
    std::fs::write(&path, "deny publish * b\nallow all * #\n").unwrap();
    let server = Server::with(|config| config.authentication.rules_file = Some(path));
    let (_ann, mut bob) = pair(&server);
    for (topic, reason) in [("a/1", 0x00), ("nobody", 0x10), ("b", 0x87)] {
        for (qos, kind) in [(QoS::AtLeastOnce, PacketType::PubAck), (QoS::ExactlyOnce, PacketType::PubRec)] {
            bob.send(&Packet::Publish(publish_qos(qos, 1, topic, b"x")));
            assert_eq!(bob.recv_ack(kind, id(1)).reason.0, reason, "{topic} {qos:?}");
            if kind == PacketType::PubRec && reason < 0x80 {
                bob.send(&Packet::PubRel(ack(id(1))));
                bob.recv_ack(PacketType::PubComp, id(1));
            }
        }
    }
}

#[test]
fn an_expired_message_is_not_sent_but_acknowledged_to_the_end() {
    //= [MQTT-3.3.2-5] [MQTT-4.3.3-13] v5
    let server = Server::start();
    let (ann, mut bob) = pair(&server);
    ann.cut();
    let expiring = properties(&[Property::MessageExpiryInterval(1)]);
    bob.publish(Publish { properties: expiring, ..publish_qos(QoS::AtLeastOnce, 1, "a/1", b"x") });
    bob.publish(publish_qos(QoS::AtLeastOnce, 2, "a/2", b"stays"));
    bob.send(&Packet::Publish(Publish {
        properties: expiring,
        ..publish_qos(QoS::ExactlyOnce, 3, "a/3", b"x")
    }));
    assert_eq!(bob.recv_ack(PacketType::PubRec, id(3)).reason, ReasonCode::SUCCESS);
    pass(&server, 1);
    let mut ann = Client::open(&server, kept(false));
    assert_eq!(ann.recv_publish().payload, b"stays");
    ann.expect_nothing();
    bob.send(&Packet::PubRel(ack(id(3))));
    assert_eq!(bob.recv_ack(PacketType::PubComp, id(3)).reason, ReasonCode::SUCCESS);
}

#[test]
fn a_message_expires_at_its_time_wherever_in_a_second_it_was_published() {
    //= [MQTT-3.3.2-5] v5
    let server = Server::start();
    let (mut ann, mut bob) = pair(&server);
    let expiring = properties(&[Property::MessageExpiryInterval(1)]);
    for id in 1..=3 {
        ann.cut();
        bob.publish(Publish { properties: expiring, ..publish_qos(QoS::AtLeastOnce, id, "a/1", b"x") });
        bob.expect_silence(Duration::from_millis(1_010));
        ann = Client::open(&server, kept(false));
        ann.expect_nothing();
        bob.expect_silence(Duration::from_millis(250));
    }
}

#[test]
fn a_message_does_not_expire_before_its_time() {
    let server = Server::start();
    let (mut ann, mut bob) = pair(&server);
    // The server's second begins now; the message comes late in it and waits into the next.
    pass(&server, 1);
    ann.expect_silence(Duration::from_millis(700));
    ann.cut();
    let expiring = properties(&[Property::MessageExpiryInterval(1)]);
    bob.publish(Publish { properties: expiring, ..publish_qos(QoS::AtLeastOnce, 1, "a/1", b"x") });
    bob.expect_silence(Duration::from_millis(600));
    let mut ann = Client::open(&server, kept(false));
    assert_eq!(ann.recv_publish().payload, b"x");
}

#[test]
fn a_message_that_was_sent_does_not_expire() {
    //= [MQTT-4.3.3-7] v5
    let server = Server::start();
    let (mut ann, mut bob) = pair(&server);
    let expiring = properties(&[Property::MessageExpiryInterval(1)]);
    bob.publish(Publish { properties: expiring, ..publish_qos(QoS::ExactlyOnce, 1, "a/1", b"x") });
    let first = ann.recv_publish();
    ann.cut();
    pass(&server, 1);
    let mut ann = Client::open(&server, kept(false));
    let again = ann.recv_publish();
    assert_eq!((again.dup, again.packet_id, again.payload), (true, first.packet_id, first.payload));
    ann.send(&Packet::PubRec(ack(again.packet_id.unwrap())));
    ann.recv_ack(PacketType::PubRel, again.packet_id.unwrap());
}

#[test]
fn the_expiry_interval_shrinks_while_a_message_waits() {
    //= [MQTT-3.3.2-6] v5
    let server = Server::start();
    let (mut ann, mut bob) = pair(&server);
    let expiring = || Publish {
        properties: properties(&[Property::MessageExpiryInterval(100)]),
        ..publish_qos(QoS::AtLeastOnce, 1, "a/1", b"x")
    };
    bob.publish(expiring());
    assert_eq!(list(ann.recv_publish().properties), [Property::MessageExpiryInterval(100)]);
    ann.disconnect();
    bob.publish(Publish { retain: true, ..expiring() });
    pass(&server, 1);
    let mut ann = Client::open(&server, kept(false));
    let waited = |publish: Publish<'static>| match list(publish.properties)[..] {
        // Between one and two seconds passed, and the server counts whole ones.
        [Property::MessageExpiryInterval(left)] => assert!((97..=99).contains(&left), "{left}"),
        ref other => panic!("{other:?}"),
    };
    // The one of before is sent again, the one that came meanwhile for the first time,
    waited(ann.recv_publish());
    waited(ann.recv_publish());
    // and one that waited as a retained message.
    let mut later = Client::connect(&server, V5, "later");
    later.subscribe("a/1", QoS::AtMostOnce);
    waited(later.recv_publish());
}
