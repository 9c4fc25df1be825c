//! The receivers of a topic: [`Routes`], one match of a broker's router, and the cache in which each event loop keeps them.
//!
//! A match holds the sessions on this pod, the streams that store the topic, and the pods that may have more receivers. It is
//! valid until a subscription that matches the topic changes.

mod cache;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use millrace_mqtt::QoS;
use millrace_router::{Matched, Receiver, ShareGroup, Snapshot, Target};
use millrace_session::Message;

use crate::broker::Broker;
use crate::clock::Millis;
use crate::elsewhere::{Targets, is_here};
use crate::limits;
use crate::outbound::GRACE_MS;
use crate::streams::{StoredGroup, TopicStreams, group_id};
pub(crate) use cache::{NODE_WORK, RouteCache};

pub(crate) struct Routes {
    pub(crate) broker: Arc<Broker>,
    pub(crate) topic: Arc<str>,
    /// Generation of the router at which the match was last found valid.
    generation: AtomicU64,
    pub(crate) matched: Matched,
    /// The topic matches more filters than [`limits::MATCH`] allows: the broker refuses messages to it.
    pub(crate) is_over_limit: bool,
    /// Streams that store the topic's messages for persistent sessions.
    pub(crate) stored: TopicStreams,
    /// Cores with receivers, and their range in `matched.receivers`.
    pub(crate) cores: Box<[(u16, Range<usize>)]>,
    /// For each of `cores`, the progress of its receivers with the last messages.
    progress: Box<[ReceiverProgress]>,
    pub(crate) copies: Targets,
    /// Other pods that may have persistent sessions or members of shared subscriptions, which read the message from the
    /// store.
    pub(crate) nudges: Targets,
    /// Nodes that the match visited: its cost.
    pub(crate) visited: usize,
}

struct ReceiverProgress {
    moving: AtomicUsize,
    behind: AtomicUsize,
    at: AtomicU64,
}

/// How the receivers of a topic on one core get on with its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteProgress {
    /// The first receiver and their number, by which topics with the same receivers are recognised.
    pub(crate) receivers: (Target, usize),
    /// Receivers that accept messages now, and how many of them lag.
    pub(crate) moving: usize,
    pub(crate) behind: usize,
}

impl RouteProgress {
    pub(crate) const fn of_one(receiver: Target, behind: usize) -> Self {
        Self { receivers: (receiver, 1), moving: 1, behind }
    }
}

impl ReceiverProgress {
    fn new(receivers: usize) -> Self {
        Self { moving: AtomicUsize::new(receivers), behind: AtomicUsize::new(0), at: AtomicU64::new(0) }
    }

    fn note(&self, moving: usize, behind: usize, now: Millis) {
        self.moving.store(moving, Ordering::Relaxed);
        self.behind.store(behind, Ordering::Relaxed);
        self.at.store(now, Ordering::Relaxed);
    }

    /// Receivers that lag; 0 after `GRACE_MS` without a message, in which they could catch up.
    fn behind(&self, now: Millis) -> usize {
        let is_recent = now < self.at.load(Ordering::Relaxed) + GRACE_MS;
        if is_recent { self.behind.load(Ordering::Relaxed) } else { 0 }
    }
}

impl Routes {
    pub(crate) fn new(broker: Arc<Broker>, topic: Arc<str>) -> Self {
        let stored = broker.streams.matches(&topic);
        let snapshot = broker.router.snapshot();
        Self::found(broker, topic, stored, &snapshot)
    }

    pub(crate) fn at(broker: Arc<Broker>, topic: Arc<str>, snapshot: &Snapshot) -> Self {
        let stored = broker.streams.matches(&topic);
        Self::found(broker, topic, stored, snapshot)
    }

    fn found(broker: Arc<Broker>, topic: Arc<str>, stored: TopicStreams, snapshot: &Snapshot) -> Self {
        let (generation, mut visited) = (AtomicU64::new(snapshot.generation()), stored.visited);
        let matched = snapshot.matches_counted(&topic, limits::MATCH, &mut visited);
        let is_over_limit = matched.is_none() || stored.is_over_limit;
        let matched = matched.unwrap_or_default();
        let mut cores: Vec<(u16, Range<usize>)> = Vec::new();
        for (index, receiver) in matched.receivers.iter().enumerate() {
            match cores.last_mut() {
                Some((core, range)) if *core == receiver.target.core => range.end = index + 1,
                _ => cores.push((receiver.target.core, index..index + 1)),
            }
        }
        let (copies, nudges) = Default::default();
        let cores = cores.into_boxed_slice();
        let progress = cores.iter().map(|(_, range)| ReceiverProgress::new(range.len())).collect();
        Self {
            broker,
            topic,
            generation,
            matched,
            is_over_limit,
            stored,
            cores,
            progress,
            copies,
            nudges,
            visited,
        }
    }

    /// Shared subscriptions that get the message live, because no stream stores it for them.
    pub(crate) fn live_groups(&self, message: &Message) -> impl Iterator<Item = &Arc<ShareGroup>> {
        let is_stored = message.qos() > QoS::AtMostOnce;
        let groups = self.matched.groups.iter();
        groups.filter(move |group| !is_stored || self.stored.group(group.name(), group.filter()).is_none())
    }

