//! Runs jobs within a transaction. The transaction may run again, so a job must have no effect except through the
//! transaction and the returned [`Applied`].

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use millrace_layers::index::{self, IndexedStream};
use millrace_layers::limits::{BODY_BYTES_MAX, STREAMS_PER_PUBLISH_MAX, TOPIC_BYTES_MAX};
use millrace_layers::metering::{self, Unit};
use millrace_layers::qos2::{self, Direction};
use millrace_layers::sessions::{self, Owned, SessionId};
use millrace_layers::streams::{self, StreamRef};
use millrace_layers::subscriptions::{self, StoredSubscription, Subscribed};
use millrace_layers::webhooks::{self, WebhookId};
use millrace_layers::{GroupedFilter, LayerError, Position, Positions, pods, retained};
use millrace_mqtt::{PacketId, QoS};
use millrace_session::{InFlight, Message};
use millrace_storage::{Read, Transaction, TransactionOption};

use super::load::{self, subscribers};
use super::{
    Attach, Attached, Checkpoint, Detach, IdWrite, Ids, Job, Publish, Purge, SessionKey, Shared, StreamKey,
    Subscribe, Unsubscribe, Write, inflight, record,
};
use crate::broker::Broker;
use crate::clock::{Clock, seconds};
use crate::jobs::open_places;
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
    /// The session has another owner by now.
    Fenced,
    Nothing,
    /// The store can never hold it; nothing of it was written.
    Refused(LayerError),
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
        sessions::fence(self.tx, session.id(), session.epoch).await
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
        if let (Some(session), Some(id)) = (&publish.inbound, id) {
            let owned = sessions::fence(self.tx, session.id(), session.epoch).await?;
            qos2::set(&owned, Direction::Inbound, id.get(), &Bytes::new())?;
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
            broker.streams.stir(now_ms);
        }
        if broker.streams.is_stirred(now_ms) {
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
                let record = record::encode(message, &self.shared.clock).into();
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
        self.append(broker, &will, 0, &kept)?;
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

    async fn attach(&self, attach: &Attach) -> Result<Outcome, LayerError> {
        let Attach { broker, client, .. } = attach;
        let id = SessionId { broker: broker.id, client: client.as_bytes() };
        // Checked before the session's owner is asked to release it.
        if self.is_of_another_user(attach, id).await? {
            return Ok(Outcome::OfAnotherUser);
        }
        if self.shared.is_shared
            && let Some(owner) = self.elsewhere(attach, id).await?
        {
            return Ok(Outcome::Elsewhere(owner));
        }
        let old = sessions::get(self.tx, id, Read::Serializable).await?;
        let will_body = attach.will.as_ref().map(|(will, _)| Bytes::from(record::encode_will(will)));
        let will_bytes = will_body.as_ref().map_or(0, Bytes::len) as u64;
        if let Some(limit) = self.reaches(attach, id, old.as_ref(), will_bytes).await? {
            return Ok(Outcome::OverLimit(limit));
        }
        let before = subscriptions::list(self.tx, id).await?;
        // An existing session continues, even if the client wants it for this connection only.
        let now_ms = self.shared.clock.unix_now_ms();
        let goes_on = !attach.clean && old.is_some_and(|record| !record.is_expired(now_ms));
        // With several pods, a session that ends with its connection needs an owner, too (P5).
        let keeps = attach.expiry_s > 0 || attach.will.is_some() || goes_on || self.shared.is_shared;
        let (will, attached) = if keeps {
            let delay_s = attach.will.as_ref().map_or(0, |(_, delay_s)| *delay_s);
            let will = will_body.map(|body| sessions::PendingWill { delay_s, body });
            let request = sessions::Attach {
                owner: Bytes::copy_from_slice(&self.shared.owner),
                clean: attach.clean,
                expiry_s: attach.expiry_s,
                now_ms: self.shared.clock.unix_now_ms(),
                will,
                details: Some(
                    attach
                        .user
                        .as_deref()
                        .map_or_else(Bytes::new, |user| Bytes::copy_from_slice(user.as_bytes())),
                ),
            };
            let taken = sessions::attach(self.tx, id, request).await?;
            if let Some((owner, epoch)) =
                taken.replaced.as_ref().filter(|(owner, _)| **owner != *self.shared.owner)
            {
                // The owner was asked under an earlier epoch, or did not release the session in time. Notified now, it
                // closes the connection even if that carries QoS 0 only and would never be fenced.
                pods::notify_lost(self.tx, owner, id, *epoch)?;
            }
            self.applied().count(broker).began += usize::from(!taken.existed);
            let mut attached = Attached {
                client: client.clone(),
                epoch: taken.epoch,
                expiry_s: attach.expiry_s,
                present: taken.present,
                subscriptions: taken.subscriptions,
                cursor: taken.record.cursor,
                acknowledged: taken.record.acknowledged,
                maybe_sent: taken.record.maybe_sent,
                ..Attached::default()
            };
            if attached.present {
                self.read_ids(id, &mut attached).await?;
            }
            (taken.will, attached)
        } else {
            let purged = sessions::purge(self.tx, id).await?;
            self.applied().count(broker).ended += usize::from(purged.is_some());
            (purged.and_then(|(_, will)| will), Attached { client: client.clone(), ..Attached::default() })
        };
        if let Some(will) = will {
            self.will(broker, &will).await?;
        }
        if !attached.present {
            self.note_changes(broker, before.iter().map(|subscription| &*subscription.filter)).await?;
        }
        Ok(Outcome::Attached(Box::new(attached)))
    }

    /// The limit that a session, or its will, would exceed. A session that is in the store already, `old`, has room.
    async fn reaches(
        &self,
        attach: &Attach,
        id: SessionId<'_>,
        old: Option<&sessions::Record>,
        will_bytes: u64,
    ) -> Result<Option<Limit>, LayerError> {
        let is_more = attach.expiry_s > 0 && old.is_none();
        if !is_more && will_bytes == 0 {
            return Ok(None);
        }
        let (limits, held) = (&self.shared.limits, metering::held(self.tx, id.broker).await?);
        if is_more && held.sessions >= limits.stored_sessions_per_broker_max.into() {
            return Ok(Some(Limit::BrokerSessions));
        }
        if will_bytes == 0 || held.will_bytes + will_bytes <= limits.will_bytes_per_broker_max {
            return Ok(None);
        }
        let former = match old {
            Some(old) => sessions::will_bytes(self.tx, id, old).await?,
            None => 0,
        };
        Ok((will_bytes > former).then_some(Limit::BrokerWills))
    }

    /// Whether the session is alive and belongs to another user. Any user may continue a session without a user, except
    /// clients with connect tokens.
    async fn is_of_another_user(&self, attach: &Attach, id: SessionId<'_>) -> Result<bool, LayerError> {
        let now_ms = self.shared.clock.unix_now_ms();
        let record = sessions::get(self.tx, id, Read::Serializable).await?;
        let is_owned = |record: &sessions::Record| attach.is_visitor || !record.details.is_empty();
        let record = record.filter(|record| !record.is_expired(now_ms) && is_owned(record));
        let user = attach.user.as_deref().unwrap_or_default();
        Ok(record.is_some_and(|record| *record.details != *user.as_bytes()))
    }

    /// Returns the other pod that has the session. That pod should release it first, so that messages in flight come
    /// with it. After a time limit the session is taken over; the epoch then keeps the old owner from writing.
    async fn elsewhere(&self, attach: &Attach, id: SessionId<'_>) -> Result<Option<Bytes>, LayerError> {
        let record = sessions::get(self.tx, id, Read::Serializable).await?;
        let Some(record) = record.filter(|record| !record.is_detached()) else { return Ok(None) };
        let waited_ms = self.shared.clock.now().saturating_sub(attach.asked_at);
        if *record.owner == *self.shared.owner || attach.asked_at > 0 && waited_ms > HAND_OVER_MS {
            return Ok(None);
        }
        if attach.asked_at == 0 {
            pods::notify_lost(self.tx, &record.owner, id, record.epoch)?;
        }
        Ok(Some(record.owner))
    }

    async fn purge(&self, purge: &Purge) -> Result<Outcome, LayerError> {
        let id = SessionId { broker: purge.broker.id, client: purge.client.as_bytes() };
        let before = subscriptions::list(self.tx, id).await?;
        let Some((_, will)) = sessions::purge(self.tx, id).await? else { return Ok(Outcome::Nothing) };
        self.applied().count(&purge.broker).ended += 1;
        if let Some(will) = will {
            self.will(&purge.broker, &will).await?;
        }
        self.note_changes(&purge.broker, before.iter().map(|subscription| &*subscription.filter)).await?;
        Ok(Outcome::Done)
    }

    async fn read_ids(&self, id: SessionId<'_>, attached: &mut Attached) -> Result<(), LayerError> {
        let mut rows = qos2::list(self.tx, id, Direction::Outbound, Read::Serializable).await?;
        inflight::in_order_of_sending(&mut rows);
        for (id, row) in rows {
            let id = PacketId::new(id).ok_or(LayerError::Corrupt("packet id"))?;
            let row =
                inflight::decode(&row, &self.shared.clock).ok_or(LayerError::Corrupt("message in flight"))?;
            attached.rows.push((id, row));
        }
        let received = qos2::list(self.tx, id, Direction::Inbound, Read::Serializable).await?;
        attached.received = received.into_iter().filter_map(|(id, _)| PacketId::new(id)).collect();
        Ok(())
    }

    async fn subscribe(&self, subscribe: &Subscribe) -> Result<Outcome, LayerError> {
        let owned = self.fence(&subscribe.session).await?;
        let mut subscribed = Vec::with_capacity(subscribe.part().len());
        for (filter, options, _) in subscribe.part() {
            subscribed.push(match subscriptions::subscribe(&owned, filter.as_bytes(), *options).await {
                Ok(subscribed) => Some(subscribed),
                Err(LayerError::NameTooLong { .. } | LayerError::TooManyGroups) => None,
                Err(error) => return Err(error),
            });
        }
        drop(owned);
        let broker = &subscribe.session.broker;
        let filters = subscribe.part().iter().map(|(filter, ..)| filter.as_bytes());
        let shared = subscribe.shared.iter().map(|filter| filter.as_bytes());
        self.note_changes(broker, filters.chain(shared)).await?;
        Ok(Outcome::Subscribed(subscribed))
    }

    async fn unsubscribe(&self, unsubscribe: &Unsubscribe) -> Result<Outcome, LayerError> {
        let owned = self.fence(&unsubscribe.session).await?;
        for filter in unsubscribe.part() {
            subscriptions::unsubscribe(&owned, filter.as_bytes()).await?;
        }
        drop(owned);
        let filters = unsubscribe.part().iter().map(|filter| filter.as_bytes());
        self.note_changes(&unsubscribe.session.broker, filters).await?;
        Ok(Outcome::Done)
    }

    async fn ids(&self, ids: &Ids) -> Result<Outcome, LayerError> {
        let owned = self.fence(&ids.session).await?;
        match &ids.write {
            IdWrite::Reserve(reserve) => {
                if !self.take_from_groups(&reserve.taken).await? {
                    return Ok(Outcome::Fenced);
                }
                for (id, row) in &reserve.rows {
                    qos2::set(&owned, Direction::Outbound, id.get(), &row.clone().into())?;
                }
                sessions::checkpoint(&owned, reserve.cursor, &reserve.acknowledged)?;
            }
            IdWrite::Release(id, place) => {
                let row = inflight::encode(&InFlight::Released(*place), ids.skipped_ids, &self.shared.clock);
                qos2::set(&owned, Direction::Outbound, id.get(), &row.into())?;
            }
            IdWrite::Forget(id) => {
                qos2::remove(&owned, Direction::Inbound, id.get())?;
            }
        }
        Ok(Outcome::Done)
    }

    /// Marks messages as taken by a member. Memory follows after the commit. Returns false if another pod has one of
    /// them by now.
    async fn take_from_groups(&self, taken: &[(StreamKey, Position)]) -> Result<bool, LayerError> {
        let mut of_stream: BTreeMap<StreamKey, Vec<Position>> = BTreeMap::new();
        for (stream, place) in taken {
            of_stream.entry(*stream).or_default().push(*place);
        }
        for ((broker, stream), places) in of_stream {
            if self.shared.is_shared {
                if !streams::keep(self.tx, broker, stream, &self.shared.owner, &places).await? {
                    return Ok(false);
                }
                continue;
            }
            let mut progress = streams::progress(self.tx, broker, stream).await?;
            places.into_iter().for_each(|place| progress.acknowledged.add(place));
            streams::set_progress(self.tx, broker, stream, &progress).await?;
        }
        Ok(true)
    }

    async fn checkpoint(&self, checkpoint: &Checkpoint) -> Result<Outcome, LayerError> {
        // The transaction has only such jobs, and frees space on a disk that is nearly full.
        self.tx.set_option(TransactionOption::Cleanup);
        let owned = self.fence(&checkpoint.session).await?;
        sessions::checkpoint(&owned, checkpoint.cursor, &checkpoint.acknowledged)?;
        for id in &checkpoint.completed {
            qos2::remove(&owned, Direction::Outbound, id.get())?;
        }
        for filter in &checkpoint.replayed {
            subscriptions::replayed(&owned, filter.as_bytes()).await?;
        }
        let broker = checkpoint.session.broker.id;
        for stream in &checkpoint.streams {
            if subscriptions::is_sole(self.tx, broker, *stream).await? {
                streams::trim(self.tx, broker, *stream, checkpoint.cursor, None).await?;
            }
        }
        Ok(Outcome::Done)
    }

    async fn detach(&self, detach: &Detach) -> Result<Outcome, LayerError> {
        let session = &detach.session;
        let owned = self.fence(session).await?;
        let before: Vec<StoredSubscription> =
            if detach.expiry_s == 0 { subscriptions::list(self.tx, session.id()).await? } else { Vec::new() };
        if detach.expiry_s > 0 {
            let (cursor, acknowledged) = progress(detach);
            sessions::checkpoint(&owned, cursor, &acknowledged)?;
            qos2::clear_but(&owned, Direction::Outbound, &detach.standing)?;
            for (id, row) in rows(detach, &self.shared.clock) {
                qos2::set(&owned, Direction::Outbound, id, &row.into())?;
            }
            for id in &detach.received {
                qos2::set(&owned, Direction::Inbound, id.get(), &Bytes::new())?;
            }
            for filter in &detach.replayed {
                subscriptions::replayed(&owned, filter.as_bytes()).await?;
            }
        }
        let (now_ms, keep_will) = (detach.now_ms, detach.keep_will);
        let how = sessions::Detach { now_ms, expiry_s: Some(detach.expiry_s), keep_will };
        if let Some(will) = sessions::detach(owned, how).await? {
            self.will(&session.broker, &will).await?;
        }
        self.applied().count(&session.broker).ended += usize::from(detach.expiry_s == 0);
        self.note_changes(&session.broker, before.iter().map(|subscription| &*subscription.filter)).await?;
        Ok(Outcome::Done)
    }
}

