//! A job as the backlog sees it, and the limits of a transaction.

/// With more brokers than these, a transaction of costly jobs is full without waiting, as when thousands reconnect.
pub(super) const EARLY_LANES_MAX: usize = 32;

pub(in crate::store) trait BacklogJob {
    fn lane(&self) -> Lane;
    fn bytes(&self) -> usize;
    /// Time that the whole job adds to a transaction, in units of a message for one stream.
    fn cost(&self) -> usize;
    /// The cost of the smallest part that can be in a transaction without the rest; `None`: the job cannot be split.
    fn part_cost(&self) -> Option<usize>;
    /// Limits the next transaction to the first parts of the job, up to this cost.
    fn limit_to(&mut self, cost: usize);
    /// Hash of the session, if the job reads or writes more of it than inbound packet ids; sessions may share a hash.
    fn session(&self) -> Option<u64>;
    /// Whether it may change the streams of a topic.
    fn changes_index(&self) -> bool;
    /// Whether the job cannot share a transaction with the earlier jobs of its broker; `index_changed`: one of these
    /// changes the filter index.
    fn begins_transaction(&self, index_changed: bool) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Lane {
    Broker(u64),
    /// In order with other checkpoints, and before the later jobs of its session.
    Checkpoint,
    /// Waits until all earlier jobs of this broker are committed.
    Barrier(u64),
}

#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct BatchBudget {
    pub(in crate::store) jobs: usize,
    pub(in crate::store) bytes: usize,
    pub(in crate::store) cost: usize,
    /// Cost that a broker may use beside others with less to write. If several brokers have more to write, they
    /// share twice this cost, and each may use [`super::QUANTUM`] if that is less than the share.
    pub(in crate::store) share: usize,
}

pub(super) struct WriteBatch<J> {
    pub(super) budget: BatchBudget,
    pub(super) jobs: Vec<J>,
    pub(super) bytes: usize,
    pub(super) cost: usize,
}

impl<J: BacklogJob> WriteBatch<J> {
    /// Whether the bytes fit; the first job always fits.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let is_empty = self.jobs.is_empty() && self.cost == 0;
        is_empty || !self.is_full() && self.bytes + bytes <= self.budget.bytes
    }

    pub(super) fn is_full(&self) -> bool {
        self.jobs.len() >= self.budget.jobs || self.cost >= self.budget.cost
    }
}
