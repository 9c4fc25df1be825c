//! SUBSCRIBE to UNSUBACK (sections 3.8 to 3.11 of MQTT 5.0) and overlapping subscriptions (3.3.4).

use std::path::PathBuf;

use millrace_mqtt::Version::V5;
use millrace_mqtt::{
    Connect, Packet, PacketType, Properties, Property, Publish, QoS, ReasonCode, RetainHandling,
    SubscribeOptions, encode,
};

use crate::common::{Client, Server, ack, connect, id, list, properties, publish, publish_qos};

const QOS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

fn options(qos: QoS) -> SubscribeOptions {
    SubscribeOptions { qos, ..Default::default() }
}

/// A rule file that denies subscribing to "secret".
fn no_secret(file: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
    std::fs::write(&path, "deny subscribe * secret\nallow all * #\n").unwrap();
    path
}

/// The subscription identifiers of a message, in order of size.
fn identifiers(publish: &Publish<'static>) -> Vec<u32> {
    let mut found: Vec<u32> = list(publish.properties)
        .into_iter()
        .filter_map(|property| match property {
            Property::SubscriptionIdentifier(identifier) => Some(identifier),
            _ => None,
        })
        .collect();
    found.sort_unstable();
    found
}

fn subscribe_with_identifier(client: &mut Client, filter: &str, qos: QoS, identifier: u32) {
    let identifier = properties(&[Property::SubscriptionIdentifier(identifier)]);
    assert_eq!(client.subscribe_all(&[(filter, options(qos))], identifier).reasons, [qos as u8]);
}

#[test]
fn suback_has_the_packet_id_and_a_reason_for_each_filter_in_order() {
    //= [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.8.4-6] [MQTT-3.8.4-7] [MQTT-2.2.1-6] v5
    //= [MQTT-3.9.3-1] [MQTT-3.9.3-2] v5
    let server = Server::with(|config| config.authentication.rules_file = Some(no_secret("no_secret_1")));
    let mut client = Client::connect(&server, V5, "ann");
    let deep = "a/".repeat(200);
    let expected = [
        ("a", QoS::ExactlyOnce, 0x02),
        ("b/#", QoS::AtMostOnce, 0x00),
        ("secret", QoS::AtLeastOnce, 0x87),
        ("c", QoS::AtLeastOnce, 0x01),
        ("$share/g/a", QoS::AtLeastOnce, 0x01),
        // Correctly formed, but with more levels than the server takes.
        (&deep, QoS::AtLeastOnce, 0x8F),
    ];
    let mut filters: Vec<_> = expected.iter().map(|(text, qos, _)| (*text, options(*qos))).collect();
    let mut reasons: Vec<u8> = expected.iter().map(|(.., reason)| *reason).collect();
    for number in [1, 4711, u16::MAX] {
        let mut bytes = Vec::new();
        encode::subscribe(id(number), Properties::EMPTY, filters.iter().copied(), V5, &mut bytes);
        client.send_bytes(&bytes);
        let suback = client.recv_suback();
        assert_eq!((suback.packet_id, suback.reasons), (id(number), &*reasons));
        filters.reverse();
        reasons.reverse();
    }
    // The refused filter is not subscribed, the granted one is.
    client.publish(publish("secret", b"x"));
    client.send(&Packet::Publish(publish("b/c", b"x")));
    assert_eq!(client.recv_publish().topic, "b/c");
    client.expect_nothing();
}

#[test]
fn several_filters_are_like_several_subscribes() {
    //= [MQTT-3.8.4-5] [MQTT-3.8.4-3] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    // The second "a" replaces the first.
    let filters =
        [("a", options(QoS::ExactlyOnce)), ("b", options(QoS::AtLeastOnce)), ("a", options(QoS::AtMostOnce))];
    assert_eq!(client.subscribe_all(&filters, Properties::EMPTY).reasons, [2, 1, 0]);
    for (topic, qos) in [("a", QoS::AtMostOnce), ("b", QoS::AtLeastOnce)] {
        client.send(&Packet::Publish(publish_qos(QoS::ExactlyOnce, 1, topic, b"x")));
        let received = client.recv_publish();
        assert_eq!((received.topic, received.qos), (topic, qos));
        client.recv_ack(PacketType::PubRec, id(1));
        client.send(&Packet::PubRel(ack(id(1))));
        client.recv_ack(PacketType::PubComp, id(1));
    }
}

