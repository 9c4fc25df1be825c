//! Subscribers of a broker on other pods: the digests of filters that pods have announced to each other, and the target that
//! stands for a member of a shared subscription on another pod.
//!
//! A broker owns one [`Elsewhere`]. [`crate::region`] changes it as notices arrive; this folder sends none.

mod own;
mod peers;
mod targets;

use millrace_router::Target;

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
