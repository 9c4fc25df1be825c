//! Retained messages (section 3.3.1.3 of MQTT 3.1.1).

use std::collections::HashSet;

use millrace_mqtt::Version::V311;
use millrace_mqtt::{Packet, Properties, Publish, QoS, SubscribeOptions, encode};

use crate::common::{Client, Server, ack, id, publish, publish_qos};

fn retained<'a>(topic: &'a str, payload: &'a [u8]) -> Publish<'a> {
    Publish { retain: true, ..publish(topic, payload) }
}

/// The messages that a new subscriber gets at once: topic, payload and QoS.
fn kept(server: &Server, filter: &str, count: usize) -> Vec<(&'static str, &'static [u8], QoS)> {
    let mut bob = Client::connect(server, V311, "bob");
    bob.subscribe(filter, QoS::ExactlyOnce);
    let mut got = Vec::new();
    for _ in 0..count {
        let sent = bob.recv_publish();
        assert!(sent.retain, "{sent:?}");
        got.push((sent.topic, sent.payload, sent.qos));
    }
    bob.expect_nothing();
    got.sort_unstable();
    got
}

#[test]
fn a_retained_message_is_kept_with_its_qos_for_future_subscribers() {
    //= [MQTT-3.3.1-5] [MQTT-3.3.1-6] [MQTT-3.3.1-8] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    for (number, qos) in [(1, QoS::AtLeastOnce), (2, QoS::ExactlyOnce)] {
        ann.publish(Publish { retain: true, ..publish_qos(qos, number, "t", b"x") });
        assert_eq!(kept(&server, "t", 1), [("t", &b"x"[..], qos)]);
    }
}

#[test]
fn a_new_subscription_gets_the_last_retained_message_of_every_matching_topic() {
    //= [MQTT-3.3.1-6] [MQTT-3.3.1-8] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    for (topic, payload) in [
        ("a/b", "old"),
        ("a/b", "new"),
        ("a", "parent"),
        ("a/b/c", "child"),
        ("b", "other"),
        ("$own/a", "hidden"),
    ] {
        ann.publish(retained(topic, payload.as_bytes()));
    }
    let qos = QoS::AtMostOnce;
    let all = [("a", &b"parent"[..], qos), ("a/b", b"new", qos), ("a/b/c", b"child", qos)];
    assert_eq!(kept(&server, "a/#", 3), all);
    assert_eq!(kept(&server, "a/+", 1), all[1..2]);
    assert_eq!(kept(&server, "a/b", 1), all[1..2]);
    assert_eq!(kept(&server, "+", 2), [all[0], ("b", b"other", qos)]);
    assert_eq!(kept(&server, "c", 0), []);
    assert_eq!(kept(&server, "#", 4).len(), 4);
}

