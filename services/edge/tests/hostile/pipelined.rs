//! Clients that send more before their CONNACK has come, as MQTT 5.0 section 3.1.4 allows.

use millrace_mqtt::Version::V311;
use millrace_mqtt::{Connect, Packet, Properties, QoS, ReasonCode, encode};

use crate::common::*;
use crate::tools::{encoded, half_close, send_anyway};

/// CONNECT with a will, which is stored, SUBSCRIBE and a publish of QoS 1, and what is to follow.
fn opening(last: &Packet<'_>) -> Vec<u8> {
    let connect = Connect { will: Some(will("a/will", b"gone")), ..connect(V311, "early") };
    let mut bytes = encoded(&Packet::Connect(connect), V311);
    encode::subscribe(id(1), Properties::EMPTY, [("a/+", Default::default())], V311, &mut bytes);
    bytes.extend(encoded(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 2, "b", b"early")), V311));
    bytes.extend(encoded(last, V311));
    bytes
}

#[test]
fn packets_behind_the_first_connect_of_an_event_loop_are_carried_out() {
    let bytes = opening(&Packet::PingReq);
    // The client id decides by chance which event loop it goes to, and whether it is handed over.
    for _ in 0..10 {
        let server = Server::with(|config| config.threads = 2);
        let mut early = Client::raw(&server);
        early.version = V311;
        early.send_bytes(&bytes);
        let mut answers: Vec<_> = (0..4).map(|_| early.recv_bytes().unwrap()[0] >> 4).collect();
        // The PUBACK waits for the store, which the PINGRESP need not.
        answers.sort_unstable();
        assert_eq!(answers, [2, 4, 9, 13]);
    }
}

#[test]
fn the_answers_to_a_client_that_has_said_all_are_written_before_its_connection_is_closed() {
    let bytes = opening(&Packet::PingReq);
    let server = Server::with(|config| config.threads = 2);
    for _ in 0..50 {
        let client = Client::raw(&server);
        let mut all = bytes.clone();
        all.extend(encoded(&Packet::Disconnect(disconnect(ReasonCode::SUCCESS)), V311));
        send_anyway(client.stream(), &all);
        let answers = half_close(client.stream());
        // CONNACK, SUBACK and PINGRESP.
        assert!(answers.len() >= 4 + 5 + 2, "{answers:x?}");
    }
}
