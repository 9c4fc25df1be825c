//! The digest of this pod's filters for one broker, as it is announced to the other pods.
//!
//! Nothing is announced before another pod asks, because most brokers have clients on one pod only. From then on each
//! new filter is announced at once. The digest is rebuilt when filters may have been removed, or when it is full.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millrace_router::{Code, Digest, Router, Snapshot, TooMany};

use crate::clock::Millis;

/// Least time between two builds of a digest, in which a removed filter causes needless messages.
const AGE_MS: Millis = 2_000;
/// The time grows by one millisecond for this many filters. A large digest costs one to two microseconds a filter, so
/// building takes at most 2 % of a core.
const FILTERS_PER_MS: usize = 10;
/// Least room of a new digest for further filters.
const SPARE_MIN: usize = 100;

#[derive(Default)]
pub(crate) struct OwnAnnouncements(Mutex<Announced>);

/// The lock is held while a notice is sent, so that the last notice has the current state.
#[derive(Default)]
pub(crate) struct Announced {
    /// Number of the last announcement; 0: no pod has asked yet.
    pub(crate) version: u64,
    /// The first announcement has a higher number: other pods may remember those from before the broker was closed.
    base: u64,
    /// `None`: this pod wants every message.
    pub(crate) digest: Option<Digest>,
    /// Filters that were added while a digest is being built.
    coming: Option<Vec<Code>>,
    /// The router's generation at the build, and the number of its filters, or of subscriptions if the filters did not fit: both say
    /// when the next build is due.
    generation: u64,
    size: usize,
    made_at: Millis,
    /// Number of the last announcement at the previous check.
    looked_at: u64,
    /// A rebuild is queued, because the digest is full.
    is_due: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FilterAnnouncement {
    None,
    Filters(Vec<Code>),
    /// The filters do not fit into the digest.
    Everything,
}

impl OwnAnnouncements {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Announced> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds the digest of the broker's current filters, announces it if it differs from the last one, and returns whether it
    /// did.
    pub(crate) fn make(
        &self,
        router: &Router,
        now: Millis,
        counts: impl Fn(&millrace_router::ShareGroup) -> bool,
        announce: impl FnOnce(&Announced),
    ) -> bool {
        let mut announced = self.lock();
        // Before the snapshot: filters that the snapshot lacks are collected here.
        announced.coming = Some(Vec::new());
        let filters = announced.digest.as_ref().map_or(0, Digest::filters);
        let spare = if announced.is_due { filters } else { filters / 8 };
        drop(announced);
        let snapshot = router.snapshot();
        let made = snapshot.digest(counts, spare.max(SPARE_MIN));
        self.lock().replace(made, &snapshot, now, announce)
    }
}

/// Announcements from one opening of a broker to its closing: more than any pod makes.
const NUMBERS_PER_OPENING: u64 = 1 << 32;

impl Announced {
    /// `closings`: how many brokers this process has closed before this one was opened.
    pub(crate) fn begin(&mut self, closings: u64) {
        self.base = closings.wrapping_mul(NUMBERS_PER_OPENING);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.version == 0 && self.coming.is_none()
    }

    /// The announcement, if any, gets the number that `version` has afterwards.
    pub(crate) fn add(&mut self, codes: impl Iterator<Item = Code>) -> FilterAnnouncement {
        let codes: Vec<Code> = codes.collect();
        self.coming.iter_mut().for_each(|coming| coming.extend(&codes));
        let Some(digest) = &self.digest else { return FilterAnnouncement::None };
        let (mut new, mut fits) = (Vec::new(), true);
        for code in codes {
            match digest.insert(code) {
                Ok(true) => new.push(code),
                Ok(false) => {}
                Err(TooMany) => fits = false,
            }
        }
        if !fits {
            self.digest = None;
        }
        let news = match () {
            () if !fits => FilterAnnouncement::Everything,
            () if new.is_empty() => return FilterAnnouncement::None,
            () => FilterAnnouncement::Filters(new),
        };
        self.version += 1;
        news
    }

    /// Returns true once when the digest becomes full: it must be rebuilt at once.
    pub(crate) fn is_full(&mut self) -> bool {
        let is_full = self.digest.as_ref().is_some_and(Digest::is_full);
        is_full && !std::mem::replace(&mut self.is_due, true)
    }

    /// Returns the number of the last announcement at the previous check, a second ago, and remembers the current one. Pods that
    /// have not confirmed it are late.
    pub(crate) fn look(&mut self) -> u64 {
        std::mem::replace(&mut self.looked_at, self.version)
    }

    /// Whether filters may have been removed for some time, or the digest is full.
    pub(crate) fn is_old(&self, generation: u64, now: Millis) -> bool {
        let age_ms = AGE_MS + (self.size / FILTERS_PER_MS) as Millis;
        self.version > 0 && (self.is_due || (self.generation != generation && now >= self.made_at + age_ms))
    }

