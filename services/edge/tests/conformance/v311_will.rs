//! Wills (section 3.1.2.5 of MQTT 3.1.1).

use millrace_mqtt::Version::V311;
use millrace_mqtt::{Connect, QoS, Will};

use crate::common::{Client, Server, connect, will};

fn watcher(server: &Server) -> Client {
    let mut watcher = Client::connect(server, V311, "watcher");
    watcher.subscribe("will/#", QoS::ExactlyOnce);
    watcher
}

/// ann with a will, who keeps her session or not.
fn ann(server: &Server, clean_start: bool) -> Client {
    Client::open(
        server,
        Connect { clean_start, will: Some(will("will/ann", b"gone")), ..connect(V311, "ann") },
    )
}

#[test]
fn a_will_is_published_with_its_qos_when_the_connection_is_lost() {
    //= [MQTT-3.1.2-8] [MQTT-3.1.2-9] v3.1.1
    let server = Server::start();
    let mut watcher = watcher(&server);
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let will = Will { qos, ..will("will/ann", b"\0gone\xFF") };
        let ann = Client::open(&server, Connect { will: Some(will), ..connect(V311, "ann") });
        watcher.expect_nothing();
        ann.cut();
        let publish = watcher.recv_publish();
        assert_eq!((publish.topic, publish.payload, publish.qos), ("will/ann", &b"\0gone\xFF"[..], qos));
    }
}

#[test]
fn a_will_is_published_when_the_server_closes_for_a_protocol_violation_or_a_takeover() {
    //= [MQTT-3.1.2-8] [MQTT-3.1.4-2] v3.1.1
    let server = Server::start();
    let mut watcher = watcher(&server);
    let mut first = ann(&server, true);
    first.send_bytes(&[0x00, 0x00]);
    first.expect_close();
    assert_eq!(watcher.recv_publish().payload, b"gone");
    let mut second = ann(&server, true);
    let third = Client::connect(&server, V311, "ann");
    second.expect_close();
    assert_eq!(watcher.recv_publish().payload, b"gone");
    // The third has none.
    third.cut();
    watcher.expect_nothing();
}

#[test]
fn a_disconnect_discards_the_will() {
    //= [MQTT-3.1.2-10] [MQTT-3.14.4-3] v3.1.1
    let server = Server::start();
    let mut watcher = watcher(&server);
    for clean_start in [true, false] {
        ann(&server, clean_start).disconnect();
        watcher.expect_nothing();
        // Nor does it come when the session continues, or ends.
        Client::open(&server, Connect { clean_start, ..connect(V311, "ann") }).cut();
        Client::connect(&server, V311, "ann").cut();
        watcher.expect_nothing();
    }
}

#[test]
fn a_will_that_was_published_is_gone_from_the_session() {
    //= [MQTT-3.1.2-10] v3.1.1
    let server = Server::start();
    let mut watcher = watcher(&server);
    ann(&server, false).cut();
    assert_eq!(watcher.recv_publish().payload, b"gone");
    let resumed = Client::open(&server, Connect { clean_start: false, ..connect(V311, "ann") });
    assert!(resumed.connack.as_ref().unwrap().session_present);
    resumed.cut();
    Client::connect(&server, V311, "ann").cut();
    watcher.expect_nothing();
}

#[test]
fn no_will_is_published_where_none_was_set() {
    //= [MQTT-3.1.2-12] v3.1.1
    let server = Server::start();
    let mut watcher = Client::connect(&server, V311, "watcher");
    watcher.subscribe("#", QoS::ExactlyOnce);
    for clean_start in [true, false] {
        Client::open(&server, Connect { clean_start, ..connect(V311, "ann") }).cut();
    }
    // A will is of its connection, not of its client.
    Client::open(&server, Connect { clean_start: false, ..connect(V311, "ann") }).cut();
    watcher.expect_nothing();
}

#[test]
fn a_will_is_retained_exactly_when_it_says_so() {
    //= [MQTT-3.1.2-16] [MQTT-3.1.2-17] v3.1.1
    let server = Server::start();
    for retain in [false, true] {
        let mut live = watcher(&server);
        let will = Will { retain, ..will("will/ann", b"gone") };
        Client::open(&server, Connect { will: Some(will), ..connect(V311, "ann") }).cut();
        // An earlier subscriber gets it without RETAIN in any case.
        assert!(!live.recv_publish().retain);
        let mut later = Client::connect(&server, V311, "later");
        later.subscribe("will/#", QoS::AtMostOnce);
        if retain {
            let publish = later.recv_publish();
            assert_eq!((publish.retain, publish.payload), (true, &b"gone"[..]));
        } else {
            later.expect_nothing();
        }
        live.disconnect();
    }
}

#[test]
fn a_will_that_cannot_be_retained_any_more_is_published_all_the_same() {
    //= [MQTT-3.1.2-8] v3.1.1
    let server = Server::with(|config| config.limits.retained_messages_max = 0);
    let mut watcher = watcher(&server);
    let will = Will { retain: true, ..will("will/ann", b"gone") };
    Client::open(&server, Connect { will: Some(will), ..connect(V311, "ann") }).cut();
    assert_eq!(watcher.recv_publish().payload, b"gone");
}
