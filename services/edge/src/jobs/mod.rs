//! The jobs that event loops submit to the store, and the results that come back to them as mail.
//!
//! A [`Job`] is a write, with the publisher that waits for it. A [`StreamRead`] asks for a page of a session's messages. These types
//! know no event loop and no thread: event loops fill them in, and [`crate::store`] carries them out.

mod attach;
mod filter_index;
mod page;
pub(crate) mod replay;
mod shared;
mod subscribe;

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use millrace_layers::sessions::{KeepWill, SessionId};
use millrace_layers::streams::StreamId;
use millrace_layers::{Position, Positions};
use millrace_mqtt::{PacketId, QoS};
use millrace_router::Target;
use millrace_session::{InFlight, Message, OutboxEntry, StoredPosition};
use smallvec::SmallVec;

pub(crate) use self::attach::{AskedOwner, AttachWrite, AttachedSession};
pub(crate) use self::page::{FoundInFlight, PageEntry, PageReader, StoredPage, StreamRead};
pub(crate) use self::shared::SharedMessages;
pub(crate) use self::subscribe::{PendingSubscribe, SubscribeWrite, UnsubscribeWrite};
use crate::broker::{Broker, Reserved};
use crate::connection_id::ConnectionId;
use crate::routes::Routes;
use crate::streams::SkipCondition;

/// Estimated memory of a filter in a job, bytes.
pub(crate) const FILTER_BYTES: usize = 256;

pub(crate) struct Job {
    pub(crate) write: Write,
    pub(crate) ack: Option<PublishAck>,
}

pub(crate) enum Write {
    Publish(PublishWrite),
    /// A connection takes a session over, or replaces it by a new one that is not persistent.
    Attach(Box<AttachWrite>),
    Subscribe(Box<SubscribeWrite>),
    Unsubscribe(Box<UnsubscribeWrite>),
    /// Reserves, releases or forgets packet ids of QoS 1 and 2.
    Ids(Box<Ids>),
    Checkpoint(Box<Checkpoint>),
    Detach(Box<DetachWrite>),
    Shared(Box<SharedMessages>),
    Purge(Box<Purge>),
    /// The webhooks of a broker have changed: create and remove their queues.
    Webhooks(Arc<Broker>),
    /// Writes nothing. The publisher has received `count` refusals with this [`PublishAck::ends_with`]; `None`: its connection ended.
    Confirmed {
        publisher: PublisherKey,
        connection: Option<ConnectionId>,
        count: Option<u32>,
    },
    /// Writes nothing: another pod has appended to the streams of this topic, so shared subscriptions read them.
    Grown(Arc<Broker>, Arc<str>),
    /// Writes nothing: another pod has stored a notice for this pod, because it wants a session.
    Notices,
    /// Writes nothing: the core is notified when all jobs of the broker that were submitted before it are committed.
    Barrier {
        core: u16,
        /// Number of the core's barrier that waits for this.
        number: u64,
        broker: u64,
    },
}

/// The publisher that gets an acknowledgement once its message is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublishAck {
    pub(crate) broker: u64,
    pub(crate) connection: ConnectionId,
    pub(crate) session: Target,
    pub(crate) qos: QoS,
    pub(crate) packet_id: PacketId,
    /// The packet id is stored with the message, until the client sends PUBREL.
    pub(crate) keeps_id: bool,
    /// Receivers get the message, and the publisher's next messages, only after its commit, so that none overtakes it.
    pub(crate) waits_for_commit: bool,
    pub(crate) publisher: u64,
    /// The writer refuses the publisher's later messages until this refusal is confirmed.
    pub(crate) holds_back: bool,
}

impl PublishAck {
    pub(crate) fn publisher(&self) -> PublisherKey {
        PublisherKey { broker: self.broker, publisher: self.publisher }
    }

    /// The connection whose end makes the publisher send the message again; `None`: the packet id is the session's, and the
    /// session's next connection gets the answer.
    pub(crate) fn ends_with(&self) -> Option<ConnectionId> {
        (!self.keeps_id).then_some(self.connection)
    }

    /// [`Fence::from_ms`] of the message, if it needs a fence. A connection that another pod has replaced sends nothing into the gap
    /// that its fenced QoS 2 messages leave, and no retained message over a later one.
    /// `is_owned`: whether other pods may take the publisher's session.
    pub(crate) fn fenced_from_ms(&self, is_owned: bool, now_ms: u64) -> Option<u64> {
        if self.keeps_id || self.waits_for_commit && is_owned {
            return Some(0);
        }
        (is_owned && self.qos > QoS::AtMostOnce).then(|| now_ms + FENCED_AFTER_MS)
    }
}

