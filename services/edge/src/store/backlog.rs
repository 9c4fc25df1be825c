//! The jobs that the writer has taken from the queue and not yet written. Brokers take turns in each transaction, by
//! cost; the jobs of one broker stay in order (P4).
//!
//! ```text
//! queue ──> lane of broker 1 ─┐
//!       ──> lane of broker 2 ─┼─ turns of QUANTUM ──> next transaction
//!       ──> checkpoints ──────┘  (after each transaction of the others, one of their own)
//! ```
//!
//! A publish does not wait for earlier checkpoints. Other jobs wait for checkpoints of their own session, because a
//! checkpoint frees packet ids and must not free an id that a later job uses again.
//!
//! A broker that is alone fills a transaction. Beside a broker with little to write, a broker with much to write gets a
//! share, so that transactions stay short. A job that exceeds the share is written in parts. If it cannot be split, its
//! broker afterwards waits for as many transactions as the job exceeded its share. A transaction of costly jobs alone
//! is delayed for about the time of a commit, because the brokers that were just answered would otherwise miss every
//! second transaction.
//!
//! Decision 0003 has the reasons and figures.

mod work;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

pub(super) use self::work::{Budget, Lane, Work};

/// Cost that a broker may use in a row before the next broker's turn.
pub(super) const QUANTUM: usize = 25;
/// Most that a broker owes after a job that exceeded its share: the cost of a full transaction.
const DEBT_MAX: usize = 4_000;

/// Transactions for which a broker without queued jobs still counts as one with little to write.
const RECENT: u64 = 8;
/// Beside other jobs, a transaction of checkpoints takes at least this part (1/n) of the waiting ones.
const CATCH_UP_DIVISOR: usize = 8;
/// Cost from which a job counts as costly: above that of small publishes, below that of a filter (20).
pub(super) const COSTLY: usize = 8;

struct Recent {
    broker: u64,
    cost: usize,
    transaction: u64,
}

type Numbered<J> = VecDeque<(u64, J)>;

pub(super) struct Backlog<J> {
    /// By broker; none is empty.
    lanes: HashMap<u64, Numbered<J>>,
    order: VecDeque<u64>,
    /// Small messages in all lanes.
    small_publishes: usize,
    checkpoints: Numbered<J>,
    checkpoint_cost: usize,
    checkpointed: HashMap<u64, VecDeque<u64>>,
    /// Cost of the last transaction, which had no checkpoints; `None`: checkpoints do not come next.
    before_checkpoints: Option<usize>,
    marks: Numbered<J>,
    next: u64,
    transaction: u64,
    recent: Vec<Recent>,
    /// Cost by which a broker exceeded its share; no entry is 0.
    debts: HashMap<u64, usize>,
    /// Brokers with a part of a job in the last transaction, and the job's number.
    unfinished: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Default)]
struct Part {
    cost: usize,
    until: usize,
    jobs: usize,
    index_changed: bool,
    /// Cost of the parts of its first job in the transaction, while the job is incomplete.
    begun: usize,
    is_over: bool,
}

impl<J> Default for Backlog<J> {
    fn default() -> Self {
        Self {
            lanes: HashMap::new(),
            order: VecDeque::new(),
            small_publishes: 0,
            checkpoints: VecDeque::new(),
            checkpoint_cost: 0,
            checkpointed: HashMap::new(),
            before_checkpoints: None,
            marks: VecDeque::new(),
            next: 0,
            transaction: 0,
            recent: Vec::new(),
            debts: HashMap::new(),
            unfinished: Vec::new(),
        }
    }
}

impl<J: Work> Backlog<J> {
    pub(super) fn push(&mut self, jobs: impl IntoIterator<Item = J>) {
        for job in jobs {
            self.next += 1;
            self.small_publishes += usize::from(job.is_small_publish());
            match job.lane() {
                Lane::Checkpoint => {
                    self.checkpoint_cost += job.cost();
                    let number = self.next;
                    self.numbers_of(&job).push_back(number);
                    self.checkpoints.push_back((number, job));
                }
                Lane::Mark(_) => self.marks.push_back((self.next, job)),
                Lane::Broker(broker) => {
                    let lane = self.lanes.entry(broker).or_default();
                    if lane.is_empty() {
                        self.order.push_back(broker);
                    }
                    lane.push_back((self.next, job));
                }
            }
        }
    }

