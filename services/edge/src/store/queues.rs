//! Enforces the limits of tenants on queued messages: removes the oldest messages, and counts them.
//!
//! A stream is a queue that all sessions of a filter share. So a limit per session applies to each of its streams.

use std::collections::VecDeque;

use millrace_layers::BrokerId;
use millrace_layers::streams::{self, LossReason, StreamId, StreamLimits, Totals, Trimmed};
use millrace_storage::block_on;

use super::StoreContext;
use crate::broker::Broker;
use crate::fair_queue::FairQueue;
use crate::incidents::NewIncident;
use crate::quota::Limit;

/// Interval in which brokers with a limit on all queues together, or on the age of messages, are checked.
pub(super) const LOOK_EVERY_MS: u64 = 5_000;
const PAGE: usize = 1_000;
/// Streams of a broker that one check trims, the largest first.
const TRIMMED: usize = 200;
/// Streams that are trimmed before waiting reads are answered again, if each needs one trim: a few milliseconds.
pub(super) const TRIMMED_AT_ONCE: usize = 32;
/// Entries of a trim. A stream that needs more than one trim ends the step.
const TRIM_ENTRIES: usize = 1_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    pub(super) totals: Totals,
    pub(super) age_ms: u64,
}

impl Keep {
    pub(super) fn of(shared: &StoreContext, broker: &Broker) -> Self {
        let (process, limits) = (&shared.limits, broker.quota.limits());
        let client = &limits.client;
        let within = |most: u64, limit: Option<u64>| limit.map_or(most, |limit| limit.min(most));
        Self {
            totals: Totals {
                entries: within(process.queue_messages_max.into(), client.queue_messages),
                bytes: within(process.queue_bytes_max, client.queue_bytes),
            },
            age_ms: within(process.session_expiry_max_s.into(), client.queue_age_s).saturating_mul(1_000),
        }
    }
}

/// Trims a stream towards `keep`, and counts the removed messages. Returns whether the stream needs more trims.
pub(super) fn trim_to_limit(
    shared: &StoreContext,
    broker: &Broker,
    stream: StreamId,
    keep: Keep,
    limit: Limit,
) -> bool {
    let now_ms = shared.clock.unix_now_ms();
    let limits = StreamLimits {
        now_ms,
        before_ms: now_ms.saturating_sub(keep.age_ms),
        keep: keep.totals,
        over_keep: match limit {
            Limit::BrokerQueueBytes => LossReason::AllStreams,
            _ => LossReason::Size,
        },
    };
    match block_on(shared.layers.limit_stream_some(broker.id, stream, limits, TRIM_ENTRIES)) {
        Ok(Trimmed { removed, more, .. }) => {
            // The last set belongs to the reader thread, which trims.
            let counters = &broker.counters[shared.mailboxes.len() + 1];
            counters.trimmed.add(usize::try_from(removed.entries).unwrap_or(0));
            broker.incidents.note(&NewIncident::limit(limit), removed.entries, shared.clock.unix_now_ms());
            more
        }
        Err(error) => {
            tracing::warn!(%error, "a stream could not be trimmed to its limits; the next round tries again");
            false
        }
    }
}

/// A check of the brokers with limits that a check of a single growing stream cannot enforce. It is done in steps, because
/// sessions wait for reads meanwhile.
#[derive(Default)]
pub(super) struct LimitScan {
    brokers: VecDeque<BrokerId>,
    /// The totals that were read of the first broker.
    totals: Vec<(StreamId, Totals)>,
    from: Option<StreamId>,
    trims: FairQueue<Trim>,
}

struct Trim {
    stream: StreamId,
    keep: Keep,
    limit: Limit,
}

impl LimitScan {
    pub(super) fn is_done(&self) -> bool {
        self.brokers.is_empty() && self.trims.is_empty()
    }

    pub(super) fn start(&mut self, shared: &StoreContext) {
        if self.brokers.is_empty() {
            let limited = shared.brokers.each().filter(|broker| BrokerStreamLimits::of(broker).is_any());
            self.brokers.extend(limited.map(|broker| broker.id));
        }
    }

    /// Trims some streams, in turns of brokers, and reads a page of totals.
    pub(super) fn step(&mut self, shared: &StoreContext) {
        self.trim_some(shared);
        self.read_some(shared);
    }

    fn trim_some(&mut self, shared: &StoreContext) {
        for _ in 0..TRIMMED_AT_ONCE {
            let Some((id, trim)) = self.trims.pop() else { return };
            let Some(broker) = shared.brokers.peek(id) else { continue };
            if trim_to_limit(shared, &broker, trim.stream, trim.keep, trim.limit) {
                return self.trims.push(id, trim);
            }
        }
    }

    fn read_some(&mut self, shared: &StoreContext) {
        let Some(id) = self.brokers.front() else { return };
        // A broker that is still being trimmed is looked at again after that.
        let broker = shared.brokers.peek(*id).filter(|broker| !self.trims.has(broker.id));
        let Some(broker) = broker else { return self.end_broker() };
        let read = shared.layers.run(async |tx| streams::all_totals(&tx, broker.id, self.from, PAGE).await);
        match block_on(read) {
            Ok(page) => {
                self.from = page.last().map(|(stream, _)| *stream);
                let is_last = page.len() < PAGE;
                self.totals.extend(page.into_iter().filter(|(_, totals)| totals.entries > 0));
                if is_last {
                    let totals = std::mem::take(&mut self.totals);
                    let trims = trims(shared, &broker, totals).into_iter();
                    trims.for_each(|trim| self.trims.push(broker.id, trim));
                    self.end_broker();
                }
            }
            Err(error) => {
                tracing::warn!(%error, broker = &*broker.name, "the queues of a broker could not be compared with its limits; the next round tries again");
                self.end_broker();
            }
        }
    }

