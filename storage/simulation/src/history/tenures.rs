//! Tenures: the time that a pod has a session, from an attempt to attach on.

use std::collections::{BTreeMap, BTreeSet};

use millrace_layers::{BrokerId, Position, streams::StreamId};
use millrace_storage::{Version, Versionstamp};

use super::{History, MessageId};

/// A subscription that a session has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kept {
    pub(crate) filter: String,
    pub(crate) stream: StreamId,
    pub(crate) since: Version,
}

/// An attempt to attach, and what came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenure {
    pub(crate) broker: BrokerId,
    pub(crate) client: String,
    pub(crate) pod: String,
    pub(crate) clean: bool,
    pub(crate) expiry_s: u32,
    /// The will, and its delay in seconds.
    pub(crate) will: Option<(MessageId, u32)>,
    /// `None` while it is not known whether it was attached.
    pub(crate) found: Option<Found>,
    /// What it has subscribed to, as it was answered.
    pub(crate) kept: BTreeMap<String, Kept>,
    /// From when on each of its subscriptions has everything.
    pub(crate) complete_from: BTreeMap<Kept, Versionstamp>,
    /// Filters of which it is not known whether they were subscribed to or left.
    pub(crate) doubtful: BTreeSet<String>,
    /// Cursors that it wrote.
    pub(crate) cursors: Vec<(Position, Write)>,
    /// Whether it asked for an end without the will; and whether that was answered.
    pub(crate) farewell: Option<Write>,
    /// Whether it asked for the session's end.
    pub(crate) ends: bool,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    InDoubt,
    Done,
    /// It did not happen.
    Refused,
}

/// What an attach found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) stamp: Versionstamp,
    pub(crate) epoch: u64,
    pub(crate) now_ms: u64,
    pub(crate) present: bool,
    /// The first attempt of the session's life.
    pub(crate) life: u64,
    pub(crate) cursor: Position,
    pub(crate) before: Option<Before>,
    pub(crate) kept: Vec<Kept>,
    pub(crate) received: Vec<u16>,
}

/// The session as it was.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    pub(crate) life: u64,
    pub(crate) attempt: u64,
    pub(crate) epoch: u64,
    pub(crate) cursor: Position,
    pub(crate) expiry_s: u32,
    pub(crate) detached_at_ms: u64,
}

impl Before {
    pub(crate) fn is_expired(&self, now_ms: u64) -> bool {
        let expires = self.detached_at_ms + u64::from(self.expiry_s) * 1_000;
        self.detached_at_ms > 0 && expires <= now_ms
    }
}

impl History {
    pub(crate) fn tenure(&mut self, attempt: u64) -> &mut Tenure {
        self.tenures.entry(attempt).or_default()
    }

    pub(crate) fn attached(&mut self, attempt: u64, found: Found) {
        let (broker, client) = (self.tenure(attempt).broker, self.tenure(attempt).client.clone());
        self.client(broker, &client).sending.take_if(|sending| sending.life != found.life);
        if !self.client(broker, &client).expects(&found.received) {
            let sending = self.client(broker, &client).sending;
            self.violated(format!(
                "packet ids: {client} was given {:?} and sends {sending:?}",
                found.received
            ));
        }
        let tenure = self.tenure(attempt);
        tenure.kept = found.kept.iter().map(|kept| (kept.filter.clone(), kept.clone())).collect();
        tenure.complete_from = found.kept.iter().map(|kept| (kept.clone(), found.stamp)).collect();
        tenure.found = Some(found);
    }

    /// A subscription is asked for, or its end.
    pub(crate) fn changes(&mut self, attempt: u64, filter: &str) {
        self.tenure(attempt).doubtful.insert(filter.into());
    }

    /// It is answered: `None` when the filter was left.
    pub(crate) fn changed(&mut self, attempt: u64, filter: &str, kept: Option<(Kept, Versionstamp)>) {
        let tenure = self.tenure(attempt);
        tenure.doubtful.remove(filter);
        match kept {
            Some((kept, stamp)) => {
                tenure.complete_from.entry(kept.clone()).or_insert(stamp);
                tenure.kept.insert(filter.into(), kept);
            }
            None => {
                tenure.kept.remove(filter);
            }
        }
    }

    /// It did not happen.
    pub(crate) fn unchanged(&mut self, attempt: u64, filter: &str) {
        self.tenure(attempt).doubtful.remove(filter);
    }

    /// A cursor is written. Returns where what becomes of it is noted.
    pub(crate) fn writes_cursor(&mut self, attempt: u64, cursor: Position) -> usize {
        let cursors = &mut self.tenure(attempt).cursors;
        cursors.push((cursor, Write::InDoubt));
        cursors.len() - 1
    }

    pub(crate) fn wrote_cursor(&mut self, attempt: u64, at: usize, write: Write) {
        self.tenure(attempt).cursors[at].1 = write;
    }
}
