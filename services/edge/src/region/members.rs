//! Adds members of shared subscriptions on other pods to the router. The router has targets of the pseudo-core `ELSEWHERE` for
//! them, so that picking a member works the same for all.
//!
//! A pod sends each change of its members (`Members`). On request (`AskMembers`) it sends `AllMembers`, then all members in
//! pages. The receiver removes members that were not repeated a while after that, because they are gone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use millrace_fabric::{Fabric, PodId, To};
use millrace_router::Target;

use super::PodNetwork;
use super::own_members::Sending;
use super::their_members::TheirMembers;
use super::wire::PodNotice;
use crate::broker::Broker;
use crate::clock::Millis;
use crate::elsewhere::is_here;

/// Most targets of one pod in a group; more members do not increase the pod's share of messages.
const MEMBERS_MAX: u16 = 16;

/// A shared subscription of a broker: its share name and filter.
pub(super) type GroupKey = (Box<str>, Box<str>);

#[derive(Default)]
pub(super) struct Members {
    /// The index of a pod is the slot of its targets. Pods are never removed: each start of a pod adds 8 bytes.
    pods: Vec<PodId>,
    by_name: HashMap<Box<[u8]>, PodId>,
    pub(super) brokers: HashMap<u64, BrokerMembers>,
    /// Brokers of which a pod's notices are missing, until the next second. `None` as broker: of all that both have; as pod: of any
    /// pod.
    missed: HashSet<(Option<u64>, Option<PodId>)>,
    /// Requests that the digest thread has not begun; `sending` has those of which pages are left.
    pub(super) asked: HashSet<(u64, PodId)>,
    /// Pods that have sent `AllMembers` of a broker, until unrepeated members are removed.
    confirming: HashSet<(u64, PodId)>,
    pub(super) sending: HashMap<(u64, PodId), Sending>,
}

#[derive(Default)]
pub(super) struct BrokerMembers {
    pub(super) own: BTreeMap<GroupKey, u16>,
    theirs: HashMap<PodId, TheirMembers>,
}

pub(super) struct GoneMembers {
    broker: Arc<Broker>,
    slot: u32,
    theirs: TheirMembers,
}

impl GoneMembers {
    pub(super) fn remove(self) {
        self.theirs.remove_all(&self.broker, self.slot);
    }
}

impl PodNetwork {
    pub(crate) fn members_changed(&self, broker: &Broker, name: &str, filter: &str) {
        let Some(fabric) = self.fabric.get() else { return };
        // Sent under the lock, as pages are, so that an older count never arrives last.
        let mut members = self.members();
        let count = count_here(broker, name, filter);
        if members.set_own(broker.id, name, filter, count) {
            let notice = PodNotice::Members { broker: broker.id, name, filter, count };
            receivers_of_change(broker).into_iter().for_each(|to| notice.send(fabric, to));
        }
    }

    pub(super) fn remove_unconfirmed_members(&self) {
        let confirming: Vec<(u64, PodId)> = self.members().confirming.iter().copied().collect();
        for key @ (broker, pod) in confirming {
            let Some(broker) = self.brokers.peek(broker) else {
                self.members().confirming.remove(&key);
                continue;
            };
            while self.members().remove_unconfirmed(&broker, pod, self.clock.now()) {}
        }
    }

    pub(super) fn ask(&self, broker: u64, whom: To) {
        if let Some(fabric) = self.fabric.get() {
            PodNotice::AskMembers { broker }.send(fabric, whom);
        }
    }

    /// After a gap: the lost notice may have been the pod's members, or its request for those of this pod.
    fn exchange_members(&self, fabric: &Fabric, broker: u64, pod: PodId) {
        PodNotice::AskMembers { broker }.send(fabric, way(broker, pod));
        self.send_members(broker, pod);
    }

    pub(super) fn exchange_missed_members(&self) {
        let Some(fabric) = self.fabric.get() else { return };
        let missed = self.members().take_missed();
        for (broker, from) in missed {
            let brokers = match broker {
                Some(broker) => self.brokers.peek(broker).into_iter().collect(),
                // Brokers that this pod has announced to others.
                None => self.brokers_with_peers(),
            };
            for broker in brokers {
                // A pod can have members only of brokers that it has.
                let peers = broker.elsewhere.peers.all().into_iter();
                let with = peers.filter(|peer| from.is_none_or(|from| from == *peer));
                with.for_each(|pod| self.exchange_members(fabric, broker.id, pod));
            }
        }
    }
}

