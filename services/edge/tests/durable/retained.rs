//! Retained messages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_layers::{Store, retained as retained_rows};
use millrace_mqtt::{
    Packet, PacketType, Property, Publish, QoS, ReasonCode, RetainHandling, SubscribeOptions, Version, encode,
};
use millrace_storage::{Database, Read, block_on};

use crate::common::{Client, Server, id, properties, publish, publish_qos};
use crate::steps::lasting;

#[allow(clippy::needless_pass_by_value, reason = "it is passed on with one field changed")]
fn retained(publish: Publish<'_>) -> Publish<'_> {
    Publish { retain: true, ..publish }
}

/// The messages that a new subscriber gets at once.
fn kept(server: &Server) -> BTreeMap<String, Vec<u8>> {
    let mut reader = Client::connect(server, Version::V5, "reader");
    reader.subscribe("#", QoS::AtLeastOnce);
    reader.send(&Packet::PingReq);
    let mut found = BTreeMap::new();
    loop {
        match reader.recv() {
            Packet::Publish(publish) => {
                assert!(publish.retain, "{publish:?}");
                found.insert(publish.topic.to_owned(), publish.payload.to_vec());
            }
            Packet::PingResp => return found,
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
    writer.send(&Packet::Publish(retained(publish("zero", b"qos 0"))));
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
        writer.send(&Packet::Publish(Publish { dup, ..message.clone() }));
    }
    let mut answers = 0;
    writer.send(&Packet::PubRel(crate::common::ack(id(9))));
    loop {
        match writer.recv() {
            Packet::PubRec(ack) => {
                assert_eq!(ack.packet_id, id(9));
                answers += 1;
            }
            Packet::PubComp(_) => break,
            other => panic!("{other:?}"),
        }
    }
    // One for the PUBLISH, and one for each repeat that came after it was stored.
    assert!((0..=3).contains(&answers), "{answers}");
}

#[test]
fn an_expired_message_gives_its_room_to_a_new_one_in_memory_and_in_the_store() {
    for name in [None, Some("pod")] {
        let database = Database::memory();
        let server = Server::on(&database, |config| {
            config.limits.retained_messages_max = 1;
            config.pod = name.map(Into::into);
        });
        let mut writer = Client::connect(&server, Version::V5, "writer");
        let soon = properties(&[Property::MessageExpiryInterval(0)]);
        let old = Publish { properties: soon, ..publish_qos(QoS::AtLeastOnce, 1, "old", b"x") };
        assert_eq!(writer.publish(retained(old)), ReasonCode::SUCCESS);
        let mut clock = Client::connect(&server, Version::V5, "clock");
        let is_retained = (2..50).any(|id| {
            clock.expect_silence(Duration::from_millis(100));
            let new = publish_qos(QoS::AtLeastOnce, id, "new", b"x");
            writer.publish(retained(new)) == ReasonCode::SUCCESS
        });
        assert!(is_retained, "the expired message still counts");
        let rows = || {
            let layers = Store::new(database.clone());
            let broker = block_on(layers.ensure_broker(b"default")).unwrap().id;
            let page = layers.run(async |tx| retained_rows::all(&tx, broker, None, 9, Read::Snapshot).await);
            block_on(page).unwrap().items.len()
        };
        let is_cleared = (0..100).any(|_| {
            clock.expect_silence(Duration::from_millis(50));
            rows() == 1
        });
        assert!(is_cleared, "the expired message stays in the store");
        server.edge.shutdown(Duration::from_secs(5));
    }
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
fn subscribers_among_pods_get_the_present_value_of_each_topic_once_while_it_changes() {
    // More than one page of the store has.
    const TOPICS: u16 = 2_500;
    let server = Server::on(&Database::memory(), |config| config.pod = Some("pod".into()));
    let mut writer = Client::connect(&server, Version::V5, "writer");
    let mut packet_id = 0;
    let mut write = |topics: &[(u16, String)]| {
        for (topic, payload) in topics {
            packet_id = packet_id % 60_000 + 1;
            let topic = format!("t/{topic:04}");
            let message = retained(publish_qos(QoS::AtLeastOnce, packet_id, &topic, payload.as_bytes()));
            writer.send(&Packet::Publish(message));
        }
        for _ in topics {
            match writer.recv() {
                Packet::PubAck(ack) => assert_eq!(ack.reason, ReasonCode::SUCCESS),
                other => panic!("{other:?}"),
            }
        }
    };
    for from in (0..TOPICS).step_by(500) {
        write(&(from..from + 500).map(|topic| (topic, "old".to_owned())).collect::<Vec<_>>());
    }
    let mut readers = [Version::V311, Version::V5].map(|version| {
        let [clean_id, lasting_id] = if version == Version::V5 { ["5c", "5l"] } else { ["3c", "3l"] };
        [Client::connect(&server, version, clean_id), Client::open(&server, lasting(version, lasting_id))]
    });
    for (reader, version) in
        readers.iter_mut().zip([Version::V311, Version::V5]).flat_map(|(both, version)| {
            let [clean, lasting] = both;
            [(clean, version), (lasting, version)]
        })
    {
        let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
        let mut bytes = Vec::new();
        encode::subscribe(id(1), properties(&[]), [("t/#", options)], version, &mut bytes);
        reader.stream().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        reader.send_bytes(&bytes);
    }
    let mut present: BTreeMap<String, Vec<u8>> =
        (0..TOPICS).map(|topic| (format!("t/{topic:04}"), b"old".to_vec())).collect();
    for round in 0..10 {
        let changed = (0..30).map(|step| {
            let topic = step * 83 + round;
            (topic, if step % 5 == 0 { String::new() } else { format!("new {round}") })
        });
        let changed: Vec<_> = changed.collect();
        write(&changed);
        for (topic, payload) in changed {
            present.insert(format!("t/{topic:04}"), payload.into_bytes());
        }
    }
    // Not retained, so it arrives behind the pages and behind the changes.
    let end = publish_qos(QoS::AtLeastOnce, 60_001, "t/end", b"end");
    assert_eq!(writer.publish(end), ReasonCode::SUCCESS);
    for reader in readers.iter_mut().flatten() {
        let mut got: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        while got.remove("t/end").is_none() {
            match reader.recv() {
                Packet::Publish(message) => {
                    let topic = got.entry(message.topic.to_owned()).or_default();
                    topic.push(message.payload.to_vec());
                    if let Some(packet_id) = message.packet_id {
                        reader.send(&Packet::PubAck(crate::common::ack(packet_id)));
                    }
                }
                Packet::SubAck(_) => assert!(got.is_empty(), "SUBACK comes first"),
                other => panic!("{other:?}"),
            }
        }
        for (topic, payload) in &present {
            let payloads = got.remove(topic).unwrap_or_default();
            // A message that was removed before its page was read does not come at all.
            assert!(
                payloads.last().map_or(payload.is_empty(), |last| last == payload),
                "{topic}: {payloads:?}"
            );
            let times = payloads.iter().filter(|got| *got == payload).count();
            assert!(times <= 1, "{topic}: {payloads:?}");
        }
        assert!(got.is_empty(), "{got:?}");
    }
}

#[test]
fn an_answer_waits_for_the_store_and_messages_do_not() {
    let server = Server::on(&Database::memory(), |_| {});
    let mut watcher = Client::connect(&server, Version::V5, "watcher");
    watcher.subscribe("a", QoS::AtMostOnce);
    let mut writer = Client::connect(&server, Version::V5, "writer");
    for round in 1..=200 {
        let publish = publish_qos(QoS::AtLeastOnce, round, "a", b"x");
        writer.send(&Packet::Publish(retained(publish)));
    }
    for round in 1..=200 {
        assert_eq!(watcher.recv_publish().payload, b"x");
        assert_eq!(writer.recv_ack(PacketType::PubAck, id(round)).reason, ReasonCode::SUCCESS);
    }
}

#[test]
fn a_server_starts_with_as_many_retained_messages_as_fit_and_says_so_to_subscribers() {
    let database = Database::memory();
    let server = Server::on(&database, |_| {});
    let mut writer = Client::connect(&server, Version::V5, "writer");
    let payload = vec![b'x'; 100_000];
    for topic in 0..20u16 {
        let publish = publish_qos(QoS::AtLeastOnce, topic + 1, "", &payload);
        let topic = format!("t/{topic:02}");
        assert_eq!(writer.publish(retained(Publish { topic: &topic, ..publish })), ReasonCode::SUCCESS);
    }
    server.edge.shutdown(Duration::from_secs(5));

    let small = |config: &mut millrace_edge::Config| config.limits.retained_memory_max = 1_000_000;
    let server = Server::on(&database, small);
    let mut ann = Client::connect(&server, Version::V5, "ann");
    let subscribe = |client: &mut Client, filter: &str, retain_handling| {
        let options = SubscribeOptions { retain_handling, ..SubscribeOptions::default() };
        client.subscribe_all(&[(filter, options)], millrace_mqtt::Properties::EMPTY).reasons[0]
    };
    assert_eq!(subscribe(&mut ann, "t/#", RetainHandling::Send), ReasonCode::QUOTA_EXCEEDED.0);
    assert_eq!(subscribe(&mut ann, "t/#", RetainHandling::DoNotSend), 0);
    assert_eq!(subscribe(&mut ann, "$share/g/t/#", RetainHandling::Send), 0);
    // No topic gets a larger message, also one that is in the store only; any may be removed.
    let set = |client: &mut Client, topic: &str, payload: &[u8]| {
        client.send(&Packet::Publish(retained(publish_qos(QoS::AtLeastOnce, 1, topic, payload))));
        loop {
            match client.recv() {
                Packet::PubAck(ack) => return ack.reason,
                Packet::Publish(_) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(set(&mut ann, "t/19", &payload), ReasonCode::QUOTA_EXCEEDED);
    for topic in 0..15 {
        assert_eq!(set(&mut ann, &format!("t/{topic:02}"), b""), ReasonCode::SUCCESS);
    }
    server.edge.shutdown(Duration::from_secs(5));

    let server = Server::on(&database, small);
    let left: Vec<String> = (15..20).map(|topic| format!("t/{topic}")).collect();
    assert_eq!(kept(&server).into_keys().collect::<Vec<_>>(), left);
}

#[test]
fn no_local_leaves_out_what_a_client_retained_before_a_restart() {
    //= [MQTT-3.8.3-3] v5
    for is_pod in [false, true] {
        let database = Database::memory();
        let start = || Server::on(&database, |config| config.pod = is_pod.then(|| "pod".into()));
        let server = start();
        for (client, topic) in [("ann", "t/own"), ("bob", "t/bobs")] {
            let mut client = Client::connect(&server, Version::V5, client);
            client.publish(retained(publish_qos(QoS::AtLeastOnce, 1, topic, b"x")));
        }
        server.edge.shutdown(Duration::from_secs(5));
        let server = start();
        let options =
            SubscribeOptions { no_local: true, qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
        for request in [crate::common::connect(Version::V5, "ann"), lasting(Version::V5, "ann")] {
            let mut ann = Client::open(&server, request);
            ann.subscribe_all(&[("t/+", options)], millrace_mqtt::Properties::EMPTY);
            assert_eq!(ann.recv_publish().topic, "t/bobs");
            ann.expect_nothing();
            ann.disconnect();
        }
    }
}
