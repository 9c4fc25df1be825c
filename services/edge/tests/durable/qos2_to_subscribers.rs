//! Exactly once to a subscriber, whatever ends the connection or the process between two packets of the exchange.

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, PacketType, Property, Publish, QoS};
use millrace_storage::Database;

use crate::common::{Client, Server, ack, properties, publish_qos};
use crate::steps::{
    BREAKS, Break, Disk, VERSIONS, break_off, come_back, expect_no_rest, lasting, leave, rest, say, start,
    subscribe_and_leave, take, texts,
};

const MESSAGE: QoS = QoS::ExactlyOnce;

#[test]
fn a_subscriber_goes_on_where_it_was_and_its_message_comes_once() {
    for version in VERSIONS {
        for how in BREAKS {
            let disk = Disk::new();
            let mut server = start(&disk.store.database(), 1);
            subscribe_and_leave(&server, version, "reader", &[("t", MESSAGE)]);
            let next = |server, mut client: Client| {
                if how == Break::Crash {
                    // The server has processed earlier packets before it answers.
                    client.ping();
                } else {
                    leave(&mut client, false);
                }
                let server = break_off(how, server, &disk, 1);
                let client = come_back(&server, version, "reader");
                (server, client)
            };
            say(&server, MESSAGE, "t", &["waited"]);
            let mut reader = come_back(&server, version, "reader");
            say(&server, MESSAGE, "t", &["live"]);
            let (waited, live) = (take(&mut reader), take(&mut reader));
            assert_eq!(texts(&[waited.clone(), live.clone()]), ["waited", "live"]);
            let ids = [waited, live].map(|message| message.packet_id.unwrap());
            assert_ne!(ids[0], ids[1]);
            // PUBLISH came, PUBREC was not sent.
            (server, reader) = next(server, reader);
            for (id, text) in ids.iter().zip(["waited", "live"]) {
                let message = take(&mut reader);
                let face = (message.packet_id, message.dup, message.payload);
                assert_eq!(face, (Some(*id), true, text.as_bytes()), "{version:?} {how:?}");
            }
            // PUBREC was sent, the second one first.
            for id in [ids[1], ids[0]] {
                reader.send(&Packet::PubRec(ack(id)));
                reader.recv_ack(PacketType::PubRel, id);
            }
            (server, reader) = next(server, reader);
            for id in ids {
                reader.recv_ack(PacketType::PubRel, id);
            }
            // PUBCOMP was sent for one.
            reader.send(&Packet::PubComp(ack(ids[0])));
            reader.ping();
            (server, reader) = next(server, reader);
            if how == Break::Crash {
                // That was not stored yet: no harm, the message itself does not come again.
                reader.recv_ack(PacketType::PubRel, ids[0]);
                reader.send(&Packet::PubComp(ack(ids[0])));
            }
            reader.recv_ack(PacketType::PubRel, ids[1]);
            reader.send(&Packet::PubComp(ack(ids[1])));
            expect_no_rest(&server, &mut reader, "t");
            (server, reader) = next(server, reader);
            // The crash may come before the PUBREC of "the end", which `expect_no_rest` published, is stored.
            let got = texts(&rest_after_releases(&server, &mut reader));
            assert!(got.is_empty() || how == Break::Crash && got == ["the end"], "{got:?}");
        }
    }
}

/// The messages that still come, without PUBREL of finished exchanges.
fn rest_after_releases(server: &Server, client: &mut Client) -> Vec<Publish<'static>> {
    say(server, MESSAGE, "t", &["the very end"]);
    crate::steps::take_until(client, "the very end")
}

#[test]
fn packet_ids_are_used_again_only_when_they_are_free() {
    for how in BREAKS {
        let disk = Disk::new();
        let mut server = start(&disk.store.database(), 1);
        subscribe_and_leave(&server, V5, "reader", &[("t", MESSAGE)]);
        let (mut expected, mut got) = (Vec::new(), Vec::new());
        for round in 0..6 {
            let mut reader = come_back(&server, V5, "reader");
            let mut held = Vec::new();
            for number in 0..4 {
                // Ids of the publisher are the same in each round.
                let text = format!("{round}/{number}");
                say(&server, MESSAGE, "t", &[&text]);
                expected.push(text);
                let message = next_new(&mut reader, number % 2 == 0);
                assert!(!held.contains(&message.packet_id), "{message:?} while {held:?} are in use");
                if number % 2 == 1 {
                    held.push(message.packet_id);
                }
                got.push(message);
            }
            leave_unless_crash(how, &mut reader);
            server = break_off(how, server, &disk, 1);
        }
        assert_eq!(texts(&got), expected, "{how:?}");
    }
}

