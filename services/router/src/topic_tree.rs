//! An index by topic name that is searched by topic filter: the retained messages of a broker.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::pmap::MapEntry;
use crate::seed::Seed;
use crate::trie::{Node, NodeContent, split_level};

#[derive(Debug)]
pub struct TopicTree<V: Clone> {
    writer: Mutex<()>,
    published: ArcSwap<TreeSnapshot<V>>,
}

#[derive(Clone, Debug)]
pub struct TreeSnapshot<V: Clone> {
    root: Arc<TreeNode<V>>,
    len: usize,
    /// Counts the insertions into the tree, so that a walk can leave out later values.
    insertions: u64,
    seed: Seed,
}

type TreeNode<V> = Node<Option<(V, u64)>>;

impl<V: Clone> NodeContent for Option<V> {
    fn is_empty(&self) -> bool {
        self.is_none()
    }
}

impl<V: Clone> Default for TopicTree<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: Clone> TopicTree<V> {
    pub fn new() -> Self {
        Self::with(Seed::random())
    }

    /// Walks visit values in the same order in every process, for simulations.
    pub fn with_seed(seed: u64) -> Self {
        Self::with(Seed::fixed(seed))
    }

    fn with(seed: Seed) -> Self {
        let empty = TreeSnapshot { root: Arc::new(Node::new("")), len: 0, insertions: 0, seed };
        Self { writer: Mutex::new(()), published: ArcSwap::from_pointee(empty) }
    }

    pub fn insert(&self, topic: &str, value: V) -> Option<V> {
        self.put(topic, value, true)
    }

    /// Inserts a value whose removal or replacement is undone. Walks that have begun do not leave it out, so they may visit a value
    /// that was inserted after they began.
    pub fn restore(&self, topic: &str, value: V) -> Option<V> {
        self.put(topic, value, false)
    }

    fn put(&self, topic: &str, value: V, is_new: bool) -> Option<V> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = TreeSnapshot::clone(&self.published.load());
        next.insertions += u64::from(is_new);
        let inserted = if is_new { next.insertions } else { 0 };
        let old = Arc::make_mut(&mut next.root).make(topic, &next.seed).replace((value, inserted));
        next.len += usize::from(old.is_none());
        let last = self.published.swap(Arc::new(next));
        drop(writer);
        // Dropping the last reference to a snapshot can take long, so the lock is released before.
        drop(last);
        old.map(|(value, _)| value)
    }

    pub fn remove(&self, topic: &str) -> Option<V> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = TreeSnapshot::clone(&self.published.load());
        next.get(topic)?;
        let root = Arc::make_mut(&mut next.root);
        let old = root.make(topic, &next.seed).take();
        root.prune(topic, &next.seed);
        next.len -= 1;
        let last = self.published.swap(Arc::new(next));
        drop(writer);
        drop(last);
        old.map(|(value, _)| value)
    }

    pub fn get(&self, topic: &str) -> Option<V> {
        self.published.load().get(topic).cloned()
    }

    pub fn len(&self) -> usize {
        self.published.load().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn snapshot(&self) -> Arc<TreeSnapshot<V>> {
        self.published.load_full()
    }
}

