//! Wills (sections 3.1.2.5 to 3.1.3.4 of MQTT 5.0).

use std::time::Duration;

use millrace_mqtt::Version::V5;
use millrace_mqtt::{
    Connect, Disconnect, Packet, Properties, Property, QoS, ReasonCode, SubscribeOptions, Will,
};

use crate::clock::{Stopwatch, pass};
use crate::common::{Client, Server, connect, disconnect, list, properties, publish, will};

/// A client that receives every will.
fn watcher(server: &Server) -> Client {
    let mut watcher = Client::connect(server, V5, "watcher");
    watcher.subscribe("will/#", QoS::ExactlyOnce);
    watcher
}

/// ann with a will that is delayed, and a session that outlives the connection.
fn delayed(delay_s: u32, expiry_s: u32, clean_start: bool) -> Connect<'static> {
    let delay = properties(&[Property::WillDelayInterval(delay_s)]);
    Connect {
        clean_start,
        properties: properties(&[Property::SessionExpiryInterval(expiry_s)]),
        will: Some(Will { properties: delay, ..will("will/ann", b"gone") }),
        ..connect(V5, "ann")
    }
}

#[test]
fn a_will_is_published_when_the_connection_is_lost() {
    //= [MQTT-3.1.2-7] [MQTT-3.1.2-8] [MQTT-3.1.2-9] v5
    let server = Server::start();
    let mut watcher = watcher(&server);
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let will = Will { qos, ..will("will/ann", b"gone") };
        let ann = Client::open(&server, Connect { will: Some(will), ..connect(V5, "ann") });
        watcher.expect_nothing();
        ann.cut();
        let publish = watcher.recv_publish();
        assert_eq!((publish.topic, publish.payload, publish.qos), ("will/ann", &b"gone"[..], qos));
    }
}

#[test]
fn a_will_is_published_when_the_server_closes_for_an_error() {
    //= [MQTT-3.1.2-8] v5
    let server = Server::start();
    let mut watcher = watcher(&server);
    let mut ann =
        Client::open(&server, Connect { will: Some(will("will/ann", b"gone")), ..connect(V5, "ann") });
    ann.send_bytes(&[0x00, 0x00]);
    ann.expect_disconnect(ReasonCode::MALFORMED_PACKET);
    assert_eq!(watcher.recv_publish().payload, b"gone");
}

#[test]
fn no_local_keeps_a_clients_own_will_from_its_session() {
    //= [MQTT-3.8.3-3] v5
    let server = Server::start();
    let mut watcher = watcher(&server);
    let with_will = |qos| {
        let delayed = delayed(0, 3600, false);
        Connect { will: delayed.will.map(|will| Will { qos, ..will }), ..delayed }
    };
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut ann = Client::open(&server, with_will(qos));
        let no_local = SubscribeOptions { no_local: true, qos, ..SubscribeOptions::default() };
        ann.subscribe_all(&[("will/#", no_local)], Properties::EMPTY);
        // Its will is published when another connection takes the session over.
        let mut ann = Client::open(&server, Connect { will: None, ..with_will(qos) });
        assert!(ann.connack.as_ref().unwrap().session_present);
        assert_eq!(watcher.recv_publish().payload, b"gone");
        ann.expect_nothing();
        Client::connect(&server, V5, "bob").publish(publish("will/bob", b"bob's"));
        assert_eq!(ann.recv_publish().payload, b"bob's");
        assert_eq!(watcher.recv_publish().payload, b"bob's");
        ann.disconnect();
    }
}

#[test]
fn only_a_normal_disconnection_discards_the_will() {
    //= [MQTT-3.1.2-8] [MQTT-3.1.2-10] [MQTT-3.14.4-3] v5
    let server = Server::start();
    let mut watcher = watcher(&server);
    let reasons = [
        ReasonCode::DISCONNECT_WITH_WILL,
        ReasonCode::UNSPECIFIED_ERROR,
        ReasonCode::PROTOCOL_ERROR,
        ReasonCode::QUOTA_EXCEEDED,
    ];
    let with_will = || Connect { will: Some(will("will/ann", b"gone")), ..connect(V5, "ann") };
    for reason in reasons {
        Client::open(&server, with_will()).disconnect_with(disconnect(reason));
        assert_eq!(watcher.recv_publish().payload, b"gone", "{reason}");
    }
    Client::open(&server, with_will()).disconnect();
    watcher.expect_nothing();
    // Nor is it published when the session that had it ends.
    let ann = Client::open(&server, delayed(0, 60, true));
    ann.disconnect();
    Client::connect(&server, V5, "ann").cut();
    watcher.expect_nothing();
}

#[test]
fn a_will_that_was_published_is_gone() {
    //= [MQTT-3.1.2-10] v5
    let server = Server::start();
    let mut watcher = watcher(&server);
    Client::open(&server, delayed(0, 60, true)).cut();
    assert_eq!(watcher.recv_publish().payload, b"gone");
    // The session continues without the will: nothing is published when its next connection ends, or the session.
    let resumed = Connect { will: None, ..delayed(0, 60, false) };
    let ann = Client::open(&server, resumed);
    assert!(ann.connack.as_ref().unwrap().session_present);
    ann.cut();
    Client::connect(&server, V5, "ann").cut();
    watcher.expect_nothing();
}

