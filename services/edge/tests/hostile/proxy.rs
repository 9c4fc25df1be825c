//! PROXY protocol v2 on the gateway's listener: believed from those who may say it, and nobody gets in without.

use std::net::{SocketAddr, TcpStream};

use millrace_mqtt::Packet;
use millrace_mqtt::Version::{V5, V311};
use socket2::{Domain, Socket, Type};

use crate::common::{Client, Server, connect};
use crate::tools::{Pair, encoded, expect_count, half_close, read_to_close, refused, send_anyway};
use crate::ws::{BINARY, FIN, WebSocket, frame_of, request};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const ADDRESSES: &[u8] = &[192, 0, 2, 1, 10, 0, 0, 1, 0xD4, 0x31, 0x22, 0xB3];

fn header(version_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[version_command, family], &len, body].concat()
}

/// A header as the gateway sends it: addresses and a server name.
fn good() -> Vec<u8> {
    header(0x21, 0x11, &[ADDRESSES, &[0x02, 0, 2], b"b1"].concat())
}

/// A server whose gateway is at 127.0.0.1.
fn behind_a_gateway(threads: usize) -> Server {
    Server::with(|config| {
        config.threads = threads;
        config.gateway_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        config.gateway_from = vec!["127.0.0.1/32".parse().unwrap()];
    })
}

/// A connection from the gateway with nothing sent yet.
fn from_gateway(server: &Server) -> Client {
    Client::over(TcpStream::connect(server.gateway()).unwrap())
}

/// A connection from 127.0.0.2.
fn stranger(to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

#[test]
fn mqtt_follows_the_header() {
    let server = behind_a_gateway(2);
    for (number, version) in [V5, V311, V5, V311].into_iter().enumerate() {
        let mut client = from_gateway(&server);
        client.send_bytes(&good());
        client.send(&Packet::Connect(connect(version, &format!("client-{number}"))));
        client.recv_connack();
        client.ping();
        // A health check of the gateway speaks for itself.
        let mut client = from_gateway(&server);
        client.send_bytes(&header(0x20, 0, b""));
        client.send(&Packet::Connect(connect(version, &format!("local-{number}"))));
        client.recv_connack();
        client.ping();
    }
}

#[test]
fn a_websocket_follows_the_header() {
    let server = behind_a_gateway(2);
    for number in 0..4 {
        let stream = TcpStream::connect(server.gateway()).unwrap();
        let connect = encoded(&Packet::Connect(connect(V5, &format!("client-{number}"))), V5);
        let frame = frame_of(FIN | BINARY, &connect);
        let bytes = [&good()[..], request("/mqtt", "mqtt").as_bytes(), &frame].concat();
        if number % 2 == 0 {
            send_anyway(&stream, &bytes);
        } else {
            stream.set_nodelay(true).unwrap();
            bytes.chunks(1).for_each(|byte| send_anyway(&stream, byte));
        }
        let mut client = WebSocket::requested(stream);
        assert!(matches!(client.recv(), Packet::ConnAck(connack) if !connack.reason.is_error()));
    }
}

#[test]
fn a_header_may_be_cut_at_every_byte() {
    let server = behind_a_gateway(2);
    let bytes = [good(), encoded(&Packet::Connect(connect(V5, "cut")), V5)].concat();
    for cut in 1..bytes.len() {
        let mut client = from_gateway(&server);
        client.send_bytes(&bytes[..cut]);
        client.send_bytes(&bytes[cut..]);
        client.recv_connack();
    }
    let mut client = from_gateway(&server);
    bytes.chunks(1).for_each(|byte| client.send_bytes(byte));
    client.recv_connack();
    client.ping();
}

#[test]
fn a_peer_that_is_not_the_gateway_is_refused_whatever_it_says() {
    let server = behind_a_gateway(1);
    assert_eq!(read_to_close(&stranger(server.gateway())), b"");
    let peer = stranger(server.gateway());
    send_anyway(&peer, &good());
    assert_eq!(read_to_close(&peer), b"");
    expect_count(refused, &server, "proxy_header", 2);
}

#[test]
fn a_connection_without_a_header_that_can_be_believed_is_refused() {
    let server = behind_a_gateway(1);
    let bad = [
        encoded(&Packet::Connect(connect(V5, "ann")), V5),
        request("/mqtt", "mqtt").into_bytes(),
        b"PROXY TCP4 192.0.2.1 10.0.0.1 54321 8883\r\n".to_vec(),
        header(0x31, 0x11, ADDRESSES),
        header(0x22, 0x11, ADDRESSES),
        header(0x21, 0x11, &ADDRESSES[..11]),
        header(0x21, 0x11, &[ADDRESSES, &[2, 0, 9]].concat()),
        header(0x21, 0x11, &[0; 20_000]),
        b"\r\n\r\n\0\r\nQUIT ".to_vec(),
    ];
    let count = bad.len() as u64;
    for bytes in bad {
        let peer = TcpStream::connect(server.gateway()).unwrap();
        send_anyway(&peer, &bytes);
        assert_eq!(read_to_close(&peer), b"", "{bytes:x?}");
    }
    expect_count(refused, &server, "proxy_header", count);
}

#[test]
fn a_header_that_is_cut_off_is_counted() {
    let server = behind_a_gateway(1);
    let bytes = good();
    let cuts = [0, 1, 12, 16, bytes.len() - 1, bytes.len()];
    for cut in cuts {
        let peer = TcpStream::connect(server.gateway()).unwrap();
        send_anyway(&peer, &bytes[..cut]);
        assert_eq!(half_close(&peer), b"");
    }
    expect_count(refused, &server, "closed_by_peer", cuts.len() as u64);
}

#[test]
fn a_second_header_is_no_mqtt() {
    let server = behind_a_gateway(1);
    let peer = TcpStream::connect(server.gateway()).unwrap();
    send_anyway(&peer, &[good(), good()].concat());
    assert_eq!(read_to_close(&peer), b"");
    expect_count(refused, &server, "first_packet", 1);
}

#[test]
fn a_header_where_none_is_expected_is_no_mqtt() {
    let server = behind_a_gateway(1);
    let pair = Pair::start(&server);
    let peer = TcpStream::connect(server.mqtt()).unwrap();
    send_anyway(&peer, &good());
    assert_eq!(read_to_close(&peer), b"");
    expect_count(refused, &server, "first_packet", 1);
    let peer = TcpStream::connect(server.ws()).unwrap();
    send_anyway(&peer, &good());
    let answer = read_to_close(&peer);
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{answer:?}");
    expect_count(refused, &server, "websocket_handshake", 1);
    pair.finish();
}
