//! A request for a page of a session's messages, and the page that comes back.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use millrace_layers::Position;
use millrace_layers::streams::StreamSource;
use millrace_router::Target;
use millrace_session::{Message, StoredPosition};

use super::AttachedSession;
use crate::broker::Broker;
use crate::connection_id::ConnectionId;

pub(crate) struct StreamRead {
    pub(crate) core: u16,
    pub(crate) broker: Arc<Broker>,
    pub(crate) sources: Arc<[StreamSource]>,
    pub(crate) cursor: Position,
    /// How often the page was made smaller, because the store could not read it in one transaction.
    pub(crate) cuts: u8,
    pub(crate) reader: PageReader,
}

pub(crate) enum PageReader {
    /// A session, the version of its list of sources (a page for an older list is discarded), and what ends with the session's wish
    /// for the page.
    Session(Target, u32, Weak<()>),
    /// A connection that gets its session together with the first page, and what is found of the messages in flight so far.
    Connection(ConnectionId, Box<AttachedSession>, FoundInFlight),
}

impl StreamRead {
    pub(crate) fn is_gone(&self) -> bool {
        matches!(&self.reader, PageReader::Session(_, _, asker) if asker.strong_count() == 0)
    }
}

/// Messages that were in flight and are found in the streams, up to `through`.
#[derive(Default)]
pub(crate) struct FoundInFlight {
    pub(crate) messages: HashMap<StoredPosition, Arc<Message>>,
    pub(crate) through: Position,
}

/// A message, the number of its publisher, and the indices in [`StreamRead::sources`] of the streams that have it.
pub(crate) type PageEntry = (Arc<Message>, u64, Vec<usize>);

/// All streams were read up to `through`; at most `missed` messages were trimmed before they were read.
#[derive(Default)]
pub(crate) struct StoredPage {
    pub(crate) entries: Vec<PageEntry>,
    pub(crate) through: Position,
    pub(crate) more: bool,
    pub(crate) missed: u64,
    pub(crate) cuts: u8,
    /// Entries that were compared with the filters whose messages the store does not keep.
    pub(crate) compared: usize,
}
