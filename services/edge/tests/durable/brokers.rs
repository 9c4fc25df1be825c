//! Many brokers in one process: each client reaches the one that its server name says, and nothing of another (P8).

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use millrace_edge::EdgeLimits;
use millrace_layers::{Store, catalog, retained};
use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{
    Connect, Packet, Properties, Property, Publish, QoS, ReasonCode, SubscribeOptions, Will, encode,
};
use millrace_storage::{Database, Read, block_on};

use crate::away::{Far, Mended, Way};
use crate::common::{Client, Server, connect, id, properties, publish_qos, will};
use crate::steps::{BETWEEN, Between, VERSIONS, acknowledge, lasting, leave, take};
use crate::tools::{eventually, metric, now};

/// An edge behind a gateway; these brokers are made if they are not there.
pub(crate) fn start(database: &Database, threads: usize, brokers: &[&str]) -> Server {
    start_with(database, threads, brokers, |_| {})
}

/// The same with other limits.
pub(crate) fn start_with(
    database: &Database,
    threads: usize,
    brokers: &[&str],
    change: impl FnOnce(&mut EdgeLimits),
) -> Server {
    Server::on(database, |config| {
        change(&mut config.limits);
        config.threads = threads;
        config.gateway_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        config.gateway_from = vec!["127.0.0.1/32".parse().unwrap()];
        config.brokers = brokers.iter().map(|name| (*name).into()).collect();
    })
}

/// A connection for which the gateway says that it asked for this server.
pub(crate) fn to(server: &Server, server_name: &str) -> Client {
    let mut client = Client::over(TcpStream::connect(server.gateway()).unwrap());
    let length = u16::try_from(server_name.len()).unwrap().to_be_bytes();
    let addresses = [192, 0, 2, 1, 10, 0, 0, 1, 0xD4, 0x31, 0x22, 0xB3];
    let body = [&addresses[..], &[0x02], &length, server_name.as_bytes()].concat();
    let size = u16::try_from(body.len()).unwrap().to_be_bytes();
    client.send_bytes(&[b"\r\n\r\n\0\r\nQUIT\n\x21\x11", &size[..], &body].concat());
    client
}

pub(crate) fn open(server: &Server, broker: &str, connect: Connect<'_>) -> Client {
    let mut client = to(server, &format!("{broker}.mqtt.example"));
    client.send(&Packet::Connect(connect));
    let connack = client.recv_connack();
    assert_eq!(connack.reason, ReasonCode::SUCCESS, "{broker}: {connack:?}");
    client.connack = Some(connack);
    client
}

fn is_present(client: &Client) -> bool {
    client.connack.as_ref().unwrap().session_present
}

const BROKERS: [&str; 3] = ["acme", "default", "umbrella"];

/// Publishes a text of its own to each broker's clients.
fn say(server: &Server, qos: QoS, retain: bool, topic: &str, what: &str) {
    for broker in BROKERS {
        let mut publisher = open(server, broker, connect(V5, "publisher"));
        let text = format!("{what} of {broker}");
        let message = Publish { retain, ..publish_qos(qos, 1, topic, text.as_bytes()) };
        assert!(!publisher.publish(message).is_error());
        publisher.disconnect();
    }
}

#[test]
fn the_same_names_in_two_brokers_are_different_clients_topics_and_sessions() {
    for between in BETWEEN {
        for version in VERSIONS {
            let database = Database::memory();
            let mut server = start(&database, 2, &BROKERS);
            // The same client id and filters in each, online at once: nobody takes anybody over.
            let filters = ["t", "$share/g/s", "#"];
            let mut clients: HashMap<&str, Client> = BROKERS
                .iter()
                .map(|broker| (*broker, open(&server, broker, lasting(version, "ann"))))
                .collect();
            for client in clients.values_mut() {
                filters.iter().for_each(|filter| client.subscribe(filter, QoS::AtLeastOnce));
            }
            say(&server, QoS::AtLeastOnce, false, "t", "live");
            for (broker, client) in &mut clients {
                let message = take(client);
                assert_eq!(message.payload, format!("live of {broker}").as_bytes(), "{between:?}");
                acknowledge(client, &message);
                client.expect_nothing();
                leave(client, true);
            }
            // While the readers are offline.
            say(&server, QoS::AtLeastOnce, true, "kept", "retained");
            say(&server, QoS::AtLeastOnce, false, "s", "shared");
            if between == Between::Restart {
                drop(server);
                // Nobody says which there are: they are read when somebody comes.
                server = start(&database, 2, &[]);
            }
            for broker in BROKERS {
                let mut client = open(&server, broker, lasting(version, "ann"));
                assert!(is_present(&client), "{broker} {between:?}");
                let mut got: Vec<String> =
                    (0..3).map(|_| String::from_utf8(take(&mut client).payload.to_vec()).unwrap()).collect();
                got.sort();
                // The shared subscription and the one to all topics match the same message.
                let expected = [
                    format!("retained of {broker}"),
                    format!("shared of {broker}"),
                    format!("shared of {broker}"),
                ];
                assert_eq!(got, expected, "{between:?}");
                client.expect_nothing();
                // A broker's retained messages are its own, too.
                let mut reader = open(&server, broker, connect(V5, "reader"));
                reader.subscribe("kept/#", QoS::AtMostOnce);
                assert_eq!(take(&mut reader).payload, format!("retained of {broker}").as_bytes());
                reader.expect_nothing();
            }
        }
    }
}

