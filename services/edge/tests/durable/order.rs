//! Messages of one publisher on one topic come in order (P4), and none is missing after SUBACK (P2).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{QoS, Version};
use millrace_storage::Database;

use crate::common::{Client, Server, connect};
use crate::history::{History, publish_mixed};
use crate::steps::{Disk, come_back, lasting, start, subscribe_and_leave};
use crate::tools::{Packets, Rng, dropped, half_close, numbered};

const MIXED: [QoS; 5] =
    [QoS::AtLeastOnce, QoS::AtMostOnce, QoS::ExactlyOnce, QoS::AtMostOnce, QoS::ExactlyOnce];
/// Messages that wait for offline sessions.
const KEPT: [QoS; 3] = [QoS::AtLeastOnce, QoS::ExactlyOnce, QoS::ExactlyOnce];

#[test]
fn qualities_of_service_do_not_overtake_each_other() {
    const COUNT: u64 = 1500;
    for (threads, version) in [(1, V311), (4, V5)] {
        let disk = Disk::new();
        let server = start(&disk.store.database(), threads);
        let requests = [connect(version, "clean"), lasting(version, "lasting"), lasting(version, "other")];
        let clients: Vec<Client> = requests
            .into_iter()
            .map(|request| {
                let mut client = Client::open(&server, request);
                client.subscribe("f/+", QoS::ExactlyOnce);
                client
            })
            .collect();
        std::thread::scope(|scope| {
            for topic in ["f/a", "f/b"] {
                let server = &server;
                scope.spawn(move || publish_mixed(server, topic, COUNT, &MIXED, |_| {}));
            }
            for client in &clients {
                scope.spawn(|| {
                    let (mut history, mut packets) = (History::default(), Packets::of(client));
                    // Towards the others a QoS 2 message waits until its packet id is stored.
                    history.is_strict = std::ptr::eq(client, &clients[0]);
                    while history.total() < 2 * COUNT {
                        assert!(
                            history.take(&mut packets, client, 1),
                            "{} of {}",
                            history.total(),
                            2 * COUNT
                        );
                    }
                });
            }
        });
    }
}

/// A client that comes and goes while messages flow, until it has them all.
fn come_and_go(server: &Server, version: Version, id: &str, seed: u64, total: u64) {
    let (mut history, mut rng, mut connections) = (History::default(), Rng(seed), 0);
    while history.total() < total {
        let mut client = come_back(server, version, id);
        client.stream().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let count = match rng.below(4) {
            0 => 0,
            1 => 1,
            _ => rng.below(200),
        };
        {
            let mut packets = Packets::of(&client);
            for _ in 0..count {
                if history.total() == total {
                    break;
                }
                let before = history.total();
                assert!(history.take(&mut packets, &client, 1), "{id} has {before} of {total}");
            }
        }
        if rng.below(2) == 0 {
            crate::steps::leave(&mut client, true);
        } else {
            half_close(client.stream());
        }
        connections += 1;
    }
    assert!(connections > 3, "{id} came only {connections} times");
    // Messages that it acknowledged before do not come again, and there is nothing else.
    let client = come_back(server, version, id);
    client.stream().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(!history.take(&mut Packets::of(&client), &client, 1), "{id} got more than there is");
}

#[test]
fn a_session_that_comes_and_goes_while_messages_flow_gets_each_once_in_order() {
    const COUNT: u64 = 1200;
    for (threads, version) in [(1, V5), (4, V311)] {
        let database = Database::memory();
        let server = start(&database, threads);
        let ids = ["ann", "bob", "eve"];
        for id in ids {
            subscribe_and_leave(
                &server,
                version,
                id,
                &[("f/+", QoS::ExactlyOnce), ("f/a", QoS::ExactlyOnce)],
            );
        }
        std::thread::scope(|scope| {
            for topic in ["f/a", "f/b"] {
                let server = &server;
                scope.spawn(move || publish_mixed(server, topic, COUNT, &KEPT, |_| {}));
            }
            for (seed, id) in (1..).zip(ids) {
                let server = &server;
                scope.spawn(move || come_and_go(server, version, id, seed, 2 * COUNT));
            }
        });
    }
}

