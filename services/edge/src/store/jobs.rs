//! What event loops leave with the store, and what comes back.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use millrace_layers::Position;
use millrace_layers::limits::INLINE_SHARED_BYTES_MAX;
use millrace_layers::sessions::SessionId;
use millrace_layers::streams::{Source, StreamId};
use millrace_layers::subscriptions::{Options, Subscribed, Subscription};
use millrace_mqtt::{PacketId, QoS, ReasonCode};
use millrace_router::Target;
use millrace_session::{Entry, InFlight, Message, Place};
use smallvec::SmallVec;

use super::backlog::{Lane, Work};
use super::inflight::Row;
use super::queue::{self, Sized as _};
use super::streams::Wanted;
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
    Shared(Box<Shared>),
    /// An operator ends a session.
    Purge(Box<Purge>),
    /// The webhooks of a broker have changed: their queues are to follow.
    Webhooks(Arc<Broker>),
    /// Nothing: a publisher, of this broker, is told that a message was refused. What it left before that is refused too.
    Told(u64, ConnectionId),
    /// Nothing: the streams of a topic were grown by another pod, and shared subscriptions are to see whether theirs were.
    Grown(Arc<Broker>, Arc<str>),
    /// Nothing: another pod has said that it wants a session.
    Notices,
    /// Writes nothing. The core is notified when all jobs of the broker that were submitted before it are committed.
    Mark {
        core: u16,
        fence: u64,
        broker: u64,
    },
}

/// The publisher that gets an acknowledgement once its message is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) broker: u64,
    pub(crate) connection: ConnectionId,
    pub(crate) session: Target,
    pub(crate) qos: QoS,
    pub(crate) packet_id: PacketId,
    /// The packet id is kept beside the message: to be forgotten with PUBREL.
    pub(crate) keeps_id: bool,
    /// The message is handed on with the commit; the publisher's next ones wait for that.
    pub(crate) in_order: bool,
    /// The publisher can be told that a message is refused. One that cannot sends it again.
    pub(crate) hears_refusal: bool,
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

    fn name(&self) -> (u64, &str) {
        (self.broker.id, &self.client)
    }
}

/// A message that matches persistent filters, or is retained.
pub(crate) struct Publish {
    pub(crate) message: Arc<Message>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) from: Option<ConnectionId>,
    /// As [`super::record::publisher`] has it.
    pub(crate) publisher: u64,
    /// The broker has it as a retained message: what it has of this topic is to be stored.
    pub(crate) retains: bool,
    /// It is handed to its receivers once it is committed, not before.
    pub(crate) deliver: bool,
    /// The publisher's session, when it keeps the packet id.
    pub(crate) inbound: Option<SessionKey>,
    /// When it need not be stored, if it is handed on already.
    pub(crate) wanted: Option<Wanted>,
    /// When a message that is followed was queued, microseconds.
    pub(crate) queued_us: u64,
}

impl Publish {
    /// Whether all who subscribe have acknowledged it, and nobody has come meanwhile (P1).
    pub(super) fn is_settled(&self) -> bool {
        let kept = &self.routes.kept;
        self.wanted.is_some_and(|wanted| {
            self.message.acknowledged() >= wanted.acknowledged
                && kept.generation == self.routes.broker.streams.generation()
                && kept.changes() == wanted.changes
        })
    }
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
    /// The user that the client has shown to be, for whom the session is kept.
    pub(crate) user: Option<Box<str>>,
    /// Whether it came with a connect token: no session of somebody else is for it, nor one that is everybody's.
    pub(crate) is_visitor: bool,
    /// When the pod that has the session was asked to let go of it, milliseconds of the process; 0: it was not.
    pub(crate) asked_at: u64,
    /// When it is asked for again.
    pub(crate) ask_at: u64,
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
    /// Shared subscriptions that are not kept: whether others keep them is to be found out.
    pub(crate) shared: Vec<Box<str>>,
    pub(crate) pending: PendingSubscribe,
    /// Results of the filters that earlier transactions wrote.
    pub(super) written: Vec<Option<Subscribed>>,
    /// Filters up to here are in the next transaction.
    pub(super) until: usize,
}

impl Subscribe {
    pub(crate) fn new(
        session: SessionKey,
        target: Target,
        filters: Vec<(Box<str>, Options, usize)>,
        shared: Vec<Box<str>>,
        pending: PendingSubscribe,
    ) -> Self {
        let until = filters.len();
        Self { session, target, filters, shared, pending, written: Vec::new(), until }
    }

