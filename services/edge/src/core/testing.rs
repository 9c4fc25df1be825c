//! Event loops without threads: a test says which loop has its next turn, so the order in which loops act is the test's.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use millrace_mqtt::{QoS, frame};
use millrace_storage::Database;
use mio::Events;
use socket2::{Domain, Protocol, Socket, Type};

use super::connection::Connected;
use super::turns::EVENTS;
use super::{Core, LocalSession, seconds};
use crate::broker::Broker;
use crate::clock::Millis;
use crate::config::Config;
use crate::limits::EdgeLimits;
use crate::traces::Tracer;

pub(super) const SUBACK: u8 = 0x90;
pub(super) const PUBLISH_QOS_1: u8 = 0x32;

const TURNS: usize = 5_000_000;

pub(super) struct Loops {
    pub(super) cores: Vec<Core>,
    address: SocketAddr,
    /// The time of all loops; `None`: the machine's.
    pub(super) now_ms: Option<Millis>,
}

pub(super) struct TestClient {
    stream: TcpStream,
    pub(super) id: String,
    received: Vec<u8>,
}

impl Loops {
    pub(super) fn start(cores: usize, change: impl FnOnce(&mut EdgeLimits)) -> Self {
        Self::start_with(cores, None, |config| change(&mut config.limits))
    }

    pub(super) fn traced(cores: usize, tracer: Tracer) -> Self {
        Self::start_with(cores, None, |config| config.tracer = Some(Arc::new(tracer)))
    }

    pub(super) fn stored(cores: usize) -> Self {
        Self::start_with(cores, Some(Database::memory()), |_| {})
    }

    pub(super) fn stored_in(database: Database) -> Self {
        Self::start_with(1, Some(database), |_| {})
    }

    pub(super) fn stored_with(change: impl FnOnce(&mut EdgeLimits)) -> Self {
        Self::start_with(1, Some(Database::memory()), |config| change(&mut config.limits))
    }

    pub(super) fn start_with(
        cores: usize,
        database: Option<Database>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = Config { mqtt_listen: vec![loopback], threads: cores, ..Config::default() };
        // The loop of a client follows from its client identifier.
        config.limits.home_clients_max = 0;
        change(&mut config);
        let (cores, address) = crate::start::start_for_turns(config, database).unwrap();
        Self { cores, address, now_ms: None }
    }

    pub(super) fn turn(&mut self, core: usize) {
        let events = self.begin_turn(core);
        let core = &mut self.cores[core];
        core.turn(&events);
        core.submit_jobs();
        core.drop_claims();
        core.count_turn();
    }

    /// The first part of a turn: what has come is read and handed to its receivers. A whole turn must follow.
    pub(super) fn serve(&mut self, core: usize) {
        let events = self.begin_turn(core);
        self.cores[core].serve(&events);
        self.cores[core].count_turn();
    }

    fn begin_turn(&mut self, core: usize) -> Events {
        let core = &mut self.cores[core];
        let mut events = Events::with_capacity(EVENTS);
        core.mailbox().sleep();
        core.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        core.mailbox().awake();
        core.read_clock();
        core.now_ms = self.now_ms.unwrap_or(core.now_ms);
        core.now = seconds(core.now_ms);
        core.count_turn();
        events
    }

