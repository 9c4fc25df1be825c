//! Retained messages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_mqtt::{PacketType, Property, Publish, QoS, ReasonCode, Version};
use millrace_storage::Database;

use crate::common::{Client, Server, id, properties, publish, publish_qos};

#[allow(clippy::needless_pass_by_value, reason = "it is passed on with one field changed")]
fn retained(publish: Publish<'_>) -> Publish<'_> {
    Publish { retain: true, ..publish }
}

/// What a new subscriber gets at once.
fn kept(server: &Server) -> BTreeMap<String, Vec<u8>> {
    let mut reader = Client::connect(server, Version::V5, "reader");
    reader.subscribe("#", QoS::AtLeastOnce);
    reader.send(&millrace_mqtt::Packet::PingReq);
    let mut found = BTreeMap::new();
    loop {
        match reader.recv() {
            millrace_mqtt::Packet::Publish(publish) => {
                assert!(publish.retain, "{publish:?}");
                found.insert(publish.topic.to_owned(), publish.payload.to_vec());
            }
            millrace_mqtt::Packet::PingResp => return found,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_after_the_process_ended() {
    let database = Database::memory();
    // Longer than a value of the store may be, and not: both come back whole.
    let long: Vec<u8> = (0..250_000u32).map(|n| n.to_le_bytes()[0]).collect();
    let server = Server::on(&database, |_| {});
    let mut writer = Client::connect(&server, Version::V5, "writer");
    assert_eq!(writer.publish(retained(publish_qos(QoS::AtLeastOnce, 1, "a", b"one"))), ReasonCode::SUCCESS);
    assert_eq!(writer.publish(retained(publish_qos(QoS::ExactlyOnce, 2, "a/b", &long))), ReasonCode::SUCCESS);
    assert_eq!(
        writer.publish(retained(publish_qos(QoS::AtLeastOnce, 3, "a/b/c", b"gone"))),
        ReasonCode::SUCCESS
    );
    assert_eq!(writer.publish(retained(publish_qos(QoS::AtLeastOnce, 4, "a/b/c", b""))), ReasonCode::SUCCESS);
    writer.send(&millrace_mqtt::Packet::Publish(retained(publish("zero", b"qos 0"))));
    writer.ping();
    let before = kept(&server);
    server.edge.shutdown(Duration::from_secs(5));
    let expected = BTreeMap::from([
        ("a".to_owned(), b"one".to_vec()),
        ("a/b".to_owned(), long.clone()),
        ("zero".to_owned(), b"qos 0".to_vec()),
    ]);
    assert_eq!(before, expected);
    for _ in 0..2 {
        let server = Server::on(&database, |_| {});
        assert!(kept(&server) == expected);
        server.edge.shutdown(Duration::from_secs(5));
    }
    // A shorter one leaves nothing of the longer one behind.
    let server = Server::on(&database, |_| {});
    let mut writer = Client::connect(&server, Version::V311, "writer");
    writer.publish(retained(publish_qos(QoS::AtLeastOnce, 1, "a/b", b"short")));
    server.edge.shutdown(Duration::from_secs(5));
    assert_eq!(kept(&Server::on(&database, |_| {}))["a/b"], b"short");
}

#[test]
fn a_restarted_process_has_the_last_writer_that_subscribers_saw() {
    let database = Database::memory();
    let server = Server::on(&database, |config| config.threads = 2);
    let mut watcher = Client::connect(&server, Version::V5, "watcher");
    watcher.subscribe("t/#", QoS::AtMostOnce);
    let number = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let (server, number) = (&server, &number);
            scope.spawn(move || {
                let mut writer = Client::connect(server, Version::V5, name);
                for round in 1..=100 {
                    let payload = number.fetch_add(1, Ordering::Relaxed).to_string();
                    let topic = format!("t/{}", round % 3);
                    let publish = publish_qos(QoS::AtLeastOnce, round, &topic, payload.as_bytes());
                    assert!(!writer.publish(retained(publish)).is_error());
                }
            });
        }
    });
    let before = kept(&server);
    server.edge.shutdown(Duration::from_secs(5));
    assert_eq!(kept(&Server::on(&database, |_| {})), before);
}

#[test]
fn a_qos_2_publish_repeated_before_its_answer_is_answered_once_it_is_stored() {
    //= [MQTT-4.3.3-8] [MQTT-4.3.3-10] v5
    let server = Server::on(&Database::memory(), |_| {});
    let mut writer = Client::connect(&server, Version::V5, "writer");
    let message = retained(publish_qos(QoS::ExactlyOnce, 9, "a", b"x"));
    for dup in [false, true, true] {
        writer.send(&millrace_mqtt::Packet::Publish(Publish { dup, ..message.clone() }));
    }
    let mut answers = 0;
    writer.send(&millrace_mqtt::Packet::PubRel(crate::common::ack(id(9))));
    loop {
        match writer.recv() {
            millrace_mqtt::Packet::PubRec(ack) => {
                assert_eq!(ack.packet_id, id(9));
                answers += 1;
            }
            millrace_mqtt::Packet::PubComp(_) => break,
            other => panic!("{other:?}"),
        }
    }
    // One for the PUBLISH, and one for each repeat that came after it was stored.
    assert!((0..=3).contains(&answers), "{answers}");
}

#[test]
fn a_message_that_expired_while_the_process_was_away_is_gone() {
    //= [MQTT-3.3.2-5] v5
    let database = Database::memory();
    let server = Server::on(&database, |_| {});
    let mut writer = Client::connect(&server, Version::V5, "writer");
    for (packet_id, topic, seconds) in [(1, "soon", 0), (2, "late", 100)] {
        let properties =
            properties(&[Property::MessageExpiryInterval(seconds), Property::UserProperty("k", "v")]);
        let publish = publish_qos(QoS::AtLeastOnce, packet_id, topic, b"x");
        writer.publish(retained(Publish { properties, ..publish }));
    }
    server.edge.shutdown(Duration::from_secs(5));
    // The store outlived the message by two whole seconds of the machine's clock.
    let idle = Server::start();
    let mut waiting = Client::connect(&idle, Version::V5, "clock");
    waiting.expect_silence(Duration::from_millis(2100));
    let server = Server::on(&database, |_| {});
    assert_eq!(kept(&server).keys().collect::<Vec<_>>(), ["late"]);
    let mut reader = Client::connect(&server, Version::V5, "again");
    reader.subscribe("late", QoS::AtLeastOnce);
    let found: Vec<_> = crate::common::list(reader.recv_publish().properties);
    assert!(found.contains(&Property::UserProperty("k", "v")), "{found:?}");
    let left = found.iter().find_map(|property| match property {
        Property::MessageExpiryInterval(left) => Some(*left),
        _ => None,
    });
    assert!(left.is_some_and(|left| (50..=100).contains(&left)), "{found:?}");
}

#[test]
fn an_answer_waits_for_the_store_and_messages_do_not() {
    let server = Server::on(&Database::memory(), |_| {});
    let mut watcher = Client::connect(&server, Version::V5, "watcher");
    watcher.subscribe("a", QoS::AtMostOnce);
    let mut writer = Client::connect(&server, Version::V5, "writer");
    for round in 1..=200 {
        let publish = publish_qos(QoS::AtLeastOnce, round, "a", b"x");
        writer.send(&millrace_mqtt::Packet::Publish(retained(publish)));
    }
    for round in 1..=200 {
        assert_eq!(watcher.recv_publish().payload, b"x");
        assert_eq!(writer.recv_ack(PacketType::PubAck, id(round)).reason, ReasonCode::SUCCESS);
    }
}