    /// Whether the next transaction has the last of its filters.
    pub(super) fn ends(&self) -> bool {
        self.until >= self.filters.len()
    }

    /// Filters that are not written.
    fn left(&self) -> usize {
        self.filters.len() - self.written.len()
    }

    /// Filters of the next transaction.
    pub(super) fn part(&self) -> &[(Box<str>, Options, usize)] {
        &self.filters[self.written.len()..self.until]
    }

    /// Whether a part of it may be found in streams.
    pub(crate) fn is_stored(&self) -> bool {
        !(self.filters.is_empty() && self.shared.is_empty())
    }
}

/// The answer of a SUBSCRIBE.
pub(crate) struct PendingSubscribe {
    pub(crate) packet_id: PacketId,
    /// One for each distinct filter.
    pub(crate) reasons: SmallVec<[ReasonCode; 4]>,
    /// The QoS that each of those was asked for with.
    pub(crate) asked: SmallVec<[QoS; 4]>,
    /// For each filter of the packet, its place in `reasons` and the QoS that it asked for.
    pub(crate) places: SmallVec<[(u32, QoS); 2]>,
    /// The reason string; empty for none.
    pub(crate) what: &'static str,
    pub(crate) replays: SmallVec<[Replay; 2]>,
    /// Its retained messages have their place in the session's queue already.
    pub(crate) holds: bool,
    /// What is retained was read from the store, up to here.
    pub(crate) retained_through: Option<Position>,
    /// Live copies are held until it is answered.
    pub(crate) asks: bool,
    /// New subscriptions of a session that is not kept: they end if the store cannot be asked.
    pub(crate) unkept: Vec<Box<str>>,
    /// The store could not be asked.
    pub(crate) is_refused: bool,
    /// It is answered when other pods have heard what they were told up to this number.
    pub(crate) told: u64,
}

impl PendingSubscribe {
    pub(crate) fn new(packet_id: PacketId) -> Self {
        Self {
            packet_id,
            reasons: SmallVec::new(),
            what: "",
            asked: SmallVec::new(),
            places: SmallVec::new(),
            replays: SmallVec::new(),
            holds: false,
            retained_through: None,
            asks: false,
            unkept: Vec::new(),
            is_refused: false,
            told: 0,
        }
    }
}

/// An UNSUBSCRIBE.
pub(crate) struct Unsubscribe {
    pub(crate) session: SessionKey,
    pub(crate) target: Target,
    pub(crate) filters: Vec<Box<str>>,
    /// Of the packet; `None` when the server ends them.
    pub(crate) packet_id: Option<PacketId>,
    pub(crate) reasons: SmallVec<[ReasonCode; 4]>,
    /// Filters of earlier transactions.
    pub(super) written: usize,
    /// Filters up to here are in the next transaction.
    pub(super) until: usize,
}

impl Unsubscribe {
    pub(crate) fn new(
        session: SessionKey,
        target: Target,
        filters: Vec<Box<str>>,
        packet_id: Option<PacketId>,
        reasons: SmallVec<[ReasonCode; 4]>,
    ) -> Self {
        let until = filters.len();
        Self { session, target, filters, packet_id, reasons, written: 0, until }
    }

    /// Filters that are not written.
    fn left(&self) -> usize {
        self.filters.len() - self.written
    }

    /// Filters of the next transaction.
    pub(super) fn part(&self) -> &[Box<str>] {
        &self.filters[self.written..self.until]
    }
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
    Reserve(Reserve),
    /// The client has the message.
    Release(PacketId, Option<Place>),
    /// The client uses the id no more.
    Forget(PacketId),
    /// The client was told that its message is refused. Nobody waits for this.
    TakeBack(PacketId),
}

/// Packet ids that were given to messages.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    pub(crate) rows: Vec<(PacketId, Vec<u8>)>,
    /// All up to here is acknowledged, so what stood under the same ids before is over.
    pub(crate) cursor: Position,
    /// What is acknowledged beyond it, as far as it must be known.
    pub(crate) acknowledged: Vec<Position>,
    /// Messages of shared subscriptions among them: no other member is to get them.
    pub(crate) taken: Vec<(StreamKey, Position)>,
}

