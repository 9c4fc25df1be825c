//! One pod: the real core and outbox, on a simulated connection.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use fastrand::Rng;

use crate::address::{PodId, To};
use crate::clock::Millis;
use crate::core::FabricCore;
use crate::counters::Counts;
use crate::limits::FabricLimits;
use crate::outbox::{FabricOutbox, Sent};
use crate::sink::{Gap, MessageBatch, Sink};

use super::nats::{Down, Nats, Subject, Up};

#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    JoinRequested(To),
    Joined {
        to: To,
        complete: bool,
    },
    Message {
        from: PodId,
        to: To,
        index: u64,
    },
    Gap(Gap),
    Came(PodId, bool),
    Gone(PodId),
    /// Events from here to `Connected` belong to the outage that just ended.
    Connecting,
    Connected,
    Disconnected,
    Left(To),
}

/// A point in the order of all events.
pub(super) type Stamp = u64;

fn stamp() -> Stamp {
    thread_local! {
        static STAMPS: Cell<Stamp> = const { Cell::new(0) };
    }
    STAMPS.replace(STAMPS.get() + 1)
}

#[derive(Default)]
pub(super) struct Recorder {
    pub(super) seen: Mutex<Vec<(Stamp, Seen)>>,
}

impl Recorder {
    fn see(&self, seen: Seen) {
        self.seen.lock().unwrap().push((stamp(), seen));
    }
}

impl Sink for Recorder {
    fn receive(&self, batch: &MessageBatch) {
        for message in batch.messages() {
            let index = u64::from_be_bytes(*message.first_chunk().unwrap());
            self.see(Seen::Message { from: batch.from(), to: batch.to(), index });
        }
    }

    fn gap(&self, gap: &Gap) {
        self.see(Seen::Gap(*gap));
    }

    fn joined(&self, to: To, complete: bool) {
        self.see(Seen::Joined { to, complete });
    }

    fn pod_came(&self, pod: PodId, _: &str, is_new: bool) {
        self.see(Seen::Came(pod, is_new));
    }

    fn pod_gone(&self, pod: PodId) {
        self.see(Seen::Gone(pod));
    }
}

pub(super) struct Pod {
    pub(super) id: PodId,
    outbox: Arc<FabricOutbox>,
    pub(super) core: FabricCore,
    pub(super) recorder: Arc<Recorder>,
    pub(super) is_connected: bool,
    was_connected: bool,
    pub(super) server: usize,
    /// Commands to the NATS client that it has not written.
    commands: VecDeque<Up>,
    /// Written commands that the server has not read.
    pub(super) wire: VecDeque<Up>,
    subscribed: BTreeSet<Subject>,
    /// Messages that the NATS client has read, by subscription, until the fabric takes them.
    channels: BTreeMap<Subject, VecDeque<Down>>,
    pub(super) joined: BTreeSet<To>,
    pub(super) sent: BTreeMap<To, Vec<Stamp>>,
}

impl Pod {
    pub(super) fn new(id: PodId, limits: FabricLimits) -> Self {
        let counts = Arc::new(Counts::default());
        let outbox = Arc::new(FabricOutbox::new(id, limits.clone(), counts.clone()));
        let recorder = Arc::new(Recorder::default());
        let core = FabricCore::new(id, id.to_string(), limits, counts, outbox.clone(), recorder.clone());
        let mut pod = Self {
            id,
            outbox,
            core,
            recorder,
            is_connected: false,
            was_connected: false,
            server: 0,
            commands: VecDeque::new(),
            wire: VecDeque::new(),
            subscribed: BTreeSet::new(),
            channels: BTreeMap::new(),
            joined: BTreeSet::new(),
            sent: BTreeMap::new(),
        };
        for subject in [Subject::Control, Subject::ControlOf(id)] {
            pod.commands.push_back(Up::Subscribe(subject));
            pod.channels.insert(subject, VecDeque::new());
        }
        for to in [To::Pods, To::Pod(id)] {
            pod.join(to, 0);
        }
        pod
    }

    pub(super) fn messages(&self) -> usize {
        let seen = self.recorder.seen.lock().unwrap();
        seen.iter().filter(|(_, event)| matches!(event, Seen::Message { .. })).count()
    }

    pub(super) fn is_joined(&self, to: To) -> bool {
        let seen = self.recorder.seen.lock().unwrap();
        seen.iter()
            .any(|(_, event)| matches!(event, Seen::Joined { to: joined, complete: true } if *joined == to))
    }

