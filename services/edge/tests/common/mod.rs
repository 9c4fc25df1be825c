//! A real edge on loopback and a blocking client that speaks raw MQTT to it.
//!
//! ```ignore
//! let server = Server::start();
//! let mut ann = Client::connect(&server, Version::V5, "ann");
//! ann.subscribe("a/+", QoS::AtLeastOnce);
//! ann.send(&Packet::Publish(publish("a/b", b"hi")));
//! assert_eq!(ann.recv_publish().payload, b"hi");
//! ```
//!
//! Packets are the structs of `millrace_mqtt`, so their fields are the options:
//! `Connect { keep_alive_s: 1, ..connect(Version::V5, "ann") }`. Nothing sleeps: every wait is for a packet or for the
//! close, and one that takes five seconds is a failure. Received packets are leaked, so that a test can keep and compare
//! them although the buffer changes.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper that cannot continue is a failed test")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use millrace_edge::{Config, Edge};
use millrace_mqtt::{
    Ack, ConnAck, Connect, Disconnect, Packet, PacketId, PacketType, Properties, Property, Publish, QoS,
    ReasonCode, SubAck, SubscribeOptions, UnsubAck, Version, Will, encode,
};
use millrace_storage::Database;

/// Whether this is a test target on a store. `conformance_stored` and `hostile_stored` are links: what a client can see is the
/// same with sessions in memory and in a store.
pub(crate) const STORED: bool =
    matches!(env!("CARGO_CRATE_NAME").as_bytes(), [.., b'_', b's', b't', b'o', b'r', b'e', b'd']);

/// How long a packet or a close may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running edge. It ends with the test.
pub(crate) struct Server {
    pub(crate) edge: Edge,
}

impl Server {
    /// An edge with one event loop. So what one client's acknowledgement (or PINGRESP) follows has happened for every
    /// client, which [`Client::expect_nothing`] relies on.
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    /// The same with another configuration.
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        if STORED {
            return Self::on(&Database::memory(), change);
        }
        let started = millrace_edge::start(Self::config(change));
        Self { edge: started.unwrap_or_else(|error| panic!("no edge: {error}")) }
    }

    /// The same on a store.
    pub(crate) fn on(database: &Database, change: impl FnOnce(&mut Config)) -> Self {
        let started = millrace_edge::start_on(Self::config(change), database.clone());
        Self { edge: started.unwrap_or_else(|error| panic!("no edge: {error}")) }
    }

    fn config(change: impl FnOnce(&mut Config)) -> Config {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = Config {
            mqtt_listen: vec![loopback],
            ws_listen: vec![loopback],
            threads: 1,
            ..Config::default()
        };
        // Clients are on several loops, as those of a large broker: tests of that need no hundreds of clients.
        config.limits.home_clients_max = 0;
        change(&mut config);
        config
    }

    /// Where it listens for MQTT over TCP.
    pub(crate) fn mqtt(&self) -> SocketAddr {
        self.edge.mqtt_addresses()[0]
    }

    /// Where it listens for the gateway.
    pub(crate) fn gateway(&self) -> SocketAddr {
        self.edge.gateway_addresses()[0]
    }

    /// Where it listens for MQTT over WebSocket.
    pub(crate) fn ws(&self) -> SocketAddr {
        self.edge.ws_addresses()[0]
    }
}

/// A connection on which the test decides every byte.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    /// The version in which packets are encoded and decoded; sending a CONNECT sets it.
    pub(crate) version: Version,
    /// The CONNACK, when the connection was opened with [`Client::connect`] or [`Client::open`].
    pub(crate) connack: Option<ConnAck<'static>>,
}

impl Client {
    /// A connection with nothing sent yet.
    pub(crate) fn raw(server: &Server) -> Self {
        let stream = TcpStream::connect(server.mqtt()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new(), version: Version::V5, connack: None }
    }

