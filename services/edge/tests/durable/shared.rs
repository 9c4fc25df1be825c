//! Shared subscriptions with members whose sessions outlive their connections: the group is the subscriber, and its messages wait
//! in its own stream.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Packet, Property, Publish, QoS};
use millrace_storage::Database;

use crate::common::{Client, Server, ack, connect, properties};
use crate::history::publish_mixed;
use crate::steps::{
    BETWEEN, Disk, acknowledge, come_back, is_for_nobody, lasting, leave, pass, say, start,
    subscribe_and_leave, take, take_until, texts,
};
use crate::tools::{Packets, counted, dropped, eventually, expect_clients, half_close};

const GROUP: &str = "$share/g/t";
const NUMBERS: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];

/// A connected member with a session that stays.
fn member(server: &Server, id: &str) -> Client {
    let mut client = Client::open(server, lasting(V5, id));
    client.subscribe(GROUP, QoS::ExactlyOnce);
    client
}

/// All that comes to the only member that is there.
fn rest(server: &Server, client: &mut Client) -> Vec<String> {
    say(server, QoS::AtLeastOnce, "t", &["the end"]);
    let rest = take_until(client, "the end");
    client.ping();
    texts(&rest)
}

#[test]
fn a_group_goes_on_reading_when_a_session_has_stored_what_its_client_does_not_acknowledge() {
    // The writer stops reading for a group at 1,000 messages, and a client takes 1,024.
    let numbers: Vec<String> = (0..1_020).map(|number| number.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let database = Database::memory();
    let server = start(&database, 1);
    subscribe_and_leave(&server, V5, "ann", &[(GROUP, QoS::ExactlyOnce)]);
    say(&server, QoS::ExactlyOnce, "t", &numbers);
    let mut ann = come_back(&server, V5, "ann");
    for number in numbers {
        assert_eq!(take(&mut ann).payload, number.as_bytes());
    }
}

#[test]
fn messages_wait_for_a_member_while_none_is_there() {
    for between in BETWEEN {
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let database = Database::memory();
            let server = start(&database, 1);
            for id in ["ann", "bob"] {
                subscribe_and_leave(&server, V5, id, &[(GROUP, QoS::ExactlyOnce)]);
            }
            say(&server, qos, "t", &NUMBERS);
            let server = pass(between, server, &database);
            say(&server, qos, "t", &["more"]);
            // The first member that comes gets them all; there is nothing for the other.
            let mut bob = come_back(&server, V5, "bob");
            let mut got = rest(&server, &mut bob);
            assert_eq!(got.pop().as_deref(), Some("more"));
            assert_eq!(got, NUMBERS, "{between:?} {qos:?}");
            leave(&mut bob, true);
            let server = pass(between, server, &database);
            assert!(rest(&server, &mut come_back(&server, V5, "ann")).is_empty(), "{between:?} {qos:?}");
        }
    }
}

#[test]
fn what_a_member_did_not_acknowledge_goes_to_another_and_the_rest_does_not() {
    for between in BETWEEN {
        for threads in [1, 4] {
            let database = Database::memory();
            let server = start(&database, threads);
            let mut ann = member(&server, "ann");
            let mut bob = member(&server, "bob");
            say(&server, QoS::AtLeastOnce, "t", &NUMBERS);
            let of_ann: Vec<_> = (0..4).map(|_| take(&mut ann)).collect();
            let of_bob: Vec<_> = (0..4).map(|_| take(&mut bob)).collect();
            of_bob.iter().for_each(|message| acknowledge(&mut bob, message));
            bob.ping();
            [1, 3].iter().for_each(|index| acknowledge(&mut ann, &of_ann[*index]));
            leave(&mut ann, true);
            if between == crate::steps::Between::Restart {
                leave(&mut bob, true);
            }
            let server = pass(between, server, &database);
            if between == crate::steps::Between::Restart {
                bob = come_back(&server, V5, "bob");
            }
            let mut again = rest(&server, &mut bob);
            again.sort();
            assert_eq!(again, texts(&[of_ann[0].clone(), of_ann[2].clone()]), "{between:?} {threads}");
            leave(&mut bob, true);
            assert!(rest(&server, &mut come_back(&server, V5, "ann")).is_empty());
        }
    }
}

