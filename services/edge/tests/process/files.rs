//! More clients than open files.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

use millrace_edge::Networks;
use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, QoS};
use rlimit::Resource;
use socket2::{Domain, Socket, Type};

use crate::common::{Client, Server, ack, connect, publish_qos};
use crate::tools::{encoded, eventually, metric, now, refused, send_anyway};

const LISTENERS: u64 = 2;
const LOOPS: u64 = 2;
const CLIENTS: usize = 80;
/// Files that the server may open while there are too few.
const LEFT: u64 = 10;

#[test]
fn clients_wait_while_there_are_too_few_files_and_connected_ones_notice_nothing() {
    let _alone = crate::alone();
    let (soft, hard) = Resource::NOFILE.get().unwrap();
    let server = Server::with(|config| {
        config.threads = usize::try_from(LOOPS).unwrap();
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        config.mqtt_listen = vec![loopback; usize::try_from(LISTENERS).unwrap()];
    });
    let mut publisher = Client::connect(&server, V5, "publisher");
    let mut subscriber = Client::connect(&server, V5, "subscriber");
    subscriber.subscribe("t", QoS::AtLeastOnce);

    // Their files are open before there are too few: connecting needs no more.
    let sockets: Vec<_> =
        (0..CLIENTS).map(|_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()).collect();
    // A new file gets the lowest number that is free, so none is free below these.
    let highest = sockets.iter().map(|socket| u64::try_from(socket.as_raw_fd()).unwrap()).max().unwrap();
    Resource::NOFILE.set(highest + 1 + LEFT, hard).unwrap();
    let start = now();
    let mut clients: Vec<Client> = Vec::new();
    for (number, socket) in sockets.into_iter().enumerate() {
        socket.connect(&server.edge.mqtt_addresses()[number % 2].into()).unwrap();
        let mut client = Client::over(socket.into());
        client.send(&Packet::Connect(connect(V5, &format!("client-{number}"))));
        clients.push(client);
    }
    let failed = || metric(&server, "millrace_accepts_failed_total", "");
    let retried = 3 * LISTENERS * LOOPS;
    for number in 0_u16.. {
        publisher.publish(publish_qos(QoS::AtLeastOnce, 1 + number % 1000, "t", b"hi"));
        let received = subscriber.recv_publish();
        subscriber.send(&Packet::PubAck(ack(received.packet_id.unwrap())));
        if failed() >= retried {
            break;
        }
        assert!(start.elapsed().as_secs() < 20, "{} accepts failed", failed());
    }
    let seconds = start.elapsed().as_secs() + 2;
    assert!(failed() <= seconds * LISTENERS * LOOPS, "{} accepts failed in {seconds} s", failed());

    Resource::NOFILE.set(soft, hard).unwrap();
    for client in &mut clients {
        client.recv_connack();
    }
    let connected = || metric(&server, "millrace_clients_connected", "");
    eventually(|| connected() == CLIENTS as u64 + 2, || format!("{} clients", connected()));
}

/// A connection from another address of this machine.
fn from(address: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

#[test]
fn one_address_cannot_use_all_files_of_the_process() {
    const FILES: u64 = 800;
    const FROM_ONE: u64 = FILES / 4 + 50;
    let _alone = crate::alone();
    let (soft, hard) = Resource::NOFILE.get().unwrap();
    Resource::NOFILE.set(FILES, hard).unwrap();
    // The share is that of the files when the server starts; this process has the clients, too.
    let server = Server::with(|config| {
        config.threads = 2;
        config.unlimited_from = Networks(Vec::new());
    });
    Resource::NOFILE.set(soft.max(4 * FILES).min(hard), hard).unwrap();
    let _held: Vec<TcpStream> = (0..FROM_ONE).map(|_| from([127, 0, 0, 2], server.mqtt())).collect();
    let is_so = || refused(&server, "address_connections") == FROM_ONE - FILES / 4;
    eventually(is_so, || format!("{} connections were refused", refused(&server, "address_connections")));
    let mut other = Client::over(from([127, 0, 0, 3], server.mqtt()));
    send_anyway(other.stream(), &encoded(&Packet::Connect(connect(V5, "other")), V5));
    other.recv_connack();
    Resource::NOFILE.set(soft, hard).unwrap();
}

#[test]
fn files_are_left_when_clients_without_a_limit_have_come() {
    const FILES: u64 = 800;
    const RESERVED: u64 = 256;
    const BEYOND: u64 = 20;
    let _alone = crate::alone();
    let (soft, hard) = Resource::NOFILE.get().unwrap();
    Resource::NOFILE.set(FILES, hard).unwrap();
    // Addresses of this machine have no limit of their own by default.
    let server = Server::with(|config| config.threads = 2);
    Resource::NOFILE.set(soft.max(4 * FILES).min(hard), hard).unwrap();
    let mut held: Vec<TcpStream> =
        (0..FILES - RESERVED + BEYOND).map(|_| TcpStream::connect(server.mqtt()).unwrap()).collect();
    let refused = || refused(&server, "open_files");
    eventually(|| refused() == BEYOND, || format!("{} connections were refused", refused()));
    // Connections that end make room.
    held.clear();
    eventually(|| metric(&server, "millrace_connections_open", "") == 0, || "they are gone".to_owned());
    Client::connect(&server, V5, "another").ping();
    Resource::NOFILE.set(soft, hard).unwrap();
}
