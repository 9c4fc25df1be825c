//! PUBLISH (section 3.3 of MQTT 5.0): what is forwarded, and how. Acknowledgements are in `v5_qos`.

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Packet, Property, Publish, QoS, ReasonCode, SubscribeOptions};

use crate::common::{Client, Server, connect, list, properties, publish, publish_qos};

#[test]
fn what_is_forwarded_matches_the_filter() {
    //= [MQTT-3.3.2-3] [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.2-1] v5
    let server = Server::start();
    let topics = ["a", "a/b", "a/b/c", "b", "/", "/a", "a/", "$a", "$a/b"];
    let cases: [(&str, &[&str]); 12] = [
        ("a", &["a"]),
        ("#", &["a", "a/b", "a/b/c", "b", "/", "/a", "a/"]),
        ("+", &["a", "b"]),
        ("+/+", &["a/b", "/", "/a", "a/"]),
        ("a/#", &["a", "a/b", "a/b/c", "a/"]),
        ("a/+", &["a/b", "a/"]),
        ("+/b/#", &["a/b", "a/b/c"]),
        ("/+", &["/", "/a"]),
        ("+/", &["/", "a/"]),
        ("$a", &["$a"]),
        ("$a/#", &["$a", "$a/b"]),
        ("$a/+", &["$a/b"]),
    ];
    let mut publisher = Client::connect(&server, V5, "publisher");
    for (filter, expected) in cases {
        let mut client = Client::connect(&server, V5, "subscriber");
        client.subscribe(filter, QoS::AtMostOnce);
        for topic in topics {
            publisher.publish(publish(topic, b"x"));
        }
        for topic in expected {
            assert_eq!(client.recv_publish().topic, *topic, "{filter}");
        }
        client.expect_nothing();
    }
}

#[test]
fn topics_are_not_normalised() {
    //= [MQTT-4.7.3-4] [MQTT-1.5.4-3] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    // The same to a reader, perhaps, and different to a server: case, composed and decomposed letters, slashes, blanks,
    // a byte order mark.
    let topics =
        ["caf\u{e9}", "cafe\u{301}", "CAF\u{c9}", "a//b", "a/b", "a b", "a%20b", "\u{feff}a", "a", "a/./b"];
    for topic in topics {
        client.subscribe(topic, QoS::AtMostOnce);
        for other in topics {
            client.send(&Packet::Publish(publish(other, other.as_bytes())));
        }
        let publish = client.recv_publish();
        assert_eq!((publish.topic, publish.payload), (topic, topic.as_bytes()));
        client.expect_nothing();
        client.unsubscribe(&[topic]);
    }
}

#[test]
fn properties_are_forwarded_unaltered_and_in_order() {
    //= [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20] v5
    let server = Server::start();
    let sent = [
        Property::PayloadFormatIndicator(1),
        Property::ResponseTopic("answers/\u{feff}\u{e9}"),
        Property::CorrelationData(b"\0\xFF\x80"),
        Property::UserProperty("b", "1"),
        Property::UserProperty("a", ""),
        Property::UserProperty("b", "1"),
        Property::UserProperty("", "b"),
        Property::ContentType("text/plain; charset=utf-8"),
    ];
    let subscribers = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce].map(|qos| {
        let mut client = Client::connect(&server, V5, &format!("subscriber {qos:?}"));
        client.subscribe("a", qos);
        client
    });
    let mut publisher = Client::connect(&server, V5, "publisher");
    let publications = [
        publish("a", b"x"),
        publish_qos(QoS::AtLeastOnce, 1, "a", b"x"),
        Publish { retain: true, ..publish_qos(QoS::ExactlyOnce, 2, "a", b"x") },
    ];
    for publication in &publications {
        let publication = Publish { properties: properties(&sent), ..publication.clone() };
        assert_eq!(publisher.publish(publication), ReasonCode::SUCCESS);
    }
    for mut client in subscribers {
        for _ in &publications {
            assert_eq!(list(client.recv_publish().properties), sent);
        }
    }
    // Nor does being retained alter them.
    let mut later = Client::connect(&server, V5, "later");
    later.subscribe("a", QoS::AtMostOnce);
    assert_eq!(list(later.recv_publish().properties), sent);
}

#[test]
fn properties_that_are_not_there_are_not_added() {
    //= [MQTT-2.2.2-1] [MQTT-3.3.2-4] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    client.subscribe("a", QoS::AtMostOnce);
    client.send(&Packet::Publish(publish("a", b"x")));
    assert_eq!(client.recv_bytes().unwrap(), b"\x30\x05\0\x01a\0x");
}

