//! Members of shared subscriptions on other pods. The router has targets of the pseudo-core `ELSEWHERE` for them, so
//! that picking a member works the same for all.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound::{Excluded, Unbounded};

use millrace_fabric::{PodId, To};
use millrace_router::Target;

use super::Region;
use super::their_members::TheirMembers;
use super::wire::PodNotice;
use crate::broker::Broker;
use crate::clock::Millis;
use crate::elsewhere::is_here;

/// Most targets of one pod in a group; more members do not increase the pod's share of messages.
const MEMBERS_MAX: u16 = 16;

/// Groups that are sent before other threads may change members.
pub(super) const PAGE: usize = 500;

/// Names of groups of a broker that are sent to a receiver in a second, far below what the fabric queues for one receiver.
const BYTES_PER_SECOND: usize = 1 << 20;

enum Page {
    /// Bytes of names; more follow.
    Sent(usize),
    Dropped,
    Last,
}

/// A shared subscription of a broker: its share name and filter.
pub(super) type Group = (Box<str>, Box<str>);

#[derive(Default)]
pub(super) struct Members {
    /// The index of a pod is the number in its targets.
    pods: Vec<PodId>,
    by_name: HashMap<Box<[u8]>, PodId>,
    brokers: HashMap<u64, OfBroker>,
    /// Brokers of which a pod's notices are missing. `None` as broker: of all that both have; as pod: of any pod.
    missed: HashSet<(Option<u64>, Option<PodId>)>,
    /// Brokers whose members are to be sent, and to whom.
    asked: HashSet<(u64, To)>,
    /// Pods that send all their members of a broker again.
    confirming: HashSet<(u64, PodId)>,
    sending: HashMap<(u64, To), Sending>,
}

/// Members of a broker that did not leave at once; the rest follows a second later.
#[derive(Default)]
struct Sending {
    last: Option<Group>,
    /// Somebody has asked meanwhile, so all are sent again after the last.
    again: bool,
}

/// Members of a broker's shared subscriptions.
#[derive(Default)]
struct OfBroker {
    own: BTreeMap<Group, u16>,
    theirs: HashMap<PodId, TheirMembers>,
}

impl Region {
    /// A broker's own numbers take memory, so brokers without members have none.
    pub(super) fn send_members_to_new(&self, broker: u64, pod: PodId) {
        let has_own = self.members().brokers.get(&broker).is_some_and(|of| !of.own.is_empty());
        self.send_members(broker, if has_own { To::BrokerOnPod { pod, broker } } else { To::Pod(pod) });
    }

    /// The digest thread sends them.
    pub(super) fn send_members(&self, broker: u64, to: To) {
        self.members().asked.insert((broker, to));
    }

    pub(super) fn send_asked_members(&self) {
        let begun = self.members().begin_asked();
        begun.into_iter().for_each(|key| self.go_on_sending(key, Sending::default()));
    }

    pub(super) fn resume_sending_members(&self) {
        let sending = std::mem::take(&mut self.members().sending);
        sending.into_iter().for_each(|(key, sending)| self.go_on_sending(key, sending));
    }

    fn go_on_sending(&self, key: (u64, To), mut sending: Sending) {
        let Some(fabric) = self.fabric.get() else { return };
        let mut bytes = 0;
        while bytes < BYTES_PER_SECOND {
            let is_sent = |notice: PodNotice<'_>| notice.try_send(fabric, key.1);
            let page = self.members().send_page(key.0, &mut sending, is_sent);
            match page {
                Page::Sent(more) => bytes += more,
                Page::Dropped => break,
                Page::Last if sending.again => return self.send_members(key.0, key.1),
                Page::Last => return,
            }
        }
        self.members().sending.insert(key, sending);
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
    pub(super) fn exchange_members(&self, broker: u64, with: To) {
        self.ask(broker, with);
        self.send_members(broker, with);
    }

    pub(super) fn exchange_missed_members(&self) {
        let missed = self.members().take_missed();
        for (broker, from) in missed {
            let with = |broker| from.map_or(To::Broker(broker), |pod| To::BrokerOnPod { pod, broker });
            match broker {
                Some(broker) => self.exchange_members(broker, with(broker)),
                None => {
                    // A pod can have members only of brokers that it has.
                    let has =
                        |broker: &Broker| from.is_none_or(|pod| broker.elsewhere.peers.all().contains(&pod));
                    let brokers = self.spread();
                    let both = brokers.iter().filter(|broker| has(broker));
                    both.for_each(|broker| self.exchange_members(broker.id, with(broker.id)));
                }
            }
        }
    }
}

pub(super) fn count_here(broker: &Broker, name: &str, filter: &str) -> u16 {
    let count = broker.router.snapshot().group(name, filter).map_or(0, |group| group.count_online(is_here));
    u16::try_from(count).unwrap_or(u16::MAX).min(MEMBERS_MAX)
}

impl Members {
    pub(super) fn came(&mut self, pod: PodId, name: &str) {
        self.by_name.insert(name.as_bytes().into(), pod);
    }

