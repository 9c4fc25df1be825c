//! The keep alive of MQTT is renewed by packets, not by other signs of life.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Packet, ReasonCode};

use crate::common::{Client, Server, connect, publish};
use crate::tools::{a_moment, encoded, ended, expect_count, now, send_anyway};
use crate::ws::{FIN, PING, WebSocket, frame_of};

fn alive_for_a_second(id: &str) -> Packet<'_> {
    Packet::Connect(Connect { keep_alive_s: 1, ..connect(V5, id) })
}

/// Sends a sign of life every 0.1 s, which is less than the keep alive, while `wait` waits for the end of the connection.
fn while_it_sends(mut sign: impl FnMut() + Send, wait: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = now();
            while !over.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(8) {
                sign();
                for _ in 0..50 {
                    a_moment();
                }
            }
        });
        wait();
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
//= [MQTT-3.1.2-22] v5
fn pings_of_the_websocket_do_not_renew_it() {
    let server = Server::start();
    let mut client = WebSocket::open(&server);
    client.send(&alive_for_a_second("pings"));
    assert!(matches!(client.recv(), Packet::ConnAck(connack) if !connack.reason.is_error()));
    let stream = client.stream.try_clone().unwrap();
    let ping = frame_of(FIN | PING, b"");
    while_it_sends(
        || send_anyway(&stream, &ping),
        || {
            expect_count(ended, &server, "keep_alive", 1);
        },
    );
}

#[test]
//= [MQTT-3.1.2-22] v5
fn a_trickle_of_bytes_of_one_packet_does_not_renew_it() {
    let server = Server::start();
    let mut client = Client::raw(&server);
    client.send(&alive_for_a_second("trickle"));
    client.recv_connack();
    let packet = encoded(&Packet::Publish(publish("t", &[0; 10_000])), V5);
    let stream = client.stream().try_clone().unwrap();
    let mut bytes = packet.chunks(1);
    while_it_sends(
        || send_anyway(&stream, bytes.next().unwrap()),
        || {
            client.expect_disconnect(ReasonCode::KEEP_ALIVE_TIMEOUT);
        },
    );
}

#[test]
fn a_large_packet_on_its_way_over_a_slow_network_renews_it() {
    let server = Server::start();
    let mut client = Client::raw(&server);
    client.send(&alive_for_a_second("slow"));
    client.recv_connack();
    let packet = encoded(&Packet::Publish(publish("t", &[0; 50_000])), V5);
    for piece in packet.chunks(1_500) {
        client.send_bytes(piece);
        for _ in 0..50 {
            a_moment();
        }
    }
    client.ping();
}
