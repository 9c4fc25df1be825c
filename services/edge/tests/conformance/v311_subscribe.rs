//! SUBSCRIBE and UNSUBSCRIBE (sections 3.8 to 3.12 of MQTT 3.1.1).

use std::path::Path;

use millrace_mqtt::Version::{V31, V311};
use millrace_mqtt::{Connect, Packet, PacketType, Properties, Publish, QoS, SubscribeOptions, encode};

use crate::common::{Client, Server, ack, connect, id, publish, publish_qos};

const ALL: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

fn options(qos: QoS) -> SubscribeOptions {
    SubscribeOptions { qos, ..SubscribeOptions::default() }
}

#[test]
fn a_subscribe_is_answered_with_its_packet_id_and_a_code_for_each_filter_in_their_order() {
    //= [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.8.4-5] [MQTT-3.9.3-1] [MQTT-3.9.3-2] [MQTT-2.3.1-7] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    for [high, low] in [[0, 1], [0x12, 0x34], [0xFF, 0xFF]] {
        ann.send_bytes(&[
            0x82, 26, high, low, 0, 1, b'a', 2, 0, 9, b'$', b's', b'h', b'a', b'r', b'e', b'/', b'/', b'g',
            0, 0, 1, b'b', 0, 0, 1, b'c', 1,
        ]);
        // The second filter is not accepted: the others are granted all the same.
        assert_eq!(ann.recv_bytes().unwrap(), [0x90, 6, high, low, 2, 0x80, 0, 1]);
    }
}

#[test]
fn filters_that_break_the_rules_end_the_connection_and_others_are_refused_one_by_one() {
    //= [MQTT-4.7.1-2] [MQTT-4.7.1-3] [MQTT-4.7.3-1] [MQTT-3.9.3-2] [MQTT-4.8.0-1] v3.1.1
    let server = Server::start();
    for filter in ["", "a#", "a/#/b", "#/", "a+", "+a/b", "a/b+", "##", "a/+b"] {
        let mut ann = Client::connect(&server, V311, "ann");
        let mut bytes = Vec::new();
        encode::subscribe(id(1), Properties::EMPTY, [(filter, options(ALL[0]))], V311, &mut bytes);
        ann.send_bytes(&bytes);
        ann.expect_close();
    }
    let mut ann = Client::connect(&server, V311, "ann");
    // 3.1.1 has no shared subscriptions: for it these are filters like others.
    let bad = ["$share/g", "$share//a"];
    let good = ["/", "//", "a//b", "+", "#", "+/a/#", "/+", "a /b", "$own/#", "$share/g/a"];
    for (filters, expected) in [(&bad[..], 0x80), (&good, 0x02)] {
        for filter in filters {
            let suback = ann.subscribe_all(&[(filter, options(QoS::ExactlyOnce))], Properties::EMPTY);
            assert_eq!(suback.reasons, [expected], "{filter}");
        }
    }
}

#[test]
fn a_subscription_that_is_not_allowed_is_answered_with_the_failure_code() {
    //= [MQTT-3.8.4-5] [MQTT-3.9.3-2] v3.1.1
    let rules = Path::new(env!("CARGO_TARGET_TMPDIR")).join("v311_subscribe_rules.txt");
    std::fs::write(&rules, "deny subscribe * closed/#\nallow all * #\n").unwrap();
    let server = Server::with(|config| config.authentication.rules_file = Some(rules));
    let mut ann = Client::connect(&server, V311, "ann");
    let filters = [("closed/t", options(ALL[0])), ("open", options(ALL[1])), ("#", options(ALL[2]))];
    assert_eq!(ann.subscribe_all(&filters, Properties::EMPTY).reasons, [0x80, 1, 0x80]);
    ann.publish(publish("closed/t", b"x"));
    ann.expect_nothing();
}