#[test]
fn a_will_fires_in_its_own_broker_also_when_its_process_died() {
    for between in BETWEEN {
        let database = Database::memory();
        let mut server = start(&database, 1, &BROKERS);
        for broker in BROKERS {
            let mut watcher = open(&server, broker, lasting(V5, "watcher"));
            watcher.subscribe("will/#", QoS::AtLeastOnce);
            watcher.disconnect();
        }
        let will = Will {
            topic: "will/ann",
            payload: b"gone",
            qos: QoS::AtLeastOnce,
            retain: false,
            properties: properties(&[]),
        };
        let ann = open(&server, "acme", Connect { will: Some(will), ..lasting(V5, "ann") });
        if between == Between::Restart {
            drop(server);
            server = start(&database, 1, &[]);
        }
        drop(ann);
        let mut watcher = open(&server, "acme", lasting(V5, "watcher"));
        assert_eq!(take(&mut watcher).payload, b"gone", "{between:?}");
        for other in ["default", "umbrella"] {
            open(&server, other, lasting(V5, "watcher")).expect_nothing();
        }
    }
}

#[test]
fn a_broker_that_is_not_there_refuses_and_one_that_is_made_later_does_not() {
    let database = Database::memory();
    let server = start(&database, 2, &["acme"]);
    for (version, reason) in [(V5, ReasonCode::NOT_AUTHORIZED), (V311, ReasonCode(5))] {
        for name in ["nobody.mqtt.example", "acm.mqtt.example", "acme2.mqtt.example"] {
            let mut client = to(&server, name);
            client.send(&Packet::Connect(connect(version, "ann")));
            assert_eq!(client.recv_connack().reason, reason, "{name}");
            assert!(client.recv_bytes().is_none(), "{name}");
        }
    }
    // Without a name, or with one that says no broker, it is the default one.
    for name in ["", "localhost"] {
        let mut client = to(&server, name);
        client.send(&Packet::Connect(connect(V5, "ann")));
        assert_eq!(client.recv_connack().reason, ReasonCode::SUCCESS, "{name}");
    }
    // Made behind its back, as a control plane does; for a moment it is still believed not to be there.
    let layers = Store::new(database);
    block_on(layers.ensure_broker(b"nobody")).unwrap();
    let answers = || {
        let mut client = to(&server, "nobody.mqtt.example");
        client.send(&Packet::Connect(connect(V5, "ann")));
        client.recv_connack().reason == ReasonCode::SUCCESS
    };
    eventually(answers, || "the new broker is not found".into());
}