    /// Returns a job, or the rest of one, that the last transaction did not run: it becomes its broker's first job
    /// again, and barriers wait for it. The caller returns all such jobs before [`Self::next_batch`], last job first.
    pub(super) fn put_back(&mut self, job: J) {
        let broker = match job.lane() {
            Lane::Broker(broker) => broker,
            // Number 0 puts it before newer checkpoints of the same session.
            Lane::Checkpoint => {
                self.checkpoint_cost += job.cost();
                self.numbers_of(&job).push_front(0);
                return self.checkpoints.push_front((0, job));
            }
            Lane::Mark(_) => return self.push([job]),
        };
        self.small_publishes += usize::from(job.is_small_publish());
        // A begun job is its broker's last one in a transaction and keeps its number. The jobs before it get number 0,
        // so no barrier passes them.
        let begun = self.unfinished.iter().position(|(of, _)| *of == broker);
        let number = begun.map_or(0, |at| self.unfinished.swap_remove(at).1);
        let lane = self.lanes.entry(broker).or_default();
        if lane.is_empty() {
            self.order.push_back(broker);
        }
        lane.push_front((number, job));
    }

    /// Charges a broker whose jobs cost more than they had estimated.
    pub(super) fn owe(&mut self, broker: u64, cost: usize) {
        if cost > 0 {
            let debt = self.debts.entry(broker).or_default();
            *debt = (*debt + cost).min(DEBT_MAX);
        }
    }

    pub(super) fn small_publishes(&self) -> usize {
        self.small_publishes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.checkpoints.is_empty() && self.marks.is_empty()
    }

    /// Whether the next transaction would have only costly jobs, while a broker of the last one has nothing queued yet.
    pub(super) fn is_early(&self) -> bool {
        let is_costly = |lane: &Numbered<J>| lane.front().is_some_and(|(_, job)| job.cost() >= COSTLY);
        let is_last = |recent: &&Recent| recent.transaction == self.transaction;
        self.checkpoints.is_empty()
            && (1..=work::EARLY_LANES_MAX).contains(&self.lanes.len())
            && self.lanes.values().all(is_costly)
            && self.recent.iter().filter(is_last).any(|recent| !self.lanes.contains_key(&recent.broker))
    }

    pub(super) fn next_batch(&mut self, budget: Budget) -> Vec<J> {
        let mut batch = Batch { budget, jobs: Vec::new(), bytes: 0, cost: 0 };
        self.unfinished.clear();
        let has_others = !(self.lanes.is_empty() && self.marks.is_empty());
        if has_others && (self.checkpoints.is_empty() || self.before_checkpoints.is_none()) {
            self.fill(&mut batch);
            self.add_marks(&mut batch);
            self.small_publishes -= batch.jobs.iter().filter(|job| job.is_small_publish()).count();
            let is_turn = !self.checkpoints.is_empty() && !batch.jobs.is_empty();
            self.before_checkpoints = is_turn.then_some(batch.cost);
        }
        // The batch is also empty when all other jobs wait for checkpoints of their sessions.
        if batch.jobs.is_empty() {
            let cost = self.before_checkpoints.take().filter(|_| has_others);
            let most = self.checkpoint_cost / CATCH_UP_DIVISOR;
            let cost = cost.map_or(budget.cost, |cost| cost.max(budget.share).max(most));
            self.fill_with_checkpoints(&mut batch, cost.min(budget.cost));
        }
        batch.jobs
    }

    fn fill_with_checkpoints(&mut self, batch: &mut Batch<J>, cost_max: usize) {
        while let Some((_, job)) = self.checkpoints.front()
            && (batch.jobs.is_empty() || batch.cost < cost_max && batch.has_room(job.bytes()))
        {
            batch.bytes += job.bytes();
            batch.cost += job.cost();
            self.checkpoint_cost -= job.cost();
            let Some((_, job)) = self.checkpoints.pop_front() else { return };
            if let Entry::Occupied(mut waiting) = self.checkpointed.entry(job.session().unwrap_or_default()) {
                waiting.get_mut().pop_front();
                if waiting.get().is_empty() {
                    waiting.remove();
                }
            }
            batch.jobs.push(job);
        }
    }

    fn numbers_of(&mut self, job: &J) -> &mut VecDeque<u64> {
        self.checkpointed.entry(job.session().unwrap_or_default()).or_default()
    }

