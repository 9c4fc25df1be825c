//! What event loops leave with the store, and what comes back.

use std::sync::Arc;

use millrace_layers::Position;
use millrace_layers::sessions::SessionId;
use millrace_layers::streams::Source;
use millrace_layers::subscriptions::{Options, Subscription};
use millrace_mqtt::{PacketId, QoS, ReasonCode};
use millrace_router::{Target, TreeSnapshot};
use millrace_session::{Entry, InFlight, Message, Place};
use smallvec::SmallVec;

use super::inflight::Row;
use super::queue;
use crate::broker::{Broker, Routes};
use crate::core::Replay;
use crate::core::connection::ConnectionId;

/// Something to write, and the publisher that waits for it.
pub(crate) struct Job {
    pub(crate) write: Write,
    pub(crate) ack: Option<Ack>,
}

/// Something to write.
pub(crate) enum Write {
    Publish(Publish),
    /// A connection takes a session, or ends it to have a new one that is not kept.
    Attach(Box<Attach>),
    Subscribe(Box<Subscribe>),
    Unsubscribe(Box<Unsubscribe>),
    Ids(Box<Ids>),
    Checkpoint(Box<Checkpoint>),
    Detach(Box<Detach>),
    /// Nothing: who left it is told when all that was left before is committed.
    Mark {
        core: u16,
        fence: u64,
    },
}

/// Who is to be told, once a message is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) connection: ConnectionId,
    pub(crate) session: Target,
    pub(crate) qos: QoS,
    pub(crate) packet_id: PacketId,
    /// The packet id is kept beside the message: to be forgotten with PUBREL.
    pub(crate) keeps_id: bool,
}

/// A session of the store, with the proof of who owns it.
#[derive(Clone)]
pub(crate) struct SessionKey {
    pub(crate) broker: Arc<Broker>,
    pub(crate) client: Arc<str>,
    pub(crate) epoch: u64,
}

impl SessionKey {
    pub(crate) fn id(&self) -> SessionId<'_> {
        SessionId { broker: self.broker.id, client: self.client.as_bytes() }
    }
}

/// A message that matches persistent filters, or is retained.
pub(crate) struct Publish {
    pub(crate) message: Arc<Message>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) from: Option<ConnectionId>,
    /// As [`super::record::publisher`] has it.
    pub(crate) publisher: u64,
    pub(crate) retain: Retain,
    /// It is handed to its receivers once it is committed, not before.
    pub(crate) deliver: bool,
    /// The publisher's session, when it keeps the packet id.
    pub(crate) inbound: Option<SessionKey>,
}

/// What a publish does to the retained message of its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retain {
    No,
    /// The broker has it: what it has is to be stored.
    Set,
    /// To be set with the commit.
    AtCommit,
}

/// A CONNECT that concerns the store.
pub(crate) struct Attach {
    pub(crate) broker: Arc<Broker>,
    pub(crate) client: Arc<str>,
    pub(crate) connection: ConnectionId,
    pub(crate) clean: bool,
    /// Seconds; 0: ends with the connection.
    pub(crate) expiry_s: u32,
    pub(crate) will: Option<(Arc<Message>, u32)>,
}

/// The session that a connection has got.
#[derive(Default)]
pub(crate) struct Attached {
    pub(crate) client: Arc<str>,
    /// 0: nothing of it is kept.
    pub(crate) epoch: u64,
    pub(crate) expiry_s: u32,
    pub(crate) present: bool,
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) rows: Vec<(PacketId, Row)>,
    /// `rows`, once their messages were read.
    pub(crate) in_flight: Vec<(PacketId, InFlight)>,
    /// QoS 2 packet ids of the client.
    pub(crate) received: Vec<PacketId>,
    pub(crate) cursor: Position,
    pub(crate) acknowledged: Vec<Position>,
}

/// A SUBSCRIBE.
pub(crate) struct Subscribe {
    pub(crate) session: SessionKey,
    pub(crate) target: Target,
    /// Filters that were granted, with their places among the reasons.
    pub(crate) filters: Vec<(Box<str>, Options, usize)>,
    pub(crate) pending: PendingSubscribe,
}

