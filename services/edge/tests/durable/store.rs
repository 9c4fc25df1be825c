//! Messages that are written and that are not, and those that the limits of waiting messages remove.

use std::time::Duration;

use millrace_layers::streams::{self, StreamId, Totals};
use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Property, Publish, QoS};
use millrace_storage::{Database, block_on};

use crate::common::{Client, Server, list, properties, publish_qos};
use crate::history::publish_mixed;
use crate::steps::{come_back, is_for_nobody, lasting, rest, say, start, subscribe_and_leave, take};
use crate::tools::{counted, eventually, expect_count, metric, number_of};

/// The version of the store: it grows with each transaction that writes.
fn version(server: &Server, database: &Database) -> u64 {
    // The end of the last connection is written before the next one gets its session.
    Client::connect(server, V5, "last").disconnect();
    let store = millrace_layers::Store::new(database.clone());
    block_on(store.run(async |tx| Ok(tx.read_version().await?))).unwrap()
}

/// The streams with what they have.
fn streams(database: &Database) -> Vec<(StreamId, Totals)> {
    let store = millrace_layers::Store::new(database.clone());
    let broker = block_on(store.ensure_broker(b"default")).unwrap().id;
    let all = block_on(store.run(async |tx| streams::list(&tx, broker, None, 10_000).await)).unwrap();
    let totals = |id| block_on(store.run(async |tx| streams::totals(&tx, broker, id).await)).unwrap();
    all.into_iter().map(|(id, _)| (id, totals(id))).collect()
}

pub(crate) fn entries(database: &Database) -> Vec<u64> {
    streams(database).iter().map(|(_, totals)| totals.entries).collect()
}

#[test]
fn what_nobody_keeps_is_not_written() {
    for threads in [1, 4] {
        let database = Database::memory();
        let server = Server::on(&database, |config| {
            config.threads = threads;
            config.limits.usage_interval_s = 0;
        });
        // There are sessions, with other filters.
        subscribe_and_leave(&server, V5, "ann", &[("kept/#", QoS::AtLeastOnce)]);
        let before = version(&server, &database);
        for id in ["clean", "clean again"] {
            let mut client = Client::connect(&server, V311, id);
            client.subscribe("live/#", QoS::ExactlyOnce);
            publish_mixed(&server, "live/a", 50, &[QoS::AtLeastOnce, QoS::AtMostOnce], |_| {});
            say(&server, QoS::AtMostOnce, "kept/a", &["not kept"]);
            say(&server, QoS::ExactlyOnce, "live/b", &["x"]);
            assert!(is_for_nobody(&server, "nobody"));
            client.cut();
        }
        assert_eq!(version(&server, &database), before);
        assert_eq!(entries(&database), [0]);
    }
}

#[test]
fn packet_ids_of_qos_2_are_stored_together_also_with_qos_1_in_between() {
    const COUNT: u64 = 200;
    let database = Database::memory();
    let server = Server::on(&database, |config| {
        config.threads = 1;
        config.limits.usage_interval_s = 0;
    });
    subscribe_and_leave(&server, V5, "reader", &[("t/+", QoS::ExactlyOnce)]);
    publish_mixed(&server, "t/a", COUNT, &[QoS::AtLeastOnce, QoS::ExactlyOnce], |_| {});
    let before = version(&server, &database);
    let mut reader = come_back(&server, V5, "reader");
    for _ in 0..COUNT {
        take(&mut reader);
    }
    let writes = version(&server, &database) - before;
    assert!(writes < 20, "{writes} transactions");
}

#[test]
fn a_message_for_a_thousand_offline_sessions_is_written_once() {
    let database = Database::memory();
    let server = Server::on(&database, |config| {
        config.threads = 1;
        // Reports of usage are written, too.
        config.limits.usage_interval_s = 0;
    });
    for number in 0..1000 {
        subscribe_and_leave(&server, V5, &format!("session {number}"), &[("t/+", QoS::AtLeastOnce)]);
    }
    let before = version(&server, &database);
    say(&server, QoS::AtLeastOnce, "t/a", &["x"]);
    assert_eq!(version(&server, &database), before + 1);
    let streams = streams(&database);
    assert_eq!(streams.len(), 1);
    assert_eq!(streams[0].1.entries, 1);
    eventually(|| metric(&server, "millrace_sessions", "") == 1000, || counted(&server));
    for number in [0, 500, 999] {
        let mut client = come_back(&server, V5, &format!("session {number}"));
        assert_eq!(take(&mut client).payload, b"x");
    }
}