/// A stream of the store: its broker's number, and its own within the broker.
pub(crate) type StreamKey = (u64, StreamId);

/// What became of messages of shared subscriptions: the stream, and the place.
#[derive(Default)]
pub(crate) struct Shared {
    /// Members have these.
    pub(crate) settled: Vec<(StreamKey, Position)>,
    /// Members have left without these.
    pub(crate) returned: Vec<(StreamKey, Position)>,
    /// A member has come to these.
    pub(crate) joined: Vec<StreamKey>,
}

/// A session that is to end.
pub(crate) struct Purge {
    pub(crate) broker: Arc<Broker>,
    pub(crate) client: Arc<str>,
    /// It had a connection.
    pub(crate) was_online: bool,
    /// Told whether there was one, or why it cannot be ended.
    pub(crate) done: SyncSender<Result<bool, String>>,
}

/// How far a session has come.
pub(crate) struct Checkpoint {
    pub(crate) session: SessionKey,
    pub(crate) cursor: Position,
    /// What was acknowledged beyond the cursor on an earlier connection.
    pub(crate) acknowledged: Vec<Position>,
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
    /// Those that stand in the store whole and stay as they are, in order.
    pub(crate) standing: Vec<u16>,
    /// Not sent.
    pub(crate) unsent: Vec<Entry>,
    /// What the session got after `base`, or out of order, acknowledged or not.
    pub(crate) recent: Vec<Arc<Message>>,
    pub(crate) seen: Vec<Position>,
    /// QoS 2 packet ids of the client that the store does not know.
    pub(crate) received: Vec<PacketId>,
}

impl Detach {
    /// Of a session that nobody has used.
    pub(crate) fn unused(broker: Arc<Broker>, attached: Attached, now_ms: u64) -> Self {
        let Attached { client, epoch, expiry_s, cursor, acknowledged, in_flight, .. } = attached;
        Self {
            session: SessionKey { broker, client, epoch },
            keep_will: true,
            expiry_s,
            now_ms,
            base: cursor,
            in_flight,
            standing: Vec::new(),
            unsent: Vec::new(),
            recent: Vec::new(),
            seen: acknowledged,
            received: Vec::new(),
        }
    }

    /// Whether the places of all its messages are known.
    pub(crate) fn is_placed(&self) -> bool {
        let sent = self.in_flight.iter().all(|(_, in_flight)| match in_flight {
            InFlight::Published(entry) => entry.message.is_placed() || entry.replay,
            InFlight::Released(_) => true,
        });
        sent && self.recent.iter().all(|message| message.is_placed())
            && self.unsent.iter().all(|entry| entry.message.is_placed() || entry.replay)
    }
}

pub(crate) enum ToRead {
    Page(Read),
    /// A broker that somebody connects to.
    Broker {
        core: u16,
        name: Arc<str>,
    },
}

pub(crate) struct Read {
    pub(crate) core: u16,
    pub(crate) broker: Arc<Broker>,
    pub(crate) sources: Vec<Source>,
    pub(crate) cursor: Position,
    pub(crate) reader: Reader,
}

pub(crate) enum Reader {
    /// With the version of its sources.
    Session(Target, u32),
    /// A connection that gets its session with the first page.
    Connection(ConnectionId, Box<Attached>),
}

/// A message, its publisher, and the numbers of the sources that have it.
pub(crate) type PageEntry = (Arc<Message>, u64, Vec<usize>);

/// Messages of a session's streams, in order.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) entries: Vec<PageEntry>,
    pub(crate) through: Position,
    pub(crate) more: bool,
    pub(crate) missed: u64,
}

impl Shared {
    /// The same, one for each broker: brokers take turns, so what is of several has no place in the order of one.
    fn by_broker(self) -> BTreeMap<u64, Self> {
        let mut all: BTreeMap<u64, Self> = BTreeMap::new();
        for settled in self.settled {
            all.entry(settled.0.0).or_default().settled.push(settled);
        }
        for returned in self.returned {
            all.entry(returned.0.0).or_default().returned.push(returned);
        }
        for joined in self.joined {
            all.entry(joined.0).or_default().joined.push(joined);
        }
        all
    }
}

impl Job {
    /// Filters that it says it changes in the next transaction.
    pub(super) fn filters(&self) -> usize {
        match &self.write {
            Write::Subscribe(subscribe) => subscribe.part().len() + subscribe.shared.len(),
            Write::Unsubscribe(unsubscribe) => unsubscribe.part().len(),
            _ => 0,
        }
    }