    fn fill(&mut self, batch: &mut Batch<J>) {
        let mut parts: HashMap<u64, Part> = HashMap::new();
        let mut turn = self.without_debtors(batch.budget.share);
        let brokers = turn.clone();
        // The first broker of this transaction is the last one of the next.
        self.order.rotate_left(usize::from(self.order.len() > 1));
        // The highest cost of a broker with little to write, in this transaction or a recent one: brokers with more to
        // write may use as much.
        let is_away = |recent: &&Recent| !self.lanes.contains_key(&recent.broker);
        let mut measure = self.recent.iter().filter(is_away).map(|recent| recent.cost).max();
        let mut with_more = turn.len();
        let least = QUANTUM.min(batch.budget.share);
        while let Some(broker) = turn.pop_front() {
            let part = parts.entry(broker).or_default();
            let share = (2 * batch.budget.share / with_more.max(1)).clamp(least, batch.budget.share);
            let limit = measure.map_or(usize::MAX, |cost| cost.max(share));
            let Some(lane) = self.lanes.get_mut(&broker) else { continue };
            part.until += QUANTUM;
            while part.cost < part.until.min(limit) && take_one(lane, part, batch, &self.checkpointed) {}
            if lane.is_empty() {
                self.lanes.remove(&broker);
                part.is_over = true;
            }
            if part.is_over {
                // A broker that only waits for checkpoints has no cost, and does not limit the others.
                let own = (part.cost > 0).then_some(part.cost.min(part.until));
                measure = measure.max(own);
                with_more -= 1;
            } else if part.cost < limit {
                turn.push_back(broker);
            }
            if batch.is_full() {
                break;
            }
        }
        for (broker, part) in brokers.iter().filter_map(|broker| Some((broker, parts.get(broker)?))) {
            self.take_begun(*broker, part, batch);
        }
        if let Some(measure) =
            measure.filter(|_| parts.len() > 1 || self.recent.iter().any(is_absent(&parts)))
        {
            self.note_debts(&parts, measure.max(batch.budget.share));
        }
        self.order.retain(|broker| self.lanes.contains_key(broker));
        self.note_recent(&parts);
    }

    /// The brokers in order of their turns. Brokers that owe a share are left out, which pays a share, unless all owe.
    fn without_debtors(&mut self, share: usize) -> VecDeque<u64> {
        let mut turn = self.order.clone();
        let owes = |broker: &u64| self.debts.get(broker).is_some_and(|debt| *debt >= share);
        if !turn.iter().all(owes) {
            turn.retain(|broker| !owes(broker));
            let lanes = &self.lanes;
            self.debts.retain(|broker, debt| {
                // A debt below the share is kept and adds up: otherwise a broker that slightly exceeds its share each
                // time would never pay.
                let takes_part = *debt < share && lanes.contains_key(broker);
                *debt -= if takes_part { 0 } else { share.min(*debt) };
                *debt > 0
            });
        }
        turn
    }

    /// Moves a broker's begun job into the transaction; the rest of the job comes back.
    fn take_begun(&mut self, broker: u64, part: &Part, batch: &mut Batch<J>) {
        if part.begun == 0 {
            return;
        }
        let Some(lane) = self.lanes.get_mut(&broker) else { return };
        let Some((number, mut job)) = lane.pop_front() else { return };
        job.limit_to(part.begun);
        batch.jobs.push(job);
        self.unfinished.push((broker, number));
        if lane.is_empty() {
            self.lanes.remove(&broker);
        }
    }

    /// Charges brokers that exceeded `share` while others were waiting.
    fn note_debts(&mut self, parts: &HashMap<u64, Part>, share: usize) {
        parts.iter().for_each(|(broker, part)| self.owe(*broker, part.cost.saturating_sub(share)));
    }

    fn note_recent(&mut self, parts: &HashMap<u64, Part>) {
        if parts.is_empty() {
            return;
        }
        self.transaction += 1;
        let now = self.transaction;
        let is_old =
            |recent: &Recent| recent.transaction + RECENT <= now || parts.contains_key(&recent.broker);
        self.recent.retain(|recent| !is_old(recent));
        let of = |(broker, part): (&u64, &Part)| Recent {
            broker: *broker,
            cost: part.cost.min(part.until),
            transaction: now,
        };
        self.recent.extend(parts.iter().map(of));
    }

    /// Adds the barriers for which no earlier job of their broker waits; jobs of other brokers do not matter.
    fn add_marks(&mut self, batch: &mut Batch<J>) {
        for (number, job) in std::mem::take(&mut self.marks) {
            let waiting = match job.lane() {
                Lane::Mark(broker) => self.oldest_of(broker),
                _ => None,
            };
            if waiting.is_none_or(|oldest| number < oldest) {
                batch.jobs.push(job);
            } else {
                self.marks.push_back((number, job));
            }
        }
    }

    /// Number of a broker's oldest job that waits, or that is only in part in this transaction.
    fn oldest_of(&self, broker: u64) -> Option<u64> {
        let waiting = self.lanes.get(&broker).and_then(|lane| lane.front()).map(|(number, _)| *number);
        let begun = self.unfinished.iter().find(|(of, _)| *of == broker).map(|(_, number)| *number);
        waiting.into_iter().chain(begun).min()
    }
}

fn is_absent(parts: &HashMap<u64, Part>) -> impl Fn(&Recent) -> bool {
    |recent| !parts.contains_key(&recent.broker)
}

