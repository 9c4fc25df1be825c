//! The digests that other pods have announced for one broker. A sender asks this file which pods may want a topic.
//!
//! A pod that has the broker is a *peer*. Announcements are numbered, on top of the fabric's own numbers. A peer is
//! *trusted* while its announcements are complete; an untrusted peer gets every message until it has announced its
//! digest again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use millrace_fabric::PodId;
use millrace_router::{Code, Digest, TopicCode};

use crate::clock::Millis;

/// How long a lost pod is remembered. It may only be unreachable, and the fabric remembers it as long.
pub(crate) const GONE_MS: Millis = 60_000;
/// Least time between two requests to a peer that does not answer.
const ASK_MS: Millis = 1_000;

pub(crate) enum AnnouncedDigest {
    /// The digest that it announced under this number before.
    Same,
    Everything,
    Filters(Arc<Digest>),
}

impl AnnouncedDigest {
    /// A digest that cannot be decoded counts as everything.
    pub(crate) fn decode(says: u8, digest: &[u8]) -> Self {
        match says {
            0 => Self::Same,
            2 => Digest::decode(digest).map_or(Self::Everything, |digest| Self::Filters(Arc::new(digest))),
            _ => Self::Everything,
        }
    }
}

pub(crate) struct Peers {
    /// Changes with every change of `view`; never 0.
    generation: AtomicU64,
    /// For senders, without a lock; `None`: the pod wants everything.
    view: ArcSwap<Vec<(PodId, Option<Arc<Digest>>)>>,
    known: Mutex<Vec<PeerDigest>>,
}

struct PeerDigest {
    pod: PodId,
    digest: Option<Arc<Digest>>,
    /// Number of its last announcement; 0: none yet.
    version: u64,
    is_trusted: bool,
    asked_at: Option<Millis>,
    gone_at: Option<Millis>,
    /// The last of this pod's announcements that the peer has confirmed.
    confirmed: u64,
}

impl Default for Peers {
    fn default() -> Self {
        Self { generation: AtomicU64::new(1), view: ArcSwap::default(), known: Mutex::default() }
    }
}

impl Peers {
    /// An answer that was found after reading this is valid while it stays the same.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Pods that may want a topic. With `with_groups` also pods with members of shared subscriptions to it.
    pub(crate) fn wanting(&self, topic: &str, with_groups: bool) -> Vec<PodId> {
        let view = self.view.load();
        if view.is_empty() {
            return Vec::new();
        }
        let topic = TopicCode::of(topic);
        let wants = |digest: &Option<Arc<Digest>>| match digest {
            None => true,
            Some(digest) => digest.may_match(&topic, with_groups),
        };
        view.iter().filter(|(_, digest)| wants(digest)).map(|(pod, _)| *pod).collect()
    }

    pub(crate) fn all(&self) -> Vec<PodId> {
        self.view.load().iter().map(|(pod, _)| *pod).collect()
    }

    /// Number of connected peers, and how many of them are untrusted.
    pub(crate) fn count(&self) -> (usize, usize) {
        let known = self.lock();
        let there = known.iter().filter(|peer| peer.gone_at.is_none());
        (there.clone().count(), there.filter(|peer| !peer.is_trusted).count())
    }

    /// Returns true if the peer is new or was lost.
    pub(crate) fn came(&self, pod: PodId) -> bool {
        self.change(|known| match find(known, pod) {
            Some(peer) => (peer.gone_at.take().is_some(), false),
            None => {
                known.push(PeerDigest::new(pod));
                (true, true)
            }
        })
    }

    /// Removes a peer that says it lacks the broker, unless it is trusted: then it has opened the broker since.
    pub(crate) fn remove_absent(&self, pod: PodId) {
        self.change(|known| {
            let count = known.len();
            known.retain(|peer| peer.pod != pod || peer.is_trusted);
            ((), known.len() < count)
        });
    }