#[test]
fn every_message_sent_after_the_suback_arrives() {
    for threads in [1, 4] {
        let server = start(&Database::memory(), threads);
        let (stop, begun) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for topic in ["f/a", "f/b"] {
                let (server, stop, begun) = (&server, &stop, &begun);
                scope.spawn(move || {
                    publish_until(server, topic, stop, |number| {
                        if topic == "f/a" {
                            begun.store(number, Ordering::SeqCst);
                        }
                    });
                });
            }
            let _stop = StopWhenDone(&stop);
            for round in 0..24 {
                let id = format!("session {}", round % 8);
                // Some sessions are there already, with other subscriptions and messages that waited.
                let mut client = Client::open(&server, lasting(V5, &id));
                client.subscribe("other", QoS::AtLeastOnce);
                client.subscribe("f/+", QoS::AtLeastOnce);
                let sent = begun.load(Ordering::SeqCst);
                let mut history = History::default();
                history.begins_anywhere = true;
                {
                    let mut packets = Packets::of(&client);
                    while history.next_of("f/a").is_none() {
                        assert!(history.take(&mut packets, &client, 1));
                    }
                    let first = history.next_of("f/a").unwrap() - 1;
                    assert!(first <= sent + 1, "round {round}: {first} is the first, {sent} was sent before");
                    assert!(history.take(&mut packets, &client, 200));
                }
                half_close(client.stream());
                let mut client = come_back(&server, V5, &id);
                // Without the packets of the flow in the way.
                half_close(client.stream());
                client = Client::open(&server, connect(V5, &id));
                client.disconnect();
            }
        });
    }
}

/// Stops publishers at the end, also at that of a test that fails.
struct StopWhenDone<'s>(&'s AtomicBool);

impl Drop for StopWhenDone<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Publishes until `stop` is set.
fn publish_until(server: &Server, topic: &str, stop: &AtomicBool, each: impl Fn(u64)) {
    let mut client = Client::connect(server, V5, topic);
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        each(number);
        let payload = [numbered(number, 8), numbered(number, 20)].concat();
        let id = u16::try_from(number % 60_000 + 1).unwrap();
        let message = crate::common::publish_qos(QoS::AtLeastOnce, id, topic, &payload);
        assert!(!client.publish(message).is_error());
    }
}

#[test]
fn other_subscriptions_that_are_made_meanwhile_disturb_no_order() {
    const COUNT: usize = 2000;
    for qualities in [&KEPT[..], &MIXED[..]] {
        for threads in [1, 4] {
            let server = start(&Database::memory(), threads);
            let mut ann = Client::open(&server, lasting(V5, "ann"));
            ann.subscribe("f/a", QoS::ExactlyOnce);
            std::thread::scope(|scope| {
                scope.spawn(|| publish_mixed(&server, "f/a", COUNT as u64, qualities, |_| {}));
                let mut history = History::default();
                let mut packets = Packets::of(&ann);
                let kept = qualities.iter().cycle().take(COUNT).filter(|qos| **qos > QoS::AtMostOnce).count();
                let mut round = 0;
                while history.next_of("f/a").unwrap_or(0) < kept as u64 {
                    round += 1;
                    if round % 40 == 0 {
                        subscribe_amid(&ann, round / 40);
                    }
                    assert!(history.take(&mut packets, &ann, 1));
                }
                // Messages with QoS 0 have no queue: lost ones are counted.
                assert!(history.missing <= dropped(&server, "busy_socket"), "{}", history.missing);
            });
        }
    }
}

/// Sends a SUBSCRIBE or UNSUBSCRIBE whose answer is not waited for.
fn subscribe_amid(client: &Client, number: u64) {
    let filter = format!("other/{}", number % 5);
    let mut bytes = Vec::new();
    let none = millrace_mqtt::Properties::EMPTY;
    let id = crate::common::id(9);
    let options = millrace_mqtt::SubscribeOptions { qos: QoS::AtLeastOnce, ..Default::default() };
    if number.is_multiple_of(3) {
        millrace_mqtt::encode::unsubscribe(id, none, [filter.as_str()], V5, &mut bytes);
    } else {
        let filters = [(filter.as_str(), options)];
        millrace_mqtt::encode::subscribe(id, none, filters, V5, &mut bytes);
    }
    crate::tools::send_anyway(client.stream(), &bytes);
}
