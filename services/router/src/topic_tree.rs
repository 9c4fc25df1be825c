//! An index of values by topic name that can be searched by topic filter, for retained messages.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::pmap::Entry;
use crate::seed::Seed;
use crate::trie::{Content, Node, split_level};

#[derive(Debug)]
pub struct TopicTree<V: Clone> {
    writer: Mutex<()>,
    published: ArcSwap<TreeSnapshot<V>>,
}

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
    pub fn new() -> Self {
        Self::with(Seed::random())
    }

    /// Visits in the same order in every process, for simulations.
    pub fn with_seed(seed: u64) -> Self {
        Self::with(Seed::fixed(seed))
    }

    fn with(seed: Seed) -> Self {
        let empty = TreeSnapshot { root: Arc::new(Node::new("")), len: 0, seed };
        Self { writer: Mutex::new(()), published: ArcSwap::from_pointee(empty) }
    }

    pub fn insert(&self, topic: &str, value: V) -> Option<V> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = TreeSnapshot::clone(&self.published.load());
        let old = Arc::make_mut(&mut next.root).make(topic, &next.seed).replace(value);
        next.len += usize::from(old.is_none());
        let last = self.published.swap(Arc::new(next));
        drop(writer);
        // Dropped after the lock is released, because dropping the last reference to a snapshot can take long.
        drop(last);
        old
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
        old
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

    pub fn get(&self, topic: &str) -> Option<&V> {
        self.root.find(topic, &self.seed)?.as_ref()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<V> {
    Value(V),
    Nothing,
    Done,
}

#[derive(Clone, Copy, Debug)]
enum Rest {
    From(usize),
    End,
    All,
}

#[derive(Debug)]
struct Open<V> {
    parent: Arc<Node<Option<V>>>,
    after: Option<u64>,
    rest: Rest,
    hide_dollar: bool,
}

/// A walk over the values of matching topics, in arbitrary order. It owns its snapshot and can pause after every node, so that
/// the caller can spread it over many turns.
#[derive(Debug)]
pub struct Walk<V: Clone> {
    snapshot: Arc<TreeSnapshot<V>>,
    filter: Box<str>,
    has_begun: bool,
    open: Vec<Open<V>>,
}

impl<V: Clone> Walk<V> {
    /// `filter` must be without share name.
    pub fn new(snapshot: Arc<TreeSnapshot<V>>, filter: &str) -> Self {
        Self { snapshot, filter: filter.into(), has_begun: false, open: Vec::new() }
    }

    pub fn step(&mut self) -> Step<V> {
        if !self.has_begun {
            self.has_begun = true;
            //= [MQTT-4.7.2-1] v5 v3.1.1
            return self.descend(self.snapshot.root.clone(), Rest::From(0), true);
        }
        let seed = self.snapshot.seed.clone();
        let address = |child: &Arc<Node<Option<V>>>| Arc::<Node<Option<V>>>::address(child.level(), &seed);
        let Some(open) = self.open.last_mut() else { return Step::Done };
        let children = open.parent.children();
        let child = match open.after {
            None => children.first(address),
            Some(after) => children.next_after(after, address),
        };
        let Some(child) = child.cloned() else {
            self.open.pop();
            return Step::Nothing;
        };
        open.after = Some(address(&child));
        if open.hide_dollar && child.level().starts_with('$') {
            return Step::Nothing;
        }
        let rest = open.rest;
        self.descend(child, rest, false)
    }

    /// Follows the levels without wildcards from `node`, and queues the children that a wildcard leads to.
    fn descend(&mut self, mut node: Arc<Node<Option<V>>>, mut rest: Rest, is_root: bool) -> Step<V> {
        let mut hide_dollar = is_root;
        loop {
            let below = match rest {
                Rest::All => Rest::All,
                Rest::End => return value(&node),
                Rest::From(start) => {
                    let (level, tail) = split_level(&self.filter[start..]);
                    let below = tail.map_or(Rest::End, |tail| Rest::From(self.filter.len() - tail.len()));
                    match level {
                        "#" => Rest::All,
                        "+" => below,
                        _ => {
                            let Some(child) = node.children().get(level, &self.snapshot.seed).cloned() else {
                                return Step::Nothing;
                            };
                            (node, rest, hide_dollar) = (child, below, false);
                            continue;
                        }
                    }
                }
            };
            // `a/#` matches `a`, too.
            let found = if let Rest::All = below { value(&node) } else { Step::Nothing };
            if !node.children().is_empty() {
                self.open.push(Open { parent: node, after: None, rest: below, hide_dollar });
            }
            return found;
        }
    }
}

fn value<V: Clone>(node: &Node<Option<V>>) -> Step<V> {
    node.content().clone().map_or(Step::Nothing, Step::Value)
}

impl<V: Clone> Iterator for Walk<V> {
    type Item = V;

    fn next(&mut self) -> Option<V> {
        loop {
            match self.step() {
                Step::Value(value) => return Some(value),
                Step::Nothing => {}
                Step::Done => return None,
            }
        }
    }
}
