//! The reader threads: read pages of streams for sessions that lag. One of them also trims streams that exceed their
//! limits.

use std::collections::{HashSet, VecDeque};
use std::sync::PoisonError;
use std::time::Duration;

use super::expiry::Expiry;
use super::parts::PartCache;
use super::queue::{QueuedWork as _, TakenWork};
use super::queues::{self, Keep, LimitScan, TRIMMED_AT_ONCE};
use super::removal::Removal;
use super::{StoreContext, StreamKey, StreamRead, pages};
use crate::quota::Limit;

/// Interval in which grown streams are checked against their limits.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A stream is checked after it got this part (1/n) of its limit in messages; others are checked less often.
const LOOK_AT_PART: u64 = 8;
/// The same for all grown streams.
const LOOK_AT_ALL_EVERY: Duration = Duration::from_secs(60);

/// Sources that one transaction reads about, so that the next one, with other brokers' reads, follows soon.
pub(super) const SOURCES_AT_ONCE: usize = 2_000;

pub(super) fn help(shared: &StoreContext) {
    let (mut parts, mut unread) = (PartCache::default(), Vec::new());
    while read_some(shared, LOOK_EVERY, &mut parts, &mut unread).is_some() {
        parts.clean(shared.clock.now());
    }
}

pub(super) fn run(shared: &StoreContext) {
    let mut first = FirstReader::new(shared);
    while first.step(shared, LOOK_EVERY) {}
}

/// The reader that also trims and removes.
pub(super) struct FirstReader {
    parts: PartCache,
    unread: Vec<StreamRead>,
    due: VecDeque<StreamKey>,
    removal: Removal,
    expiry: Expiry,
    look: LimitScan,
    looked_at: u64,
    looked_at_all: u64,
    looked_at_queues: u64,
}

impl FirstReader {
    pub(super) fn new(shared: &StoreContext) -> Self {
        let now = shared.clock.now();
        Self {
            parts: PartCache::default(),
            unread: Vec::new(),
            due: VecDeque::new(),
            removal: Removal::new(shared.is_shared),
            expiry: Expiry::default(),
            look: LimitScan::default(),
            looked_at: now,
            looked_at_all: now,
            looked_at_queues: now,
        }
    }

    /// Returns false once the queue is closed.
    pub(super) fn step(&mut self, shared: &StoreContext, wait: Duration) -> bool {
        // A store that does not answer is not asked again at once.
        let is_idle = self.due.is_empty() && self.removal.is_done() && self.look.is_done();
        let is_idle = is_idle && self.expiry.is_done(shared);
        let wait = if is_idle || !self.unread.is_empty() { wait } else { Duration::ZERO };
        let Some(has_answered) = read_some(shared, wait, &mut self.parts, &mut self.unread) else {
            return false;
        };
        if !has_answered {
            return true;
        }
        let now = shared.clock.now();
        self.parts.clean(now);
        trim_some(shared, &mut self.due);
        self.removal.step(&shared.layers);
        self.look.step(shared);
        self.expiry.step(shared);
        if now >= self.looked_at + LOOK_EVERY.as_millis() as u64 {
            let all = now >= self.looked_at_all + LOOK_AT_ALL_EVERY.as_millis() as u64;
            queue_due(shared, all, &mut self.due);
            if all {
                self.removal.start(shared.brokers.each().map(|broker| broker.id));
            }
            if now >= self.looked_at_queues + queues::LOOK_EVERY_MS {
                self.look.start(shared);
                self.expiry.start(shared);
                self.looked_at_queues = now;
            }
            self.looked_at = now;
            self.looked_at_all = if all { now } else { self.looked_at_all };
        }
        true
    }
}

/// Waits up to `wait` for requests. Serves them, after those in `unread` that an unavailable store has not answered.
/// Returns false if the store does not answer, `None` once the queue is closed.
fn read_some(
    shared: &StoreContext,
    wait: Duration,
    parts: &mut PartCache,
    unread: &mut Vec<StreamRead>,
) -> Option<bool> {
    let mut pages = std::mem::take(unread);
    pages.retain(|read| !read.is_gone());
    let waiting: usize = pages.iter().map(StreamRead::work).sum();
    match shared.reads.take_some(wait, SOURCES_AT_ONCE.saturating_sub(waiting)) {
        TakenWork::Work(work) => pages.extend(work.into_iter().filter(|read| !read.is_gone())),
        TakenWork::Nothing => {}
        TakenWork::Closed => return None,
    }
    *unread = pages::answer(shared, parts, pages);
    Some(unread.is_empty())
}

/// Queues the streams that have grown enough to be checked against their limits.
fn queue_due(shared: &StoreContext, all: bool, due: &mut VecDeque<StreamKey>) {
    let grown = std::mem::take(&mut *shared.upkeep.touched.lock().unwrap_or_else(PoisonError::into_inner));
    // A large stream may still be on its way to its limit.
    let queued: HashSet<StreamKey> = due.iter().copied().collect();
    let mut small = Vec::new();
    for (key, messages) in grown {
        let Some(broker) = shared.brokers.peek(key.0) else { continue };
        let keep = Keep::of(shared, &broker);
        // Few messages may still be many bytes.
        let is_due = all
            || messages * LOOK_AT_PART >= keep.totals.entries
            || messages * LOOK_AT_PART * u64::from(shared.limits.packet_size_max) >= keep.totals.bytes;
        if is_due && !queued.contains(&key) {
            due.push_back(key);
        } else {
            small.push((key, messages));
        }
    }
    let mut touched = shared.upkeep.touched.lock().unwrap_or_else(PoisonError::into_inner);
    for (stream, messages) in small {
        *touched.entry(stream).or_default() += messages;
    }
}

/// Trims some streams towards their limits: removes the oldest messages, and counts them. Sessions wait for reads
/// meanwhile, so a check of very many streams is done in pieces, and so is that of a large one.
fn trim_some(shared: &StoreContext, due: &mut VecDeque<StreamKey>) {
    for _ in 0..due.len().min(TRIMMED_AT_ONCE) {
        let Some(key) = due.pop_front() else { return };
        let Some(broker) = shared.brokers.peek(key.0) else { continue };
        // True: more to trim.
        if queues::trim_to_limit(shared, &broker, key.1, Keep::of(shared, &broker), Limit::ClientQueue) {
            return due.push_back(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_access::model::{ClientLimits, Limits};
    use millrace_layers::streams::totals;

    use super::*;

    #[test]
    fn a_large_stream_over_its_limit_is_trimmed_in_steps_between_reads() {
        let (shared, id) = StoreContext::with_broker(false);
        let [large, small] = ["large", "small"].map(|name| shared.message_of_group(id, name));
        [large, small].into_iter().for_each(|stream| shared.append_many(stream, 2_500));
        let broker = shared.open("default").unwrap().unwrap();
        let client = ClientLimits { queue_messages: Some(1), ..ClientLimits::default() };
        broker.quota.set(Limits { client, ..Limits::default() });
        let mut due = VecDeque::from([large, small]);
        let left = || {
            [large, small]
                .map(|(broker, stream)| shared.run(&async |tx| totals(tx, broker, stream).await).entries)
        };
        let mut seen = Vec::new();
        while !due.is_empty() {
            trim_some(&shared, &mut due);
            seen.push(left());
        }
        assert_eq!(seen, [[1_501, 2_501], [1_501, 1_501], [501, 1_501], [501, 501], [1, 1]]);
    }
}