#[test]
fn each_of_many_subscribes_sent_at_once_gets_its_retained_messages() {
    //= [MQTT-3.3.1-6] v3.1.1
    const SUBSCRIBES: u16 = 60;
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    for number in 0..SUBSCRIBES {
        for message in 0..30 {
            let topic = format!("f/{number}/{message}");
            ann.publish(Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, &topic, b"x") });
        }
    }
    let mut bob = Client::connect(&server, V311, "bob");
    let mut bytes = Vec::new();
    let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
    // Some filters come again before their retained messages have been sent.
    for (packet_id, number) in (1..).zip((0..SUBSCRIBES).chain(SUBSCRIBES - 10..SUBSCRIBES)) {
        let filter = format!("f/{number}/+");
        encode::subscribe(id(packet_id), Properties::EMPTY, [(&*filter, options)], V311, &mut bytes);
    }
    bob.send_bytes(&bytes);
    let (mut subacks, mut topics) = (0, HashSet::new());
    while subacks < SUBSCRIBES + 10 || topics.len() < usize::from(SUBSCRIBES) * 30 {
        match bob.recv() {
            Packet::SubAck(_) => subacks += 1,
            Packet::Publish(message) => {
                topics.insert(message.topic);
                bob.send(&Packet::PubAck(ack(message.packet_id.unwrap())));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_retained_state_of_a_bridge_comes_to_new_subscriptions() {
    //= [MQTT-3.3.1-5] [MQTT-3.3.1-6] v3.1.1
    let server = Server::start();
    let mut bridge = Client::connect(&server, V311, "bridge");
    let topic = "$SYS/broker/connection/b1/state";
    bridge.publish(Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, topic, b"1") });
    for filter in [topic, "$SYS/broker/connection/+/state", "$SYS/broker/connection/#"] {
        assert_eq!(kept(&server, filter, 1), [(topic, &b"1"[..], QoS::AtLeastOnce)], "{filter}");
    }
}

#[test]
fn a_retained_message_of_qos_0_replaces_the_one_before() {
    //= [MQTT-3.3.1-7] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    ann.publish(Publish { retain: true, ..publish_qos(QoS::ExactlyOnce, 1, "t", b"old") });
    ann.publish(retained("t", b"new"));
    assert_eq!(kept(&server, "t", 1), [("t", &b"new"[..], QoS::AtMostOnce)]);
}

#[test]
fn an_established_subscription_gets_retained_messages_without_retain() {
    //= [MQTT-3.3.1-9] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let mut bob = Client::connect(&server, V311, "live");
    bob.subscribe("t", QoS::AtMostOnce);
    for retain in [true, false] {
        ann.publish(Publish { retain, ..publish("t", b"x") });
        assert!(!bob.recv_publish().retain);
    }
}

#[test]
fn an_empty_retained_message_is_delivered_and_removes_the_one_before() {
    //= [MQTT-3.3.1-10] [MQTT-3.3.1-11] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let mut live = Client::connect(&server, V311, "live");
    live.subscribe("#", QoS::AtLeastOnce);
    for (number, qos) in [(0, QoS::AtMostOnce), (1, QoS::AtLeastOnce), (2, QoS::ExactlyOnce)] {
        let publish = |payload| match number {
            0 => retained("t", payload),
            number => Publish { retain: true, ..publish_qos(qos, number, "t", payload) },
        };
        ann.publish(publish(b"x"));
        assert_eq!(live.recv_publish().payload, b"x");
        // The second time there is nothing to remove, and still nothing is stored.
        for _ in 0..2 {
            ann.publish(publish(b""));
            let sent = live.recv_publish();
            assert_eq!((sent.payload, sent.retain), (&b""[..], false));
            assert_eq!(kept(&server, "t", 0), []);
        }
    }
}

#[test]
fn a_message_without_retain_is_not_kept_and_changes_nothing_that_is() {
    //= [MQTT-3.3.1-12] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    ann.publish(publish_qos(QoS::ExactlyOnce, 1, "t", b"not kept"));
    assert_eq!(kept(&server, "t", 0), []);
    ann.publish(retained("t", b"kept"));
    ann.publish(publish("t", b"not kept"));
    ann.publish(publish("t", b""));
    assert_eq!(kept(&server, "t", 1), [("t", &b"kept"[..], QoS::AtMostOnce)]);
}

#[test]
fn a_message_that_cannot_be_retained_any_more_is_delivered_all_the_same() {
    //= [MQTT-4.5.0-1] [MQTT-3.3.1-9] v3.1.1
    let server = Server::with(|config| {
        config.limits.retained_messages_max = 1;
        // The server's own topics would take the place.
        config.limits.sys_interval_s = 0;
    });
    let mut ann = Client::connect(&server, V311, "ann");
    let mut live = Client::connect(&server, V311, "live");
    live.subscribe("#", QoS::AtMostOnce);
    // A 3.1.1 client cannot learn of the limit, so the server passes on the message that it acknowledges.
    for (topic, qos) in
        [("first", QoS::AtLeastOnce), ("second", QoS::AtLeastOnce), ("third", QoS::ExactlyOnce)]
    {
        ann.publish(Publish { retain: true, ..publish_qos(qos, 1, topic, b"x") });
        let sent = live.recv_publish();
        assert_eq!((sent.topic, sent.retain), (topic, false));
    }
    assert_eq!(kept(&server, "#", 1), [("first", &b"x"[..], QoS::AtLeastOnce)]);
}
