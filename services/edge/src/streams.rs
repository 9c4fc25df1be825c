//! The streams that store the messages of a topic: a copy of one broker's filter index, in memory. Loops cache what
//! [`BrokerStreams::matches`] finds for a topic until [`BrokerStreams::generation`] changes.
//!
//! Only the writer thread changes this copy. It applies its own commits before it announces them, so a filter that is
//! missing here has not been acknowledged by this pod (P2). It reads other pods' changes before each transaction.

mod conflicts;

use bytes::Bytes;
use millrace_layers::index::{IndexRow, IndexedStream};
use millrace_layers::streams::{StreamId, StreamRef};
use millrace_layers::webhooks::name_of_group;
use millrace_mqtt::QoS;
use millrace_mqtt::topic::Filter;
use millrace_router::{Receiver, Router, ShareGroup, Subscription, Target};
use millrace_storage::StoreVersion;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use self::conflicts::FilterConflicts;
use crate::limits::STREAM_MATCH;

#[derive(Default)]
pub(crate) struct BrokerStreams {
    router: Router,
    /// The streams of each filter in the router, to find those that were removed.
    of_filter: Mutex<HashMap<Box<str>, Vec<StreamId>>>,
    subscribers: RwLock<HashMap<StreamId, Arc<Subscribers>>>,
    groups: RwLock<HashMap<StreamId, Arc<StoredGroup>>>,
    webhooks: RwLock<HashMap<StreamId, Arc<str>>>,
    has_webhooks: AtomicBool,
    /// The latest [`ENDED_MAX`] groups that ended: sessions may still have messages of these.
    ended: Mutex<EndedGroups>,
    /// With several pods: version of the store up to which changes by other pods are applied here.
    through: AtomicU64,
    pub(crate) conflicts: FilterConflicts,
}

#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    count: AtomicU64,
    changes: AtomicU64,
}

/// Condition under which a publish need not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SkipCondition {
    /// Number of sessions that must have acknowledged it.
    pub(crate) acknowledged: u32,
    /// [`TopicStreams::changes`] when the message was delivered to them.
    pub(crate) changes: u64,
}

/// Above this number of subscribers a publish is always stored: it is far below the one up to which the layers count exactly
/// ([`millrace_layers::limits::EXACT_COUNT_MAX`]).
const EXACT_MAX: u64 = 64;

const ENDED_MAX: usize = 1_000;

#[derive(Default)]
struct EndedGroups {
    of_stream: HashMap<StreamId, Arc<StoredGroup>>,
    /// The oldest first.
    order: VecDeque<StreamId>,
}