fn leave_unless_crash(how: Break, client: &mut Client) {
    if how != Break::Crash {
        leave(client, false);
    }
}

/// The next message that was not sent before, whose exchange is completed or not begun; those that come again are completed.
fn next_new(client: &mut Client, completes: bool) -> Publish<'static> {
    let mut found: Option<Publish<'static>> = None;
    loop {
        match client.recv() {
            Packet::Publish(message) => {
                if message.dup || completes {
                    client.send(&Packet::PubRec(ack(message.packet_id.unwrap())));
                }
                if !message.dup {
                    found = Some(message);
                }
            }
            Packet::PubRel(released) => {
                client.send(&Packet::PubComp(ack(released.packet_id)));
                if found.as_ref().is_some_and(|found| found.packet_id == Some(released.packet_id)) {
                    return found.unwrap();
                }
            }
            other => panic!("{other:?}"),
        }
        if let Some(found) = found.take_if(|_| !completes) {
            return found;
        }
    }
}

#[test]
fn a_long_retained_message_on_its_way_does_not_lock_its_session_out() {
    for version in VERSIONS {
        let disk = Disk::new();
        let server = start(&disk.store.database(), 1);
        let long = vec![b'x'; 300_000];
        let mut publisher = Client::connect(&server, V5, "publisher");
        let message = publish_qos(MESSAGE, 1, "long", &long);
        publisher.publish(Publish { retain: true, ..message });
        let mut reader = Client::open(&server, lasting(version, "reader"));
        reader.subscribe("long", MESSAGE);
        assert_eq!(take(&mut reader).payload.len(), long.len());
        let server = disk.crash(server, 1);
        let mut reader = come_back(&server, version, "reader");
        assert_eq!(rest(&server, &mut reader, "long").iter().filter(|message| !message.dup).count(), 0);
    }
}

#[test]
fn what_was_never_sent_gets_no_packet_id_and_no_dup() {
    // One message at a time: the others wait.
    let database = Database::memory();
    let server = start(&database, 1);
    let one = || {
        let all = [Property::SessionExpiryInterval(3600), Property::ReceiveMaximum(1)];
        millrace_mqtt::Connect { properties: properties(&all), ..lasting(V5, "reader") }
    };
    let mut reader = Client::open(&server, one());
    reader.subscribe("t", MESSAGE);
    say(&server, MESSAGE, "t", &["one", "two", "three"]);
    assert_eq!(take(&mut reader).payload, b"one");
    leave(&mut reader, false);
    drop(server);
    let server = start(&database, 1);
    let mut reader = Client::open(&server, one());
    let got = rest(&server, &mut reader, "t");
    let faces: Vec<_> = got.iter().map(|message| (message.dup, message.payload)).collect();
    assert_eq!(faces, [(true, &b"one"[..]), (false, b"two"), (false, b"three")]);
}

/// QoS 2 messages with a stored packet id are sent again under it, and the QoS 1 messages between them in their order (P4 of PROMISES.md).
#[test]
fn after_a_break_messages_of_both_qualities_come_in_the_order_in_which_they_were_published() {
    for how in BREAKS {
        for version in VERSIONS {
            let disk = Disk::new();
            let mut server = start(&disk.store.database(), 1);
            let mut ann = Client::open(&server, lasting(version, "ann"));
            ann.subscribe("t", QoS::ExactlyOnce);
            let texts: Vec<String> = (0..9).map(|number| format!("{number}")).collect();
            let qualities = [
                QoS::AtLeastOnce,
                QoS::ExactlyOnce,
                QoS::AtLeastOnce,
                QoS::AtLeastOnce,
                QoS::ExactlyOnce,
                QoS::ExactlyOnce,
                QoS::AtLeastOnce,
                QoS::ExactlyOnce,
                QoS::AtLeastOnce,
            ];
            for (qos, text) in qualities.iter().zip(&texts) {
                say(&server, *qos, "t", &[text]);
            }
            // They have been sent, and nothing of it is acknowledged.
            let sent: Vec<_> = texts.iter().map(|_| take(&mut ann)).collect();
            assert_eq!(crate::steps::texts(&sent), texts);
            leave_unless_crash(how, &mut ann);
            server = break_off(how, server, &disk, 1);
            let mut ann = come_back(&server, version, "ann");
            let again: Vec<_> = texts.iter().map(|_| take(&mut ann)).collect();
            assert_eq!(crate::steps::texts(&again), texts, "{how:?} {version:?}");
            for (first, again) in sent.iter().zip(&again).filter(|(first, _)| first.qos == QoS::ExactlyOnce) {
                assert_eq!((first.packet_id, again.dup), (again.packet_id, true), "{how:?} {version:?}");
            }
        }
    }
}