/// Moves a broker's next job, or a part of it, into the transaction. Returns false if it must wait for the next one.
fn take_one<J: Work>(
    lane: &mut Numbered<J>,
    part: &mut Part,
    batch: &mut Batch<J>,
    checkpointed: &HashMap<u64, VecDeque<u64>>,
) -> bool {
    let Some((number, job)) = lane.front() else { return false };
    // Later checkpoints do not count: otherwise a session that acknowledges all the time would block its broker.
    let oldest = job.session().and_then(|session| checkpointed.get(&session)?.front());
    let is_behind = oldest.is_some_and(|oldest| oldest < number);
    let begins = is_behind || part.jobs > 0 && job.begins_transaction(part.index_changed);
    let all = job.cost().max(1);
    let cost = job.part_cost().map_or(all, |cost| cost.clamp(1, all - part.begun));
    let bytes = job.bytes() * cost / all;
    if begins || !batch.has_room(bytes) {
        part.is_over = true;
        return false;
    }
    part.cost += cost;
    batch.cost += cost;
    batch.bytes += bytes;
    part.begun += cost;
    if part.begun < all {
        return true;
    }
    part.begun = 0;
    let Some((_, mut job)) = lane.pop_front() else { return false };
    job.limit_to(all);
    part.jobs += 1;
    part.index_changed |= job.changes_index();
    batch.jobs.push(job);
    true
}

struct Batch<J> {
    budget: Budget,
    jobs: Vec<J>,
    bytes: usize,
    cost: usize,
}

impl<J: Work> Batch<J> {
    /// Whether the bytes fit; the first job always fits.
    fn has_room(&self, bytes: usize) -> bool {
        let is_empty = self.jobs.is_empty() && self.cost == 0;
        is_empty || !self.is_full() && self.bytes + bytes <= self.budget.bytes
    }

    fn is_full(&self) -> bool {
        self.jobs.len() >= self.budget.jobs || self.cost >= self.budget.cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job of a broker with a name, or a checkpoint or mark.
    #[derive(Clone, Copy, Debug)]
    struct Job {
        lane: Lane,
        name: &'static str,
        cost: usize,
        part_cost: Option<usize>,
        /// What of it is in the transaction.
        part: usize,
        session: Option<u64>,
    }

    impl Work for Job {
        fn lane(&self) -> Lane {
            self.lane
        }
        fn bytes(&self) -> usize {
            10
        }
        fn cost(&self) -> usize {
            self.cost
        }
        fn part_cost(&self) -> Option<usize> {
            self.part_cost
        }
        fn limit_to(&mut self, cost: usize) {
            self.part = cost;
        }
        fn session(&self) -> Option<u64> {
            self.session
        }
        fn is_small_publish(&self) -> bool {
            self.name == "publish"
        }
        fn changes_index(&self) -> bool {
            self.name == "subscribe"
        }
        fn begins_transaction(&self, index_changed: bool) -> bool {
            self.name == "publish" && index_changed || self.name == "detach"
        }
    }

    fn of(broker: u64, name: &'static str, cost: usize) -> Job {
        Job { lane: Lane::Broker(broker), name, cost, part_cost: None, part: cost, session: None }
    }

    /// A SUBSCRIBE that may be written in parts.
    fn in_parts(broker: u64, filters: usize) -> Job {
        Job { part_cost: Some(20), part: 0, ..of(broker, "subscribe", 20 * filters) }
    }

    /// The next transaction; what it leaves of a job goes back.
    fn write(backlog: &mut Backlog<Job>) -> Vec<Job> {
        let batch = backlog.next_batch(BUDGET);
        for job in batch.iter().filter(|job| job.part < job.cost && job.part_cost.is_some()) {
            backlog.put_back(Job { cost: job.cost - job.part, part: 0, ..*job });
        }
        batch
    }

    const SHARE: usize = 100;
    const BUDGET: Budget = Budget { jobs: 1_000, bytes: 1_000_000, cost: 4_000, share: SHARE };

    fn backlog(jobs: impl IntoIterator<Item = Job>) -> Backlog<Job> {
        let mut backlog = Backlog::default();
        backlog.push(jobs);
        backlog
    }

    fn names(backlog: &mut Backlog<Job>) -> Vec<&'static str> {
        backlog.next_batch(BUDGET).iter().map(|job| job.name).collect()
    }

    /// The cost of each broker in a batch.
    fn costs(batch: &[Job]) -> [usize; 3] {
        [1, 2, 3].map(|broker| {
            let of_broker = batch.iter().filter(|job| job.lane == Lane::Broker(broker));
            of_broker.map(|job| job.part).sum()
        })
    }