#[test]
fn what_was_sent_with_qos_2_stays_with_its_member() {
    //= [MQTT-4.8.2-5] v5
    stays_with_its_member(&[End::OfConnection, End::OfProcess]);
}

#[test]
fn what_was_sent_with_qos_2_stays_with_its_member_over_a_crash() {
    //= [MQTT-4.8.2-5] v5
    stays_with_its_member(&[End::Crash]);
}

#[derive(Clone, Copy, Debug)]
enum End {
    OfConnection,
    OfProcess,
    Crash,
}

fn stays_with_its_member(ends: &[End]) {
    for how in ends {
        let disk = Disk::new();
        let mut server = start(&disk.store.database(), 1);
        let mut ann = member(&server, "ann");
        say(&server, QoS::ExactlyOnce, "t", &["sent", "received", "released"]);
        let got: Vec<_> = (0..3).map(|_| take(&mut ann)).collect();
        for message in &got[1..] {
            ann.send(&Packet::PubRec(ack(message.packet_id.unwrap())));
            ann.recv_ack(millrace_mqtt::PacketType::PubRel, message.packet_id.unwrap());
        }
        ann.send(&Packet::PubComp(ack(got[2].packet_id.unwrap())));
        ann.ping();
        match how {
            End::OfConnection => leave(&mut ann, false),
            End::OfProcess => {
                drop(server);
                server = start(&disk.store.database(), 1);
            }
            End::Crash => server = disk.crash(server, 1),
        }
        // Nothing of it is for somebody else.
        let mut bob = member(&server, "bob");
        assert_eq!(rest(&server, &mut bob), [""; 0], "{how:?}");
        leave(&mut bob, true);
        let mut ann = come_back(&server, V5, "ann");
        let again = take(&mut ann);
        let expected = Publish { dup: true, ..got[0].clone() };
        assert_eq!(crate::steps::marks(&[again]), crate::steps::marks(&[expected]), "{how:?}");
        ann.recv_ack(millrace_mqtt::PacketType::PubRel, got[1].packet_id.unwrap());
    }
}

#[test]
fn a_long_message_stays_with_its_member_over_a_crash() {
    //= [MQTT-4.8.2-5] v5
    let disk = Disk::new();
    let mut server = start(&disk.store.database(), 1);
    let mut ann = member(&server, "ann");
    let long = "long ".repeat(60_000);
    say(&server, QoS::ExactlyOnce, "t", &[&long]);
    let got = take(&mut ann);
    server = disk.crash(server, 1);
    let mut bob = member(&server, "bob");
    assert_eq!(rest(&server, &mut bob), [""; 0]);
    bob.unsubscribe(&[GROUP]);
    leave(&mut bob, true);
    // The row of an in-flight message is written when its connection ends, or stays as it is.
    for crashed in [false, true] {
        let mut ann = come_back(&server, V5, "ann");
        let again = take(&mut ann);
        assert!(again.payload == long.as_bytes() && again.packet_id == got.packet_id && again.dup);
        leave(&mut ann, false);
        if !crashed {
            server = disk.crash(server, 1);
        }
    }
}

#[test]
fn what_members_acknowledged_just_before_the_end_does_not_come_again() {
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let database = Database::memory();
        let mut server = start(&database, 1);
        for round in 0..3 {
            let mut ann = member(&server, "ann");
            say(&server, qos, "t", &NUMBERS);
            let got: Vec<_> = NUMBERS.iter().map(|_| take(&mut ann)).collect();
            assert_eq!(texts(&got), NUMBERS, "{qos:?} round {round}");
            got.iter().for_each(|message| acknowledge(&mut ann, message));
            ann.ping();
            drop(server);
            server = start(&database, 1);
        }
    }
}