    /// A connection that the test opened itself.
    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new(), version: Version::V5, connack: None }
    }

    /// Bytes that were read from the socket and not taken yet.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.received
    }

    /// The socket, for what a packet cannot say.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// An accepted connection with a clean start.
    pub(crate) fn connect(server: &Server, version: Version, id: &str) -> Self {
        Self::open(server, connect(version, id))
    }

    /// An accepted connection.
    pub(crate) fn open(server: &Server, connect: Connect<'_>) -> Self {
        let mut client = Self::raw(server);
        client.send(&Packet::Connect(connect));
        let connack = client.recv_connack();
        assert_eq!(connack.reason, ReasonCode::SUCCESS, "{connack:?}");
        client.connack = Some(connack);
        client
    }

    /// Sends a CONNECT that must be refused: its CONNACK, after which the server closes.
    pub(crate) fn refused(server: &Server, connect: Connect<'_>) -> ConnAck<'static> {
        let mut client = Self::raw(server);
        client.send(&Packet::Connect(connect));
        let connack = client.recv_connack();
        assert_ne!(connack.reason, ReasonCode::SUCCESS, "{connack:?}");
        client.expect_close();
        connack
    }

    pub(crate) fn send(&mut self, packet: &Packet<'_>) {
        if let Packet::Connect(connect) = packet {
            self.version = connect.version;
        }
        let mut bytes = Vec::new();
        encode::packet(packet, self.version, &mut bytes);
        self.send_bytes(&bytes);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The bytes of the next packet; `None` when the server closes.
    pub(crate) fn recv_bytes(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Ok(frame) = millrace_mqtt::frame(&self.received, u32::MAX).unwrap() {
                let size = frame.size;
                return Some(self.received.drain(..size).collect());
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(n) => self.received.extend_from_slice(&chunk[..n]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("nothing from the server, not even a close, within {PATIENCE:?}")
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("reading from the server: {error}"),
            }
        }
    }

    /// The next packet.
    pub(crate) fn recv(&mut self) -> Packet<'static> {
        let bytes = self.recv_bytes().unwrap_or_else(|| panic!("the server closed instead of answering"));
        decode(bytes.leak(), self.version)
    }

    /// The server closes, and sends nothing before that.
    pub(crate) fn expect_close(&mut self) {
        if let Some(bytes) = self.recv_bytes() {
            panic!("{:?} instead of a close", decode(bytes.leak(), self.version));
        }
    }

    /// Nothing has come and nothing is on its way: the server answers a ping before anything else. Packets of other
    /// clients must be acknowledged before (with [`Client::ping`] where nothing else is).
    pub(crate) fn expect_nothing(&mut self) {
        self.ping();
    }

    /// Nothing comes for this long, not even a close. For statements about time.
    pub(crate) fn expect_silence(&mut self, duration: Duration) {
        self.stream.set_read_timeout(Some(duration)).unwrap();
        let read = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let kind = read.map_err(|error| error.kind());
        assert!(
            matches!(kind, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)),
            "{kind:?}: {:?}",
            self.recv()
        );
    }

    /// PINGREQ and PINGRESP, with nothing between.
    pub(crate) fn ping(&mut self) {
        self.send(&Packet::PingReq);
        assert_eq!(self.recv(), Packet::PingResp);
    }

    /// DISCONNECT with this reason, then the close. Its properties.
    pub(crate) fn expect_disconnect(&mut self, reason: ReasonCode) -> Properties<'static> {
        let disconnect = self.recv_disconnect();
        assert_eq!(disconnect.reason, reason, "{disconnect:?}");
        self.expect_close();
        disconnect.properties
    }

    /// DISCONNECT with reason 0, then the server's close.
    pub(crate) fn disconnect(self) {
        self.disconnect_with(disconnect(ReasonCode::SUCCESS));
    }

    /// This DISCONNECT, then the server's close.
    pub(crate) fn disconnect_with(mut self, disconnect: Disconnect<'_>) {
        self.send(&Packet::Disconnect(disconnect));
        self.expect_close();
    }

    /// Closes without DISCONNECT, as if the network had failed, and waits until the server has seen it. Earlier output of
    /// the server is thrown away.
    pub(crate) fn cut(mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
        while self.recv_bytes().is_some() {}
    }

    /// Subscribes with packet id 1, which is granted.
    pub(crate) fn subscribe(&mut self, filter: &str, qos: QoS) {
        let suback = self
            .subscribe_all(&[(filter, SubscribeOptions { qos, ..Default::default() })], Properties::EMPTY);
        assert_eq!(suback.reasons, [qos as u8], "{suback:?}");
    }

    /// SUBSCRIBE with packet id 1, and its SUBACK.
    pub(crate) fn subscribe_all(
        &mut self,
        filters: &[(&str, SubscribeOptions)],
        properties: Properties<'_>,
    ) -> SubAck<'static> {
        let mut bytes = Vec::new();
        encode::subscribe(id(1), properties, filters.iter().copied(), self.version, &mut bytes);
        self.send_bytes(&bytes);
        self.recv_suback()
    }

    /// UNSUBSCRIBE with packet id 1, and its UNSUBACK.
    pub(crate) fn unsubscribe(&mut self, filters: &[&str]) -> UnsubAck<'static> {
        let mut bytes = Vec::new();
        encode::unsubscribe(id(1), Properties::EMPTY, filters.iter().copied(), self.version, &mut bytes);
        self.send_bytes(&bytes);
        self.recv_unsuback()
    }

    /// Sends a PUBLISH and goes through with its quality of service. Its last reason code.
    pub(crate) fn publish(&mut self, publish: Publish<'_>) -> ReasonCode {
        let (qos, id) = (publish.qos, publish.packet_id);
        self.send(&Packet::Publish(publish));
        match (qos, id) {
            (QoS::AtLeastOnce, Some(id)) => self.recv_ack(PacketType::PubAck, id).reason,
            (QoS::ExactlyOnce, Some(id)) => {
                let received = self.recv_ack(PacketType::PubRec, id).reason;
                if received.is_error() {
                    return received;
                }
                self.send(&Packet::PubRel(ack(id)));
                self.recv_ack(PacketType::PubComp, id).reason
            }
            _ => {
                self.ping();
                ReasonCode::SUCCESS
            }
        }
    }

    pub(crate) fn recv_ack(&mut self, kind: PacketType, id: PacketId) -> Ack<'static> {
        let packet = self.recv();
        assert_eq!(packet.packet_type(), kind, "{packet:?}");
        let (Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack)) = packet
        else {
            panic!("{packet:?} is no acknowledgement");
        };
        assert_eq!(ack.packet_id, id, "{ack:?}");
        ack
    }
}

