//! A persistent trie over topic levels. A node holds the content of the filter that ends there:
//! subscribers, or the retained message of a topic.
//!
//! No function recurses over levels, because a filter of 65,535 levels would overflow the stack.

use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;

use compact_str::CompactString;
use smallvec::SmallVec;

use crate::pmap::{Map, MapEntry};
use crate::seed::Seed;

pub(crate) trait NodeContent: Clone + Default {
    fn is_empty(&self) -> bool;
}

/// Every node but the root has content, or a node below it has.
#[derive(Clone, Debug)]
pub(crate) struct Node<C> {
    level: CompactString,
    children: Map<Arc<Self>>,
    content: C,
    wild: Option<Arc<Wild<C>>>,
}

#[derive(Clone, Debug, Default)]
struct Wild<C> {
    plus: Option<Arc<Node<C>>>,
    /// Content of the filter that ends with `#` right below this node.
    many: C,
}

impl<C> MapEntry for Arc<Node<C>> {
    type Key = str;
    // Cloning an entry writes to the reference count in its node, so leaves are short.
    const LEAF_MAX: usize = 4;

    #[inline]
    fn key(&self) -> &str {
        &self.level
    }

    #[inline]
    fn address(key: &str, seed: &Seed) -> u64 {
        seed.hash(key)
    }
}

fn node_bytes(level: &str) -> usize {
    const NODE_BYTES: usize = 128;
    // `CompactString` holds a short level without an allocation.
    NODE_BYTES + if level.len() > size_of::<CompactString>() { level.len() } else { 0 }
}

#[inline]
pub(crate) fn split_level(text: &str) -> (&str, Option<&str>) {
    match text.as_bytes().iter().position(|byte| *byte == b'/') {
        Some(end) => (&text[..end], Some(&text[end + 1..])),
        None => (text, None),
    }
}

impl<C: NodeContent> Node<C> {
    pub(crate) fn new(level: &str) -> Self {
        Self { level: level.into(), children: Map::Empty, content: C::default(), wild: None }
    }

    pub(crate) fn level(&self) -> &str {
        &self.level
    }

    pub(crate) fn children(&self) -> &Map<Arc<Self>> {
        &self.children
    }

    pub(crate) fn content(&self) -> &C {
        &self.content
    }

    pub(crate) fn child(&self, level: &str, seed: &Seed) -> Option<&Self> {
        self.children.get(level, seed).map(|child| &**child)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts() == 0
    }

    /// How many things keep the node: its content, its children, and its wildcards.
    fn parts(&self) -> usize {
        let wild = self
            .wild
            .as_ref()
            .map_or(0, |wild| usize::from(wild.plus.is_some()) + usize::from(!wild.many.is_empty()));
        usize::from(!self.content.is_empty()) + self.children.len() + wild
    }

    pub(crate) fn find(&self, filter: &str, seed: &Seed) -> Option<&C> {
        let mut node = self;
        let mut rest = Some(filter);
        while let Some(text) = rest {
            let (level, tail) = split_level(text);
            node = match level {
                "#" => return node.wild.as_ref().map(|wild| &wild.many),
                "+" => node.wild.as_ref()?.plus.as_ref()?,
                _ => node.children.get(level, seed)?,
            };
            rest = tail;
        }
        Some(&node.content)
    }

    /// Creates the missing nodes of `filter` and copies shared ones; call [`Node::prune`] if the
    /// content stays empty.
    pub(crate) fn make(&mut self, filter: &str, seed: &Seed) -> &mut C {
        self.make_counted(filter, seed, &mut 0)
    }

    /// Like [`Node::make`], and adds the estimated bytes of new nodes to `bytes`.
    pub(crate) fn make_counted(&mut self, filter: &str, seed: &Seed, bytes: &mut usize) -> &mut C {
        let mut node = self;
        let mut rest = Some(filter);
        while let Some(text) = rest {
            let (level, tail) = split_level(text);
            let child = match level {
                "#" => return &mut node.wild_mut().many,
                "+" => node.wild_mut().plus.get_or_insert_with(|| {
                    *bytes += node_bytes("+");
                    Arc::new(Self::new("+"))
                }),
                _ => {
                    let (child, is_new) =
                        node.children.get_or_insert(level, seed, || Arc::new(Self::new(level)));
                    *bytes += if is_new { node_bytes(level) } else { 0 };
                    child
                }
            };
            node = Arc::make_mut(child);
            rest = tail;
        }
        &mut node.content
    }

    fn wild_mut(&mut self) -> &mut Wild<C> {
        Arc::make_mut(self.wild.get_or_insert_default())
    }

    fn child_mut(&mut self, level: &str, seed: &Seed) -> Option<&mut Self> {
        let child = match level {
            "+" => self.wild_mut().plus.as_mut()?,
            _ => self.children.get_mut(level, seed)?,
        };
        Some(Arc::make_mut(child))
    }

    fn drop_empty_wild(&mut self) {
        if self.wild.as_ref().is_some_and(|wild| wild.plus.is_none() && wild.many.is_empty()) {
            self.wild = None;
        }
    }