#[test]
fn what_the_only_session_of_a_filter_has_acknowledged_goes() {
    let database = Database::memory();
    let server = start(&database, 1);
    subscribe_and_leave(&server, V5, "ann", &[("t", QoS::AtLeastOnce)]);
    say(&server, QoS::AtLeastOnce, "t", &["1", "2", "3"]);
    assert_eq!(entries(&database), [3]);
    let mut ann = come_back(&server, V5, "ann");
    assert_eq!(rest(&server, &mut ann, "t").len(), 3);
    ann.disconnect();
    eventually(|| entries(&database) == [0], || format!("{:?}", entries(&database)));
    // The stream goes with its last subscriber.
    drop(Client::connect(&server, V5, "ann"));
    assert!(streams(&database).is_empty());
}

#[test]
fn over_the_limit_the_oldest_go_and_what_a_session_missed_is_counted() {
    const LIMIT: u64 = 200;
    for version in [V311, V5] {
        let database = Database::memory();
        let server = Server::on(&database, |config| config.limits.queue_messages_max = 200);
        // Two, so that neither alone decides what is kept.
        for id in ["ann", "bob"] {
            subscribe_and_leave(&server, version, id, &[("t", QoS::AtLeastOnce)]);
        }
        publish_mixed(&server, "t", 1000, &[QoS::AtLeastOnce], |_| {});
        let trimmed = || metric(&server, "millrace_messages_trimmed_total", "");
        eventually(|| trimmed() >= 1000 - LIMIT, || counted(&server));
        let left = entries(&database)[0];
        assert!(left <= LIMIT && left + trimmed() == 1000, "{left}, {} went", trimmed());
        let mut ann = come_back(&server, version, "ann");
        say(&server, QoS::AtLeastOnce, "t", &["the very end"]);
        let got = crate::steps::take_until(&mut ann, "the very end");
        let numbers: Vec<u64> = got.iter().map(|message| number_of(message.payload)).collect();
        assert_eq!(numbers, (1000 - left..1000).collect::<Vec<u64>>());
        let missed = metric(&server, "millrace_messages_missed_total", "");
        assert!(missed >= trimmed(), "{missed} of {}", trimmed());
        // Removed messages are counted by the stream, not as drops of a connected session.
        let dropped = |server: &Server, reason: &str| crate::tools::dropped(server, reason);
        expect_count(dropped, &server, "queue_full", 0);
    }
}

#[test]
fn a_message_that_expired_while_it_waited_is_not_delivered_and_the_others_say_what_is_left() {
    //= [MQTT-3.3.2-5] [MQTT-3.3.2-6] v5
    for restarts in [false, true] {
        let database = Database::memory();
        let mut server = start(&database, 1);
        subscribe_and_leave(&server, V5, "ann", &[("t", QoS::ExactlyOnce)]);
        let mut publisher = Client::connect(&server, V5, "publisher");
        for (number, (seconds, text)) in [(1, "soon"), (100, "late"), (1, "soon too")].into_iter().enumerate()
        {
            let expiry = properties(&[Property::MessageExpiryInterval(seconds)]);
            let qos = if number == 2 { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
            let message = publish_qos(qos, u16::try_from(number + 1).unwrap(), "t", text.as_bytes());
            assert!(!publisher.publish(Publish { properties: expiry, ..message }).is_error());
        }
        publisher.expect_silence(Duration::from_millis(2100));
        if restarts {
            drop(server);
            server = start(&database, 1);
        }
        let mut ann = come_back(&server, V5, "ann");
        let late = take(&mut ann);
        assert_eq!(late.payload, b"late");
        let left = list(late.properties).into_iter().find_map(|property| match property {
            Property::MessageExpiryInterval(seconds) => Some(seconds),
            _ => None,
        });
        assert!(left.is_some_and(|left| (50..=98).contains(&left)), "{left:?}");
        crate::steps::acknowledge(&mut ann, &late);
        assert!(rest(&server, &mut ann, "t").is_empty());
        assert_eq!(crate::tools::dropped(&server, "expired"), 2);
        // Expired messages do not stop the cursor: the session is through its stream.
        ann.disconnect();
        assert!(rest(&server, &mut Client::open(&server, lasting(V5, "ann")), "t").is_empty());
    }
}
