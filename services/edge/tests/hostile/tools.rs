//! Helpers that the tests share: counters, waiting, random numbers, floods, and two clients that must notice nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_mqtt::{Packet, PacketType, Publish, QoS, Version, decode, encode, frame};
use socket2::{Domain, Socket, Type};

use crate::common::{Client, Server, ack, connect, publish, publish_qos};

/// Units of work that one turn may do: what reading, fan-outs, retained messages and writing may each spend, and the
/// last piece of each, which may go beyond.
pub(crate) const TURN_WORK_MAX: u64 = 200_000;

/// How long a condition may take to come true.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[allow(clippy::disallowed_methods, reason = "a test measures the server from outside")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A moment for somebody else, where there is nothing to wait on.
#[allow(clippy::disallowed_methods, reason = "the step of a loop that waits for a condition")]
pub(crate) fn a_moment() {
    std::thread::sleep(Duration::from_millis(2));
}

/// Waits until `is_so`; `what` says what was waited for.
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool, what: impl FnOnce() -> String) {
    let start = now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {}", what());
        a_moment();
    }
}

/// The value of a line of the metrics; `label` is a part of its labels.
pub(crate) fn metric(server: &Server, name: &str, label: &str) -> u64 {
    let text = server.edge.metrics();
    let is_it = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(label)
    };
    let line = text.lines().find(is_it).unwrap_or_else(|| panic!("no metric {name} {label}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Connections refused before they belonged to a broker, for this reason.
pub(crate) fn refused(server: &Server, reason: &str) -> u64 {
    metric(server, "millrace_connections_refused_total", &format!("reason=\"{reason}\""))
}

/// Connections of clients ended for this reason.
pub(crate) fn ended(server: &Server, reason: &str) -> u64 {
    metric(server, "millrace_disconnects_total", &format!("reason=\"{reason}\""))
}

/// Messages dropped for this reason.
pub(crate) fn dropped(server: &Server, reason: &str) -> u64 {
    metric(server, "millrace_messages_dropped_total", &format!("reason=\"{reason}\""))
}

/// The sum over the reasons of a metric.
pub(crate) fn sum(server: &Server, name: &str) -> u64 {
    let text = server.edge.metrics();
    let lines = text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Waits until a counter has this value, and no more.
pub(crate) fn expect_count(of: impl Fn(&Server, &str) -> u64, server: &Server, reason: &str, expected: u64) {
    eventually(
        || of(server, reason) >= expected,
        || format!("{reason} is {} instead of {expected}\n{}", of(server, reason), counted(server)),
    );
    assert_eq!(of(server, reason), expected, "{reason}\n{}", counted(server));
}

/// The counters that are not 0.
pub(crate) fn counted(server: &Server) -> String {
    let text = server.edge.metrics();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Waits until so many clients are connected.
pub(crate) fn expect_clients(server: &Server, expected: u64) {
    let connected = || metric(server, "millrace_clients_connected", "");
    eventually(|| connected() == expected, || format!("{} clients instead of {expected}", connected()));
}

/// Random numbers that are the same in each run (splitmix64).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

/// The bytes of a packet.
pub(crate) fn encoded(packet: &Packet<'_>, version: Version) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::packet(packet, version, &mut bytes);
    bytes
}

/// Sends what the server may be closing on already.
pub(crate) fn send_anyway(mut stream: &TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

/// Everything that still comes, up to the server's close. A server that does not close is a failure.
pub(crate) fn read_to_close(mut stream: &TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut all = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return all,
            Ok(n) => all.extend_from_slice(&chunk[..n]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return all,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("the server did not close: {error}"),
        }
    }
}

/// Says that nothing more is sent, and waits until the server has closed too. Returns the server's last bytes.
pub(crate) fn half_close(stream: &TcpStream) -> Vec<u8> {
    // It may have closed before.
    let _ = stream.shutdown(Shutdown::Write);
    read_to_close(stream)
}

/// A connection that takes in little that is not read: two segments of loopback. With less than one, the kernel's own
/// timers would decide how fast it is.
pub(crate) fn narrow(server: &Server) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(128 * 1024).unwrap();
    socket.connect(&server.mqtt().into()).unwrap();
    Client::over(socket.into())
}

/// A narrow connection with an accepted client.
pub(crate) fn narrow_client(server: &Server, version: Version, id: &str) -> Client {
    let mut client = narrow(server);
    client.send(&Packet::Connect(connect(version, id)));
    client.recv_connack();
    client
}

/// A payload that begins with a number.
pub(crate) fn numbered(number: u64, len: usize) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(len.max(8), b'.');
    payload
}

pub(crate) fn number_of(payload: &[u8]) -> u64 {
    u64::from_be_bytes(*payload.first_chunk().unwrap())
}

/// The bytes of `count` QoS 0 messages, numbered from 0.
pub(crate) fn flood(topic: &str, count: u64, len: usize, version: Version) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..count {
        encode::packet(&Packet::Publish(publish(topic, &numbered(number, len))), version, &mut bytes);
    }
    bytes
}

/// Reads packets fast: nothing is leaked, and much is read at once.
pub(crate) struct Packets<'s> {
    stream: &'s TcpStream,
    version: Version,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// Bytes read so far.
    pub(crate) bytes: usize,
}

impl<'s> Packets<'s> {
    /// The packets from now on; what is taken here, `client` itself does not know.
    pub(crate) fn of(client: &'s Client) -> Self {
        let mut buffer = client.unread().to_vec();
        let end = buffer.len();
        buffer.resize(256 * 1024, 0);
        Self { stream: client.stream(), version: client.version, buffer, at: 0, end, bytes: end }
    }

