//! The actions of all pods and the answers that they got, in order. Pods write the history. The
//! check reads it, and so do the simulated clients, whose memory outlives their pods.
//!
//! A request is recorded before it is made, and its answer afterwards. If a pod dies in between,
//! the result is unknown.

mod clients;
mod groups;
mod messages;
mod tenures;

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use millrace_layers::{BrokerId, Position, streams::StreamId};
use millrace_storage::Versionstamp;

pub(crate) use clients::{Client, Stage};
pub(crate) use groups::Groups;
pub(crate) use messages::{MessageId, Messages, Retain, body, of_body};
pub(crate) use tenures::{Before, Found, Subscribed, Tenure, Write};

/// The one history of a run, which all pods write.
pub type SharedHistory = Rc<RefCell<PodHistory>>;

/// Most recorded violations; one is enough, a few more show the course of events.
const VIOLATIONS_MAX: usize = 20;

/// Everything that one run did, against which each promise is checked.
#[derive(Default)]
pub struct PodHistory {
    pub(crate) brokers: Vec<BrokerId>,
    pub(crate) messages: Messages,
    /// By the number of the attempt to attach.
    pub(crate) tenures: BTreeMap<u64, Tenure>,
    pub(crate) readings: Vec<Reading>,
    pub(crate) retained: Vec<RetainedSeen>,
    /// Streams with two partitions.
    pub(crate) wide: Vec<(BrokerId, StreamId)>,
    pub(crate) groups: Groups,
    pub(crate) clients: BTreeMap<(BrokerId, String), Client>,
    /// Entries that limits removed, according to the answers.
    pub(crate) trimmed: u64,
    pub(crate) pods: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
    violations: Vec<String>,
    last: u64,
}

/// A page that a pod read for a session.
pub(crate) struct Reading {
    pub(crate) attempt: u64,
    pub(crate) from: Position,
    pub(crate) through: Position,
    pub(crate) sources: Vec<Subscribed>,
    pub(crate) entries: Vec<(Position, MessageId)>,
    /// By source, most entries that a limit removed before they were read.
    pub(crate) missed: BTreeMap<usize, u64>,
}

pub(crate) struct RetainedSeen {
    pub(crate) broker: BrokerId,
    pub(crate) filter: String,
    pub(crate) stamp: Versionstamp,
    pub(crate) found: BTreeMap<String, MessageId>,
}

#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) broker: BrokerId,
    pub(crate) stream: StreamId,
    pub(crate) filter: String,
    /// Its stream is complete from here on.
    pub(crate) since: Versionstamp,
}

impl PodHistory {
    /// A number for an attempt, a message or an event, in the order in which they begin.
    pub(crate) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn violated(&mut self, what: String) {
        self.count("violations");
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(what);
        }
    }

    /// One sentence for each broken promise, in the order of discovery; later ones than the first few are left out.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// How often each kind of action ran, so that a run that tested nothing shows.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counts.iter().map(|(what, count)| (*what, *count))
    }

    pub(crate) fn client(&mut self, broker: BrokerId, client: &str) -> &mut Client {
        self.clients.entry((broker, client.into())).or_default()
    }
}