/// Whether the write can never succeed, because of its content.
pub(super) fn is_hopeless(error: &LayerError) -> bool {
    use millrace_storage::StoreError as Store;
    match error {
        LayerError::NameTooLong { .. }
        | LayerError::BodyTooLarge(_)
        | LayerError::TooManyStreams(_)
        | LayerError::Corrupt(_) => true,
        LayerError::Store(error) => {
            matches!(error, Store::KeyNotAllowed(_) | Store::ValueTooLarge(_) | Store::TransactionTooLarge)
        }
        _ => false,
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

/// Progress of a session whose connection ends: the cursor up to which all is acknowledged, and what is acknowledged
/// after it.
fn progress(detach: &Detach) -> (Position, Positions) {
    let sent = detach.in_flight.iter().filter_map(|(_, in_flight)| match in_flight {
        InFlight::Published(entry) | InFlight::Unsent(entry) => Some(entry),
        InFlight::Released(_) => None,
    });
    let mut had = detach.had.clone();
    let recent = detach.recent.iter().filter_map(|message| message.place()).map(Position);
    recent.for_each(|place| had.add(place));
    had.progress(detach.base, open_places(sent.chain(&detach.unsent)))
}

fn rows(detach: &Detach, clock: &Clock) -> Vec<(u16, Vec<u8>)> {
    let mut whole = 0;
    let row = |(id, in_flight): &(PacketId, InFlight)| {
        if detach.standing.binary_search(&id.get()).is_ok() {
            return None;
        }
        let row = inflight::encode(in_flight, detach.skipped_ids, clock);
        if matches!(in_flight, InFlight::Published(entry) | InFlight::Unsent(entry) if entry.replay || entry.message.place().is_none())
        {
            whole += row.len();
        }
        (whole <= WHOLE_BYTES_MAX).then_some((id.get(), row))
    };
    detach.in_flight.iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::Properties;
    use millrace_session::Entry;
    use smallvec::SmallVec;

    use super::*;

    fn at(number: u8) -> [u8; 12] {
        let mut place = [0; 12];
        place[11] = number;
        place
    }

    fn message(place: Option<u8>) -> Arc<Message> {
        let message = Message::new("t".into(), QoS::AtLeastOnce, false, Properties::EMPTY, b"x", 0);
        message.set_place(place.map(at));
        Arc::new(message)
    }

    fn entry(message: &Arc<Message>) -> Entry {
        let qos = QoS::AtLeastOnce;
        Entry {
            message: message.clone(),
            qos,
            retain: false,
            replay: false,
            maybe_sent: false,
            shared: 0,
            identifiers: SmallVec::new(),
        }
    }

    #[test]
    fn a_session_comes_back_to_what_it_has_not_acknowledged_and_to_nothing_else() {
        let messages: Vec<Arc<Message>> = (0..10).map(|number| message(Some(number))).collect();
        let unstored = message(None);
        // All up to 5 was handed over; what is unacknowledged; what was had before; what is open or new after the cursor.
        type Case = (&'static [usize], &'static [u8], u8, &'static [u8]);
        let cases: [Case; 5] = [
            (&[], &[], 5, &[10, 11, 12]),
            (&[7], &[], 5, &[7, 10, 11, 12]),
            (&[3, 7], &[], 2, &[3, 7, 10, 11, 12]),
            (&[3], &[1, 3, 4, 12], 2, &[3, 10, 11]),
            (&[6, 9], &[], 5, &[6, 9, 10, 11, 12]),
        ];
        for (open, had, cursor, not_done) in cases {
            let mut in_flight: Vec<(PacketId, InFlight)> = Vec::new();
            for index in open {
                in_flight.push((PacketId::MIN, InFlight::Published(entry(&messages[*index]))));
            }
            in_flight.push((PacketId::MIN, InFlight::Published(entry(&unstored))));
            let broker = Arc::new(Broker::new(1, "b", 1));
            let detach = Detach {
                session: SessionKey { broker, client: "c".into(), epoch: 1 },
                leaves: None,
                keep_will: false,
                expiry_s: 1,
                now_ms: 1,
                base: Position(at(5)),
                in_flight,
                standing: Vec::new(),
                unsent: Vec::new(),
                recent: messages[2..].to_vec(),
                had: had.iter().map(|number| Position(at(*number))).collect(),
                skipped_ids: false,
                received: Vec::new(),
                replayed: Vec::new(),
            };
            let (found, done) = progress(&detach);
            assert_eq!(found, Position(at(cursor)), "{open:?} {had:?}");
            for number in cursor + 1..14 {
                let is_done = number < 13 && !not_done.contains(&number);
                assert_eq!(done.contains(Position(at(number))), is_done, "{open:?} {had:?} {number}");
            }
        }
    }
}