    /// Whose it is; `None` for a job that knows the number of its broker alone, or has none.
    pub(super) fn broker(&self) -> Option<&Arc<Broker>> {
        match &self.write {
            Write::Publish(publish) => Some(&publish.routes.broker),
            Write::Attach(attach) => Some(&attach.broker),
            Write::Subscribe(subscribe) => Some(&subscribe.session.broker),
            Write::Unsubscribe(unsubscribe) => Some(&unsubscribe.session.broker),
            Write::Ids(ids) => Some(&ids.session.broker),
            Write::Checkpoint(checkpoint) => Some(&checkpoint.session.broker),
            Write::Detach(detach) => Some(&detach.session.broker),
            Write::Purge(purge) => Some(&purge.broker),
            Write::Webhooks(broker) | Write::Grown(broker, _) => Some(broker),
            Write::Told(..) | Write::Shared(_) | Write::Notices | Write::Mark { .. } => None,
        }
    }

    /// Jobs of one broker each.
    pub(super) fn by_broker(self) -> SmallVec<[Self; 1]> {
        match self.write {
            Write::Shared(shared) => {
                let job = |shared| Self { write: Write::Shared(Box::new(shared)), ack: None };
                shared.by_broker().into_values().map(job).collect()
            }
            write => SmallVec::from_buf([Self { write, ack: self.ack }]),
        }
    }
}

/// Bytes that a filter stands for.
const FILTER_BYTES: usize = 256;

/// The broker of jobs that have no order among themselves or with others.
const NO_BROKER: u64 = u64::MAX;

/// Estimated costs of jobs, in units of a small message for one stream. A filter counts for more than its transaction
/// takes: it also makes the loops match topics anew.
pub(super) mod cost {
    /// Bytes that cost as much as a row.
    pub(super) const BYTES: usize = 1_024;
    pub(in crate::store) const FILTER: usize = 20;
    /// A retained message: the rows that it replaces are read.
    pub(super) const RETAINED: usize = 4;
    pub(super) const SESSION: usize = 8;
    pub(super) const IDS: usize = 2;
    pub(super) const WEBHOOKS: usize = 50;
}

impl Work for Job {
    fn lane(&self) -> Lane {
        Lane::Broker(match &self.write {
            Write::Publish(publish) => publish.routes.broker.id,
            Write::Attach(attach) => attach.broker.id,
            Write::Subscribe(subscribe) => subscribe.session.broker.id,
            Write::Unsubscribe(unsubscribe) => unsubscribe.session.broker.id,
            Write::Ids(ids) => ids.session.broker.id,
            Write::Detach(detach) => detach.session.broker.id,
            Write::Purge(purge) => purge.broker.id,
            Write::Webhooks(broker) | Write::Grown(broker, _) => broker.id,
            Write::Told(broker, _) => *broker,
            Write::Shared(shared) => {
                let Shared { settled, returned, joined } = &**shared;
                let placed = settled.first().or(returned.first()).map(|(stream, _)| stream);
                placed.or(joined.first()).map_or(NO_BROKER, |(broker, _)| *broker)
            }
            Write::Notices => NO_BROKER,
            Write::Checkpoint(_) => return Lane::Checkpoint,
            Write::Mark { broker, .. } => return Lane::Mark(*broker),
        })
    }

    fn bytes(&self) -> usize {
        match &self.write {
            Write::Subscribe(subscribe) => FILTER_BYTES * subscribe.left(),
            Write::Unsubscribe(unsubscribe) => FILTER_BYTES * unsubscribe.left(),
            _ => self.size(),
        }
    }

    fn cost(&self) -> usize {
        match &self.write {
            Write::Publish(publish) => {
                let retained = if publish.retains { cost::RETAINED } else { 0 };
                publish.routes.kept.streams.len() + retained + self.size() / cost::BYTES
            }
            Write::Subscribe(subscribe) => cost::FILTER * (subscribe.left() + subscribe.shared.len()),
            Write::Unsubscribe(unsubscribe) => cost::FILTER * unsubscribe.left(),
            Write::Attach(_) | Write::Detach(_) => cost::SESSION,
            Write::Purge(_) => cost::FILTER,
            Write::Webhooks(_) => cost::WEBHOOKS,
            Write::Ids(_) => cost::IDS,
            Write::Checkpoint(checkpoint) => 1 + checkpoint.streams.len(),
            Write::Shared(_) | Write::Told(..) | Write::Grown(..) | Write::Notices | Write::Mark { .. } => 1,
        }
    }

