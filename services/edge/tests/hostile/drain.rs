//! A server that drains: it sends its clients elsewhere at a rate, each as its version allows.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use millrace_access::files::passwords;
use millrace_access::secrets::chosen;
use millrace_edge::DrainRate;
use millrace_mqtt::Version::{V5, V31, V311};
use millrace_mqtt::{Connect, Packet, Property, ReasonCode};

use crate::common::{Client, Server, connect, list};
use crate::tools::{PATIENCE, ended, eventually, expect_count, metric, now};
use crate::ws::WebSocket;

const ELSEWHERE: &str = "other.example:8883";

/// The server reference of a server that names no other server, and of one that does.
const REFERENCES: [Option<&str>; 2] = [None, Some(ELSEWHERE)];

fn pace(per_second: u32) -> DrainRate {
    DrainRate { per_second, at_most: Duration::from_secs(60) }
}

fn start(reference: Option<&str>, threads: usize) -> Server {
    // An address that other files do not use: the kernel may give a closed port to a test that runs beside these.
    let own = SocketAddr::from(([127, 77, 0, 2], 0));
    Server::with(|config| {
        (config.mqtt_listen, config.ws_listen, config.threads) = (vec![own], vec![own], threads);
        config.server_reference = reference.map(Into::into);
    })
}

/// The server reference in a DISCONNECT.
fn told<'a>(properties: &[Property<'a>]) -> Option<&'a str> {
    properties.iter().find_map(|property| match property {
        Property::ServerReference(reference) => Some(*reference),
        _ => None,
    })
}

#[test]
fn clients_are_told_where_to_go_or_that_the_server_stops() {
    //= [MQTT-3.14.2-1] v5
    for reference in REFERENCES {
        let server = start(reference, 2);
        let reason = match reference {
            Some(_) => ReasonCode::USE_ANOTHER_SERVER,
            None => ReasonCode::SERVER_SHUTTING_DOWN,
        };
        let mut new: Vec<_> = (0..10).map(|n| Client::connect(&server, V5, &format!("new-{n}"))).collect();
        let mut old: Vec<_> = (0..10)
            .map(|n| Client::connect(&server, if n % 2 == 0 { V311 } else { V31 }, &format!("old-{n}")))
            .collect();
        let mut browser = WebSocket::connect(&server, V5, "browser");
        assert_eq!(server.edge.health(), Ok(()));
        let draining = server.edge.drain(&pace(1000));
        for client in &mut new {
            let properties = client.expect_disconnect(reason);
            assert_eq!(told(&list(properties)), reference);
        }
        old.iter_mut().for_each(Client::expect_close);
        let Packet::Disconnect(answer) = browser.recv() else { panic!("no DISCONNECT") };
        assert_eq!((answer.reason, told(&list(answer.properties))), (reason, reference));
        browser.expect_close(1000);
        assert!(draining.wait(PATIENCE));
        expect_count(ended, &server, "drained", 21);
        assert!(TcpStream::connect(server.mqtt()).is_err());
        drop((new, old, browser));
        eventually(
            || server.edge.health() == Err("draining: 0 connections are left".into()),
            || format!("{:?}", server.edge.health()),
        );
        assert_eq!(server.edge.liveness(), Ok(()));
        server.edge.shutdown(PATIENCE);
    }
}

#[test]
fn clients_are_sent_away_no_faster_than_the_rate() {
    for threads in [1, 2] {
        let server = start(None, threads);
        let mut clients: Vec<_> =
            (0..30).map(|n| Client::connect(&server, V5, &format!("client-{n}"))).collect();
        let start = now();
        let draining = server.edge.drain(&pace(30));
        for client in &mut clients {
            client.expect_disconnect(ReasonCode::SERVER_SHUTTING_DOWN);
        }
        // The first one goes at once; both clocks round to milliseconds.
        assert!(start.elapsed() > Duration::from_millis(29 * 1000 / 30 - 5), "{:?}", start.elapsed());
        assert!(draining.wait(PATIENCE));
    }
}