#[test]
fn several_filters_in_one_packet_are_as_many_subscriptions() {
    //= [MQTT-3.8.4-4] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    ann.publish(Publish { retain: true, ..publish("a", b"kept a") });
    ann.publish(Publish { retain: true, ..publish("b", b"kept b") });
    let mut bob = Client::connect(&server, V311, "bob");
    // As in a sequence the last of two with the same filter holds.
    let filters =
        [("a", options(ALL[0])), ("b", options(ALL[2])), ("c", options(ALL[2])), ("c", options(ALL[1]))];
    let suback = bob.subscribe_all(&filters, Properties::EMPTY);
    assert_eq!(suback.reasons, [0, 2, 2, 1]);
    assert_eq!(bob.recv_publish().payload, b"kept a");
    assert_eq!(bob.recv_publish().payload, b"kept b");
    for (topic, qos) in [("a", ALL[0]), ("b", ALL[2]), ("c", ALL[1])] {
        ann.publish(publish_qos(QoS::ExactlyOnce, 1, topic, b"x"));
        assert_eq!(bob.recv_publish().qos, qos, "{topic}");
    }
    bob.expect_nothing();
}

#[test]
fn an_identical_filter_replaces_the_subscription_and_retained_messages_come_again() {
    //= [MQTT-3.8.4-3] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    ann.publish(Publish { retain: true, ..publish_qos(QoS::ExactlyOnce, 1, "a/b", b"kept") });
    let mut bob = Client::connect(&server, V311, "bob");
    for qos in [ALL[0], ALL[2], ALL[1]] {
        bob.subscribe("a/+", qos);
        let again = bob.recv_publish();
        assert_eq!((again.payload, again.retain, again.qos), (&b"kept"[..], true, qos));
        ann.publish(publish_qos(QoS::ExactlyOnce, 1, "a/b", b"live"));
        let live = bob.recv_publish();
        assert_eq!((live.payload, live.retain, live.qos), (&b"live"[..], false, qos));
        bob.expect_nothing();
    }
}

#[test]
fn publications_are_not_interrupted_by_subscribing_again() {
    //= [MQTT-3.8.4-3] v3.1.1
    const COUNT: u16 = 400;
    let server = Server::with(|config| config.threads = 2);
    let mut bob = Client::connect(&server, V311, "bob");
    bob.subscribe("t", QoS::AtLeastOnce);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut ann = Client::connect(&server, V311, "ann");
            for number in 1..=COUNT {
                ann.publish(publish_qos(QoS::AtLeastOnce, 1, "t", &number.to_be_bytes()));
            }
        });
        let mut next = 1;
        while next <= COUNT {
            match bob.recv() {
                Packet::Publish(sent) => {
                    assert_eq!(sent.payload, next.to_be_bytes());
                    bob.send(&Packet::PubAck(ack(sent.packet_id.unwrap())));
                    bob.send_bytes(b"\x82\x06\0\x09\0\x01t\x01");
                    next += 1;
                }
                other => assert!(matches!(other, Packet::SubAck(_)), "{other:?}"),
            }
        }
    });
}

#[test]
fn an_unsubscribe_is_answered_with_its_packet_id_also_when_there_is_nothing_to_delete() {
    //= [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT-2.3.1-7] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    for [high, low] in [[0, 1], [0x12, 0x34], [0xFF, 0xFF]] {
        ann.send_bytes(&[0xA2, 5, high, low, 0, 1, b'a']);
        assert_eq!(ann.recv_bytes().unwrap(), [0xB0, 2, high, low]);
    }
}

#[test]
fn an_unsubscribe_deletes_exactly_the_subscription_with_the_same_filter() {
    //= [MQTT-3.10.4-1] [MQTT-3.10.4-2] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let mut bob = Client::connect(&server, V311, "bob");
    bob.subscribe("a/+", QoS::AtMostOnce);
    // These match the same topics or look alike, and are others.
    for filter in ["a/b", "a/#", "A/+", "a/+/", "+/+"] {
        bob.unsubscribe(&[filter]);
    }
    ann.publish(publish("a/b", b"x"));
    assert_eq!(bob.recv_publish().topic, "a/b");
    bob.unsubscribe(&["a/+"]);
    ann.publish(publish("a/b", b"x"));
    bob.expect_nothing();
}

