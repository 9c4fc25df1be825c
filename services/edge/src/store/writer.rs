//! The writer thread: takes jobs from the queue, runs them in transactions, and turns their results into mail.
//!
//! Its loop: take a fair batch from the [`Backlog`], apply it in a transaction, then set positions, update the filter
//! index, deliver, and acknowledge. If the outcome of a commit is unknown, nothing that depends on it continues until
//! the commit marker shows the outcome.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use millrace_layers::once::{Attempts, MarkerNumbers};
use millrace_layers::{LayerError, Position, pods as layer_pods};
use millrace_mqtt::QoS;
use millrace_session::Message;
use millrace_storage::{Attempt, StoreError, Versionstamp};

use super::apply::{Applied, Applier, Change, HAND_OVER_MS, Outcome};
use super::away::Away;
use super::backlog::Backlog;
use super::claims::Claims;
use super::costs::cost;
use super::duties::{self, Duties};
use super::gather::Gather;
use super::groups::Groups;
use super::pace::Pace;
use super::queue::{Sized as _, Taken};
use super::unconfirmed::Unconfirmed;
use super::{Ack, Attached, IdWrite, Job, Publish, Read, SessionKey, Shared, Write, pods, retained, sweep};
use crate::broker::Broker;
use crate::connection_id::ConnectionId;
use crate::deliveries::Committed;
use crate::elsewhere::is_here;
use crate::jobs::{Reader, StoredTraces};
use crate::mailbox::Mail;
use crate::routes::{RouteCache, Routes};
use crate::streams::group_id;
use crate::traces::{About, TraceStep};

/// Conflicts after which a transaction of several jobs or sessions is split.
pub(super) const CONFLICTS: u32 = 5;
/// First delay before a session that another pod must release is asked for again; later delays are longer.
const RETRY: Duration = Duration::from_millis(10);
/// CONNECTs that ask in one transaction.
const BATCH_WAITING_MAX: usize = 250;
/// Interval in which shared subscriptions look for messages whose notice was lost.
const LOOK_AROUND_TOLD_MS: u64 = 30_000;
/// Interval in which remains of dead pods are looked for.
const TIDY_EVERY_MS: u64 = 60_000;
const TICK: Duration = Duration::from_millis(500);

/// Ends sessions that an earlier process left open, before clients connect.
pub(super) fn abandon(shared: &Shared) {
    let mut writer = Writer::new(shared);
    sweep::abandoned(&mut writer, &shared.owner);
    if shared.is_shared {
        writer.free_claims(&shared.owner);
    }
}

pub(super) fn run(shared: &Shared) {
    let _lease = EndsLease(shared);
    let mut writer = Writer::new(shared);
    loop {
        let wait = match () {
            () if writer.away.holds() || !writer.backlog.is_empty() => Duration::ZERO,
            () if !writer.waiting.is_empty() => RETRY,
            () if shared.is_shared => pods::TICK,
            () => TICK,
        };
        let taken = shared.writes.take(wait.min(writer.until_step()));
        if writer.away.holds() {
            let held = writer.away.take_held();
            writer.backlog.push(held.into_iter().flat_map(Job::by_broker));
        }
        match taken {
            Taken::Work(jobs) => writer.backlog.push(jobs.into_iter().flat_map(Job::by_broker)),
            Taken::Nothing => {}
            Taken::Closed if writer.backlog.is_empty() => {
                writer.save_groups();
                return pods::leave(&mut writer);
            }
            Taken::Closed => {}
        }
        writer.linger();
        writer.gather();
        writer.write_next();
        writer.ask_again();
        writer.sweep();
        writer.put_back_unfinished();
    }
}

/// Ends the pod's lease when the writer ends, even by a panic: a pod without a writer is dead, and others recover its
/// sessions.
struct EndsLease<'s>(&'s Shared);

impl Drop for EndsLease<'_> {
    fn drop(&mut self) {
        self.0.leases.end(Duration::ZERO);
    }
}

pub(super) struct Writer<'s> {
    pub(super) shared: &'s Shared,
    pub(super) routes: RouteCache,
    pub(super) groups: Groups,
    /// The same as `groups` if other pods may have members too.
    pub(super) claims: Claims,
    pub(super) mail: Vec<Vec<Mail>>,
    stored: Vec<Vec<Ack>>,
    traced: Vec<(u16, StoredTraces)>,
    /// Start of the current transaction in microseconds; only set while messages are traced.
    began_us: u64,
    /// Ends of connections that the store refused, to be tried again.
    pub(super) unleft: Vec<Job>,
    /// CONNECTs that wait for another pod to release their session.
    waiting: Vec<Job>,
    /// Refusals of messages with QoS 1 or 2 of which their publishers may not know yet. Later messages of these
    /// publishers are refused as well, see [`Writer::without_refused`].
    unconfirmed: Unconfirmed,
    /// Whether the last write was refused, so that a series of refusals is logged once.
    refused: bool,
    swept_at: u64,
    listened_at: u64,
    looked_around_at: u64,
    backlog: Backlog<Job>,
    /// Jobs that the last transaction ran in part or not at all, in order.
    unfinished: Vec<Job>,
    pub(super) away: Away,
    pub(super) duties: Duties,
    /// Sessions whose loss is announced to their event loop again, by time in milliseconds of the process.
    pub(super) losing: BTreeMap<u64, Vec<SessionKey>>,
    tidied_at: u64,
    /// The pod up to which remains of dead pods were removed.
    pub(super) tidied: Option<Bytes>,
    marks: MarkerNumbers,
    /// Key of the last commit marker; `None`: unknown.
    marked: Option<Versionstamp>,
    pace: Pace,
    gather: Gather,
    /// The last batch had no room for all small messages, so the next one is full without waiting.
    leaves_small: bool,
    /// Duration of the last transaction without its commit, in microseconds.
    pub(super) work_us: u64,
    /// Hashes a connection to a number that no other pod has.
    senders: RandomState,
}