#[test]
fn who_is_not_sent_away_yet_is_served_and_who_comes_is_refused() {
    //= [MQTT-3.2.2-7] [MQTT-3.2.2-8] v5
    for reference in REFERENCES {
        let server = start(reference, 2);
        let mut clients: Vec<_> =
            (0..20).map(|n| Client::connect(&server, V311, &format!("client-{n}"))).collect();
        let late: Vec<_> = [V5, V311].into_iter().map(|version| (version, Client::raw(&server))).collect();
        eventually(|| metric(&server, "millrace_connections_open", "") == 22, || "all are open".into());
        let _draining = server.edge.drain(&pace(1));
        // The first one is sent away at once, the last one in 20 seconds.
        eventually(|| ended(&server, "drained") > 0, || "the first one has gone".into());
        let served = |client: &mut Client| {
            client.send(&Packet::PingReq);
            client.recv_bytes().is_some()
        };
        let served = clients.iter_mut().filter_map(|client| served(client).then_some(())).count();
        assert!((1..20).contains(&served), "{served}");
        for (version, mut client) in late {
            client.send(&Packet::Connect(connect(version, "late")));
            let connack = client.recv_connack();
            let reason = match (version, reference) {
                (V5, Some(_)) => ReasonCode::USE_ANOTHER_SERVER,
                (V5, None) => ReasonCode::SERVER_UNAVAILABLE,
                _ => ReasonCode(3),
            };
            assert_eq!(connack.reason, reason);
            assert_eq!(told(&list(connack.properties)), reference.filter(|_| version == V5));
            client.expect_close();
        }
        assert_eq!(metric(&server, "millrace_connects_refused_total", "draining"), 2);
        // The clients that remain are disconnected when it stops.
        drop(server);
        assert!(clients.iter_mut().all(|client| client.recv_bytes().is_none()));
    }
}

#[test]
fn a_client_whose_password_is_being_checked_is_refused_or_sent_away() {
    //= [MQTT-3.14.0-1] [MQTT-3.2.2-7] [MQTT-3.2.2-8] v5
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = file.join(format!("{}_drain_users", env!("CARGO_CRATE_NAME")));
    let hash = chosen::hash(b"secret", &[7; 16]).unwrap();
    std::fs::write(&file, passwords::edit("", "ann", Some(&hash)).unwrap()).unwrap();
    let server = Server::with(|config| {
        config.authentication.allow_anonymous = false;
        config.authentication.password_file = Some(file);
    });
    let mut clients: Vec<_> = (0..20).map(|_| Client::raw(&server)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let (id, password) = (format!("client-{number}"), Some(&b"secret"[..]));
        client.send(&Packet::Connect(Connect { user_name: Some("ann"), password, ..connect(V5, &id) }));
    }
    // The only loop has read all of them when it has answered what came after them; a password takes longer than that.
    let mut last = Client::raw(&server);
    last.send(&Packet::PingReq);
    last.expect_close();
    let draining = server.edge.drain(&pace(1000));
    let mut refused = 0;
    for client in &mut clients {
        match client.recv() {
            Packet::ConnAck(connack) if connack.reason == ReasonCode::SUCCESS => {
                client.expect_disconnect(ReasonCode::SERVER_SHUTTING_DOWN);
            }
            Packet::ConnAck(connack) => {
                assert_eq!(connack.reason, ReasonCode::SERVER_UNAVAILABLE);
                client.expect_close();
                refused += 1;
            }
            Packet::Disconnect(told) => assert_eq!(told.reason, ReasonCode::SERVER_SHUTTING_DOWN),
            other => panic!("{other:?}"),
        }
    }
    assert!(draining.wait(PATIENCE));
    assert_eq!(metric(&server, "millrace_connects_refused_total", "draining"), refused);
    expect_count(ended, &server, "drained", 20 - refused);
}

#[test]
fn a_drain_of_nobody_is_over_at_once_and_one_that_stops_halfway_ends_all() {
    let server = start(None, 2);
    assert!(server.edge.drain(&pace(1)).wait(PATIENCE));
    server.edge.shutdown(Duration::ZERO);

    let server = start(Some(ELSEWHERE), 2);
    let mut clients: Vec<_> = (0..10).map(|n| Client::connect(&server, V5, &format!("client-{n}"))).collect();
    let draining = server.edge.drain(&pace(1));
    assert!(!draining.wait(Duration::from_millis(1)));
    let stop = std::thread::spawn(move || server.edge.shutdown(PATIENCE));
    for client in &mut clients {
        client.expect_disconnect(ReasonCode::USE_ANOTHER_SERVER);
    }
    drop(clients);
    stop.join().unwrap();
}