    #[test]
    fn messages_are_counted_apart_from_the_rest_of_a_subscribe() {
        let mut backlog =
            backlog([in_parts(1, 900), in_parts(2, 900), of(3, "publish", 1), of(3, "publish", 1)]);
        assert_eq!(backlog.small_publishes(), 2);
        let batch = write(&mut backlog);
        assert!(backlog.small_publishes() == 0 && !backlog.is_empty(), "{batch:?}");
        backlog.put_back(of(3, "publish", 1));
        assert_eq!(backlog.small_publishes(), 1);
    }

    #[test]
    fn a_flood_of_costly_jobs_adds_as_much_to_a_transaction_as_the_others_do() {
        for (others, flood) in [(1, 100), (20, 100), (100, 100), (400, 400)] {
            let mut backlog = backlog(std::iter::repeat_n(of(1, "subscribe", 20), 5_000));
            backlog.push(std::iter::repeat_n(of(2, "publish", 1), others));
            for _ in 0..2 {
                let batch = backlog.next_batch(BUDGET);
                assert_eq!(costs(&batch), [flood, others, 0], "{others}");
                backlog.push(std::iter::repeat_n(of(2, "publish", 1), others));
            }
        }
    }

    #[test]
    fn brokers_with_as_much_to_write_share_a_full_transaction_and_one_alone_fills_it() {
        let mut backlog = backlog(std::iter::repeat_n(of(1, "publish", 1), 3_000));
        backlog.push(std::iter::repeat_n(of(2, "publish", 1), 1_500));
        assert_eq!(costs(&backlog.next_batch(BUDGET)), [500, 500, 0]);
        assert_eq!(costs(&backlog.next_batch(BUDGET)), [500, 500, 0]);
        assert_eq!(costs(&backlog.next_batch(BUDGET)), [500, 500, 0]);
        // The other one may come back: what it had is the measure for a while.
        assert_eq!(costs(&backlog.next_batch(BUDGET)), [500, 0, 0]);
        assert_eq!(costs(&backlog.next_batch(BUDGET)), [500, 0, 0]);
        assert_eq!(costs(&backlog.next_batch(BUDGET)), [500, 0, 0]);
        assert!(backlog.is_empty() && backlog.next_batch(BUDGET).is_empty());
        backlog.push(std::iter::repeat_n(of(1, "publish", 1), 9_000));
        let alone: Vec<usize> = (0..7).map(|_| backlog.next_batch(BUDGET).len()).collect();
        assert_eq!(alone, [500, 500, 500, 500, 500, 1_000, 1_000]);
    }

    #[test]
    fn costly_jobs_wait_for_the_brokers_of_the_last_transaction_and_others_do_not() {
        let mut backlog = backlog([of(1, "subscribe", 20), of(1, "subscribe", 20), of(2, "publish", 1)]);
        assert!(!backlog.is_early(), "nobody was there before");
        backlog.next_batch(BUDGET);
        backlog.push([of(1, "subscribe", 20)]);
        assert!(backlog.is_early());
        backlog.push([of(2, "publish", 1)]);
        assert!(!backlog.is_early());
        backlog.next_batch(BUDGET);
        backlog.push([of(1, "publish", 1)]);
        assert!(!backlog.is_early(), "a message does not wait");
        backlog.next_batch(BUDGET);
        backlog.push([of(1, "subscribe", 20)]);
        assert!(!backlog.is_early(), "the other one was not in the last transaction");
    }

    #[test]
    fn a_publish_waits_for_the_index_changes_of_its_own_broker_alone() {
        let mut backlog = backlog([
            of(1, "publish", 1),
            of(1, "subscribe", 1),
            of(1, "publish", 1),
            of(2, "publish", 1),
            of(2, "publish", 1),
        ]);
        assert_eq!(names(&mut backlog), ["publish", "subscribe", "publish", "publish"]);
        assert_eq!(names(&mut backlog), ["publish"]);
    }

    #[test]
    fn a_job_that_begins_a_transaction_waits_for_those_before_it_and_is_taken_when_there_are_none() {
        let mut backlog = backlog([of(1, "publish", 1), of(1, "detach", 1), of(1, "detach", 1)]);
        for expected in ["publish", "detach", "detach"] {
            assert_eq!(names(&mut backlog), [expected]);
        }
    }

