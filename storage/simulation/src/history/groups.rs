//! Shared subscriptions: which pod has each message. Two pods never have the same message, unless
//! one of them was taken for dead. An acknowledged message is never given to another member.

use std::collections::{BTreeMap, BTreeSet};

use millrace_layers::{BrokerId, Position, streams::StreamId};

use super::{Group, PodHistory};

type Place = (BrokerId, StreamId, Position);

#[derive(Default)]
pub(crate) struct Groups {
    pub(crate) all: Vec<Group>,
    holders: BTreeMap<Place, (String, u64)>,
    /// The event at which each pod was recovered last; from then on others may have its messages.
    recovered: BTreeMap<String, u64>,
    /// Acknowledged, with a committed answer.
    pub(crate) done: BTreeSet<Place>,
    /// Acknowledged by a pod that may have lost it, or without an answer.
    pub(crate) may_be_done: BTreeSet<Place>,
    /// Claimed by the check at the end of a run: nobody had acknowledged or held them. A message in none of the three sets
    /// is lost.
    pub(crate) left: BTreeSet<Place>,
}

impl Groups {
    fn recovered_since(&self, pod: &str, event: u64) -> bool {
        self.recovered.get(pod).is_some_and(|recovered| *recovered > event)
    }
}

impl PodHistory {
    /// Others may now get the pod's messages: another pod recovers them, or the pod releases them
    /// itself.
    pub(crate) fn recovers(&mut self, pod: &str) {
        let event = self.next();
        self.groups.recovered.insert(pod.into(), event);
        self.groups.holders.retain(|_, (holder, _)| holder != pod);
    }

    /// A pod has messages from a claim that began with event `began`.
    pub(crate) fn claimed(&mut self, pod: &str, group: &Group, began: u64, places: &[Position]) {
        // The claim may be gone with the pod's other claims, so it proves nothing.
        if self.groups.recovered_since(pod, began) {
            return;
        }
        let event = self.next();
        for at in places {
            let place = (group.broker, group.stream, *at);
            if self.groups.done.contains(&place) {
                self.violated(format!(
                    "groups: {pod} got {at:?} of {}, which was acknowledged",
                    group.filter
                ));
            }
            if let Some((other, _)) = self.groups.holders.insert(place, (pod.into(), event))
                && other != pod
            {
                self.violated(format!("groups: {pod} got {at:?} of {}, which {other} has", group.filter));
            }
        }
    }

    /// Begins a release. Returns the data for [`Self::end_release`], which follows only if the commit is known to have
    /// succeeded.
    pub(crate) fn lets_go(
        &mut self,
        pod: &str,
        group: &Group,
        acknowledged: &[Position],
        given_back: &[Position],
    ) -> Vec<(Position, u64)> {
        for at in given_back {
            let place = (group.broker, group.stream, *at);
            self.groups.holders.retain(|held, (holder, _)| *held != place || holder != pod);
        }
        let mut known = Vec::new();
        for at in acknowledged {
            let place = (group.broker, group.stream, *at);
            self.groups.may_be_done.insert(place);
            if let Some((holder, event)) = self.groups.holders.get(&place)
                && holder == pod
            {
                known.push((*at, *event));
                self.groups.holders.remove(&place);
            }
        }
        known
    }

    pub(crate) fn end_release(&mut self, pod: &str, group: &Group, known: &[(Position, u64)]) {
        for (at, event) in known {
            if !self.groups.recovered_since(pod, *event) {
                self.groups.done.insert((group.broker, group.stream, *at));
            }
        }
    }
}
