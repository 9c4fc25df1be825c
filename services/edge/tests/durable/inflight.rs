//! Messages on their way to a client when its connection ends: an acknowledged one never comes again, any other comes unchanged.

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, Publish, QoS};
use millrace_storage::Database;

use crate::common::{Client, ack, id, publish_qos};
use crate::steps::{
    BETWEEN, Disk, VERSIONS, acknowledge, come_back, expect_no_rest, lasting, leave, marks, pass, rest, say,
    start, subscribe_and_leave, take, texts,
};

const NUMBERS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

#[test]
fn unacknowledged_messages_come_again_with_their_packet_ids_in_order_and_no_others() {
    // Which are acknowledged, in this order.
    let cases: [&[usize]; 5] =
        [&[], &[0, 1, 2], &[9, 8, 7], &[0, 2, 4, 1, 8], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]];
    for version in VERSIONS {
        for between in BETWEEN {
            for (live, qos) in [(true, QoS::AtLeastOnce), (false, QoS::AtLeastOnce), (true, QoS::ExactlyOnce)]
            {
                for acknowledged in cases {
                    let database = Database::memory();
                    let server = start(&database, 1);
                    subscribe_and_leave(&server, version, "ann", &[("t", QoS::ExactlyOnce)]);
                    if !live {
                        say(&server, qos, "t", &NUMBERS);
                    }
                    let mut ann = come_back(&server, version, "ann");
                    if live {
                        say(&server, qos, "t", &NUMBERS);
                    }
                    let got: Vec<_> = NUMBERS.iter().map(|_| take(&mut ann)).collect();
                    assert_eq!(texts(&got), NUMBERS);
                    acknowledged.iter().for_each(|index| acknowledge(&mut ann, &got[*index]));
                    leave(&mut ann, acknowledged.len() % 2 == 0);
                    let server = pass(between, server, &database);
                    let mut ann = come_back(&server, version, "ann");
                    let again = rest(&server, &mut ann, "t");
                    let open = got.into_iter().enumerate().filter(|(index, _)| !acknowledged.contains(index));
                    let expected: Vec<_> =
                        open.map(|(_, message)| Publish { dup: true, ..message }).collect();
                    let what = format!("{version:?} {between:?} {live} {qos:?} {acknowledged:?}");
                    assert_eq!(marks(&again), marks(&expected), "{what}");
                    leave(&mut ann, false);
                    let server = pass(between, server, &database);
                    expect_no_rest(&server, &mut come_back(&server, version, "ann"), "t");
                }
            }
        }
    }
}

#[test]
fn a_message_acknowledged_before_it_is_stored_never_comes_again() {
    let disk = Disk::new();
    for threads in [1, 4] {
        let mut server = start(&disk.store.database(), threads);
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            subscribe_and_leave(&server, V5, "ann", &[("t", QoS::ExactlyOnce)]);
            let mut publisher = Client::connect(&server, V5, "publisher");
            for round in 1..=30 {
                let mut ann = come_back(&server, V5, "ann");
                publisher.send(&Packet::Publish(publish_qos(qos, round, "t", b"x")));
                let message = take(&mut ann);
                assert_eq!((message.payload, message.dup), (&b"x"[..], false), "round {round}");
                acknowledge(&mut ann, &message);
                // Often before the store has the message, with QoS 1.
                leave(&mut ann, round % 2 == 0);
                if qos == QoS::AtLeastOnce {
                    publisher.recv_ack(millrace_mqtt::PacketType::PubAck, id(round));
                } else {
                    publisher.recv_ack(millrace_mqtt::PacketType::PubRec, id(round));
                    publisher.send(&Packet::PubRel(ack(id(round))));
                    publisher.recv_ack(millrace_mqtt::PacketType::PubComp, id(round));
                }
            }
            expect_no_rest(&server, &mut come_back(&server, V5, "ann"), "t");
            drop(publisher);
            drop(server);
            server = start(&disk.store.database(), threads);
            expect_no_rest(&server, &mut come_back(&server, V5, "ann"), "t");
        }
    }
}

#[test]
fn retained_messages_on_their_way_come_again_as_they_were() {
    for version in VERSIONS {
        for between in BETWEEN {
            let database = Database::memory();
            let server = start(&database, 1);
            let mut publisher = Client::connect(&server, V5, "publisher");
            for (number, topic) in ["r/0", "r/1", "r/2", "r/3"].into_iter().enumerate() {
                let qos = if number % 2 == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
                let packet_id = u16::try_from(number + 1).unwrap();
                let message = publish_qos(qos, packet_id, topic, topic.as_bytes());
                publisher.publish(Publish { retain: true, ..message });
            }
            let mut ann = Client::open(&server, lasting(version, "ann"));
            ann.subscribe("r/+", QoS::ExactlyOnce);
            let got: Vec<_> = (0..4).map(|_| take(&mut ann)).collect();
            acknowledge(&mut ann, &got[2]);
            leave(&mut ann, false);
            // The retained message changes meanwhile; the sent one does not.
            let changed = publish_qos(QoS::AtLeastOnce, 9, "r/0", b"");
            publisher.publish(Publish { retain: true, ..changed });
            let server = pass(between, server, &database);
            let mut ann = come_back(&server, version, "ann");
            let mut again = rest(&server, &mut ann, "r/z");
            // Not a retained message: it was published while the session was offline.
            assert_eq!(
                again.pop().map(|last| (last.topic, last.retain, last.payload.len())),
                Some(("r/0", false, 0))
            );
            assert!(again.iter().all(|message| message.retain));
            let expected = [0, 1, 3].map(|index| Publish { dup: true, ..got[index].clone() });
            assert_eq!(marks(&again), marks(&expected), "{version:?} {between:?}");
        }
    }
}

