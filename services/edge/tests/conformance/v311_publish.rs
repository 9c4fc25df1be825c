//! PUBLISH and the protocols of its quality of service (sections 3.3 to 3.7, 4.3, 4.5 and 4.6 of MQTT 3.1.1).

use std::path::Path;

use millrace_mqtt::Version::V311;
use millrace_mqtt::{Connect, Packet, PacketType, Publish, QoS};

use crate::common::{Client, Server, ack, connect, id, publish, publish_qos};

const ALL: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

fn subscriber(server: &Server, filter: &str, qos: QoS) -> Client {
    let mut client = Client::connect(server, V311, "subscriber");
    client.subscribe(filter, qos);
    client
}

/// PUBLISH with any QoS; `number` is its packet id when it has one.
fn numbered<'a>(qos: QoS, number: u16, topic: &'a str, payload: &'a [u8]) -> Publish<'a> {
    if qos == QoS::AtMostOnce { publish(topic, payload) } else { publish_qos(qos, number, topic, payload) }
}

#[test]
fn each_qos_is_answered_as_its_protocol_says() {
    //= [MQTT-3.3.4-1] [MQTT-4.3.2-2] [MQTT-4.3.3-2] [MQTT-2.3.1-6] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    ann.send(&Packet::Publish(publish("t", b"")));
    ann.ping();
    for number in [1, 258, 65_535] {
        ann.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, number, "t", b"")));
        let [high, low] = number.to_be_bytes();
        assert_eq!(ann.recv_bytes().unwrap(), [0x40, 2, high, low]);
        ann.send(&Packet::Publish(publish_qos(QoS::ExactlyOnce, number, "t", b"")));
        assert_eq!(ann.recv_bytes().unwrap(), [0x50, 2, high, low]);
        ann.send(&Packet::PubRel(ack(id(number))));
        assert_eq!(ann.recv_bytes().unwrap(), [0x70, 2, high, low]);
    }
}

#[test]
fn each_qos_is_sent_as_its_protocol_says() {
    //= [MQTT-4.3.1-1] [MQTT-4.3.2-1] [MQTT-4.3.3-1] [MQTT-2.3.1-4] [MQTT-2.3.1-5] [MQTT-3.3.1-2] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let mut bob = subscriber(&server, "t", QoS::ExactlyOnce);
    for (number, qos) in [(1, ALL[0]), (1, ALL[1]), (2, ALL[2]), (3, ALL[1]), (4, ALL[0])] {
        ann.publish(numbered(qos, number, "t", b"x"));
    }
    assert_eq!(bob.recv_bytes().unwrap(), b"\x30\x04\0\x01tx");
    // Packet ids that are in use are not given again.
    let mut used = Vec::new();
    for qos in [ALL[1], ALL[2], ALL[1]] {
        let sent = bob.recv_publish();
        assert_eq!((sent.qos, sent.dup), (qos, false));
        let packet_id = sent.packet_id.unwrap();
        assert!(!used.contains(&packet_id), "{packet_id} again");
        used.push(packet_id);
    }
    assert_eq!(bob.recv_publish().qos, QoS::AtMostOnce);
    bob.send(&Packet::PubAck(ack(used[0])));
    bob.send(&Packet::PubRec(ack(used[1])));
    bob.recv_ack(PacketType::PubRel, used[1]);
    bob.send(&Packet::PubComp(ack(used[1])));
    ann.publish(publish_qos(QoS::ExactlyOnce, 9, "t", b"y"));
    assert_ne!(bob.recv_publish().packet_id, Some(used[2]));
}

#[test]
fn a_qos_1_publish_after_its_puback_is_a_new_message_whatever_its_dup_says() {
    //= [MQTT-4.3.2-2] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let mut bob = subscriber(&server, "t", QoS::AtMostOnce);
    for dup in [false, true, false] {
        ann.publish(Publish { dup, ..publish_qos(QoS::AtLeastOnce, 7, "t", b"x") });
        assert_eq!(bob.recv_publish().payload, b"x");
    }
}

#[test]
fn a_qos_2_publish_is_delivered_once_until_its_pubrel() {
    //= [MQTT-4.3.3-2] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let mut bob = subscriber(&server, "t", QoS::AtMostOnce);
    for round in 0..2 {
        for dup in [false, true, true] {
            ann.send(&Packet::Publish(Publish { dup, ..publish_qos(QoS::ExactlyOnce, 7, "t", b"x") }));
            ann.recv_ack(PacketType::PubRec, id(7));
        }
        assert_eq!(bob.recv_publish().payload, b"x", "{round}");
        bob.expect_nothing();
        // PUBREL is answered as often as it comes.
        for _ in 0..2 {
            ann.send(&Packet::PubRel(ack(id(7))));
            ann.recv_ack(PacketType::PubComp, id(7));
        }
    }
}

