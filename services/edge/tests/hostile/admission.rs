//! More CONNECTs than the rate or a quota allows: some wait, the others are refused as their version says, and each is counted.

use std::net::Shutdown;

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Packet, QoS, ReasonCode};

use crate::common::{Client, Server, connect, publish_qos};
use crate::tools::{eventually, expect_count, metric, refused};

/// CONNECTs refused for this reason.
fn connects_refused(server: &Server, reason: &str) -> u64 {
    metric(server, "millrace_connects_refused_total", &format!("reason=\"{reason}\""))
}

/// An edge that lets one client in a second, after the first ones; none waits, and refusals come within so long.
fn narrow(burst: u32, waiting: u32, spread_ms: u16) -> Server {
    Server::with(|config| {
        config.limits.connects_per_second_max = 1;
        config.limits.connects_burst = burst;
        config.limits.connects_waiting_max = waiting;
        config.limits.refusal_spread_ms = spread_ms;
    })
}

#[test]
fn clients_over_the_rate_are_told_so_and_counted() {
    //= [MQTT-3.2.2-7] [MQTT-3.2.2-8] [MQTT-3.1.4-6] v5
    //= [MQTT-3.2.2-5] v3.1.1
    const COUNT: u64 = 40;
    let cases = [(V5, ReasonCode::CONNECTION_RATE_EXCEEDED), (V311, ReasonCode(3))];
    for (version, expected) in cases {
        // With room to delay half of the refusals, and without.
        for (waiting, spread_ms) in [(0, 0), (1, 200)] {
            let server = narrow(10, waiting, spread_ms);
            let mut clients: Vec<Client> = (0..COUNT).map(|_| Client::raw(&server)).collect();
            for (number, client) in clients.iter_mut().enumerate() {
                client.send(&Packet::Connect(connect(version, &format!("client-{number}"))));
                // Nothing behind it is looked at.
                client.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 7, "t", b"")));
            }
            let mut told = 0;
            for client in &mut clients {
                let connack = client.recv_connack();
                if connack.reason != ReasonCode::SUCCESS {
                    assert_eq!((connack.reason, connack.session_present), (expected, false));
                    client.expect_close();
                    told += 1;
                }
            }
            // On a slow machine more are admitted.
            assert!(told > 0 && told <= COUNT - 10, "{told}");
            expect_count(connects_refused, &server, "rate", told);
            assert_eq!(metric(&server, "millrace_connects_total", ""), COUNT - told);
        }
    }
}

#[test]
fn a_client_that_waits_comes_in_with_all_that_it_has_sent() {
    let server = narrow(1, 100, 0);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::raw(&server)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&Packet::Connect(connect(V5, &format!("client-{number}"))));
        client.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 7, "t", b"")));
        client.send(&Packet::PingReq);
    }
    for client in &mut clients {
        assert_eq!(client.recv_connack().reason, ReasonCode::SUCCESS);
        assert!(matches!(client.recv(), Packet::PubAck(_)));
        assert_eq!(client.recv(), Packet::PingResp);
        // And with what it sends now.
        client.ping();
    }
    let waited = metric(&server, "millrace_connects_waited_total", "");
    assert!((1..=3).contains(&waited), "{waited}");
}

#[test]
fn clients_that_have_left_while_they_waited_take_no_turn() {
    const LEAVE: u64 = 50;
    let server = narrow(1, 1000, 0);
    Client::connect(&server, V5, "first").disconnect();
    for number in 0..LEAVE {
        let mut client = Client::raw(&server);
        client.send(&Packet::Connect(connect(V5, &format!("leaves-{number}"))));
        client.stream().shutdown(Shutdown::Both).unwrap();
    }
    // With a turn for each of them it would be in after most of a minute.
    Client::connect(&server, V5, "stays").ping();
    let gone = || refused(&server, "closed_by_peer");
    // On a slow machine some were admitted before they left.
    eventually(|| gone() > LEAVE / 2, || format!("{} of {LEAVE} have left", gone()));
}

#[test]
fn a_broker_with_as_many_connections_as_it_may_have_refuses_more() {
    //= [MQTT-3.2.2-7] [MQTT-3.2.2-8] v5
    let server = Server::with(|config| {
        config.limits.connections_per_broker_max = 2;
        config.limits.refusal_spread_ms = 20;
    });
    let _ann = Client::connect(&server, V5, "ann");
    let mut bob = Client::connect(&server, V5, "bob");
    for (version, expected) in [(V5, ReasonCode::QUOTA_EXCEEDED), (V311, ReasonCode(3))] {
        assert_eq!(Client::refused(&server, connect(version, "carl")).reason, expected);
    }
    expect_count(connects_refused, &server, "connections_quota", 2);
    // A client that takes over a connection adds none.
    let again = Client::connect(&server, V5, "bob");
    bob.expect_disconnect(ReasonCode::SESSION_TAKEN_OVER);
    again.disconnect();
    eventually(|| metric(&server, "millrace_clients_connected", "") == 1, || "bob has gone".into());
    Client::connect(&server, V5, "carl").ping();
}
