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
//! broker afterwards waits for as many transactions as the job exceeded its share. A transaction without jobs of the
//! brokers that were just answered is delayed for about the time of a commit, because these brokers would otherwise miss
//! every second transaction.
//!
//! Decision 0003 has the reasons and figures.

mod work;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use self::work::WriteBatch;
pub(super) use self::work::{BacklogJob, BatchBudget, Lane};

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

struct RecentCost {
    broker: u64,
    cost: usize,
    transaction: u64,
}

type Numbered<J> = VecDeque<(u64, J)>;

pub(super) struct Backlog<J> {
    /// By broker; none is empty.
    lanes: HashMap<u64, Numbered<J>>,
    order: VecDeque<u64>,
    checkpoints: Numbered<J>,
    checkpoint_cost: usize,
    checkpointed: HashMap<u64, VecDeque<u64>>,
    /// Cost of the last transaction, which had no checkpoints; `None`: checkpoints do not come next.
    before_checkpoints: Option<usize>,
    barriers: Numbered<J>,
    next: u64,
    transaction: u64,
    recent: Vec<RecentCost>,
    /// Cost by which a broker exceeded its share; no entry is 0.
    debts: HashMap<u64, usize>,
    /// Brokers with a part of a job in the last transaction, and the job's number.
    unfinished: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Default)]
struct TransactionPart {
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
            checkpoints: VecDeque::new(),
            checkpoint_cost: 0,
            checkpointed: HashMap::new(),
            before_checkpoints: None,
            barriers: VecDeque::new(),
            next: 0,
            transaction: 0,
            recent: Vec::new(),
            debts: HashMap::new(),
            unfinished: Vec::new(),
        }
    }
}

impl<J: BacklogJob> Backlog<J> {
    pub(super) fn push(&mut self, jobs: impl IntoIterator<Item = J>) {
        for job in jobs {
            self.next += 1;
            match job.lane() {
                Lane::Checkpoint => {
                    self.checkpoint_cost += job.cost();
                    let number = self.next;
                    self.numbers_of(&job).push_back(number);
                    self.checkpoints.push_back((number, job));
                }
                Lane::Barrier(_) => self.barriers.push_back((self.next, job)),
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
            Lane::Barrier(_) => return self.push([job]),
        };
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

    /// Whether the last transaction left something that this broker has to write.
    pub(super) fn has_jobs_of(&self, broker: u64) -> bool {
        self.lanes.contains_key(&broker)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.checkpoints.is_empty() && self.barriers.is_empty()
    }

    /// Whether the next transaction would have only costly jobs and jobs of brokers with more than a share to write, while
    /// a broker of the last one has nothing queued yet.
    pub(super) fn is_early(&self, share: usize) -> bool {
        let is_busy = |lane: &Numbered<J>| {
            let cost = first_cost(lane);
            cost >= COSTLY || cost * lane.len() > share
        };
        self.checkpoints.is_empty()
            && (1..=work::EARLY_LANES_MAX).contains(&self.lanes.len())
            && self.lanes.values().all(is_busy)
            && self.absent_of_last() > 0
    }

    /// How many brokers of the last transaction have nothing queued yet.
    pub(super) fn absent_of_last(&self) -> usize {
        let is_last = |recent: &&RecentCost| recent.transaction == self.transaction;
        let last = self.recent.iter().filter(is_last);
        last.filter(|recent| !self.lanes.contains_key(&recent.broker)).count()
    }

    pub(super) fn has_costly_jobs_alone(&self) -> bool {
        self.lanes.values().all(|lane| first_cost(lane) >= COSTLY)
    }

    pub(super) fn next_batch(&mut self, budget: BatchBudget) -> Vec<J> {
        let mut batch = WriteBatch { budget, jobs: Vec::new(), bytes: 0, cost: 0 };
        self.unfinished.clear();
        let has_others = !(self.lanes.is_empty() && self.barriers.is_empty());
        if has_others && (self.checkpoints.is_empty() || self.before_checkpoints.is_none()) {
            self.fill(&mut batch);
            self.add_barriers(&mut batch);
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

    fn fill_with_checkpoints(&mut self, batch: &mut WriteBatch<J>, cost_max: usize) {
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

    fn fill(&mut self, batch: &mut WriteBatch<J>) {
        let mut parts: HashMap<u64, TransactionPart> = HashMap::new();
        let mut turn = self.without_debtors(batch.budget.share);
        let brokers = turn.clone();
        // The first broker of this transaction is the last one of the next.
        self.order.rotate_left(usize::from(self.order.len() > 1));
        // The highest cost of a broker with little to write, in this transaction or a recent one: brokers with more to
        // write may use as much.
        let is_away = |recent: &&RecentCost| !self.lanes.contains_key(&recent.broker);
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
    fn take_begun(&mut self, broker: u64, part: &TransactionPart, batch: &mut WriteBatch<J>) {
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
    fn note_debts(&mut self, parts: &HashMap<u64, TransactionPart>, share: usize) {
        parts.iter().for_each(|(broker, part)| self.owe(*broker, part.cost.saturating_sub(share)));
    }

    fn note_recent(&mut self, parts: &HashMap<u64, TransactionPart>) {
        if parts.is_empty() {
            return;
        }
        self.transaction += 1;
        let now = self.transaction;
        let is_old =
            |recent: &RecentCost| recent.transaction + RECENT <= now || parts.contains_key(&recent.broker);
        self.recent.retain(|recent| !is_old(recent));
        let of = |(broker, part): (&u64, &TransactionPart)| RecentCost {
            broker: *broker,
            cost: part.cost.min(part.until),
            transaction: now,
        };
        self.recent.extend(parts.iter().map(of));
    }

    /// Adds the barriers for which no earlier job of their broker waits; jobs of other brokers do not matter.
    fn add_barriers(&mut self, batch: &mut WriteBatch<J>) {
        for (number, job) in std::mem::take(&mut self.barriers) {
            let waiting = match job.lane() {
                Lane::Barrier(broker) => self.oldest_of(broker),
                _ => None,
            };
            if waiting.is_none_or(|oldest| number < oldest) {
                batch.jobs.push(job);
            } else {
                self.barriers.push_back((number, job));
            }
        }
    }

    /// Number of a broker's oldest job that is not wholly in this transaction.
    fn oldest_of(&self, broker: u64) -> Option<u64> {
        let waiting = self.lanes.get(&broker).and_then(|lane| lane.front()).map(|(number, _)| *number);
        let begun = self.unfinished.iter().find(|(of, _)| *of == broker).map(|(_, number)| *number);
        waiting.into_iter().chain(begun).min()
    }
}

fn first_cost<J: BacklogJob>(lane: &Numbered<J>) -> usize {
    lane.front().map_or(0, |(_, job)| job.cost())
}

fn is_absent(parts: &HashMap<u64, TransactionPart>) -> impl Fn(&RecentCost) -> bool {
    |recent| !parts.contains_key(&recent.broker)
}

/// Moves a broker's next job, or a part of it, into the transaction; returns false if it must wait for the next one.
fn take_one<J: BacklogJob>(
    lane: &mut Numbered<J>,
    part: &mut TransactionPart,
    batch: &mut WriteBatch<J>,
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

#[cfg(test)]
mod tests;
