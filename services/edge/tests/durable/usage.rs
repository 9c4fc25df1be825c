//! The recorded usage of brokers is exactly what their clients have sent and received.

use millrace_layers::catalog::{self, Details};
use millrace_layers::metering::{self, Point, Resolution, WINDOW_MS, Window, message_units};
use millrace_layers::{BrokerId, Store, accounts, streams};
use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Packet, Publish, QoS, ReasonCode, encode};
use millrace_storage::{Database, Read, block_on};

use crate::away::{Far, Way, named};
use crate::common::{Client, Server, connect, publish, publish_qos};
use crate::pods::now_ms;
use crate::region::pod_at;
use crate::steps::{acknowledge, come_back, lasting, say, subscribe_and_leave, take};
use crate::tools::{eventually, metric};

/// Payloads to the topic `t`: around the ends of units.
const PAYLOADS: [usize; 6] = [0, 1, 4_095, 4_096, 8_191, 8_192];
const LEVELS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

fn broker(store: &Store) -> BrokerId {
    block_on(store.ensure_broker(catalog::DEFAULT)).unwrap().id
}

/// The usage of the hours around now, as it is read `later` hours later.
fn windows(database: &Database, later: u64) -> Vec<Window> {
    let store = Store::new(database.clone());
    let id = broker(&store);
    let (from_ms, until_ms) = (now_ms() - WINDOW_MS, now_ms() + later * WINDOW_MS);
    block_on(store.run(async |tx| metering::used(&tx, id, from_ms, until_ms + 1, until_ms).await)).unwrap()
}

/// The sum of that.
fn used(database: &Database) -> Window {
    let mut sum = Window::default();
    for window in windows(database, 0) {
        sum.connected_ms += window.connected_ms;
        sum.messages_in += window.messages_in;
        sum.messages_delivered += window.messages_delivered;
        sum.bytes_in += window.bytes_in;
        sum.bytes_out += window.bytes_out;
    }
    sum
}

fn units_and_bytes(sizes: &[usize]) -> (u64, u64) {
    (sizes.iter().map(|size| message_units(*size)).sum(), sizes.iter().sum::<usize>() as u64)
}

#[test]
fn usage_is_what_clients_sent_and_got_in_units_of_4_kib() {
    for pod in [None, Some("pod")] {
        let database = Database::memory();
        let server = Server::on(&database, |config| {
            config.pod = pod.map(Into::into);
            config.threads = 2;
        });
        let versions = [(V311, QoS::AtMostOnce), (V5, QoS::AtLeastOnce)];
        let mut readers: Vec<Client> = versions
            .iter()
            .map(|(version, qos)| Client::connect(&server, *version, &format!("{qos:?}")))
            .collect();
        readers.push(Client::open(&server, lasting(V5, "lasting")));
        for (reader, qos) in readers.iter_mut().zip(LEVELS) {
            reader.subscribe("t", qos);
        }
        let mut sizes = Vec::new();
        for version in [V311, V5] {
            let mut writer = Client::connect(&server, version, "writer");
            for (number, length) in (1..).zip(PAYLOADS) {
                let payload = vec![b'x'; length];
                for qos in LEVELS {
                    let message = match qos {
                        QoS::AtMostOnce => publish("t", &payload),
                        _ => publish_qos(qos, number, "t", &payload),
                    };
                    assert!(!writer.publish(message).is_error());
                    sizes.push(1 + length);
                    for reader in &mut readers {
                        let message = take(reader);
                        acknowledge(reader, &message);
                    }
                }
            }
            // Nobody subscribes to this.
            writer.publish(publish("nobody", &[0; 4_090]));
            writer.disconnect();
        }
        readers.into_iter().for_each(Client::disconnect);
        drop(server);
        let (units_out, bytes_out) = units_and_bytes(&sizes.repeat(3));
        sizes.extend([4_096; 2]);
        let (units_in, bytes_in) = units_and_bytes(&sizes);
        let used = used(&database);
        assert_eq!((used.messages_in, used.bytes_in), (units_in, bytes_in), "{pod:?}");
        assert_eq!((used.messages_delivered, used.bytes_out), (units_out, bytes_out), "{pod:?}");
        assert!(used.connected_ms > 0);
    }
}

