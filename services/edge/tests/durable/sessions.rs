//! Sessions: their subscriptions, what waits for them, and how they end.

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Disconnect, Packet, Property, Publish, QoS, ReasonCode, SubscribeOptions};
use millrace_storage::Database;

use crate::common::{Client, Server, ack, connect, disconnect, list, properties, publish, publish_qos};
use crate::steps::{
    BETWEEN, Between, VERSIONS, acknowledge, come_back, expect_no_rest, is_for_nobody, is_present, lasting,
    lasting_with, leave, pass, rest, say, start, subscribe_and_leave, take, texts,
};
use crate::tools::{eventually, metric, number_of, publish_all};

#[test]
fn subscriptions_and_what_waits_for_them_survive_a_restart() {
    for (version, threads) in [(V311, 1), (V5, 4)] {
        let database = Database::memory();
        let server = start(&database, threads);
        let filters = [("one/+", QoS::AtLeastOnce), ("two", QoS::ExactlyOnce), ("zero", QoS::AtMostOnce)];
        subscribe_and_leave(&server, version, "ann", &filters);
        let mut expected = Vec::new();
        for round in 0..3 {
            for (topic, qos) in
                [("one/a", QoS::ExactlyOnce), ("two", QoS::ExactlyOnce), ("two", QoS::AtLeastOnce)]
            {
                let text = format!("{round} {topic} {qos:?}");
                say(&server, qos, topic, &[&text]);
                expected.push(text);
            }
            // Not stored: one was subscribed with QoS 0, the other is published with it.
            say(&server, QoS::AtLeastOnce, "zero", &["not kept"]);
            say(&server, QoS::AtMostOnce, "two", &["not kept"]);
        }
        let server = pass(Between::Restart, server, &database);
        say(&server, QoS::AtLeastOnce, "two", &["after the restart"]);
        expected.push("after the restart".into());
        let mut ann = come_back(&server, version, "ann");
        let got = rest(&server, &mut ann, "two");
        assert_eq!(texts(&got), expected);
        assert!(got.iter().all(|message| !message.dup && !message.retain));
        let qos: Vec<QoS> = got[..3].iter().map(|message| message.qos).collect();
        assert_eq!(qos, [QoS::AtLeastOnce, QoS::ExactlyOnce, QoS::AtLeastOnce]);
        // Then all subscriptions are live, also the one with QoS 0.
        say(&server, QoS::AtMostOnce, "zero", &["live"]);
        say(&server, QoS::ExactlyOnce, "one/b", &["live"]);
        for topic in ["zero", "one/b"] {
            let message = take(&mut ann);
            assert_eq!((message.topic, message.payload), (topic, &b"live"[..]));
            acknowledge(&mut ann, &message);
        }
    }
}

/// Payload, quality of service, RETAIN and identifiers of a message.
fn face(message: &Publish<'_>) -> (String, u8, bool, Vec<u32>) {
    let mut identifiers: Vec<u32> = list(message.properties)
        .iter()
        .filter_map(|property| match property {
            Property::SubscriptionIdentifier(identifier) => Some(*identifier),
            _ => None,
        })
        .collect();
    identifiers.sort_unstable();
    let text = String::from_utf8(message.payload.to_vec()).unwrap();
    (text, message.qos as u8, message.retain, identifiers)
}

#[test]
fn options_of_subscriptions_survive_whether_messages_come_live_or_waited() {
    for threads in [1, 4] {
        let database = Database::memory();
        let mut server = start(&database, threads);
        let mut ann = Client::open(&server, lasting(V5, "ann"));
        let qos = |qos| SubscribeOptions { qos, ..SubscribeOptions::default() };
        let subscriptions = [
            ("o/#", qos(QoS::AtLeastOnce), 1),
            ("o/a", qos(QoS::ExactlyOnce), 70_000),
            ("own/#", SubscribeOptions { no_local: true, ..qos(QoS::ExactlyOnce) }, 3),
            ("kept/#", SubscribeOptions { retain_as_published: true, ..qos(QoS::AtLeastOnce) }, 0),
        ];
        for (filter, options, identifier) in subscriptions {
            let identifier = [Property::SubscriptionIdentifier(identifier)];
            let given =
                if identifier[0] == Property::SubscriptionIdentifier(0) { &[][..] } else { &identifier };
            ann.subscribe_all(&[(filter, options)], properties(given));
        }
        for round in 0..3 {
            let own = publish_qos(QoS::AtLeastOnce, 9, "own/a", b"its own");
            // Waits, live, waits over a restart.
            let is_live = round == 1;
            ann.publish(own);
            if !is_live {
                leave(&mut ann, true);
            }
            say(&server, QoS::ExactlyOnce, "o/a", &["both"]);
            say(&server, QoS::AtLeastOnce, "own/a", &["another's"]);
            let mut publisher = Client::connect(&server, V5, "publisher");
            for topic in ["kept/a", "o/b"] {
                let message = publish_qos(QoS::AtLeastOnce, 1, topic, topic.as_bytes());
                publisher.publish(Publish { retain: true, ..message });
            }
            publisher.disconnect();
            server = pass(if round == 2 { Between::Restart } else { Between::Nothing }, server, &database);
            if !is_live {
                ann = come_back(&server, V5, "ann");
            }
            let got: Vec<_> = rest(&server, &mut ann, "o/z").iter().map(face).collect();
            let expected = [
                ("both", 2, false, vec![1, 70_000]),
                ("another's", 1, false, vec![3]),
                ("kept/a", 1, true, vec![]),
                ("o/b", 1, false, vec![1]),
            ];
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(text, qos, retain, ids)| (text.to_owned(), qos, retain, ids))
                .collect();
            assert_eq!(got, expected, "round {round}, {threads} threads");
            if is_live {
                continue;
            }
            // Messages that it has acknowledged do not come again.
            leave(&mut ann, false);
            ann = come_back(&server, V5, "ann");
            expect_no_rest(&server, &mut ann, "o/z");
        }
    }
}

