//! Values by topic name, found by topic filter: the index of retained messages.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::pmap::Iter;
use crate::seed::Seed;
use crate::trie::{Content, Node, split_level};

/// One value per topic name. Any thread may read and write it; readers never wait for writers.
#[derive(Debug)]
pub struct TopicTree<V: Clone> {
    writer: Mutex<()>,
    published: ArcSwap<TreeSnapshot<V>>,
}

/// All values at one moment. It never changes.
#[derive(Clone, Debug)]
pub struct TreeSnapshot<V: Clone> {
    root: Arc<Node<Option<V>>>,
    len: usize,
    seed: Seed,
}

impl<V: Clone> Content for Option<V> {
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
    /// No values.
    pub fn new() -> Self {
        Self::with(Seed::random())
    }

    /// As [`TopicTree::new`], but values are visited in the same order in every process: for simulations.
    pub fn with_seed(seed: u64) -> Self {
        Self::with(Seed::fixed(seed))
    }

    fn with(seed: Seed) -> Self {
        let empty = TreeSnapshot { root: Arc::new(Node::new("")), len: 0, seed };
        Self { writer: Mutex::new(()), published: ArcSwap::from_pointee(empty) }
    }

    /// Puts the value of a valid topic name, and returns the one it had.
    pub fn insert(&self, topic: &str, value: V) -> Option<V> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = TreeSnapshot::clone(&self.published.load());
        let old = Arc::make_mut(&mut next.root).make(topic, &next.seed).replace(value);
        next.len += usize::from(old.is_none());
        let last = self.published.swap(Arc::new(next));
        drop(writer);
        // After the lock: the last holder of a snapshot pays for dropping what only it had.
        drop(last);
        old
    }

    /// Removes the value of a topic name, and returns it.
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
        old
    }

    /// The value of a topic name.
    pub fn get(&self, topic: &str) -> Option<V> {
        self.published.load().get(topic).cloned()
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.published.load().len()
    }

    /// True when there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values as they are now.
    pub fn snapshot(&self) -> Arc<TreeSnapshot<V>> {
        self.published.load_full()
    }
}

/// What of the filter is left for the levels below a node.
#[derive(Clone, Copy)]
enum Rest<'a> {
    Levels(Option<&'a str>),
    /// `#` was reached: everything.
    All,
}

/// Children that are still to be visited, each with the same rest of the filter.
struct Open<'t, 'f, V: Clone> {
    children: Iter<'t, Arc<Node<Option<V>>>>,
    rest: Rest<'f>,
    /// True when topics that start with `$` are not looked at.
    hide_dollar: bool,
}

impl<V: Clone> TreeSnapshot<V> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a topic name.
    pub fn get(&self, topic: &str) -> Option<&V> {
        self.root.find(topic, &self.seed)?.as_ref()
    }

    /// Calls `visit` with the value of each topic that `filter` (without share name) matches, until it breaks. Only
    /// looks where the filter's levels lead. The order means nothing.
    pub fn for_each(&self, filter: &str, mut visit: impl FnMut(&V) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut open = Vec::new();
        //= [MQTT-4.7.2-1] v5 v3.1.1
        self.descend(&self.root, Rest::Levels(Some(filter)), true, &mut open, &mut visit)?;
        while let Some(Open { children, rest, hide_dollar }) = open.last_mut() {
            let (rest, hide_dollar) = (*rest, *hide_dollar);
            match children.next() {
                Some(child) if hide_dollar && child.level().starts_with('$') => {}
                Some(child) => self.descend(child, rest, false, &mut open, &mut visit)?,
                None => drop(open.pop()),
            }
        }
        ControlFlow::Continue(())
    }

    /// Follows the levels without wildcard from `node`, and opens what a wildcard leads to.
    fn descend<'t, 'f>(
        &'t self,
        mut node: &'t Node<Option<V>>,
        mut rest: Rest<'f>,
        is_root: bool,
        open: &mut Vec<Open<'t, 'f, V>>,
        visit: &mut impl FnMut(&V) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut hide_dollar = is_root;
        loop {
            let below = match rest {
                Rest::All => Rest::All,
                Rest::Levels(None) => {
                    return node.content().as_ref().map_or(ControlFlow::Continue(()), visit);
                }
                Rest::Levels(Some(text)) => match split_level(text) {
                    ("#", _) => Rest::All,
                    ("+", tail) => Rest::Levels(tail),
                    (level, tail) => {
                        let Some(child) = node.child(level, &self.seed) else {
                            return ControlFlow::Continue(());
                        };
                        (node, rest, hide_dollar) = (child, Rest::Levels(tail), false);
                        continue;
                    }
                },
            };
            if let (Rest::All, Some(value)) = (below, node.content()) {
                // Also the level that `#` follows.
                visit(value)?;
            }
            if !node.children().is_empty() {
                open.push(Open { children: node.children().iter(), rest: below, hide_dollar });
            }
            return ControlFlow::Continue(());
        }
    }
}