#[test]
fn a_subscription_with_the_same_filter_replaces_the_one_before() {
    //= [MQTT-3.8.4-3] [MQTT-3.8.4-4] v5
    let server = Server::start();
    let mut bob = Client::connect(&server, V5, "bob");
    bob.publish(Publish { retain: true, ..publish("a", b"retained") });
    let mut client = Client::connect(&server, V5, "ann");
    for identifier in 1..=3 {
        subscribe_with_identifier(&mut client, "a", QoS::AtMostOnce, identifier);
        // Retained messages are sent each time,
        let retained = client.recv_publish();
        assert_eq!((retained.payload, identifiers(&retained)), (&b"retained"[..], vec![identifier]));
        bob.publish(publish("a", b"live"));
        // and there is one subscription, the last one.
        let live = client.recv_publish();
        assert_eq!((live.payload, identifiers(&live)), (&b"live"[..], vec![identifier]));
        client.expect_nothing();
    }
}

#[test]
fn nothing_is_lost_while_a_subscription_is_replaced() {
    //= [MQTT-3.8.4-4] v5
    let server = Server::with(|config| config.threads = 2);
    let mut client = Client::connect(&server, V5, "ann");
    client.subscribe("a", QoS::AtLeastOnce);
    let mut bob = Client::connect(&server, V5, "bob");
    let count = 200_u16;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=count {
                bob.publish(publish_qos(QoS::AtLeastOnce, number, "a", &number.to_be_bytes()));
            }
        });
        let mut next = 1;
        while next <= count {
            let mut bytes = Vec::new();
            encode::subscribe(id(1), Properties::EMPTY, [("a", options(QoS::AtLeastOnce))], V5, &mut bytes);
            client.send_bytes(&bytes);
            loop {
                match client.recv() {
                    Packet::SubAck(_) if next <= count => break,
                    Packet::SubAck(_) => return,
                    Packet::Publish(publish) => {
                        assert_eq!(publish.payload, next.to_be_bytes());
                        client.send(&Packet::PubAck(ack(publish.packet_id.unwrap())));
                        next += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    });
}

#[test]
fn messages_come_at_the_lower_of_both_qos() {
    //= [MQTT-3.8.4-8] v5
    let server = Server::start();
    let mut bob = Client::connect(&server, V5, "bob");
    for granted in QOS {
        let mut client = Client::connect(&server, V5, "ann");
        client.subscribe("a", granted);
        for published in QOS {
            let packet_id = (published != QoS::AtMostOnce).then(|| id(1));
            bob.publish(Publish { qos: published, packet_id, ..publish("a", b"x") });
            assert_eq!(client.recv_publish().qos, granted.min(published));
            bob.publish(Publish { qos: published, packet_id, retain: true, ..publish("r", b"x") });
            // Retained ones, too.
            let mut later = Client::connect(&server, V5, "later");
            later.subscribe("r", granted);
            assert_eq!(later.recv_publish().qos, granted.min(published));
        }
    }
}

#[test]
fn overlapping_subscriptions_get_one_copy_at_the_highest_qos_with_every_identifier() {
    //= [MQTT-3.3.4-2] [MQTT-3.3.4-3] [MQTT-3.3.4-4] v5
    let server = Server::start();
    let mut bob = Client::connect(&server, V5, "bob");
    let mut client = Client::connect(&server, V5, "ann");
    subscribe_with_identifier(&mut client, "a/#", QoS::AtMostOnce, 1);
    subscribe_with_identifier(&mut client, "a/+", QoS::AtLeastOnce, 268_435_455);
    client.subscribe("a/b", QoS::AtMostOnce);
    subscribe_with_identifier(&mut client, "+/c", QoS::ExactlyOnce, 7);
    for (topic, qos, expected) in [
        ("a/b", QoS::AtLeastOnce, vec![1, 268_435_455]),
        ("a/c", QoS::ExactlyOnce, vec![1, 7, 268_435_455]),
        ("a", QoS::AtMostOnce, vec![1]),
    ] {
        bob.publish(publish_qos(QoS::ExactlyOnce, 1, topic, b"x"));
        let received = client.recv_publish();
        assert_eq!((received.topic, received.qos, identifiers(&received)), (topic, qos, expected));
        client.expect_nothing();
    }
}

#[test]
fn of_several_copies_each_has_the_identifier_of_its_subscription() {
    //= [MQTT-3.3.4-5] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    // Shared subscriptions are copies of their own.
    for (filter, identifier) in [("a", 1), ("$share/g/a", 2), ("$share/h/a", 3)] {
        subscribe_with_identifier(&mut client, filter, QoS::AtMostOnce, identifier);
    }
    let mut bob = Client::connect(&server, V5, "bob");
    bob.publish(publish("a", b"x"));
    let mut copies: Vec<_> = (0..3).map(|_| identifiers(&client.recv_publish())).collect();
    copies.sort_unstable();
    assert_eq!(copies, [[1], [2], [3]]);
    client.expect_nothing();
}

#[test]
fn no_local_keeps_a_clients_own_messages_from_it() {
    //= [MQTT-3.8.3-3] v5
    let server = Server::start();
    let mut ann = Client::connect(&server, V5, "ann");
    let no_local = SubscribeOptions { no_local: true, ..options(QoS::ExactlyOnce) };
    ann.subscribe_all(&[("a", no_local)], Properties::EMPTY);
    ann.publish(publish("a", b"own"));
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        assert!(!ann.publish(publish_qos(qos, 1, "a", b"own")).is_error());
    }
    ann.publish(Publish { properties: properties(&[Property::ContentType("x")]), ..publish("a", b"own") });
    Client::connect(&server, V5, "bob").publish(publish("a", b"bob's"));
    assert_eq!(ann.recv_publish().payload, b"bob's");
    // Without the option a client gets its own.
    ann.subscribe("a", QoS::AtMostOnce);
    ann.send(&Packet::Publish(publish("a", b"own")));
    assert_eq!(ann.recv_publish().payload, b"own");
}