/// Subscriptions with QoS 0 have no stream in the store.
//= [MQTT-3.3.4-4] v5
#[test]
fn a_message_that_waited_carries_the_identifiers_of_qos_0_subscriptions_as_a_live_one_does() {
    for (threads, between) in [(1, Between::Nothing), (4, Between::Nothing), (1, Between::Restart)] {
        let database = Database::memory();
        let mut server = start(&database, threads);
        let mut ann = Client::open(&server, lasting(V5, "ann"));
        let qos = |qos| SubscribeOptions { qos, ..SubscribeOptions::default() };
        let subscriptions = [
            ("a/#", SubscribeOptions { retain_as_published: true, ..qos(QoS::AtMostOnce) }, 1),
            ("a/+", qos(QoS::AtLeastOnce), 2),
            ("other/#", qos(QoS::AtMostOnce), 3),
            ("+/b", qos(QoS::ExactlyOnce), 4),
        ];
        for (filter, options, identifier) in subscriptions {
            let identifier = [Property::SubscriptionIdentifier(identifier)];
            ann.subscribe_all(&[(filter, options)], properties(&identifier));
        }
        for is_live in [true, false, false] {
            if !is_live {
                leave(&mut ann, true);
            }
            let mut publisher = Client::connect(&server, V5, "publisher");
            for (topic, qos) in
                [("a/b", QoS::ExactlyOnce), ("a/b", QoS::AtLeastOnce), ("a/c", QoS::AtLeastOnce)]
            {
                publisher.publish(Publish { retain: true, ..publish_qos(qos, 1, topic, b"x") });
            }
            publisher.disconnect();
            if !is_live {
                server = pass(between, server, &database);
                ann = come_back(&server, V5, "ann");
            }
            let got: Vec<_> = rest(&server, &mut ann, "a/z").iter().map(face).collect();
            let expected = [(2, vec![1, 2, 4]), (1, vec![1, 2, 4]), (1, vec![1, 2])];
            let expected = expected.map(|(qos, identifiers)| ("x".to_owned(), qos, true, identifiers));
            assert_eq!(got, expected, "{threads} threads, {between:?}, live {is_live}");
        }
    }
}

#[test]
fn a_clean_start_discards_all() {
    for version in VERSIONS {
        for between in BETWEEN {
            let database = Database::memory();
            let server = start(&database, 1);
            subscribe_and_leave(&server, version, "ann", &[("t", QoS::ExactlyOnce)]);
            say(&server, QoS::ExactlyOnce, "t", &["one", "two"]);
            let mut ann = come_back(&server, version, "ann");
            take(&mut ann);
            ann.cut();
            let server = pass(between, server, &database);
            // Then a session that ends with its connection, and one that does not.
            for keeps in [false, true] {
                let mut request = if keeps { lasting(version, "ann") } else { connect(version, "ann") };
                request.clean_start = true;
                let mut ann = Client::open(&server, request);
                assert!(!is_present(&ann));
                assert!(is_for_nobody(&server, "t"));
                ann.expect_nothing();
                ann.disconnect();
            }
            let mut ann = Client::open(&server, lasting(version, "ann"));
            ann.subscribe("t", QoS::ExactlyOnce);
            expect_no_rest(&server, &mut ann, "t");
        }
    }
}