/// A client's change of its subscription to `a/b` while messages of it are on their way.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Unsubscribe,
    /// Its messages stand in no stream that it has.
    UnsubscribeAndSubscribe,
    /// To one that would have matched.
    SubscribeToMore,
}

#[test]
fn messages_on_their_way_outlive_their_subscription() {
    for change in [Change::Unsubscribe, Change::UnsubscribeAndSubscribe, Change::SubscribeToMore] {
        for has_other in [false, true] {
            for between in BETWEEN {
                for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
                    let database = Database::memory();
                    let server = start(&database, 1);
                    if has_other {
                        // Then the stream stays.
                        subscribe_and_leave(&server, V5, "other", &[("a/b", QoS::ExactlyOnce)]);
                    }
                    let mut ann = Client::open(&server, lasting(V5, "ann"));
                    ann.subscribe("a/b", QoS::ExactlyOnce);
                    ann.subscribe("end", QoS::ExactlyOnce);
                    say(&server, qos, "a/b", &["one", "two", "three"]);
                    let got: Vec<_> = (0..3).map(|_| take(&mut ann)).collect();
                    acknowledge(&mut ann, &got[1]);
                    ann.unsubscribe(&["a/b"]);
                    match change {
                        Change::Unsubscribe => {}
                        Change::UnsubscribeAndSubscribe => ann.subscribe("a/b", QoS::ExactlyOnce),
                        Change::SubscribeToMore => ann.subscribe("a/#", QoS::ExactlyOnce),
                    }
                    leave(&mut ann, false);
                    let server = pass(between, server, &database);
                    let mut ann = come_back(&server, V5, "ann");
                    let expected = [0, 2].map(|index| Publish { dup: true, ..got[index].clone() });
                    let what = format!("{change:?} {has_other} {between:?} {qos:?}");
                    assert_eq!(marks(&rest(&server, &mut ann, "end")), marks(&expected), "{what}");
                    leave(&mut ann, false);
                    expect_no_rest(&server, &mut come_back(&server, V5, "ann"), "end");
                }
            }
        }
    }
}

#[test]
fn unacknowledged_messages_come_again_after_a_crash() {
    for version in VERSIONS {
        let disk = Disk::new();
        let server = start(&disk.store.database(), 1);
        subscribe_and_leave(&server, version, "ann", &[("t", QoS::ExactlyOnce)]);
        say(&server, QoS::AtLeastOnce, "t", &["waited 1", "waited 2"]);
        let mut ann = come_back(&server, version, "ann");
        say(&server, QoS::AtLeastOnce, "t", &["live 1", "live 2"]);
        let got: Vec<_> = (0..4).map(|_| take(&mut ann)).collect();
        acknowledge(&mut ann, &got[0]);
        let server = disk.crash(server, 1);
        let mut ann = come_back(&server, version, "ann");
        let again = texts(&rest(&server, &mut ann, "t"));
        // How far it had come was not stored yet: a repeat is allowed, a gap is not.
        assert!(again == texts(&got) || again == texts(&got[1..]), "{again:?}");
    }
}

#[test]
fn what_was_acknowledged_out_of_order_stays_so_over_many_connections() {
    for between in BETWEEN {
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let database = Database::memory();
            let mut server = start(&database, 1);
            subscribe_and_leave(&server, V5, "ann", &[("t", QoS::ExactlyOnce)]);
            let mut ann = come_back(&server, V5, "ann");
            say(&server, qos, "t", &NUMBERS);
            let got: Vec<_> = NUMBERS.iter().map(|_| take(&mut ann)).collect();
            got[3..].iter().for_each(|message| acknowledge(&mut ann, message));
            for round in 0..3 {
                leave(&mut ann, round % 2 == 0);
                server = pass(between, server, &database);
                ann = come_back(&server, V5, "ann");
                // One that is acknowledged at once comes behind what is open.
                say(&server, qos, "t", &["new"]);
                let again: Vec<_> = (0..4).map(|_| take(&mut ann)).collect();
                assert_eq!(texts(&again), ["0", "1", "2", "new"], "{between:?} {qos:?} {round}");
                acknowledge(&mut ann, &again[3]);
            }
            leave(&mut ann, true);
            assert_eq!(texts(&rest(&server, &mut come_back(&server, V5, "ann"), "t")), ["0", "1", "2"]);
        }
    }
}

#[test]
fn what_was_acknowledged_on_an_earlier_connection_stays_so_over_a_crash() {
    let disk = Disk::new();
    let server = start(&disk.store.database(), 1);
    subscribe_and_leave(&server, V5, "ann", &[("t", QoS::ExactlyOnce)]);
    let mut ann = come_back(&server, V5, "ann");
    say(&server, QoS::ExactlyOnce, "t", &["open", "over"]);
    let (open, over) = (take(&mut ann), take(&mut ann));
    acknowledge(&mut ann, &over);
    leave(&mut ann, true);
    let mut ann = come_back(&server, V5, "ann");
    assert_eq!(marks(&[take(&mut ann)]), marks(&[Publish { dup: true, ..open }]));
    say(&server, QoS::ExactlyOnce, "t", &["another"]);
    assert_eq!(take(&mut ann).payload, b"another");
    let server = disk.crash(server, 1);
    assert_eq!(texts(&rest(&server, &mut come_back(&server, V5, "ann"), "t")), ["open", "another"]);
}