/// What a SUBSCRIBE is answered with.
pub(crate) struct PendingSubscribe {
    pub(crate) packet_id: PacketId,
    pub(crate) reasons: SmallVec<[ReasonCode; 4]>,
    pub(crate) replays: SmallVec<[Replay; 2]>,
    pub(crate) retained: Option<Arc<TreeSnapshot<Arc<Message>>>>,
}

/// An UNSUBSCRIBE.
pub(crate) struct Unsubscribe {
    pub(crate) session: SessionKey,
    pub(crate) target: Target,
    pub(crate) filters: Vec<Box<str>>,
    pub(crate) packet_id: PacketId,
    pub(crate) reasons: SmallVec<[ReasonCode; 4]>,
}

/// QoS 2 packet ids of a session.
pub(crate) struct Ids {
    pub(crate) session: SessionKey,
    pub(crate) target: Target,
    pub(crate) write: IdWrite,
}

/// What is written of packet ids.
#[derive(Debug)]
pub(crate) enum IdWrite {
    /// These were given; all up to the cursor is acknowledged, so what stood under the same ids before is over.
    Reserve(Vec<(PacketId, Vec<u8>)>, Position),
    /// The client has the message.
    Release(PacketId, Option<Place>),
    /// The client uses the id no more.
    Forget(PacketId),
}

/// How far a session has come.
pub(crate) struct Checkpoint {
    pub(crate) session: SessionKey,
    pub(crate) cursor: Position,
    /// Packet ids that nobody uses any more.
    pub(crate) completed: Vec<PacketId>,
    /// Streams to trim where the session is the only one that reads them.
    pub(crate) streams: Vec<u64>,
}

/// The end of a connection.
pub(crate) struct Detach {
    pub(crate) session: SessionKey,
    pub(crate) keep_will: bool,
    pub(crate) expiry_s: u32,
    pub(crate) now_ms: u64,
    /// All up to here was handed to the session.
    pub(crate) base: Position,
    /// Sent and unacknowledged.
    pub(crate) in_flight: Vec<(PacketId, InFlight)>,
    /// Not sent.
    pub(crate) unsent: Vec<Entry>,
    /// What the session got after `base`, or out of order, acknowledged or not.
    pub(crate) recent: Vec<Arc<Message>>,
    pub(crate) seen: Vec<Position>,
    /// QoS 2 packet ids of the client that the store does not know.
    pub(crate) received: Vec<PacketId>,
}

impl Detach {
    /// Whether the places of all its messages are known.
    pub(super) fn is_placed(&self) -> bool {
        let sent = self.in_flight.iter().all(|(_, in_flight)| match in_flight {
            InFlight::Published(entry) => entry.message.is_placed() || entry.replay,
            InFlight::Released(_) => true,
        });
        sent && self.recent.iter().all(|message| message.is_placed())
            && self.unsent.iter().all(|entry| entry.message.is_placed() || entry.replay)
    }
}

/// What is read next of a session's streams.
pub(crate) struct Read {
    pub(crate) core: u16,
    pub(crate) broker: Arc<Broker>,
    pub(crate) sources: Vec<Source>,
    pub(crate) cursor: Position,
    pub(crate) reader: Reader,
}

/// Who reads.
pub(crate) enum Reader {
    /// With the version of its sources.
    Session(Target, u32),
    /// A connection that gets its session with the first page.
    Connection(ConnectionId, Box<Attached>),
}

/// Messages of a session's streams, in order.
#[derive(Default)]
pub(crate) struct Page {
    /// With the publisher and the sources of each.
    pub(crate) entries: Vec<(Arc<Message>, u64, Vec<usize>)>,
    pub(crate) through: Position,
    pub(crate) more: bool,
    pub(crate) missed: u64,
}

impl queue::Sized for Job {
    fn size(&self) -> usize {
        match &self.write {
            Write::Publish(publish) => publish.message.size() + 64,
            Write::Attach(attach) => 256 + attach.will.as_ref().map_or(0, |(will, _)| will.size()),
            Write::Subscribe(subscribe) => 256 * subscribe.filters.len(),
            Write::Unsubscribe(unsubscribe) => 256 * unsubscribe.filters.len(),
            Write::Ids(_) | Write::Checkpoint(_) => 128,
            Write::Detach(detach) => 256 + 64 * detach.in_flight.len(),
            Write::Mark { .. } => 0,
        }
    }
}

impl queue::Sized for Read {
    fn size(&self) -> usize {
        0
    }
}
