//! Sessions that do not keep up: publishers continue, nothing is dropped, and all comes in order once they take it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Property, QoS, Version};
use millrace_storage::Database;

use crate::common::{Client, Server};
use crate::history::{History, publish_mixed};
use crate::steps::{come_back, lasting_with, start};
use crate::tools::{Packets, counted, half_close, metric, narrow, sum};

const KEPT: [QoS; 3] = [QoS::AtLeastOnce, QoS::ExactlyOnce, QoS::AtLeastOnce];

/// A lasting session that takes so many messages at a time, over a connection that takes in little that is not read.
fn slow(server: &Server, version: Version, id: &str, receive_maximum: u16) -> Client {
    let mut client = narrow(server);
    let more = [Property::ReceiveMaximum(receive_maximum)];
    client.send(&millrace_mqtt::Packet::Connect(lasting_with(version, id, &more)));
    client.recv_connack();
    client
}

/// Takes all there is, up to `total`.
fn take_all(history: &mut History, client: &Client, total: u64) {
    let mut packets = Packets::of(client);
    while history.total() < total {
        assert!(history.take(&mut packets, client, 1), "{} of {total}", history.total());
    }
}

#[test]
fn a_session_that_takes_nothing_holds_nobody_up_and_then_gets_all_in_order() {
    const COUNT: u64 = 20_000;
    // A 3.1.1 client cannot say how much it takes.
    for (version, receive_maximum, threads) in [(V5, 10, 1), (V311, 0, 4)] {
        let server = start(&Database::memory(), threads);
        let mut ann = slow(&server, version, "ann", receive_maximum);
        ann.subscribe("t/+", QoS::AtLeastOnce);
        let mut live = Client::connect(&server, V5, "live");
        live.subscribe("t/+", QoS::AtMostOnce);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut packets, mut count) = (Packets::of(&live), 0);
                while count < COUNT && packets.next().is_some() {
                    count += 1;
                }
                assert_eq!(count, COUNT, "somebody else was held up");
            });
            scope.spawn(|| publish_mixed(&server, "t/a", COUNT / 2, &[QoS::AtLeastOnce], |_| {}));
            publish_mixed(&server, "t/b", COUNT / 2, &[QoS::AtLeastOnce], |_| {});
        });
        assert_eq!(sum(&server, "millrace_messages_dropped_total"), 0, "{}", counted(&server));
        assert_eq!(metric(&server, "millrace_messages_trimmed_total", ""), 0);
        // Half on this connection, half on the next.
        let mut history = History::default();
        take_all(&mut history, &ann, COUNT / 2);
        half_close(ann.stream());
        let ann = come_back(&server, version, "ann");
        take_all(&mut history, &ann, COUNT);
        assert_eq!(sum(&server, "millrace_messages_dropped_total"), 0);
    }
}

#[test]
fn long_messages_that_nobody_takes_wait_in_the_store() {
    // 60 MB for each of two sessions, which share them.
    const COUNT: u64 = 60;
    let server = start(&Database::memory(), 1);
    let mut clients: Vec<Client> = ["ann", "bob"].iter().map(|id| slow(&server, V5, id, 1)).collect();
    clients.iter_mut().for_each(|client| client.subscribe("t", QoS::AtLeastOnce));
    let mut publisher = Client::connect(&server, V5, "publisher");
    for number in 0..COUNT {
        let payload = [crate::tools::numbered(number, 8), crate::tools::numbered(number, 1_000_000)].concat();
        let id = u16::try_from(number + 1).unwrap();
        let message = crate::common::publish_qos(QoS::AtLeastOnce, id, "t", &payload);
        assert!(!publisher.publish(message).is_error());
    }
    assert_eq!(sum(&server, "millrace_messages_dropped_total"), 0, "{}", counted(&server));
    for client in &clients {
        take_all(&mut History::default(), client, COUNT);
    }
}

#[test]
fn messages_without_an_acknowledgement_have_a_limit_in_bytes_and_all_come_when_the_client_acknowledges() {
    const MAX: u64 = 1_000_000;
    const COUNT: u64 = 60;
    let server = Server::on(&Database::memory(), |config| {
        (config.threads, config.limits.queue_memory_per_broker_max) = (1, MAX);
    });
    let bytes = || metric(&server, "millrace_queue_bytes", "");
    let mut ann = Client::open(&server, lasting_with(V5, "ann", &[]));
    ann.subscribe("t", QoS::AtLeastOnce);
    let mut publisher = Client::connect(&server, V5, "publisher");
    for number in 0..COUNT {
        let payload = crate::tools::numbered(number, 100_000);
        let id = u16::try_from(number + 1).unwrap();
        let message = crate::common::publish_qos(QoS::AtLeastOnce, id, "t", &payload);
        assert!(!publisher.publish(message).is_error());
    }
    // As many as there is room for, and no further one.
    let mut open: Vec<_> = (0..9).map(|_| ann.recv_publish()).collect();
    ann.ping();
    assert!((MAX * 8 / 10..=MAX).contains(&bytes()), "{} bytes", bytes());
    let mut next = 0;
    while let Some(message) = (!open.is_empty()).then(|| open.remove(0)) {
        assert_eq!(crate::tools::number_of(message.payload), next);
        next += 1;
        crate::steps::acknowledge(&mut ann, &message);
        if next + 8 < COUNT {
            open.push(ann.recv_publish());
        }
        assert!(bytes() <= MAX, "{} bytes", bytes());
    }
    assert_eq!((next, sum(&server, "millrace_messages_dropped_total")), (COUNT, 0), "{}", counted(&server));
    crate::tools::eventually(|| bytes() == 0, || format!("{} bytes are held by nobody", bytes()));
}

#[test]
fn sessions_of_one_filter_go_each_at_their_own_speed() {
    const COUNT: u64 = 3000;
    for threads in [1, 4] {
        let server = start(&Database::memory(), threads);
        let speeds = [("one", 1), ("ten", 10), ("fast", 1000)];
        let clients: Vec<Client> = speeds
            .iter()
            .map(|(id, receive_maximum)| {
                let mut client = slow(&server, V5, id, *receive_maximum);
                client.subscribe("t/+", QoS::ExactlyOnce);
                client
            })
            .collect();
        let published = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (client, (id, receive_maximum)) in clients.iter().zip(speeds) {
                let published = &published;
                scope.spawn(move || {
                    let mut history = History::default();
                    if receive_maximum == 10 {
                        // Takes nothing until all is published, but for a little.
                        assert!(history.take(&mut Packets::of(client), client, 5), "{id}");
                        crate::tools::eventually(|| published.load(Ordering::SeqCst), || "publishing".into());
                        // Packets that it has not read come again with the next connection.
                        half_close(client.stream());
                        return;
                    }
                    take_all(&mut history, client, COUNT);
                });
            }
            publish_mixed(&server, "t/a", COUNT, &KEPT, |_| {});
            published.store(true, Ordering::SeqCst);
        });
        let ten = come_back(&server, V5, "ten");
        ten.stream().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut history = History::default();
        history.begins_anywhere = true;
        let mut packets = Packets::of(&ten);
        while history.next_of("t/a") != Some(COUNT) {
            assert!(history.take(&mut packets, &ten, 1), "{:?}", history.next_of("t/a"));
        }
        assert_eq!(sum(&server, "millrace_messages_dropped_total"), 0, "{}", counted(&server));
    }
}