#[test]
fn several_filters_in_one_unsubscribe_are_deleted_with_one_answer() {
    //= [MQTT-3.10.4-6] [MQTT-3.10.4-2] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let mut bob = Client::connect(&server, V311, "bob");
    for filter in ["a", "b", "c"] {
        bob.subscribe(filter, QoS::AtMostOnce);
    }
    bob.unsubscribe(&["a", "unknown", "c", "a"]);
    for topic in ["a", "b", "c"] {
        ann.publish(publish(topic, b"x"));
    }
    assert_eq!(bob.recv_publish().topic, "b");
    bob.expect_nothing();
}

#[test]
fn a_delivery_that_was_begun_is_completed_after_unsubscribe() {
    //= [MQTT-3.10.4-3] [MQTT-3.10.4-2] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let kept = || Connect { clean_start: false, ..connect(V311, "bob") };
    let mut bob = Client::open(&server, kept());
    bob.subscribe("t", QoS::ExactlyOnce);
    for (number, qos) in [(1, QoS::AtLeastOnce), (2, QoS::ExactlyOnce), (3, QoS::ExactlyOnce)] {
        ann.publish(publish_qos(qos, number, "t", b"begun"));
    }
    let ids = [0; 3].map(|_| bob.recv_publish().packet_id.unwrap());
    bob.unsubscribe(&["t"]);
    ann.publish(publish_qos(QoS::ExactlyOnce, 1, "t", b"new"));
    bob.send(&Packet::PubRec(ack(ids[1])));
    bob.recv_ack(PacketType::PubRel, ids[1]);
    bob.send(&Packet::PubComp(ack(ids[1])));
    bob.expect_nothing();
    // The others are sent again until they are acknowledged.
    bob.cut();
    let mut bob = Client::open(&server, kept());
    for packet_id in [ids[0], ids[2]] {
        let again = bob.recv_publish();
        assert_eq!((again.packet_id, again.payload, again.dup), (Some(packet_id), &b"begun"[..], true));
    }
    bob.expect_nothing();
}

#[test]
fn a_ping_is_answered() {
    //= [MQTT-3.12.4-1] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    for _ in 0..3 {
        ann.send_bytes(&[0xC0, 0]);
        assert_eq!(ann.recv_bytes().unwrap(), [0xD0, 0]);
    }
}

#[test]
fn a_bridge_gets_nothing_of_its_own_and_retain_as_it_was_published() {
    // The highest bit of the protocol level, as mosquitto sets it: no statement of the standard.
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    for level in [V31, V311] {
        let connect = |clean_start| Connect { is_bridge: true, clean_start, ..connect(level, "bridge") };
        let mut bridge = Client::open(&server, connect(false));
        bridge.subscribe("#", QoS::AtLeastOnce);
        bridge.publish(publish("from/bridge", b"x"));
        ann.publish(Publish { retain: true, ..publish("from/ann", b"kept") });
        ann.publish(publish("from/ann", b"plain"));
        for (payload, retain) in [(&b"kept"[..], true), (b"plain", false)] {
            let sent = bridge.recv_publish();
            assert_eq!((sent.payload, sent.retain), (payload, retain), "{level:?}");
        }
        bridge.cut();
        // The subscription has its options in a session that is resumed, too.
        let mut bridge = Client::open(&server, connect(false));
        bridge.publish(publish("from/bridge", b"x"));
        ann.publish(Publish { retain: true, ..publish("from/ann", b"kept") });
        let sent = bridge.recv_publish();
        assert_eq!((sent.payload, sent.retain), (&b"kept"[..], true), "{level:?}");
        bridge.expect_nothing();
        bridge.disconnect();
        ann.publish(Publish { retain: true, ..publish("from/ann", b"") });
        Client::open(&server, connect(true)).disconnect();
    }
}
