//! The receivers of a topic: [`Routes`], one match of a broker's router, and the cache in which each event loop keeps them.
//!
//! A match holds the sessions on this pod, the streams that store the topic, and the pods that may have more receivers. It is
//! valid until a subscription that matches the topic changes.

mod cache;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use millrace_fabric::PodId;
use millrace_mqtt::QoS;
use millrace_router::{Matched, Receiver, ShareGroup, Snapshot, Target};
use millrace_session::Message;

use crate::broker::Broker;
use crate::clock::Millis;
use crate::elsewhere::{Targets, is_here};
use crate::limits;
use crate::outbound::GRACE_MS;
use crate::streams::{GroupNumber, StoredGroup, TopicStreams, group_id, id_of};
pub(crate) use cache::{NODE_WORK, RouteCache};

pub(crate) struct Routes {
    pub(crate) broker: Arc<Broker>,
    pub(crate) topic: Arc<str>,
    /// Generation of the router at which the match was last found valid.
    generation: AtomicU64,
    pub(crate) matched: Matched,
    /// The groups of the match in the order of their ids.
    groups: Box<[GroupEntry]>,
    /// The topic matches more than [`limits::MATCH`] allows: the broker refuses messages to it.
    pub(crate) is_over_limit: bool,
    /// Streams that store the topic's messages for persistent sessions.
    pub(crate) stored: TopicStreams,
    /// Cores with receivers, and their range in `matched.receivers`.
    pub(crate) cores: Box<[(u16, Range<usize>)]>,
    /// For each of `cores`, the progress of its receivers with the last messages.
    progress: Box<[ReceiverProgress]>,
    copy_pods: Targets,
    notified_pods: Targets,
    /// Nodes that the match visited: its cost.
    pub(crate) visited: usize,
}

struct GroupEntry {
    id: GroupNumber,
    group: Arc<ShareGroup>,
    /// A stream stores its messages of QoS 1 and 2.
    is_stored: bool,
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

impl GroupEntry {
    fn all_of(matched: &Matched, stored: &TopicStreams) -> Box<[Self]> {
        let entry =
            |group: &Arc<ShareGroup>| Self { id: group_id(group), group: group.clone(), is_stored: false };
        let mut entries: Box<[Self]> = matched.groups.iter().map(entry).collect();
        entries.sort_unstable_by_key(|entry| entry.id);
        for stored in &stored.groups {
            if let Ok(found) =
                entries.binary_search_by_key(&id_of(&stored.name, &stored.filter), |entry| entry.id)
            {
                entries[found].is_stored |= is_same(&entries[found].group, stored);
            }
        }
        entries
    }
}

fn is_same(group: &ShareGroup, stored: &StoredGroup) -> bool {
    group.name() == &*stored.name && group.filter() == &*stored.filter
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
        let (generation, mut visited) = (AtomicU64::new(snapshot.generation()), stored.visited_nodes);
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
        let (copy_pods, notified_pods) = Default::default();
        let cores = cores.into_boxed_slice();
        let progress = cores.iter().map(|(_, range)| ReceiverProgress::new(range.len())).collect();
        Self {
            broker,
            topic,
            generation,
            groups: GroupEntry::all_of(&matched, &stored),
            matched,
            is_over_limit,
            stored,
            cores,
            progress,
            copy_pods,
            notified_pods,
            visited,
        }
    }

    /// Shared subscriptions, with their ids, that get the message live, because no stream stores it for them.
    pub(crate) fn live_groups(
        &self,
        message: &Message,
    ) -> impl Iterator<Item = (GroupNumber, &Arc<ShareGroup>)> {
        let is_stored = message.qos() > QoS::AtMostOnce;
        let live = self.groups.iter().filter(move |entry| !(is_stored && entry.is_stored));
        live.map(|entry| (entry.id, &entry.group))
    }

    pub(crate) fn group(&self, id: GroupNumber) -> Option<&Arc<ShareGroup>> {
        let found = self.groups.binary_search_by_key(&id, |entry| entry.id).ok()?;
        Some(&self.groups[found].group)
    }

    /// The group of a stored shared subscription, if it has a connected member on this pod.
    pub(crate) fn online_group(&self, stored: &StoredGroup) -> Option<&Arc<ShareGroup>> {
        let group = self.group(id_of(&stored.name, &stored.filter))?;
        (is_same(group, stored) && group.has_online(is_here)).then_some(group)
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
        let groups = size_of_val(&*self.matched.groups) + size_of_val(&*self.groups);
        let groups = groups + size_of_val(&*self.stored.groups);
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

    /// Other pods that may have receivers, which get a copy.
    pub(crate) fn copy_pods(&self) -> Option<Arc<[PodId]>> {
        self.copy_pods.get(&self.broker.elsewhere.peers, &self.topic, false)
    }

    /// Also the pods with persistent sessions or members of shared subscriptions, which read the message from the store.
    pub(crate) fn notified_pods(&self) -> Option<Arc<[PodId]>> {
        self.notified_pods.get(&self.broker.elsewhere.peers, &self.topic, true)
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
    use millrace_layers::index::IndexedStream;
    use millrace_mqtt::Properties;
    use millrace_mqtt::topic::Filter;
    use millrace_router::Subscription;

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
    fn a_group_is_found_by_its_id_and_gets_stored_messages_from_its_stream_alone() {
        let broker = Arc::new(Broker::new(1, "b", 1));
        let subscription = Subscription {
            target: Target { core: 0, slot: 1, generation: 1 },
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            persistent: false,
            identifier: 0,
        };
        let names: Vec<String> = (0..200).map(|number| format!("g{number}")).collect();
        for (filter, name) in
            ["t", "#"].iter().flat_map(|filter| names.iter().map(move |name| (filter, name)))
        {
            broker.router.subscribe(Filter { share: Some(name), filter }, subscription);
        }
        let stream = |group: &'static str, stream| IndexedStream { group: group.into(), stream };
        broker.streams.set("t", &[stream("g7", 7), stream("g9", 9)], &[1, 1]);
        let routes = Routes::new(broker, "t".into());
        assert_eq!((routes.matched.groups.len(), routes.group(3).is_some()), (400, false));
        for group in &routes.matched.groups {
            assert!(Arc::ptr_eq(routes.group(group_id(group)).unwrap(), group));
        }
        let live = |qos| {
            let message = Message::new("t".into(), qos, false, Properties::EMPTY, b"", 0);
            routes
                .live_groups(&message)
                .map(|(id, group)| {
                    assert_eq!(id, group_id(group));
                    (group.name().to_owned(), group.filter().to_owned())
                })
                .collect::<Vec<_>>()
        };
        let (qos_0, qos_1) = (live(QoS::AtMostOnce), live(QoS::AtLeastOnce));
        assert_eq!((qos_0.len(), qos_1.len()), (400, 398));
        assert!(
            qos_0
                .iter()
                .filter(|group| !qos_1.contains(group))
                .all(|(name, filter)| { filter == "t" && (name == "g7" || name == "g9") })
        );
        let stored = StoredGroup { stream: 7, name: "g7".into(), filter: "t".into() };
        assert!(routes.online_group(&stored).is_some_and(|group| is_same(group, &stored)));
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
