//! The subscriptions of one broker: writers change a tree under a lock, readers use its last
//! published snapshot.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use millrace_mqtt::topic::Filter;
use smallvec::SmallVec;

use crate::group::ShareGroup;
use crate::matched::Matched;
use crate::pmap::Map;
use crate::recent::{Changed, RecentChanges};
use crate::seed::Seed;
use crate::set::SubscriberSet;
use crate::subscription::{Subscription, Target};
use crate::trie::{Node, NodeContent};

#[derive(Debug)]
pub struct Router {
    /// Publishing clones the writers' tree, which is cheap.
    tree: Mutex<Tree>,
    published: ArcSwap<Snapshot>,
    generation: AtomicU64,
    recent: Mutex<RecentChanges>,
    /// Bytes of all routers of the process.
    total: OnceLock<Arc<AtomicU64>>,
}

/// Estimated bytes of a subscription in its session and here, without its filter and nodes of the
/// trie.
const SUBSCRIPTION_BYTES: usize = 168;

#[derive(Clone, Debug)]
struct Tree {
    root: Arc<Node<SubscriberSet>>,
    subscriptions: usize,
    bytes: usize,
    seed: Seed,
}

#[derive(Debug)]
pub struct Snapshot {
    tree: Tree,
    generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchLimits {
    /// Filters that may match one topic, where each share name of a filter counts as a filter.
    pub filters_max: usize,
    /// Nodes of the trie that a match may visit.
    pub nodes_max: usize,
    /// [`Matched::overlap`]; as many as the filter with the most subscriptions has are always allowed.
    pub overlap_max: usize,
}

impl MatchLimits {
    pub const NONE: Self = Self { filters_max: usize::MAX, nodes_max: usize::MAX, overlap_max: usize::MAX };
}

#[derive(Debug)]
pub struct Edit<'a> {
    tree: &'a mut Tree,
    changed: Changed,
}

impl Default for Router {
    fn default() -> Self {
        Self::new()
    }
}

impl Router {
    pub fn new() -> Self {
        Self::with(Seed::random())
    }

    pub fn with_seed(seed: u64) -> Self {
        Self::with(Seed::fixed(seed))
    }

    fn with(seed: Seed) -> Self {
        let tree = Tree { root: Arc::new(Node::new("")), subscriptions: 0, bytes: 0, seed };
        let snapshot = Snapshot { tree: tree.clone(), generation: 0 };
        Self {
            tree: Mutex::new(tree),
            published: ArcSwap::from_pointee(snapshot),
            generation: AtomicU64::new(0),
            recent: Mutex::default(),
            total: OnceLock::new(),
        }
    }

    /// Adds the bytes of this router to `total` from now on; only the first call has an effect.
    pub fn count_in(&self, total: &Arc<AtomicU64>) {
        let tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        if self.total.set(total.clone()).is_ok() {
            total.fetch_add(tree.bytes as u64, Ordering::Relaxed);
        }
    }

    /// False when the subscription replaced another of the same target, filter and share name. A
    /// member of a shared subscription starts online.
    pub fn subscribe(&self, filter: Filter<'_>, subscription: Subscription) -> bool {
        self.edit(|edit| edit.subscribe(filter, subscription))
    }

    pub fn unsubscribe(&self, filter: Filter<'_>, target: Target) -> bool {
        self.edit(|edit| edit.unsubscribe(filter, target))
    }

    /// Has no effect on a subscription that is not shared.
    pub fn set_online(&self, filter: Filter<'_>, target: Target, online: bool) {
        self.edit(|edit| edit.set_online(filter, target, online));
    }

