//! Runs jobs within a transaction. The transaction may run again, so a job must have no effect except through the
//! transaction and the returned [`Applied`].

mod of_session;

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use millrace_layers::due::Due;
use millrace_layers::index::{self, IndexedStream};
use millrace_layers::limits::{BODY_BYTES_MAX, STREAMS_PER_PUBLISH_MAX, TOPIC_BYTES_MAX};
use millrace_layers::metering::{self, Unit};
use millrace_layers::qos2::{self, Direction};
use millrace_layers::sessions::{self, Owned};
use millrace_layers::streams::{self, StreamRef};
use millrace_layers::subscriptions::Subscribed;
use millrace_layers::webhooks::{self, WebhookId};
use millrace_layers::{GroupedFilter, LayerError, retained};
use millrace_mqtt::{PacketId, QoS};
use millrace_session::Message;
use millrace_storage::Transaction;

use super::load::{self, subscribers};
use super::plant::{Plant, is_planted};
use super::writer::is_hopeless;
use super::{Attached, Job, Publish, SessionKey, Shared, StreamKey, Write, record};
use crate::broker::Broker;
use crate::clock::seconds;
use crate::metering::Amount;
use crate::quota::Limit;
use crate::streams::TopicStreams;

/// Bytes of whole messages that are stored with one session's packet ids: they must fit into one transaction.
pub(crate) const WHOLE_BYTES_MAX: usize = 4_000_000;

/// How long another pod may take to release a session.
pub(super) const HAND_OVER_MS: u64 = 2_000;
/// Changes of filters after which the remaining jobs wait for the next transaction. One ending session may add
/// [`millrace_layers::limits::SUBSCRIPTIONS_MAX`] more.
const CHANGES_MAX: usize = 500;
/// Duration of a transaction after which its remaining jobs wait for the next one. A cluster refuses a transaction
/// older than 5 s.
const WORK_US_MAX: u64 = 500_000;
const ATTACHES: usize = 50;

#[derive(Default)]
pub(super) struct Applied {
    /// One per job, in order; the jobs after the last outcome did not run.
    pub(super) outcomes: Vec<Outcome>,
    /// Brokers whose filters in memory equal those in the store.
    pub(super) caught_up: HashSet<u64>,
    /// Brokers for which any change of a filter makes the transaction conflict.
    pub(super) watched: HashSet<u64>,
    pub(super) added: streams::Added,
    /// Messages with their number in the transaction, in order.
    pub(super) places: Vec<(Arc<Message>, u16)>,
    pub(super) last_place: u16,
    pub(super) changes: Vec<Change>,
    /// The first of the changes that no job has made.
    pub(super) changes_of_jobs: Option<usize>,
    /// The last due time of its shard that this transaction or an earlier one has settled.
    pub(super) settled: Option<Due>,
    pub(super) wills: Vec<(Arc<Broker>, Arc<Message>)>,
    pub(super) wills_dropped: Vec<(Arc<Broker>, LayerError)>,
    pub(super) touched: Vec<StreamKey>,
    pub(super) counts: Vec<(Arc<Broker>, Counts)>,
    pub(super) hooked: BTreeSet<(u64, Arc<str>)>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) stored: usize,
    /// Messages that were not stored, because all subscribers had them.
    pub(super) settled: usize,
    pub(super) began: usize,
    pub(super) ended: usize,
    pub(super) received: Amount,
}

impl Applied {
    pub(super) fn done(count: usize) -> Self {
        Self { outcomes: (0..count).map(|_| Outcome::Done).collect(), ..Self::default() }
    }

    fn place(&mut self, message: &Arc<Message>) -> u16 {
        let place = self.next_place();
        self.places.push((message.clone(), place));
        place
    }

    /// The first number is 1.
    fn next_place(&mut self) -> u16 {
        self.last_place = self.last_place.saturating_add(1);
        self.last_place
    }

    pub(super) fn count(&mut self, broker: &Arc<Broker>) -> &mut Counts {
        let known = self.counts.iter().position(|(known, _)| Arc::ptr_eq(known, broker));
        let index = known.unwrap_or_else(|| {
            self.counts.push((broker.clone(), Counts::default()));
            self.counts.len() - 1
        });
        &mut self.counts[index].1
    }
}