#[test]
fn runs_of_messages_are_counted_one_by_one() {
    let database = Database::memory();
    let server = Server::on(&database, |config| config.threads = 2);
    let mut readers = [V311, V5].map(|version| Client::connect(&server, version, &format!("{version:?}")));
    readers.iter_mut().for_each(|reader| reader.subscribe("t/#", QoS::AtMostOnce));
    let (mut sizes, mut bytes) = (Vec::new(), Vec::new());
    for length in (0..200).map(|number| number * 50) {
        let payload = vec![b'x'; length];
        encode::packet(&Packet::Publish(publish("t/1", &payload)), V5, &mut bytes);
        sizes.push(3 + length);
    }
    let mut writer = Client::connect(&server, V5, "writer");
    writer.send_bytes(&bytes);
    writer.ping();
    for reader in &mut readers {
        for size in &sizes {
            assert_eq!(take(reader).payload.len() + 3, *size);
        }
    }
    drop(server);
    let used = used(&database);
    assert_eq!((used.messages_in, used.bytes_in), units_and_bytes(&sizes));
    assert_eq!((used.messages_delivered, used.bytes_out), units_and_bytes(&sizes.repeat(2)));
}

#[test]
fn retained_messages_count_where_they_go_and_what_is_of_the_server_is_free() {
    for pod in [None, Some("pod")] {
        let database = Database::memory();
        let server = Server::on(&database, |config| {
            config.pod = pod.map(Into::into);
            config.limits.sys_interval_s = 1;
        });
        let mut writer = Client::connect(&server, V5, "writer");
        let payload = [b'x'; 4_096];
        writer.publish(Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, "r", &payload) });
        for (number, qos) in (0..).zip(LEVELS) {
            let mut reader = Client::connect(&server, V5, &format!("reader {number}"));
            reader.subscribe("r", qos);
            let message = take(&mut reader);
            acknowledge(&mut reader, &message);
            reader.ping();
        }
        let mut curious = Client::connect(&server, V5, "curious");
        curious.subscribe("$SYS/#", QoS::AtMostOnce);
        assert!(take(&mut curious).topic.starts_with("$SYS/"));
        drop(server);
        let used = used(&database);
        assert_eq!((used.messages_in, used.bytes_in), (2, 4_097), "{pod:?}");
        assert_eq!((used.messages_delivered, used.bytes_out), (6, 3 * 4_097), "{pod:?}");
    }
}

#[test]
fn what_is_refused_and_what_is_sent_again_is_free() {
    let database = Database::memory();
    let server = Server::on(&database, |_| {});
    let mut reader = Client::open(&server, lasting(V5, "reader"));
    reader.subscribe("a", QoS::AtLeastOnce);
    say(&server, QoS::AtLeastOnce, "a", &["once"]);
    take(&mut reader);
    reader.cut();
    for _ in 0..3 {
        let mut reader = come_back(&server, V5, "reader");
        assert!(take(&mut reader).dup);
        reader.cut();
    }
    let mut writer = Client::connect(&server, V5, "writer");
    let refused = writer.publish(publish_qos(QoS::AtLeastOnce, 1, "$SYS/mine", b"x"));
    assert_eq!(refused, ReasonCode::NOT_AUTHORIZED);
    drop(server);
    let used = used(&database);
    assert_eq!((used.messages_in, used.messages_delivered), (1, 1));
}

