//! Brokers with a home loop, and what their clients see while a broker spreads: one owner of each client id, and no message lost,
//! repeated or out of order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

use millrace_edge::Config;
use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Connect, Packet, PacketType, Property, QoS};

use crate::common::{Client, Server, ack, connect, disconnect, id, properties, publish, publish_qos};
use crate::tools::{
    Rng, encoded, eventually, expect_clients, number_of, numbered, read_to_close, send_anyway,
};

const BROKER: &str = "default";

fn with_home(threads: usize, clients_max: u32) -> Server {
    Server::with(|config: &mut Config| {
        config.threads = threads;
        config.limits.home_clients_max = clients_max;
    })
}

fn lasting(id: &str) -> Connect<'_> {
    let expiry = properties(&[Property::SessionExpiryInterval(600)]);
    Connect { clean_start: false, properties: expiry, ..connect(V5, id) }
}

fn expect_at_home(server: &Server, expected: usize) {
    let at_home = || server.edge.clients_at_home(BROKER);
    eventually(|| at_home() == expected, || format!("{} clients at home instead of {expected}", at_home()));
}

#[test]
fn clients_of_a_small_broker_are_at_home_until_their_sessions_end() {
    let server = with_home(4, 100);
    let mut clients: Vec<Client> = (0..8).map(|n| Client::connect(&server, V5, &format!("c-{n}"))).collect();
    clients.push(Client::connect(&server, V5, ""));
    assert_eq!(server.edge.clients_at_home(BROKER), 9);
    // A takeover is no second client.
    let again = Client::connect(&server, V311, "c-0");
    clients[0].recv_disconnect();
    expect_at_home(&server, 9);
    again.disconnect();
    clients.into_iter().skip(1).for_each(Client::cut);
    expect_at_home(&server, 0);
    // A CONNECT that is refused leaves nothing either.
    Client::refused(&server, Connect { clean_start: false, ..connect(V311, "") });
    expect_at_home(&server, 0);
}

#[test]
fn one_client_more_than_fit_spreads_a_broker_for_good() {
    const FIT: usize = 5;
    let server = with_home(2, 5);
    let clients = |from: usize| -> Vec<Client> {
        (from..from + 20).map(|n| Client::connect(&server, V5, &format!("c-{n}"))).collect()
    };
    let (first, more) = (clients(0), clients(20));
    assert_eq!(server.edge.clients_at_home(BROKER), FIT);
    expect_clients(&server, 40);
    first.into_iter().for_each(Client::disconnect);
    expect_at_home(&server, 0);
    let again = clients(0);
    assert_eq!(server.edge.clients_at_home(BROKER), 0);
    more.into_iter().chain(again).for_each(Client::disconnect);
}

#[test]
fn a_session_is_purged_wherever_its_client_is() {
    let server = with_home(4, 4);
    for number in 0..8 {
        let name = format!("c-{number}");
        let mut client = Client::open(&server, lasting(&name));
        let purged = server.edge.purge_session(BROKER, &name).unwrap();
        assert_eq!(purged.recv().unwrap(), Ok(true), "{name}");
        client.recv_disconnect();
        let again = Client::open(&server, lasting(&name));
        assert!(!again.connack.as_ref().unwrap().session_present, "{name}");
    }
}

/// Spreads the broker after a random number of steps of all clients.
struct Spreader<'s> {
    server: &'s Server,
    left: AtomicUsize,
}

impl Spreader<'_> {
    fn step(&self) {
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if before == Ok(1) {
            self.server.edge.spread(BROKER);
        }
    }
}

/// Reads numbered messages of a persistent session over many connections: each once and in order. A repetition says so.
fn read_all(
    server: &Server,
    name: &str,
    count: u64,
    rng: &mut Rng,
    spreader: &Spreader<'_>,
    ready: &Barrier,
) {
    let mut client = Client::open(server, lasting(name));
    client.subscribe(&format!("{name}/#"), QoS::AtLeastOnce);
    ready.wait();
    let mut next = 0;
    while next < count {
        if rng.below(10) == 0 {
            spreader.step();
            match rng.below(3) {
                0 => {
                    send_anyway(client.stream(), &encoded(&Packet::Disconnect(disconnect_success()), V5));
                    read_to_close(client.stream());
                    client = Client::open(server, lasting(name));
                }
                1 => {
                    client.cut();
                    client = Client::open(server, lasting(name));
                }
                _ => client = Client::open(server, lasting(name)),
            }
            assert!(client.connack.as_ref().unwrap().session_present);
        }
        let message = client.recv_publish();
        let number = number_of(message.payload);
        client.send(&Packet::PubAck(ack(message.packet_id.unwrap())));
        if number < next {
            assert!(message.dup, "{number} came again, without DUP");
        } else {
            assert_eq!(number, next);
            next += 1;
        }
    }
    client.ping();
    client.disconnect();
    Client::connect(server, V5, name).disconnect();
}

fn disconnect_success() -> millrace_mqtt::Disconnect<'static> {
    disconnect(millrace_mqtt::ReasonCode::SUCCESS)
}

