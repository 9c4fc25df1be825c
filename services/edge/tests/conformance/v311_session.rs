//! Sessions (sections 3.1.2.4, 4.1 and 4.4 of MQTT 3.1.1).

use millrace_mqtt::Version::V311;
use millrace_mqtt::{Connect, Packet, PacketType, Publish, QoS};

use crate::clock::pass;
use crate::common::{Client, Server, ack, connect, id, publish, publish_qos};

/// A client that keeps its session.
fn kept<'a>(id: &'a str) -> Connect<'a> {
    Connect { clean_start: false, ..connect(V311, id) }
}

fn present(client: &Client) -> bool {
    client.connack.as_ref().unwrap().session_present
}

#[test]
fn a_session_is_kept_after_the_connection_and_resumed_by_the_next() {
    //= [MQTT-3.1.2-4] [MQTT-3.1.4-3] [MQTT-3.2.2-2] [MQTT-3.2.2-3] [MQTT-4.1.0-1] v3.1.1
    let server = Server::start();
    let mut publisher = Client::connect(&server, V311, "publisher");
    let mut ann = Client::open(&server, kept("ann"));
    assert!(!present(&ann));
    ann.subscribe("t", QoS::AtLeastOnce);
    ann.disconnect();
    let ann = Client::open(&server, kept("ann"));
    assert!(present(&ann));
    ann.cut();
    let mut ann = Client::open(&server, kept("ann"));
    assert!(present(&ann));
    publisher.publish(publish("t", b"still subscribed"));
    assert_eq!(ann.recv_publish().payload, b"still subscribed");
}

#[test]
fn messages_of_qos_1_and_2_are_stored_for_a_session_without_connection() {
    //= [MQTT-3.1.2-5] [MQTT-4.1.0-1] [MQTT-4.5.0-1] [MQTT-3.2.0-1] v3.1.1
    let server = Server::start();
    let mut publisher = Client::connect(&server, V311, "publisher");
    for cut in [false, true] {
        let mut ann = Client::open(&server, kept("ann"));
        ann.subscribe("t", QoS::ExactlyOnce);
        ann.subscribe("low", QoS::AtLeastOnce);
        if cut {
            ann.cut();
        } else {
            ann.disconnect();
        }
        publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", b"one"));
        publisher.publish(publish_qos(QoS::ExactlyOnce, 2, "t", b"two"));
        publisher.publish(publish_qos(QoS::ExactlyOnce, 3, "low", b"three"));
        publisher.publish(publish_qos(QoS::ExactlyOnce, 4, "other", b"not subscribed"));
        let mut ann = Client::open(&server, kept("ann"));
        for (payload, qos) in
            [(&b"one"[..], QoS::AtLeastOnce), (b"two", QoS::ExactlyOnce), (b"three", QoS::AtLeastOnce)]
        {
            let publish = ann.recv_publish();
            assert_eq!((publish.payload, publish.qos, publish.dup), (payload, qos, false));
        }
        ann.expect_nothing();
        Client::connect(&server, V311, "ann").disconnect();
    }
}

#[test]
fn a_clean_session_discards_what_was_before_and_leaves_nothing() {
    //= [MQTT-3.1.2-6] [MQTT-3.1.4-3] [MQTT-3.2.2-1] [MQTT-3.2.2-3] v3.1.1
    let server = Server::start();
    let mut publisher = Client::connect(&server, V311, "publisher");
    let mut ann = Client::open(&server, kept("ann"));
    ann.subscribe("t", QoS::AtLeastOnce);
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", b"unacknowledged"));
    ann.recv_publish();
    ann.cut();
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", b"waiting"));

    let mut ann = Client::connect(&server, V311, "ann");
    assert!(!present(&ann));
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", b"no longer subscribed"));
    ann.expect_nothing();
    ann.subscribe("t", QoS::AtLeastOnce);
    ann.cut();
    // The clean session ended with its connection.
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", b"for nobody"));
    let mut ann = Client::open(&server, kept("ann"));
    assert!(!present(&ann));
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", b"for nobody"));
    ann.expect_nothing();
}

#[test]
fn retained_messages_outlive_the_session_of_their_publisher() {
    //= [MQTT-3.1.2-7] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    ann.publish(Publish { retain: true, ..publish("t", b"kept") });
    ann.disconnect();
    Client::connect(&server, V311, "ann").cut();
    let mut bob = Client::connect(&server, V311, "bob");
    bob.subscribe("t", QoS::AtMostOnce);
    assert_eq!(bob.recv_publish().payload, b"kept");
}

#[test]
fn state_belongs_to_the_client_identifier() {
    //= [MQTT-3.1.3-2] v3.1.1
    let server = Server::start();
    let mut publisher = Client::connect(&server, V311, "publisher");
    for (client_id, topic) in [("ann", "a"), ("Ann", "b")] {
        let mut client = Client::open(&server, kept(client_id));
        client.subscribe(topic, QoS::AtLeastOnce);
        client.disconnect();
    }
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"for ann"));
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "b", b"for Ann"));
    for (client_id, payload) in [("Ann", b"for Ann"), ("ann", b"for ann")] {
        let mut client = Client::open(&server, kept(client_id));
        assert!(present(&client));
        assert_eq!(client.recv_publish().payload, payload);
        client.expect_nothing();
    }
    assert!(!present(&Client::open(&server, kept("an"))));
}