#[test]
fn what_waits_is_counted_for_as_long_as_it_waits() {
    let database = Database::memory();
    let server = Server::on(&database, |_| {});
    for name in ["ann", "bob"] {
        subscribe_and_leave(&server, V5, name, &[("kept/#", QoS::AtLeastOnce)]);
    }
    subscribe_and_leave(&server, V5, "cy", &[("kept/a", QoS::AtLeastOnce)]);
    say(&server, QoS::AtLeastOnce, "kept/a", &["one", "another"]);
    let store = Store::new(database.clone());
    let id = broker(&store);
    let held = || {
        let all = block_on(store.run(async |tx| streams::list(&tx, id, None, 100).await)).unwrap();
        let bytes =
            |stream| block_on(store.run(async |tx| streams::totals(&tx, id, stream).await)).unwrap().bytes;
        all.into_iter().map(|(stream, _)| bytes(stream)).sum::<u64>()
    };
    // The next hour in which nothing happens.
    let later = || windows(&database, 3)[2];
    assert!(held() > 0);
    assert_eq!(later().stored_session_ms, 3 * WINDOW_MS);
    assert_eq!(later().stored_byte_s, 3_600 * held());
    for name in ["ann", "bob", "cy"] {
        let mut client = come_back(&server, V5, name);
        for _ in 0..2 {
            let message = take(&mut client);
            acknowledge(&mut client, &message);
        }
        client.ping();
        client.disconnect();
    }
    let is_all = || later().stored_session_ms == 3 * WINDOW_MS && later().stored_byte_s == 3_600 * held();
    eventually(is_all, || format!("{:?}, held {}", later(), held()));
    drop(server);
    assert!(is_all(), "{:?}, held {}", later(), held());
}

#[test]
fn nothing_is_counted_twice_when_answers_of_the_store_are_lost() {
    let far = Far::new();
    let server = named(&far, "pod");
    let mut reader = Client::connect(&server, V5, "reader");
    reader.subscribe("kept/a", QoS::AtLeastOnce);
    subscribe_and_leave(&server, V5, "offline", &[("kept/#", QoS::AtLeastOnce)]);
    far.set(Way::Loses);
    for number in 1..=40 {
        let mut writer = Client::connect(&server, V5, "writer");
        let reason = writer.publish(publish_qos(QoS::AtLeastOnce, number, "kept/a", b"x"));
        assert!(!reason.is_error(), "{reason}");
        let message = take(&mut reader);
        acknowledge(&mut reader, &message);
    }
    reader.ping();
    drop(server);
    let used = used(far.near());
    assert_eq!((used.messages_in, used.messages_delivered), (40, 40));
    assert_eq!((used.bytes_in, used.bytes_out), (40 * 7, 40 * 7));
}

#[test]
fn usage_of_several_pods_adds_up() {
    let database = Database::memory();
    let pods = ["one", "two"].map(|name| pod_at(&database, name, 1, None));
    let mut readers: Vec<Client> = (0..)
        .zip(&pods)
        .map(|(number, pod)| Client::open(pod, lasting(V5, &format!("reader {number}"))))
        .collect();
    readers.iter_mut().for_each(|reader| reader.subscribe("a", QoS::AtLeastOnce));
    for pod in &pods {
        say(pod, QoS::AtLeastOnce, "a", &["1", "2", "3"]);
    }
    for reader in &mut readers {
        for _ in 0..6 {
            let message = take(reader);
            acknowledge(reader, &message);
        }
        reader.ping();
    }
    let store = Store::new(database.clone());
    let id = broker(&store);
    let live = || block_on(store.run(async |tx| metering::live(&tx, id, now_ms()).await)).unwrap();
    eventually(
        || (live().connections, live().messages_in, live().messages_out) == (2, 6, 12),
        || format!("{:?}", live()),
    );
    drop(pods);
    let used = used(&database);
    assert_eq!((used.messages_in, used.messages_delivered), (6, 12));
    assert_eq!(live().connections, 0);
}