#[test]
fn a_session_ends_when_its_expiry_is_over_and_not_before() {
    for between in BETWEEN {
        let database = Database::memory();
        let mut server = start(&database, 1);
        // Client id, expiry in the CONNECT, expiry in the DISCONNECT, whether the session is there two seconds later.
        let cases = [
            ("short", 1, None, false),
            ("shortened", 3600, Some(1), false),
            ("ended", 3600, Some(0), false),
            ("long", 3600, None, true),
            ("prolonged", 1, Some(3600), true),
        ];
        for (id, connect_s, disconnect_s, _) in cases {
            let expiry = [Property::SessionExpiryInterval(connect_s)];
            let request = millrace_mqtt::Connect { properties: properties(&expiry), ..lasting(V5, id) };
            let mut client = Client::open(&server, request);
            client.subscribe(id, QoS::AtLeastOnce);
            let given: Vec<_> = disconnect_s.map(Property::SessionExpiryInterval).into_iter().collect();
            client.disconnect_with(Disconnect {
                properties: properties(&given),
                ..disconnect(ReasonCode::SUCCESS)
            });
            assert_eq!(is_for_nobody(&server, id), disconnect_s == Some(0), "{id}");
        }
        server = pass(between, server, &database);
        for (id, _, _, is_there) in cases {
            if !is_there {
                eventually(|| is_for_nobody(&server, id), || id.into());
            }
        }
        for (id, _, _, is_there) in cases {
            assert_eq!(is_for_nobody(&server, id), !is_there, "{id}");
            let client = Client::open(&server, lasting(V5, id));
            assert_eq!(is_present(&client), is_there, "{id}");
        }
    }
}

#[test]
fn a_session_whose_expiry_ends_while_it_is_connected_stays() {
    let server = start(&Database::memory(), 1);
    let expiry = [Property::SessionExpiryInterval(1)];
    let request = || millrace_mqtt::Connect { properties: properties(&expiry), ..lasting(V5, "ann") };
    Client::open(&server, request()).disconnect();
    let mut ann = Client::open(&server, request());
    assert!(is_present(&ann));
    ann.subscribe("t", QoS::AtLeastOnce);
    // Another one with the same expiry ends meanwhile.
    let mut clock = Client::open(&server, millrace_mqtt::Connect { client_id: "clock", ..request() });
    clock.subscribe("clock", QoS::AtLeastOnce);
    clock.disconnect();
    eventually(|| is_for_nobody(&server, "clock"), || "it does not end".into());
    expect_no_rest(&server, &mut ann, "t");
}

