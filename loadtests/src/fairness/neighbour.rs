//! The neighbour: clients of another tenant that do one kind of work at a given rate.
//!
//! Its threads have a lower priority than the server, because in production its clients would run
//! on other machines.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};

use clap::ValueEnum;

use super::wire::{self, TenantBroker, Work};
use crate::clock;
use crate::failure::Outcome;
use crate::machine::stand_back;
use crate::packet::{self, PublishTemplate};

const TOPIC: &str = "fair";
const UNSUBACK: u8 = 11;
/// Filters of one connection that `subscribes` adds and removes in turn.
const FILTERS: u64 = 100;
/// Retained messages that the neighbour has, and the times a second that all of them are replayed
/// to a new subscription, at its limit.
const RETAINED_TOPICS: usize = 1_000;
const REPLAYS_PER_S: u64 = 2;
/// Share groups of the topic, and connections that are a member of each group.
const GROUPS: u64 = 20;
const MEMBERS: u64 = 3;
/// Connections that a worker of `connects` holds open; then it closes the oldest.
const HELD: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WorkKind {
    /// Publishes to one subscriber. The product limits them: publishes_per_s.
    Publishes,
    /// Pairs of SUBSCRIBE and UNSUBSCRIBE. The product limits them: filters_per_s, two for a pair.
    Subscribes,
    /// Connections with a CONNECT. The product limits them: connects_per_s.
    Connects,
    /// Publishes of 1,000 retained messages, which are also replayed. The product limits the
    /// publishes.
    Retained,
    /// Publishes to 20 share groups. The product limits the publishes.
    ShareGroups,
}

impl WorkKind {
    /// Answers or deliveries of one unit of work.
    fn answers_per_unit(self) -> u64 {
        if self == Self::ShareGroups { GROUPS } else { 1 }
    }

    fn filters_of_readers(self) -> Vec<Vec<String>> {
        match self {
            Self::Publishes => vec![vec![TOPIC.to_owned()]],
            Self::Retained => vec![vec!["kept/+".to_owned()]],
            Self::ShareGroups => {
                let filters: Vec<String> =
                    (0..GROUPS).map(|group| format!("$share/g{group}/{TOPIC}")).collect();
                (0..MEMBERS).map(|_| filters.clone()).collect()
            }
            Self::Subscribes | Self::Connects => Vec::new(),
        }
    }
}

/// Writes the unit of work with this number.
type Unit = Box<dyn FnMut(u64, &mut Vec<u8>) + Send>;

pub(super) struct Load {
    pub(super) kind: WorkKind,
    pub(super) target: TenantBroker,
    /// Units of work a second of all workers.
    pub(super) rate: u64,
    /// The factor by which `rate` exceeds the limit.
    pub(super) times: u64,
    pub(super) workers: u64,
    pub(super) qos: u8,
    pub(super) payload_bytes: usize,
}

pub(super) struct Neighbour {
    kind: WorkKind,
    done: Arc<AtomicBool>,
    started_ns: u64,
    readers: Vec<JoinHandle<u64>>,
    workers: Vec<JoinHandle<Work>>,
}

/// Units of work, and the seconds that they took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) sent: u64,
    pub(super) passed: u64,
    pub(super) seconds: f64,
}

impl Neighbour {
    pub(super) fn start(load: &Load) -> Outcome<Self> {
        let done = Arc::new(AtomicBool::new(false));
        let reader = |(number, filters): (usize, Vec<String>)| {
            let stream = load.target.open(&format!("reader-{number}"), &filters, load.qos)?;
            let done = done.clone();
            Ok(spawn(move || {
                stand_back();
                wire::read(&stream, &done).1
            }))
        };
        let readers =
            load.kind.filters_of_readers().into_iter().enumerate().map(reader).collect::<Outcome<_>>()?;
        let rate = load.rate.div_ceil(load.workers);
        let worker = |number| load.worker(number, rate, &done);
        let mut workers = (0..load.workers).map(worker).collect::<Outcome<Vec<_>>>()?;
        if load.kind == WorkKind::Retained {
            workers.push(load.replays(&done)?);
        }
        Ok(Self { kind: load.kind, done, started_ns: clock::now_ns(), readers, workers })
    }

    pub(super) fn end(self) -> Done {
        self.done.store(true, Ordering::Relaxed);
        let mut all = Work::default();
        for thread in self.workers {
            let work = thread.join().unwrap_or_default();
            all.sent += work.sent;
            all.answered += work.answered;
        }
        let seconds = clock::ns_seconds(clock::now_ns() - self.started_ns);
        let delivered: u64 = self.readers.into_iter().map(|thread| thread.join().unwrap_or(0)).sum();
        let is_answered = matches!(self.kind, WorkKind::Subscribes | WorkKind::Connects);
        let passed = if is_answered { all.answered } else { delivered };
        Done { sent: all.sent, passed: passed / self.kind.answers_per_unit(), seconds }
    }
}

impl Load {
    fn worker(&self, number: u64, rate: u64, done: &Arc<AtomicBool>) -> Outcome<JoinHandle<Work>> {
        let done = done.clone();
        if self.kind == WorkKind::Connects {
            let target = self.target.clone();
            return Ok(spawn(move || {
                stand_back();
                connects(&target, number, rate, &done)
            }));
        }
        let stream = self.target.open(&format!("worker-{number}"), &[], 0)?;
        wire::resets_on_close(&stream);
        let (answer, mut unit) = self.unit(number);
        Ok(spawn(move || {
            stand_back();
            wire::send(&stream, rate, u64::MAX, &done, answer, &mut unit).unwrap_or_default()
        }))
    }