    /// Removes the nodes of `filter` that lead to no content; returns their estimated bytes.
    pub(crate) fn prune(&mut self, filter: &str, seed: &Seed) -> usize {
        let levels = || filter.split('/').filter(|level| *level != "#");
        let mut keep = 0;
        let mut node = &mut *self;
        for (depth, level) in levels().enumerate() {
            if node.parts() > 1 {
                keep = depth;
            }
            match node.child_mut(level, seed) {
                Some(child) => node = child,
                None => return 0,
            }
        }
        node.drop_empty_wild();
        if !node.is_empty() {
            return 0;
        }
        let mut node = self;
        let mut levels = levels();
        for level in levels.by_ref().take(keep) {
            match node.child_mut(level, seed) {
                Some(child) => node = child,
                None => return 0,
            }
        }
        let bytes = levels.clone().map(node_bytes).sum();
        match levels.next() {
            Some("+") => {
                node.wild_mut().plus = None;
                node.drop_empty_wild();
            }
            Some(level) => drop(node.children.remove(level, seed)),
            // The filter is `#`, whose content is in the root.
            None => {}
        }
        bytes
    }

    /// Visits the content of every filter. `step` folds the levels of a filter one after the other;
    /// the flag of `visit` is true for the filter with `#` added.
    pub(crate) fn walk<S: Copy>(
        &self,
        start: S,
        step: impl Fn(S, &str) -> S,
        mut visit: impl FnMut(S, &C, bool),
    ) {
        // The children that are still to be visited, one iterator per level, however many children
        // a level has.
        let mut open = Vec::new();
        let mut next = Some((self, start));
        loop {
            if let Some((node, state)) = next.take() {
                if !node.content.is_empty() {
                    visit(state, &node.content, false);
                }
                open.push((node.children.iter(), state));
                if let Some(wild) = &node.wild {
                    if !wild.many.is_empty() {
                        visit(state, &wild.many, true);
                    }
                    next = wild.plus.as_deref().map(|plus| (plus, step(state, "+")));
                }
                continue;
            }
            let Some((children, state)) = open.last_mut() else { return };
            match children.next() {
                Some(child) => next = Some((child, step(*state, &child.level))),
                None => drop(open.pop()),
            }
        }
    }

    /// Visits the content of every filter that matches `topic`, and adds the visited nodes to
    /// `visited`. Returns false when `visit` broke off or `nodes_max` nodes were visited.
    ///
    /// A subscriber with filters such as `{a,+}/{a,+}/...` doubles the walk with each level.
    /// Without the bound this subscriber could stop the publishing thread.
    //= [MQTT-4.7.3-4] v5 v3.1.1
    // Levels are compared as bytes, without normalisation or case folding, and an empty level is a
    // level.
    pub(crate) fn matching<'a>(
        &'a self,
        topic: &str,
        seed: &Seed,
        nodes_max: usize,
        visited: &mut usize,
        mut visit: impl FnMut(&'a C) -> ControlFlow<()>,
    ) -> bool {
        //= [MQTT-4.7.2-1] v5 v3.1.1
        // Only wildcards of the root could match the level with the `$`.
        let mut hidden = topic.starts_with('$');
        // `+` branches still to be visited: the node below each, and the rest of the topic there.
        let mut open: SmallVec<[(&'a Self, Option<&str>); 12]> = SmallVec::new();
        let mut next = Some((self, Some(topic)));
        let visited_max = visited.saturating_add(nodes_max);
        while let Some((node, rest)) = next {
            if *visited >= visited_max {
                return false;
            }
            *visited += 1;
            let wild = node.wild.as_deref().filter(|_| !hidden);
            hidden = false;
            // `a/#` matches `a`, too.
            if wild.is_some_and(|wild| visit(&wild.many).is_break()) {
                return false;
            }
            next = match rest {
                None => {
                    if visit(&node.content).is_break() {
                        return false;
                    }
                    None
                }
                Some(text) => {
                    let (level, tail) = split_level(text);
                    if let Some(plus) = wild.and_then(|wild| wild.plus.as_deref()) {
                        open.push((plus, tail));
                    }
                    node.child(level, seed).map(|child| (child, tail))
                }
            }
            .or_else(|| open.pop());
        }
        true
    }
}

/// Drops the nodes in a loop, because a long chain would otherwise use one stack frame per level.
impl<C> Drop for Node<C> {
    fn drop(&mut self) {
        if self.children.is_empty() && self.wild.is_none() {
            return;
        }
        // A map or node that a snapshot shares stays alive, and only its count decreases.
        let mut chains = Vec::new();
        self.give_up(&mut chains);
        while let Some(map) = chains.pop() {
            map.into_sole(&mut |child| {
                if let Some(mut child) = Arc::into_inner(child) {
                    child.give_up(&mut chains);
                }
            });
        }
    }
}

impl<C> Node<C> {
    /// Moves the children to `chains`, to be dropped by the loop.
    fn give_up(&mut self, chains: &mut Vec<Map<Arc<Self>>>) {
        let children = mem::take(&mut self.children);
        if !children.is_empty() {
            chains.push(children);
        }
        if let Some(plus) = self.wild.take().and_then(Arc::into_inner).and_then(|wild| wild.plus) {
            chains.push(Map::One(plus));
        }
    }
}

#[cfg(test)]
impl<C: NodeContent> Node<C> {
    /// Panics when something below this node leads to no content.
    pub(crate) fn assert_tidy(&self) {
        let plus = self.wild.iter().inspect(|wild| assert!(wild.plus.is_some() || !wild.many.is_empty()));
        for child in self.children.iter().chain(plus.filter_map(|wild| wild.plus.as_ref())) {
            assert!(!child.is_empty());
            child.assert_tidy();
        }
    }
}