    #[test]
    fn checkpoints_take_turns_with_other_jobs_and_come_after_publishes() {
        let checkpoint = Job { lane: Lane::Checkpoint, session: Some(1), ..of(0, "checkpoint", 1) };
        let mut backlog = backlog(std::iter::repeat_n(checkpoint, 5_000));
        backlog.push(std::iter::repeat_n(of(1, "publish", 1), 1_500));
        let mut costs = Vec::new();
        while !backlog.is_empty() {
            backlog.push(std::iter::repeat_n(of(1, "publish", 1), if costs.len() < 8 { 10 } else { 0 }));
            let names = names(&mut backlog);
            assert!(names.iter().all(|name| *name == names[0]), "by themselves");
            costs.push((names[0], names.len()));
        }
        let turns = [
            ("publish", 1_000),
            ("checkpoint", 1_000),
            ("publish", 530),
            ("checkpoint", 530),
            ("publish", 20),
            ("checkpoint", 433),
            ("publish", 20),
            ("checkpoint", 379),
        ];
        assert_eq!(costs[..8], turns, "as much as the others, or a part of those that wait");
        assert_eq!(
            costs.iter().filter(|(name, _)| *name == "checkpoint").map(|(_, count)| count).sum::<usize>(),
            5_000
        );
    }

    #[test]
    fn a_job_waits_for_the_checkpoints_of_its_session_and_a_publish_for_none() {
        let of_session = |name, session| Job { session: Some(session), ..of(1, name, 1) };
        let checkpoint = |session| Job { lane: Lane::Checkpoint, ..of_session("checkpoint", session) };
        let mut backlog = backlog([checkpoint(5), checkpoint(5), checkpoint(6)]);
        backlog.push([of(1, "publish", 1), of_session("ids", 7), of_session("ids", 5), of(1, "publish", 1)]);
        assert_eq!(names(&mut backlog), ["publish", "ids"]);
        assert_eq!(names(&mut backlog), ["checkpoint"; 3]);
        assert_eq!(names(&mut backlog), ["ids", "publish"]);
        backlog.push([checkpoint(5), of_session("detach", 5)]);
        assert_eq!(names(&mut backlog), ["checkpoint"]);
        assert_eq!(names(&mut backlog), ["detach"]);
        assert!(backlog.is_empty() && backlog.checkpointed.is_empty());
    }

    #[test]
    fn a_session_that_acknowledges_all_the_time_does_not_hold_up_its_broker() {
        let checkpoint =
            |session| Job { lane: Lane::Checkpoint, session: Some(session), ..of(0, "checkpoint", 1) };
        let mut backlog = backlog([checkpoint(5)]);
        backlog.push([Job { session: Some(5), ..of(1, "subscribe", 1) }, of(2, "publish", 1)]);
        backlog.push([checkpoint(5)]);
        assert_eq!(names(&mut backlog), ["publish"]);
        backlog.push(std::iter::repeat_n(of(2, "publish", 1), 1_000));
        backlog.push(std::iter::repeat_n(checkpoint(6), 800));
        let of_session = names(&mut backlog).len();
        assert!((2..800).contains(&of_session), "{of_session}");
        backlog.push([checkpoint(5)]);
        assert!(names(&mut backlog).contains(&"subscribe"), "it waits for earlier checkpoints only");
    }

    #[test]
    fn checkpoints_that_hold_up_all_others_fill_their_transaction() {
        let checkpoint = Job { lane: Lane::Checkpoint, session: Some(5), ..of(0, "checkpoint", 1) };
        let mut backlog = backlog(std::iter::repeat_n(checkpoint, 900));
        backlog.push([Job { session: Some(5), ..of(1, "detach", 1) }]);
        assert_eq!(names(&mut backlog).len(), 900);
        assert_eq!(names(&mut backlog), ["detach"]);
    }

    #[test]
    fn a_mark_comes_when_all_before_it_of_its_broker_is_written() {
        let mark = Job { lane: Lane::Mark(1), ..of(0, "mark", 0) };
        let mut backlog = backlog([of(1, "subscribe", 1), of(1, "publish", 1), of(2, "publish", 1), mark]);
        backlog.push([of(2, "detach", 1), of(3, "publish", 1)]);
        assert_eq!(names(&mut backlog), ["subscribe", "publish", "publish"]);
        assert_eq!(names(&mut backlog), ["detach", "publish", "mark"]);
        backlog.push([mark, mark]);
        assert_eq!(names(&mut backlog), ["mark", "mark"]);
    }

    #[test]
    fn a_mark_does_not_wait_for_a_costly_job_of_another_broker() {
        let mark = Job { lane: Lane::Mark(2), ..of(0, "mark", 0) };
        let mut backlog = backlog([in_parts(1, 900), of(2, "publish", 1), mark]);
        let batch = write(&mut backlog);
        assert_eq!(batch.iter().map(|job| job.name).collect::<Vec<_>>(), ["publish", "subscribe", "mark"]);
    }

