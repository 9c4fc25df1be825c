//! The result of matching a topic: the sessions and groups that get the message.

use std::ops::Range;
use std::sync::Arc;

use crate::group::ShareGroup;
use crate::pmap::Map;
use crate::receiver::Receiver;
use crate::subscription::Subscription;

#[derive(Clone, Debug, Default)]
pub struct Matched {
    /// Sorted by target; a target with several matching subscriptions has one entry.
    pub receivers: Box<[Receiver]>,
    pub groups: Box<[Arc<ShareGroup>]>,
    /// Matching subscriptions besides those of the filter with the most: merging them takes most of
    /// the time of a match.
    pub overlap: usize,
}

impl Matched {
    /// `found`: the subscriptions of each matching filter.
    pub(crate) fn new(found: &[&Map<Subscription>], groups: Vec<Arc<ShareGroup>>, overlap: usize) -> Self {
        let mut receivers: Vec<Receiver> = Vec::with_capacity(found.iter().map(|map| map.len()).sum());
        match found {
            [only] => {
                receivers.extend(only.iter().map(Receiver::from));
                // Sorted by address already, which lacks the high bits of the generation.
                receivers.sort_by_key(|receiver| receiver.target.order());
            }
            _ => {
                let mut all: Vec<&Subscription> = Vec::with_capacity(receivers.capacity());
                all.extend(found.iter().flat_map(|map| map.iter()));
                // The standard library's sort finds the runs, one for each filter, and merges them.
                all.sort_by_key(|subscription| subscription.target.order());
                for subscription in all {
                    match receivers.last_mut() {
                        Some(last) if last.target == subscription.target => last.merge(subscription),
                        _ => receivers.push(subscription.into()),
                    }
                }
            }
        }
        Self { receivers: receivers.into_boxed_slice(), groups: groups.into_boxed_slice(), overlap }
    }

    pub fn is_empty(&self) -> bool {
        self.receivers.is_empty() && self.groups.is_empty()
    }

    pub fn core_range(&self, core: u16) -> Range<usize> {
        let start = self.receivers.partition_point(|receiver| receiver.target.core < core);
        let len = self.receivers[start..].partition_point(|receiver| receiver.target.core == core);
        start..start + len
    }
}