#[test]
fn a_lasting_session_has_a_thousand_subscriptions_and_filters_of_a_kilobyte_at_most() {
    for version in VERSIONS {
        let database = Database::memory();
        let server = start(&database, 1);
        let refused = |reason: ReasonCode| if version == V5 { reason.0 } else { 0x80 };
        let (full, too_long) =
            (refused(ReasonCode::QUOTA_EXCEEDED), refused(ReasonCode::TOPIC_FILTER_INVALID));
        let at_least_once = SubscribeOptions { qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
        let long = format!("long/{}", "x".repeat(1020));
        let filters: Vec<String> = (0..1000).map(|number| format!("t/{number}/+")).collect();
        let mut ann = Client::open(&server, lasting(version, "ann"));
        for page in filters.chunks(250) {
            let all: Vec<_> = page.iter().map(|filter| (filter.as_str(), at_least_once)).collect();
            let granted = ann.subscribe_all(&all, properties(&[])).reasons.to_vec();
            assert!(granted.iter().all(|reason| *reason == 1), "{granted:?}");
        }
        let wanted = [("one/more", at_least_once), ("t/7/+", at_least_once), (&*long, at_least_once)];
        assert_eq!(ann.subscribe_all(&wanted, properties(&[])).reasons, [full, 1, too_long]);
        let explained = ann.subscribe_all(&wanted[2..], properties(&[]));
        let is_explained =
            |property| matches!(property, Property::ReasonString(text) if text.contains("1024"));
        assert_eq!(explained.properties.iter().any(is_explained), version == V5);
        // One goes, one comes.
        ann.unsubscribe(&["t/8/+"]);
        assert_eq!(ann.subscribe_all(&wanted[..1], properties(&[])).reasons, [1]);
        ann.disconnect();
        let server = pass(Between::Restart, server, &database);
        for (topic, is_kept) in [("t/0/a", true), ("t/999/a", true), ("one/more", true), ("t/8/a", false)] {
            assert_eq!(is_for_nobody(&server, topic), !is_kept, "{topic}");
        }
        assert!(is_for_nobody(&server, &long));
        let mut ann = come_back(&server, version, "ann");
        assert_eq!(rest(&server, &mut ann, "one/more").len(), 3);
        // One that ends with its connection is not limited by the store.
        let mut bob = Client::connect(&server, version, "bob");
        assert_eq!(bob.subscribe_all(&wanted[2..], properties(&[])).reasons, [1]);
    }
}

#[test]
fn qos_0_subscriptions_are_kept_and_their_messages_are_not() {
    let database = Database::memory();
    let server = start(&database, 1);
    subscribe_and_leave(&server, V311, "ann", &[("t", QoS::AtMostOnce)]);
    let server = pass(Between::Restart, server, &database);
    assert!(is_for_nobody(&server, "t"));
    let mut ann = come_back(&server, V311, "ann");
    let mut publisher = Client::connect(&server, V5, "publisher");
    publisher.publish(publish("t", b"live"));
    assert_eq!(take(&mut ann).payload, b"live");
    // A subscription that is raised to QoS 1 has messages stored from then on.
    ann.subscribe("t", QoS::AtLeastOnce);
    ann.disconnect();
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", b"kept"));
    let mut ann = Client::open(&server, lasting_with(V5, "ann", &[Property::ReceiveMaximum(10)]));
    assert_eq!(texts(&rest(&server, &mut ann, "t")), ["kept"]);
}

#[test]
fn sessions_that_share_streams_read_each_from_its_own_place() {
    const COUNT: usize = 700;
    let database = Database::memory();
    let mut server = start(&database, 2);
    let ids: Vec<String> = (0..5).map(|number| format!("reader {number}")).collect();
    for id in &ids {
        let own = format!("own/{id}");
        let filters = [("c/#", QoS::AtLeastOnce), ("+/x", QoS::AtLeastOnce), (&own, QoS::AtLeastOnce)];
        subscribe_and_leave(&server, V5, id, &filters);
    }
    // Each must get all messages of the common topics, and its own.
    let mut expected: Vec<Vec<String>> = vec![Vec::new(); ids.len()];
    let mut publisher = Client::connect(&server, V5, "publisher");
    for round in 0..ids.len() {
        for number in 0..COUNT {
            let reader = number % ids.len();
            let topic = match number % 4 {
                0 => "c/x".to_string(),
                1 => "c/y".to_string(),
                2 => "d/x".to_string(),
                _ => format!("own/{}", ids[reader]),
            };
            let text = format!("{round} {number}");
            publisher.publish(publish_qos(QoS::AtLeastOnce, 1, &topic, text.as_bytes()));
            for (of, expected) in expected.iter_mut().enumerate() {
                if number % 4 < 3 || of == reader {
                    expected.push(text.clone());
                }
            }
        }
        // One of them comes back and takes all; at the end the others, which have read nothing yet or a part.
        take_all(&server, &ids[round], &mut expected[round]);
        if round == 2 {
            drop(publisher);
            server = pass(Between::Restart, server, &database);
            publisher = Client::connect(&server, V5, "publisher");
        }
    }
    std::thread::scope(|scope| {
        for (id, expected) in ids.iter().zip(&mut expected) {
            let server = &server;
            scope.spawn(move || take_all(server, id, expected));
        }
    });
}

/// A session comes back, and gets just these.
fn take_all(server: &Server, id: &str, expected: &mut Vec<String>) {
    let mut client = come_back(server, V5, id);
    for text in expected.drain(..) {
        let message = take(&mut client);
        assert_eq!(String::from_utf8_lossy(message.payload), text, "{id}");
        acknowledge(&mut client, &message);
    }
    client.ping();
    leave(&mut client, true);
}

#[test]
fn messages_that_match_many_filters_of_a_session_are_read_over_several_turns() {
    const COUNT: usize = 400;
    let server = Server::on(&Database::memory(), |config| config.threads = 1);
    // Each of 256 filters matches each message.
    let level = |number: usize, bit: usize| if number >> bit & 1 == 0 { "a/" } else { "+/" };
    let names: Vec<String> =
        (0..256).map(|number| (0..8).map(|bit| level(number, bit)).collect::<String>() + "x").collect();
    let filters: Vec<(&str, QoS)> = names.iter().map(|name| (&**name, QoS::AtLeastOnce)).collect();
    subscribe_and_leave(&server, V5, "reader", &filters);
    let topic = "a/".repeat(8) + "x";
    let mut publisher = Client::connect(&server, V5, "publisher");
    publish_all(&mut publisher, QoS::AtLeastOnce, &topic, COUNT as u64, 8);
    let mut reader = come_back(&server, V5, "reader");
    for number in 0..COUNT as u64 {
        let message = reader.recv_publish();
        assert_eq!(number_of(message.payload), number);
        reader.send(&Packet::PubAck(ack(message.packet_id.unwrap())));
    }
    reader.ping();
    let work = metric(&server, "millrace_edge_turn_work_max", "");
    assert!(work < 60_000, "a turn did {work} units of work");
}