    /// All loops take turns until `is_so`.
    pub(super) fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        for _ in 0..TURNS {
            if is_so(self) {
                return;
            }
            (0..self.cores.len()).for_each(|core| self.turn(core));
        }
        panic!("not within {TURNS} turns");
    }

    /// A client of this loop; `name` is a part of its client identifier.
    pub(super) fn connect(&mut self, core: u16, name: &str) -> TestClient {
        let id = self.id_of(core, name);
        self.connect_as(&id, true)
    }

    pub(super) fn id_of(&self, core: u16, name: &str) -> String {
        let process = self.cores[0].process.clone();
        let broker = process.open("default").unwrap();
        let mut ids = (0_u64..).map(|number| format!("{name}-{number}"));
        ids.find(|id| process.owner(&broker, id).core() == core).unwrap()
    }

    pub(super) fn connect_as(&mut self, id: &str, clean: bool) -> TestClient {
        self.connect_with(id, u8::from(clean) << 1, "")
    }

    /// A client whose connection publishes a will to this topic when it is lost.
    pub(super) fn connect_with_will(&mut self, id: &str, topic: &str) -> TestClient {
        self.connect_with(id, 0b110, topic)
    }

    fn connect_with(&mut self, id: &str, flags: u8, will: &str) -> TestClient {
        let mut client = self.dial_with(id, flags, will);
        self.answer(&mut client, 0x20);
        client
    }

    /// The CONNACK of a client that leaves at once.
    pub(super) fn connack(&mut self, id: &str, flags: u8, will: &str) -> Vec<u8> {
        let mut client = self.dial_with(id, flags, will);
        self.answer(&mut client, 0x20)
    }

    /// A client of 5.0 whose session stays for an hour.
    pub(super) fn connect_v5(&mut self, id: &str) -> TestClient {
        let mut client = self.dial_v5(id);
        self.answer(&mut client, 0x20);
        client
    }

    pub(super) fn dial_v5(&self, id: &str) -> TestClient {
        self.dial(id, &[5, 0, 0, 0, 5, 0x11, 0, 0, 0xE, 0x10], &[])
    }

    pub(super) fn dial_with(&self, id: &str, flags: u8, will: &str) -> TestClient {
        let will = if will.is_empty() { Vec::new() } else { [text(will), text("gone")].concat() };
        self.dial(id, &[4, flags, 0, 0], &will)
    }

    /// A client of 3.1.1 whose session stays.
    pub(super) fn dial_as(&self, id: &str, user: &str, password: &str) -> TestClient {
        self.dial(id, &[4, 0b1100_0000, 0, 0], &[text(user), text(password)].concat())
    }

    /// `head`: of the CONNECT, from the protocol level up to the properties; `rest`: what follows the client identifier.
    fn dial(&self, id: &str, head: &[u8], rest: &[u8]) -> TestClient {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = TestClient { stream, id: id.to_owned(), received: Vec::new() };
        let connect = [b"\x00\x04MQTT".as_slice(), head, &text(id), rest].concat();
        client.send(0x10, &connect);
        client
    }

    pub(super) fn subscribe(&mut self, client: &mut TestClient, filter: &str, qos: QoS) {
        client.send_all(&subscribe(&[filter.to_owned()], qos));
        self.answer(client, SUBACK);
    }

    pub(super) fn answer(&mut self, client: &mut TestClient, first: u8) -> Vec<u8> {
        let mut found = None;
        self.until(|_| {
            found = client.next();
            found.is_some()
        });
        let (kind, body) = found.unwrap();
        assert_eq!(kind, first, "{body:?}");
        body
    }

    pub(super) fn broker(&self) -> Arc<Broker> {
        self.cores[0].process.open("default").unwrap()
    }

    pub(super) fn publish(&mut self, client: &mut TestClient, topic: &str, payload: &[u8]) {
        let (bytes, mut sent) = (publish(1, topic, payload), 0);
        self.until(|_| {
            sent += client.stream.write(&bytes[sent..]).unwrap_or(0);
            sent == bytes.len()
        });
        self.answer(client, 0x40);
    }

    pub(super) fn session(&self, core: usize, client: &TestClient) -> &LocalSession {
        let core = &self.cores[core];
        let broker = core.process.brokers.get("default").unwrap();
        &core.sessions[core.session_of(&broker, &client.id).unwrap() as usize]
    }

    pub(super) fn connection(&self, core: usize, client: &TestClient) -> &Connected {
        &self.cores[core].connections[self.session(core, client).connection as usize]
    }

    /// Sends bytes while one loop alone takes its turns.
    pub(super) fn send_to(&mut self, core: usize, client: &mut TestClient, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match client.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            self.turn(core);
        }
    }
}

impl TestClient {
    pub(super) fn send(&mut self, first: u8, body: &[u8]) {
        self.send_all(&packet(first, body));
    }

    pub(super) fn send_all(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(super) fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut chunk = [0; 64 * 1024];
        while let Ok(count @ 1..) = self.stream.read(&mut chunk) {
            self.received.extend_from_slice(&chunk[..count]);
        }
        let framed = frame(&self.received, u32::MAX).unwrap().ok()?;
        let (first, body, size) = (framed.first, framed.body.to_vec(), framed.size);
        self.received.drain(..size);
        Some((first, body))
    }
}

/// A connection from this address that has sent nothing.
pub(super) fn stranger(loops: &Loops, address: [u8; 4]) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&loops.address.into()).unwrap();
    socket.into()
}

/// A PUBLISH with QoS 1, or with QoS 0 for packet id 0.
pub(super) fn publish(id: u16, topic: &str, payload: &[u8]) -> Vec<u8> {
    match id {
        0 => packet(0x30, &[&text(topic), payload].concat()),
        id => packet(0x32, &[&text(topic), id.to_be_bytes().as_slice(), payload].concat()),
    }
}

/// A SUBSCRIBE with packet id 1.
pub(super) fn subscribe(filters: &[String], qos: QoS) -> Vec<u8> {
    let filters = filters.iter().flat_map(|filter| [text(filter), vec![qos as u8]].concat());
    packet(0x82, &[0, 1].into_iter().chain(filters).collect::<Vec<u8>>())
}

pub(super) fn unsubscribe(filters: &[String]) -> Vec<u8> {
    let filters = filters.iter().flat_map(|filter| text(filter));
    packet(0xA2, &[0, 2].into_iter().chain(filters).collect::<Vec<u8>>())
}

/// They cost 380,000 units of work, so they are added, read and removed over several turns.
pub(super) fn long_filters() -> Vec<String> {
    (0..1_000).map(|number| format!("{}{number}", "a/".repeat(120))).collect()
}

pub(super) fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    let mut left = body.len();
    loop {
        let digit = (left % 128) as u8;
        left /= 128;
        packet.push(if left > 0 { digit | 0x80 } else { digit });
        if left == 0 {
            break;
        }
    }
    packet.extend_from_slice(body);
    packet
}

pub(super) fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat()
}
