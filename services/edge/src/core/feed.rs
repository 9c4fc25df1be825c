//! Where the messages of a persistent session come from: live copies, or the store. [`super::persistent`] decides.

use std::sync::Arc;

use millrace_layers::Position;
use millrace_mqtt::QoS;
use millrace_session::{Delivery, Hold, Message};
use smallvec::SmallVec;

pub(super) enum Feed {
    Live,
    Reading(ReadState),
}

pub(super) struct ReadState {
    /// The session has got everything up to here.
    pub(super) through: Position,
    /// A page is requested; `at_end`: the last page reached the end of the streams.
    pub(super) asked: bool,
    pub(super) at_end: bool,
    /// See [`crate::jobs::StreamRead::cuts`].
    pub(super) cuts: u8,
    pub(super) cut_pages: u8,
    pub(super) way: Way,
    /// A stream may have grown since the page was requested.
    pub(super) grown: bool,
    /// Set with the first request: the store drops requests that nobody waits for any more.
    pub(super) asker: Option<Arc<()>>,
}

/// Cut pages in a row after which a larger one is tried.
const CUT_PAGES: u8 = 32;

impl ReadState {
    pub(super) fn new(through: Position, way: Way) -> Self {
        Self { through, asked: false, at_end: false, cuts: 0, cut_pages: 0, way, grown: false, asker: None }
    }

    pub(super) fn note_cuts(&mut self, cuts: u8) {
        self.cut_pages = if cuts > self.cuts { 0 } else { self.cut_pages + 1 };
        self.cuts = cuts;
        if self.cut_pages >= CUT_PAGES {
            (self.cuts, self.cut_pages) = (cuts.saturating_sub(1), 0);
        }
    }
}

/// Progress of a reading session towards live delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// More messages must be read first: live copies are dropped.
    Far,
    /// The session follows its streams and never becomes live: live copies are dropped, and the session reads their messages.
    Follows,
    /// Live copies are held until the barrier with this number is passed.
    Barrier(u64),
    /// Live copies are held. Everything routed before the barrier is committed up to here.
    Passed(Position),
    /// The same, and everything is read. The session becomes live when its broker's fan-outs up to this number have ended, because
    /// a live session would get their copies too late or twice.
    FansOut(u64),
}

pub(super) struct HeldMessage {
    pub(super) message: Arc<Message>,
    pub(super) qos: QoS,
    pub(super) retain: bool,
    pub(super) shared: u64,
    pub(super) identifiers: SmallVec<[u32; 1]>,
    pub(super) memory: Option<Hold>,
}

impl HeldMessage {
    pub(super) fn new(delivery: &Delivery<'_>) -> Self {
        Self {
            message: delivery.message.clone(),
            qos: delivery.qos,
            retain: delivery.retain,
            shared: delivery.shared,
            identifiers: SmallVec::from_slice(delivery.identifiers),
            memory: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    Deliver,
    Hold,
    /// The store has the message, or will have it.
    Drop,
}
