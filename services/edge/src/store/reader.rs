//! The threads that read streams for sessions that are behind; one of them trims the streams that have grown.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use millrace_layers::streams::{self, Totals};
use millrace_layers::{Error, Position, index};
use millrace_storage::block_on;

use super::pages;
use super::parts::Parts;
use super::queue::Taken;
use super::{Read, Shared, ToRead};
use crate::mailbox::Mail;

/// How often it is looked for streams that are over their limits.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A stream is looked at when it got this part of its limit in messages, and all that got any are looked at now and then.
const LOOK_AT_PART: u64 = 8;
/// How often all are looked at.
const LOOK_AT_ALL_EVERY: Duration = Duration::from_secs(60);
/// Entries that one transaction trims.
const TRIM_ENTRIES: usize = 1000;
/// Things that one transaction sweeps.
const SWEPT: usize = 500;

/// What a thread reads at a time.
const TAKEN: usize = 64;

/// Reads beside [`run`], until the queue is closed.
pub(super) fn help(shared: &Shared) {
    let (mut parts, mut unread) = (Parts::default(), Vec::new());
    while read_some(shared, &mut parts, &mut unread).is_some() {
        parts.clean(shared.clock.now());
    }
}

/// Until the queue is closed.
pub(super) fn run(shared: &Shared) {
    let (mut looked_at, mut looked_at_all) = (shared.clock.now(), shared.clock.now());
    let mut parts = Parts::default();
    // For sessions, of a store that does not answer.
    let mut unread = Vec::new();
    while let Some(is_there) = read_some(shared, &mut parts, &mut unread) {
        if !is_there {
            continue;
        }
        let now = shared.clock.now();
        parts.clean(now);
        if now >= looked_at + LOOK_EVERY.as_millis() as u64 {
            let all = now >= looked_at_all + LOOK_AT_ALL_EVERY.as_millis() as u64;
            trim(shared, all);
            if all {
                sweep(shared);
            }
            looked_at = now;
            looked_at_all = if all { now } else { looked_at_all };
        }
    }
}

/// Reads what waits. False when the store does not answer, `None` when the queue is closed.
fn read_some(shared: &Shared, parts: &mut Parts, unread: &mut Vec<Read>) -> Option<bool> {
    let mut reads = std::mem::take(unread);
    match shared.reads.take_some(LOOK_EVERY, TAKEN) {
        Taken::Work(work) => {
            for to_read in work {
                match to_read {
                    ToRead::Page(read) => reads.push(read),
                    ToRead::Broker { core, name } => open(shared, core, name),
                }
            }
        }
        Taken::Nothing => {}
        Taken::Closed => return None,
    }
    *unread = pages::answer(shared, parts, reads);
    Some(unread.is_empty())
}

/// Reads a broker, and tells who asked.
fn open(shared: &Shared, core: u16, name: Arc<str>) {
    let opened = shared.open(&name);
    if let (Some(region), Ok(Some(broker))) = (&shared.region, &opened) {
        return region.when_joined(broker, core, name);
    }
    let opened = opened.map(|broker| broker.is_some());
    if let Err(error) = &opened {
        tracing::error!(%error, broker = &*name, "a broker cannot be read; its clients are told to come back");
    }
    shared.mailboxes[usize::from(core)].deliver(&mut vec![Mail::Opened(name, opened.ok())], 0);
}

/// Holds the streams that have grown to their limits: the oldest messages go, and are counted.
fn trim(shared: &Shared, all: bool) {
    let limits = &shared.limits;
    let mut touched = Vec::new();
    shared.touched.lock().unwrap_or_else(PoisonError::into_inner).retain(|stream, messages| {
        // A message may be long.
        let is_due = all
            || *messages * LOOK_AT_PART >= u64::from(limits.queue_messages_max)
            || *messages * LOOK_AT_PART * u64::from(limits.packet_size_max) >= limits.queue_bytes_max;
        if is_due {
            touched.push(*stream);
        }
        !is_due
    });
    let keep = Totals { entries: limits.queue_messages_max.into(), bytes: limits.queue_bytes_max };
    let longest_ms = u64::from(limits.session_expiry_max_s) * 1000;
    let before_ms = shared.clock.unix_now_ms().saturating_sub(longest_ms);
    for (broker, stream) in touched {
        let Some(broker) = shared.brokers.by_id(broker) else { continue };
        match block_on(shared.layers.limit_stream(broker.id, stream, before_ms, keep, TRIM_ENTRIES)) {
            Ok(removed) => broker.counters[shared.mailboxes.len() + 1]
                .trimmed
                .add(usize::try_from(removed.entries).unwrap_or(0)),
            Err(error) => tracing::warn!(%error, "a stream could not be held to its limits"),
        }
    }
}

/// Removes what streams have left that nobody subscribes to any more, and long messages that no stream has any more.
fn sweep(shared: &Shared) {
    for broker in shared.brokers.all() {
        sweep_broker(shared, broker.id);
    }
}

fn sweep_broker(shared: &Shared, broker: u64) {
    let dropped = || block_on(shared.layers.run(async |tx| streams::sweep_dropped(&tx, broker, SWEPT).await));
    let changes = || block_on(shared.layers.run(async |tx| index::trim_changes(&tx, broker, SWEPT).await));
    let swept = until_nothing(dropped).and_then(|()| until_nothing(changes)).and_then(|()| {
        let mut bodies = Some(Position::MIN);
        while let Some(from) = bodies {
            let run = shared.layers.run(async |tx| streams::sweep_bodies(&tx, broker, from, SWEPT).await);
            bodies = block_on(run)?.next;
        }
        Ok(())
    });
    if let Err(error) = swept {
        tracing::warn!(%error, "what nobody needs any more stays in the store for now");
    }
}

/// Sweeps piece by piece, until a piece had nothing to remove.
fn until_nothing(piece: impl Fn() -> Result<usize, Error>) -> Result<(), Error> {
    while piece()? > 0 {}
    Ok(())
}