    pub(super) fn gone(&mut self, pod: PodId, brokers: impl Fn(u64) -> Option<std::sync::Arc<Broker>>) {
        self.by_name.retain(|_, id| *id != pod);
        let has_any = |(id, of): (&u64, &OfBroker)| of.theirs.contains_key(&pod).then_some(*id);
        let ids: Vec<u64> = self.brokers.iter().filter_map(has_any).collect();
        // A broker that is closed has no entry.
        for broker in ids.into_iter().filter_map(brokers) {
            self.forget(pod, &broker);
        }
    }

    /// Notices of a pod, about a broker or to this pod, are missing. Any number within a second causes one exchange of members.
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

    /// The next groups with members on this pod after `last`, and how many members.
    fn own_page(&self, of: u64, last: Option<&Group>) -> Vec<(&Group, &u16)> {
        let Some(of) = self.brokers.get(&of) else { return Vec::new() };
        let after = last.map_or(Unbounded, Excluded);
        of.own.range((after, Unbounded)).take(PAGE).collect()
    }

    fn begin_asked(&mut self) -> Vec<(u64, To)> {
        let Self { asked, sending, .. } = self;
        let is_new = |key: &(u64, To)| match sending.get_mut(key) {
            Some(sending) => {
                sending.again = true;
                false
            }
            None => true,
        };
        asked.drain().filter(is_new).collect()
    }

    fn send_page(
        &self,
        broker: u64,
        sending: &mut Sending,
        mut is_sent: impl FnMut(PodNotice<'_>) -> bool,
    ) -> Page {
        if sending.last.is_none() && !is_sent(PodNotice::AllMembers { broker }) {
            return Page::Dropped;
        }
        let (mut bytes, page) = (0, self.own_page(broker, sending.last.as_ref()));
        for (group @ (name, filter), count) in &page {
            if !is_sent(PodNotice::Members { broker, count: **count, name, filter }) {
                return Page::Dropped;
            }
            bytes += name.len() + filter.len();
            sending.last = Some((*group).clone());
        }
        if page.len() == PAGE { Page::Sent(bytes) } else { Page::Last }
    }

    pub(super) fn set_theirs(&mut self, pod: PodId, broker: &Broker, group: Group, count: u16, now: Millis) {
        let slot = self.number(pod);
        let theirs = self.brokers.entry(broker.id).or_default().theirs.entry(pod).or_default();
        theirs.set(broker, slot, group, count, now);
    }

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

    fn forget(&mut self, pod: PodId, broker: &Broker) {
        let slot = self.number(pod);
        let Some(of) = self.brokers.get_mut(&broker.id) else { return };
        of.theirs.remove(&pod).unwrap_or_default().remove_all(broker, slot);
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
        let broker = std::sync::Arc::new(Broker::new(5, "acme", 1));
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
        members.forget(one, &broker);
        assert_eq!(members_of(&broker, "g", "a/#"), 1);
        members.gone(two, |_| Some(broker.clone()));
        assert_eq!((members_of(&broker, "g", "a/#"), members_of(&broker, "h", "a/#")), (0, 0));
        assert_eq!((members.id_of(b"one"), members.id_of(b"two")), (Some(one), None));
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
        assert_eq!(members.own_page(5, None), [(&("g".into(), "a".into()), &1)]);
        assert!(members.set_own(5, "g", "a", 0) && !members.set_own(5, "g", "a", 0));
    }

    #[test]
    fn own_members_are_sent_in_pages() {
        let mut members = Members::default();
        let groups = 2 * PAGE + 1;
        (0..groups).for_each(|number| assert!(members.set_own(5, "g", &number.to_string(), 1)));
        let (mut sent, mut last) = (HashSet::new(), None);
        let pages = [(); 3].map(|()| {
            let page = members.own_page(5, last.as_ref());
            sent.extend(page.iter().map(|(group, _)| (*group).clone()));
            last = page.last().map(|(group, _)| (*group).clone());
            page.len()
        });
        assert_eq!((pages, sent.len()), ([PAGE, PAGE, 1], groups));
    }

    #[test]
    fn members_that_the_fabric_drops_are_sent_later_from_there_on() {
        let mut members = Members::default();
        let groups = 2 * PAGE + 1;
        (0..groups).for_each(|number| assert!(members.set_own(5, "g", &number.to_string(), 1)));
        let (mut sending, mut begun, mut sent) = (Sending::default(), 0, HashSet::new());
        for _ in 0..30 {
            let mut room = 100;
            let page = members.send_page(5, &mut sending, |notice| {
                let has_room = room > 0;
                room -= i32::from(has_room);
                match notice {
                    PodNotice::Members { filter, .. } if has_room => assert!(sent.insert(filter.to_owned())),
                    PodNotice::AllMembers { .. } => begun += 1,
                    _ => {}
                }
                has_room
            });
            if matches!(page, Page::Last) {
                break;
            }
        }
        assert_eq!((begun, sent.len()), (1, groups));
    }

    #[test]
    fn any_number_of_requests_for_members_causes_one_more_answer() {
        let mut members = Members::default();
        let key = (5, To::BrokerOnPod { pod: PodId(1), broker: 5 });
        members.asked.insert(key);
        assert_eq!(members.begin_asked(), [key]);
        members.sending.insert(key, Sending::default());
        members.asked.insert(key);
        assert!(members.begin_asked().is_empty() && members.sending[&key].again);
    }
}