#[test]
fn a_subscription_with_no_local_adds_nothing_to_a_copy_of_a_clients_own_message() {
    //= [MQTT-3.8.3-3] v5
    let server = Server::start();
    let with = |number| properties(&[Property::SubscriptionIdentifier(number)]);
    let plain = SubscribeOptions { retain_handling: RetainHandling::DoNotSend, ..options(QoS::AtLeastOnce) };
    let no_local =
        SubscribeOptions { qos: QoS::ExactlyOnce, no_local: true, retain_as_published: true, ..plain };
    let message_of = |client: &mut Client| loop {
        match client.recv() {
            Packet::Publish(message) => {
                match (message.qos, message.packet_id) {
                    (QoS::AtLeastOnce, Some(id)) => client.send(&Packet::PubAck(ack(id))),
                    (QoS::ExactlyOnce, Some(id)) => client.send(&Packet::PubRec(ack(id))),
                    _ => {}
                }
                return message;
            }
            Packet::PubRec(answer) => client.send(&Packet::PubRel(answer)),
            _ => {}
        }
    };
    for (name, expiry_s) in [("ann", 0), ("lasting ann", 60)] {
        let expiry = properties(&[Property::SessionExpiryInterval(expiry_s)]);
        let mut ann = Client::open(&server, Connect { properties: expiry, ..connect(V5, name) });
        ann.subscribe_all(&[("a/+", no_local)], with(1));
        ann.subscribe_all(&[("a/#", plain)], with(2));
        ann.subscribe_all(&[("+/b", no_local)], with(3));
        let mut bob = Client::connect(&server, V5, "bob");
        for (qos, ann_s) in [(QoS::AtMostOnce, 0), (QoS::AtLeastOnce, 1), (QoS::ExactlyOnce, 1)] {
            let message = |payload| match qos {
                QoS::AtMostOnce => publish("a/b", payload),
                _ => publish_qos(qos, 9, "a/b", payload),
            };
            ann.send(&Packet::Publish(Publish { retain: qos == QoS::AtLeastOnce, ..message(b"own") }));
            let own = message_of(&mut ann);
            assert_eq!((own.qos as u8, own.retain, identifiers(&own)), (ann_s, false, vec![2]), "{name}");
            bob.send(&Packet::Publish(message(b"bob's")));
            let bobs = message_of(&mut ann);
            assert_eq!((bobs.payload, bobs.qos, identifiers(&bobs)), (&b"bob's"[..], qos, vec![1, 2, 3]));
        }
    }
}