/// All notices about members go this way, in the order in which they were made. So do digests: a pod that has confirmed a filter
/// knows its members.
pub(super) fn way(broker: u64, pod: PodId) -> To {
    To::BrokerOnPod { pod, broker }
}

fn receivers_of_change(broker: &Broker) -> Vec<To> {
    broker.elsewhere.peers.all().into_iter().map(|pod| way(broker.id, pod)).collect()
}

pub(super) fn count_here(broker: &Broker, name: &str, filter: &str) -> u16 {
    let (snapshot, most) = (broker.router.snapshot(), usize::from(MEMBERS_MAX));
    let count = snapshot.group(name, filter).map_or(0, |group| group.count_online(most, is_here));
    u16::try_from(count).unwrap_or(MEMBERS_MAX)
}

impl Members {
    pub(super) fn came(&mut self, pod: PodId, name: &str) {
        self.by_name.insert(name.as_bytes().into(), pod);
    }

    /// The caller removes what the pod had from the routers, without the lock: that takes long for many groups.
    pub(super) fn gone(
        &mut self,
        pod: PodId,
        brokers: impl Fn(u64) -> Option<Arc<Broker>>,
    ) -> Vec<GoneMembers> {
        self.by_name.retain(|_, id| *id != pod);
        let slot = self.number(pod);
        let taken = self.brokers.iter_mut().filter_map(|(id, of)| Some((*id, of.theirs.remove(&pod)?)));
        taken.filter_map(|(id, theirs)| Some(GoneMembers { broker: brokers(id)?, slot, theirs })).collect()
    }

    /// Any number of gaps within a second causes one exchange of members.
    pub(super) fn missed(&mut self, broker: Option<u64>, from: Option<PodId>) {
        self.missed.insert((broker, from));
    }

    fn take_missed(&mut self) -> HashSet<(Option<u64>, Option<PodId>)> {
        std::mem::take(&mut self.missed)
    }

    pub(super) fn id_of(&self, name: &[u8]) -> Option<PodId> {
        self.by_name.get(name).copied()
    }

    pub(super) fn name_of(&self, pod: PodId) -> Option<Box<str>> {
        let (name, _) = self.by_name.iter().find(|(_, id)| **id == pod)?;
        Some(String::from_utf8_lossy(name).into())
    }

    /// The pod that a target of `ELSEWHERE` stands for.
    pub(super) fn pod(&self, target: Target) -> Option<PodId> {
        self.pods.get(target.slot as usize).copied()
    }

    /// Returns false if the count has not changed.
    pub(super) fn set_own(&mut self, broker: u64, name: &str, filter: &str, count: u16) -> bool {
        let own = &mut self.brokers.entry(broker).or_default().own;
        let group = (name.into(), filter.into());
        match count {
            0 => own.remove(&group).is_some(),
            count => own.insert(group, count) != Some(count),
        }
    }

    pub(super) fn set_theirs(
        &mut self,
        pod: PodId,
        broker: &Broker,
        group: GroupKey,
        count: u16,
        now: Millis,
    ) {
        let slot = self.number(pod);
        let theirs = self.brokers.entry(broker.id).or_default().theirs.entry(pod).or_default();
        theirs.set(broker, slot, group, count, now);
    }

    /// Handles `AllMembers`: members from before are unconfirmed until the pod repeats them.
    pub(super) fn all_theirs_follow(&mut self, pod: PodId, broker: u64, now: Millis) {
        if let Some(theirs) = self.theirs(broker, pod) {
            theirs.all_follow(now);
            self.confirming.insert((broker, pod));
        }
    }

    fn theirs(&mut self, broker: u64, pod: PodId) -> Option<&mut TheirMembers> {
        self.brokers.get_mut(&broker)?.theirs.get_mut(&pod)
    }