    #[test]
    fn a_mark_does_not_pass_a_job_that_comes_back_with_a_begun_one_behind_it() {
        let mark = Job { lane: Lane::Mark(1), ..of(0, "mark", 0) };
        let mut backlog =
            backlog([of(1, "a", 1), of(1, "b", 1), mark, in_parts(1, 900), of(2, "publish", 1)]);
        let batch = backlog.next_batch(BUDGET);
        assert!(batch.iter().any(|job| job.name == "subscribe"), "{batch:?}");
        // The transaction was cut behind "a".
        let mark_is_out = batch.iter().any(|job| job.name == "mark");
        let cut = batch.iter().skip(1).filter(|job| matches!(job.lane, Lane::Broker(1)));
        cut.rev().for_each(|job| backlog.put_back(*job));
        backlog.push(mark_is_out.then_some(mark));
        backlog.owe(1, 10 * SHARE);
        backlog.push([of(2, "publish", 1)]);
        assert_eq!(names(&mut backlog), ["publish"], "the mark waits for b");
    }

    #[test]
    fn checkpoints_that_come_back_stay_before_newer_ones() {
        let checkpoint = |name| Job { lane: Lane::Checkpoint, ..of(0, name, 1) };
        let mut backlog = backlog([checkpoint("a"), checkpoint("b")]);
        let batch = backlog.next_batch(BUDGET);
        backlog.push([checkpoint("c")]);
        batch.iter().rev().for_each(|job| backlog.put_back(*job));
        assert_eq!(names(&mut backlog), ["a", "b", "c"]);
    }

    #[test]
    fn jobs_of_a_broker_stay_in_order_whatever_the_others_have() {
        const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
        let mut backlog = Backlog::default();
        let mut written: [Vec<&str>; 3] = Default::default();
        for round in 0..50 {
            for broker in 1..=3u64 {
                let count = (round * broker as usize * 7) % 40;
                backlog.push((0..count).map(|number| of(broker, NAMES[number % 5], 1 + number % 30)));
            }
            for job in backlog.next_batch(Budget { jobs: 50, ..BUDGET }) {
                let Lane::Broker(broker) = job.lane else { continue };
                written[broker as usize - 1].push(job.name);
            }
        }
        // Each push begins with "a" and goes on in order.
        for names in &written {
            for pair in names.windows(2) {
                let at = |name| NAMES.iter().position(|known| *known == name).unwrap();
                assert!(at(pair[1]) == (at(pair[0]) + 1) % 5 || pair[1] == "a", "{pair:?}");
            }
        }
    }

    #[test]
    fn a_transaction_is_bounded_by_jobs_bytes_and_cost_and_has_one_job_at_least() {
        let mut many = backlog(std::iter::repeat_n(of(1, "publish", 1), 100));
        assert_eq!(many.next_batch(Budget { jobs: 7, ..BUDGET }).len(), 7);
        assert_eq!(many.next_batch(Budget { bytes: 35, ..BUDGET }).len(), 3);
        assert_eq!(many.next_batch(Budget { bytes: 1, ..BUDGET }).len(), 1);
        let mut costly = backlog(std::iter::repeat_n(of(1, "subscribe", 90), 100));
        assert_eq!(costly.next_batch(Budget { cost: 200, ..BUDGET }).len(), 3);
    }

    #[test]
    fn a_large_job_beside_others_is_written_in_parts_that_are_no_larger_than_a_share() {
        let mut backlog = backlog([in_parts(1, 900), of(1, "publish", 1)]);
        for _ in 0..180 {
            backlog.push(std::iter::repeat_n(of(2, "publish", 1), 8));
            assert_eq!(costs(&write(&mut backlog)), [100, 8, 0]);
        }
        backlog.push([of(2, "publish", 1)]);
        assert_eq!(names(&mut backlog), ["publish", "publish"], "all of it is written");
        assert!(backlog.is_empty());
    }

    #[test]
    fn a_large_job_that_is_alone_fills_transactions_and_nothing_of_its_broker_overtakes_it() {
        let mark = Job { lane: Lane::Mark(1), ..of(0, "mark", 0) };
        let mut backlog = backlog([of(1, "publish", 1), in_parts(1, 300), of(1, "detach", 1), mark]);
        let written: Vec<(Vec<&str>, usize)> = (0..4)
            .map(|_| {
                let batch = write(&mut backlog);
                (batch.iter().map(|job| job.name).collect(), costs(&batch)[0])
            })
            .collect();
        let expected: [(&[&str], usize); 4] =
            [(&["publish", "subscribe"], 4_001), (&["subscribe"], 2_000), (&["detach", "mark"], 1), (&[], 0)];
        for (written, (names, cost)) in written.iter().zip(expected) {
            assert_eq!((&written.0[..], written.1), (names, cost));
        }
    }

