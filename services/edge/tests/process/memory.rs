//! Memory that clients without authentication take.

use std::net::{SocketAddr, TcpStream};

use crate::common::{Client, Server};
use crate::tools::{eventually, metric, send_anyway};

const STRANGERS: usize = 2_000;
/// Most memory for one, bytes.
const EACH_MAX: usize = 8 * 1024;

/// Memory of this process, bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
}

/// Strangers send these pieces, each read by the server before the next is sent, and wait.
fn check(what: &str, to: impl Fn(&Server) -> SocketAddr, pieces: &[&[u8]]) {
    let _alone = crate::alone();
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let server = Server::with(|config| {
        config.threads = 2;
        config.gateway_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        config.gateway_from = vec!["127.0.0.1/32".parse().unwrap()];
        config.limits.connect_timeout_s = 60;
    });
    let address = to(&server);
    let connected = || TcpStream::connect(address).unwrap();
    let mut clients: Vec<TcpStream> = Vec::with_capacity(STRANGERS + 100);
    let read = || usize::try_from(metric(&server, "millrace_received_bytes_total", "")).unwrap();
    let send = |clients: &[TcpStream], piece: &[u8]| {
        let expected = read() + clients.len() * piece.len();
        for client in clients {
            client.set_nodelay(true).unwrap();
            send_anyway(client, piece);
        }
        eventually(|| read() == expected, || format!("{} bytes read of {expected}", read()));
    };
    // The first connections make the process allocate memory that all share.
    let warm: Vec<TcpStream> = (0..100).map(|_| connected()).collect();
    pieces.iter().for_each(|piece| send(&warm, piece));
    let before = resident();
    clients.extend((0..STRANGERS).map(|_| connected()));
    pieces.iter().for_each(|piece| send(&clients, piece));
    let each = resident().saturating_sub(before) / STRANGERS;
    assert!(each <= EACH_MAX, "{what}: {each} bytes each");
    Client::connect(&server, millrace_mqtt::Version::V5, "bystander").ping();
}

#[test]
fn a_connect_that_announces_much_and_brings_little_costs_little() {
    // One of 200,000 bytes.
    check("CONNECT", Server::mqtt, &[&[0x10, 0xC0], &[0x9A, 0x0C, 0, 4]]);
}

#[test]
fn a_websocket_handshake_that_never_ends_costs_little() {
    check("handshake", Server::ws, &[b"GET /mqtt HT", b"TP/1.1\r\nHost: localhost\r\nX-Long: "]);
}

#[test]
fn a_proxy_header_that_announces_much_and_brings_little_costs_little() {
    check("PROXY", Server::gateway, &[b"\r\n\r\n\0\r\nQU", b"IT\n\x21\x11\x40\x00\xC0\x00"]);
}
