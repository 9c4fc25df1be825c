//! The history of each pod's sessions, as the pod saw it. The checks compare it with the store.

use std::collections::{BTreeMap, BTreeSet};

use millrace_layers::{BrokerId, Position, streams::StreamId};
use millrace_storage::{StoreVersion, Versionstamp};

use super::{MessageId, PodHistory};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subscribed {
    pub(crate) filter: String,
    pub(crate) stream: StreamId,
    pub(crate) since: StoreVersion,
}

/// The time in which one pod owns a session. It begins with the pod's attempt to attach, whose number names it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenure {
    pub(crate) broker: BrokerId,
    pub(crate) client: String,
    pub(crate) pod: String,
    pub(crate) clean: bool,
    pub(crate) expiry_s: u32,
    pub(crate) will: Option<(MessageId, u32)>,
    /// `None` while it is unknown whether the attach succeeded.
    pub(crate) found: Option<Found>,
    pub(crate) subscriptions: BTreeMap<String, Subscribed>,
    /// For each subscription, the position after which the session must get every matching message.
    pub(crate) complete_from: BTreeMap<Subscribed, Versionstamp>,
    /// Filters whose subscription or removal has no answer yet, so the store may have them or not.
    pub(crate) doubtful: BTreeSet<String>,
    pub(crate) cursors: Vec<(Position, Write)>,
    /// The detach after a DISCONNECT that removes the will, and its result.
    pub(crate) farewell: Option<Write>,
    pub(crate) ends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    InDoubt,
    Done,
    Refused,
}

/// The session as the attach found it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) stamp: Versionstamp,
    pub(crate) epoch: u64,
    pub(crate) now_ms: u64,
    pub(crate) present: bool,
    /// The session's life, named by the attempt that created the session; a clean start begins a new life.
    pub(crate) life: u64,
    pub(crate) cursor: Position,
    pub(crate) before: Option<Before>,
    pub(crate) subscriptions: Vec<Subscribed>,
    pub(crate) received: Vec<u16>,
}

/// The session's row in the store before the attach, written by the tenure `attempt`.
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

impl PodHistory {
    pub(crate) fn tenure(&mut self, attempt: u64) -> &mut Tenure {
        self.tenures.entry(attempt).or_default()
    }

    /// A pod has attached the session and found it as `found` says.
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
        tenure.subscriptions = found
            .subscriptions
            .iter()
            .map(|subscribed| (subscribed.filter.clone(), subscribed.clone()))
            .collect();
        tenure.complete_from =
            found.subscriptions.iter().map(|subscribed| (subscribed.clone(), found.stamp)).collect();
        tenure.found = Some(found);
    }

    /// The pod has requested to subscribe or to unsubscribe.
    pub(crate) fn changes(&mut self, attempt: u64, filter: &str) {
        self.tenure(attempt).doubtful.insert(filter.into());
    }

    /// The request is answered: `None` when the filter was removed.
    pub(crate) fn changed(
        &mut self,
        attempt: u64,
        filter: &str,
        subscribed: Option<(Subscribed, Versionstamp)>,
    ) {
        let tenure = self.tenure(attempt);
        tenure.doubtful.remove(filter);
        match subscribed {
            Some((subscribed, stamp)) => {
                tenure.complete_from.entry(subscribed.clone()).or_insert(stamp);
                tenure.subscriptions.insert(filter.into(), subscribed);
            }
            None => {
                tenure.subscriptions.remove(filter);
            }
        }
    }

    pub(crate) fn unchanged(&mut self, attempt: u64, filter: &str) {
        self.tenure(attempt).doubtful.remove(filter);
    }

    /// Returns the index for the result.
    pub(crate) fn writes_cursor(&mut self, attempt: u64, cursor: Position) -> usize {
        let cursors = &mut self.tenure(attempt).cursors;
        cursors.push((cursor, Write::InDoubt));
        cursors.len() - 1
    }

    pub(crate) fn wrote_cursor(&mut self, attempt: u64, at: usize, write: Write) {
        self.tenure(attempt).cursors[at].1 = write;
    }
}