impl EndedGroups {
    fn add(&mut self, group: Arc<StoredGroup>) {
        let stream = group.stream;
        if self.of_stream.insert(stream, group).is_none() {
            self.order.push_back(stream);
        }
        if self.order.len() > ENDED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.of_stream.remove(&oldest);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StoredGroup {
    pub(crate) stream: StreamId,
    pub(crate) name: Box<str>,
    pub(crate) filter: Box<str>,
}

/// A shared subscription in sessions, mail and routes: even with a stream, odd without one; 0: none.
pub(crate) type GroupNumber = u64;

impl StoredGroup {
    pub(crate) fn number(&self) -> GroupNumber {
        self.stream << 1
    }

    /// The stream of a group by its number; `None`: the group has no stream.
    pub(crate) fn stream_of(number: GroupNumber) -> Option<StreamId> {
        (number != 0 && number & 1 == 0).then_some(number >> 1)
    }
}

pub(crate) fn group_id(group: &ShareGroup) -> GroupNumber {
    id_of(group.name(), group.filter())
}

pub(crate) fn id_of(name: &str, filter: &str) -> GroupNumber {
    foldhash::fast::FixedState::default().hash_one((name, filter)) | 1
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TopicStreams {
    pub(crate) generation: u64,
    pub(crate) streams: Box<[StreamRef]>,
    subscribers: Box<[Arc<Subscribers>]>,
    /// Streams of shared subscriptions among `streams`.
    pub(crate) groups: Box<[Arc<StoredGroup>]>,
    /// The topic matches more filters than `limits::MATCH` allows: `streams` is empty, and nothing may be stored.
    pub(crate) is_over_limit: bool,
    /// Streams of webhooks among `streams`, with the webhooks' names; they store messages of all QoS.
    pub(crate) webhooks: Box<[(StreamRef, Arc<str>)]>,
    pub(crate) visited_nodes: usize,
}

impl TopicStreams {
    /// Changes whenever a subscriber comes to one of the streams or leaves it.
    pub(crate) fn changes(&self) -> u64 {
        self.subscribers.iter().map(|subscribers| subscribers.changes.load(Ordering::SeqCst)).sum()
    }

    /// Whether the receivers are all subscribers of the streams. If so, the message need not be stored once all have
    /// acknowledged it (P1).
    pub(crate) fn skip_condition(&self, receivers: &[Receiver]) -> Option<SkipCondition> {
        let changes = self.changes();
        let all: u64 =
            self.subscribers.iter().map(|subscribers| subscribers.count.load(Ordering::SeqCst)).sum();
        let online: u64 = receivers.iter().map(|receiver| u64::from(receiver.persistent_subscriptions)).sum();
        let sessions = receivers.iter().filter(|receiver| receiver.is_persistent()).count();
        let is_exact = self.groups.is_empty() && all <= EXACT_MAX && all == online;
        is_exact.then(|| SkipCondition { acknowledged: u32::try_from(sessions).unwrap_or(u32::MAX), changes })
    }
}

impl BrokerStreams {
    pub(crate) fn has_webhooks(&self) -> bool {
        self.has_webhooks.load(Ordering::Relaxed)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.router.generation()
    }

    pub(crate) fn matches(&self, topic: &str) -> TopicStreams {
        let snapshot = self.router.snapshot();
        let generation = snapshot.generation();
        let mut visited_nodes = 0;
        let Some(found) = snapshot.matches_counted(topic, STREAM_MATCH, &mut visited_nodes) else {
            return TopicStreams {
                generation,
                is_over_limit: true,
                visited_nodes,
                ..TopicStreams::default()
            };
        };
        let streams: Box<[StreamRef]> = found
            .receivers
            .iter()
            .map(|receiver| StreamRef { stream: stream(receiver.target), partition: 0 })
            .collect();
        let of = self.subscribers.read().unwrap_or_else(PoisonError::into_inner);
        let subscribers = streams.iter().filter_map(|stream| of.get(&stream.stream).cloned()).collect();
        drop(of);
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        let groups = streams.iter().filter_map(|stream| groups.get(&stream.stream).cloned()).collect();
        let webhooks = if self.has_webhooks() { self.webhooks_among(&streams) } else { Box::default() };
        TopicStreams {
            generation,
            streams,
            subscribers,
            groups,
            webhooks,
            is_over_limit: false,
            visited_nodes,
        }
    }

    fn webhooks_among(&self, streams: &[StreamRef]) -> Box<[(StreamRef, Arc<str>)]> {
        let webhooks = self.webhooks.read().unwrap_or_else(PoisonError::into_inner);
        streams
            .iter()
            .filter_map(|stream| webhooks.get(&stream.stream).map(|name| (*stream, name.clone())))
            .collect()
    }

    /// Estimated number of a stream's subscribers, connected or not.
    pub(crate) fn subscribers(&self, stream: StreamId) -> u64 {
        let of = self.subscribers.read().unwrap_or_else(PoisonError::into_inner);
        of.get(&stream).map_or(0, |subscribers| subscribers.count.load(Ordering::Relaxed))
    }

    pub(crate) fn through(&self) -> StoreVersion {
        self.through.load(Ordering::Relaxed)
    }

    pub(crate) fn set_through(&self, version: StoreVersion) {
        self.through.fetch_max(version, Ordering::Relaxed);
    }

    /// Applies what other pods have changed in the store's index.
    pub(crate) fn change(&self, rows: &[IndexRow]) {
        for IndexRow { filter, streams } in rows {
            let Ok(filter) = std::str::from_utf8(filter) else { continue };
            // At least one: an indexed stream has a subscriber, although other pods do not announce each of theirs.
            let subscribers: Vec<u64> =
                streams.iter().map(|indexed| self.subscribers(indexed.stream).max(1)).collect();
            self.set(filter, streams, &subscribers);
        }
    }

    /// Removes all filters but these, after the whole index was read.
    pub(crate) fn retain(&self, filters: &HashSet<Bytes>) {
        let known: Vec<Box<str>> = {
            let of_filter = self.of_filter.lock().unwrap_or_else(PoisonError::into_inner);
            of_filter.keys().filter(|filter| !filters.contains(filter.as_bytes())).cloned().collect()
        };
        for filter in known {
            self.set(&filter, &[], &[]);
        }
    }

    pub(crate) fn group(&self, stream: StreamId) -> Option<Arc<StoredGroup>> {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).get(&stream).cloned()
    }

    /// Also finds a group that ended recently.
    pub(crate) fn group_or_ended(&self, stream: StreamId) -> Option<Arc<StoredGroup>> {
        self.group(stream).or_else(|| {
            let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.of_stream.get(&stream).cloned()
        })
    }

    pub(crate) fn group_of(&self, name: &str, filter: &str) -> Option<Arc<StoredGroup>> {
        let of_filter = self.of_filter.lock().unwrap_or_else(PoisonError::into_inner);
        let mut streams = of_filter.get(filter)?.iter();
        streams.find_map(|stream| self.group(*stream).filter(|group| *group.name == *name))
    }

    /// Replaces the streams of a filter; `subscribers` has their numbers of subscribers, in the same order. The count is set
    /// before `changes`, so the [`SkipCondition`] of a loop that read the old count does not hold any more. Returns the shared
    /// subscriptions that have ended.
    pub(crate) fn set(&self, filter: &str, streams: &[IndexedStream], subscribers: &[u64]) -> Vec<StreamId> {
        let mut ended = Vec::new();
        let Some(parsed) = Filter::parse(filter) else { return ended };
        let new: Vec<StreamId> = streams.iter().map(|indexed| indexed.stream).collect();
        let mut of_filter = self.of_filter.lock().unwrap_or_else(PoisonError::into_inner);
        let old = of_filter.get(filter).map_or(&[][..], Vec::as_slice);
        let mut counts = self.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        for (stream, count) in new.iter().zip(subscribers) {
            let subscribers = counts.entry(*stream).or_default();
            subscribers.count.store(*count, Ordering::SeqCst);
            subscribers.changes.fetch_add(1, Ordering::SeqCst);
        }
        for stream in old.iter().filter(|stream| !new.contains(stream)) {
            counts.remove(stream);
        }
        drop(counts);
        if old == new {
            return ended;
        }
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        for stream in old {
            let gone = groups.remove(stream).filter(|_| !new.contains(stream));
            if let Some(gone) = gone {
                ended.push(*stream);
                self.ended.lock().unwrap_or_else(PoisonError::into_inner).add(gone);
            }
        }
        // A client's group cannot begin with `#`, so the groups of webhooks do.
        let is_of_webhook = |indexed: &&IndexedStream| indexed.group.starts_with(b"#");
        let (of_webhooks, grouped): (Vec<_>, Vec<_>) =
            streams.iter().filter(|indexed| !indexed.group.is_empty()).partition(is_of_webhook);
        for indexed in grouped {
            let name = String::from_utf8_lossy(&indexed.group).into();
            let group = StoredGroup { stream: indexed.stream, name, filter: filter.into() };
            groups.insert(indexed.stream, Arc::new(group));
        }
        drop(groups);
        self.set_webhooks(old, &of_webhooks);
        self.router.edit(|edit| {
            for stream in old.iter().filter(|stream| !new.contains(stream)) {
                edit.unsubscribe(parsed, target(*stream));
            }
            for stream in new.iter().filter(|stream| !old.contains(stream)) {
                edit.subscribe(parsed, subscription(*stream));
            }
        });
        if new.is_empty() {
            of_filter.remove(filter);
        } else {
            of_filter.insert(filter.into(), new);
        }
        ended
    }
}

impl BrokerStreams {
    fn set_webhooks(&self, old: &[StreamId], new: &[&IndexedStream]) {
        let mut webhooks = self.webhooks.write().unwrap_or_else(PoisonError::into_inner);
        for stream in old {
            webhooks.remove(stream);
        }
        let named = |indexed: &&IndexedStream| Some((indexed.stream, name_of_group(&indexed.group)?.into()));
        webhooks.extend(new.iter().filter_map(named));
        self.has_webhooks.store(!webhooks.is_empty(), Ordering::Relaxed);
    }
}

fn subscription(stream: StreamId) -> Subscription {
    let qos = QoS::AtLeastOnce;
    Subscription {
        target: target(stream),
        qos,
        no_local: false,
        retain_as_published: false,
        persistent: false,
        identifier: 0,
    }
}

/// A stream's id, which has 48 bits, as a target of the router.
fn target(stream: StreamId) -> Target {
    Target { core: 0, slot: (stream >> 32) as u32, generation: stream as u32 }
}

fn stream(target: Target) -> StreamId {
    u64::from(target.slot) << 32 | u64::from(target.generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_hardly_more_streams_than_a_message_may_have() {
        let streams = BrokerStreams::default();
        let mut stream = 0;
        for (filters, filter) in ["t", "+", "#", "t/#", "+/#"].into_iter().enumerate() {
            let indexed: Vec<IndexedStream> = (0..251)
                .map(|group: u64| {
                    stream += 1;
                    IndexedStream {
                        group: if group == 0 { "".into() } else { group.to_string().into() },
                        stream,
                    }
                })
                .collect();
            streams.set(filter, &indexed, &[1; 251]);
            assert_eq!(streams.matches("t").is_over_limit, filters == 4, "{filters}");
        }
    }

    #[test]
    fn a_topic_finds_the_streams_of_its_filters_as_they_come_and_go() {
        let streams = BrokerStreams::default();
        let indexed = |group: &'static str, stream| IndexedStream { group: group.into(), stream };
        let found = |topic| {
            let mut found: Vec<u64> =
                streams.matches(topic).streams.iter().map(|stream| stream.stream).collect();
            found.sort_unstable();
            found
        };
        let (first, second) = ((1 << 48) - 1, 7);
        streams.set("a/+", &[indexed("", first)], &[1, 1]);
        streams.set("a/b", &[indexed("", second), indexed("g", 9)], &[1, 1]);
        assert_eq!((found("a/b"), found("a/c"), found("b")), (vec![7, 9, first], vec![first], vec![]));
        let generation = streams.generation();
        streams.set("a/+", &[indexed("", first)], &[1, 1]);
        assert_eq!(streams.generation(), generation, "nothing changed");
        streams.set("a/+", &[indexed("", 3)], &[1, 1]);
        streams.set("a/b", &[indexed("g", 9)], &[1, 1]);
        assert_eq!((found("a/b"), found("a/c")), (vec![3, 9], vec![3]));
        let group = streams.group_of("g", "a/b").unwrap();
        assert_eq!((group.stream, StoredGroup::stream_of(group.number())), (9, Some(9)));
        assert_eq!(*streams.matches("a/b").groups, [group]);
        assert_eq!(
            (streams.group_of("h", "a/b"), StoredGroup::stream_of(7), StoredGroup::stream_of(0)),
            (None, None, None)
        );
        streams.set("a/b", &[], &[1, 1]);
        assert_eq!(streams.group(9), None);
        streams.set("a/+", &[], &[1, 1]);
        assert!(found("a/b").is_empty() && streams.generation() > generation);
    }

    #[test]
    fn the_latest_groups_that_ended_are_found() {
        let streams = BrokerStreams::default();
        let (most, more) = (ENDED_MAX as u64, ENDED_MAX as u64 + 50);
        for stream in 1..=more {
            streams.set("t", &[IndexedStream { group: "g".into(), stream }], &[1]);
            streams.set("t", &[], &[]);
        }
        let found = (1..=more).filter(|stream| streams.group_or_ended(*stream).is_some());
        assert!(found.eq(more - most + 1..=more));
        assert_eq!(streams.ended.lock().unwrap().of_stream.len(), ENDED_MAX);
    }

    #[test]
    fn the_streams_of_webhooks_are_told_apart_from_those_of_clients() {
        let streams = BrokerStreams::default();
        let indexed = |group: &'static str, stream| IndexedStream { group: group.into(), stream };
        assert!(!streams.has_webhooks());
        streams.set("a/+", &[indexed("", 1), indexed("g", 2), indexed("#in%2Fout", 3)], &[1, 1, 1]);
        let stored = streams.matches("a/b");
        assert_eq!((stored.streams.len(), stored.groups.len()), (3, 1));
        let hook = StreamRef { stream: 3, partition: 0 };
        assert_eq!(*stored.webhooks, [(hook, "in/out".into())]);
        assert_eq!(stored.skip_condition(&[]), None, "a webhook is never online");
        streams.set("a/+", &[indexed("", 1)], &[1]);
        assert!(!streams.has_webhooks() && streams.matches("a/b").webhooks.is_empty());
    }

    #[test]
    fn what_other_pods_changed_replaces_what_was_known() {
        let streams = BrokerStreams::default();
        let row = |filter: &'static str, ids: &[u64]| {
            let streams =
                ids.iter().map(|stream| IndexedStream { group: "".into(), stream: *stream }).collect();
            IndexRow { filter: filter.into(), streams }
        };
        let found = |topic| -> Vec<u64> {
            streams.matches(topic).streams.iter().map(|stream| stream.stream).collect()
        };
        streams.change(&[row("a/+", &[1]), row("a/b", &[2]), row("c", &[3])]);
        assert_eq!((found("a/c"), found("c"), streams.subscribers(1)), (vec![1], vec![3], 1));
        streams.set("c", &[IndexedStream { group: "".into(), stream: 3 }], &[7]);
        streams.change(&[row("a/+", &[]), row("c", &[3, 4])]);
        assert_eq!((found("a/c"), found("a/b"), streams.subscribers(3)), (vec![], vec![2], 7));
        streams.retain(&HashSet::from(["c".into()]));
        assert_eq!((found("a/b"), found("c")), (vec![], vec![3, 4]));
    }

    #[test]
    fn a_message_is_wanted_by_nobody_else_only_when_all_subscribers_got_it() {
        let streams = BrokerStreams::default();
        let stream = [IndexedStream { group: "".into(), stream: 5 }];
        let receiver = |slot, stored| {
            let target = Target { core: 0, slot, generation: 1 };
            let subscription = Subscription { target, persistent: stored, ..subscription(5) };
            Receiver::from(&subscription)
        };
        streams.set("a", &stream, &[2]);
        let stored = streams.matches("a");
        assert_eq!(stored.skip_condition(&[receiver(1, true), receiver(2, false)]), None, "one is offline");
        let wanted =
            stored.skip_condition(&[receiver(1, true), receiver(2, true), receiver(3, false)]).unwrap();
        assert_eq!((wanted.acknowledged, wanted.changes), (2, stored.changes()));
        // One comes and another goes.
        streams.set("a", &stream, &[2]);
        assert_ne!(wanted.changes, stored.changes());
        streams.set("a", &stream, &[EXACT_MAX + 1]);
        let all: Vec<Receiver> = (0..=EXACT_MAX as u32).map(|slot| receiver(slot, true)).collect();
        assert_eq!(stored.skip_condition(&all), None, "their number may not be exact");
        let shared = [IndexedStream { group: "g".into(), stream: 6 }];
        streams.set("b", &shared, &[1]);
        assert_eq!(
            streams.matches("b").skip_condition(&[receiver(1, true)]),
            None,
            "a group is not a session"
        );
    }
}