/// Publishes numbered messages over many connections, of which each sends its first messages before CONNACK has come.
fn publish_all(server: &Server, name: &str, to: &str, count: u64, spreader: &Spreader<'_>) {
    const EACH: u64 = 10;
    let mut before = None;
    for first in (0..count).step_by(EACH as usize) {
        spreader.step();
        let mut client = Client::raw(server);
        client.version = V311;
        let mut bytes = encoded(&Packet::Connect(connect(V311, name)), V311);
        for number in first..first + EACH {
            let (payload, packet_id) = (numbered(number, 16), u16::try_from(number - first).unwrap() + 1);
            let live = format!("live/{to}");
            bytes.extend(encoded(&Packet::Publish(publish(&live, &payload)), V311));
            let topic = format!("{to}/x");
            let publish = publish_qos(QoS::AtLeastOnce, packet_id, &topic, &payload);
            bytes.extend(encoded(&Packet::Publish(publish), V311));
        }
        client.send_bytes(&bytes);
        client.recv_connack();
        (1..=EACH).for_each(|number| {
            client.recv_ack(PacketType::PubAck, id(u16::try_from(number).unwrap()));
        });
        // Now and then the connection before is still there, and is taken over.
        before = Some(client).filter(|_| first % (3 * EACH) == 0);
    }
    drop(before);
}

/// Many connections race for few client ids. Afterwards each has one connection at most.
fn race(server: &Server, seed: u64, spreader: &Spreader<'_>) {
    const IDS: usize = 4;
    const RACERS: u64 = 4;
    let all: Mutex<Vec<(usize, Client)>> = Mutex::default();
    std::thread::scope(|scope| {
        for racer in 0..RACERS {
            let all = &all;
            scope.spawn(move || {
                let mut rng = Rng(seed * RACERS + racer);
                for _ in 0..12 {
                    spreader.step();
                    let number = rng.below(IDS);
                    let name = format!("raced-{number}");
                    let connect = if rng.below(2) == 0 { lasting(&name) } else { connect(V5, &name) };
                    let mut client = Client::raw(server);
                    client.send(&Packet::Connect(connect));
                    if rng.below(3) == 0 {
                        send_anyway(client.stream(), &encoded(&Packet::Disconnect(disconnect_success()), V5));
                    }
                    all.lock().unwrap().push((number, client));
                }
            });
        }
    });
    let mut alive = [0; IDS];
    let mut survivors = Vec::new();
    for (number, mut client) in all.into_inner().unwrap() {
        send_anyway(client.stream(), &encoded(&Packet::PingReq, V5));
        let mut is_alive = false;
        while let Some(bytes) = client.recv_bytes() {
            if bytes[0] >> 4 == PacketType::PingResp as u8 {
                is_alive = true;
                break;
            }
        }
        if is_alive {
            alive[number] += 1;
            survivors.push((number, client));
        }
    }
    // One that answered may have been taken over since by another that was asked later.
    for (number, client) in &mut survivors {
        send_anyway(client.stream(), &encoded(&Packet::PingReq, V5));
        let answer = client.recv_bytes();
        if answer.is_none_or(|bytes| bytes[0] >> 4 != PacketType::PingResp as u8) {
            alive[*number] -= 1;
        }
    }
    assert!(alive.iter().all(|alive| *alive <= 1), "connections of each client id: {alive:?}");
    for number in 0..IDS {
        Client::connect(server, V5, &format!("raced-{number}")).disconnect();
    }
}

#[test]
fn clients_notice_nothing_of_a_spread_at_any_moment() {
    const FLOWS: u64 = 2;
    const COUNT: u64 = 150;
    for (threads, seed) in [(2, 1), (2, 2), (3, 3), (3, 4), (4, 5), (4, 6)] {
        let clients_max = if seed % 2 == 0 { 3 } else { 1_000 };
        let server = with_home(threads, clients_max);
        let steps = Rng(seed).below(60) + 1;
        let spreader = Spreader { server: &server, left: AtomicUsize::new(steps) };
        let ready = Barrier::new(2 * FLOWS as usize + 1);
        std::thread::scope(|scope| {
            for flow in 0..FLOWS {
                let (server, spreader, ready) = (&server, &spreader, &ready);
                let name = format!("reader-{flow}");
                let live = format!("live/{name}");
                let also = name.clone();
                scope.spawn(move || {
                    read_all(server, &name, COUNT, &mut Rng(seed * 100 + flow), spreader, ready);
                });
                scope.spawn(move || {
                    // QoS 0 keeps its order, too, and nothing is lost while no receiver lags.
                    let mut watcher = Client::connect(server, V5, &format!("watcher-{flow}"));
                    watcher.subscribe(&live, QoS::AtMostOnce);
                    ready.wait();
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            publish_all(server, &format!("publisher-{flow}"), &also, COUNT, spreader);
                        });
                        for number in 0..COUNT {
                            assert_eq!(number_of(watcher.recv_publish().payload), number);
                        }
                    });
                    watcher.disconnect();
                });
            }
            ready.wait();
            (0..3).for_each(|round| race(&server, seed * 10 + round, &spreader));
        });
        server.edge.spread(BROKER);
        expect_clients(&server, 0);
        expect_at_home(&server, 0);
    }
}