#[test]
fn dup_of_the_publisher_is_not_passed_on() {
    //= [MQTT-3.3.1-3] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let mut bob = subscriber(&server, "t", QoS::ExactlyOnce);
    for (number, qos) in [(1, QoS::AtLeastOnce), (2, QoS::ExactlyOnce)] {
        ann.publish(Publish { dup: true, ..publish_qos(qos, number, "t", b"x") });
        assert!(!bob.recv_publish().dup);
    }
}

#[test]
fn a_message_is_sent_with_the_lower_qos_of_publisher_and_subscription() {
    //= [MQTT-3.8.4-6] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let mut bob = Client::connect(&server, V311, "bob");
    for granted in ALL {
        bob.subscribe("t", granted);
        for published in ALL {
            ann.publish(numbered(published, 1, "t", b"x"));
            let sent = bob.recv_publish();
            assert_eq!(sent.qos, granted.min(published), "{granted:?} {published:?}");
            match sent.qos {
                QoS::AtMostOnce => {}
                QoS::AtLeastOnce => bob.send(&Packet::PubAck(ack(sent.packet_id.unwrap()))),
                QoS::ExactlyOnce => bob.send(&Packet::PubRec(ack(sent.packet_id.unwrap()))),
            }
            if sent.qos == QoS::ExactlyOnce {
                bob.recv_ack(PacketType::PubRel, sent.packet_id.unwrap());
                bob.send(&Packet::PubComp(ack(sent.packet_id.unwrap())));
            }
        }
    }
}

#[test]
fn one_copy_comes_with_the_highest_qos_of_overlapping_subscriptions() {
    //= [MQTT-3.3.5-1] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let mut bob = Client::connect(&server, V311, "bob");
    for (filter, qos) in [("a/#", ALL[0]), ("a/+", ALL[2]), ("a/b", ALL[1]), ("c", ALL[2])] {
        bob.subscribe(filter, qos);
    }
    for qos in ALL {
        ann.publish(numbered(qos, 1, "a/b", b"x"));
        assert_eq!(bob.recv_publish().qos, qos);
        bob.expect_nothing();
    }
}

#[test]
fn a_message_is_sent_to_matching_subscriptions_only_and_under_its_topic() {
    //= [MQTT-3.3.2-3] [MQTT-4.5.0-1] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let cases = [
        ("sport/tennis/#", &["sport/tennis", "sport/tennis/a", "sport/tennis/a/b"][..]),
        ("sport/+/a", &["sport/tennis/a"]),
        ("+", &["sport"]),
        ("#", &["sport", "sport/tennis", "sport/tennis/a", "sport/tennis/a/b", "/sport"]),
        ("+/+", &["sport/tennis", "/sport"]),
        ("/+", &["/sport"]),
        ("sport", &["sport"]),
    ];
    let topics = ["sport", "sport/tennis", "sport/tennis/a", "sport/tennis/a/b", "/sport"];
    for (filter, matching) in cases {
        let mut bob = subscriber(&server, filter, QoS::AtMostOnce);
        for topic in topics {
            ann.publish(publish(topic, topic.as_bytes()));
        }
        for topic in matching {
            let sent = bob.recv_publish();
            assert_eq!((sent.topic, sent.payload), (*topic, topic.as_bytes()), "{filter}");
        }
        bob.expect_nothing();
    }
}

#[test]
fn topics_are_compared_character_by_character() {
    //= [MQTT-4.7.3-4] [MQTT-1.5.3-3] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    // Cases, empty levels, spaces, two forms of the same character, and U+FEFF, which stays.
    let topics = ["a", "A", "/a", "a/", "a ", "\u{e9}", "e\u{301}", "\u{feff}a", "a\u{feff}"];
    for topic in topics {
        let mut bob = subscriber(&server, topic, QoS::AtMostOnce);
        for each in topics {
            ann.publish(publish(each, b"x"));
        }
        assert_eq!(bob.recv_publish().topic, topic);
        bob.expect_nothing();
    }
}

