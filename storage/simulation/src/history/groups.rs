//! Shared subscriptions: who has which message. Two pods never have the same one, but when one of them was taken for dead; what a
//! member acknowledged is not given to another.

use std::collections::{BTreeMap, BTreeSet};

use millrace_layers::{BrokerId, Position, streams::StreamId};

use super::{Group, History};

type Place = (BrokerId, StreamId, Position);

/// What is known of groups.
#[derive(Default)]
pub(crate) struct Groups {
    pub(crate) all: Vec<Group>,
    /// The pod that has a message, and when it had got it.
    holders: BTreeMap<Place, (String, u64)>,
    /// When pods were buried last: from then on others may have what they had.
    buried: BTreeMap<String, u64>,
    /// Acknowledged, and the store has said so.
    pub(crate) done: BTreeSet<Place>,
    /// Acknowledged by a pod that may not have had it any more, or had no answer.
    pub(crate) may_be_done: BTreeSet<Place>,
    /// What was found when all was over.
    pub(crate) left: BTreeSet<Place>,
}

impl Groups {
    fn buried_since(&self, pod: &str, event: u64) -> bool {
        self.buried.get(pod).is_some_and(|buried| *buried > event)
    }
}

impl History {
    /// A pod is taken for dead, or frees what it has.
    pub(crate) fn buries(&mut self, pod: &str) {
        let event = self.next();
        self.groups.buried.insert(pod.into(), event);
        self.groups.holders.retain(|_, (holder, _)| holder != pod);
    }

    /// A pod got messages, by a claim that it began with event `began`.
    pub(crate) fn claimed(&mut self, pod: &str, group: &Group, began: u64, places: &[Position]) {
        if self.groups.buried_since(pod, began) {
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

    /// A pod acknowledges some messages and gives others back. Returns what it needs to say that this is stored.
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

    /// It is stored that messages are acknowledged.
    pub(crate) fn let_go(&mut self, pod: &str, group: &Group, known: &[(Position, u64)]) {
        for (at, event) in known {
            if !self.groups.buried_since(pod, *event) {
                self.groups.done.insert((group.broker, group.stream, *at));
            }
        }
    }
}