    fn part_cost(&self) -> Option<usize> {
        match &self.write {
            // Where it asks for what is retained, that is read as of one transaction (P6).
            Write::Subscribe(subscribe) => (!subscribe.pending.asks).then_some(cost::FILTER),
            Write::Unsubscribe(_) => Some(cost::FILTER),
            _ => None,
        }
    }

    fn limit_to(&mut self, cost: usize) {
        let filters = (cost / cost::FILTER).max(1);
        match &mut self.write {
            Write::Subscribe(subscribe) if !subscribe.pending.asks => {
                subscribe.until = (subscribe.written.len() + filters).min(subscribe.filters.len());
            }
            Write::Unsubscribe(unsubscribe) => {
                unsubscribe.until = (unsubscribe.written + filters).min(unsubscribe.filters.len());
            }
            _ => {}
        }
    }

    fn session(&self) -> Option<u64> {
        let (broker, client) = match &self.write {
            Write::Checkpoint(checkpoint) => checkpoint.session.name(),
            Write::Subscribe(subscribe) => subscribe.session.name(),
            Write::Unsubscribe(unsubscribe) => unsubscribe.session.name(),
            Write::Ids(ids) => ids.session.name(),
            Write::Detach(detach) => detach.session.name(),
            Write::Attach(attach) => (attach.broker.id, &*attach.client),
            Write::Purge(purge) => (purge.broker.id, &*purge.client),
            _ => return None,
        };
        let mut hasher = DefaultHasher::new();
        (broker, client).hash(&mut hasher);
        Some(hasher.finish())
    }

    fn changes_index(&self) -> bool {
        match &self.write {
            Write::Subscribe(_) | Write::Unsubscribe(_) | Write::Purge(_) | Write::Webhooks(_) => true,
            Write::Attach(attach) => attach.clean || attach.expiry_s == 0,
            Write::Detach(detach) => detach.expiry_s == 0,
            _ => false,
        }
    }

    fn begins_transaction(&self, index_changed: bool) -> bool {
        match &self.write {
            // It must find the streams that were made before it, which are known once they are committed.
            Write::Publish(_) => index_changed,
            // What a session got must have its place.
            Write::Detach(detach) => !detach.is_placed(),
            _ => false,
        }
    }
}

impl queue::Sized for Job {
    fn size(&self) -> usize {
        match &self.write {
            // What each stream gets of it, and what is kept once.
            Write::Publish(publish) => {
                let (size, streams) = (publish.message.size(), publish.routes.kept.streams.len().max(1));
                let of_each = if size <= INLINE_SHARED_BYTES_MAX { size } else { 0 };
                size + streams * (300 + of_each)
            }
            Write::Attach(attach) => 256 + attach.will.as_ref().map_or(0, |(will, _)| will.size()),
            Write::Subscribe(subscribe) => FILTER_BYTES * subscribe.filters.len(),
            Write::Unsubscribe(unsubscribe) => FILTER_BYTES * unsubscribe.filters.len(),
            Write::Checkpoint(checkpoint) => 128 + 256 * checkpoint.streams.len(),
            Write::Ids(ids) => match &ids.write {
                IdWrite::Reserve(reserve) => {
                    reserve.rows.iter().map(|(_, row)| 128 + row.len()).sum::<usize>()
                        + 16 * (reserve.acknowledged.len() + reserve.taken.len())
                }
                IdWrite::Release(..) | IdWrite::Forget(_) | IdWrite::TakeBack(_) => 128,
            },
            Write::Shared(shared) => 16 * (shared.settled.len() + shared.returned.len()),
            Write::Purge(_) => 128,
            Write::Webhooks(_) => 64 * 1024,
            Write::Detach(detach) => 256 + 64 * detach.in_flight.len(),
            Write::Mark { .. } | Write::Notices | Write::Grown(..) | Write::Told(..) => 0,
        }
    }

    fn owner(&self) -> Option<&Broker> {
        self.broker().map(|broker| &**broker)
    }
}

impl queue::Sized for ToRead {
    fn size(&self) -> usize {
        0
    }
}
