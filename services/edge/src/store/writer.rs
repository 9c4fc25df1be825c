//! The writer thread: takes jobs from the queue, runs them in transactions, and turns their results into mail.
//!
//! Its loop: take a fair batch from the [`Backlog`], apply it in a transaction, then set positions, update the filter
//! index, deliver, and acknowledge. After a commit with an unknown outcome, the commit marker decides before it continues.

mod answers;
mod asking;
mod contention;
mod deliveries;
mod refusals;
mod step;
mod transact;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_layers::LayerError;
use millrace_layers::once::MarkerNumbers;
use millrace_storage::{StoreError, TransactionOption, Versionstamp};

pub(super) use self::contention::Contention;
use self::refusals::is_unknown;
pub(super) use self::refusals::{Why, is_contention, is_hopeless, may_be_of_content, may_pass};
use self::step::Rounds;
use super::apply::{Applied, WriteOutcome};
use super::backlog::Backlog;
use super::claims::Claims;
use super::commit_times::CommitTimes;
use super::duties::{self, Beside, Duties, Duty};
use super::gather::{Gather, Patience};
use super::groups::Groups;
use super::outage::Outage;
use super::queue::QueuedWork as _;
use super::read_versions::ReadVersions;
use super::taken_back::TakenBack;
use super::unconfirmed::Unconfirmed;
use super::{Job, PublishAck, SessionKey, StoreContext, Write, pods, sweep};
use crate::broker::Broker;
use crate::jobs::StoredTraces;
use crate::mailbox::Mail;
use crate::routes::RouteCache;

/// Conflicts after which a transaction of several jobs or sessions is split, and one of a single job put off.
pub(super) const CONFLICTS: u32 = 5;
/// Conflicts after which a single group waits for the next round.
pub(super) const CONFLICTS_ALONE: u32 = 10;
/// First delay before a session that another pod must release is asked for again; later delays are longer.
const RETRY: Duration = Duration::from_millis(10);
/// Interval in which shared subscriptions look for messages whose notice was lost.
const LOOK_AROUND_NOTIFIED_MS: u64 = 30_000;
/// Interval in which remains of dead pods are looked for.
const TIDY_EVERY_MS: u64 = 60_000;
const TICK: Duration = Duration::from_millis(500);
const ABANDON_TRIES: usize = 3;

/// Ends sessions that an earlier process left open, before clients connect. Nobody does it later, so an error that does
/// not pass by waiting, as of a single read, is not believed at once.
pub(super) fn abandon(shared: &StoreContext) -> Result<(), LayerError> {
    let mut writer = Writer::new(shared);
    let mut abandon = || {
        sweep::abandoned(&mut writer, &shared.owner)?;
        while shared.is_shared && writer.free_some_claims(&shared.owner)? {}
        Ok(())
    };
    for _ in 1..ABANDON_TRIES {
        match abandon() {
            Err(error) if !may_pass(&error) => {}
            ended => return ended,
        }
    }
    abandon()
}

pub(super) fn run(shared: &StoreContext) {
    let _lease = EndsLease(shared);
    let mut writer = Writer::new(shared);
    while writer.step(shared.writes.take(writer.wait_for_jobs())).is_continue() {}
}

/// Ends the pod's lease when the writer ends, even by a panic: a pod without a writer is dead, and others recover its
/// sessions.
struct EndsLease<'s>(&'s StoreContext);

impl Drop for EndsLease<'_> {
    fn drop(&mut self) {
        self.0.leases.end(Duration::ZERO);
    }
}

#[derive(Default)]
pub(super) struct Tidied {
    at_ms: u64,
    /// The pod up to which it came.
    pub(super) to: Option<Bytes>,
}

pub(super) struct Writer<'s> {
    pub(super) shared: &'s StoreContext,
    pub(super) routes: RouteCache,
    pub(super) groups: Groups,
    /// The same as `groups` if other pods may have members too.
    pub(super) claims: Claims,
    pub(super) mail: Vec<Vec<Mail>>,
    stored: Vec<Vec<PublishAck>>,
    traced: Vec<(u16, StoredTraces)>,
    /// Start of the current transaction in microseconds; only set while messages are traced.
    began_us: u64,
    /// Refused ends of connections and undoes of SUBSCRIBE packets, to be tried again.
    pub(super) unwritten: Vec<Job>,
    /// CONNECTs that wait for another pod to release their session.
    waiting: Vec<Job>,
    /// Refusals of messages with QoS 1 or 2 of which their publishers may not know yet, so that later messages of these are
    /// refused as well, see [`Writer::without_refused`].
    unconfirmed: Unconfirmed,
    pub(super) taken_back: TakenBack,
    /// Whether the last write was refused, so that a series of refusals is logged once.
    refused: bool,
    rounds: Rounds,
    pub(super) notices_read_at: u64,
    backlog: Backlog<Job>,
    /// Jobs that the last transaction ran in part or not at all, in order.
    pub(super) unfinished: Vec<Job>,
    pub(super) outage: Outage,
    pub(super) duties: Duties,
    /// Sessions whose loss is announced to their event loop again, by time in milliseconds of the process.
    pub(super) losing: BTreeMap<u64, Vec<SessionKey>>,
    pub(super) tidied: Tidied,
    marks: MarkerNumbers,
    /// Key of the last commit marker; `None`: unknown.
    marked: Option<Versionstamp>,
    read_versions: ReadVersions,
    pub(super) commit_times: CommitTimes,
    gather: Gather,
    linger: Patience,
    /// Duration of the last transaction without its commit, in microseconds.
    pub(super) work_us: u64,
    /// Hashes a connection to a number that no other pod has.
    senders: RandomState,
}

