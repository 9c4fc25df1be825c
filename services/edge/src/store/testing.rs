//! A store without threads, for tests of its parts.

use std::sync::Arc;

use bytes::Bytes;
use millrace_layers::sessions::{self, SessionId};
use millrace_layers::streams::{self, NewEntry, ReadLimit, StreamRef};
use millrace_layers::subscriptions::{self, StoredOptions};
use millrace_layers::{BrokerId, LayerError, Position, Store};
use millrace_mqtt::topic::Filter;
use millrace_mqtt::{Properties, QoS};
use millrace_router::{Subscription, Target};
use millrace_session::Message;
use millrace_storage::{Database, KeyRange, RangeOptions, Transaction, block_on};
use mio::{Poll, Token, Waker};

use super::queue::WorkQueue;
use super::{StoreContext, StreamKey, record};
use crate::broker::Brokers;
use crate::clock::Clock;
use crate::home::Loads;
use crate::limits::EdgeLimits;
use crate::mailbox::Mailbox;

impl super::StoreService {
    pub(crate) fn has_unwritten_retained(&self) -> bool {
        self.shared.has_unwritten_retained()
    }
}

impl StoreContext {
    pub(super) fn of_test(layers: Store, clock: Clock, is_shared: bool, owner: &str) -> Self {
        Self {
            layers,
            clock,
            limits: EdgeLimits::default(),
            mailboxes: [mailbox()].into(),
            brokers: Arc::new(Brokers::new(u64::MAX, u64::MAX, Loads::new(1, 0))),
            region: None,
            is_shared,
            owner: owner.as_bytes().into(),
            openings: Default::default(),
            opens: WorkQueue::new(clock),
            writes: WorkQueue::new(clock),
            reads: WorkQueue::new(clock),
            retained: Default::default(),
            leases: Default::default(),
            transactions: Default::default(),
            through: Default::default(),
            upkeep: Default::default(),
            queued_webhooks: Arc::default(),
            tracer: None,
            authenticator: None,
        }
    }

    /// `is_shared`: other pods use the store, too. Returns it with the number of the broker `default`, which is closed.
    pub(super) fn with_broker(is_shared: bool) -> (Self, BrokerId) {
        Self::with_broker_on(Database::memory(), is_shared)
    }

    pub(super) fn with_broker_on(database: Database, is_shared: bool) -> (Self, BrokerId) {
        let layers = Store::new(database);
        let broker = block_on(layers.ensure_broker(b"default")).unwrap().id;
        (Self::of_test(layers, Clock::start(), is_shared, "pod"), broker)
    }

    /// Stores a message for a new group, and returns the group's stream. The group's filter does not match the message.
    pub(super) fn message_of_group(&self, broker: BrokerId, group: &str) -> StreamKey {
        let stream = self.group(broker, group, group);
        self.append_many(stream, 1);
        stream
    }

    pub(super) fn group(&self, broker: BrokerId, group: &str, filter: &str) -> StreamKey {
        let id = SessionId { broker, client: group.as_bytes() };
        let filter = format!("$share/{group}/{filter}");
        let subscribed = self.run(&async |tx| {
            let owner = Bytes::copy_from_slice(&self.owner);
            let (will, details) = (None, None);
            let attach = sessions::Attach { owner, clean: true, expiry_s: 1_000, now_ms: 1, will, details };
            let epoch = sessions::attach(tx, id, attach).await?.epoch;
            let owned = sessions::fence(tx, id, epoch).await?;
            let options = StoredOptions { bits: 1, identifier: 0 };
            subscriptions::subscribe(&owned, filter.as_bytes(), options).await
        });
        (broker, subscribed.stream)
    }

    /// Connects a member of a group on the first event loop.
    pub(super) fn member(&self, broker: BrokerId, group: &str, filter: &str) {
        let target = Target { core: 0, slot: 1, generation: 1 };
        let (qos, no_local, retain_as_published) = (QoS::AtLeastOnce, false, false);
        let (persistent, identifier) = (false, 0);
        let member = Subscription { target, qos, no_local, retain_as_published, persistent, identifier };
        let filter = Filter { share: Some(group), filter };
        self.brokers.peek(broker).unwrap().router.edit(|edit| edit.subscribe(filter, member));
    }

    /// Stores messages with the topic `t`.
    pub(super) fn append_many(&self, (broker, stream): StreamKey, count: u64) {
        let message = Message::new("t".into(), QoS::AtLeastOnce, false, Properties::EMPTY, b"x", 0);
        let (body, now_ms) =
            (record::encode_entry(&message, 0, &self.clock).into(), self.clock.unix_now_ms());
        let streams = [StreamRef { stream, partition: 0 }];
        self.run(&async |tx| {
            (1..=count).try_for_each(|place| {
                let entry = NewEntry { number: u16::try_from(place).unwrap(), now_ms, body: &body };
                streams::append(tx, broker, &streams, entry)
            })
        });
    }

    pub(super) fn run<T>(&self, body: &impl AsyncFn(&Transaction) -> Result<T, LayerError>) -> T {
        block_on(self.layers.run(async |tx| body(&tx).await)).unwrap()
    }

    /// Makes the first row unreadable whose value ends with these bytes.
    pub(super) fn corrupt(&self, value: &[u8]) {
        self.run(&async |tx| {
            let all = KeyRange::new([0], [0xff]);
            let rows = tx.range(all, RangeOptions::first(10_000)).await?.items;
            let row = rows.iter().find(|row| row.value.ends_with(value)).expect("a row with the value");
            Ok(tx.set(&row.key, &b"?"[..])?)
        });
    }

    pub(super) fn version(&self) -> u64 {
        self.run(&async |tx| Ok(tx.read_version().await?))
    }

    /// The messages of a group that this pod has claimed.
    pub(super) fn claimed(&self, (broker, stream): StreamKey) -> Vec<Position> {
        self.run(&async |tx| streams::claimed_by(tx, broker, stream, &self.owner).await)
    }

    /// Claims the messages of a group for a pod.
    pub(super) fn claim(&self, (broker, stream): StreamKey, pod: &str) -> Vec<Position> {
        let all = ReadLimit { entries: 10, bytes: usize::MAX };
        let claimed = self.run(&async |tx| streams::claim(tx, broker, stream, pod.as_bytes(), all).await);
        claimed.entries.iter().map(|entry| entry.position).collect()
    }
}

/// A mailbox needs a waker, which nobody waits for.
pub(super) fn mailbox() -> Mailbox {
    let poll = Poll::new().unwrap();
    Mailbox::new(Waker::new(poll.registry(), Token(0)).unwrap())
}
