//! The cost of each job for the writer, its bytes, and the order that it needs among other jobs. By these numbers the backlog
//! shares transactions fairly between brokers.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use millrace_layers::limits::INLINE_SHARED_BYTES_MAX;

use super::backlog::{BacklogJob, COSTLY, Lane};
use super::queue::{self, QueuedWork as _};
use super::writer::writes_nothing;
use crate::broker::Broker;
use crate::jobs::{FILTER_BYTES, IdWrite, Job, StreamRead, Write};

/// The lane of jobs that need no order among themselves or with other jobs.
const NO_BROKER: u64 = u64::MAX;
/// Bytes that a job may write to a nearly full disk.
const SMALL_BYTES_MAX: usize = 64 * 1024;

/// Estimated costs of jobs, in units of a small message for one stream. A filter costs more than its transaction takes,
/// because the event loops must match topics again.
pub(super) mod cost {
    /// Bytes for one unit: they are written once to the journal, and again by each flush and merge, which later commits wait
    /// for.
    pub(super) const BYTES: usize = 384;
    pub(in crate::store) const FILTER: usize = 20;
    /// A retained message: the rows that it replaces are read.
    pub(super) const RETAINED: usize = 4;
    pub(super) const SESSION: usize = 8;
    /// Work for one unit, in the units of an event loop (0.1 microseconds): a small message takes about 10 microseconds.
    pub(in crate::store) const MATCHING: usize = 100;
    pub(super) const IDS: usize = 2;
    pub(super) const WEBHOOKS: usize = 50;
    /// A read of a session, in sources.
    pub(super) const READ: usize = 30;
}

impl Job {
    /// Whether a nearly full disk accepts the job: it removes something, or replaces rows by others of about the same size. A client
    /// must be able to come back to the messages that fill the disk.
    pub(super) fn needs_no_room(&self) -> bool {
        match &self.write {
            Write::Attach(attach) => {
                attach.will.as_ref().is_none_or(|(will, _)| will.size() <= SMALL_BYTES_MAX)
            }
            Write::Ids(ids) => match &ids.write {
                IdWrite::Reserve(reserve) => {
                    reserve.rows.iter().map(|(_, row)| row.len()).sum::<usize>() <= SMALL_BYTES_MAX
                }
                IdWrite::Release(..) | IdWrite::Forget(_) => true,
            },
            Write::Checkpoint(_) | Write::Purge(_) => true,
            _ => writes_nothing(&self.write),
        }
    }

    /// The broker of a small message, see `store/queue.rs`.
    pub(super) fn broker_of_small_publish(&self) -> Option<u64> {
        self.broker().filter(|_| self.is_small_publish()).map(|broker| broker.id)
    }
}

impl BacklogJob for Job {
    fn lane(&self) -> Lane {
        Lane::Broker(match &self.write {
            Write::Publish(publish) => publish.routes.broker.id,
            Write::Attach(attach) => attach.broker.id,
            Write::Subscribe(subscribe) => subscribe.session.broker.id,
            Write::Unsubscribe(unsubscribe) => unsubscribe.session.broker.id,
            Write::Ids(ids) => ids.session.broker.id,
            Write::Detach(detach) => detach.session.broker.id,
            Write::Purge(purge) => purge.broker.id,
            Write::Webhooks(broker) | Write::Grown(broker, _) => broker.id,
            Write::Confirmed { publisher, .. } => publisher.broker,
            Write::Shared(shared) => shared.streams().next().map_or(NO_BROKER, |(broker, _)| broker),
            Write::Notices => NO_BROKER,
            Write::Checkpoint(_) => return Lane::Checkpoint,
            Write::Barrier { broker, .. } => return Lane::Barrier(*broker),
        })
    }

    fn bytes(&self) -> usize {
        match &self.write {
            Write::Subscribe(subscribe) => FILTER_BYTES * subscribe.left(),
            Write::Unsubscribe(unsubscribe) => FILTER_BYTES * unsubscribe.left(),
            _ => self.size(),
        }
    }

    fn cost(&self) -> usize {
        match &self.write {
            Write::Publish(publish) => {
                let retained = if publish.retains { cost::RETAINED } else { 0 };
                publish.routes.stored.streams.len() + retained + self.size() / cost::BYTES
            }
            Write::Subscribe(subscribe) => cost::FILTER * (subscribe.left() + subscribe.shared.len()),
            Write::Unsubscribe(unsubscribe) => cost::FILTER * unsubscribe.left(),
            Write::Attach(_) | Write::Detach(_) => cost::SESSION,
            Write::Purge(_) => cost::FILTER,
            Write::Webhooks(_) => cost::WEBHOOKS,
            Write::Ids(_) => cost::IDS,
            Write::Checkpoint(checkpoint) => 1 + checkpoint.streams.len(),
            Write::Shared(_)
            | Write::Confirmed { .. }
            | Write::Grown(..)
            | Write::Notices
            | Write::Barrier { .. } => 1,
        }
    }