    /// Returns false if the digest equals the old one.
    fn replace(
        &mut self,
        made: Result<Digest, TooMany>,
        snapshot: &Snapshot,
        now: Millis,
        announce: impl FnOnce(&Self),
    ) -> bool {
        let coming = self.coming.take().unwrap_or_default();
        let made = made.and_then(|made| {
            coming.into_iter().try_for_each(|code| made.insert(code).map(drop)).map(|()| made)
        });
        let digest = made.ok();
        self.size = digest.as_ref().map_or(snapshot.subscriptions(), Digest::filters);
        (self.generation, self.made_at, self.is_due) = (snapshot.generation(), now, false);
        let is_same = match (&self.digest, &digest) {
            (Some(old), Some(new)) => old.is_same(new),
            (old, new) => old.is_none() && new.is_none(),
        };
        if is_same && self.version > 0 {
            return false;
        }
        self.digest = digest;
        self.version = self.version.max(self.base) + 1;
        announce(self);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_mqtt::QoS;
    use millrace_mqtt::topic::Filter;
    use millrace_router::{Subscription, Target, TopicCode};

    fn add(own: &OwnAnnouncements, filters: &[&str]) -> FilterAnnouncement {
        own.lock().add(filters.iter().map(|filter| Code::of(Filter::parse(filter).unwrap())))
    }

    fn subscribe(router: &Router, filter: &str, slot: u32) {
        let target = Target { core: 0, slot, generation: 0 };
        let (qos, identifier) = (QoS::AtMostOnce, 0);
        let [no_local, retain_as_published, persistent] = [false; 3];
        let subscription =
            Subscription { target, qos, no_local, retain_as_published, persistent, identifier };
        router.subscribe(Filter::parse(filter).unwrap(), subscription);
    }

    /// Makes a digest; true when it was announced.
    fn make(own: &OwnAnnouncements, router: &Router, now: Millis) -> bool {
        let mut is_announced = false;
        own.make(router, now, |_| true, |_| is_announced = true);
        is_announced
    }

    fn may_match(own: &OwnAnnouncements, topic: &str) -> bool {
        own.lock().digest.as_ref().is_none_or(|digest| digest.may_match(&TopicCode::of(topic), true))
    }

    #[test]
    fn nothing_is_kept_before_somebody_asks_and_then_each_filter_is_announced_once() {
        let (own, router) = (OwnAnnouncements::default(), Router::new());
        subscribe(&router, "a/+", 1);
        assert_eq!((add(&own, &["a/+"]), own.lock().version), (FilterAnnouncement::None, 0));
        assert!(make(&own, &router, 0));
        assert_eq!((add(&own, &["a/+"]), own.lock().version), (FilterAnnouncement::None, 1));
        let FilterAnnouncement::Filters(new) = add(&own, &["a/+", "b", "b"]) else { panic!("b is new") };
        assert_eq!((new.len(), own.lock().version), (1, 2));
        assert_eq!((may_match(&own, "b"), may_match(&own, "c")), (true, false));
    }

    #[test]
    fn a_filter_that_comes_while_a_digest_is_made_is_in_it() {
        let (own, router) = (OwnAnnouncements::default(), Router::new());
        // It is looked at after the snapshot was taken.
        subscribe(&router, "$share/g/s", 1);
        for (round, filter) in [(0, "first"), (1, "later")] {
            own.make(
                &router,
                round,
                |_| {
                    subscribe(&router, filter, 2);
                    add(&own, &[filter]);
                    true
                },
                |_| {},
            );
            assert!(may_match(&own, filter), "{filter}");
        }
    }

    #[test]
    fn what_has_gone_is_announced_after_a_while_and_what_is_the_same_is_not() {
        let (own, router) = (OwnAnnouncements::default(), Router::new());
        let is_old = |now| own.lock().is_old(router.generation(), now);
        assert!(!is_old(AGE_MS), "nobody has asked");
        subscribe(&router, "a", 1);
        assert!(make(&own, &router, 0));
        assert!(!is_old(AGE_MS), "nothing has changed");
        subscribe(&router, "a", 2);
        assert!(!is_old(AGE_MS - 1) && is_old(AGE_MS));
        assert!(!make(&own, &router, AGE_MS), "another subscriber of the same filter");
        router.edit(|edit| {
            for slot in [1, 2] {
                let target = Target { core: 0, slot, generation: 0 };
                edit.unsubscribe(Filter { share: None, filter: "a" }, target);
            }
        });
        assert!(may_match(&own, "a") && is_old(3 * AGE_MS));
        assert!(make(&own, &router, 3 * AGE_MS) && !may_match(&own, "a"));
    }

    #[test]
    fn a_full_digest_is_due_once_and_gets_twice_the_room() {
        let (own, router) = (OwnAnnouncements::default(), Router::new());
        make(&own, &router, 0);
        let mut number = 0;
        let mut until_full = || {
            let before = number;
            while !own.lock().is_full() {
                let filter = format!("f/{number}");
                subscribe(&router, &filter, number);
                add(&own, &[&filter]);
                number += 1;
            }
            number - before
        };
        let first = until_full();
        assert!(first as usize >= SPARE_MIN && !own.lock().is_full() && own.lock().is_old(0, 0));
        assert!(make(&own, &router, 0));
        assert!(until_full() > first && (0..first).all(|number| may_match(&own, &format!("f/{number}"))));
    }

    #[test]
    fn filters_that_do_not_fit_are_everything_until_they_have_gone() {
        let (own, router) = (OwnAnnouncements::default(), Router::new());
        make(&own, &router, 0);
        let shapes: Vec<String> =
            (0..=millrace_router::SHAPES_MAX).map(|level| "+/".repeat(level) + "#").collect();
        let news: Vec<FilterAnnouncement> = shapes.iter().map(|shape| add(&own, &[shape])).collect();
        assert_eq!(news.last(), Some(&FilterAnnouncement::Everything));
        assert!(may_match(&own, "$SYS/whatever"));
        assert_eq!(add(&own, &["a"]), FilterAnnouncement::None, "it is announced already");
        assert!(make(&own, &router, 1) && !may_match(&own, "a"));
    }
}
