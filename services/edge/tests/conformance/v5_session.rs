//! Session state, order, resuming (sections 3.1.2.4, 4.1, 4.2, 4.4 to 4.6 of MQTT 5.0).

use std::time::Duration;

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Packet, PacketType, Property, QoS, ReasonCode};

use crate::clock::pass;
use crate::common::{Client, Server, ack, connect, id, properties, publish, publish_qos};

/// ann with a session that outlives its connection by so much.
fn kept(clean_start: bool, expiry_s: u32) -> Connect<'static> {
    Connect {
        clean_start,
        properties: properties(&[Property::SessionExpiryInterval(expiry_s)]),
        ..connect(V5, "ann")
    }
}

fn is_resumed(client: &Client) -> bool {
    client.connack.as_ref().unwrap().session_present
}

#[test]
fn a_session_is_resumed_with_all_its_state() {
    //= [MQTT-3.1.2-5] [MQTT-3.1.2-23] [MQTT-3.2.2-3] [MQTT-3.1.3-2] [MQTT-4.5.0-1] v5
    let server = Server::start();
    let mut ann = Client::open(&server, kept(true, 60));
    ann.subscribe("a", QoS::AtLeastOnce);
    // A QoS 2 message of the client that is not released.
    ann.send(&Packet::Publish(publish_qos(QoS::ExactlyOnce, 5, "b", b"x")));
    ann.recv_ack(PacketType::PubRec, id(5));
    // A message that it has not acknowledged,
    let mut bob = Client::connect(&server, V5, "bob");
    bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"1"));
    assert_eq!(ann.recv_publish().payload, b"1");
    ann.cut();
    // and one that it was not sent.
    bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"2"));
    let mut ann = Client::open(&server, kept(false, 60));
    assert!(is_resumed(&ann));
    let (first, second) = (ann.recv_publish(), ann.recv_publish());
    assert_eq!((first.payload, first.dup), (&b"1"[..], true));
    assert_eq!((second.payload, second.dup), (&b"2"[..], false));
    ann.send(&Packet::PubRel(ack(id(5))));
    assert_eq!(ann.recv_ack(PacketType::PubComp, id(5)).reason, ReasonCode::SUCCESS);
    bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"3"));
    assert_eq!(ann.recv_publish().payload, b"3");
}

#[test]
fn a_clean_start_discards_the_session() {
    //= [MQTT-3.1.2-4] [MQTT-3.1.4-4] [MQTT-3.2.2-2] v5
    let server = Server::start();
    let mut ann = Client::open(&server, kept(true, 60));
    ann.subscribe("a", QoS::AtLeastOnce);
    let mut bob = Client::connect(&server, V5, "bob");
    bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"1"));
    ann.recv_publish();
    ann.cut();
    bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"2"));
    let mut ann = Client::open(&server, kept(true, 60));
    assert!(!is_resumed(&ann));
    bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"3"));
    ann.expect_nothing();
    // For good: the next one resumes the new session.
    ann.disconnect();
    let mut ann = Client::open(&server, kept(false, 60));
    assert!(is_resumed(&ann));
    ann.expect_nothing();
}

#[test]
fn without_a_session_a_new_one_is_made() {
    //= [MQTT-3.1.2-6] [MQTT-3.2.2-3] v5
    let server = Server::start();
    let mut ann = Client::open(&server, kept(false, 60));
    assert!(!is_resumed(&ann));
    ann.subscribe("a", QoS::AtMostOnce);
    ann.disconnect();
    let mut ann = Client::open(&server, kept(false, 60));
    assert!(is_resumed(&ann));
    ann.send(&Packet::Publish(publish("a", b"x")));
    assert_eq!(ann.recv_publish().topic, "a");
}

#[test]
fn a_session_ends_when_its_expiry_has_passed_and_not_before() {
    //= [MQTT-3.1.2-23] [MQTT-4.1.0-2] v5
    let server = Server::start();
    // Without an expiry it ends with the connection.
    Client::open(&server, kept(true, 0)).cut();
    let mut ann = Client::open(&server, kept(false, 1));
    assert!(!is_resumed(&ann));
    // Late in a second, and almost a second long.
    for _ in 0..2 {
        ann.expect_silence(Duration::from_millis(700));
        ann.cut();
        let mut clock = Client::connect(&server, V5, "clock");
        clock.expect_silence(Duration::from_millis(700));
        ann = Client::open(&server, kept(false, 1));
        assert!(is_resumed(&ann));
    }
    let mut clock = Client::connect(&server, V5, "clock");
    for _ in 0..3 {
        ann.cut();
        clock.expect_silence(Duration::from_millis(1_260));
        ann = Client::open(&server, kept(false, 1));
        assert!(!is_resumed(&ann));
    }
}

#[test]
fn a_session_is_kept_while_its_connection_is_open() {
    //= [MQTT-4.1.0-1] v5
    let server = Server::start();
    let mut bob = Client::connect(&server, V5, "bob");
    for expiry_s in [0, 1] {
        let mut ann = Client::open(&server, kept(true, expiry_s));
        ann.subscribe("a", QoS::AtLeastOnce);
        bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"x"));
        let packet_id = ann.recv_publish().packet_id.unwrap();
        pass(&server, 1);
        // Its subscription is there and its packet id in use.
        bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"y"));
        assert_ne!(ann.recv_publish().packet_id, Some(packet_id));
        ann.disconnect();
    }
    assert!(is_resumed(&Client::open(&server, kept(false, 1))));
}

