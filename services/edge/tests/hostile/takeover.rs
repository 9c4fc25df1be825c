//! Many connections with one client id: one has the session, the others get a DISCONNECT, and nothing of the session is lost.

use std::collections::HashSet;
use std::sync::{Barrier, Mutex};

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Connect, Packet, Property, Publish, QoS, ReasonCode, Will};

use crate::common::{Client, Server, connect, properties, will};
use crate::tools::{
    Packets, Pair, counted, encoded, ended, expect_clients, expect_count, metric, number_of, numbered,
    publish_all, read_to_close, send_anyway,
};

/// A session that outlives its connection.
fn lasting(id: &str) -> Connect<'_> {
    let expiry = properties(&[Property::SessionExpiryInterval(60)]);
    Connect { clean_start: false, properties: expiry, ..connect(V5, id) }
}

#[test]
fn of_two_hundred_that_race_for_a_client_id_one_is_left() {
    //= [MQTT-3.1.4-3] v5
    const RACERS: usize = 8;
    const EACH: usize = 25;
    let server = Server::with(|config| config.threads = 4);
    let pair = Pair::start(&server);
    let mut first = Client::open(&server, lasting("ann"));
    first.subscribe("kept", QoS::AtLeastOnce);
    let (gate, all) = (Barrier::new(RACERS), Mutex::new(vec![first]));
    std::thread::scope(|scope| {
        for _ in 0..RACERS {
            scope.spawn(|| {
                gate.wait();
                for _ in 0..EACH {
                    let client = Client::open(&server, lasting("ann"));
                    assert!(client.connack.as_ref().unwrap().session_present);
                    all.lock().unwrap().push(client);
                }
            });
        }
    });
    let mut survivors = Vec::new();
    for mut client in all.into_inner().unwrap() {
        send_anyway(client.stream(), &encoded(&Packet::PingReq, V5));
        match client.recv() {
            Packet::PingResp => survivors.push(client),
            Packet::Disconnect(told) => {
                assert_eq!(told.reason, ReasonCode::SESSION_TAKEN_OVER);
                client.expect_close();
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(survivors.len(), 1);
    expect_count(ended, &server, "taken_over", (RACERS * EACH) as u64);
    expect_clients(&server, 3);
    assert_eq!(metric(&server, "millrace_sessions", ""), 3);
    // The session is the first one's.
    let mut bob = Client::connect(&server, V311, "bob");
    publish_all(&mut bob, QoS::AtLeastOnce, "kept", 1, 8);
    assert_eq!(survivors[0].recv_publish().topic, "kept");
    pair.finish();
}

#[test]
fn of_those_without_a_session_that_race_for_a_client_id_one_is_left() {
    //= [MQTT-3.1.4-2] v3.1.1
    let server = Server::with(|config| config.threads = 2);
    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let client = Client::connect(&server, V311, "ann");
                    assert!(!client.connack.as_ref().unwrap().session_present);
                    all.lock().unwrap().push(client);
                }
            });
        }
    });
    expect_count(ended, &server, "taken_over", 79);
    expect_clients(&server, 1);
    assert_eq!(metric(&server, "millrace_sessions", ""), 1);
    let mut survivors = 0;
    for client in all.into_inner().unwrap() {
        send_anyway(client.stream(), &encoded(&Packet::PingReq, V311));
        // A 3.1.1 client gets no DISCONNECT.
        if client.stream().shutdown(std::net::Shutdown::Write).is_ok() {
            survivors += usize::from(read_to_close(client.stream()) == [0xD0, 0]);
        }
    }
    assert_eq!(survivors, 1, "{}", counted(&server));
}

