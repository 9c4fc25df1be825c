//! Exactly once from a publisher, whatever ends the connection or the process between two packets of the exchange.

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, PacketType, Publish, QoS, ReasonCode};
use millrace_storage::Database;

use crate::common::{Client, ack, connect, id, publish_qos};
use crate::steps::{
    BREAKS, Break, Disk, VERSIONS, break_off, come_back, lasting, leave, rest, say, start,
    subscribe_and_leave, texts,
};

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