    /// The peer opens the broker: its earlier announcements are no longer true. It must be asked for a new one.
    pub(crate) fn opens(&self, pod: PodId) {
        self.change(|known| match find(known, pod) {
            Some(peer) => {
                (peer.confirmed, peer.asked_at) = (0, None);
                peer.forget();
                ((), true)
            }
            None => ((), false),
        });
    }

    pub(crate) fn said(&self, pod: PodId, version: u64, said: AnnouncedDigest) {
        self.change(|known| {
            let peer = peer(known, pod);
            peer.gone_at = None;
            match said {
                AnnouncedDigest::Same if peer.version != version => {
                    peer.forget();
                    return ((), true);
                }
                AnnouncedDigest::Same => {}
                AnnouncedDigest::Everything => peer.digest = None,
                AnnouncedDigest::Filters(digest) => peer.digest = Some(digest),
            }
            (peer.version, peer.is_trusted) = (version, true);
            ((), true)
        });
    }

    /// Returns false if an announcement before this one is missing.
    pub(crate) fn added(&self, pod: PodId, version: u64, codes: impl Iterator<Item = Code>) -> bool {
        self.change(|known| {
            let peer = peer(known, pod);
            let follows = peer.version > 0 && peer.version.checked_add(1) == Some(version);
            let mut codes = codes;
            let fits =
                codes.all(|code| peer.digest.as_ref().is_none_or(|digest| digest.insert(code).is_ok()));
            if follows && fits {
                peer.version = version;
            } else {
                peer.forget();
            }
            (follows && fits, true)
        })
    }

    /// Returns false if the pod is no peer.
    pub(crate) fn doubt(&self, pod: PodId) -> bool {
        self.change(|known| match find(known, pod) {
            Some(peer) => (true, std::mem::take(&mut peer.is_trusted)),
            None => (false, false),
        })
    }

    pub(crate) fn doubt_all(&self) {
        self.change(|known| ((), known.iter_mut().map(|peer| peer.is_trusted = false).count() > 0));
    }

    pub(crate) fn gone(&self, pod: PodId, now: Millis) {
        self.change(|known| match find(known, pod) {
            Some(peer) => {
                (peer.is_trusted, peer.gone_at) = (false, Some(now));
                ((), true)
            }
            None => ((), false),
        });
    }

    /// Returns the number of the peer's last announcement if the caller must send it a request for a new one now.
    pub(crate) fn ask(&self, pod: PodId, now: Millis) -> Option<u64> {
        find(&mut self.lock(), pod).and_then(|peer| peer.ask(now))
    }

    /// The same as [`Peers::ask`] for all peers; forgets peers that were lost long ago.
    pub(crate) fn ask_all(&self, now: Millis) -> Vec<(PodId, u64)> {
        self.change(|known| {
            let count = known.len();
            known.retain(|peer| peer.gone_at.is_none_or(|gone_at| now < gone_at + GONE_MS));
            let asked = known.iter_mut().filter_map(|peer| Some((peer.pod, peer.ask(now)?))).collect();
            (asked, known.len() < count)
        })
    }

    /// Number of a peer's last announcement, if the peer is trusted.
    pub(crate) fn version(&self, pod: PodId) -> Option<u64> {
        find(&mut self.lock(), pod).filter(|peer| peer.is_trusted).map(|peer| peer.version)
    }

    pub(crate) fn confirmed(&self, pod: PodId, version: u64) {
        if let Some(peer) = find(&mut self.lock(), pod) {
            peer.confirmed = peer.confirmed.max(version);
        }
    }

    pub(crate) fn have_confirmed(&self, version: u64) -> bool {
        self.lock().iter().all(|peer| peer.has_confirmed(version))
    }