#[test]
fn messages_to_a_session_that_is_taken_over_again_and_again_all_arrive_in_order() {
    const COUNT: u64 = 6000;
    for threads in [1, 2] {
        let server = Server::with(|config| config.threads = threads);
        let mut first = Client::open(&server, lasting("ann"));
        first.subscribe("t", QoS::AtLeastOnce);
        let mut publisher = Client::connect(&server, V5, "publisher");
        let mut taken_over = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| publish_all(&mut publisher, QoS::AtLeastOnce, "t", COUNT, 100));
            // Kept open until a later connection has taken it over.
            let (mut next, mut present) = (0, first);
            while next < COUNT {
                {
                    let mut packets = Packets::of(&present);
                    for _ in 0..150 {
                        if next == COUNT {
                            break;
                        }
                        let number = packets.next_number().unwrap();
                        // Messages that were not acknowledged in time come again, from the oldest on; none is left out.
                        assert!(number <= next, "{number} came before {next}");
                        next = next.max(number + 1);
                    }
                }
                let later = Client::open(&server, lasting("ann"));
                assert!(later.connack.as_ref().unwrap().session_present);
                present = later;
                taken_over += 1;
            }
        });
        assert!(taken_over >= 30, "{taken_over}");
        assert_eq!(counted(&server).matches("messages_dropped").count(), 0, "{}", counted(&server));
    }
}

#[test]
fn a_message_of_qos_2_passes_once_through_takeovers() {
    //= [MQTT-4.3.3-13] v5
    let server = Server::with(|config| config.threads = 2);
    let mut ann = Client::open(&server, lasting("ann"));
    ann.subscribe("t", QoS::ExactlyOnce);
    let mut publisher = Client::connect(&server, V5, "publisher");
    for round in 0..50 {
        publisher.publish(crate::common::publish_qos(QoS::ExactlyOnce, 1, "t", &numbered(round, 8)));
        // Taken over at each step: before the PUBLISH was taken in, before PUBREL, before PUBCOMP.
        if round % 3 == 0 {
            ann = Client::open(&server, lasting("ann"));
        }
        let Packet::Publish(message) = ann.recv() else { panic!("no PUBLISH") };
        assert_eq!(number_of(message.payload), round);
        let id = message.packet_id.unwrap();
        ann.send(&Packet::PubRec(crate::common::ack(id)));
        ann.recv_ack(millrace_mqtt::PacketType::PubRel, id);
        if round % 3 == 1 {
            ann = Client::open(&server, lasting("ann"));
            ann.recv_ack(millrace_mqtt::PacketType::PubRel, id);
        }
        ann.send(&Packet::PubComp(crate::common::ack(id)));
        ann.expect_nothing();
    }
}

#[test]
fn each_connection_that_is_taken_over_leaves_its_will_once() {
    //= [MQTT-3.1.4-3] v5
    const TAKEOVERS: u64 = 100;
    let server = Server::with(|config| config.threads = 2);
    let mut watcher = Client::connect(&server, V5, "watcher");
    watcher.subscribe("will", QoS::ExactlyOnce);
    let clients = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for racer in 0..2 {
            let (server, clients) = (&server, &clients);
            scope.spawn(move || {
                for number in 0..TAKEOVERS / 2 {
                    let payload = numbered(number * 2 + racer, 8);
                    let will = Will { qos: QoS::AtLeastOnce, ..will("will", &payload) };
                    // With and without a session that continues.
                    let connect = if number % 2 == 0 { lasting("ann") } else { connect(V5, "ann") };
                    let client = Client::open(server, Connect { will: Some(will), ..connect });
                    clients.lock().unwrap().push(client);
                }
            });
        }
    });
    let mut seen = HashSet::new();
    let take = |watcher: &mut Client, seen: &mut HashSet<u64>| {
        let Publish { payload, packet_id, .. } = watcher.recv_publish();
        watcher.send(&Packet::PubAck(crate::common::ack(packet_id.unwrap())));
        assert!(seen.insert(number_of(payload)), "twice");
    };
    for _ in 0..TAKEOVERS - 1 {
        take(&mut watcher, &mut seen);
    }
    watcher.expect_nothing();
    // The last one has its connection; it leaves its will when that is cut.
    drop(clients);
    take(&mut watcher, &mut seen);
    watcher.expect_nothing();
    assert_eq!(metric(&server, "millrace_wills_published_total", ""), TAKEOVERS);
}
