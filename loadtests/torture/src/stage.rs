//! The state that all clients share: the record, the time, and the phase of the run.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use millrace_torture::history::{Event, History, PublishAnswer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Clients publish, connect and disconnect; the server is killed.
    Storm,
    /// Clients publish nothing new: they connect, stay, and finish open exchanges.
    Finale,
    /// Every request is answered. Retained messages are checked once more, and wills and late
    /// deliveries are awaited.
    Closing,
}

pub(crate) struct Stage {
    pub(crate) history: History,
    pub(crate) now_ms: u64,
    pub(crate) phase: Phase,
    /// The pods that run now, with their addresses.
    pub(crate) up: Vec<(usize, SocketAddr)>,
    /// A new subscriber must receive the retained message of these topics, because their PUBACK or
    /// PUBCOMP arrived.
    pub(crate) retained: BTreeSet<Arc<str>>,
    /// Acknowledged publishes, for the line of progress.
    pub(crate) acknowledged: usize,
    pub(crate) received: usize,
    pub(crate) busy_ms: u64,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self {
            history: History::default(),
            now_ms: 0,
            phase: Phase::Storm,
            up: Vec::new(),
            retained: BTreeSet::new(),
            acknowledged: 0,
            received: 0,
            busy_ms: 0,
        }
    }

    pub(crate) fn record(&mut self, event: Event) {
        match &event {
            Event::Answered { answer: PublishAnswer::PubAck | PublishAnswer::PubRec, .. } => {
                self.acknowledged += 1;
            }
            Event::Received { .. } => self.received += 1,
            _ => {}
        }
        self.busy_ms = self.now_ms;
        self.history.record(self.now_ms, event);
    }
}