    /// The next packet; `None` when the server closes or nothing comes for the socket's read time-out.
    pub(crate) fn next(&mut self) -> Option<Packet<'_>> {
        let (first, body) = loop {
            let waiting = &self.buffer[self.at..self.end];
            if let Ok(frame) = frame(waiting, u32::MAX).unwrap() {
                let size = frame.size;
                let body = self.at + size - frame.body.len()..self.at + size;
                self.at += size;
                break (frame.first, body);
            }
            if !self.fill() {
                return None;
            }
        };
        Some(decode(first, &self.buffer[body], Some(self.version)).unwrap())
    }

    /// Reads once.
    pub(crate) fn fill(&mut self) -> bool {
        self.buffer.copy_within(self.at..self.end, 0);
        (self.at, self.end) = (0, self.end - self.at);
        if self.end == self.buffer.len() {
            self.buffer.resize(self.end * 2, 0);
        }
        match self.stream.read(&mut self.buffer[self.end..]) {
            Ok(0) => false,
            Ok(n) => {
                self.end += n;
                self.bytes += n;
                true
            }
            Err(error) => {
                use ErrorKind::{ConnectionReset, TimedOut, WouldBlock};
                assert!(matches!(error.kind(), ConnectionReset | TimedOut | WouldBlock), "{error}");
                false
            }
        }
    }

    /// The number of the next PUBLISH, see [`Packets::next_message`].
    pub(crate) fn next_number(&mut self) -> Option<u64> {
        self.next_message().map(|(_, number)| number)
    }

    /// Topic and number of the next PUBLISH, which is acknowledged; the rest of QoS 2 in between, too.
    pub(crate) fn next_message(&mut self) -> Option<(String, u64)> {
        let (stream, version) = (self.stream, self.version);
        loop {
            let answer = match self.next()? {
                Packet::Publish(Publish { topic, payload, qos, packet_id, .. }) => {
                    let message = (topic.to_owned(), number_of(payload));
                    if let Some(id) = packet_id {
                        let answer = match qos {
                            QoS::ExactlyOnce => Packet::PubRec(ack(id)),
                            _ => Packet::PubAck(ack(id)),
                        };
                        send_anyway(stream, &encoded(&answer, version));
                    }
                    return Some(message);
                }
                Packet::PubRel(released) => Packet::PubComp(ack(released.packet_id)),
                other => panic!("{other:?}"),
            };
            send_anyway(stream, &encoded(&answer, version));
        }
    }
}

/// Publishes `count` numbered messages without waiting for one to be acknowledged before the next is sent, but with no
/// more than 500 on their way.
pub(crate) fn publish_all(client: &mut Client, qos: QoS, topic: &str, count: u64, len: usize) {
    let mut open = 0;
    for number in 0..count {
        let payload = numbered(number, len);
        if qos == QoS::AtMostOnce {
            client.send(&Packet::Publish(publish(topic, &payload)));
            continue;
        }
        let id = u16::try_from(number % 60_000 + 1).unwrap();
        client.send(&Packet::Publish(publish_qos(qos, id, topic, &payload)));
        open += 1;
        while open >= 500 {
            open -= usize::from(went_through(client));
        }
    }
    while open > 0 {
        open -= usize::from(went_through(client));
    }
}

/// Takes one acknowledgement; true when it was the last of its message.
fn went_through(client: &mut Client) -> bool {
    let packet = client.recv();
    match packet {
        Packet::PubRec(received) => client.send(&Packet::PubRel(ack(received.packet_id))),
        Packet::PubAck(_) | Packet::PubComp(_) => {}
        other => panic!("{other:?}"),
    }
    packet.packet_type() != PacketType::PubRec
}

/// Two clients that do everything right, on a thread of their own. Each message of one must reach the other, in order.
pub(crate) struct Pair {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, Duration)>,
}

impl Pair {
    pub(crate) fn start(server: &Server) -> Self {
        let mut ann = Client::connect(server, Version::V311, "well-behaved-ann");
        let mut bob = Client::connect(server, Version::V5, "well-behaved-bob");
        bob.subscribe("well-behaved/+", QoS::AtLeastOnce);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut rounds, mut longest) = (0, Duration::ZERO);
            while rounds == 0 || !stopped.load(Ordering::Relaxed) {
                let start = now();
                let payload = numbered(rounds, 20);
                ann.send(&Packet::Publish(publish("well-behaved/0", &payload)));
                assert_eq!(bob.recv_publish().payload, payload);
                ann.publish(publish_qos(QoS::AtLeastOnce, 7, "well-behaved/1", &payload));
                let message = bob.recv_publish();
                assert_eq!((message.topic, message.payload), ("well-behaved/1", &payload[..]));
                bob.send(&Packet::PubAck(ack(message.packet_id.unwrap())));
                rounds += 1;
                longest = longest.max(start.elapsed());
                // The cores are for the others.
                a_moment();
            }
            (rounds, longest)
        });
        Self { stop, thread }
    }

    /// Ends it: it must have gone well, and no message took long.
    pub(crate) fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        let (rounds, longest) = self.thread.join().unwrap_or_else(|_| panic!("well-behaved clients noticed"));
        assert!(rounds > 0);
        assert!(longest < Duration::from_secs(2), "a message of well-behaved clients took {longest:?}");
    }
}
