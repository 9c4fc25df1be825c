//! Retained QoS 1 and 2 messages of a new subscription that the client has not acknowledged when its connection or the
//! server ends.

use std::collections::BTreeMap;

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, Properties, Property, Publish, QoS, RetainHandling, SubscribeOptions, Version};

use crate::common::{Client, Server, ack, publish_qos};
use crate::steps::{
    BREAKS, Break, Disk, VERSIONS, break_off, come_back, expect_no_rest, is_present, lasting, lasting_with,
    leave, rest, start, take,
};

/// More than a client takes at once.
const TOPICS: u16 = 300;

fn qos_of(topic: u16) -> QoS {
    if topic.is_multiple_of(2) { QoS::AtLeastOnce } else { QoS::ExactlyOnce }
}

/// Retains a message on each topic `r/0`, `r/1`, ..., with QoS 1 and 2 in turns.
fn retain(server: &Server, topics: u16) {
    let mut publisher = Client::connect(server, V5, "retains");
    for topic in 0..topics {
        let name = format!("r/{topic}");
        let message = publish_qos(qos_of(topic), topic % 60_000 + 1, &name, b"retained");
        assert!(!publisher.publish(Publish { retain: true, ..message }).is_error());
    }
    publisher.disconnect();
}

/// A new session that gets at most five unacknowledged messages, if it can say so.
fn new_session(server: &Server, version: Version, id: &str) -> Client {
    let connect = lasting_with(version, id, &[Property::ReceiveMaximum(5)]);
    let client = Client::open(server, connect);
    assert!(!is_present(&client));
    client
}

/// How often each topic came, and that what comes is retained.
fn topics(messages: &[Publish<'_>]) -> BTreeMap<String, usize> {
    let mut topics = BTreeMap::new();
    for message in messages {
        assert!(message.retain, "{message:?}");
        *topics.entry(message.topic.to_owned()).or_default() += 1;
    }
    topics
}

#[test]
fn retained_messages_that_a_client_has_not_got_come_when_it_comes_back() {
    for version in VERSIONS {
        for how in BREAKS {
            let disk = Disk::new();
            let server = start(&disk.store.database(), 1);
            retain(&server, TOPICS);
            let mut ann = new_session(&server, version, "ann");
            ann.subscribe("r/+", QoS::ExactlyOnce);
            // The first three are acknowledged, and the server has seen that.
            let mut acknowledged = Vec::new();
            let mut seen = Vec::new();
            while acknowledged.len() < 3 {
                match ann.recv() {
                    Packet::Publish(message) if message.qos == QoS::AtLeastOnce => {
                        ann.send(&Packet::PubAck(ack(message.packet_id.unwrap())));
                        acknowledged.push(message.topic.to_owned());
                    }
                    Packet::Publish(message) => {
                        ann.send(&Packet::PubRec(ack(message.packet_id.unwrap())));
                        seen.push((message.packet_id.unwrap(), message.topic.to_owned()));
                    }
                    Packet::PubRel(released) => {
                        ann.send(&Packet::PubComp(ack(released.packet_id)));
                        let at = seen.iter().position(|(id, _)| *id == released.packet_id).unwrap();
                        acknowledged.push(seen.remove(at).1);
                    }
                    other => panic!("{other:?}"),
                }
            }
            if how != Break::Crash {
                leave(&mut ann, false);
            }
            let server = break_off(how, server, &disk, 1);
            let mut ann = come_back(&server, version, "ann");
            let got = topics(&rest(&server, &mut ann, "r/z"));
            let what = format!("{version:?} {how:?}");
            for topic in (0..TOPICS).map(|topic| format!("r/{topic}")) {
                let times = got.get(&topic).copied().unwrap_or_default();
                let is_seen = seen.iter().any(|(_, seen)| *seen == topic);
                if how == Break::Crash || is_seen {
                    // After a crash the server does not know the last PUBACKs; a PUBREC has been stored.
                    assert!(times <= 1, "{what}: {topic} came {times} times");
                    assert!(
                        times == 1 || is_seen || acknowledged.contains(&topic),
                        "{what}: {topic} is lost"
                    );
                } else {
                    let expected = usize::from(!acknowledged.contains(&topic));
                    assert_eq!(times, expected, "{what}: {topic}");
                }
            }
            leave(&mut ann, true);
            // The end of the connection may not be stored yet when the server crashes.
            let how = if how == Break::Crash { Break::Restart } else { how };
            let server = break_off(how, server, &disk, 1);
            expect_no_rest(&server, &mut come_back(&server, version, "ann"), "r/z");
        }
    }
}

#[test]
fn unsent_retained_messages_stay_over_several_connections() {
    for between in [Break::Reconnect, Break::Restart] {
        let disk = Disk::new();
        let mut server = start(&disk.store.database(), 1);
        retain(&server, 20);
        let connect = || lasting_with(V5, "ann", &[Property::ReceiveMaximum(1)]);
        let mut ann = Client::open(&server, connect());
        ann.subscribe("r/+", QoS::ExactlyOnce);
        for round in 0..4 {
            assert_eq!(take(&mut ann).dup, round > 0, "{between:?} {round}");
            leave(&mut ann, round % 2 == 0);
            server = break_off(between, server, &disk, 1);
            ann = Client::open(&server, connect());
        }
        let got = rest(&server, &mut ann, "r/z");
        assert!(got.len() == 20 && topics(&got).len() == 20, "{between:?}: {got:?}");
        let again: Vec<bool> = got.iter().map(|message| message.dup).collect();
        assert!(again[0] && again[1..].iter().all(|dup| !dup), "only the first one was sent: {again:?}");
    }
}

#[test]
fn after_a_crash_nothing_is_replayed_that_is_not_due() {
    let disk = Disk::new();
    let server = start(&disk.store.database(), 1);
    retain(&server, 4);
    let unwanted = SubscribeOptions {
        qos: QoS::ExactlyOnce,
        retain_handling: RetainHandling::DoNotSend,
        ..SubscribeOptions::default()
    };
    let mut ann = Client::open(&server, lasting(V5, "ann"));
    ann.subscribe_all(&[("r/#", unwanted)], Properties::EMPTY);
    let mut bob = Client::open(&server, lasting(V5, "bob"));
    bob.subscribe("r/#", QoS::AtMostOnce);
    for _ in 0..4 {
        take(&mut bob);
    }
    let mut eve = Client::open(&server, lasting(V5, "eve"));
    eve.subscribe("none/#", QoS::ExactlyOnce);
    let mut had = Client::open(&server, lasting(V5, "had"));
    had.subscribe("r/#", QoS::ExactlyOnce);
    for _ in 0..4 {
        let message = take(&mut had);
        match message.qos {
            QoS::ExactlyOnce => had.send(&Packet::PubRec(ack(message.packet_id.unwrap()))),
            _ => had.send(&Packet::PubAck(ack(message.packet_id.unwrap()))),
        }
    }
    for _ in 0..2 {
        let Packet::PubRel(released) = had.recv() else { panic!("a message came twice") };
        had.send(&Packet::PubComp(ack(released.packet_id)));
    }
    leave(&mut had, false);
    // The connection of its next session begins after the end of this one is stored.
    leave(&mut come_back(&server, V5, "had"), false);
    drop(come_back(&server, V5, "had"));
    let server = disk.crash(server, 1);
    for name in ["ann", "bob", "eve", "had"] {
        let mut client = come_back(&server, V5, name);
        // Due messages come before this one.
        client.subscribe(name, QoS::AtLeastOnce);
        client.expect_nothing();
    }
}