#[test]
fn a_topic_may_have_65535_bytes() {
    //= [MQTT-4.7.3-3] v3.1.1
    // The standard's limit; the setting is for what the store takes.
    let server = Server::with(|config| config.limits.topic_bytes_max = u16::MAX);
    let longest = "x".repeat(65_535);
    let mut bob = subscriber(&server, &longest, QoS::AtMostOnce);
    Client::connect(&server, V311, "ann").publish(publish(&longest, b"x"));
    assert!(bob.recv_publish().topic == longest);
}

#[test]
fn wildcards_at_the_start_do_not_match_topics_of_the_server() {
    //= [MQTT-4.7.2-1] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    for (filter, expected) in
        [("#", false), ("+/x", false), ("+/#", false), ("$own/#", true), ("$own/+", true)]
    {
        let mut bob = subscriber(&server, filter, QoS::AtMostOnce);
        ann.publish(publish("$own/x", b"x"));
        if expected {
            assert_eq!(bob.recv_publish().topic, "$own/x");
        }
        bob.expect_nothing();
    }
    // Clients cannot publish to topics of the server.
    let mut bob = subscriber(&server, "$SYS/x", QoS::AtMostOnce);
    ann.publish(publish_qos(QoS::AtLeastOnce, 1, "$SYS/x", b"x"));
    bob.expect_nothing();
}

#[test]
fn a_publish_that_is_not_allowed_is_acknowledged_and_not_delivered() {
    //= [MQTT-3.3.5-2] v3.1.1
    let rules = Path::new(env!("CARGO_TARGET_TMPDIR")).join("v311_publish_rules.txt");
    std::fs::write(&rules, "deny publish * closed/#\nallow all * #\n").unwrap();
    let server = Server::with(|config| config.authentication.rules_file = Some(rules));
    let mut ann = Client::connect(&server, V311, "ann");
    let mut bob = subscriber(&server, "#", QoS::AtMostOnce);
    for qos in ALL {
        ann.publish(numbered(qos, 1, "closed/t", b"x"));
        bob.expect_nothing();
        ann.publish(numbered(qos, 1, "open/t", b"x"));
        assert_eq!(bob.recv_publish().topic, "open/t");
    }
}

#[test]
fn every_client_with_a_matching_subscription_gets_the_message_the_publisher_too() {
    //= [MQTT-4.5.0-1] v3.1.1
    let server = Server::with(|config| config.threads = 3);
    let names: Vec<String> = (0..10).map(|number| format!("client{number}")).collect();
    let mut all: Vec<Client> = names.iter().map(|name| Client::connect(&server, V311, name)).collect();
    for client in &mut all {
        client.subscribe("t/+", QoS::ExactlyOnce);
    }
    for qos in ALL {
        all[0].send(&Packet::Publish(numbered(qos, 9, "t/x", b"x")));
        for (number, client) in all.iter_mut().enumerate() {
            let mut packet = client.recv();
            // The publisher's acknowledgement comes before or after its own copy.
            if matches!(packet, Packet::PubAck(_) | Packet::PubRec(_)) {
                packet = client.recv();
            } else if number == 0 && qos != QoS::AtMostOnce {
                client.recv();
            }
            assert!(matches!(packet, Packet::Publish(ref sent) if sent.qos == qos), "{packet:?}");
        }
    }
}

#[test]
fn messages_of_one_publisher_to_one_topic_stay_in_order() {
    //= [MQTT-4.6.0-5] [MQTT-4.6.0-6] v3.1.1
    const COUNT: u16 = 300;
    // On one event loop, and on as many that publisher and subscribers are surely on different ones.
    for threads in [1, 4] {
        let server = Server::with(|config| config.threads = threads);
        let names: Vec<String> = (0..6).map(|number| format!("subscriber{number}")).collect();
        let mut subscribers: Vec<Client> = names
            .iter()
            .map(|name| Client::open(&server, Connect { clean_start: true, ..connect(V311, name) }))
            .collect();
        for (number, client) in subscribers.iter_mut().enumerate() {
            client.subscribe("t", ALL[number % 3]);
        }
        let mut ann = Client::connect(&server, V311, "ann");
        for number in 1..=COUNT {
            let payload = number.to_be_bytes();
            ann.send(&Packet::Publish(numbered(ALL[usize::from(number) % 3], number, "t", &payload)));
        }
        for client in &mut subscribers {
            let mut last = [0; 3];
            for _ in 0..COUNT {
                let sent = client.recv_publish();
                let number = u16::from_be_bytes(sent.payload.try_into().unwrap());
                // The same topic and QoS: in order. 3.1.1 promises it for each QoS by itself.
                let published = usize::from(number) % 3;
                assert!(number > last[published], "{number} after {}", last[published]);
                last[published] = number;
            }
        }
    }
}
