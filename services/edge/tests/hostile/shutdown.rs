//! Starting and stopping.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use millrace_edge::Config;
use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Packet, QoS, ReasonCode};

use crate::common::{Client, Server, publish, publish_qos};
use crate::tools::{Packets, a_moment, flood, narrow_client, now, read_to_close};
use crate::ws::WebSocket;

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(300);

#[test]
fn clients_are_told_that_the_server_shuts_down() {
    let server = Server::with(|config| config.threads = 2);
    let mut new: Vec<_> =
        (0..20).map(|number| Client::connect(&server, V5, &format!("new-{number}"))).collect();
    let mut old: Vec<_> =
        (0..20).map(|number| Client::connect(&server, V311, &format!("old-{number}"))).collect();
    let mut browser = WebSocket::connect(&server, V5, "browser");
    let silent = Client::raw(&server);
    let start = now();
    let stop = std::thread::spawn(move || server.edge.shutdown(LONG));
    for client in &mut new {
        client.expect_disconnect(ReasonCode::SERVER_SHUTTING_DOWN);
    }
    old.iter_mut().for_each(Client::expect_close);
    let Packet::Disconnect(answer) = browser.recv() else { panic!("no DISCONNECT") };
    assert_eq!(answer.reason, ReasonCode::SERVER_SHUTTING_DOWN);
    browser.expect_close(1000);
    assert_eq!(read_to_close(silent.stream()), b"");
    drop((new, old, browser, silent));
    stop.join().unwrap();
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
}

#[test]
fn nobody_is_accepted_after_it() {
    // An address that no other test uses: the kernel may give a closed port to a test that runs beside this one.
    let own = SocketAddr::from(([127, 77, 0, 1], 0));
    let server = Server::with(|config| {
        (config.mqtt_listen, config.ws_listen, config.threads) = (vec![own], vec![own], 2);
    });
    let (mqtt, ws) = (server.mqtt(), server.ws());
    // A client that delays the shutdown does not keep the listeners open.
    let mut client = Client::connect(&server, V5, "ann");
    let stop = std::thread::spawn(move || server.edge.shutdown(LONG));
    client.expect_disconnect(ReasonCode::SERVER_SHUTTING_DOWN);
    stop.join().unwrap();
    for address in [mqtt, ws] {
        assert!(TcpStream::connect(address).is_err());
    }
    // And the ports are free.
    let again = Config { mqtt_listen: vec![mqtt], ws_listen: vec![ws], threads: 2, ..Config::default() };
    drop(millrace_edge::start(again).unwrap());
}

#[test]
fn what_a_slow_client_still_has_to_get_is_sent_within_the_grace() {
    const COUNT: u64 = 20_000;
    let server = Server::with(|config| {
        config.threads = 2;
        config.limits.outbound_soft_bytes = 32 * 1024 * 1024;
    });
    let mut slow = narrow_client(&server, V5, "slow");
    slow.subscribe("t", QoS::AtMostOnce);
    let mut publisher = Client::connect(&server, V5, "publisher");
    publisher.send_bytes(&flood("t", COUNT, 1000, V5));
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "other", b""));
    let stop = std::thread::spawn(move || server.edge.shutdown(LONG));
    publisher.recv_disconnect();
    // It takes its time: longer than a connection lingers otherwise.
    let (start, mut packets, mut received) = (now(), Packets::of(&slow), 0);
    let reason = loop {
        match packets.next() {
            Some(Packet::Publish(_)) => received += 1,
            Some(Packet::Disconnect(disconnect)) => break Some(disconnect.reason),
            Some(other) => panic!("{other:?}"),
            None => break None,
        }
        while received == COUNT / 2 && start.elapsed() < Duration::from_secs(4) {
            a_moment();
        }
    };
    assert_eq!((received, reason), (COUNT, Some(ReasonCode::SERVER_SHUTTING_DOWN)));
    drop((slow, publisher));
    stop.join().unwrap();
}

#[test]
fn a_client_that_reads_nothing_holds_it_up_no_longer_than_the_grace() {
    let server = Server::with(|config| {
        config.threads = 2;
        config.limits.outbound_soft_bytes = 32 * 1024 * 1024;
    });
    let mut stuck = narrow_client(&server, V5, "stuck");
    stuck.subscribe("t", QoS::AtMostOnce);
    let mut publisher = Client::connect(&server, V5, "publisher");
    publisher.send_bytes(&flood("t", 20_000, 1000, V5));
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "other", b""));
    let start = now();
    server.edge.shutdown(Duration::from_millis(500));
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
    drop(stuck);
}

#[test]
fn dropping_the_edge_ends_it_at_once() {
    let server = Server::with(|config| config.threads = 4);
    let mut client = Client::connect(&server, V5, "ann");
    client.send(&Packet::Publish(publish("t", b"")));
    let start = now();
    drop(server);
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
    client.recv_disconnect();
}

#[test]
fn a_port_in_use_is_a_sentence_that_says_what_to_do() {
    let server = Server::with(|config| config.threads = 2);
    let used = server.mqtt();
    let also = Config { mqtt_listen: vec![used], threads: 2, ..Config::default() };
    let error = millrace_edge::start(also).err().unwrap().to_string();
    assert!(error.contains(&used.to_string()) && error.contains("another program listens there"), "{error}");
    let also = Config { ws_listen: vec![used], threads: 1, ..Config::default() };
    assert!(millrace_edge::start(also).is_err());
    // The one that is there continues.
    Client::connect(&server, V5, "ann").ping();
}
