//! More clients than open files.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, QoS};
use rlimit::Resource;
use socket2::{Domain, Socket, Type};

use crate::common::{Client, Server, ack, connect, publish_qos};
use crate::tools::{eventually, metric, now};

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