impl<'s> Writer<'s> {
    pub(super) fn new(shared: &'s StoreContext) -> Self {
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
            unwritten: Vec::new(),
            waiting: Vec::new(),
            unconfirmed: Unconfirmed::default(),
            taken_back: TakenBack::default(),
            refused: false,
            rounds: Rounds::default(),
            notices_read_at: 0,
            backlog: Backlog::default(),
            unfinished: Vec::new(),
            outage: Outage::default(),
            duties: Duties::new(!shared.is_shared),
            losing: BTreeMap::new(),
            tidied: Tidied::default(),
            marks: MarkerNumbers::new(RandomState::new().hash_one(0)),
            marked: None,
            read_versions: ReadVersions::default(),
            commit_times: CommitTimes::default(),
            gather: Gather::default(),
            linger: Patience::default(),
            work_us: 0,
            senders: RandomState::new(),
        }
    }

    fn write_next(&mut self) {
        let jobs = self.backlog.next_batch(self.commit_times.budget());
        if !jobs.is_empty() {
            self.duties.note_jobs(self.shared.clock.micros(), self.commit_times.commit_us());
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
    fn finish_part(&mut self, job: Job, outcome: WriteOutcome) -> Option<(Job, WriteOutcome)> {
        let Job { mut write, ack } = job;
        if matches!(outcome, WriteOutcome::Subscribed(_) | WriteOutcome::Done) {
            self.forget_undo(&write);
        }
        match (&mut write, outcome) {
            (Write::Subscribe(subscribe), WriteOutcome::Subscribed(subscribed)) => {
                let ends = subscribe.ends();
                subscribe.written.extend(subscribed);
                if ends {
                    let all = std::mem::take(&mut subscribe.written);
                    return Some((Job { write, ack }, WriteOutcome::Subscribed(all)));
                }
            }
            (Write::Unsubscribe(unsubscribe), WriteOutcome::Done) => {
                unsubscribe.written = unsubscribe.until;
                if unsubscribe.until >= unsubscribe.filters.len() {
                    return Some((Job { write, ack }, WriteOutcome::Done));
                }
            }
            (_, outcome) => return Some((Job { write, ack }, outcome)),
        }
        self.unfinished.push(Job { write, ack });
        None
    }

    /// Returns false if the batch is put back because it conflicted again and again.
    pub(super) fn write_together(&mut self, mut batch: Vec<Job>, contention: Contention) -> bool {
        if batch.is_empty() {
            return true;
        }
        if self.shared.tracer.is_some() {
            self.began_us = self.shared.clock.micros();
        }
        // Messages that everybody acknowledged meanwhile need no position; barriers need no transaction.
        let is_written = !batch.iter().all(|job| writes_nothing(&job.write));
        // Due sessions go along (`sweep`): if their transaction fails, the jobs are written without them.
        let beside = if is_written { self.take_along() } else { None };
        let result = if is_written {
            self.transact_jobs(&batch, beside.as_ref(), contention)
        } else {
            Ok((Applied::done(batch.len()), None))
        };
        match result {
            Ok((applied, stamp)) => {
                beside.iter().for_each(|beside| self.duties.note_beside(beside));
                if is_written && !frees_space(&batch, &applied) {
                    self.log(None);
                }
                let rest = batch.split_off(applied.outcomes.len().min(batch.len()));
                self.committed(batch, applied, stamp);
                self.unfinished.extend(rest);
            }
            Err(error) if beside.is_some() && !is_unknown(&error) => {
                self.duties.take_alone(self.shared.clock.micros());
                return self.write_together(batch, contention);
            }
            Err(LayerError::Contended(_))
                if contention == Contention::Splits && contention::has_apart(self.shared, &batch) =>
            {
                self.write(batch);
            }
            Err(LayerError::Contended(_)) if contention == Contention::PutsBack => {
                self.put_off(batch);
                return false;
            }
            Err(LayerError::Store(StoreError::DiskFull { .. }))
                if batch.len() > 1 && batch.iter().any(Job::needs_no_room) =>
            {
                let (rest, small) = apart_by_room(batch);
                self.write_one_after_other(rest, small, contention);
            }
            // A job that cannot be written must not fail the others of its batch, so the batch is split.
            Err(error) if batch.len() > 1 && may_be_of_content(&error) => {
                let rest = batch.split_off(batch.len() / 2);
                self.write_one_after_other(batch, rest, contention);
            }
            Err(LayerError::Contended(_)) if contention == Contention::Splits => self.put_off(batch),
            // The process ends before the outcome is known. A refusal could be wrong, so nobody gets an answer.
            Err(error) if is_unknown(&error) => self.log(Some(&error)),
            Err(error) => {
                self.log(Some(&error));
                self.refuse(batch, Why::of(&error));
            }
        }
        true
    }

    fn write_one_after_other(&mut self, first: Vec<Job>, rest: Vec<Job>, contention: Contention) {
        self.write_together(first, contention);
        if self.unfinished.is_empty() {
            // A refused message of the first part also refuses later messages of its publisher.
            let rest = self.without_refused(rest);
            self.write_together(rest, contention);
        } else {
            self.unfinished.extend(rest);
        }
    }

    fn transact_jobs(
        &mut self,
        batch: &[Job],
        beside: Option<&Beside>,
        contention: Contention,
    ) -> Result<(Applied, Option<Versionstamp>), LayerError> {
        let shared = self.shared;
        self.transact(batch, contention.conflicts_max(), &async |applier| {
            applier.warm(batch).await?;
            if contention == Contention::Splits && contention::has_apart(shared, batch) {
                return Err(LayerError::Contended(0));
            }
            applier.all(batch).await?;
            if frees_space(batch, &applier.applied()) {
                applier.tx.set_option(TransactionOption::FreesSpace);
            }
            sweep::settle_beside(applier, beside).await
        })
    }

    /// Interval in which notices of other pods are read from the store; it is long while the fabric announces them.
    fn listen_every_ms(&self) -> u64 {
        let is_notified = self.shared.region.as_ref().is_some_and(|region| !region.is_in_doubt());
        if is_notified { pods::NOTIFIED_TICK_MS } else { pods::TICK.as_millis() as u64 }
    }

    fn until_step(&self) -> Duration {
        let wait = self.duties.wait(self.shared.clock.micros());
        wait.filter(|_| !self.outage.is_unavailable()).unwrap_or(Duration::MAX)
    }

    fn sweep(&mut self) {
        // Each of the checks below would wait for the unavailable store.
        if !self.store_answers() {
            return;
        }
        let now_ms = self.shared.clock.now();
        if self.shared.is_shared && now_ms >= self.notices_read_at + self.listen_every_ms() {
            self.notices_read_at = now_ms;
            pods::listen(self);
        }
        self.save_groups_in_time();
        if now_ms >= self.rounds.swept_at + TICK.as_millis() as u64 {
            self.rounds.swept_at = now_ms;
            self.tick(now_ms);
        }
        duties::step(self);
    }

    pub(super) fn tick(&mut self, now_ms: u64) {
        self.routes.forget_idle();
        if !self.unwritten.is_empty() {
            self.duties.add(Duty::Unwritten);
        }
        if self.refused && !self.unconfirmed.is_empty() {
            self.probe();
        }
        sweep::due(self);
        self.follow_webhooks();
        if self.shared.is_shared {
            pods::look(self);
            if now_ms >= self.tidied.at_ms + TIDY_EVERY_MS {
                self.tidied.at_ms = now_ms;
                pods::tidy(self);
            }
        }
        self.save_shared();
        let is_notified = self.shared.region.as_ref().is_some_and(|region| !region.is_in_doubt());
        let looks_around = !is_notified || now_ms >= self.rounds.looked_around_at + LOOK_AROUND_NOTIFIED_MS;
        self.rounds.looked_around_at = if looks_around { now_ms } else { self.rounds.looked_around_at };
        self.look_for_missed(looks_around);
        self.probe_full_members();
        self.serve_groups();
    }
}

/// Whether a nearly full disk accepts these jobs, so that their success does not show that there is room again.
fn frees_space(batch: &[Job], applied: &Applied) -> bool {
    batch.iter().all(Job::needs_no_room) && !applied.makes_sessions()
}

/// A nearly full disk accepts only what needs no room, in a transaction without others.
fn apart_by_room(batch: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
    let (mut rest, mut small): (Vec<Job>, Vec<Job>) = batch.into_iter().partition(|job| !job.needs_no_room());
    if rest.is_empty() {
        rest = small.split_off(small.len() / 2);
    }
    (rest, small)
}

pub(super) fn writes_nothing(write: &Write) -> bool {
    matches!(write, Write::Barrier { .. } | Write::Shared(_) | Write::Notices | Write::Confirmed { .. })
}
