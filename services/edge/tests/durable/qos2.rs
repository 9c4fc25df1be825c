//! Exactly once, whatever ends the connection or the process between two packets of the exchange.

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, PacketType, Property, Publish, QoS, ReasonCode, Version};
use millrace_storage::Database;

use crate::common::{Client, Server, ack, connect, id, properties, publish_qos};
use crate::steps::{
    Disk, VERSIONS, come_back, expect_no_rest, lasting, leave, rest, say, start, subscribe_and_leave, take,
    texts,
};

/// What comes between two packets of an exchange.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Break {
    Reconnect,
    Restart,
    Crash,
}

const BREAKS: [Break; 3] = [Break::Reconnect, Break::Restart, Break::Crash];

fn break_off(how: Break, server: Server, disk: &Disk, threads: usize) -> Server {
    match how {
        Break::Reconnect => server,
        Break::Restart => {
            drop(server);
            start(&disk.store.database(), threads)
        }
        Break::Crash => disk.crash(server, threads),
    }
}

const MESSAGE: QoS = QoS::ExactlyOnce;

fn again(number: u16, payload: &'static [u8]) -> Packet<'static> {
    Packet::Publish(Publish { dup: true, ..publish_qos(MESSAGE, number, "t", payload) })
}

#[test]
fn a_publisher_goes_on_where_it_was_and_its_message_arrives_once() {
    for version in VERSIONS {
        for how in BREAKS {
            for threads in [1, 4] {
                let disk = Disk::new();
                let mut server = start(&disk.store.database(), threads);
                subscribe_and_leave(&server, version, "reader", &[("t", MESSAGE)]);
                let next = |server, client: Option<Client>| {
                    let server = {
                        if let Some(mut client) = client.filter(|_| how != Break::Crash) {
                            leave(&mut client, false);
                        }
                        break_off(how, server, &disk, threads)
                    };
                    let client = come_back(&server, version, "writer");
                    (server, client)
                };
                let mut writer = Client::open(&server, lasting(version, "writer"));
                // PUBLISH was sent; whether it arrived is not known.
                writer.send(&Packet::Publish(publish_qos(MESSAGE, 7, "t", b"one")));
                (server, writer) = next(server, Some(writer));
                writer.send(&again(7, b"one"));
                writer.recv_ack(PacketType::PubRec, id(7));
                // PUBREC came.
                (server, writer) = next(server, Some(writer));
                writer.send(&again(7, b"one"));
                writer.recv_ack(PacketType::PubRec, id(7));
                writer.send(&Packet::PubRel(ack(id(7))));
                // PUBREL was sent.
                (server, writer) = next(server, Some(writer));
                for _ in 0..2 {
                    writer.send(&Packet::PubRel(ack(id(7))));
                    let reason = writer.recv_ack(PacketType::PubComp, id(7)).reason;
                    assert!(matches!(reason, ReasonCode::SUCCESS | ReasonCode::PACKET_IDENTIFIER_NOT_FOUND));
                }
                // The packet id stands for another message now.
                assert!(!writer.publish(publish_qos(MESSAGE, 7, "t", b"two")).is_error());
                (server, writer) = next(server, Some(writer));
                assert!(!writer.publish(publish_qos(MESSAGE, 7, "t", b"three")).is_error());
                let mut reader = come_back(&server, version, "reader");
                let got = texts(&rest(&server, &mut reader, "t"));
                assert_eq!(got, ["one", "two", "three"], "{version:?} {how:?} {threads}");
            }
        }
    }
}

#[test]
fn a_subscriber_goes_on_where_it_was_and_its_message_comes_once() {
    for version in VERSIONS {
        for how in BREAKS {
            let disk = Disk::new();
            let mut server = start(&disk.store.database(), 1);
            subscribe_and_leave(&server, version, "reader", &[("t", MESSAGE)]);
            let next = |server, mut client: Client| {
                if how == Break::Crash {
                    // What was sent is seen before.
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
            let got = texts(&rest_after_releases(&server, &mut reader));
            assert!(got.is_empty() || how == Break::Crash && got == ["the end"], "{got:?}");
        }
    }
}

/// What still comes but for PUBREL of what is over.
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
fn a_publisher_with_a_clean_session_begins_anew() {
    for version in VERSIONS {
        let database = Database::memory();
        let mut server = start(&database, 1);
        subscribe_and_leave(&server, version, "reader", &[("t", MESSAGE)]);
        for (number, payload) in ["one", "two", "three"].into_iter().enumerate() {
            let mut writer = Client::connect(&server, version, "writer");
            // Never released: the next connection knows nothing of it.
            writer.send(&Packet::Publish(publish_qos(MESSAGE, 1, "t", payload.as_bytes())));
            writer.recv_ack(PacketType::PubRec, id(1));
            leave(&mut writer, number == 0);
            if number == 1 {
                drop(server);
                server = start(&database, 1);
            }
        }
        let mut reader = come_back(&server, version, "reader");
        assert_eq!(texts(&rest(&server, &mut reader, "t")), ["one", "two", "three"]);
    }
}

#[test]
fn a_pubrel_before_its_pubrec_blocks_nothing_and_repeats_nothing() {
    for version in VERSIONS {
        for request in [connect(version, "writer"), lasting(version, "writer")] {
            let disk = Disk::new();
            let server = start(&disk.store.database(), 1);
            subscribe_and_leave(&server, version, "reader", &[("t", MESSAGE)]);
            let mut writer = Client::open(&server, request);
            for text in ["one", "two", "three"] {
                writer.send(&Packet::Publish(publish_qos(MESSAGE, 5, "t", text.as_bytes())));
                writer.send(&Packet::PubRel(ack(id(5))));
                loop {
                    match writer.recv() {
                        Packet::PubRec(received) => assert_eq!(received.packet_id, id(5)),
                        Packet::PubComp(_) => break,
                        other => panic!("{other:?}"),
                    }
                }
                // The next use of the id waits until the first is stored.
                say(&server, QoS::AtLeastOnce, "t", &["between"]);
            }
            assert!(!publish_and_skip(&mut writer).is_error());
            let mut reader = come_back(&server, version, "reader");
            let mut got = texts(&rest(&server, &mut reader, "t"));
            got.retain(|text| text != "between");
            assert_eq!(got, ["one", "two", "three", "four"]);
        }
    }
}

/// A whole exchange, past a PUBREC that comes late.
fn publish_and_skip(writer: &mut Client) -> ReasonCode {
    writer.send(&Packet::Publish(publish_qos(MESSAGE, 6, "t", b"four")));
    loop {
        match writer.recv() {
            Packet::PubRec(received) if received.packet_id == id(6) => break,
            Packet::PubRec(_) => {}
            other => panic!("{other:?}"),
        }
    }
    writer.send(&Packet::PubRel(ack(id(6))));
    writer.recv_ack(PacketType::PubComp, id(6)).reason
}

#[test]
fn a_message_that_waits_for_an_earlier_one_to_be_stored_arrives_once() {
    let disk = Disk::new();
    let server = start(&disk.store.database(), 1);
    subscribe_and_leave(&server, V5, "keeper", &[("kept", MESSAGE)]);
    // Nothing keeps these; they go behind what is kept, to stay in order.
    let mut watcher = Client::connect(&server, V5, "watcher");
    watcher.subscribe("live", MESSAGE);
    let _first = Client::open(&server, lasting(V5, "writer"));
    for round in 0..20 {
        let both = [("kept", 1), ("live", 2)];
        let mut writer = come_back(&server, V5, "writer");
        for (topic, number) in both {
            writer.send(&Packet::Publish(publish_qos(MESSAGE, number, topic, b"x")));
        }
        leave(&mut writer, false);
        let mut writer = come_back(&server, V5, "writer");
        for (topic, number) in both {
            let message = publish_qos(MESSAGE, number, topic, b"x");
            assert!(!writer.publish(Publish { dup: true, ..message }).is_error());
        }
        leave(&mut writer, true);
        let got = rest(&server, &mut watcher, "live");
        assert_eq!(got.len(), 1, "round {round}");
    }
}

#[test]
fn a_long_retained_message_on_its_way_does_not_lock_its_session_out() {
    for version in [Version::V311, V5] {
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