    fn remove_unconfirmed(&mut self, broker: &Broker, pod: PodId, now: Millis) -> bool {
        let slot = self.number(pod);
        let theirs = self.theirs(broker.id, pod);
        let (is_more, is_confirming) = theirs.map_or((false, false), |theirs| {
            (theirs.remove_unconfirmed(broker, slot, now), theirs.is_confirming())
        });
        if !is_confirming {
            self.confirming.remove(&(broker.id, pod));
        }
        is_more
    }

    pub(super) fn forget_broker(&mut self, broker: u64) {
        self.brokers.remove(&broker);
    }

    fn number(&mut self, pod: PodId) -> u32 {
        let known = self.pods.iter().position(|known| *known == pod);
        let number = known.unwrap_or_else(|| {
            self.pods.push(pod);
            self.pods.len() - 1
        });
        u32::try_from(number).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members_of(broker: &Broker, name: &str, filter: &str) -> usize {
        broker.router.snapshot().group(name, filter).map_or(0, millrace_router::ShareGroup::online)
    }

    #[test]
    fn the_members_of_a_pod_are_in_the_router_until_it_has_gone() {
        let broker = Arc::new(Broker::new(5, "acme", 1));
        let (one, two) = (PodId(1), PodId(2));
        let mut members = Members::default();
        members.came(one, "one");
        members.came(two, "two");
        members.set_theirs(one, &broker, ("g".into(), "a/#".into()), 2, 0);
        members.set_theirs(two, &broker, ("g".into(), "a/#".into()), 3, 0);
        members.set_theirs(two, &broker, ("h".into(), "a/#".into()), 1, 0);
        assert_eq!((members_of(&broker, "g", "a/#"), members_of(&broker, "h", "a/#")), (5, 1));
        let picked = broker.router.snapshot().group("g", "a/#").unwrap().pick().unwrap();
        assert_eq!(members.pod(picked.target), Some(one));
        assert_eq!(count_here(&broker, "g", "a/#"), 0);
        members.set_theirs(two, &broker, ("g".into(), "a/#".into()), 1, 0);
        assert_eq!(members_of(&broker, "g", "a/#"), 3);
        let gone = |members: &mut Members, pod| members.gone(pod, |_| Some(broker.clone()));
        gone(&mut members, one).into_iter().for_each(GoneMembers::remove);
        assert_eq!(members_of(&broker, "g", "a/#"), 1);
        gone(&mut members, two).into_iter().for_each(GoneMembers::remove);
        assert_eq!((members_of(&broker, "g", "a/#"), members_of(&broker, "h", "a/#")), (0, 0));
        assert_eq!((members.id_of(b"one"), members.id_of(b"two")), (None, None));
        assert_eq!(broker.router.subscriptions(), 0);
    }

    #[test]
    fn any_number_of_gaps_within_a_second_cause_one_exchange_with_each_pod() {
        let mut members = Members::default();
        let one = Some(PodId(1));
        let gaps = [(None, None), (None, one), (Some(7), one), (None, one), (Some(7), one), (Some(8), one)];
        gaps.into_iter().for_each(|(broker, from)| members.missed(broker, from));
        let exchanges = [(None, None), (None, one), (Some(7), one), (Some(8), one)];
        assert_eq!(members.take_missed(), HashSet::from(exchanges));
        assert!(members.take_missed().is_empty());
    }

    #[test]
    fn a_change_of_own_members_is_announced_once() {
        let mut members = Members::default();
        assert!(members.set_own(5, "g", "a", 2) && !members.set_own(5, "g", "a", 2));
        assert!(members.set_own(6, "g", "a", 1) && members.set_own(5, "g", "a", 1));
        assert_eq!(members.brokers[&5].own, BTreeMap::from([(("g".into(), "a".into()), 1)]));
        assert!(members.set_own(5, "g", "a", 0) && !members.set_own(5, "g", "a", 0));
    }

    #[test]
    fn a_change_of_members_goes_the_way_of_their_pages() {
        let broker = Broker::new(5, "acme", 1);
        broker.elsewhere.peers.came(PodId(1));
        assert_eq!(receivers_of_change(&broker), [way(5, PodId(1))]);
    }
}