#[test]
fn a_will_without_retain_is_not_retained() {
    //= [MQTT-3.1.2-14] v5
    let server = Server::start();
    let mut live = watcher(&server);
    Client::open(&server, Connect { will: Some(will("will/ann", b"gone")), ..connect(V5, "ann") }).cut();
    assert!(!live.recv_publish().retain);
    let mut later = Client::connect(&server, V5, "later");
    later.subscribe("will/#", QoS::AtMostOnce);
    later.expect_nothing();
}

#[test]
fn a_will_with_retain_is_retained() {
    //= [MQTT-3.1.2-15] v5
    let server = Server::start();
    let will = Will { retain: true, ..will("will/ann", b"gone") };
    Client::open(&server, Connect { will: Some(will), ..connect(V5, "ann") }).cut();
    let mut later = Client::connect(&server, V5, "later");
    later.subscribe("will/#", QoS::AtMostOnce);
    let publish = later.recv_publish();
    assert_eq!((publish.retain, publish.payload), (true, &b"gone"[..]));
}

#[test]
fn the_properties_of_a_will_are_published_in_their_order() {
    //= [MQTT-3.1.3-10] [MQTT-3.1.2-9] v5
    let server = Server::start();
    let mut watcher = watcher(&server);
    let sent = [
        Property::PayloadFormatIndicator(1),
        Property::ContentType("text/plain"),
        Property::ResponseTopic("answers"),
        Property::CorrelationData(b"\0\xFF"),
        Property::UserProperty("b", "1"),
        Property::UserProperty("a", "2"),
        Property::UserProperty("b", "1"),
        Property::UserProperty("b", "0"),
    ];
    let will = Will { properties: properties(&sent), ..will("will/ann", b"gone") };
    Client::open(&server, Connect { will: Some(will), ..connect(V5, "ann") }).cut();
    assert_eq!(list(watcher.recv_publish().properties), sent);
}

#[test]
fn a_delayed_will_is_published_when_its_delay_has_passed_and_not_before() {
    //= [MQTT-3.1.2-8] v5
    let server = Server::start();
    let mut watcher = watcher(&server);
    let mut waiting = Vec::new();
    // At different times within a second, which is how finely the server keeps time.
    for (id, quiet_ms) in [("will/0", 1), ("will/1", 400), ("will/2", 400)] {
        let will = Will { topic: id, ..delayed(1, 60, true).will.unwrap() };
        let client =
            Client::open(&server, Connect { client_id: id, will: Some(will), ..delayed(1, 60, true) });
        watcher.expect_silence(Duration::from_millis(quiet_ms));
        waiting.push(Stopwatch::start());
        client.cut();
    }
    for _ in 0..3 {
        let will = watcher.recv_publish();
        let delay = waiting[will.topic["will/".len()..].parse::<usize>().unwrap()].elapsed();
        assert!((Duration::from_secs(1)..Duration::from_secs(3)).contains(&delay), "{delay:?}");
    }
}

#[test]
fn a_delayed_will_is_published_when_the_session_ends_before() {
    //= [MQTT-3.1.2-8] v5
    let server = Server::start();
    let mut watcher = watcher(&server);
    // Because it expires,
    Client::open(&server, delayed(600, 0, true)).cut();
    assert_eq!(watcher.recv_publish().payload, b"gone");
    Client::open(&server, delayed(600, 1, true)).cut();
    watcher.expect_nothing();
    assert_eq!(watcher.recv_publish().payload, b"gone");
    // or because of a clean start.
    Client::open(&server, delayed(600, 60, true)).cut();
    watcher.expect_nothing();
    let _ann = Client::connect(&server, V5, "ann");
    assert_eq!(watcher.recv_publish().payload, b"gone");
}

#[test]
fn a_connection_before_the_delay_has_passed_prevents_the_will() {
    //= [MQTT-3.1.3-9] [MQTT-3.1.2-8] v5
    let server = Server::start();
    let mut watcher = watcher(&server);
    let as_bob = |connect: Connect<'static>| Connect { client_id: "bob", ..connect };
    Client::open(&server, delayed(1, 60, true)).cut();
    let again = Client::open(&server, Connect { will: None, ..delayed(0, 60, false) });
    assert!(again.connack.as_ref().unwrap().session_present);
    // A takeover is such a connection, too.
    let mut taken_over = Client::open(&server, as_bob(delayed(1, 60, true)));
    let _again = Client::open(&server, as_bob(Connect { will: None, ..delayed(0, 60, false) }));
    taken_over.expect_disconnect(ReasonCode::SESSION_TAKEN_OVER);
    pass(&server, 1);
    watcher.expect_nothing();
}

#[test]
fn a_disconnect_may_shorten_the_session_that_a_will_waits_for() {
    //= [MQTT-3.1.2-8] v5
    let server = Server::start();
    let mut watcher = watcher(&server);
    let mut ann = Client::open(&server, delayed(600, 60, true));
    let now = properties(&[Property::SessionExpiryInterval(0)]);
    ann.send(&Packet::Disconnect(Disconnect { reason: ReasonCode::DISCONNECT_WITH_WILL, properties: now }));
    ann.expect_close();
    assert_eq!(watcher.recv_publish().payload, b"gone");
}
