//! Enforces the limits of tenants on queued messages: removes the oldest messages, and counts them.
//!
//! A stream is a queue that all sessions of a filter share. So a limit per session applies to each of its streams.

use std::sync::Arc;

use millrace_layers::streams::{self, LossReason, StreamId, StreamLimits, Totals};
use millrace_layers::{BrokerId, LayerError};
use millrace_storage::block_on;

use super::Shared;
use crate::broker::Broker;
use crate::incidents::Note;
use crate::quota::Limit;

/// Interval in which brokers with a limit on all queues together, or on the age of messages, are checked.
pub(super) const LOOK_EVERY_MS: u64 = 5_000;
const PAGE: usize = 1_000;
/// Streams of a broker that one check trims, the largest first.
const TRIMMED: usize = 200;
const TRIM_ENTRIES: usize = 1_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    pub(super) totals: Totals,
    pub(super) age_ms: u64,
}

impl Keep {
    pub(super) fn of(shared: &Shared, broker: &Broker) -> Self {
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

/// Trims a stream to `keep`, and counts the removed messages.
pub(super) fn hold(shared: &Shared, broker: &Broker, stream: StreamId, keep: Keep, limit: Limit) {
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
    match block_on(shared.layers.limit_stream(broker.id, stream, limits, TRIM_ENTRIES)) {
        Ok(removed) => {
            // The last set belongs to the reader thread, which trims.
            let counters = &broker.counters[shared.mailboxes.len() + 1];
            counters.trimmed.add(usize::try_from(removed.entries).unwrap_or(0));
            broker.incidents.note(&Note::limit(limit), removed.entries, shared.clock.unix_now_ms());
        }
        Err(error) => tracing::warn!(%error, "a stream could not be held to its limits"),
    }
}

/// Trims the streams of brokers with limits that a check of a single growing stream cannot enforce.
pub(super) fn look(shared: &Shared) {
    for broker in shared.brokers.each() {
        let limits = broker.quota.limits();
        let (bytes, has_age) = (limits.broker.queue_bytes, limits.client.queue_age_s.is_some());
        if (bytes.is_some() || has_age)
            && let Err(error) = look_at(shared, &broker, bytes, has_age)
        {
            tracing::warn!(%error, broker = &*broker.name, "its queues could not be looked at");
        }
    }
}

fn look_at(
    shared: &Shared,
    broker: &Arc<Broker>,
    bytes: Option<u64>,
    has_age: bool,
) -> Result<(), LayerError> {
    let mut all = all_totals(shared, broker.id)?;
    all.sort_unstable_by_key(|(_, totals)| std::cmp::Reverse(totals.bytes));
    let sum: u64 = all.iter().map(|(_, totals)| totals.bytes).sum();
    let keep = Keep::of(shared, broker);
    for (stream, totals) in all.into_iter().take(TRIMMED) {
        match bytes.filter(|most| sum > *most) {
            Some(most) => {
                // Each stream loses the same fraction.
                let part = u128::from(totals.bytes) * u128::from(most) / u128::from(sum);
                let bytes = keep.totals.bytes.min(u64::try_from(part).unwrap_or(u64::MAX));
                let keep = Keep { totals: Totals { bytes, ..keep.totals }, ..keep };
                hold(shared, broker, stream, keep, Limit::BrokerQueueBytes);
            }
            None if has_age => hold(shared, broker, stream, keep, Limit::ClientQueue),
            None => return Ok(()),
        }
    }
    Ok(())
}

fn all_totals(shared: &Shared, broker: BrokerId) -> Result<Vec<(StreamId, Totals)>, LayerError> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let read = shared.layers.run(async |tx| streams::all_totals(&tx, broker, from, PAGE).await);
        let page = block_on(read)?;
        from = page.last().map(|(stream, _)| *stream);
        let is_last = page.len() < PAGE;
        all.extend(page.into_iter().filter(|(_, totals)| totals.entries > 0));
        if is_last {
            return Ok(all);
        }
    }
}