#[test]
fn without_a_server_name_the_user_name_says_the_broker() {
    for threads in [1, 3] {
        let server = start(&Database::memory(), threads, &BROKERS);
        let mut readers = BROKERS.map(|broker| {
            let mut reader = open(&server, broker, connect(V5, "reader"));
            reader.subscribe("t", QoS::AtMostOnce);
            (broker, reader)
        });
        let cases = [
            (None, "acme/pump", "acme"),
            (None, "acme/", "acme"),
            (None, "acme/a/b", "acme"),
            (None, "default/pump", "default"),
            (Some("localhost"), "acme/pump", "acme"),
            (Some(""), "umbrella/pump", "umbrella"),
            // Where the server name says it, the user name does not.
            (Some("acme.mqtt.example"), "umbrella/pump", "acme"),
            // A client that names no existing broker means the default one.
            (None, "pump", "default"),
            (None, "/pump", "default"),
            (None, "ACME/pump", "default"),
            (None, "nobody/pump", "default"),
        ];
        for (number, (server_name, user, broker)) in cases.into_iter().enumerate() {
            let mut client = server_name.map_or_else(|| Client::raw(&server), |name| to(&server, name));
            client.version = V5;
            // On different cores.
            let client_id = format!("client {number}");
            client.send(&Packet::Connect(Connect { user_name: Some(user), ..connect(V5, &client_id) }));
            assert_eq!(client.recv_connack().reason, ReasonCode::SUCCESS, "{user}");
            assert!(!client.publish(publish_qos(QoS::AtLeastOnce, 1, "t", user.as_bytes())).is_error());
            for (name, reader) in &mut readers {
                match *name == broker {
                    true => assert_eq!(take(reader).payload, user.as_bytes(), "{name}"),
                    false => reader.expect_nothing(),
                }
            }
        }
    }
}

#[test]
fn what_comes_right_behind_a_connect_waits_for_the_broker_to_be_read() {
    let database = Database::memory();
    drop(start(&database, 2, &["acme"]));
    for round in 0..20 {
        // Each round reads it anew.
        let server = start(&database, 2, &[]);
        let mut clients: Vec<Client> = (0..5).map(|_| to(&server, "acme.mqtt.example")).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let name = format!("client {number}");
            client.version = V5;
            client.send(&Packet::Connect(connect(V5, &name)));
            let message = publish_qos(QoS::AtLeastOnce, 7, "t", b"at once");
            client.send(&Packet::Publish(message));
            client.send(&Packet::PingReq);
        }
        for client in &mut clients {
            assert_eq!(client.recv_connack().reason, ReasonCode::SUCCESS, "round {round}");
            assert!(matches!(client.recv(), Packet::PubAck(ack) if ack.packet_id == id(7)));
            assert!(matches!(client.recv(), Packet::PingResp));
        }
    }
}

#[test]
fn a_subscribe_that_is_written_in_parts_is_answered_whole_beside_publishers_of_another_broker() {
    const FILTERS: usize = 450;
    let database = Database::memory();
    let server = start(&database, 1, &["acme", "umbrella"]);
    let mut away = open(&server, "umbrella", lasting(V5, "away"));
    away.subscribe("kept", QoS::AtLeastOnce);
    away.disconnect();
    let mut publisher = open(&server, "umbrella", connect(V5, "publisher"));
    let mut many = open(&server, "acme", lasting(V5, "many"));
    let filters: Vec<String> = (0..FILTERS).map(|number| format!("a/{number}/+")).collect();
    let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..Default::default() };
    let mut bytes = Vec::new();
    let wanted = filters.iter().map(|filter| (&**filter, options));
    encode::subscribe(id(1), Properties::EMPTY, wanted, V5, &mut bytes);
    many.send_bytes(&bytes);
    let mut number = 0;
    let mut publish_some = || {
        for _ in 0..20 {
            number += 1;
            let text = format!("{number}");
            let reason = publisher.publish(publish_qos(QoS::AtLeastOnce, number, "kept", text.as_bytes()));
            assert!(!reason.is_error(), "{reason}");
        }
    };
    publish_some();
    assert_eq!(many.recv_suback().reasons, vec![1; FILTERS]);
    many.disconnect();
    let mut writer = open(&server, "acme", connect(V5, "writer"));
    for (packet_id, filter) in [(1, 0), (2, FILTERS / 2), (3, FILTERS - 1)] {
        let topic = format!("a/{filter}/x");
        assert_eq!(
            writer.publish(publish_qos(QoS::AtLeastOnce, packet_id, &topic, b"x")),
            ReasonCode::SUCCESS,
            "{topic} is kept"
        );
    }
    // UNSUBSCRIBE has parts, too.
    let mut many = open(&server, "acme", lasting(V5, "many"));
    assert!(is_present(&many));
    for _ in 0..3 {
        let message = take(&mut many);
        acknowledge(&mut many, &message);
    }
    let filters: Vec<&str> = filters.iter().map(|filter| &**filter).collect();
    bytes.clear();
    encode::unsubscribe(id(2), Properties::EMPTY, filters.iter().copied(), V5, &mut bytes);
    many.send_bytes(&bytes);
    publish_some();
    assert_eq!(many.recv_unsuback().reasons, vec![0; FILTERS]);
    for filter in [0, FILTERS - 1] {
        let topic = format!("a/{filter}/x");
        assert_eq!(
            writer.publish(publish_qos(QoS::AtLeastOnce, 9, &topic, b"x")),
            ReasonCode::NO_MATCHING_SUBSCRIBERS,
            "{topic} is kept for nobody"
        );
    }
}