    pub(super) fn gaps(&self) -> Vec<Gap> {
        let seen = self.recorder.seen.lock().unwrap();
        let gaps = seen.iter().filter_map(|(_, event)| match event {
            Seen::Gap(gap) => Some(*gap),
            _ => None,
        });
        gaps.collect()
    }

    pub(super) fn connect(&mut self, nats: &mut Nats, server: usize, now: Millis) {
        (self.is_connected, self.was_connected, self.server) = (true, true, server);
        nats.down.insert(self.id, VecDeque::new());
        self.wire.extend(self.subscribed.iter().map(|subject| Up::Subscribe(*subject)));
        self.recorder.see(Seen::Connecting);
        self.core.connected(now, 1 << 20);
        self.recorder.see(Seen::Connected);
    }

    pub(super) fn disconnect(&mut self, nats: &mut Nats, now: Millis) {
        self.is_connected = false;
        self.wire.clear();
        nats.drop_client(self.server, self.id);
        self.recorder.see(Seen::Disconnected);
        self.core.disconnected(now);
    }

    pub(super) fn join(&mut self, to: To, now: Millis) {
        self.joined.insert(to);
        self.recorder.see(Seen::JoinRequested(to));
        if self.core.join(to, now) {
            self.channels.insert(Subject::To(to), VecDeque::new());
            self.commands.push_back(Up::Subscribe(Subject::To(to)));
            self.core.subscribed(vec![to], now);
        }
    }

    pub(super) fn leave(&mut self, to: To) {
        self.joined.remove(&to);
        self.core.leave(to);
        self.channels.remove(&Subject::To(to));
        self.commands.push_back(Up::Unsubscribe(Subject::To(to)));
        self.recorder.see(Seen::Left(to));
    }

    pub(super) fn send(&mut self, to: To, bytes: usize) {
        if !self.was_connected {
            return;
        }
        let sent = self.sent.entry(to).or_default();
        let index = sent.len() as u64;
        sent.push(stamp());
        let sent = self.outbox.send(to, &[&index.to_be_bytes(), &[7; 200][..bytes]]);
        assert!(!matches!(sent, Sent::Dropped(crate::FabricDropReason::Stopped)));
    }

    pub(super) fn flush(&mut self) {
        if !self.is_connected {
            return;
        }
        self.outbox.close_batches();
        while let Some(outgoing) = self.outbox.pop() {
            let (subject, probe) = (outgoing.destination.into(), outgoing.probe);
            self.commands.push_back(Up::Publish { subject, frame: outgoing.payload(self.id), probe });
        }
    }

    /// The NATS client writes some of its commands.
    pub(super) fn write(&mut self, count: usize) {
        if !self.is_connected {
            return;
        }
        for _ in 0..count.min(self.commands.len()) {
            let Some(command) = self.commands.pop_front() else { return };
            match &command {
                Up::Subscribe(subject) => _ = self.subscribed.insert(*subject),
                Up::Unsubscribe(subject) => _ = self.subscribed.remove(subject),
                Up::Publish { .. } => {}
            }
            self.wire.push_back(command);
        }
    }

    pub(super) fn read(&mut self, nats: &mut Nats, count: usize) {
        let Some(down) = nats.down.get_mut(&self.id) else { return };
        for message in down.drain(..count.min(down.len())) {
            let subject = match &message {
                Down::Message { subject, .. } => *subject,
                Down::NoResponders { .. } => Subject::ControlOf(self.id),
            };
            if let Some(channel) = self.channels.get_mut(&subject) {
                channel.push_back(message);
            }
        }
    }

    /// The fabric takes a message of one of the subscriptions; false when there is none.
    pub(super) fn consume(&mut self, rng: &mut Rng, now: Millis) -> bool {
        let mut filled: Vec<_> = self
            .channels
            .iter()
            .filter(|(_, channel)| !channel.is_empty())
            .map(|(subject, _)| *subject)
            .collect();
        if filled.is_empty() {
            return false;
        }
        filled.sort_unstable_by_key(|subject| format!("{subject:?}"));
        let subject = filled[rng.usize(..filled.len())];
        match self.channels.get_mut(&subject).and_then(VecDeque::pop_front) {
            Some(Down::NoResponders { to, probe }) => self.core.no_responders(to, probe),
            Some(Down::Message { subject: Subject::To(to), frame }) => self.core.received(to, frame, now),
            Some(Down::Message { frame, .. }) => self.core.received_control(frame, now),
            None => unreachable!(),
        }
        true
    }
}
