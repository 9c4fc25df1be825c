//! State shared by the user's threads and the fabric's thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::address::{Subjects, To};
use crate::clock::{FabricClock, Millis};
use crate::collections::{HashMap, HashSet};
use crate::core::FabricCore;
use crate::counters::Counts;
use crate::limits::FabricLimits;
use crate::link::state::Link;
use crate::outbox::FabricOutbox;
use crate::sink::Sink;

pub(crate) struct FabricContext {
    pub(crate) limits: FabricLimits,
    pub(crate) subjects: Subjects,
    pub(crate) counts: Arc<Counts>,
    pub(crate) outbox: Arc<FabricOutbox>,
    pub(crate) link: Arc<Link>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) clock: FabricClock,
    /// Only the fabric's thread takes this lock, and it holds the lock while it calls the sink.
    pub(crate) core: Mutex<FabricCore>,
    pub(crate) join_requests: Mutex<JoinRequests>,
    pub(crate) join_requested: Notify,
    pub(crate) stop: Notify,
    /// Asks the fabric's thread to send the queued messages and then end.
    pub(crate) must_finish: Notify,
    /// The server has asked its clients to move to another server.
    pub(crate) must_move: Notify,
    /// A task of the fabric has panicked.
    pub(crate) failed: Notify,
}

/// The joins and leaves that the user asked for.
#[derive(Default)]
pub(crate) struct JoinRequests {
    joined: HashSet<To>,
    changes: HashMap<To, JoinRequest>,
}

/// The steps for a receiver, in this order. A receiver that is joined again at once is left first, because its user
/// waits for [`Sink::joined`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JoinRequest {
    pub(crate) leaves: bool,
    pub(crate) joins: bool,
}

impl FabricContext {
    pub(crate) fn now(&self) -> Millis {
        self.clock.now()
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, FabricCore> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the fabric's thread to join or leave; false at the limit of joins.
    pub(crate) fn request_join(&self, to: To, joins: bool) -> bool {
        let mut join_requests = self.join_requests.lock().unwrap_or_else(PoisonError::into_inner);
        if joins {
            if join_requests.joined.len() >= self.limits.joins_max as usize
                && !join_requests.joined.contains(&to)
            {
                self.counts.joins_refused.add(1);
                return false;
            }
            join_requests.joined.insert(to);
        } else {
            join_requests.joined.remove(&to);
        }
        let request = join_requests.changes.entry(to).or_default();
        *request = JoinRequest { leaves: request.leaves || !joins, joins };
        drop(join_requests);
        self.join_requested.notify_one();
        true
    }

    pub(crate) fn take_join_requests(&self) -> HashMap<To, JoinRequest> {
        let mut join_requests = self.join_requests.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut join_requests.changes)
    }
}