impl<'s> Writer<'s> {
    fn new(shared: &'s Shared) -> Self {
        let mail: Vec<Vec<Mail>> = shared.mailboxes.iter().map(|_| Vec::new()).collect();
        let stored = mail.iter().map(|_| Vec::new()).collect();
        Self {
            shared,
            routes: RouteCache::default(),
            groups: Groups::default(),
            claims: Claims::default(),
            mail,
            stored,
            traced: Vec::new(),
            began_us: 0,
            unleft: Vec::new(),
            waiting: Vec::new(),
            unconfirmed: Unconfirmed::default(),
            refused: false,
            swept_at: 0,
            listened_at: 0,
            looked_around_at: 0,
            backlog: Backlog::default(),
            unfinished: Vec::new(),
            away: Away::default(),
            duties: Duties::default(),
            losing: BTreeMap::new(),
            tidied_at: 0,
            tidied: None,
            marks: MarkerNumbers::new(RandomState::new().hash_one(0)),
            marked: None,
            pace: Pace::default(),
            gather: Gather::default(),
            leaves_small: false,
            work_us: 0,
            senders: RandomState::new(),
        }
    }

    /// Waits for a moment for brokers that have just been answered, see [`Backlog::is_early`].
    fn linger(&mut self) {
        let until = self.pace.linger_until_us();
        let mut left = until.saturating_sub(self.shared.clock.micros());
        while left > 0 && self.backlog.is_early() {
            let Taken::Work(jobs) = self.shared.writes.take(Duration::from_micros(left)) else { return };
            self.backlog.push(jobs.into_iter().flat_map(Job::by_broker));
            left = until.saturating_sub(self.shared.clock.micros());
        }
    }

    /// Waits for a moment for publishers that have just been answered, see [`Gather`].
    fn gather(&mut self) {
        let mut publishes = self.backlog.small_publishes();
        let is_full = std::mem::take(&mut self.leaves_small);
        let waits = !is_full && !self.backlog.is_empty();
        let wait_us = if waits { self.gather.wait_us(publishes, self.pace.commit_us()) } else { 0 };
        if wait_us == 0 {
            return;
        }
        let until = self.shared.clock.micros() + wait_us;
        while !self.gather.is_complete(publishes) {
            let left = until.saturating_sub(self.shared.clock.micros());
            let Taken::Work(work) = self.shared.writes.take(Duration::from_micros(left)) else { break };
            self.backlog.push(work.into_iter().flat_map(Job::by_broker));
            publishes = self.backlog.small_publishes();
        }
        self.gather.end(publishes);
    }

    fn write_next(&mut self) {
        let jobs = self.backlog.next_batch(self.pace.budget());
        self.leaves_small = self.backlog.small_publishes() > 0;
        if !jobs.is_empty() {
            self.duties.note_jobs();
        }
        self.end_connections_before(&jobs);
        let bytes: Vec<(Option<Arc<Broker>>, usize)> = jobs
            .chunk_by(|one, other| one.broker().map(Arc::as_ptr) == other.broker().map(Arc::as_ptr))
            .map(|jobs| (jobs[0].broker().cloned(), jobs.iter().map(Job::size).sum()))
            .collect();
        let accepted = self.without_refused(jobs);
        self.write(accepted);
        self.put_back_unfinished();
        for (broker, bytes) in bytes {
            self.shared.writes.done(broker.as_deref(), bytes);
        }
    }

    fn put_back_unfinished(&mut self) {
        for job in std::mem::take(&mut self.unfinished).into_iter().rev() {
            self.shared.writes.count(job.owner(), job.size());
            self.backlog.put_back(job);
        }
    }

    /// A part of a job is durable. Returns the job after its last part, with the outcome of all parts.
    fn go_on(&mut self, job: Job, outcome: Outcome) -> Option<(Job, Outcome)> {
        let Job { mut write, ack } = job;
        match (&mut write, outcome) {
            (Write::Subscribe(subscribe), Outcome::Subscribed(subscribed)) => {
                let ends = subscribe.ends();
                subscribe.written.extend(subscribed);
                if ends {
                    let all = std::mem::take(&mut subscribe.written);
                    return Some((Job { write, ack }, Outcome::Subscribed(all)));
                }
            }
            (Write::Unsubscribe(unsubscribe), Outcome::Done) => {
                unsubscribe.written = unsubscribe.until;
                if unsubscribe.until >= unsubscribe.filters.len() {
                    return Some((Job { write, ack }, Outcome::Done));
                }
            }
            (_, outcome) => return Some((Job { write, ack }, outcome)),
        }
        self.unfinished.push(Job { write, ack });
        None
    }