    pub(crate) fn group(&self, id: u64) -> Option<&Arc<ShareGroup>> {
        self.matched.groups.iter().find(|group| group_id(group) == id)
    }

    /// The group of a stored shared subscription, if it has a connected member on this pod.
    pub(crate) fn online_group(&self, stored: &StoredGroup) -> Option<&Arc<ShareGroup>> {
        let is_it = |group: &&Arc<ShareGroup>| {
            group.name() == &*stored.name && group.filter() == &*stored.filter && group.has_online(is_here)
        };
        self.matched.groups.iter().find(is_it)
    }

    /// Records how many receivers of a core accept messages now, and how many of them lag.
    pub(crate) fn note_progress(&self, core: u16, moving: usize, behind: usize, now: Millis) {
        let found = self.cores.iter().position(|(of, _)| *of == core);
        if let Some(progress) = found.and_then(|index| self.progress.get(index)) {
            progress.note(moving, behind, now);
        }
    }

    pub(crate) fn progress(&self, core: u16, now: Millis) -> Option<RouteProgress> {
        let index = self.cores.iter().position(|(of, _)| *of == core)?;
        let (range, progress) = (&self.cores[index].1, &self.progress[index]);
        Some(RouteProgress {
            receivers: (self.matched.receivers.get(range.start)?.target, range.len()),
            moving: progress.moving.load(Ordering::Relaxed),
            behind: progress.behind(now),
        })
    }

    /// Whether most of the receivers that accept messages lag, on all cores together.
    pub(crate) fn are_most_behind(&self, now: Millis) -> bool {
        let behind: usize = self.progress.iter().map(|progress| progress.behind(now)).sum();
        let moving: usize =
            self.progress.iter().map(|progress| progress.moving.load(Ordering::Relaxed)).sum();
        behind * 2 > moving
    }

    pub(crate) fn size(&self) -> usize {
        let receivers = size_of_val(&*self.matched.receivers);
        let identifiers: usize = (self.matched.receivers.iter())
            .filter(|receiver| receiver.identifiers.spilled())
            .map(|receiver| size_of_val(&*receiver.identifiers))
            .sum();
        let groups = size_of_val(&*self.matched.groups) + size_of_val(&*self.stored.groups);
        let streams = size_of_val(&*self.stored.streams) * 2;
        size_of::<Self>() + self.topic.len() + receivers + identifiers + groups + streams
    }

    /// Whether the match is the one that generation `now` of the router would find.
    #[inline]
    pub(crate) fn is_of(&self, now: u64) -> bool {
        self.generation.load(Ordering::Relaxed) == now
            && self.stored.generation == self.broker.streams.generation()
    }

    /// The same, where a subscription has changed: whether none of the changed ones matches the topic.
    pub(crate) fn is_still_valid_for(&self, now: u64) -> bool {
        let matched = self.generation.load(Ordering::Relaxed);
        // Filters that do not match count for the limit, too.
        let is_valid = !self.is_over_limit
            && self.stored.generation == self.broker.streams.generation()
            && self.broker.router.still_valid(&self.topic, matched, now);
        if is_valid {
            self.generation.store(now, Ordering::Relaxed);
        }
        is_valid
    }

    /// Whether no session gets the message, now or later.
    pub(crate) fn is_empty(&self) -> bool {
        self.stored.streams.is_empty() && self.matched.receivers.is_empty() && self.matched.groups.is_empty()
    }

    /// Cores with persistent sessions that need this topic's messages.
    pub(crate) fn cores_that_keep(&self) -> impl Iterator<Item = u16> {
        let keeps =
            |range: &Range<usize>| self.matched.receivers[range.clone()].iter().any(Receiver::is_persistent);
        self.cores.iter().filter(move |(_, range)| keeps(range)).map(|(core, _)| *core)
    }

    pub(crate) fn receivers(&self, core: u16) -> &[Receiver] {
        self.cores
            .iter()
            .find(|(of, _)| *of == core)
            .map_or(&[], |(_, range)| &self.matched.receivers[range.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_that_lagged_long_ago_do_not_count() {
        let progress = ReceiverProgress::new(2);
        assert_eq!(progress.behind(0), 0);
        progress.note(2, 1, 1_000);
        let behind = [1_000, 999 + GRACE_MS, 1_000 + GRACE_MS].map(|now| progress.behind(now));
        assert_eq!(behind, [1, 1, 0]);
    }

    #[test]
    fn receivers_of_all_cores_that_lagged_long_ago_do_not_count_either() {
        let broker = Arc::new(Broker::new(1, "b", 2));
        let mut routes = Routes::new(broker, "t".into());
        routes.progress = [0, 1].map(|_| ReceiverProgress::new(2)).into();
        routes.progress[0].note(2, 2, 1_000);
        routes.progress[1].note(2, 1, 900 + GRACE_MS);
        let most = [999 + GRACE_MS, 1_000 + GRACE_MS].map(|now| routes.are_most_behind(now));
        assert_eq!(most, [true, false]);
    }
}
