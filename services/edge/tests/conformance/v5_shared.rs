//! Shared subscriptions (section 4.8.2 of MQTT 5.0).

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Ack, Connect, Packet, PacketType, Properties, Property, Publish, QoS, ReasonCode};

use crate::common::{Client, Server, ack, connect, properties, publish_qos};

fn kept(id: &str, clean_start: bool) -> Connect<'_> {
    Connect {
        clean_start,
        properties: properties(&[Property::SessionExpiryInterval(60), Property::ReceiveMaximum(1)]),
        ..connect(V5, id)
    }
}

/// ann and ben, who share a subscription, and one message that ann has not acknowledged.
fn one_unacknowledged(server: &Server, qos: QoS) -> (Client, Client, Publish<'static>) {
    let mut ann = Client::open(server, kept("ann", true));
    ann.subscribe("$share/g/a", QoS::ExactlyOnce);
    Client::connect(server, V5, "bob").publish(publish_qos(qos, 1, "a", b"ann's"));
    let sent = ann.recv_publish();
    assert_eq!(sent.payload, b"ann's");
    let mut ben = Client::open(server, kept("ben", true));
    ben.subscribe("$share/g/a", QoS::ExactlyOnce);
    (ann, ben, sent)
}

#[test]
fn the_granted_qos_holds_for_each_member() {
    //= [MQTT-4.8.2-3] v5
    let server = Server::start();
    let mut members = [QoS::AtMostOnce, QoS::AtLeastOnce].map(|qos| {
        let mut member = Client::connect(&server, V5, &format!("member {qos:?}"));
        member.subscribe("$share/g/a", qos);
        member
    });
    let mut bob = Client::connect(&server, V5, "bob");
    for _ in 0..10 {
        bob.publish(publish_qos(QoS::ExactlyOnce, 1, "a", b"x"));
    }
    let mut total = 0;
    for (member, qos) in members.iter_mut().zip([QoS::AtMostOnce, QoS::AtLeastOnce]) {
        member.send(&Packet::PingReq);
        let mut count = 0;
        while let Packet::Publish(publish) = member.recv() {
            assert_eq!(publish.qos, qos);
            count += 1;
        }
        assert!(count > 0, "each member gets its share");
        total += count;
    }
    assert_eq!(total, 10);
}

#[test]
fn a_qos_2_message_that_was_sent_is_completed_with_the_same_client() {
    //= [MQTT-4.8.2-4] v5
    let server = Server::start();
    let (ann, mut ben, sent) = one_unacknowledged(&server, QoS::ExactlyOnce);
    ann.cut();
    ben.expect_nothing();
    let mut ann = Client::open(&server, kept("ann", false));
    assert_eq!(ann.recv_publish(), Publish { dup: true, ..sent.clone() });
    ann.send(&Packet::PubRec(ack(sent.packet_id.unwrap())));
    ann.recv_ack(PacketType::PubRel, sent.packet_id.unwrap());
    ben.expect_nothing();
}

#[test]
fn a_qos_2_message_that_was_sent_goes_to_nobody_else_when_the_session_ends() {
    //= [MQTT-4.8.2-5] v5
    let server = Server::start();
    let (ann, mut ben, _) = one_unacknowledged(&server, QoS::ExactlyOnce);
    ann.cut();
    // A clean start ends the session.
    let mut ann = Client::connect(&server, V5, "ann");
    ann.expect_nothing();
    ben.expect_nothing();
}

#[test]
fn a_message_that_a_member_refuses_goes_to_nobody_else() {
    //= [MQTT-4.8.2-6] v5
    let server = Server::start();
    for (qos, refuse) in [
        (QoS::AtLeastOnce, Packet::PubAck as fn(Ack<'static>) -> Packet<'static>),
        (QoS::ExactlyOnce, Packet::PubRec),
    ] {
        let (mut ann, mut ben, sent) = one_unacknowledged(&server, qos);
        let packet_id = sent.packet_id.unwrap();
        let reason = ReasonCode::UNSPECIFIED_ERROR;
        ann.send(&refuse(Ack { packet_id, reason, properties: Properties::EMPTY }));
        ann.expect_nothing();
        ben.expect_nothing();
        ann.disconnect();
        Client::connect(&server, V5, "ann").expect_nothing();
        ben.expect_nothing();
    }
}