    pub(crate) fn behind(&self, version: u64) -> Vec<PodId> {
        self.lock().iter().filter(|peer| !peer.has_confirmed(version)).map(|peer| peer.pod).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PeerDigest>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the peers; `change` returns whether senders must see the result.
    fn change<R>(&self, change: impl FnOnce(&mut Vec<PeerDigest>) -> (R, bool)) -> R {
        let mut known = self.lock();
        let (result, matters) = change(&mut known);
        if matters {
            self.view.store(Arc::new(known.iter().map(|peer| (peer.pod, peer.view())).collect()));
            self.generation.fetch_add(1, Ordering::Release);
        }
        result
    }
}

impl PeerDigest {
    fn new(pod: PodId) -> Self {
        Self { pod, digest: None, version: 0, is_trusted: false, asked_at: None, gone_at: None, confirmed: 0 }
    }

    fn view(&self) -> Option<Arc<Digest>> {
        self.digest.clone().filter(|_| self.is_trusted)
    }

    /// A lost peer counts as confirmed, so that nobody waits for it.
    fn has_confirmed(&self, version: u64) -> bool {
        self.gone_at.is_some() || self.confirmed >= version
    }

    /// Forgets the digest: the peer gets every message until its next announcement.
    fn forget(&mut self) {
        (self.digest, self.version, self.is_trusted) = (None, 0, false);
    }