/// A publisher across its connections: its broker, and its number as [`crate::encoding::record::publisher`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PublisherKey {
    pub(crate) broker: u64,
    pub(crate) publisher: u64,
}

/// A session and its epoch, which proves its ownership.
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

    pub(crate) fn name(&self) -> (u64, &str) {
        (self.broker.id, &self.client)
    }
}

/// The publisher's session, if the message is only stored while it has this epoch. With QoS 2 it gets the packet id.
pub(crate) struct Fence {
    pub(crate) session: SessionKey,
    /// Until this time of the process, in milliseconds, the epoch need not be read.
    pub(crate) from_ms: u64,
}

/// How old a message may be without a fence: half of the time after which another pod takes a session by force.
pub(crate) const FENCED_AFTER_MS: u64 = 1_000;

/// A message for persistent filters, or a retained message.
pub(crate) struct PublishWrite {
    pub(crate) message: Arc<Message>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) from: Option<ConnectionId>,
    pub(crate) publisher: u64,
    /// Whether to store the topic's retained message: with several pods this one, otherwise the one in memory at the commit.
    pub(crate) retains: bool,
    #[expect(dead_code, reason = "the room is free again when the job is dropped")]
    pub(crate) reserved: Reserved,
    /// Whether receivers get the message only after its commit.
    pub(crate) waits_for_commit: bool,
    pub(crate) fence: Option<Fence>,
    /// The condition under which the message need not be stored, because its receivers have it already.
    pub(crate) skip_if: Option<SkipCondition>,
    /// When the trace of the message began this step, microseconds; 0: the message is not traced.
    pub(crate) queued_us: u64,
}

impl PublishWrite {
    /// Whether all subscribers have acknowledged the message, and none was added meanwhile (P1).
    pub(crate) fn is_settled(&self) -> bool {
        let stored = &self.routes.stored;
        self.skip_if.is_some_and(|condition| {
            self.message.acknowledged() >= condition.acknowledged
                && stored.generation == self.routes.broker.streams.generation()
                && stored.changes() == condition.changes
        })
    }
}

pub(crate) struct Ids {
    pub(crate) session: SessionKey,
    pub(crate) target: Target,
    pub(crate) write: IdWrite,
    pub(crate) unordered_ids: bool,
}

#[derive(Debug)]
pub(crate) enum IdWrite {
    Reserve(Reserve),
    /// The client has the message (PUBREC).
    Release(PacketId, Option<StoredPosition>),
    Forget(PacketId),
}

#[derive(Debug, Default)]
pub(crate) struct Reserve {
    pub(crate) rows: Vec<(PacketId, Vec<u8>)>,
    /// Everything up to here is acknowledged, so earlier messages under the same ids are done.
    pub(crate) cursor: Position,
    pub(crate) acknowledged: Positions,
    /// Messages of shared subscriptions among them, which no other member may get.
    pub(crate) taken: Vec<(StreamKey, Position)>,
}

/// Positions of the messages among `open` that the session reads from its own streams.
pub(crate) fn open_positions<'e>(open: impl Iterator<Item = &'e OutboxEntry>) -> Vec<Position> {
    let in_streams = open.filter(|entry| !entry.replay && entry.shared == 0);
    in_streams.filter_map(|entry| entry.message.position()).map(Position).collect()
}

/// A stream of the store: the broker's id, and the stream's id within the broker.
pub(crate) type StreamKey = (u64, StreamId);

pub(crate) struct Purge {
    pub(crate) broker: Arc<Broker>,
    pub(crate) client: Arc<str>,
    pub(crate) was_online: bool,
    /// Receives whether the session existed, or why it cannot be ended.
    pub(crate) done: SyncSender<Result<bool, String>>,
}

pub(crate) struct Checkpoint {
    pub(crate) session: SessionKey,
    pub(crate) target: Target,
    pub(crate) cursor: Position,
    pub(crate) acknowledged: Positions,
    pub(crate) completed: Vec<PacketId>,
    /// Streams to trim if the session is their only reader.
    pub(crate) streams: Vec<u64>,
    /// Filters whose retained messages the client has acknowledged.
    pub(crate) replayed: Vec<Box<str>>,
}