impl<V: Clone> TreeSnapshot<V> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many values were inserted before it, for [`Walk::limit`].
    pub fn insertions(&self) -> u64 {
        self.insertions
    }

    pub fn get(&self, topic: &str) -> Option<&V> {
        self.root.find(topic, &self.seed)?.as_ref().map(|(value, _)| value)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeStep<V> {
    Value(V),
    Nothing,
    Done,
}

/// The part of the filter that a node's children must match: from this byte on, nothing more, or
/// anything (`#`).
#[derive(Clone, Copy, Debug)]
enum RemainingLevels {
    From(usize),
    End,
    All,
}

/// A node whose children are being visited in the order of addresses; `after` is the last visited
/// child's. With `hide_dollar` children that begin with `$` are left out.
#[derive(Debug)]
struct OpenNode<V: Clone> {
    parent: Arc<TreeNode<V>>,
    after: Option<u64>,
    rest: RemainingLevels,
    hide_dollar: bool,
}

/// An [`OpenNode`] of a suspended walk; `level` is the level of the child at `after`.
#[derive(Debug)]
struct SuspendedNode {
    level: Option<Box<str>>,
    after: Option<u64>,
    rest: RemainingLevels,
    hide_dollar: bool,
}

enum Descent<V: Clone> {
    NoTopic,
    End(Arc<TreeNode<V>>),
    /// To a node whose children match a wildcard; `rest` is the filter after that wildcard.
    Wildcard {
        parent: Arc<TreeNode<V>>,
        rest: RemainingLevels,
        hide_dollar: bool,
    },
}

/// A walk over the values of matching topics, in arbitrary order. The caller may pause after every
/// node, and so spread the walk over many turns. The walk holds a snapshot, which keeps all values
/// of that moment in memory until [`Walk::suspend`].
#[derive(Debug)]
pub struct Walk<V: Clone> {
    snapshot: Option<Arc<TreeSnapshot<V>>>,
    filter: Box<str>,
    has_begun: bool,
    open: Vec<OpenNode<V>>,
    suspended: Vec<SuspendedNode>,
    /// The insertions before the walk began; the walk leaves out values of later insertions.
    insertions_max: u64,
}

impl<V: Clone> Walk<V> {
    pub fn new(snapshot: Arc<TreeSnapshot<V>>, filter: &str) -> Self {
        let insertions_max = snapshot.insertions;
        let (open, suspended) = (Vec::new(), Vec::new());
        Self {
            snapshot: Some(snapshot),
            filter: filter.into(),
            has_begun: false,
            open,
            suspended,
            insertions_max,
        }
    }

    /// Leaves out topics that changed after an earlier snapshot, which had this many insertions.
    pub fn limit(&mut self, insertions_max: u64) {
        self.insertions_max = self.insertions_max.min(insertions_max);
    }

    /// Releases the snapshot, so that replaced values leave memory; continue with [`Walk::resume`].
    pub fn suspend(&mut self) {
        let Some(snapshot) = self.snapshot.take() else { return };
        let address = |child: &Arc<TreeNode<V>>| Arc::<TreeNode<V>>::address(child.level(), &snapshot.seed);
        self.suspended = std::mem::take(&mut self.open)
            .into_iter()
            .map(|OpenNode { parent, after, rest, hide_dollar }| {
                let children = parent.children();
                let at = after.and_then(|after| match after.checked_sub(1) {
                    Some(before) => children.next_after(before, address),
                    None => children.first(address),
                });
                SuspendedNode { level: at.map(|child| child.level().into()), after, rest, hide_dollar }
            })
            .collect();
    }

    pub fn is_suspended(&self) -> bool {
        self.snapshot.is_none()
    }

    /// Continues after the last visited node, in a later snapshot of the same tree; leaves out
    /// topics that were removed or changed since the walk began.
    pub fn resume(&mut self, snapshot: Arc<TreeSnapshot<V>>) {
        if self.snapshot.is_some() {
            return;
        }
        let mut next = Some((snapshot.root.clone(), RemainingLevels::From(0), true));
        for SuspendedNode { level, after, rest, hide_dollar } in std::mem::take(&mut self.suspended) {
            let Some((node, before, is_root)) = next.take() else { break };
            let Descent::Wildcard { parent, .. } =
                descend_levels(&snapshot, &self.filter, node, before, is_root)
            else {
                break;
            };
            let child = level.and_then(|level| parent.children().get(&level, &snapshot.seed).cloned());
            next = child.map(|child| (child, rest, false));
            self.open.push(OpenNode { parent, after, rest, hide_dollar });
        }
        self.snapshot = Some(snapshot);
    }

    /// Visits one node; [`TreeStep::Done`] at the end, and also without a snapshot.
    pub fn step(&mut self) -> TreeStep<V> {
        let Some(snapshot) = self.snapshot.take() else { return TreeStep::Done };
        let step = self.step_in(&snapshot);
        self.snapshot = Some(snapshot);
        step
    }

    fn step_in(&mut self, snapshot: &TreeSnapshot<V>) -> TreeStep<V> {
        if !self.has_begun {
            self.has_begun = true;
            //= [MQTT-4.7.2-1] v5 v3.1.1
            return self.descend(snapshot, snapshot.root.clone(), RemainingLevels::From(0), true);
        }
        let address = |child: &Arc<TreeNode<V>>| Arc::<TreeNode<V>>::address(child.level(), &snapshot.seed);
        let Some(open) = self.open.last_mut() else { return TreeStep::Done };
        let children = open.parent.children();
        let child = match open.after {
            None => children.first(address),
            Some(after) => children.next_after(after, address),
        };
        let Some(child) = child.cloned() else {
            self.open.pop();
            return TreeStep::Nothing;
        };
        open.after = Some(address(&child));
        if open.hide_dollar && child.level().starts_with('$') {
            return TreeStep::Nothing;
        }
        let rest = open.rest;
        self.descend(snapshot, child, rest, false)
    }

    /// Opens the node at the next wildcard below `node`, so that later steps visit its children.
    fn descend(
        &mut self,
        snapshot: &TreeSnapshot<V>,
        node: Arc<TreeNode<V>>,
        rest: RemainingLevels,
        is_root: bool,
    ) -> TreeStep<V> {
        match descend_levels(snapshot, &self.filter, node, rest, is_root) {
            Descent::NoTopic => TreeStep::Nothing,
            Descent::End(node) => self.value(&node),
            Descent::Wildcard { parent, rest, hide_dollar } => {
                // `a/#` matches `a`, too.
                let found =
                    if let RemainingLevels::All = rest { self.value(&parent) } else { TreeStep::Nothing };
                if !parent.children().is_empty() {
                    self.open.push(OpenNode { parent, after: None, rest, hide_dollar });
                }
                found
            }
        }
    }

    fn value(&self, node: &TreeNode<V>) -> TreeStep<V> {
        match node.content() {
            Some((value, inserted)) if *inserted <= self.insertions_max => TreeStep::Value(value.clone()),
            _ => TreeStep::Nothing,
        }
    }
}

/// Follows the levels of `rest` from `node` up to the next wildcard or the end of the filter.
fn descend_levels<V: Clone>(
    snapshot: &TreeSnapshot<V>,
    filter: &str,
    mut node: Arc<TreeNode<V>>,
    mut rest: RemainingLevels,
    is_root: bool,
) -> Descent<V> {
    let mut hide_dollar = is_root;
    loop {
        let below = match rest {
            RemainingLevels::All => RemainingLevels::All,
            RemainingLevels::End => return Descent::End(node),
            RemainingLevels::From(start) => {
                let (level, tail) = split_level(&filter[start..]);
                let below = tail
                    .map_or(RemainingLevels::End, |tail| RemainingLevels::From(filter.len() - tail.len()));
                match level {
                    "#" => RemainingLevels::All,
                    "+" => below,
                    _ => {
                        let Some(child) = node.children().get(level, &snapshot.seed).cloned() else {
                            return Descent::NoTopic;
                        };
                        (node, rest, hide_dollar) = (child, below, false);
                        continue;
                    }
                }
            }
        };
        return Descent::Wildcard { parent: node, rest: below, hide_dollar };
    }
}

impl<V: Clone> Iterator for Walk<V> {
    type Item = V;

    fn next(&mut self) -> Option<V> {
        loop {
            match self.step() {
                TreeStep::Value(value) => return Some(value),
                TreeStep::Nothing => {}
                TreeStep::Done => return None,
            }
        }
    }
}