    pub(super) fn write(&mut self, mut batch: Vec<Job>) {
        if batch.is_empty() {
            return;
        }
        if self.shared.tracer.is_some() {
            self.began_us = self.shared.clock.micros();
        }
        // Messages that everybody acknowledged meanwhile need no position; barriers need no transaction.
        let is_written = !batch.iter().all(|job| {
            matches!(
                job.write,
                Write::Mark { .. } | Write::Shared(_) | Write::Notices | Write::Confirmed { .. }
            )
        });
        let result = if is_written {
            let conflicts_max = if batch.len() > 1 { CONFLICTS } else { u32::MAX };
            self.transact(&batch, conflicts_max, &async |applier| {
                applier.warm(&batch).await?;
                applier.all(&batch).await
            })
        } else {
            Ok((Applied::done(batch.len()), None))
        };
        match result {
            Ok((applied, stamp)) => {
                // A checkpoint is also written to a disk that is nearly full.
                if is_written && batch.iter().any(|job| !matches!(job.write, Write::Checkpoint(_))) {
                    self.log(None);
                }
                let rest = batch.split_off(applied.outcomes.len().min(batch.len()));
                self.committed(batch, applied, stamp);
                self.unfinished.extend(rest);
            }
            // A job that cannot be written must not fail the others of its batch, so the batch is split.
            Err(error) if batch.len() > 1 && is_of_jobs(&error) => {
                let rest = batch.split_off(batch.len() / 2);
                self.write(batch);
                if self.unfinished.is_empty() {
                    // A refused message of the first half also refuses later messages of its publisher.
                    let rest = self.without_refused(rest);
                    self.write(rest);
                } else {
                    self.unfinished.extend(rest);
                }
            }
            // The process ends before the outcome is known. A refusal could be wrong, so nobody gets an answer.
            Err(error) if is_unknown(&error) => self.log(Some(&error)),
            Err(error) => {
                self.log(Some(&error));
                self.refuse(batch, Why::of(&error));
            }
        }
    }

