//! Subscribers of a broker on other pods: the digests of filters that pods have announced to each other, and the target that
//! stands for a member of a shared subscription on another pod.
//!
//! A broker owns one [`Elsewhere`]. [`crate::region`] changes it as notices arrive; this folder sends none.

mod own;
mod peers;
mod targets;

use millrace_router::{Receiver, ShareGroup, Target};

pub(crate) use own::{Announced, FilterAnnouncement, OwnAnnouncements};
pub(crate) use peers::{AnnouncedDigest, GONE_MS, Peers};
pub(crate) use targets::Targets;

/// Core number of targets that stand for members on other pods.
pub(crate) const ELSEWHERE: u16 = u16::MAX;
/// Digests of one broker: those of the other pods, and this pod's own.
#[derive(Default)]
pub(crate) struct Elsewhere {
    pub(crate) peers: Peers,
    pub(crate) own: OwnAnnouncements,
}

pub(crate) fn is_here(target: Target) -> bool {
    target.core != ELSEWHERE
}

/// The next member in turn: one of this pod's own, if it has any, while it reaches no other pod.
pub(crate) fn pick(group: &ShareGroup, is_alone: bool) -> Option<Receiver> {
    let own = is_alone.then(|| group.pick_online(is_here)).flatten();
    own.or_else(|| group.pick())
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::QoS;
    use millrace_mqtt::topic::Filter;
    use millrace_router::{Router, Subscription};

    use super::*;

    #[test]
    fn a_pod_that_is_alone_picks_its_own_members_and_others_only_if_it_has_none() {
        let (router, filter) = (Router::new(), Filter { share: Some("g"), filter: "t" });
        let target = |core, slot| Target { core, slot, generation: 1 };
        let join = |target| {
            let (qos, no_local, retain_as_published) = (QoS::AtLeastOnce, false, false);
            let (persistent, identifier) = (false, 0);
            let member = Subscription { target, qos, no_local, retain_as_published, persistent, identifier };
            router.edit(|edit| edit.subscribe(filter, member));
        };
        let picked = |is_alone| {
            let snapshot = router.snapshot();
            let group = snapshot.group("g", "t").unwrap();
            let mut slots: Vec<u32> =
                (0..6).filter_map(|_| pick(group, is_alone)).map(|member| member.target.slot).collect();
            slots.sort_unstable();
            slots
        };
        join(target(ELSEWHERE, 1));
        assert_eq!(picked(true), [1; 6]);
        join(target(0, 2));
        join(target(1, 3));
        assert_eq!(picked(true), [2, 2, 2, 3, 3, 3]);
        assert_eq!(picked(false), [1, 1, 2, 2, 3, 3]);
    }
}