    fn end_broker(&mut self) {
        self.brokers.pop_front();
        self.totals.clear();
        self.from = None;
    }
}

struct BrokerStreamLimits {
    bytes: Option<u64>,
    has_age: bool,
}

impl BrokerStreamLimits {
    fn of(broker: &Broker) -> Self {
        let limits = broker.quota.limits();
        Self { bytes: limits.broker.queue_bytes, has_age: limits.client.queue_age_s.is_some() }
    }

    fn is_any(&self) -> bool {
        self.bytes.is_some() || self.has_age
    }
}

/// The streams to trim, the largest first.
fn trims(shared: &StoreContext, broker: &Broker, mut all: Vec<(StreamId, Totals)>) -> Vec<Trim> {
    let BrokerStreamLimits { bytes, has_age } = BrokerStreamLimits::of(broker);
    all.sort_unstable_by_key(|(_, totals)| std::cmp::Reverse(totals.bytes));
    let sum: u64 = all.iter().map(|(_, totals)| totals.bytes).sum();
    let keep = Keep::of(shared, broker);
    let trim = |(stream, totals): (StreamId, Totals)| {
        match bytes.filter(|most| sum > *most) {
            Some(most) => {
                // Each stream loses the same fraction.
                let part = u128::from(totals.bytes) * u128::from(most) / u128::from(sum);
                let bytes = keep.totals.bytes.min(u64::try_from(part).unwrap_or(u64::MAX));
                let keep = Keep { totals: Totals { bytes, ..keep.totals }, ..keep };
                Some(Trim { stream, keep, limit: Limit::BrokerQueueBytes })
            }
            None => has_age.then_some(Trim { stream, keep, limit: Limit::ClientQueue }),
        }
    };
    all.into_iter().take(TRIMMED).filter_map(trim).collect()
}

#[cfg(test)]
mod tests {
    use millrace_access::model::{BrokerLimits, Limits as TenantLimits};

    use super::*;
    use crate::store::StreamKey;

    #[test]
    fn a_step_of_a_look_trims_some_of_many_streams() {
        let (shared, id) = StoreContext::with_broker(false);
        let streams: Vec<_> =
            (0..3 * TRIMMED_AT_ONCE).map(|number| shared.message_of_group(id, &number.to_string())).collect();
        let broker = shared.open("default").unwrap().unwrap();
        let limits = BrokerLimits { queue_bytes: Some(1), ..BrokerLimits::default() };
        broker.quota.set(TenantLimits { broker: limits, ..TenantLimits::default() });
        let left = || {
            let all = shared.run(&async |tx| streams::all_totals(tx, id, None, PAGE).await);
            all.iter().filter(|(_, totals)| totals.entries > 0).count()
        };
        let mut look = LimitScan::default();
        look.start(&shared);
        let mut seen = Vec::new();
        while !look.is_done() {
            look.step(&shared);
            seen.push(left());
        }
        assert_eq!(seen, [streams.len(), 2 * TRIMMED_AT_ONCE, TRIMMED_AT_ONCE, 0]);
        look.start(&shared);
        look.step(&shared);
        assert!(look.is_done(), "no stream has messages");
    }

    #[test]
    fn one_large_stream_keeps_no_other_from_its_trim() {
        let (shared, id) = StoreContext::with_broker(false);
        let [large, small] = ["large", "small"].map(|name| shared.message_of_group(id, name));
        const MORE: u64 = 3 * TRIM_ENTRIES as u64;
        shared.append_many(large, MORE);
        let broker = shared.open("default").unwrap().unwrap();
        let limits = BrokerLimits { queue_bytes: Some(1), ..BrokerLimits::default() };
        broker.quota.set(TenantLimits { broker: limits, ..TenantLimits::default() });
        let left = |(broker, stream): StreamKey| {
            shared.run(&async |tx| streams::totals(tx, broker, stream).await).entries
        };
        let mut look = LimitScan::default();
        look.start(&shared);
        let mut removed = Vec::new();
        while !look.is_done() {
            let before = left(large);
            look.step(&shared);
            removed.push((before - left(large), left(small)));
        }
        let step = TRIM_ENTRIES as u64;
        assert_eq!(removed, [(0, 1), (step, 1), (step, 0), (step, 0), (1, 0)]);
    }

    #[test]
    fn a_broker_with_large_streams_delays_no_trim_of_another() {
        const MORE: u64 = 3 * TRIM_ENTRIES as u64;
        let (shared, busy) = StoreContext::with_broker(false);
        let large = ["one", "two", "three"].map(|name| shared.message_of_group(busy, name));
        large.into_iter().for_each(|stream| shared.append_many(stream, MORE));
        let other = block_on(shared.layers.ensure_broker(b"other")).unwrap().id;
        let (_, small) = shared.message_of_group(other, "small");
        for name in ["default", "other"] {
            let limits = BrokerLimits { queue_bytes: Some(1), ..BrokerLimits::default() };
            let broker = shared.open(name).unwrap().unwrap();
            broker.quota.set(TenantLimits { broker: limits, ..TenantLimits::default() });
        }
        let mut look = LimitScan::default();
        look.start(&shared);
        let mut steps = 0;
        while shared.run(&async |tx| streams::totals(tx, other, small).await).entries > 0 {
            look.step(&shared);
            steps += 1;
        }
        // Each broker is read in a step, and each of the first trims of the other one ends a step.
        assert!(steps <= 4, "{steps} steps");
        while !look.is_done() {
            look.step(&shared);
        }
        let left = shared.run(&async |tx| streams::all_totals(tx, busy, None, PAGE).await);
        assert!(left.iter().all(|(_, totals)| totals.entries == 0), "{left:?}");
    }
}