    fn part_cost(&self) -> Option<usize> {
        match &self.write {
            Write::Subscribe(_) | Write::Unsubscribe(_) => Some(cost::FILTER),
            _ => None,
        }
    }

    fn limit_to(&mut self, cost: usize) {
        let filters = (cost / cost::FILTER).max(1);
        match &mut self.write {
            Write::Subscribe(subscribe) => {
                subscribe.until = (subscribe.written.len() + filters).min(subscribe.filters.len());
            }
            Write::Unsubscribe(unsubscribe) => {
                unsubscribe.until = (unsubscribe.written + filters).min(unsubscribe.filters.len());
            }
            _ => {}
        }
    }

    fn session(&self) -> Option<u64> {
        let (broker, client) = match &self.write {
            Write::Checkpoint(checkpoint) => checkpoint.session.name(),
            Write::Subscribe(subscribe) => subscribe.session.name(),
            Write::Unsubscribe(unsubscribe) => unsubscribe.session.name(),
            Write::Ids(ids) => ids.session.name(),
            Write::Detach(detach) => detach.session.name(),
            Write::Attach(attach) => (attach.broker.id, &*attach.client),
            Write::Purge(purge) => (purge.broker.id, &*purge.client),
            _ => return None,
        };
        let mut hasher = DefaultHasher::new();
        (broker, client).hash(&mut hasher);
        Some(hasher.finish())
    }

    fn changes_index(&self) -> bool {
        match &self.write {
            Write::Subscribe(_) | Write::Unsubscribe(_) | Write::Purge(_) | Write::Webhooks(_) => true,
            Write::Attach(attach) => attach.clean || attach.expiry_s == 0,
            Write::Detach(detach) => detach.expiry_s == 0,
            _ => false,
        }
    }

    fn begins_transaction(&self, index_changed: bool) -> bool {
        match &self.write {
            // It must find the streams that earlier jobs created, which are known only after their commit.
            Write::Publish(_) => index_changed,
            // The messages that the session got need their position.
            Write::Detach(detach) => !detach.is_decided(),
            _ => false,
        }
    }
}

impl queue::QueuedWork for Job {
    fn size(&self) -> usize {
        match &self.write {
            // The row of each stream, and the rows that are written once.
            Write::Publish(publish) => {
                let (size, streams) = (publish.message.size(), publish.routes.stored.streams.len().max(1));
                let of_each = if size <= INLINE_SHARED_BYTES_MAX { size } else { 0 };
                size + streams * (300 + of_each)
            }
            Write::Attach(attach) => 256 + attach.will.as_ref().map_or(0, |(will, _)| will.size()),
            // A filter's look-up of retained messages counts with the filter; a session in memory has the look-up alone.
            Write::Subscribe(subscribe) => {
                let filters = subscribe.filters.len().max(subscribe.pending.replays.len());
                128 + FILTER_BYTES * (filters + subscribe.shared.len())
            }
            Write::Unsubscribe(unsubscribe) => 128 + FILTER_BYTES * unsubscribe.filters.len(),
            Write::Checkpoint(checkpoint) => 128 + 256 * checkpoint.streams.len(),
            Write::Ids(ids) => match &ids.write {
                IdWrite::Reserve(reserve) => {
                    reserve.rows.iter().map(|(_, row)| 128 + row.len()).sum::<usize>()
                        + 16 * (reserve.acknowledged.len() + reserve.taken.len())
                }
                IdWrite::Release(..) | IdWrite::Forget(_) => 128,
            },
            Write::Shared(shared) => 16 * shared.messages(),
            Write::Purge(_) => 128,
            Write::Webhooks(_) => 64 * 1024,
            Write::Detach(detach) => 256 + 64 * detach.in_flight.len(),
            Write::Barrier { .. } | Write::Notices | Write::Grown(..) | Write::Confirmed { .. } => 0,
        }
    }

    fn is_small_publish(&self) -> bool {
        matches!(self.write, Write::Publish(_)) && self.cost() < COSTLY
    }

    fn owner(&self) -> Option<&Broker> {
        self.broker().map(|broker| &**broker)
    }
}

impl queue::QueuedWork for StreamRead {
    fn size(&self) -> usize {
        0
    }

    fn work(&self) -> usize {
        cost::READ + self.sources.len()
    }

    fn owner(&self) -> Option<&Broker> {
        Some(&self.broker)
    }
}