    /// The kind of the answers to count, and what writes a unit of work.
    fn unit(&self, worker: u64) -> (u8, Unit) {
        let template = |topic: &str| PublishTemplate::new(topic, self.qos, 0, self.payload_bytes);
        let templates: Vec<PublishTemplate> = match self.kind {
            WorkKind::Subscribes | WorkKind::Connects => {
                return (UNSUBACK, Box::new(move |number, batch| subscribes(worker, number, batch)));
            }
            WorkKind::Retained => {
                (0..RETAINED_TOPICS).map(|topic| template(&format!("kept/{topic}")).retained()).collect()
            }
            WorkKind::Publishes | WorkKind::ShareGroups => vec![template(TOPIC)],
        };
        // Workers begin at different topics.
        let first = worker as usize * 37;
        let unit = move |number: u64, batch: &mut Vec<u8>| {
            let template = &templates[(first + number as usize) % templates.len()];
            template.append(batch, number as u32, (number % 60_000 + 1) as u16, clock::now_ns());
        };
        (packet::PUBACK, Box::new(unit))
    }

    /// A client to which all retained messages are replayed again and again, because it repeats its
    /// SUBSCRIBE.
    fn replays(&self, done: &Arc<AtomicBool>) -> Outcome<JoinHandle<Work>> {
        let (done, rate) = (done.clone(), REPLAYS_PER_S * self.times);
        let stream = self.target.open("replayed", &[], 0)?;
        wire::resets_on_close(&stream);
        Ok(spawn(move || {
            stand_back();
            let unit = |_, batch: &mut Vec<u8>| batch.extend(packet::subscribe(1, "kept/#", 0));
            let _ = wire::send(&stream, rate, u64::MAX, &done, packet::SUBACK, unit);
            // The replays are no units of the limited work.
            Work::default()
        }))
    }
}

fn subscribes(worker: u64, number: u64, batch: &mut Vec<u8>) {
    let filter = format!("filter/{worker}/{}/+", number % FILTERS);
    batch.extend(packet::subscribe(1, &filter, 0));
    batch.extend(packet::unsubscribe(2, &filter));
}

/// Connects by the clock without waiting for answers, because the server delays refusals. A
/// connection counts as answered if its CONNACK accepts it before the worker closes it.
fn connects(target: &TenantBroker, worker: u64, rate: u64, done: &AtomicBool) -> Work {
    // An address for each worker, so that ports of closed connections do not run out.
    let from = Ipv4Addr::new(127, 88, 0, (worker % 250 + 1) as u8);
    let (mut held, mut work) = (VecDeque::new(), Work::default());
    work.sent = wire::by_the_clock(rate, u64::MAX, done, |numbers| {
        for number in numbers.clone() {
            if done.load(Ordering::Relaxed) {
                return false;
            }
            held.extend(target.dial(from, &format!("visitor-{worker}-{number}")));
            if held.len() > HELD {
                work.answered += held.pop_front().map_or(0, |oldest| u64::from(leave(&oldest)));
            }
        }
        true
    });
    work.answered += held.iter().filter(|stream| leave(stream)).count() as u64;
    work
}

/// Sends DISCONNECT if the server has accepted the connection; returns whether it has.
fn leave(mut stream: &TcpStream) -> bool {
    let mut connack = [0; packet::CONNACK_BYTES];
    let is_there = stream.set_nonblocking(true).is_ok() && stream.read_exact(&mut connack).is_ok();
    let is_accepted = is_there && connack[0] >> 4 == packet::CONNACK && connack[3] == 0;
    is_accepted && stream.write_all(&packet::DISCONNECT).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::next_frame;

    fn load(kind: WorkKind) -> Load {
        let target = TenantBroker { gateway_port: 1, server_name: "a".to_owned() };
        Load { kind, target, rate: 1, times: 1, workers: 1, qos: 1, payload_bytes: 16 }
    }

    fn first_bytes(kind: WorkKind, number: u64) -> Vec<u8> {
        let mut batch = Vec::new();
        load(kind).unit(3).1(number, &mut batch);
        let (mut at, mut found) = (0, Vec::new());
        while let Some(frame) = next_frame(&batch[at..]).unwrap() {
            found.push(frame.first);
            at += frame.length;
        }
        found
    }

    #[test]
    fn each_kind_sends_its_packets() {
        assert_eq!(first_bytes(WorkKind::Publishes, 0), [0x32]);
        assert_eq!(first_bytes(WorkKind::ShareGroups, 70_000), [0x32]);
        assert_eq!(first_bytes(WorkKind::Retained, 1_234), [0x33]);
        assert_eq!(first_bytes(WorkKind::Subscribes, 5), [0x82, 0xA2]);
    }

    #[test]
    fn a_unit_of_share_groups_is_one_publish_and_has_a_delivery_for_each_group() {
        let readers = WorkKind::ShareGroups.filters_of_readers();
        assert_eq!(readers.len() as u64, MEMBERS);
        assert!(
            readers.iter().all(|filters| filters.len() as u64 == WorkKind::ShareGroups.answers_per_unit())
        );
    }
}