#[test]
fn a_broker_that_takes_long_to_open_delays_neither_others_nor_the_writer() {
    const WAITING: usize = 6;
    let far = Far::new();
    let server = start(&far.database(), 2, &BROKERS);
    // Its session ends, and its will is published, a second after it has gone.
    let soon = properties(&[Property::SessionExpiryInterval(1)]);
    let device = Connect {
        will: Some(will("wills", b"gone")),
        clean_start: false,
        properties: soon,
        ..connect(V5, "slow device")
    };
    let mut device = open(&server, "acme", device);
    device.subscribe("slow", QoS::AtLeastOnce);
    device.cut();
    eventually(|| metric(&server, "millrace_connections_open", "") == 0, || "it is connected".into());
    server.edge.shutdown(Duration::from_secs(5));

    let server = start(&far.database(), 2, &["default"]);
    let _mended = Mended(far.clone());
    // The list of the filters of acme is not read beyond this one.
    far.set(Way::Slow);
    let mut of_acme: Vec<Client> = (0..WAITING)
        .map(|number| {
            let mut client = to(&server, "acme.mqtt.example");
            client.send(&Packet::Connect(connect(V5, &format!("c{number}"))));
            client
        })
        .collect();
    eventually(|| far.slow_reads() > 0, || "acme is not read".into());
    let mut other = open(&server, "umbrella", lasting(V5, "ann"));
    other.subscribe("t", QoS::AtLeastOnce);
    // Long enough for what is due at acme to come up several times.
    let until = now() + Duration::from_secs(2);
    let mut packet_id = 0;
    while now() < until {
        packet_id += 1;
        let message = publish_qos(QoS::AtLeastOnce, packet_id, "t", b"text");
        assert!(!open(&server, "umbrella", connect(V5, "publisher")).publish(message).is_error());
        let message = take(&mut other);
        acknowledge(&mut other, &message);
    }
    far.set(Way::Fine);
    for client in &mut of_acme {
        assert_eq!(client.recv_connack().reason, ReasonCode::SUCCESS);
    }
}

#[test]
fn a_broker_that_cannot_be_read_does_not_stop_the_wills_of_others() {
    /// So that each shard of what is due has some of the broker that cannot be read.
    const DEVICES: usize = 100;
    let database = Database::memory();
    let server = start(&database, 2, &BROKERS);
    let soon = || properties(&[Property::SessionExpiryInterval(60)]);
    let delayed = |payload| {
        let delay = properties(&[Property::WillDelayInterval(2)]);
        Some(Will { properties: delay, ..will("wills", payload) })
    };
    let mut devices = Vec::new();
    for number in 0..DEVICES {
        let name = format!("device {number}");
        let device = Connect { will: delayed(b"lost"), properties: soon(), ..connect(V5, &name) };
        devices.push(open(&server, "acme", device));
    }
    let device = Connect { will: delayed(b"gone"), properties: soon(), ..connect(V5, "device") };
    devices.push(open(&server, "umbrella", device));
    devices.into_iter().for_each(Client::cut);
    eventually(|| metric(&server, "millrace_connections_open", "") == 0, || "they are connected".into());
    server.edge.shutdown(Duration::from_secs(5));

    // A retained message that nobody can decode.
    let layers = Store::new(database.clone());
    let damaged = layers.run(async |tx| {
        let acme = catalog::get(&tx, b"acme", Read::Serializable).await?.expect("a broker");
        retained::set(&tx, acme.id, b"t", &Bytes::from_static(b"\xFF")).await
    });
    block_on(damaged).expect("a row");
    let server = start(&database, 2, &["default"]);
    let mut reader = open(&server, "umbrella", connect(V5, "reader"));
    reader.subscribe("wills", QoS::AtLeastOnce);
    assert_eq!(take(&mut reader).payload, b"gone");
}