    /// Makes several changes at once, which is cheaper than single changes. A snapshot shows all of
    /// them or none, and without a change none is published. Other writers wait, and `f` must not
    /// call this router.
    pub fn edit<R>(&self, f: impl FnOnce(&mut Edit<'_>) -> R) -> R {
        self.edit_published_by(f, |publish| publish()).0
    }

    /// Like [`Router::edit`], but lets the caller publish under a lock of its own, which is not
    /// held while `f` runs: `publisher` gets a function that publishes; `publisher` must not call
    /// this router.
    pub fn edit_published_by<R, P>(
        &self,
        f: impl FnOnce(&mut Edit<'_>) -> R,
        publisher: impl FnOnce(&mut dyn FnMut()) -> P,
    ) -> (R, P) {
        // A poisoned lock is safe to take: a batch that panics between two changes leaves a
        // complete tree.
        let mut tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        let before = tree.bytes;
        let mut edit = Edit { tree: &mut tree, changed: Changed::default() };
        let result = f(&mut edit);
        let Edit { changed, .. } = edit;
        let mut changed = Some(changed).filter(|changed| !changed.is_empty());
        let mut old = None;
        let mut publish = || {
            if let Some(changed) = changed.take() {
                old = Some(self.publish(&tree, changed));
            }
        };
        let published = publisher(&mut publish);
        publish();
        if let Some(total) = self.total.get() {
            total.fetch_add((tree.bytes as u64).wrapping_sub(before as u64), Ordering::Relaxed);
        }
        drop(tree);
        // Dropping the last reference to a snapshot can take long, so no lock is held here.
        drop(old);
        (result, published)
    }

    /// The writer notes the changes, swaps the snapshot, then stores the generation. A reader loads
    /// the generation (acquire) before the snapshot. So a reader of generation n gets snapshot n or
    /// a later one, and a cache never claims a newer generation than its snapshot.
    ///
    /// Both stores are sequentially consistent and happen before the call returns. A thread that
    /// learns of the change afterwards, by a SUBACK, a channel or a lock, therefore sees them.
    fn publish(&self, tree: &Tree, changed: Changed) -> Arc<Snapshot> {
        let generation = self.generation.load(Ordering::Relaxed) + 1;
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).record(generation, changed);
        let old = self.published.swap(Arc::new(Snapshot { tree: tree.clone(), generation }));
        self.generation.store(generation, Ordering::SeqCst);
        old
    }

    /// The generation of the newest snapshot; see also [`Router::still_valid`].
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// True if no filter that changed after generation `matched` up to `now` matches `topic`, so
    /// that a cached match holds. False when some of these changes are forgotten. `now` must be
    /// published.
    pub fn still_valid(&self, topic: &str, matched: u64, now: u64) -> bool {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.none_matches(topic, matched, now)
    }

    #[inline]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.published.load_full()
    }

    pub fn subscriptions(&self) -> usize {
        self.published.load().subscriptions()
    }

    pub fn bytes(&self) -> usize {
        self.published.load().tree.bytes
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if let Some(total) = self.total.get() {
            total.fetch_sub(self.bytes() as u64, Ordering::Relaxed);
        }
    }
}

impl Snapshot {
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub fn subscriptions(&self) -> usize {
        self.tree.subscriptions
    }

    pub fn group(&self, name: &str, filter: &str) -> Option<&ShareGroup> {
        self.tree.root.find(filter, &self.tree.seed)?.group(name, &self.tree.seed)
    }

    pub(crate) fn walk<S: Copy>(
        &self,
        start: S,
        step: impl Fn(S, &str) -> S,
        visit: impl FnMut(S, &SubscriberSet, bool),
    ) {
        self.tree.root.walk(start, step, visit);
    }

    /// Finds all receivers of `topic`, which must be valid; `None` when the topic exceeds `limits`.
    pub fn matches(&self, topic: &str, limits: MatchLimits) -> Option<Matched> {
        self.matches_counted(topic, limits, &mut 0)
    }

