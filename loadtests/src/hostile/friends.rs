//! Friendly clients that run beside an attack and record how long they wait.
//!
//! They send by the clock, not after the last answer. So a server that stands still for four
//! seconds shows as two hundred messages that waited, not as one.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};

use super::client::{Client, Packet};
use super::packets::{self, Connect, PUBACK, PUBLISH, Publish};
use crate::clock;
use crate::failure::{Failure, Outcome};
use crate::machine;

const EVERY_NS: u64 = 20_000_000;
const DIAL_EVERY_MS: u64 = 100;
/// Seconds to wait at the end for messages on their way.
const DRAIN_SECONDS: f64 = 15.0;
/// Unanswered messages at which a friendly client stops sending.
const UNANSWERED_MAX: usize = 800;
const SESSION_EXPIRY_S: u32 = 3600;
/// Packet ids are 1 to this number, in turn.
const PACKET_IDS: usize = 60_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) begun_ns: u64,
    pub(super) wait_ns: u64,
}

#[derive(Default)]
pub(super) struct FriendSeen {
    pub(super) waits: Vec<Wait>,
    /// Messages that never came back, or connects that were refused.
    pub(super) lost: u64,
    pub(super) disconnected: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FriendKind {
    Live,
    /// Publishes to its own persistent session with QoS 1, and waits for each PUBACK.
    Durable,
    Dialer,
    /// Not a client of the server: sends bytes from one thread to another, to measure how long the
    /// machine lets a thread wait.
    Machine,
}

pub(super) struct Friend {
    done: Arc<AtomicBool>,
    thread: JoinHandle<FriendSeen>,
}

impl Friend {
    pub(super) fn start(
        kind: FriendKind,
        server: SocketAddr,
        broker: &'static str,
        number: u8,
    ) -> Outcome<Self> {
        let done = Arc::new(AtomicBool::new(false));
        let from = Ipv4Addr::new(127, 77, 0, number);
        let is_done = done.clone();
        let thread = match kind {
            FriendKind::Dialer => spawn(move || dial_again(from, server, broker, &is_done)),
            FriendKind::Machine => {
                let stream =
                    machine::echo().map_err(|error| Failure::new(format!("the echo thread: {error}")))?;
                spawn(move || ping(&stream, &is_done))
            }
            FriendKind::Live | FriendKind::Durable => {
                let qos = u8::from(kind == FriendKind::Durable);
                let mut connect = Connect::new(broker, &format!("friend-{number}"));
                if qos == 1 {
                    connect = connect.persistent(SESSION_EXPIRY_S);
                }
                let mut client = Client::connect(from, server, &connect)?;
                let topic = format!("friend/{number}");
                if client.subscribe(&[&topic], qos) != 1 {
                    return Err(Failure::new("a friendly client may not subscribe"));
                }
                spawn(move || round_trips(client, &topic, qos, &is_done))
            }
        };
        Ok(Self { done, thread })
    }

    pub(super) fn end(self) -> FriendSeen {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| FriendSeen { disconnected: true, ..FriendSeen::default() })
    }
}

fn round_trips(mut client: Client, topic: &str, qos: u8, done: &AtomicBool) -> FriendSeen {
    let mut trips = RoundTrips::new(topic, qos);
    let mut due_ns = clock::now_ns();
    let mut drained_ns = None;
    loop {
        let now_ns = clock::now_ns();
        if done.load(Ordering::Relaxed) {
            let until_ns = *drained_ns.get_or_insert(now_ns + clock::seconds_ns(DRAIN_SECONDS));
            if (trips.unanswered == 0 && trips.undelivered == 0) || now_ns > until_ns {
                break;
            }
        } else if now_ns >= due_ns {
            due_ns += EVERY_NS;
            if trips.unanswered < UNANSWERED_MAX && !trips.send(&mut client, now_ns) {
                trips.seen.disconnected = true;
                break;
            }
        }
        let until_ns = if drained_ns.is_some() { now_ns + EVERY_NS } else { due_ns };
        let Some(packet) = client.read(until_ns) else {
            if clock::now_ns() < until_ns {
                trips.seen.disconnected = true;
                break;
            }
            continue;
        };
        trips.receive(&mut client, &packet);
    }
    trips.seen.lost = trips.unanswered.max(trips.undelivered) as u64;
    trips.seen
}