#[test]
fn no_local_keeps_a_clients_own_retained_messages_from_it_on_any_connection() {
    //= [MQTT-3.8.3-3] v5
    let server = Server::start();
    let mut ann = Client::connect(&server, V5, "ann");
    let mut bob = Client::connect(&server, V5, "bob");
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let topics = if qos == QoS::AtLeastOnce { ["a/1", "a/2"] } else { ["a/3", "a/4"] };
        ann.publish(Publish { retain: true, ..publish_qos(qos, 1, topics[0], b"own") });
        bob.publish(Publish { retain: true, ..publish_qos(qos, 1, topics[1], b"bob's") });
    }
    let no_local = SubscribeOptions { no_local: true, ..options(QoS::AtMostOnce) };
    for _ in 0..2 {
        ann.subscribe_all(&[("a/+", no_local)], Properties::EMPTY);
        for _ in 0..2 {
            assert_eq!(ann.recv_publish().payload, b"bob's");
        }
        ann.expect_nothing();
        ann.disconnect();
        ann = Client::connect(&server, V5, "ann");
    }
    ann.subscribe("a/1", QoS::AtMostOnce);
    assert_eq!(ann.recv_publish().payload, b"own");
}

#[test]
fn no_local_on_a_shared_subscription_is_a_protocol_error() {
    //= [MQTT-3.8.3-4] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    let no_local = SubscribeOptions { no_local: true, ..options(QoS::AtMostOnce) };
    let mut bytes = Vec::new();
    encode::subscribe(id(1), Properties::EMPTY, [("$share/g/a", no_local)], V5, &mut bytes);
    client.send_bytes(&bytes);
    client.expect_disconnect(ReasonCode::PROTOCOL_ERROR);
}

#[test]
fn retain_handling_decides_when_retained_messages_are_sent() {
    //= [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11] v5
    let server = Server::start();
    let mut bob = Client::connect(&server, V5, "bob");
    for topic in ["a/1", "a/2", "b"] {
        bob.publish(Publish { retain: true, ..publish(topic, b"x") });
    }
    let send = [true, true];
    let send_if_new = [true, false];
    let do_not_send = [false, false];
    for (retain_handling, expected) in [
        (RetainHandling::Send, send),
        (RetainHandling::SendIfNew, send_if_new),
        (RetainHandling::DoNotSend, do_not_send),
    ] {
        let mut client = Client::connect(&server, V5, "ann");
        for sent in expected {
            let options = SubscribeOptions { retain_handling, ..options(QoS::AtMostOnce) };
            client.subscribe_all(&[("a/+", options)], Properties::EMPTY);
            if sent {
                let mut topics = [(); 2].map(|()| client.recv_publish().topic);
                topics.sort_unstable();
                assert_eq!(topics, ["a/1", "a/2"], "{retain_handling:?}");
            }
            client.expect_nothing();
        }
        // New again.
        client.unsubscribe(&["a/+"]);
        let options = SubscribeOptions { retain_handling, ..options(QoS::AtMostOnce) };
        client.subscribe_all(&[("a/1", options)], Properties::EMPTY);
        if expected[0] {
            assert_eq!(client.recv_publish().topic, "a/1");
        }
        client.expect_nothing();
    }
}

#[test]
fn a_filter_twice_in_one_subscribe_gets_retained_messages_if_either_asks_for_them() {
    //= [MQTT-3.8.4-5] [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11] v5
    let server = Server::start();
    let mut ann = Client::connect(&server, V5, "ann");
    ann.publish(Publish { retain: true, ..publish("t", b"x") });
    let (send, new, none) = (RetainHandling::Send, RetainHandling::SendIfNew, RetainHandling::DoNotSend);
    for (first, second, is_sent) in [
        (send, none, true),
        (none, send, true),
        (new, none, true),
        (new, new, true),
        // The first occurrence makes the subscription, so it is not new for the second.
        (none, new, false),
        (none, none, false),
    ] {
        let mut bob = Client::connect(&server, V5, "bob");
        let filter =
            |retain_handling| ("t", SubscribeOptions { retain_handling, ..options(QoS::AtMostOnce) });
        bob.subscribe_all(&[filter(first), filter(second)], Properties::EMPTY);
        if is_sent {
            assert_eq!(bob.recv_publish().payload, b"x", "{first:?} {second:?}");
        }
        bob.expect_nothing();
    }
}

