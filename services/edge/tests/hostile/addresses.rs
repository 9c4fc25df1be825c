//! Limits per address: one address cannot keep others out.

use std::net::{IpAddr, SocketAddr, TcpStream};

use millrace_edge::{Config, Networks};
use millrace_mqtt::Packet;
use millrace_mqtt::Version::V5;
use socket2::{Domain, Socket, Type};

use crate::common::{Client, Server, connect};
use crate::tools::{eventually, expect_count, read_to_close, refused, send_anyway};
use crate::ws::request;

/// Connects from a chosen loopback address.
fn connect_from(address: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// A server that limits every address.
fn limited(change: impl FnOnce(&mut Config)) -> Server {
    Server::with(|config| {
        config.threads = 2;
        config.unlimited_from = Networks(Vec::new());
        config.gateway_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        config.gateway_from = vec!["127.0.0.1/32".parse().unwrap()];
        change(config);
    })
}

fn join(stream: TcpStream, id: &str) -> Client {
    let mut client = Client::over(stream);
    client.send(&Packet::Connect(connect(V5, id)));
    client.recv_connack();
    client
}

/// Connects as the gateway does for a client of this address: with a PROXY v2 header first.
fn connect_through_gateway(server: &Server, address: &str) -> TcpStream {
    let stream = TcpStream::connect(server.gateway()).unwrap();
    let (family, mut addresses) = match address.parse().unwrap() {
        IpAddr::V4(v4) => (0x11, [v4.octets(), [10, 0, 0, 1]].concat()),
        IpAddr::V6(v6) => (0x21, [v6.octets(), [0; 16]].concat()),
    };
    addresses.extend([0xD4, 0x31, 0x22, 0xB3]);
    let len = u16::try_from(addresses.len()).unwrap().to_be_bytes();
    send_anyway(&stream, &[&b"\r\n\r\n\0\r\nQUIT\n\x21"[..], &[family], &len, &addresses].concat());
    stream
}

#[test]
fn connections_over_the_limit_of_an_address_are_closed_and_other_addresses_connect() {
    let server = limited(|config| config.limits.connections_per_address_max = 3);
    let mut clients: Vec<Client> = (0..3)
        .map(|number| join(connect_from([127, 0, 0, 2], server.mqtt()), &format!("a-{number}")))
        .collect();
    assert_eq!(read_to_close(&connect_from([127, 0, 0, 2], server.mqtt())), b"");
    assert_eq!(read_to_close(&connect_from([127, 0, 0, 2], server.ws())), b"");
    expect_count(refused, &server, "address_connections", 2);
    join(connect_from([127, 0, 0, 3], server.mqtt()), "other").ping();
    // A client that leaves makes room for another one, even if its connection has moved to another loop.
    clients.pop().unwrap().disconnect();
    let again = || {
        let mut client = Client::over(connect_from([127, 0, 0, 2], server.mqtt()));
        send_anyway(client.stream(), &crate::tools::encoded(&Packet::Connect(connect(V5, "again")), V5));
        client.recv_bytes().is_some()
    };
    eventually(again, || "no room".to_owned());
}

#[test]
fn connections_over_the_rate_of_an_address_are_closed_and_other_addresses_connect() {
    let server = limited(|config| {
        config.limits.connects_per_address_per_second_max = 1;
        config.limits.connects_per_address_burst = 10;
    });
    let address = server.mqtt();
    let streams: Vec<TcpStream> = (0..30).map(|_| connect_from([127, 0, 0, 2], address)).collect();
    join(connect_from([127, 0, 0, 3], address), "other").ping();
    eventually(|| refused(&server, "address_rate") >= 15, || "few are refused".to_owned());
    drop(streams);
}

#[test]
fn behind_the_gateway_the_address_of_the_client_counts() {
    let server = limited(|config| config.limits.connections_per_address_max = 1);
    let same = [("192.0.2.1", "192.0.2.1"), ("2001:db8::1", "2001:db8::ffff")];
    for (number, (first, second)) in same.into_iter().enumerate() {
        let client = join(connect_through_gateway(&server, first), &format!("first-{number}"));
        assert_eq!(read_to_close(&connect_through_gateway(&server, second)), b"", "{second}");
        expect_count(refused, &server, "address_connections", number as u64 + 1);
        drop(client);
    }
    let others = ["192.0.2.2", "192.0.2.3", "2001:db8:0:1::1"];
    let mut clients: Vec<Client> =
        others.iter().map(|address| join(connect_through_gateway(&server, address), address)).collect();
    clients.iter_mut().for_each(Client::ping);
}

#[test]
fn a_page_of_another_host_may_not_open_a_websocket() {
    let server = Server::start();
    let from_page = |origin: &str| {
        let stream = TcpStream::connect(server.ws()).unwrap();
        let head = request("/mqtt", "mqtt").replacen("\r\n", &format!("\r\nOrigin: {origin}\r\n"), 1);
        send_anyway(&stream, head.as_bytes());
        stream
    };
    let answer = read_to_close(&from_page("https://evil.example"));
    assert!(answer.starts_with(b"HTTP/1.1 403 "), "{answer:?}");
    expect_count(refused, &server, "websocket_handshake", 1);
    crate::ws::WebSocket::requested(from_page("http://localhost:8080"));
}