#[test]
fn a_message_is_added_to_every_session_that_subscribes_to_it() {
    //= [MQTT-4.5.0-1] v5
    let server = Server::start();
    let session = |id, clean_start| Connect { client_id: id, ..kept(clean_start, 60) };
    let ids = ["connected", "away", "elsewhere"];
    let mut clients = ids.map(|id| Client::open(&server, session(id, true)));
    clients[0].subscribe("a/+", QoS::AtLeastOnce);
    clients[1].subscribe("a/#", QoS::ExactlyOnce);
    clients[2].subscribe("b", QoS::ExactlyOnce);
    let [mut connected, away, mut elsewhere] = clients;
    away.disconnect();
    let mut bob = Client::connect(&server, V5, "bob");
    bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a/1", b"1"));
    bob.publish(publish_qos(QoS::ExactlyOnce, 1, "a/1", b"2"));
    let mut away = Client::open(&server, session("away", false));
    for client in [&mut connected, &mut away] {
        assert_eq!([client.recv_publish().payload, client.recv_publish().payload], [b"1", b"2"]);
    }
    elsewhere.expect_nothing();
}

#[test]
fn messages_keep_the_order_of_their_publisher() {
    //= [MQTT-4.6.0-5] [MQTT-4.6.0-6] [MQTT-4.2-1] v5
    let server = Server::with(|config| config.threads = 2);
    let mut subscribers = ["ann", "ben", "cat", "dan"].map(|id| {
        let mut client = Client::open(
            &server,
            Connect { properties: properties(&[Property::ReceiveMaximum(3)]), ..connect(V5, id) },
        );
        client.subscribe("order/#", QoS::ExactlyOnce);
        client
    });
    let mut bob = Client::connect(&server, V5, "bob");
    let count = 200_u16;
    for number in 1..=count {
        let payload = number.to_be_bytes();
        bob.send(&Packet::Publish(publish("order/0", &payload)));
        bob.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, number, "order/1", &payload)));
        bob.send(&Packet::Publish(publish_qos(QoS::ExactlyOnce, count + number, "order/2", &payload)));
    }
    for client in &mut subscribers {
        let mut last = [0_u16; 3];
        while last != [count; 3] {
            match client.recv() {
                Packet::Publish(publish) => {
                    let last = &mut last[publish.qos as usize];
                    *last += 1;
                    assert_eq!(publish.payload, last.to_be_bytes(), "{}", publish.topic);
                    match publish.qos {
                        QoS::AtMostOnce => {}
                        QoS::AtLeastOnce => client.send(&Packet::PubAck(ack(publish.packet_id.unwrap()))),
                        QoS::ExactlyOnce => client.send(&Packet::PubRec(ack(publish.packet_id.unwrap()))),
                    }
                }
                Packet::PubRel(released) => client.send(&Packet::PubComp(ack(released.packet_id))),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn unacknowledged_messages_are_sent_again_in_order() {
    //= [MQTT-4.6.0-6] [MQTT-4.4.0-1] [MQTT-3.3.1-1] v5
    let server = Server::start();
    let mut ann = Client::open(&server, kept(true, 60));
    ann.subscribe("a", QoS::ExactlyOnce);
    let mut bob = Client::connect(&server, V5, "bob");
    let mut sent = Vec::new();
    for number in 1..=10_u16 {
        let qos = if number % 3 == 0 { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
        bob.publish(publish_qos(qos, 1, "a", &number.to_be_bytes()));
        sent.push(ann.recv_publish());
    }
    // Some in the middle are acknowledged.
    for index in [1, 4, 7] {
        ann.send(&Packet::PubAck(ack(sent[index].packet_id.unwrap())));
    }
    ann.ping();
    ann.cut();
    bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"last"));
    let mut ann = Client::open(&server, kept(false, 60));
    for index in [0, 2, 3, 5, 6, 8, 9] {
        let again = ann.recv_publish();
        assert!(again.dup);
        assert_eq!((again.packet_id, again.payload), (sent[index].packet_id, sent[index].payload));
    }
    let last = ann.recv_publish();
    assert_eq!((last.dup, last.payload), (false, &b"last"[..]));
    ann.expect_nothing();
}

#[test]
fn a_stream_of_bytes_may_come_in_any_pieces() {
    //= [MQTT-4.2-1] v5
    let server = Server::start();
    let mut client = Client::raw(&server);
    // CONNECT, SUBSCRIBE "a", PUBLISH "a" with QoS 1, PINGREQ: a byte at a time.
    let bytes =
        b"\x10\x0E\0\x04MQTT\x05\x02\0\0\0\0\x01x\x82\x07\0\x01\0\0\x01a\0\x32\x07\0\x01a\0\x02\0y\xC0\0";
    for byte in bytes {
        client.send_bytes(&[*byte]);
    }
    assert_eq!(client.recv_connack().reason, ReasonCode::SUCCESS);
    assert_eq!(client.recv_suback().reasons, [0]);
    let mut kinds = [(); 3].map(|()| client.recv().packet_type() as u8);
    assert_eq!(kinds[2], PacketType::PingResp as u8);
    kinds.sort_unstable();
    assert_eq!(kinds, [PacketType::Publish, PacketType::PubAck, PacketType::PingResp].map(|kind| kind as u8));
}