pub(crate) struct DetachWrite {
    pub(crate) session: SessionKey,
    /// The connection that ends; its core is notified when the end is stored.
    pub(crate) leaves: Option<ConnectionId>,
    pub(crate) keep_will: KeepWill,
    pub(crate) expiry_s: u32,
    pub(crate) now_ms: u64,
    /// The session got everything up to here.
    pub(crate) base: Position,
    pub(crate) in_flight: Vec<(PacketId, InFlight)>,
    /// Packet ids whose rows in the store have the whole message and stay as they are, in order.
    pub(crate) standing: Vec<u16>,
    /// Messages of the streams of shared subscriptions, never sent, under packet ids that the store may have.
    pub(crate) begun: Vec<(u16, u64, Arc<Message>)>,
    pub(crate) unsent: Vec<OutboxEntry>,
    /// Messages that the session got after `base`, acknowledged or not.
    pub(crate) recent: Vec<Arc<Message>>,
    /// Positions after `base` of messages that the session got and `recent` no longer holds.
    pub(crate) had: Positions,
    pub(crate) unordered_ids: bool,
    /// QoS 2 packet ids of the client that the store does not have.
    pub(crate) received: Vec<PacketId>,
    /// Filters whose retained messages were all sent; the ones without an acknowledgement are in `in_flight`.
    pub(crate) replayed: Vec<Box<str>>,
}

impl DetachWrite {
    /// For a session whose connection was not accepted: the rows of its packet ids stay as they are.
    //= [MQTT-3.1.2-8] v5 v3.1.1
    pub(crate) fn unused(broker: Arc<Broker>, attached: AttachedSession, now_ms: u64) -> Self {
        let AttachedSession { client, epoch, expiry_s, cursor, acknowledged, rows, in_flight, .. } = attached;
        let ids = rows.iter().map(|(id, _)| id).chain(in_flight.iter().map(|(id, _)| id));
        let mut standing: Vec<u16> = ids.map(|id| id.get()).collect();
        standing.sort_unstable();
        Self {
            session: SessionKey { broker, client, epoch },
            leaves: None,
            keep_will: KeepWill::IfDelayed,
            expiry_s,
            now_ms,
            base: cursor,
            in_flight,
            standing,
            begun: Vec::new(),
            unsent: Vec::new(),
            recent: Vec::new(),
            had: acknowledged,
            unordered_ids: false,
            received: Vec::new(),
            replayed: Vec::new(),
        }
    }

    /// Whether the positions of all messages are known; retained messages have none.
    pub(crate) fn is_decided(&self) -> bool {
        let sent = self.in_flight.iter().all(|(_, in_flight)| match in_flight {
            InFlight::Published(entry) | InFlight::Unsent(entry) => {
                entry.message.is_decided() || entry.replay
            }
            InFlight::Released(_) => true,
        });
        sent && self.recent.iter().all(|message| message.is_decided())
            && self.unsent.iter().all(|entry| entry.message.is_decided() || entry.replay)
    }
}

impl Job {
    /// Upper bound of the filters that the next transaction changes for this job.
    pub(crate) fn filters(&self) -> usize {
        match &self.write {
            Write::Subscribe(subscribe) => subscribe.part().len() + subscribe.shared.len(),
            Write::Unsubscribe(unsubscribe) => unsubscribe.part().len(),
            _ => 0,
        }
    }

    pub(crate) fn broker(&self) -> Option<&Arc<Broker>> {
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
            Write::Confirmed { .. } | Write::Shared(_) | Write::Notices | Write::Barrier { .. } => None,
        }
    }

    pub(crate) fn broker_ids(&self) -> SmallVec<[u64; 1]> {
        match &self.write {
            Write::Shared(shared) => shared.streams().map(|(broker, _)| broker).collect(),
            Write::Barrier { broker, .. } => SmallVec::from_buf([*broker]),
            Write::Confirmed { publisher, .. } => SmallVec::from_buf([publisher.broker]),
            _ => self.broker().map(|broker| broker.id).into_iter().collect(),
        }
    }

    pub(crate) fn by_broker(self) -> SmallVec<[Self; 1]> {
        match self.write {
            Write::Shared(shared) => {
                let job = |shared| Self { write: Write::Shared(Box::new(shared)), ack: None };
                shared.by_broker().into_values().map(job).collect()
            }
            write => SmallVec::from_buf([Self { write, ack: self.ack }]),
        }
    }
}

/// Sampled messages on their way from the writer back to the publisher's loop, which ends their traces.
pub(crate) struct StoredTraces {
    pub(crate) messages: Vec<(Arc<Broker>, Arc<Message>)>,
    pub(crate) stored: bool,
    pub(crate) answered_us: u64,
}

impl StoredTraces {
    pub(crate) fn of(publish: &PublishWrite, stored: bool, answered_us: u64) -> Self {
        let messages = vec![(publish.routes.broker.clone(), publish.message.clone())];
        Self { messages, stored, answered_us }
    }
}