    fn ask(&mut self, now: Millis) -> Option<u64> {
        let is_due = self.asked_at.is_none_or(|asked_at| now >= asked_at + ASK_MS);
        if self.is_trusted || self.gone_at.is_some() || !is_due {
            return None;
        }
        self.asked_at = Some(now);
        Some(self.version)
    }
}

fn find(known: &mut [PeerDigest], pod: PodId) -> Option<&mut PeerDigest> {
    known.iter_mut().find(|peer| peer.pod == pod)
}

fn peer(known: &mut Vec<PeerDigest>, pod: PodId) -> &mut PeerDigest {
    let place = known.iter().position(|peer| peer.pod == pod).unwrap_or_else(|| {
        known.push(PeerDigest::new(pod));
        known.len() - 1
    });
    &mut known[place]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elsewhere::Targets;
    use millrace_mqtt::topic::Filter;

    const ONE: PodId = PodId(1);
    const TWO: PodId = PodId(2);

    fn code(filter: &str) -> Code {
        Code::of(Filter::parse(filter).unwrap())
    }

    fn filters(filters: &[&str]) -> AnnouncedDigest {
        let digest = Digest::with_room(100);
        filters.iter().for_each(|filter| assert_eq!(digest.insert(code(filter)), Ok(true)));
        AnnouncedDigest::Filters(Arc::new(digest))
    }

    fn add(peers: &Peers, version: u64, filter: &str) -> bool {
        peers.added(ONE, version, [code(filter)].into_iter())
    }

    #[track_caller]
    fn check(peers: &Peers, wanted: &[&str], not: &[&str]) {
        let wants = |topic: &&str| peers.wanting(topic, false) == [ONE];
        assert!(wanted.iter().all(wants) && !not.iter().any(wants));
    }

    #[test]
    fn a_peer_that_is_doubted_again_changes_nothing() {
        let peers = Peers::default();
        assert!(!peers.doubt(ONE) && peers.came(ONE));
        peers.said(ONE, 7, filters(&["a"]));
        let trusted = peers.generation();
        assert!(peers.doubt(ONE));
        let doubted = peers.generation();
        assert!(doubted > trusted && peers.doubt(ONE));
        assert_eq!(peers.generation(), doubted, "cached answers stay valid");
    }

    #[test]
    fn a_pod_that_has_said_what_it_wants_gets_that_until_something_may_be_missing() {
        let peers = Peers::default();
        assert_eq!(peers.wanting("a", false), []);
        assert!(peers.came(ONE) && !peers.came(ONE));
        check(&peers, &["a", "b"], &[]);
        peers.said(ONE, 7, filters(&["a"]));
        check(&peers, &["a"], &["b", "c"]);
        assert!(add(&peers, 8, "b"));
        check(&peers, &["a", "b"], &["c"]);
        peers.doubt(ONE);
        check(&peers, &["a", "b", "c"], &[]);
        // Nothing was missing.
        assert!(add(&peers, 9, "d"));
        check(&peers, &["c"], &[]);
        peers.said(ONE, 9, AnnouncedDigest::Same);
        check(&peers, &["a", "b", "d"], &["c"]);
        peers.said(ONE, 10, AnnouncedDigest::Everything);
        check(&peers, &["c"], &[]);
    }

    #[test]
    fn a_lost_word_of_a_pod_makes_it_get_everything_until_it_says_all_anew() {
        let peers = Peers::default();
        peers.said(ONE, 7, filters(&["a"]));
        assert!(!add(&peers, 9, "c"), "8 is missing");
        check(&peers, &["a", "b", "c"], &[]);
        assert!(!add(&peers, 10, "d"), "what follows does not make up for it");
        peers.said(ONE, 10, AnnouncedDigest::Same);
        check(&peers, &["a", "b", "c"], &[]);
        assert_eq!(peers.ask(ONE, 5), Some(0), "it has nothing");
        peers.said(ONE, 10, filters(&["a", "b", "c", "d"]));
        check(&peers, &["a", "b", "c", "d"], &["e"]);
        assert_eq!(peers.ask(ONE, 5_000), None);
    }

    #[test]
    fn who_is_in_doubt_is_asked_once_a_second_and_who_is_gone_is_not() {
        let peers = Peers::default();
        peers.came(ONE);
        peers.said(TWO, 3, AnnouncedDigest::Everything);
        peers.doubt_all();
        assert_eq!(peers.ask_all(100), [(ONE, 0), (TWO, 3)]);
        assert_eq!((peers.ask_all(1_000), peers.ask(TWO, 1_000)), (vec![], None));
        peers.gone(ONE, 1_000);
        assert_eq!(peers.ask_all(1_200), [(TWO, 3)]);
        assert_eq!((peers.all().len(), peers.count()), (2, (1, 1)), "it may just not be heard");
        peers.ask_all(1_000 + GONE_MS);
        assert_eq!(peers.all(), [TWO]);
    }

    #[test]
    fn all_that_are_there_have_to_hear() {
        let peers = Peers::default();
        assert!(peers.have_confirmed(9), "nobody is there");
        peers.came(ONE);
        peers.came(TWO);
        peers.confirmed(ONE, 5);
        peers.confirmed(ONE, 4);
        assert_eq!((peers.have_confirmed(5), peers.behind(5)), (false, vec![TWO]));
        peers.gone(TWO, 1);
        assert_eq!((peers.have_confirmed(5), peers.have_confirmed(6)), (true, false));
    }

    #[test]
    fn a_pod_without_the_broker_is_forgotten_unless_it_has_come_to_it_since() {
        let peers = Peers::default();
        peers.came(ONE);
        peers.said(TWO, 1, filters(&["a"]));
        peers.remove_absent(ONE);
        peers.remove_absent(TWO);
        assert_eq!(peers.all(), [TWO]);
    }

    #[test]
    fn what_is_remembered_for_a_topic_is_what_is_wanted_now() {
        let (peers, targets) = (Peers::default(), Targets::default());
        let wanted = || targets.get(&peers, "a", false).map(|pods| pods.to_vec());
        assert_eq!(wanted(), None);
        peers.said(ONE, 1, filters(&["b"]));
        assert_eq!(wanted(), None);
        assert!(add(&peers, 2, "a"));
        assert_eq!((wanted(), wanted()), (Some(vec![ONE]), Some(vec![ONE])));
        peers.came(TWO);
        assert_eq!(wanted(), Some(vec![ONE, TWO]));
        peers.said(ONE, 3, filters(&["b"]));
        peers.remove_absent(TWO);
        assert_eq!((wanted(), wanted()), (None, None));
    }

    #[test]
    fn pods_with_members_of_a_shared_subscription_are_notified_and_get_no_copies() {
        let peers = Peers::default();
        peers.said(ONE, 1, filters(&["$share/g/a/+"]));
        assert_eq!((peers.wanting("a/b", false), peers.wanting("a/b", true)), (vec![], vec![ONE]));
    }
}