/// A method for each packet that a server sends: the next packet, which must be of that type.
macro_rules! recv {
    ($($name:ident: $kind:ident($packet:ty),)*) => {
        impl Client {
            $(pub(crate) fn $name(&mut self) -> $packet {
                match self.recv() {
                    Packet::$kind(packet) => packet,
                    other => panic!("{other:?} instead of {}", stringify!($kind)),
                }
            })*
        }
    };
}

recv! {
    recv_connack: ConnAck(ConnAck<'static>),
    recv_publish: Publish(Publish<'static>),
    recv_suback: SubAck(SubAck<'static>),
    recv_unsuback: UnsubAck(UnsubAck<'static>),
    recv_disconnect: Disconnect(Disconnect<'static>),
}

fn decode(bytes: &'static [u8], version: Version) -> Packet<'static> {
    let frame = millrace_mqtt::frame(bytes, u32::MAX).unwrap().unwrap();
    millrace_mqtt::decode(frame.first, frame.body, Some(version))
        .unwrap_or_else(|error| panic!("the server sent {bytes:02x?}: {error}"))
}

/// A CONNECT with a clean start, no keep alive and nothing else.
pub(crate) fn connect(version: Version, client_id: &str) -> Connect<'_> {
    Connect {
        version,
        is_bridge: false,
        clean_start: true,
        keep_alive_s: 0,
        properties: Properties::EMPTY,
        client_id,
        will: None,
        user_name: None,
        password: None,
    }
}

/// A will with QoS 0.
pub(crate) fn will<'a>(topic: &'a str, payload: &'a [u8]) -> Will<'a> {
    Will { qos: QoS::AtMostOnce, retain: false, properties: Properties::EMPTY, topic, payload }
}

/// A PUBLISH with QoS 0.
pub(crate) fn publish<'a>(topic: &'a str, payload: &'a [u8]) -> Publish<'a> {
    Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic,
        packet_id: None,
        properties: Properties::EMPTY,
        payload,
    }
}

/// A PUBLISH with QoS 1 or 2 and this packet id.
pub(crate) fn publish_qos<'a>(qos: QoS, packet_id: u16, topic: &'a str, payload: &'a [u8]) -> Publish<'a> {
    Publish { qos, packet_id: Some(id(packet_id)), ..publish(topic, payload) }
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP with success.
pub(crate) fn ack(packet_id: PacketId) -> Ack<'static> {
    Ack { packet_id, reason: ReasonCode::SUCCESS, properties: Properties::EMPTY }
}

pub(crate) fn disconnect(reason: ReasonCode) -> Disconnect<'static> {
    Disconnect { reason, properties: Properties::EMPTY }
}

/// A packet id that is not 0.
pub(crate) fn id(number: u16) -> PacketId {
    PacketId::new(number).unwrap()
}

/// Properties of a packet that is sent; not checked.
pub(crate) fn properties(properties: &[Property<'_>]) -> Properties<'static> {
    let mut bytes = Vec::new();
    for property in properties {
        property.encode(&mut bytes);
    }
    Properties::from_validated(bytes.leak())
}

/// The properties of a packet that was received.
pub(crate) fn list<'a>(properties: Properties<'a>) -> Vec<Property<'a>> {
    properties.iter().collect()
}