#[test]
fn the_history_of_a_broker_is_the_sum_of_what_its_pods_counted() {
    let database = Database::memory();
    let began_ms = now_ms();
    let pods = ["one", "two"].map(|name| pod_at(&database, name, 1, None));
    let mut reader = Client::open(&pods[0], lasting(V5, "reader"));
    reader.subscribe("a", QoS::AtLeastOnce);
    for pod in &pods {
        say(pod, QoS::AtLeastOnce, "a", &["1", "2", "3"]);
    }
    // The last message stays in the store.
    for _ in 0..5 {
        let message = take(&mut reader);
        acknowledge(&mut reader, &message);
    }
    take(&mut reader);
    reader.ping();
    drop(reader);
    drop(pods);
    let store = Store::new(database.clone());
    let id = broker(&store);
    for resolution in Resolution::ALL {
        let read = store.run(async |tx| {
            let to_ms = now_ms() + resolution.window_ms();
            metering::history(&tx, id, resolution, began_ms, to_ms).await
        });
        let mut sum = Point::default();
        block_on(read).unwrap().iter().for_each(|(_, point)| sum.add(point));
        assert_eq!((sum.messages_in, sum.messages_out), (6, 6), "{resolution:?}");
        assert_eq!(sum.latencies.iter().sum::<u64>(), 6, "each message was acknowledged after its commit");
        assert!(sum.connected_ms > 0 && sum.bytes_in == 12 && sum.bytes_out == 12, "{sum:?}");
        let least_ms = sum.connected_ms / 10;
        assert!((least_ms..=now_ms() - began_ms).contains(&sum.measured_ms), "{sum:?}");
        assert!(sum.stored_messages >= 1 && sum.stored_bytes > 0, "{sum:?}");
    }
}

/// Says that a spend cap of the broker was reached, as the control plane does.
fn set_over_cap(database: &Database, is_over_cap: bool) {
    let store = Store::new(database.clone());
    let written = store.run(async |tx| {
        let found = catalog::get(&tx, catalog::DEFAULT, Read::Serializable).await?.unwrap();
        catalog::describe(&tx, &found, &Details { is_over_cap, ..Details::default() }).await?;
        accounts::touch(&tx, found.id)
    });
    block_on(written).unwrap();
}

#[test]
fn a_broker_over_its_spend_cap_takes_nothing_and_keeps_what_it_has() {
    let database = Database::memory();
    let server = Server::on(&database, |config| config.limits.refusal_spread_ms = 0);
    let mut reader = Client::open(&server, lasting(V5, "reader"));
    reader.subscribe("a", QoS::AtLeastOnce);
    let mut writer = Client::connect(&server, V5, "writer");
    let mut older = Client::connect(&server, V311, "older");
    set_over_cap(&database, true);
    let mut number = 0;
    let mut publish_one = |writer: &mut Client| {
        number += 1;
        writer.publish(publish_qos(QoS::AtLeastOnce, number, "a", b"x"))
    };
    eventually(
        || publish_one(&mut writer) == ReasonCode::QUOTA_EXCEEDED,
        || "it still takes messages".into(),
    );
    writer.send(&Packet::Publish(publish("a", b"refused")));
    // A PUBACK would say to a 3.x client that its message is stored, so the server closes.
    older.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"refused")));
    older.expect_close();
    for version in [V311, V5] {
        let refused = Client::refused(&server, connect(version, "new")).reason;
        let expected = if version == V5 { ReasonCode::QUOTA_EXCEEDED } else { ReasonCode(3) };
        assert_eq!(refused, expected);
    }
    assert!(metric(&server, "millrace_publishes_refused_total", "reason=\"spend_cap\"") >= 3);
    assert_eq!(metric(&server, "millrace_connects_refused_total", "reason=\"spend_cap\""), 2);
    set_over_cap(&database, false);
    eventually(|| publish_one(&mut writer) == ReasonCode::SUCCESS, || "it takes no messages".into());
    loop {
        let message = take(&mut reader);
        assert_eq!(message.payload, b"x");
        acknowledge(&mut reader, &message);
        if reader.unread().is_empty() {
            break;
        }
    }
    Client::connect(&server, V311, "new").disconnect();
}
