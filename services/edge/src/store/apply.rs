//! Runs jobs within a transaction. The transaction may run again, so a job must have no effect except through the
//! transaction and the returned [`Applied`].

mod of_end;
mod of_message;
mod of_session;
mod of_will;

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use millrace_layers::due::Due;
use millrace_layers::index::{self, IndexedStream};
use millrace_layers::metering::{self, Unit};
use millrace_layers::sessions::{self, Owned};
use millrace_layers::streams;
use millrace_layers::subscriptions::Subscribed;
use millrace_layers::webhooks::{self, WebhookId};
use millrace_layers::{GroupedFilter, LayerError, Position};
use millrace_session::Message;
use millrace_storage::Transaction;

use super::bugs::{WriterBug, has_bug};
use super::load::{self, subscribers};
use super::{AttachedSession, Job, PublishWrite, SessionKey, StoreContext, StreamKey, Write};
use crate::broker::{Broker, Reserved};
use crate::metering::Amount;
use crate::quota::Limit;
use of_will::RefusedWill;

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
const ATTACHES_AT_ONCE_MAX: usize = 50;

#[derive(Default)]
pub(super) struct Applied {
    /// One per job, in order; the jobs after the last outcome did not run.
    pub(super) outcomes: Vec<WriteOutcome>,
    /// Brokers whose filters in memory equal those in the store.
    pub(super) caught_up: HashSet<u64>,
    /// Brokers for which any change of a filter makes the transaction conflict: after its commit, their filters in memory
    /// are those of the version below its own.
    pub(super) watched: HashMap<u64, Arc<Broker>>,
    pub(super) added: streams::Added,
    /// Messages with their number in the transaction, in order.
    pub(super) numbers: Vec<(Arc<Message>, u16)>,
    pub(super) last_number: u16,
    pub(super) changes: Vec<IndexChange>,
    /// How many of the changes the jobs made, if due sessions made the rest.
    pub(super) changes_by_jobs: Option<usize>,
    /// The last due time in its shard ([`Due::shard`]) that this transaction or an earlier one has settled.
    pub(super) settled: Option<Due>,
    pub(super) wills: Vec<(Arc<Broker>, Arc<Message>, Reserved)>,
    /// Without other pods: topics that a will retains, because memory retains wills after all messages of the transaction.
    pub(super) retained_wills: HashSet<(u64, Arc<str>)>,
    pub(super) wills_dropped: Vec<(Arc<Broker>, LayerError)>,
    pub(super) wills_refused: Vec<RefusedWill>,
    pub(super) wills_not_retained: Vec<(Arc<Broker>, Limit)>,
    /// Streams that grew, and those that grew because an ended session gave messages back.
    pub(super) touched: Vec<StreamKey>,
    pub(super) returned: Vec<StreamKey>,
    /// The part of [`super::trims::TRIMMED_MAX`] that checkpoints have used, and streams to be trimmed later.
    pub(super) trimmed: usize,
    pub(super) trims: Vec<(StreamKey, Position)>,
    pub(super) counts: Vec<(Arc<Broker>, BrokerCounts)>,
    pub(super) queued_webhooks: BTreeSet<(u64, Arc<str>)>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct BrokerCounts {
    pub(super) stored: usize,
    /// Messages that were not stored, because all subscribers had them.
    pub(super) unstored: usize,
    /// Messages that an ending connection could neither give back to their groups nor store.
    pub(super) lost: usize,
    pub(super) began: usize,
    pub(super) ended: usize,
    pub(super) received: Amount,
}

impl Applied {
    pub(super) fn done(count: usize) -> Self {
        Self { outcomes: (0..count).map(|_| WriteOutcome::Done).collect(), ..Self::default() }
    }

    pub(super) fn makes_sessions(&self) -> bool {
        self.counts.iter().any(|(_, counts)| counts.began > 0)
    }

    /// Whether this process must learn of the commit, however long its outcome is unknown: its messages get positions, its wills
    /// and filters are in memory, and a session that it attached must be detached again.
    pub(super) fn changes_memory(&self) -> bool {
        let attached =
            |outcome: &WriteOutcome| matches!(outcome, WriteOutcome::Attached(session) if session.epoch != 0);
        self.last_number > 0
            || !(self.changes.is_empty() && self.wills.is_empty())
            || self.outcomes.iter().any(attached)
    }

    fn number(&mut self, message: &Arc<Message>) -> u16 {
        let number = self.next_number();
        self.numbers.push((message.clone(), number));
        number
    }

    fn next_number(&mut self) -> u16 {
        self.last_number = self.last_number.saturating_add(1);
        self.last_number
    }

    pub(super) fn has_retained_will(&self, publish: &PublishWrite) -> bool {
        let key = || (publish.routes.broker.id, publish.message.topic().clone());
        !self.retained_wills.is_empty() && self.retained_wills.contains(&key())
    }