    #[test]
    fn a_job_larger_than_a_share_that_has_no_parts_is_paid_back() {
        let mut backlog = backlog(std::iter::repeat_n(of(1, "publish", 1_000), 50));
        let mut total = [0; 3];
        for _ in 0..100 {
            backlog.push(std::iter::repeat_n(of(2, "publish", 1), 8));
            let batch = backlog.next_batch(BUDGET);
            costs(&batch).into_iter().zip(&mut total).for_each(|(cost, total)| *total += cost);
        }
        assert_eq!(total[1], 800, "the others are in every transaction");
        assert_eq!(total[0], 10_000, "a share of each");
        // Alone, it waits for nobody.
        while !backlog.is_empty() {
            assert!(!backlog.next_batch(BUDGET).is_empty());
        }
    }

    #[test]
    fn a_broker_that_always_has_one_job_larger_than_a_share_pays_it_back_too() {
        let hogs = [of(1, "publish", 1_000), of(3, "publish", 1_000)];
        let (mut backlog, mut total) = (backlog(hogs), [0; 3]);
        for _ in 0..100 {
            backlog.push(std::iter::repeat_n(of(2, "publish", 1), 8));
            let batch = backlog.next_batch(BUDGET);
            costs(&batch).into_iter().zip(&mut total).for_each(|(cost, total)| *total += cost);
            backlog.push(batch.into_iter().filter(|job| job.cost > 1));
        }
        assert_eq!(total, [10_000, 800, 10_000]);
    }

    #[test]
    fn jobs_that_come_back_are_the_first_ones_in_their_order_and_marks_wait_for_them() {
        let mark = Job { lane: Lane::Mark(1), ..of(0, "mark", 0) };
        let mut backlog = backlog([of(1, "a", 1), of(1, "b", 1), of(1, "c", 1), mark]);
        backlog.push([of(1, "d", 1)]);
        let batch = backlog.next_batch(Budget { jobs: 3, ..BUDGET });
        batch[1..].iter().rev().for_each(|job| backlog.put_back(*job));
        assert_eq!(names(&mut backlog), ["b", "c", "d", "mark"]);
    }

    #[test]
    fn a_broker_whose_jobs_were_more_costly_than_they_said_waits_for_the_others() {
        let mut backlog = backlog(std::iter::repeat_n(of(1, "attach", 8), 100));
        backlog.owe(1, 10 * SHARE);
        for round in 0..12 {
            backlog.push([of(2, "publish", 1)]);
            assert_eq!(costs(&backlog.next_batch(BUDGET))[0] > 0, round >= 10, "{round}");
        }
    }

    #[test]
    fn several_floods_together_do_not_fill_the_transactions_of_a_broker_with_little_to_write() {
        let mut backlog = Backlog::default();
        for broker in 1..=16 {
            backlog.push(std::iter::repeat_n(of(broker, "publish", 1), 5_000));
        }
        for round in 0..50 {
            backlog.push(std::iter::repeat_n(of(17, "publish", 1), 8));
            let batch = backlog.next_batch(BUDGET);
            let of_last = batch.iter().filter(|job| job.lane == Lane::Broker(17)).count();
            assert!(of_last == 8 && batch.len() <= 8 + 16 * QUANTUM, "{round}: {} jobs", batch.len());
        }
    }

    #[test]
    fn a_smaller_share_holds_for_jobs_with_parts_and_without() {
        let floods = [in_parts(1, 5_000), of(1, "publish", 50), of(1, "attach", 30), of(1, "publish", 1)];
        for (share, flood) in [8, QUANTUM].into_iter().flat_map(|share| floods.map(|flood| (share, flood))) {
            let budget = Budget { share, ..BUDGET };
            let mut backlog = backlog(std::iter::repeat_n(flood, 3_000));
            let mut total = [0; 3];
            for _ in 0..100 {
                backlog.push(std::iter::repeat_n(of(2, "publish", 1), 8));
                let batch = backlog.next_batch(budget);
                for job in batch.iter().filter(|job| job.part < job.cost && job.part_cost.is_some()) {
                    backlog.put_back(Job { cost: job.cost - job.part, part: 0, ..*job });
                }
                costs(&batch).into_iter().zip(&mut total).for_each(|(cost, total)| *total += cost);
            }
            assert_eq!(total[1], 800, "the others are in every transaction");
            let all = 100 * share;
            assert!(total[0].abs_diff(all) <= 50, "{} of {}: {}", flood.name, flood.cost, total[0]);
        }
    }

    #[test]
    fn a_part_of_a_job_has_its_part_of_the_bytes() {
        let mut backlog = backlog([in_parts(1, 10), in_parts(2, 10)]);
        let parts = |batch: &[Job]| batch.iter().map(|job| job.part).collect::<Vec<_>>();
        // Ten bytes a job, so one a filter.
        assert_eq!(parts(&backlog.next_batch(Budget { bytes: 7, ..BUDGET })), [80, 60]);
    }
}