#[test]
fn each_message_goes_to_one_member() {
    const COUNT: u64 = 1000;
    for threads in [1, 4] {
        let server = start(&Database::memory(), threads);
        let mut members: Vec<Client> =
            (0..3).map(|number| member(&server, &format!("stays {number}"))).collect();
        let mut clean = Client::open(&server, connect(V5, "clean"));
        clean.subscribe(GROUP, QoS::AtLeastOnce);
        // It takes no acknowledged message at all: nothing of it is remembered as on its way.
        let mut zero = Client::open(&server, connect(V5, "zero"));
        zero.subscribe(GROUP, QoS::AtMostOnce);
        members.extend([clean, zero]);
        publish_with_readers(&server, &members, COUNT);
    }
}

/// Ends the other threads of a test, also when it fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Publishes to members that take all: each message comes to one of them.
fn publish_with_readers(server: &Server, members: &[Client], count: u64) {
    let seen: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Done(&done);
        for member in members {
            member.stream().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            scope.spawn(|| {
                let mut packets = Packets::of(member);
                while !done.load(Ordering::SeqCst) {
                    if let Some(number) = packets.next_number() {
                        seen[usize::try_from(number).unwrap()].fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        publish_mixed(server, "t", count, &[QoS::AtLeastOnce, QoS::ExactlyOnce], |_| {});
        let total = || seen.iter().map(|times| times.load(Ordering::SeqCst)).sum::<usize>();
        let all = usize::try_from(count).unwrap();
        eventually(|| total() >= all, || format!("{} of {count}\n{}", total(), counted(server)));
    });
    assert!(seen.iter().all(|times| times.load(Ordering::SeqCst) == 1));
}

#[test]
fn a_group_goes_on_when_its_last_lasting_member_unsubscribes() {
    for threads in [1, 4] {
        let server = start(&Database::memory(), threads);
        let mut ann = member(&server, "ann");
        let mut clean = Client::open(&server, connect(V5, "clean"));
        clean.subscribe(GROUP, QoS::AtLeastOnce);
        say(&server, QoS::AtLeastOnce, "t", &NUMBERS);
        let of_ann: Vec<_> = (0..4).map(|_| take(&mut ann)).collect();
        let of_clean: Vec<_> = (0..4).map(|_| take(&mut clean)).collect();
        acknowledge(&mut ann, &of_ann[0]);
        ann.unsubscribe(&[GROUP]);
        // Its messages stay its own until it leaves; new ones go to the other.
        say(&server, QoS::AtLeastOnce, "t", &["new"]);
        of_clean.iter().for_each(|message| acknowledge(&mut clean, message));
        let new = take(&mut clean);
        assert_eq!(new.payload, b"new");
        acknowledge(&mut clean, &new);
        ann.expect_nothing();
        leave(&mut ann, true);
        expect_clients(&server, 1);
        let mut again: Vec<_> = texts(&(0..3).map(|_| take(&mut clean)).collect::<Vec<_>>());
        again.sort();
        assert_eq!(again, texts(&of_ann[1..]), "{threads}");
        clean.expect_nothing();
        assert!(!is_for_nobody(&server, "t"));
        leave(&mut clean, true);
        assert!(is_for_nobody(&server, "t"));
    }
}

#[test]
fn members_that_come_and_go_lose_nothing_and_repeat_nothing_that_was_acknowledged() {
    const COUNT: u64 = 1500;
    for threads in [1, 4] {
        let server = start(&Database::memory(), threads);
        let seen: Vec<AtomicUsize> = (0..COUNT).map(|_| AtomicUsize::new(0)).collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ends = Done(&done);
            for id in ["ann", "bob", "eve"] {
                let (server, seen, done) = (&server, &seen, &done);
                drop(member(server, id));
                scope.spawn(move || {
                    while !done.load(Ordering::SeqCst) {
                        let member = come_back(server, V5, id);
                        {
                            member.stream().set_read_timeout(Some(Duration::from_millis(300))).unwrap();
                            let mut packets = Packets::of(&member);
                            for _ in 0..30 {
                                let Some(number) = packets.next_number() else { break };
                                seen[usize::try_from(number).unwrap()].fetch_add(1, Ordering::SeqCst);
                            }
                        }
                        half_close(member.stream());
                    }
                });
            }
            publish_mixed(&server, "t", COUNT, &[QoS::AtLeastOnce], |_| {});
            let missing = || seen.iter().filter(|times| times.load(Ordering::SeqCst) == 0).count();
            eventually(|| missing() == 0, || format!("{} are missing\n{}", missing(), counted(&server)));
        });
        let again = seen.iter().filter(|times| times.load(Ordering::SeqCst) > 1).count();
        assert_eq!(again, 0, "{threads}");
    }
}

/// A member without a session, for which so many messages to `other` wait as may.
fn full_member(server: &Server) -> Client {
    let properties = properties(&[Property::ReceiveMaximum(1)]);
    let mut full = Client::open(server, Connect { properties, ..connect(V5, "full") });
    full.subscribe(GROUP, QoS::AtLeastOnce);
    full.subscribe("other", QoS::AtLeastOnce);
    say_all(server, "other", &vec!["other".to_owned(); QUEUE_MAX as usize + 10]);
    assert_eq!(dropped(server, "queue_full"), 9);
    full
}

const QUEUE_MAX: u32 = 60;

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

fn say_all(server: &Server, topic: &str, payloads: &[String]) {
    say(server, QoS::AtLeastOnce, topic, &payloads.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Takes and acknowledges messages until it has all of them.
fn expect_all(member: &mut Client, payloads: &[String]) {
    let mut missing: HashSet<&str> = payloads.iter().map(String::as_str).collect();
    while !missing.is_empty() {
        let message = take(member);
        missing.remove(std::str::from_utf8(message.payload).unwrap());
        acknowledge(member, &message);
    }
}

#[test]
fn messages_for_which_a_member_has_no_room_wait_for_another() {
    for threads in [1, 4] {
        let server = Server::on(&Database::memory(), |config| {
            (config.threads, config.limits.queue_messages_max) = (threads, QUEUE_MAX);
        });
        subscribe_and_leave(&server, V5, "ann", &[(GROUP, QoS::AtLeastOnce)]);
        let mut full = full_member(&server);
        let all = numbers(50);
        say_all(&server, "t", &all);
        take(&mut full);
        leave(&mut full, true);
        expect_all(&mut come_back(&server, V5, "ann"), &all);
        assert_eq!(dropped(&server, "queue_full"), 9, "{}", counted(&server));
    }
}

#[test]
fn a_full_member_gets_all_messages_of_its_group_as_it_acknowledges() {
    let server = Server::on(&Database::memory(), |config| config.limits.queue_messages_max = QUEUE_MAX);
    subscribe_and_leave(&server, V5, "ann", &[(GROUP, QoS::AtLeastOnce)]);
    let mut full = full_member(&server);
    let all = numbers(50);
    say_all(&server, "t", &all);
    expect_all(&mut full, &all);
}

#[test]
fn another_member_gets_what_a_member_has_no_memory_for() {
    const MAX: u64 = 100_000;
    for threads in [1, 4] {
        let server = Server::on(&Database::memory(), |config| {
            config.threads = threads;
            (config.limits.queue_memory_max, config.limits.queue_memory_per_broker_max) = (MAX, MAX);
        });
        let mut hoarder = Client::connect(&server, V5, "hoarder");
        hoarder.subscribe("o", QoS::AtLeastOnce);
        for bytes in [6_000, 0] {
            say_all(&server, "o", &vec!["x".repeat(bytes); 100]);
        }
        let mut ann = member(&server, "ann");
        let mut short = Client::connect(&server, V5, "short");
        short.subscribe(GROUP, QoS::AtLeastOnce);
        let all = numbers(200);
        say_all(&server, "t", &all);
        expect_all(&mut ann, &all);
        short.expect_nothing();
    }
}