#[test]
fn a_retained_message_replaces_the_one_before() {
    //= [MQTT-3.3.1-5] v5
    let server = Server::start();
    let mut publisher = Client::connect(&server, V5, "publisher");
    for (id, qos) in [(1, QoS::AtLeastOnce), (2, QoS::ExactlyOnce), (3, QoS::AtLeastOnce)] {
        let payload = id.to_string();
        let publication = Publish { retain: true, ..publish_qos(qos, id, "a", payload.as_bytes()) };
        publisher.publish(publication);
        let mut later = Client::connect(&server, V5, "later");
        later.subscribe("a", QoS::ExactlyOnce);
        let retained = later.recv_publish();
        assert_eq!((retained.payload, retained.qos, retained.retain), (payload.as_bytes(), qos, true));
        later.expect_nothing();
    }
}

#[test]
fn a_retained_message_without_payload_removes_it() {
    //= [MQTT-3.3.1-6] [MQTT-3.3.1-7] v5
    let server = Server::start();
    let mut live = Client::connect(&server, V5, "live");
    live.subscribe("a", QoS::AtMostOnce);
    let mut publisher = Client::connect(&server, V5, "publisher");
    for payload in [&b"x"[..], b""] {
        publisher.publish(Publish { retain: true, ..publish("a", payload) });
        // Processed normally: those who are subscribed get it.
        assert_eq!(live.recv_publish().payload, payload);
    }
    let mut later = Client::connect(&server, V5, "later");
    later.subscribe("a", QoS::AtMostOnce);
    later.expect_nothing();
}

#[test]
fn a_message_without_retain_leaves_the_retained_one_alone() {
    //= [MQTT-3.3.1-8] v5
    let server = Server::start();
    let mut publisher = Client::connect(&server, V5, "publisher");
    publisher.publish(Publish { retain: true, ..publish("a", b"kept") });
    for (id, topic, payload) in [(1, "a", &b"other"[..]), (2, "a", b""), (3, "b", b"new")] {
        publisher.publish(publish_qos(QoS::AtLeastOnce, id, topic, payload));
        publisher.publish(publish(topic, payload));
    }
    let mut later = Client::connect(&server, V5, "later");
    later.subscribe("#", QoS::AtMostOnce);
    assert_eq!(later.recv_publish().payload, b"kept");
    later.expect_nothing();
}

#[test]
fn retain_as_published_decides_on_the_retain_flag() {
    //= [MQTT-3.3.1-12] [MQTT-3.3.1-13] v5
    let server = Server::start();
    let mut subscribers = [false, true].map(|retain_as_published| {
        let mut client = Client::connect(&server, V5, &format!("subscriber {retain_as_published}"));
        let options = SubscribeOptions { retain_as_published, qos: QoS::AtLeastOnce, ..Default::default() };
        client.subscribe_all(&[("a", options)], properties(&[]));
        client
    });
    let mut publisher = Client::connect(&server, V5, "publisher");
    for retain in [true, false] {
        publisher.publish(Publish { retain, ..publish("a", b"x") });
        publisher.publish(Publish { retain, ..publish_qos(QoS::AtLeastOnce, 1, "a", b"x") });
        for _ in 0..2 {
            assert!(!subscribers[0].recv_publish().retain);
            assert_eq!(subscribers[1].recv_publish().retain, retain);
        }
    }
}

#[test]
fn dup_is_not_passed_on() {
    //= [MQTT-3.3.1-3] [MQTT-3.3.1-2] [MQTT-4.3.1-1] [MQTT-4.3.2-2] [MQTT-4.3.3-2] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "subscriber");
    client.subscribe("0", QoS::AtMostOnce);
    client.subscribe("1", QoS::AtLeastOnce);
    client.subscribe("2", QoS::ExactlyOnce);
    let mut publisher = Client::connect(&server, V5, "publisher");
    for (id, topic) in [(1, "0"), (2, "1"), (3, "2")] {
        publisher.publish(Publish { dup: true, ..publish_qos(QoS::ExactlyOnce, id, topic, b"x") });
    }
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let received = client.recv_publish();
        assert_eq!((received.qos, received.dup), (qos, false));
        assert_eq!(received.packet_id.is_some(), qos != QoS::AtMostOnce);
    }
}

