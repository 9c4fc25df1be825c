//! One message stays unacknowledged while its client acknowledges many later ones, or while the server crashes.

use std::collections::BTreeMap;

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, Publish, QoS};
use millrace_storage::Database;

use crate::common::{Client, Server, ack, publish_qos};
use crate::steps::{
    BETWEEN, BREAKS, Disk, acknowledge, break_off, come_back, lasting, leave, marks, pass, rest, say, start,
    subscribe_and_leave, take, take_until, texts,
};
use crate::tools::{number_of, publish_all};

/// More than a list of positions would have room for in one value of the store.
const MANY: u64 = 8_500;

/// Acknowledges `count` numbered messages that come, without the first one, which it returns.
fn acknowledge_all_but_the_first(client: &mut Client, count: u64) -> Publish<'static> {
    let (mut first, mut got, mut over) = (None, 0, 0);
    while got < count || over + 1 < count {
        match client.recv() {
            Packet::Publish(message) => {
                assert_eq!((number_of(message.payload), message.dup), (got, false));
                got += 1;
                let id = message.packet_id.unwrap();
                match (&first, message.qos) {
                    (None, _) => first = Some(message),
                    (_, QoS::ExactlyOnce) => client.send(&Packet::PubRec(ack(id))),
                    _ => {
                        client.send(&Packet::PubAck(ack(id)));
                        over += 1;
                    }
                }
            }
            Packet::PubRel(released) => {
                client.send(&Packet::PubComp(ack(released.packet_id)));
                over += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    client.ping();
    first.unwrap()
}

/// Publishes numbered messages while a client takes them.
fn publish_beside(server: &Server, qos: QoS, count: u64, take: impl FnOnce()) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut publisher = Client::connect(server, V5, "publisher");
            publish_all(&mut publisher, qos, "t", count, 8);
        });
        take();
    });
}

#[test]
fn only_the_open_message_comes_again_however_many_later_ones_were_acknowledged() {
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        for between in BETWEEN {
            let database = Database::memory();
            let server = start(&database, 1);
            subscribe_and_leave(&server, V5, "ann", &[("t", QoS::ExactlyOnce)]);
            let mut open = None;
            let mut take_all = || {
                let mut ann = come_back(&server, V5, "ann");
                open = Some(acknowledge_all_but_the_first(&mut ann, MANY));
                leave(&mut ann, true);
            };
            if qos == QoS::AtLeastOnce {
                // A message that all have acknowledged before its commit is not stored.
                publish_beside(&server, qos, MANY, || {});
                take_all();
            } else {
                publish_beside(&server, qos, MANY, take_all);
            }
            let mut server = pass(between, server, &database);
            let expected = marks(&[Publish { dup: true, ..open.unwrap() }]);
            for _ in 0..2 {
                let mut ann = come_back(&server, V5, "ann");
                assert_eq!(marks(&[take(&mut ann)]), expected, "{qos:?} {between:?}");
                // Nothing else: what is published now comes next, and is acknowledged.
                say(&server, QoS::AtLeastOnce, "t", &["next"]);
                let next = take(&mut ann);
                assert_eq!((next.payload, next.dup), (&b"next"[..], false), "{qos:?} {between:?}");
                acknowledge(&mut ann, &next);
                leave(&mut ann, true);
                server = pass(between, server, &database);
            }
        }
    }
}

#[test]
fn no_message_at_qos_2_comes_twice_after_a_crash_however_many_were_released() {
    let disk = Disk::new();
    let server = start(&disk.store.database(), 1);
    subscribe_and_leave(&server, V5, "ann", &[("t", QoS::ExactlyOnce)]);
    let mut ann = come_back(&server, V5, "ann");
    let mut open = None;
    let publish_and_take = || open = Some(acknowledge_all_but_the_first(&mut ann, MANY));
    publish_beside(&server, QoS::ExactlyOnce, MANY, publish_and_take);
    let server = disk.crash(server, 1);
    let mut ann = come_back(&server, V5, "ann");
    let expected = Publish { dup: true, ..open.unwrap() };
    assert_eq!(marks(&rest(&server, &mut ann, "t")), marks(&[expected]));
}