    /// Runs `body` until it has committed exactly once. If an attempt's outcome is unknown, the commit marker decides.
    /// An error means that nothing was committed, except [`StoreError::CommitUnknown`]: the process ends before the
    /// store has answered. After a number of conflicts it gives up.
    pub(super) fn transact(
        &mut self,
        batch: &[Job],
        conflicts_max: u32,
        body: &impl AsyncFn(&Applier<'_>) -> Result<(), LayerError>,
    ) -> Result<(Applied, Option<Versionstamp>), LayerError> {
        let shared = self.shared;
        let attempts = self.marks.attempts();
        let is_marked = shared.is_shared || batch.iter().any(|job| !job.is_repeatable());
        let (work_us, marks) = (Cell::new(0), Cell::new(false));
        let attempted = Cell::new(Attempt { number: 1, conflicts: 0, maybe_committed: false });
        let last = self.marked.take();
        let began_us = shared.clock.micros();
        let run = shared.layers.database().run_committed(|tx, attempt| {
            let (attempts, attempted, work_us, marks) = (&attempts, &attempted, &work_us, &marks);
            async move {
                shared.transactions.note_attempt(attempted.replace(attempt), attempt);
                if attempt.maybe_committed
                    && let Some(stamp) = attempts.find(&tx, &shared.owner).await?
                {
                    return Ok(Some(stamp));
                }
                if attempt.conflicts >= conflicts_max {
                    return Err(LayerError::Contended(attempt.conflicts));
                }
                let began_us = shared.clock.micros();
                let is_retry = attempt.number > 1;
                let applier = Applier::new(&tx, shared, is_retry);
                body(&applier).await?;
                applier.finish()?;
                let has_order = applier.applied().last_place > 0;
                let number = attempts.push(applier.into_applied());
                marks.set(is_marked || has_order);
                if marks.get() {
                    let last = last.filter(|_| !attempt.maybe_committed);
                    layer_pods::put_marker(&tx, &shared.owner, number, last)?;
                }
                work_us.set(shared.clock.micros() - began_us);
                Ok::<_, LayerError>(None)
            }
        });
        let result = self.wait(run);
        shared.transactions.note_end(&result);
        self.work_us = work_us.get();
        self.pace.note(self.work_us / 1_000);
        // A transaction without writes has no version.
        if result.as_ref().is_ok_and(|(_, committed)| committed.versionstamp.is_some()) && !batch.is_empty() {
            self.pace.note_commit((shared.clock.micros() - began_us).saturating_sub(self.work_us));
        }
        let stamp = match result {
            Ok((earlier, committed)) => earlier.or(committed.versionstamp),
            Err(error) if attempted.get().maybe_committed || is_unknown(&error) => {
                let committed = if marks.get() { self.resolve(&attempts)? } else { None };
                let Some(stamp) = committed else { return Err(known(error)) };
                Some(stamp)
            }
            Err(error) => {
                self.marked = last;
                return Err(error);
            }
        };
        if stamp.is_some() {
            shared.transactions.seconds.note(shared.clock.micros().saturating_sub(began_us));
        }
        self.marked = if marks.get() { stamp } else { last };
        Ok((attempts.into_committed().unwrap_or_default(), stamp))
    }

    /// Finds out whether one of these attempts was committed, however long the store does not answer. Meanwhile nothing
    /// that depends on them continues, and new jobs are refused.
    ///
    /// A missing marker proves nothing until a later transaction of this pod has committed: an engine that failed still
    /// reads its earlier state, and may restore the commit when it reopens its journal.
    ///
    /// # Errors
    /// [`StoreError::CommitUnknown`] if the process ends first.
    fn resolve(&mut self, attempts: &Attempts<Applied>) -> Result<Option<Versionstamp>, LayerError> {
        let shared = self.shared;
        tracing::warn!(
            "it is not known whether a transaction was committed; writes wait until the store answers"
        );
        loop {
            let asked = shared.layers.run(async |tx| {
                let found = attempts.find(&tx, &shared.owner).await?;
                if found.is_none() {
                    layer_pods::put_marker(&tx, &shared.owner, u128::MAX, None)?;
                }
                Ok(found)
            });
            if let Ok(found) = self.wait(asked) {
                return Ok(found);
            }
            self.turn_away(RETRY).map_err(|_| LayerError::Store(StoreError::CommitUnknown))?;
        }
    }

    fn ask_again(&mut self) {
        let now_ms = self.shared.clock.now();
        let is_due = |job: &mut Job| matches!(&job.write, Write::Attach(attach) if attach.ask_at <= now_ms);
        let mut due: Vec<Job> = self.waiting.extract_if(.., is_due).collect();
        while !due.is_empty() {
            let rest = due.split_off(due.len().min(BATCH_WAITING_MAX));
            self.write(due);
            due = rest;
        }
    }

    fn log(&mut self, error: Option<&LayerError>) {
        match error {
            Some(error) if !self.refused => {
                tracing::error!(%error, "the store refuses writes: their publishers are notified, live delivery goes on");
            }
            None if self.refused => tracing::info!("the store takes writes again"),
            _ => {}
        }
        self.refused = error.is_some();
    }

    /// In this order: set positions, update the filter index, deliver, advance `through`, acknowledge.
    fn committed(&mut self, batch: Vec<Job>, applied: Applied, stamp: Option<Versionstamp>) {
        let version =
            stamp.map_or_else(|| self.shared.through.load(Ordering::Relaxed), |stamp| stamp.version());
        let answered = batch.iter().filter(|job| job.is_small_publish()).count();
        let queued = self.backlog.small_publishes() + self.shared.writes.small_publishes();
        self.gather.note_answers(answered, queued);
        self.pace.note_end(self.shared.clock.micros());
        self.charge(&batch, &applied);
        let Applied { outcomes, .. } = self.settle(applied, stamp);
        let mut acks: Vec<Vec<Ack>> = self.mail.iter().map(|_| Vec::new()).collect();
        self.trace_committed(&batch);
        // Each job counts with the age of the oldest one.
        let age_us = self.shared.writes.taken_age_us();
        for (job, outcome) in batch.into_iter().zip(outcomes) {
            if let Outcome::Refused(error) = &outcome {
                tracing::warn!(%error, "a message is refused: the store can never hold it");
                self.refuse_job(job, Why::Content);
            } else if let Write::Publish(publish) = &job.write {
                publish.message.set_place(None);
                // Another connection has the session, and sends the message again if it was not stored.
                if matches!(outcome, Outcome::Fenced) {
                    continue;
                }
                if publish.deliver {
                    let routes = if publish.retains && self.shared.is_shared {
                        // A subscriber that read the retained messages before this commit gets the message live.
                        self.routes.get(&publish.routes.broker, publish.message.topic())
                    } else {
                        publish.routes.clone()
                    };
                    self.deliver(&routes, &publish.message, publish.from);
                }
                self.hand_on_to_groups(publish);
                if self.shared.is_shared {
                    let is_live = !publish.deliver && publish.message.qos() == QoS::AtMostOnce;
                    self.announce(
                        &publish.routes,
                        &publish.message,
                        publish.from,
                        publish.publisher,
                        is_live,
                    );
                }
                if let Some(ack) = job.ack {
                    if ack.qos > QoS::AtMostOnce {
                        publish.routes.broker.acknowledged.note(age_us);
                    }
                    acks[usize::from(ack.connection.core)].push(ack);
                }
            } else if let Write::Mark { core, fence, .. } = job.write {
                // Earlier jobs of this batch are committed with it.
                self.post(core, Mail::Marked { fence, through: Position::end_of(version) });
            } else if let Some((job, outcome)) = self.go_on(job, outcome) {
                self.answer(job.write, outcome);
            }
        }
        let acknowledged = acks.iter().map(Vec::len).sum();
        if acknowledged > 0 {
            self.shared.acknowledged.note_many(age_us, acknowledged);
        }
        for (core, acks) in acks.into_iter().enumerate().filter(|(_, acks)| !acks.is_empty()) {
            self.stored[core] = acks;
        }
        self.send(stamp);
        self.claim_more();
    }

    fn claim_more(&mut self) {
        if self.shared.is_shared {
            self.claim_all();
            self.send(None);
        }
    }

    /// A message is committed: announces it to sessions that follow its streams, and delivers it to shared
    /// subscriptions without a stream, unless they got it live.
    fn announce(
        &mut self,
        routes: &Routes,
        message: &Arc<Message>,
        from: Option<ConnectionId>,
        publisher: u64,
        is_live: bool,
    ) {
        let routes = self.routes.get(&routes.broker, message.topic());
        if !is_live {
            self.deliver_to_groups(&routes, message, from);
        }
        if message.qos() == QoS::AtMostOnce || routes.stored.streams.is_empty() {
            return;
        }
        // Unique among all connections of all pods, at any time.
        let sender = from.map_or(0, |from| self.senders.hash_one(from) | 1);
        let committed = Arc::new(Committed { routes, message: message.clone(), publisher, sender });
        if let Some(region) = &self.shared.region {
            region.committed(&committed);
        }
        for core in committed.routes.cores_that_keep() {
            self.mail[usize::from(core)].push(Mail::Committed(committed.clone()));
        }
    }

    fn hand_on_to_groups(&mut self, publish: &Publish) {
        let Publish { message, routes, .. } = publish;
        // A stream that was created meanwhile has the message, too.
        if routes.stored.generation == routes.broker.streams.generation() {
            if !routes.stored.groups.is_empty() {
                self.hand_to_groups(routes, message);
            }
        } else {
            let routes = self.routes.get(&routes.broker, message.topic());
            self.hand_to_groups(&routes, message);
        }
    }

    /// Charges brokers for filters of ended sessions, which their jobs could not estimate.
    fn charge(&mut self, batch: &[Job], applied: &Applied) {
        let mut costs: HashMap<u64, (usize, usize)> = HashMap::new();
        for change in &applied.changes {
            costs.entry(change.broker.id).or_default().0 += 1;
        }
        for job in if costs.is_empty() { &[] } else { batch } {
            if let (filters @ 1.., Some(broker)) = (job.filters(), job.broker()) {
                costs.entry(broker.id).or_default().1 += filters;
            }
        }
        for (broker, (changed, said)) in costs {
            self.backlog.owe(broker, cost::FILTER * changed.saturating_sub(said));
        }
    }

    /// Sets the positions of messages, updates the filter index, and delivers wills.
    fn settle(&mut self, mut applied: Applied, stamp: Option<Versionstamp>) -> Applied {
        if let Some(stamp) = stamp {
            for (message, place) in applied.places.drain(..) {
                message.set_place(Some(Position::new(stamp, place).0));
            }
        }
        for Change { broker, filter, streams, subscribers } in applied.changes.drain(..) {
            broker.streams.set(&filter, &streams, &subscribers);
        }
        self.shared.hooked.note(std::mem::take(&mut applied.hooked));
        if !applied.touched.is_empty() {
            let mut touched = self.shared.touched.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            for stream in applied.touched.drain(..) {
                *touched.entry(stream).or_default() += 1;
            }
        }
        for (broker, error) in applied.wills_dropped.drain(..) {
            broker.counters[self.mail.len()].wills_dropped.add(1);
            tracing::error!(%error, broker = &*broker.name, "a will is dropped: the store can never hold it");
        }
        for (broker, will) in std::mem::take(&mut applied.wills) {
            will.set_place(None);
            broker.counters[self.mail.len()].wills.add(1);
            let routes = self.routes.get(&broker, will.topic());
            self.deliver(&routes, &will, None);
            self.hand_to_groups(&routes, &will);
            if self.shared.is_shared {
                self.announce(&routes, &will, None, 0, false);
            }
        }
        for (broker, counts) in applied.counts.drain(..) {
            let counters = &broker.counters[self.mail.len()];
            counters.sessions.add(counts.began);
            counters.sessions.sub(counts.ended);
            counters.stored.add(counts.stored);
            counters.unstored.add(counts.settled);
        }
        applied
    }

    /// A transaction of the store's own work is durable.
    pub(super) fn swept(&mut self, applied: Applied, stamp: Option<Versionstamp>) {
        self.settle(applied, stamp);
        self.send(stamp);
        self.claim_more();
    }

    pub(super) fn send_now(&mut self) {
        self.send(None);
    }

    fn send(&mut self, stamp: Option<Versionstamp>) {
        for (mailbox, mail) in self.shared.mailboxes.iter().zip(&mut self.mail) {
            if !mail.is_empty() {
                let bytes = mail.iter().map(Mail::size).sum();
                mailbox.deliver(mail, bytes);
            }
        }
        // Before any acknowledgement: a session that acknowledges afterwards has the message below its cursor.
        if let Some(stamp) = stamp {
            self.shared.through.store(stamp.version(), Ordering::Release);
        }
        // After all deliveries are in the mailboxes, because the publisher's next message goes straight to its
        // receivers.
        for (mailbox, acks) in self.shared.mailboxes.iter().zip(&mut self.stored) {
            if !acks.is_empty() {
                mailbox.deliver(&mut vec![Mail::Stored { acks: std::mem::take(acks), stored: true }], 0);
            }
        }
        for (core, traced) in self.traced.drain(..) {
            self.shared.mailboxes[usize::from(core)].deliver(&mut vec![Mail::Traced(Box::new(traced))], 0);
        }
    }

    fn trace_committed(&mut self, batch: &[Job]) {
        let Some(tracer) = &self.shared.tracer else { return };
        let (clock, now) = (&self.shared.clock, self.shared.clock.micros());
        for job in batch {
            let Write::Publish(publish) = &job.write else { continue };
            let Some(trace) = publish.message.trace() else { continue };
            let about = About::message(&publish.routes.broker.name, &publish.message);
            tracer.step(clock, trace, TraceStep::Append, (publish.queued_us, self.began_us), about);
            let about = About { count: batch.len() as u64, ..about };
            tracer.step(clock, trace, TraceStep::Commit, (self.began_us, now), about);
            if let Some(ack) = &job.ack {
                self.traced.push((ack.connection.core, StoredTraces::of(publish, true, now)));
            }
        }
    }

    fn deliver(&mut self, routes: &Arc<Routes>, message: &Arc<Message>, from: Option<ConnectionId>) {
        for (core, _) in &routes.cores {
            let (routes, message) = (routes.clone(), message.clone());
            self.mail[usize::from(*core)].push(Mail::Publish { routes, message, from });
        }
        if let Some(region) = &self.shared.region {
            region.publish(routes, message);
        }
        if !self.shared.is_shared {
            self.deliver_to_groups(routes, message, from);
        }
    }

    fn deliver_to_groups(
        &mut self,
        routes: &Arc<Routes>,
        message: &Arc<Message>,
        from: Option<ConnectionId>,
    ) {
        for group in routes.live_groups(message) {
            let Some(receiver) = group.pick() else { continue };
            if let (false, Some(region)) = (is_here(receiver.target), &self.shared.region) {
                region.share(&routes.broker, group, &receiver, message);
                continue;
            }
            let (routes, message) = (routes.clone(), message.clone());
            let core = usize::from(receiver.target.core);
            self.mail[core].push(Mail::Shared { routes, receiver, message, from, group: group_id(group) });
        }
    }

    pub(super) fn answer(&mut self, write: Write, outcome: Outcome) {
        let stored = !matches!(outcome, Outcome::Fenced);
        match (write, outcome) {
            (Write::Attach(attach), Outcome::Attached(attached)) => {
                attach.broker.has_sessions.fetch_or(attached.epoch != 0, Ordering::Relaxed);
                self.attached(&attach.broker, attach.connection, attached);
            }
            (Write::Attach(mut attach), Outcome::Elsewhere(owner)) => {
                let now_ms = self.shared.clock.now().max(1);
                if attach.asked_at == 0 {
                    if let Some(region) = &self.shared.region {
                        region.notify(&owner);
                    }
                    attach.asked_at = now_ms;
                }
                attach.ask_at = ask_again_at(attach.asked_at, now_ms);
                self.waiting.push(Job { write: Write::Attach(attach), ack: None });
            }
            (Write::Attach(attach), Outcome::OfAnotherUser) => {
                let session = (attach.broker, attach.client);
                self.post(attach.connection.core, Mail::OfAnotherUser(attach.connection, session));
            }
            (Write::Attach(attach), Outcome::OverLimit(limit)) => {
                let session = (attach.broker, attach.client);
                self.post(attach.connection.core, Mail::OverLimit(attach.connection, session, limit));
            }
            (Write::Attach(attach), _) => {
                let session = (attach.broker, attach.client);
                self.post(attach.connection.core, Mail::Attached(attach.connection, session, None));
            }
            (Write::Subscribe(mut subscribe), outcome) => {
                let subscribed = match outcome {
                    Outcome::Subscribed(subscribed)
                        if self.shared.is_shared && !subscribe.pending.replays.is_empty() =>
                    {
                        let read = retained::RetainedRead::new(subscribe, subscribed);
                        return retained::read(self.shared, read);
                    }
                    Outcome::Subscribed(subscribed) => subscribed,
                    _ => {
                        subscribe.pending.is_refused = true;
                        // Earlier transactions may have written some of the filters.
                        let mut subscribed = std::mem::take(&mut subscribe.written);
                        subscribed.resize(subscribe.filters.len(), None);
                        subscribed
                    }
                };
                self.post(subscribe.target.core, Mail::Subscribed(subscribe, subscribed));
            }
            (Write::Unsubscribe(unsubscribe), _) => {
                self.post(unsubscribe.target.core, Mail::Unsubscribed(unsubscribe, stored));
            }
            (Write::Ids(ids), _) => {
                if let (true, IdWrite::Reserve(reserve)) = (stored, &ids.write) {
                    self.taken(&reserve.taken);
                }
                self.post(ids.target.core, Mail::Ids(ids, stored));
            }
            // The jobs before it were refused with it.
            (Write::Mark { core, fence, .. }, _) => {
                let through = Position::end_of(self.shared.through.load(Ordering::Relaxed));
                self.post(core, Mail::Marked { fence, through });
            }
            (Write::Shared(shared), _) => self.shared(*shared),
            (Write::Notices, _) => self.listened_at = 0,
            (Write::Grown(broker, topic), _) => {
                let routes = self.routes.get(&broker, &topic);
                let mut groups = routes.stored.groups.iter();
                groups.by_ref().for_each(|kept| self.claims.grew((broker.id, kept.stream)));
            }
            (Write::Purge(purge), outcome) => {
                let answer = match outcome {
                    Outcome::Done => Ok(true),
                    Outcome::Nothing => Ok(purge.was_online),
                    _ => Err("the session cannot be removed from the store now".into()),
                };
                // The caller may have stopped waiting.
                let _ = purge.done.try_send(answer);
            }
            (Write::Checkpoint(checkpoint), Outcome::Fenced) => self.lose(&checkpoint.session, true),
            (Write::Detach(detach), _) => {
                if let Some(connection) = detach.leaves {
                    self.post(connection.core, Mail::Left(connection));
                }
            }
            (Write::Publish(_) | Write::Checkpoint(_) | Write::Confirmed { .. } | Write::Webhooks(_), _) => {}
        }
    }

    /// A session with streams or messages in flight gets its first page along with the answer.
    fn attached(&mut self, broker: &Arc<Broker>, connection: ConnectionId, attached: Box<Attached>) {
        let sources = sources(&attached);
        if sources.is_empty() && attached.rows.is_empty() {
            let session = (broker.clone(), attached.client.clone());
            return self.post(connection.core, Mail::Attached(connection, session, Some((attached, None))));
        }
        let cursor = attached.cursor;
        let reader = Reader::Connection(connection, attached);
        let read = Read { core: connection.core, broker: broker.clone(), sources, cursor, reader };
        self.shared.reads.push(&mut vec![read]);
    }

    /// Another owner has the session, or wants it: its core closes the connection.
    pub(super) fn lose(&mut self, session: &SessionKey, is_lost: bool) {
        for mail in &mut self.mail {
            mail.push(Mail::Lost { session: session.clone(), is_lost });
        }
    }

    fn post(&mut self, core: u16, mail: Mail) {
        self.mail[usize::from(core)].push(mail);
    }

    fn refuse(&mut self, batch: Vec<Job>, why: Why) {
        for job in batch {
            self.refuse_job(job, why);
        }
        self.send(None);
    }

    pub(super) fn refuse_job(&mut self, job: Job, why: Why) {
        match job.write {
            Write::Publish(publish) => {
                match publish.message.qos() {
                    QoS::AtMostOnce => publish.message.set_place(None),
                    _ => publish.message.refuse(),
                }
                self.refuse_publish(&publish, job.ack, why);
            }
            // Tried again: otherwise the session's will would never be published, and the session would never expire.
            write @ (Write::Detach(_) | Write::Webhooks(_)) => self.unleft.push(Job { write, ack: None }),
            // The session is unchanged, and its next checkpoint contains this one.
            Write::Checkpoint(_) if why == Why::Passing => {}
            write => self.answer(write, Outcome::Fenced),
        }
    }

    /// A QoS 0 message still goes to its receivers.
    fn refuse_publish(&mut self, publish: &Publish, ack: Option<Ack>, why: Why) {
        if publish.is_late() {
            self.deliver(&publish.routes, &publish.message, publish.from);
        }
        if publish.message.qos() == QoS::AtMostOnce {
            let unqueued = publish.routes.stored.hooks.len();
            publish.routes.broker.counters[self.mail.len()].unqueued.add(unqueued);
        }
        if let (Some(ack), Some(_)) = (&ack, publish.message.trace()) {
            let (core, now) = (ack.connection.core, self.shared.clock.micros());
            self.traced.push((core, StoredTraces::of(publish, false, now)));
        }
        if let Some(mut ack) = ack {
            // A message that no store can hold is refused again when it comes again, so later ones may pass it.
            ack.holds_back = ack.qos > QoS::AtMostOnce && why != Why::Content;
            if ack.holds_back {
                self.unconfirmed.add(&ack);
            }
            self.post(ack.connection.core, Mail::Stored { acks: vec![ack], stored: false });
        }
    }

    /// Refuses QoS 1 and 2 messages that come after a refused message of the same publisher, as long as it may not know
    /// of that refusal. It sends the refused message again if its connection ends before, and would find later ones
    /// stored before it (P4). Once the store accepts writes again, the publisher's connection is closed, so that it
    /// sends all of them again, in order.
    fn without_refused(&mut self, jobs: Vec<Job>) -> Vec<Job> {
        if self.unconfirmed.is_empty() {
            return jobs;
        }
        let mut left = Vec::with_capacity(jobs.len());
        for job in jobs {
            match (&job.write, job.ack) {
                (Write::Confirmed { publisher, connection, count }, _) => {
                    self.unconfirmed.confirm(*publisher, *connection, *count);
                }
                // Nobody sends a message with QoS 0 again, so none can come in the wrong order.
                (Write::Publish(_), Some(ack))
                    if ack.qos > QoS::AtMostOnce && self.unconfirmed.holds_back(ack.publisher()) =>
                {
                    if !self.refused {
                        self.post(ack.connection.core, Mail::SendAgain(ack.connection));
                    }
                    self.refuse_job(job, Why::Passing);
                }
                _ => left.push(job),
            }
        }
        self.send(None);
        left
    }

    /// Finds out whether the store accepts writes again. Needed while all publishers are refused because of an earlier
    /// refusal, so that no job of theirs would show it.
    fn probe(&mut self) {
        let shared = self.shared;
        self.marked = None;
        let probe = shared.layers.run(async |tx| layer_pods::put_marker(&tx, &shared.owner, u128::MAX, None));
        if self.wait(probe).is_ok() {
            self.log(None);
        }
    }

    /// Interval in which notices of other pods are read from the store; it is long while the fabric announces them.
    fn listen_every_ms(&self) -> u64 {
        let is_told = self.shared.region.as_ref().is_some_and(|region| !region.is_in_doubt());
        if is_told { pods::TOLD_TICK_MS } else { pods::TICK.as_millis() as u64 }
    }

    fn until_step(&self) -> Duration {
        let wait = self.duties.wait(self.shared.clock.micros());
        wait.filter(|_| !self.away.is_away()).unwrap_or(Duration::MAX)
    }

    fn sweep(&mut self) {
        // Each of the checks below would wait for the unavailable store.
        if self.is_away() {
            return;
        }
        let now_ms = self.shared.clock.now();
        if self.shared.is_shared && now_ms >= self.listened_at + self.listen_every_ms() {
            self.listened_at = now_ms;
            pods::listen(self);
        }
        self.save_groups_in_time();
        if now_ms >= self.swept_at + TICK.as_millis() as u64 {
            self.swept_at = now_ms;
            self.write_unleft(|_| true);
            if self.refused && !self.unconfirmed.is_empty() {
                self.probe();
            }
            sweep::due(self);
            self.follow_webhooks();
            if self.shared.is_shared {
                pods::look(self);
                if now_ms >= self.tidied_at + TIDY_EVERY_MS {
                    self.tidied_at = now_ms;
                    pods::tidy(self);
                }
            }
            self.save_groups();
            if self.shared.is_shared {
                self.save_all_claims();
                let is_told = self.shared.region.as_ref().is_some_and(|region| !region.is_in_doubt());
                if !is_told || now_ms >= self.looked_around_at + LOOK_AROUND_TOLD_MS {
                    self.looked_around_at = now_ms;
                    self.claims.all_grew();
                }
                self.claim_more();
            }
        }
        duties::step(self);
    }
}

/// Time of the next request for a session that was first asked for at `asked_at`: after half of the time passed so far,
/// and once when the session may be taken over by force.
fn ask_again_at(asked_at: u64, now_ms: u64) -> u64 {
    let (waited_ms, force_at) = (now_ms - asked_at, asked_at + HAND_OVER_MS + 1);
    let next = now_ms + (waited_ms / 2).max(RETRY.as_millis() as u64);
    if now_ms < force_at { next.min(force_at) } else { next }
}

fn sources(attached: &Attached) -> Vec<millrace_layers::streams::Source> {
    use millrace_layers::subscriptions::NO_STREAM;
    let with_stream = attached.subscriptions.iter().filter(|subscription| subscription.stream != NO_STREAM);
    let source = |subscription: &millrace_layers::subscriptions::StoredSubscription| {
        millrace_layers::streams::Source { stream: subscription.stream, since: subscription.since }
    };
    with_stream.filter(|subscription| !subscription.filter.starts_with(b"$share/")).map(source).collect()
}

fn is_unknown(error: &LayerError) -> bool {
    matches!(error, LayerError::Store(error) if error.is_maybe_committed())
}

/// The error of attempts of which none was committed.
fn known(error: LayerError) -> LayerError {
    if is_unknown(&error) { StoreError::Unavailable("the commit failed".into()).into() } else { error }
}

/// Whether a transaction may have failed because of its content, so that a part of it may succeed. A failure of the
/// store itself affects every part.
fn is_of_jobs(error: &LayerError) -> bool {
    use StoreError::{Busy, Closed, CommitUnknown, DiskFull, Io, Unavailable};
    !matches!(
        error,
        LayerError::Store(Busy | Closed | CommitUnknown | DiskFull { .. } | Io(_) | Unavailable(_))
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The store can never hold it.
    Content,
    /// The store failed, as with a full disk or a missing permission.
    Failure,
    /// The next attempt may succeed.
    Passing,
}

impl Why {
    fn of(error: &LayerError) -> Self {
        match error {
            error if may_pass(error) => Self::Passing,
            LayerError::Store(StoreError::Cluster { .. }) => Self::Failure,
            error if is_of_jobs(error) => Self::Content,
            _ => Self::Failure,
        }
    }
}

/// Whether the store may accept the same writes later.
pub(super) fn may_pass(error: &LayerError) -> bool {
    match error {
        LayerError::Store(error) => error.is_retryable(),
        LayerError::Contended(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_of_the_content_lets_later_messages_pass_a_refused_one() {
        let why = |error: StoreError| Why::of(&error.into());
        assert_eq!(why(StoreError::Cluster { code: 6000, reason: "permission denied" }), Why::Failure);
        assert_eq!(why(StoreError::Io("full".into())), Why::Failure);
        assert_eq!(why(StoreError::Conflict), Why::Passing);
        assert_eq!(Why::of(&LayerError::Corrupt("a row")), Why::Content);
    }

    #[test]
    fn a_session_is_asked_for_ever_less_often_and_at_once_when_it_may_be_taken() {
        let mut times = vec![1_000];
        while times.last().is_some_and(|last| *last <= 1_000 + HAND_OVER_MS) {
            times.push(ask_again_at(1_000, *times.last().unwrap()));
        }
        assert!(times[1] == 1_010 && times.len() < 20, "{times:?}");
        assert_eq!(times.last(), Some(&(1_001 + HAND_OVER_MS)));
        assert!(times.is_sorted_by(|one, next| one < next));
    }
}