pub(super) enum Outcome {
    Done,
    Fenced,
    Nothing,
    /// The store can never hold it; nothing of it was written.
    Refused(LayerError),
    /// The store failed; nothing of it was written.
    Unstored,
    Attached(Box<Attached>),
    /// Another pod has the session, and was asked to release it.
    Elsewhere(Bytes),
    OfAnotherUser,
    OverLimit(Limit),
    /// One result for each filter, `None` for a refused one.
    Subscribed(Vec<Option<Subscribed>>),
}

pub(super) struct Change {
    pub(super) broker: Arc<Broker>,
    pub(super) filter: Box<str>,
    pub(super) streams: Vec<IndexedStream>,
    pub(super) subscribers: Vec<u64>,
}

pub(super) struct Applier<'a> {
    pub(super) tx: &'a Transaction,
    pub(super) shared: &'a Shared,
    applied: RefCell<Applied>,
    pub(super) is_retry: bool,
    began_us: u64,
}

impl<'a> Applier<'a> {
    pub(super) fn new(tx: &'a Transaction, shared: &'a Shared, is_retry: bool) -> Self {
        Self { tx, shared, applied: RefCell::default(), is_retry, began_us: shared.clock.micros() }
    }

    pub(super) fn into_applied(self) -> Applied {
        self.applied.into_inner()
    }
}