/// The messages of a client to itself, until they come back (QoS 0) or are acknowledged (QoS 1).
struct RoundTrips<'t> {
    topic: &'t str,
    qos: u8,
    seen: FriendSeen,
    /// When each packet id or sequence number was sent; `None` once the message came back.
    sent: Vec<Option<u64>>,
    unanswered: usize,
    undelivered: usize,
}

impl<'t> RoundTrips<'t> {
    fn new(topic: &'t str, qos: u8) -> Self {
        Self { topic, qos, seen: FriendSeen::default(), sent: Vec::new(), unanswered: 0, undelivered: 0 }
    }

    /// Returns false when the connection was closed.
    fn send(&mut self, client: &mut Client, now_ns: u64) -> bool {
        let number = self.sent.len() as u32;
        let packet_id = (self.sent.len() % PACKET_IDS + 1) as u16;
        let payload = number.to_le_bytes();
        let (topic, qos) = (self.topic, self.qos);
        let publish = Publish { topic, payload: &payload, qos, packet_id, ..Publish::default() };
        if !client.send(&publish.bytes()) {
            return false;
        }
        self.sent.push(Some(now_ns));
        self.unanswered += 1;
        self.undelivered += 1;
        true
    }

    fn receive(&mut self, client: &mut Client, packet: &Packet) {
        match packet.kind() {
            PUBLISH => {
                let Some(received) = packets::received(packet.first, &packet.body) else { return };
                self.undelivered = self.undelivered.saturating_sub(1);
                if self.qos == 1 {
                    client.send(&packets::acknowledgement(packets::PUBACK_FIRST, received.packet_id));
                } else if let Some(number) = received.payload.first_chunk() {
                    self.answered(u32::from_le_bytes(*number) as usize);
                }
            }
            PUBACK if self.qos == 1 => {
                let newest = self.sent.len().saturating_sub(1);
                let id = packet.body.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
                let round = newest - newest % PACKET_IDS;
                let number = round + usize::from(id).saturating_sub(1);
                self.answered(if number > newest { number.saturating_sub(PACKET_IDS) } else { number });
            }
            _ => {}
        }
    }

    fn answered(&mut self, number: usize) {
        if let Some(begun_ns) = self.sent.get_mut(number).and_then(Option::take) {
            self.unanswered -= 1;
            self.seen.waits.push(Wait { begun_ns, wait_ns: clock::now_ns() - begun_ns });
        }
    }
}

fn dial_again(from: Ipv4Addr, server: SocketAddr, broker: &'static str, done: &AtomicBool) -> FriendSeen {
    let mut seen = FriendSeen::default();
    let mut number = 0u32;
    while !done.load(Ordering::Relaxed) {
        let begun_ns = clock::now_ns();
        number += 1;
        let connect = Connect::new(broker, &format!("dialer-{number}"));
        match Client::connect(from, server, &connect) {
            Ok(mut client) => {
                seen.waits.push(Wait { begun_ns, wait_ns: clock::now_ns() - begun_ns });
                client.send(&packets::DISCONNECT_NORMALLY);
            }
            Err(_) => seen.lost += 1,
        }
        clock::pause_ms(DIAL_EVERY_MS);
    }
    seen
}

fn ping(stream: &TcpStream, done: &AtomicBool) -> FriendSeen {
    let mut seen = FriendSeen::default();
    machine::ping(stream, EVERY_NS / 1_000_000, done, |begun_ns, wait_ns| {
        seen.waits.push(Wait { begun_ns, wait_ns });
    });
    seen
}
