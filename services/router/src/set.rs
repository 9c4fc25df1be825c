//! The content of a node of the subscription trie: subscribers and share groups of one filter.

use std::sync::Arc;

use crate::group::ShareGroup;
use crate::pmap::{Map, MapEntry};
use crate::seed::Seed;
use crate::subscription::{Subscription, Target};
use crate::trie::NodeContent;

/// The subscribers of one filter; every node of the trie has a set, so the rare groups are behind a
/// pointer.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubscriberSet {
    pub(crate) subscribers: Map<Subscription>,
    groups: Option<Arc<Map<Arc<ShareGroup>>>>,
}

impl NodeContent for SubscriberSet {
    fn is_empty(&self) -> bool {
        self.subscribers.is_empty() && self.groups.is_none()
    }
}

impl MapEntry for Arc<ShareGroup> {
    type Key = str;
    const LEAF_MAX: usize = 8;

    fn key(&self) -> &str {
        self.name()
    }

    fn address(key: &str, seed: &Seed) -> u64 {
        seed.hash(key)
    }
}

impl SubscriberSet {
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Arc<ShareGroup>> {
        self.groups.iter().flat_map(|groups| groups.iter())
    }

    pub(crate) fn groups_len(&self) -> usize {
        self.groups.as_ref().map_or(0, |groups| groups.len())
    }

    pub(crate) fn group(&self, name: &str, seed: &Seed) -> Option<&ShareGroup> {
        self.groups.as_ref()?.get(name, seed).map(|group| &**group)
    }

    /// Creates a missing group, to which the caller must add a member.
    pub(crate) fn group_mut(&mut self, name: &str, filter: &str, seed: &Seed) -> &mut ShareGroup {
        let groups = Arc::make_mut(self.groups.get_or_insert_default());
        Arc::make_mut(groups.get_or_insert(name, seed, || Arc::new(ShareGroup::new(name, filter))).0)
    }

    pub(crate) fn leave_group(&mut self, name: &str, target: Target, seed: &Seed) {
        let Some(groups) = &mut self.groups else { return };
        let members = Arc::make_mut(groups);
        let Some(group) = members.get_mut(name, seed).map(Arc::make_mut) else { return };
        group.leave(target, seed);
        if group.is_empty() {
            members.remove(name, seed);
        }
        if members.is_empty() {
            self.groups = None;
        }
    }
}