#[test]
fn a_second_client_with_the_same_identifier_replaces_the_first() {
    //= [MQTT-3.1.4-2] v3.1.1
    for threads in [1, 3] {
        let server = Server::with(|config| config.threads = threads);
        let mut first = Client::open(&server, kept("ann"));
        first.subscribe("t", QoS::AtLeastOnce);
        let mut second = Client::open(&server, kept("ann"));
        first.expect_close();
        assert!(present(&second));
        second.publish(publish_qos(QoS::AtLeastOnce, 1, "t2", b"x"));
        let mut third = Client::connect(&server, V311, "ann");
        second.expect_close();
        assert!(!present(&third));
        third.ping();
    }
}

#[test]
fn what_was_not_acknowledged_is_sent_again_with_its_packet_id_and_dup() {
    //= [MQTT-4.4.0-1] [MQTT-3.3.1-1] [MQTT-4.3.2-1] [MQTT-4.3.3-1] [MQTT-4.1.0-1] [MQTT-4.6.0-6] v3.1.1
    let server = Server::start();
    let mut publisher = Client::connect(&server, V311, "publisher");
    let mut ann = Client::open(&server, kept("ann"));
    ann.subscribe("t", QoS::ExactlyOnce);
    for (number, (qos, payload)) in [
        (QoS::AtLeastOnce, b"a"),
        (QoS::ExactlyOnce, b"b"),
        (QoS::AtLeastOnce, b"c"),
        (QoS::ExactlyOnce, b"d"),
    ]
    .into_iter()
    .enumerate()
    {
        publisher.publish(publish_qos(qos, u16::try_from(number).unwrap() + 1, "t", payload));
    }
    let sent: Vec<Publish<'_>> = (0..4).map(|_| ann.recv_publish()).collect();
    let ids: Vec<_> = sent.iter().map(|publish| publish.packet_id.unwrap()).collect();
    assert!(sent.iter().all(|publish| !publish.dup));
    // The second is received, the third is done.
    ann.send(&Packet::PubRec(ack(ids[1])));
    ann.recv_ack(PacketType::PubRel, ids[1]);
    ann.send(&Packet::PubAck(ack(ids[2])));
    ann.ping();
    ann.cut();
    let again = |client: &mut Client| {
        let expected = |at: usize| Packet::Publish(Publish { dup: true, ..sent[at].clone() });
        assert_eq!(client.recv(), expected(0));
        client.recv_ack(PacketType::PubRel, ids[1]);
        assert_eq!(client.recv(), expected(3));
    };
    let mut ann = Client::open(&server, kept("ann"));
    again(&mut ann);
    ann.expect_nothing();
    // Until they are acknowledged.
    ann.cut();
    let mut ann = Client::open(&server, kept("ann"));
    again(&mut ann);
    ann.send(&Packet::PubAck(ack(ids[0])));
    ann.send(&Packet::PubComp(ack(ids[1])));
    ann.send(&Packet::PubRec(ack(ids[3])));
    ann.recv_ack(PacketType::PubRel, ids[3]);
    ann.send(&Packet::PubComp(ack(ids[3])));
    ann.ping();
    ann.cut();
    Client::open(&server, kept("ann")).expect_nothing();
}

#[test]
fn a_qos_2_message_that_was_received_before_the_cut_is_not_delivered_again_after_it() {
    //= [MQTT-4.1.0-1] [MQTT-4.3.3-2] v3.1.1
    let server = Server::start();
    let mut bob = Client::connect(&server, V311, "bob");
    bob.subscribe("t", QoS::AtMostOnce);
    let message = publish_qos(QoS::ExactlyOnce, 7, "t", b"once");
    let mut ann = Client::open(&server, kept("ann"));
    ann.send(&Packet::Publish(message.clone()));
    ann.recv_ack(PacketType::PubRec, id(7));
    ann.cut();
    assert_eq!(bob.recv_publish().payload, b"once");
    let mut ann = Client::open(&server, kept("ann"));
    ann.send(&Packet::Publish(Publish { dup: true, ..message }));
    ann.recv_ack(PacketType::PubRec, id(7));
    ann.send(&Packet::PubRel(ack(id(7))));
    ann.recv_ack(PacketType::PubComp, id(7));
    bob.expect_nothing();
}

#[test]
fn a_session_lasts_as_long_as_its_connection_even_when_it_would_expire_before() {
    //= [MQTT-4.1.0-2] [MQTT-4.1.0-1] v3.1.1
    let server = Server::with(|config| config.limits.session_expiry_v3_s = 1);
    let mut publisher = Client::connect(&server, V311, "publisher");
    let mut ann = Client::open(&server, kept("ann"));
    let mut bob = Client::connect(&server, V311, "bob");
    ann.subscribe("t", QoS::AtLeastOnce);
    bob.subscribe("t", QoS::AtLeastOnce);
    pass(&server, 2);
    publisher.publish(publish("t", b"x"));
    assert_eq!(ann.recv_publish().payload, b"x");
    assert_eq!(bob.recv_publish().payload, b"x");
    ann.cut();
    assert!(present(&Client::open(&server, kept("ann"))));
}
