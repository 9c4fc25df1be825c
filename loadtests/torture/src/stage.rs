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
    /// Deliveries and answers that the server owes. A CONNACK does not count, because a server could accept and close connections
    /// for ever.
    pub(crate) arrived: usize,
    /// The run waits for acknowledgements, so publishers stay connected until theirs come.
    pub(crate) awaits_store: bool,
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
            arrived: 0,
            awaits_store: false,
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
        self.arrived += usize::from(matches!(
            event,
            Event::Received { .. }
                | Event::Released { .. }
                | Event::Answered { .. }
                | Event::Subscribed { .. }
                | Event::Unsubscribed { .. }
        ));
        self.history.record(self.now_ms, event);
    }
}