#[test]
fn every_alias_that_the_server_allows_is_taken() {
    //= [MQTT-3.3.2-12] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    client.subscribe("#", QoS::AtMostOnce);
    let maximum = list(client.connack.as_ref().unwrap().properties).into_iter().find_map(|told| match told {
        Property::TopicAliasMaximum(maximum) => Some(maximum),
        _ => None,
    });
    let maximum = maximum.unwrap();
    let aliased = |alias| properties(&[Property::TopicAlias(alias)]);
    for alias in 1..=maximum {
        let topic = format!("topic/{alias}");
        client.send(&Packet::Publish(Publish { properties: aliased(alias), ..publish(&topic, b"") }));
        let received = client.recv_publish();
        assert_eq!((received.topic, list(received.properties)), (&*topic, vec![]));
    }
    for alias in (1..=maximum).rev() {
        client.send(&Packet::Publish(Publish { properties: aliased(alias), ..publish("", b"") }));
        assert_eq!(client.recv_publish().topic, format!("topic/{alias}"));
    }
    // An alias can be set again.
    client.send(&Packet::Publish(Publish { properties: aliased(1), ..publish("new", b"") }));
    assert_eq!(client.recv_publish().topic, "new");
    client.send(&Packet::Publish(Publish { properties: aliased(1), ..publish("", b"") }));
    assert_eq!(client.recv_publish().topic, "new");
}

#[test]
fn aliases_end_with_the_connection() {
    //= [MQTT-3.3.2-7] v5
    let server = Server::start();
    let kept = |clean_start| Connect {
        clean_start,
        properties: properties(&[Property::SessionExpiryInterval(60), Property::TopicAliasMaximum(5)]),
        ..connect(V5, "ann")
    };
    let aliased = || properties(&[Property::TopicAlias(1)]);
    let mut ann = Client::open(&server, kept(true));
    ann.subscribe("a", QoS::AtLeastOnce);
    for topic in ["a", ""] {
        ann.send(&Packet::Publish(Publish { properties: aliased(), ..publish(topic, b"x") }));
        // The server sets its alias with the first message, and uses it with the second.
        let received = ann.recv_publish();
        assert_eq!((received.topic, list(received.properties)), (topic, vec![Property::TopicAlias(1)]));
    }
    ann.cut();
    let mut ann = Client::open(&server, kept(false));
    assert!(ann.connack.as_ref().unwrap().session_present);
    let mut bob = Client::connect(&server, V5, "bob");
    bob.publish(publish("a", b"x"));
    // The server's aliases begin anew,
    assert_eq!(ann.recv_publish().topic, "a");
    // and the client's are gone.
    ann.send(&Packet::Publish(Publish { properties: aliased(), ..publish("", b"x") }));
    ann.expect_disconnect(ReasonCode::PROTOCOL_ERROR);
}

#[test]
fn the_server_sends_no_alias_above_the_clients_maximum() {
    //= [MQTT-3.1.2-26] [MQTT-3.3.2-8] [MQTT-3.3.2-11] v5
    let server = Server::start();
    let allowed = properties(&[Property::TopicAliasMaximum(2)]);
    let mut client = Client::open(&server, Connect { properties: allowed, ..connect(V5, "ann") });
    client.subscribe("#", QoS::AtMostOnce);
    let mut names = vec![String::new(); 3];
    let mut aliases = Vec::new();
    for topic in ["a", "b", "c", "d", "a", "b", "c", "d", "a"] {
        client.send(&Packet::Publish(publish(topic, topic.as_bytes())));
        let received = client.recv_publish();
        assert_eq!(received.payload, topic.as_bytes());
        match list(received.properties)[..] {
            [] => assert_eq!(received.topic, topic),
            [Property::TopicAlias(alias @ 1..=2)] => {
                let name = &mut names[usize::from(alias)];
                if !received.topic.is_empty() {
                    received.topic.clone_into(name);
                }
                assert_eq!(name, topic);
                aliases.push(alias);
            }
            ref other => panic!("{other:?}"),
        }
    }
    assert!(aliases.contains(&1) && aliases.contains(&2), "{aliases:?}");
}

#[test]
fn without_a_maximum_the_server_sends_no_alias() {
    //= [MQTT-3.1.2-27] [MQTT-3.3.2-11] v5
    let server = Server::start();
    for asked in [&[][..], &[Property::TopicAliasMaximum(0)]] {
        let mut client =
            Client::open(&server, Connect { properties: properties(asked), ..connect(V5, "ann") });
        client.subscribe("a", QoS::AtMostOnce);
        for _ in 0..3 {
            client.send(&Packet::Publish(publish("a", b"x")));
            let received = client.recv_publish();
            assert_eq!((received.topic, list(received.properties)), ("a", vec![]));
        }
    }
}