#[test]
fn what_was_released_stays_so_when_packet_ids_are_stored_in_several_writes() {
    let disk = Disk::new();
    let server = start(&disk.store.database(), 1);
    let mut publisher = Client::connect(&server, V5, "publisher");
    let long = "long ".repeat(120_000);
    for (number, topic) in ["r/0", "r/1", "r/2"].into_iter().enumerate() {
        let message =
            publish_qos(QoS::ExactlyOnce, u16::try_from(number + 1).unwrap(), topic, long.as_bytes());
        publisher.publish(Publish { retain: true, ..message });
    }
    let mut ann = Client::open(&server, lasting(V5, "ann"));
    ann.subscribe("t", QoS::ExactlyOnce);
    say(&server, QoS::ExactlyOnce, "t", &["open", "over"]);
    let (_open, over) = (take(&mut ann), take(&mut ann));
    acknowledge(&mut ann, &over);
    ann.ping();
    // Each of these is stored whole with its packet id.
    ann.subscribe("r/+", QoS::ExactlyOnce);
    (0..3).for_each(|_| assert_eq!(take(&mut ann).payload, long.as_bytes()));
    let server = disk.crash(server, 1);
    let mut ann = come_back(&server, V5, "ann");
    let again = rest(&server, &mut ann, "t");
    let texts: Vec<String> = texts(&again).into_iter().map(|text| text.chars().take(4).collect()).collect();
    assert_eq!(texts, ["open", "long", "long", "long"]);
}

#[test]
fn messages_that_may_have_been_sent_before_a_crash_are_marked_as_duplicates() {
    //= [MQTT-3.3.1-1] v5 v3.1.1
    for how in BREAKS {
        let disk = Disk::new();
        let server = start(&disk.store.database(), 1);
        subscribe_and_leave(&server, V5, "ann", &[("t", QoS::AtLeastOnce), ("two", QoS::ExactlyOnce)]);
        say(&server, QoS::AtLeastOnce, "t", &["waited"]);
        let mut ann = come_back(&server, V5, "ann");
        assert_eq!(take(&mut ann).payload, b"waited");
        // With QoS 2 that comes to it with QoS 1, too.
        say(&server, QoS::AtLeastOnce, "t", &["live 1"]);
        say(&server, QoS::ExactlyOnce, "t", &["live 2"]);
        (0..2).for_each(|_| {
            take(&mut ann);
        });
        if how == crate::steps::Break::Reconnect {
            leave(&mut ann, false);
        }
        let server = break_off(how, server, &disk, 1);
        // Nothing of this can have been sent.
        say(&server, QoS::AtLeastOnce, "t", &["new"]);
        say(&server, QoS::ExactlyOnce, "two", &["exactly once"]);
        let mut ann = come_back(&server, V5, "ann");
        let mut dup = BTreeMap::new();
        for message in take_until_exactly_once(&mut ann) {
            dup.insert(String::from_utf8(message.payload.to_vec()).unwrap(), message.dup);
        }
        let expected =
            [("waited", true), ("live 1", true), ("live 2", true), ("new", false), ("exactly once", false)];
        let expected: BTreeMap<String, bool> = expected.map(|(text, dup)| (text.to_owned(), dup)).into();
        assert_eq!(dup, expected, "{how:?}");
    }
}

/// The five messages of the test above, of which none is acknowledged.
fn take_until_exactly_once(client: &mut Client) -> Vec<Publish<'static>> {
    (0..5).map(|_| take(client)).collect()
}

#[test]
fn a_message_that_was_marked_as_a_duplicate_stays_so_until_it_is_acknowledged() {
    let disk = Disk::new();
    let mut server = start(&disk.store.database(), 1);
    subscribe_and_leave(&server, V5, "ann", &[("t", QoS::AtLeastOnce)]);
    let mut ann = come_back(&server, V5, "ann");
    say(&server, QoS::AtLeastOnce, "t", &["one", "two"]);
    (0..2).for_each(|_| {
        take(&mut ann);
    });
    server = disk.crash(server, 1);
    // It takes one message at a time, so the second one is not sent on this connection.
    let one_at_a_time = [millrace_mqtt::Property::ReceiveMaximum(1)];
    let mut ann = Client::open(&server, crate::steps::lasting_with(V5, "ann", &one_at_a_time));
    let one = take(&mut ann);
    assert_eq!((one.payload, one.dup), (&b"one"[..], true));
    leave(&mut ann, true);
    server = disk.crash(server, 1);
    let mut ann = come_back(&server, V5, "ann");
    let mut again = take_until_next(&server, &mut ann);
    assert_eq!(again.pop().map(|next| next.dup), Some(false));
    assert_eq!(again.iter().map(|message| message.dup).collect::<Vec<_>>(), [true, true]);
    assert_eq!(texts(&again), ["one", "two"]);
}

fn take_until_next(server: &Server, client: &mut Client) -> Vec<Publish<'static>> {
    say(server, QoS::AtLeastOnce, "t", &["next", "the end"]);
    take_until(client, "the end")
}