    pub(super) fn count(&mut self, broker: &Arc<Broker>) -> &mut BrokerCounts {
        let known = self.counts.iter().position(|(known, _)| Arc::ptr_eq(known, broker));
        let index = known.unwrap_or_else(|| {
            self.counts.push((broker.clone(), BrokerCounts::default()));
            self.counts.len() - 1
        });
        &mut self.counts[index].1
    }
}

pub(super) enum WriteOutcome {
    Done,
    /// The session, or a message that it takes from a group, has another owner by now; nothing of it was written.
    Fenced,
    /// There was no session to end.
    Nothing,
    /// The store can never hold it; nothing of it was written.
    Refused(LayerError),
    Unstored,
    Attached(Box<AttachedSession>),
    /// Another pod has the session under this epoch, and finds a notice that it must release it.
    Elsewhere(Bytes, u64),
    OfAnotherUser,
    OverLimit(Limit),
    /// One result for each filter, `None` for a refused one.
    Subscribed(Vec<Option<Subscribed>>),
}

pub(super) struct IndexChange {
    pub(super) broker: Arc<Broker>,
    pub(super) filter: Box<str>,
    pub(super) streams: Vec<IndexedStream>,
    pub(super) subscribers: Vec<u64>,
}

pub(super) struct Applier<'a> {
    pub(super) tx: &'a Transaction,
    pub(super) shared: &'a StoreContext,
    applied: RefCell<Applied>,
    pub(super) is_retry: bool,
    /// Earlier attempts that conflicted.
    conflicts: u32,
    began_us: u64,
    state: WriterState,
    watches_losses: Cell<bool>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct WriterState {
    /// Memory does not have the retained messages of all jobs, see [`super::taken_back`].
    pub(super) memory_lags: bool,
    pub(super) has_stalled: bool,
}

impl<'a> Applier<'a> {
    pub(super) fn new(tx: &'a Transaction, shared: &'a StoreContext, is_retry: bool) -> Self {
        let began_us = shared.clock.micros();
        let (applied, state, watches_losses) = Default::default();
        Self { tx, shared, applied, is_retry, conflicts: 0, began_us, state, watches_losses }
    }

    pub(super) fn after_conflicts(self, conflicts: u32) -> Self {
        Self { conflicts, ..self }
    }

    pub(super) fn in_state(self, state: WriterState) -> Self {
        Self { state, ..self }
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
        for jobs in together.flat_map(|jobs| jobs.chunks(ATTACHES_AT_ONCE_MAX)) {
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

    async fn job(&self, job: &Job) -> Result<WriteOutcome, LayerError> {
        let outcome = match &job.write {
            Write::Publish(publish) => self.publish(publish, job.ack.map(|ack| ack.packet_id)).await,
            Write::Attach(attach) => self.attach(attach).await,
            Write::Subscribe(subscribe) => self.subscribe(subscribe).await,
            Write::Unsubscribe(unsubscribe) => self.unsubscribe(unsubscribe).await,
            Write::Ids(ids) => self.ids(ids).await,
            Write::Checkpoint(checkpoint) => self.checkpoint(checkpoint).await,
            Write::Detach(detach) => self.detach(detach).await,
            Write::Purge(purge) => self.purge(purge).await,
            Write::Webhooks(broker) => self.sync_webhooks(broker).await.map(|()| WriteOutcome::Done),
            Write::Grown(..)
            | Write::Barrier { .. }
            | Write::Shared(_)
            | Write::Notices
            | Write::Confirmed { .. } => Ok(WriteOutcome::Done),
        };
        match outcome {
            Err(LayerError::Fenced { .. }) => Ok(WriteOutcome::Fenced),
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

    /// A refused SUBSCRIBE may be undone after the end of its connection.
    async fn fence_filters<'k>(&self, session: &'k SessionKey, is_undo: bool) -> Result<Owned<'k>, LayerError>
    where
        Self: 'k,
    {
        if !is_undo {
            return self.fence(session).await;
        }
        sessions::fence_until_taken(self.tx, session.id(), self.epoch(session).await?).await
    }

    /// Updates the brokers' filters in memory from the store; it must run before this transaction changes filters.
    pub(super) async fn catch_up(&self, brokers: &[&Broker]) -> Result<(), LayerError> {
        if !self.shared.is_shared {
            return Ok(());
        }
        let (tx, layers) = (self.tx, &self.shared.layers);
        let mut behind = brokers.to_vec();
        behind.retain(|broker| self.applied().caught_up.insert(broker.id));
        let changes = join_all(behind.iter().map(|broker| load::changes(tx, layers, broker))).await;
        for (broker, has_changes) in behind.into_iter().zip(changes) {
            if has_changes? && self.is_retry {
                broker.streams.conflicts.note(self.conflicts, self.shared.clock.now());
            }
        }
        Ok(())
    }

    /// Makes the transaction conflict if another pod changes the streams of the topic before the commit (P2). It
    /// watches one key, which any change of a filter touches, or the matching filters alone while conflicts are expected. It must run
    /// after [`Self::catch_up`].
    fn watch(&self, broker: &Arc<Broker>, topic: &str) -> Result<(), LayerError> {
        debug_assert!(self.applied().caught_up.contains(&broker.id), "its filters may be old");
        if self.applied().watched.contains_key(&broker.id) {
            return Ok(());
        }
        if broker.streams.conflicts.are_expected(self.shared.clock.now()) {
            if has_bug(WriterBug::TrustsUnwatched) {
                self.applied().watched.insert(broker.id, broker.clone());
            }
            return index::watch(self.tx, broker.id, topic.as_bytes());
        }
        self.applied().watched.insert(broker.id, broker.clone());
        index::watch_all(self.tx, broker.id)
    }

    pub(super) fn finish(&self) -> Result<(), LayerError> {
        let now_ms = self.shared.clock.unix_now_ms();
        let applied = self.applied();
        for (broker, BrokerCounts { received, .. }) in &applied.counts {
            let add = |unit, more: usize| metering::add(self.tx, broker.id, unit, now_ms, more as i64);
            add(Unit::MessagesIn, received.units)?;
            add(Unit::BytesIn, received.bytes)?;
        }
        for (broker, name) in &applied.queued_webhooks {
            webhooks::enqueue(self.tx, WebhookId { broker: *broker, name })?;
        }
        applied.added.write(self.tx)
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
            self.applied().changes.push(IndexChange { broker: broker.clone(), filter, streams, subscribers });
        }
        Ok(())
    }
}