    /// Like [`Snapshot::matches`], and adds the number of visited nodes to `visited`, even when the
    /// match exceeds `limits`.
    pub fn matches_counted(&self, topic: &str, limits: MatchLimits, visited: &mut usize) -> Option<Matched> {
        let mut found: SmallVec<[&Map<Subscription>; 12]> = SmallVec::new();
        let mut groups = Vec::new();
        let Tree { root, seed, .. } = &self.tree;
        let is_complete = root.matching(topic, seed, limits.nodes_max, visited, |set: &SubscriberSet| {
            if !set.subscribers.is_empty() {
                found.push(&set.subscribers);
            }
            if set.groups_len() > 0 {
                if groups.len() + set.groups_len() > limits.filters_max {
                    return ControlFlow::Break(());
                }
                groups.extend(set.groups().cloned());
            }
            match found.len() + groups.len() <= limits.filters_max {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        let largest = found.iter().map(|map| map.len()).max().unwrap_or(0);
        let overlap = found.iter().map(|map| map.len()).sum::<usize>() - largest;
        let may_merge = overlap <= limits.overlap_max.max(largest);
        (is_complete && may_merge).then(|| Matched::new(&found, groups, overlap))
    }
}

impl Edit<'_> {
    pub fn bytes(&self) -> usize {
        self.tree.bytes
    }

    /// Number of share names that `filter` (without `$share` and share name) has.
    pub fn groups(&self, filter: &str) -> usize {
        self.tree.root.find(filter, &self.tree.seed).map_or(0, SubscriberSet::groups_len)
    }

    pub fn has_group(&self, name: &str, filter: &str) -> bool {
        let set = self.tree.root.find(filter, &self.tree.seed);
        set.is_some_and(|set| set.group(name, &self.tree.seed).is_some())
    }

    //= [MQTT-3.8.4-3] v5 v3.1.1
    // The new subscription replaces the old one in one step, so that no match falls between them.
    pub fn subscribe(&mut self, filter: Filter<'_>, subscription: Subscription) -> bool {
        let Tree { root, seed, .. } = &mut *self.tree;
        let target = subscription.target;
        let set = root.find(filter.filter, seed);
        let old = match filter.share {
            None => set.and_then(|set| set.subscribers.get(&target, seed)).map(|old| (old, true)),
            Some(name) => set.and_then(|set| set.group(name, seed)?.get(target, seed)),
        };
        // A client that repeats its subscription at each reconnect must not invalidate the caches
        // of all cores.
        if old == Some((&subscription, true)) {
            return false;
        }
        let is_new = old.is_none();
        let mut bytes = if is_new { subscription_bytes(filter) } else { 0 };
        let set = Arc::make_mut(root).make_counted(filter.filter, seed, &mut bytes);
        match filter.share {
            None => *set.subscribers.get_or_insert(&target, seed, || subscription).0 = subscription,
            Some(name) => set.group_mut(name, filter.filter, seed).join(subscription, true, seed),
        }
        self.tree.subscriptions += usize::from(is_new);
        self.tree.bytes += bytes;
        self.changed.record(filter.filter);
        is_new
    }

    //= [MQTT-3.10.4-1] v5 v3.1.1
    pub fn unsubscribe(&mut self, filter: Filter<'_>, target: Target) -> bool {
        let Tree { root, seed, .. } = &mut *self.tree;
        let set = root.find(filter.filter, seed);
        let exists = match filter.share {
            None => set.is_some_and(|set| set.subscribers.get(&target, seed).is_some()),
            Some(name) => set.and_then(|set| set.group(name, seed)?.get(target, seed)).is_some(),
        };
        if !exists {
            return false;
        }
        let root = Arc::make_mut(root);
        let set = root.make(filter.filter, seed);
        match filter.share {
            None => drop(set.subscribers.remove(&target, seed)),
            Some(name) => set.leave_group(name, target, seed),
        }
        let nodes = if set.is_empty() { root.prune(filter.filter, seed) } else { 0 };
        self.tree.subscriptions -= 1;
        self.tree.bytes -= subscription_bytes(filter) + nodes;
        self.changed.record(filter.filter);
        true
    }

    pub fn set_online(&mut self, filter: Filter<'_>, target: Target, online: bool) {
        let Tree { root, seed, .. } = &mut *self.tree;
        let Some(name) = filter.share else { return };
        let group = root.find(filter.filter, seed).and_then(|set| set.group(name, seed));
        let Some((&member, was_online)) = group.and_then(|group| group.get(target, seed)) else { return };
        if was_online != online {
            let set = Arc::make_mut(root).make(filter.filter, seed);
            set.group_mut(name, filter.filter, seed).join(member, online, seed);
            self.changed.record(filter.filter);
        }
    }
}

fn subscription_bytes(filter: Filter<'_>) -> usize {
    SUBSCRIPTION_BYTES + filter.filter.len() + filter.share.map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_mqtt::QoS;

    fn with(target: Target) -> Subscription {
        let qos = QoS::AtMostOnce;
        Subscription {
            target,
            qos,
            no_local: false,
            retain_as_published: false,
            persistent: false,
            identifier: 0,
        }
    }

    #[test]
    fn removed_filters_leave_no_node() {
        let router = Router::new();
        let filters = ["a", "a/b", "a/+/c", "a/+/#", "#", "+", "+/+", "a/b/c/d/e", "a/#", "/", "b/+", "b/#"];
        let all: Vec<_> = filters
            .iter()
            .flat_map(|filter| [None, Some("g"), Some("h")].map(|share| Filter { share, filter }))
            .flat_map(|filter| (0..100).map(move |slot| (filter, Target { core: 0, slot, generation: 0 })))
            .collect();
        for (filter, target) in &all {
            assert!(router.subscribe(*filter, with(*target)));
        }
        let kept = router.snapshot();
        // Another order than they came in.
        for step in 0..all.len() {
            let (filter, target) = all[step * 1009 % all.len()];
            assert!(router.unsubscribe(filter, target));
            router.snapshot().tree.root.assert_tidy();
        }
        let tree = router.tree.lock().unwrap();
        assert!(tree.root.is_empty());
        assert!(tree.root.children().is_empty());
        assert_eq!((tree.subscriptions, kept.subscriptions()), (0, all.len()));
        assert_eq!(tree.bytes, 0);
    }

    #[test]
    fn bytes_count_each_subscription_and_the_nodes_that_it_adds() {
        let total = Arc::new(AtomicU64::new(0));
        let all = || total.load(Ordering::Relaxed);
        let (router, other) = (Router::new(), Router::new());
        let (one, two) = [1, 2].map(|slot| Target { core: 0, slot, generation: 0 }).into();
        fn plain(filter: &str) -> Filter<'_> {
            Filter { share: None, filter }
        }
        let deep = ["x"; 128].join("/");
        router.subscribe(plain("a/b/c"), with(one));
        let first = router.bytes();
        [&router, &other].iter().for_each(|router| router.count_in(&total));
        assert_eq!(all(), first as u64, "what was there before");
        router.subscribe(plain("a/b/c"), with(two));
        assert!(router.bytes() < 2 * first, "the nodes count once");
        router.subscribe(plain("a/b/c"), with(two));
        let both = router.bytes();
        router.subscribe(plain(&deep), with(two));
        assert!(router.bytes() > both + 128 * 100, "each level takes a node");
        let long = format!("a/{}", "y".repeat(4_000));
        let before = router.bytes();
        router.subscribe(plain(&long), with(one));
        assert!(router.bytes() > before + 8_000, "in the node and in the session");
        other.subscribe(plain("#"), with(one));
        assert_eq!(all(), (router.bytes() + other.bytes()) as u64);
        drop(other);
        assert_eq!(all(), router.bytes() as u64);
        router.unsubscribe(plain("a/b/c"), one);
        router.unsubscribe(plain("a/b/c"), two);
        router.unsubscribe(plain(&long), one);
        router.unsubscribe(plain(&deep), two);
        assert_eq!((router.bytes(), all()), (0, 0));
    }

    #[test]
    fn an_edit_shows_when_its_caller_publishes_it_and_is_one_generation() {
        let router = Router::new();
        let seen = || router.snapshot().matches("a", MatchLimits::NONE).unwrap().receivers.len();
        let (made, published) = router.edit_published_by(
            |edit| {
                let made = (0..3).filter(|slot| {
                    let target = Target { core: 0, slot: *slot, generation: 0 };
                    edit.subscribe(Filter { share: None, filter: "a" }, with(target))
                });
                (made.count(), seen())
            },
            |publish| {
                let before = seen();
                publish();
                let published = (before, seen());
                publish();
                published
            },
        );
        assert_eq!((made, published), ((3, 0), (0, 3)));
        assert_eq!((router.generation(), router.snapshot().generation()), (1, 1));
        router.edit_published_by(|_| (), |publish| publish());
        assert_eq!(router.generation(), 1, "nothing has changed");
    }

    #[test]
    fn a_removed_filter_leaves_no_node_beside_another_filter() {
        let target = Target { core: 0, slot: 1, generation: 0 };
        let filters = ["a", "a/b", "a/+", "a/#", "#", "+", "a/+/#", "a/b/c", "+/b"];
        for (kept, removed) in filters.iter().flat_map(|kept| filters.map(|removed| (kept, removed))) {
            let router = Router::new();
            router.subscribe(Filter { share: None, filter: kept }, with(target));
            router.subscribe(Filter { share: Some("g"), filter: removed }, with(target));
            assert!(router.unsubscribe(Filter { share: Some("g"), filter: removed }, target));
            router.snapshot().tree.root.assert_tidy();
        }
    }
}