impl Applier<'_> {
    /// Runs the jobs in order until the transaction is full. That is not known before, because it depends on the
    /// filters of ending sessions and on the store's speed. Consecutive CONNECTs run concurrently, because each waits
    /// for several answers of the store, and they concern different sessions.
    pub(super) async fn all(&self, batch: &[Job]) -> Result<(), LayerError> {
        let is_attach = |job: &Job| matches!(job.write, Write::Attach(_));
        let together = batch.chunk_by(|one, other| is_attach(one) && is_attach(other));
        for jobs in together.flat_map(|jobs| jobs.chunks(ATTACHES)) {
            // At least one job runs, however slow the store is: otherwise the transaction would repeat for ever.
            if self.is_full() && !self.applied().outcomes.is_empty() {
                break;
            }
            for outcome in join_all(jobs.iter().map(|job| self.job(job))).await {
                self.applied().outcomes.push(outcome?);
            }
        }
        Ok(())
    }

    pub(super) fn is_full(&self) -> bool {
        self.applied().changes.len() >= CHANGES_MAX
            || self.shared.clock.micros().saturating_sub(self.began_us) >= WORK_US_MAX
    }

    async fn job(&self, job: &Job) -> Result<Outcome, LayerError> {
        let outcome = match &job.write {
            Write::Publish(publish) => self.publish(publish, job.ack.map(|ack| ack.packet_id)).await,
            Write::Attach(attach) => self.attach(attach).await,
            Write::Subscribe(subscribe) => self.subscribe(subscribe).await,
            Write::Unsubscribe(unsubscribe) => self.unsubscribe(unsubscribe).await,
            Write::Ids(ids) => self.ids(ids).await,
            Write::Checkpoint(checkpoint) => self.checkpoint(checkpoint).await,
            Write::Detach(detach) => self.detach(detach).await,
            Write::Purge(purge) => self.purge(purge).await,
            Write::Webhooks(broker) => self.sync_webhooks(broker).await.map(|()| Outcome::Done),
            Write::Grown(..)
            | Write::Mark { .. }
            | Write::Shared(_)
            | Write::Notices
            | Write::Confirmed { .. } => Ok(Outcome::Done),
        };
        match outcome {
            Err(LayerError::Fenced { .. }) => Ok(Outcome::Fenced),
            other => other,
        }
    }

    /// The borrow must not be held across an await.
    pub(super) fn applied(&self) -> RefMut<'_, Applied> {
        self.applied.borrow_mut()
    }

    async fn fence<'k>(&self, session: &'k SessionKey) -> Result<Owned<'k>, LayerError>
    where
        Self: 'k,
    {
        sessions::fence(self.tx, session.id(), self.epoch(session).await?).await
    }

    async fn publish(&self, publish: &Publish, id: Option<PacketId>) -> Result<Outcome, LayerError> {
        let Publish { message, routes, .. } = publish;
        let broker = &routes.broker;
        let is_settled = publish.is_settled();
        let changed = (broker.streams.generation() != routes.stored.generation)
            .then(|| broker.streams.matches(message.topic()));
        let kept = changed.as_ref().unwrap_or(&routes.stored);
        if let Err(error) = check(message, publish.retains, kept) {
            return Ok(Outcome::Refused(error));
        }
        if let (Some(session), Some(id)) = (&publish.fence, id) {
            if message.qos() == QoS::ExactlyOnce {
                let owned = self.fence(session).await?;
                qos2::set(&owned, Direction::Inbound, id.get(), &Bytes::new())?;
            } else if !is_planted(Plant::FencesQos2Only) {
                self.fence(session).await?;
            }
        }
        if publish.retains {
            // It writes the broker's current retained message, so the order of jobs does not matter.
            let current = broker.retained.get(message.topic());
            let own = Some(&**message).filter(|message| !message.payload().is_empty());
            // With several pods, the order is that of the commits (P6).
            let kept = if self.shared.is_shared { own } else { current.as_deref() };
            self.retain(broker, message.topic(), kept).await?;
        }
        if self.shared.is_shared {
            self.watch(broker, message.topic())?;
        }
        if is_settled {
            self.applied().count(broker).settled += 1;
        } else {
            self.append(broker, message, publish.publisher, kept)?;
        }
        if publish.retains {
            self.give_order(message);
        }
        if publish.from.is_some() {
            let mut applied = self.applied();
            applied.count(broker).received.add(message.size());
        }
        Ok(Outcome::Done)
    }

    /// Updates the brokers' filters in memory from the store; it must run before this transaction changes filters.
    pub(super) async fn catch_up(&self, brokers: &[&Broker]) -> Result<(), LayerError> {
        if !self.shared.is_shared {
            return Ok(());
        }
        let (tx, layers) = (self.tx, &self.shared.layers);
        let mut behind = brokers.to_vec();
        behind.retain(|broker| self.applied().caught_up.insert(broker.id));
        join_all(behind.into_iter().map(|broker| load::changes(tx, layers, broker)))
            .await
            .into_iter()
            .collect()
    }

    /// Makes the transaction conflict if another pod changes the streams of the topic before the commit (P2). The first
    /// attempt watches one key, which any change of a filter touches; a later attempt watches the matching filters
    /// only. It must run after [`Self::catch_up`].
    fn watch(&self, broker: &Broker, topic: &str) -> Result<(), LayerError> {
        debug_assert!(self.applied().caught_up.contains(&broker.id), "its filters may be old");
        if self.applied().watched.contains(&broker.id) {
            return Ok(());
        }
        let now_ms = self.shared.clock.now();
        if self.is_retry {
            broker.streams.expect_conflicts(now_ms);
        }
        if broker.streams.expects_conflicts(now_ms) {
            return index::watch(self.tx, broker.id, topic.as_bytes());
        }
        self.applied().watched.insert(broker.id);
        index::watch_all(self.tx, broker.id)
    }

    /// Writes the rows that all jobs share.
    pub(super) fn finish(&self) -> Result<(), LayerError> {
        let now_ms = self.shared.clock.unix_now_ms();
        let applied = self.applied();
        for (broker, Counts { received, .. }) in &applied.counts {
            let add = |unit, more: usize| metering::add(self.tx, broker.id, unit, now_ms, more as i64);
            add(Unit::MessagesIn, received.units)?;
            add(Unit::BytesIn, received.bytes)?;
        }
        for (broker, name) in &applied.hooked {
            webhooks::enqueue(self.tx, WebhookId { broker: *broker, name })?;
        }
        applied.added.write(self.tx)
    }

    async fn retain(
        &self,
        broker: &Broker,
        topic: &str,
        message: Option<&Message>,
    ) -> Result<(), LayerError> {
        let topic = topic.as_bytes();
        match message {
            Some(message) => {
                let record = record::encode(message, self.shared.is_shared, &self.shared.clock).into();
                retained::set(self.tx, broker.id, topic, &record).await
            }
            None => retained::clear(self.tx, broker.id, topic).await,
        }
    }

    pub(super) fn append(
        &self,
        broker: &Arc<Broker>,
        message: &Arc<Message>,
        publisher: u64,
        kept: &TopicStreams,
    ) -> Result<(), LayerError> {
        if kept.is_over_limit {
            return Err(LayerError::TooManyStreams(crate::limits::MATCH.filters_max + 1));
        }
        let hooks: Vec<StreamRef>;
        let streams = if message.qos() == QoS::AtMostOnce {
            hooks = kept.hooks.iter().map(|(stream, _)| *stream).collect();
            &hooks[..]
        } else {
            &kept.streams
        };
        if streams.is_empty() {
            return Ok(());
        }
        let hooked = kept.hooks.iter().map(|(_, name)| (broker.id, name.clone()));
        self.applied().hooked.extend(hooked);
        // A QoS 0 message is stored for webhooks only, so it has no position for other receivers.
        let place = match message.qos() {
            QoS::AtMostOnce => self.applied().next_place(),
            _ => self.applied().place(message),
        };
        let clock = &self.shared.clock;
        let body = record::encode_entry(message, publisher, clock).into();
        let publish = streams::NewEntry { place, now_ms: clock.unix_now_ms(), body: &body };
        streams::append_of_many(self.tx, broker.id, streams, publish, &mut self.applied().added)?;
        self.applied().count(broker).stored += 1;
        self.applied().touched.extend(streams.iter().map(|stream| (broker.id, stream.stream)));
        Ok(())
    }

    /// With several pods, a retained message has a position even if no stream stores it.
    fn give_order(&self, message: &Arc<Message>) {
        let is_placed = self.applied().places.last().is_some_and(|(last, _)| Arc::ptr_eq(last, message));
        if self.shared.is_shared && !is_placed {
            self.applied().place(message);
        }
    }

    /// A will that can never be written is dropped, because its session must be able to end, and later due work to
    /// run.
    pub(super) async fn will(&self, broker: &Arc<Broker>, body: &[u8]) -> Result<(), LayerError> {
        match self.publish_will(broker, body).await {
            Err(error) if is_hopeless(&error) => {
                self.applied().wills_dropped.push((broker.clone(), error));
                Ok(())
            }
            other => other,
        }
    }

    async fn publish_will(&self, broker: &Arc<Broker>, body: &[u8]) -> Result<(), LayerError> {
        let will = record::decode_will(body).ok_or(LayerError::Corrupt("will"))?;
        let will = Arc::new(will).issued(seconds(self.shared.clock.now()));
        let kept = broker.streams.matches(will.topic());
        check(&will, will.retain(), &kept)?;
        if will.retain() {
            // Before the commit, as with messages of clients: the broker's memory defines the order of retained
            // messages.
            broker.retain(&will);
            let kept = (!will.payload().is_empty()).then_some(&*will);
            self.retain(broker, will.topic(), kept).await?;
        }
        if self.shared.is_shared {
            self.watch(broker, will.topic())?;
        }
        self.append(broker, &will, will.publisher(), &kept)?;
        if will.retain() {
            self.give_order(&will);
        }
        self.applied().wills.push((broker.clone(), will));
        Ok(())
    }

    pub(super) async fn note_changes<'f>(
        &self,
        broker: &Arc<Broker>,
        filters: impl IntoIterator<Item = &'f [u8]>,
    ) -> Result<(), LayerError> {
        for name in filters {
            let filter = GroupedFilter::parse(name).filter;
            let streams = index::streams(self.tx, broker.id, filter).await?;
            let subscribers = subscribers(self.tx, broker.id, &streams).await?;
            let filter = std::str::from_utf8(filter).map_err(|_| LayerError::Corrupt("filter"))?.into();
            self.applied().changes.push(Change { broker: broker.clone(), filter, streams, subscribers });
        }
        Ok(())
    }
}

/// Fails for a message that can never be written, before any of it is.
fn check(message: &Message, retains: bool, kept: &TopicStreams) -> Result<(), LayerError> {
    let (topic, size) = (message.topic().len(), message.size());
    if retains && topic > TOPIC_BYTES_MAX {
        return Err(LayerError::NameTooLong { bytes: topic, bytes_max: TOPIC_BYTES_MAX });
    }
    if size > BODY_BYTES_MAX {
        return Err(LayerError::BodyTooLarge(size));
    }
    if kept.is_over_limit {
        return Err(LayerError::TooManyStreams(crate::limits::MATCH.filters_max + 1));
    }
    if message.qos() > QoS::AtMostOnce && kept.streams.len() > STREAMS_PER_PUBLISH_MAX {
        return Err(LayerError::TooManyStreams(kept.streams.len()));
    }
    Ok(())
}