#[test]
fn unsuback_has_the_packet_id_and_a_reason_for_each_filter_in_order() {
    //= [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT-3.10.4-6] [MQTT-3.11.3-1] [MQTT-3.11.3-2] [MQTT-2.2.1-6] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    for filter in ["a", "b/#", "$share/g/c"] {
        client.subscribe(filter, QoS::AtMostOnce);
    }
    // As if one after the other: the second "a" finds nothing.
    let steps: [(u16, &[&str], &[u8]); 3] = [
        (1, &["x", "a", "b/+", "a", "b/#"], &[0x11, 0x00, 0x11, 0x11, 0x00]),
        (4711, &["c", "$share/h/c", "$share/g/c"], &[0x11, 0x11, 0x00]),
        (u16::MAX, &["a"], &[0x11]),
    ];
    for (number, filters, reasons) in steps {
        let mut bytes = Vec::new();
        encode::unsubscribe(id(number), Properties::EMPTY, filters.iter().copied(), V5, &mut bytes);
        client.send_bytes(&bytes);
        let unsuback = client.recv_unsuback();
        assert_eq!((unsuback.packet_id, unsuback.reasons), (id(number), reasons));
    }
}

#[test]
fn an_unsubscribe_deletes_the_filter_that_is_exactly_the_same() {
    //= [MQTT-3.10.4-1] [MQTT-3.10.4-2] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    for filter in ["a/b", "a/+", "a/#", "A/b"] {
        subscribe_with_identifier(&mut client, filter, QoS::AtMostOnce, u32::from(filter.as_bytes()[2]));
    }
    let mut bob = Client::connect(&server, V5, "bob");
    for (filter, left) in [("a/+", vec![u32::from(b'#'), u32::from(b'b')]), ("a/b", vec![u32::from(b'#')])] {
        assert_eq!(client.unsubscribe(&[filter]).reasons, [0]);
        bob.publish(publish("a/b", b"x"));
        assert_eq!(identifiers(&client.recv_publish()), left);
    }
    assert_eq!(client.unsubscribe(&["a/#"]).reasons, [0]);
    bob.publish(publish("a/b", b"x"));
    client.expect_nothing();
}

#[test]
fn an_unsubscribe_does_not_cut_off_what_is_being_delivered() {
    //= [MQTT-3.10.4-3] [MQTT-3.10.4-2] v5
    let server = Server::start();
    let kept = |clean_start| Connect {
        clean_start,
        properties: properties(&[Property::SessionExpiryInterval(60)]),
        ..connect(V5, "ann")
    };
    let mut ann = Client::open(&server, kept(true));
    ann.subscribe("a/#", QoS::ExactlyOnce);
    let mut bob = Client::connect(&server, V5, "bob");
    bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a/1", b"1"));
    bob.publish(publish_qos(QoS::ExactlyOnce, 1, "a/2", b"2"));
    let sent = [ann.recv_publish(), ann.recv_publish()];
    assert_eq!(ann.unsubscribe(&["a/#"]).reasons, [0]);
    bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a/1", b"3"));
    ann.expect_nothing();
    ann.cut();
    let mut ann = Client::open(&server, kept(false));
    for publish in sent {
        assert_eq!(ann.recv_publish(), Publish { dup: true, ..publish.clone() });
        if publish.qos == QoS::AtLeastOnce {
            ann.send(&Packet::PubAck(ack(publish.packet_id.unwrap())));
        } else {
            ann.send(&Packet::PubRec(ack(publish.packet_id.unwrap())));
        }
    }
    assert_eq!(ann.recv().packet_type(), PacketType::PubRel);
    ann.expect_nothing();
}
