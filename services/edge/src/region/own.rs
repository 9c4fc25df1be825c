//! What this pod has told of the filters of one broker.
//!
//! Nothing is told, and nothing is kept, before somebody asks: most brokers are on one pod. From then on every filter that is new is
//! told at once, and the digest is made anew when filters may have gone, or it is full.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millrace_router::{Code, Digest, Snapshot, TooMany};

use crate::broker::Broker;
use crate::clock::Millis;

/// Time between two makings of a digest, milliseconds: filters that have gone cost needless messages for so long.
const AGE_MS: Millis = 2_000;
/// And one more millisecond for so many filters: making takes one to two microseconds a filter when there are many, so it takes 2 %
/// of a core at most.
const FILTERS_PER_MS: usize = 10;
/// Filters that a digest has room for at least, beside those that are there.
const SPARE_MIN: usize = 100;

/// What this pod has told of the filters of one broker.
#[derive(Default)]
pub(crate) struct Own(Mutex<Told>);

/// Guarded so that what is sent last is what is true.
#[derive(Default)]
pub(super) struct Told {
    /// The number of what was told last; 0: nobody has asked.
    pub(super) version: u64,
    /// `None`: everything.
    pub(super) digest: Option<Digest>,
    /// While a digest is being made: filters that came since.
    coming: Option<Vec<Code>>,
    /// Of the router, when the digest was made.
    generation: u64,
    /// Filters that there were then, or subscriptions, when they did not fit.
    size: usize,
    made_at: Millis,
    /// The number at the last look.
    looked_at: u64,
    /// It is to be made anew now, and the keeper knows.
    is_due: bool,
}

/// What others are to be told of filters that have come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    None,
    Filters(Vec<Code>),
    /// They do not fit.
    Everything,
}

impl Own {
    pub(super) fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the digest of what `broker` has now, and tells it, unless it says the same as the one before.
    pub(super) fn make(
        &self,
        broker: &Broker,
        now: Millis,
        counts: impl Fn(&millrace_router::Group) -> bool,
        tell: impl FnOnce(&Told),
    ) {
        let mut told = self.lock();
        // First this, then the snapshot: what is not in it comes here.
        told.coming = Some(Vec::new());
        let filters = told.digest.as_ref().map_or(0, Digest::filters);
        let spare = if told.is_due { filters } else { filters / 8 };
        drop(told);
        let snapshot = broker.router.snapshot();
        let made = snapshot.digest(counts, spare.max(SPARE_MIN));
        if self.lock().replace(made, &snapshot, now, tell) {
            tracing::debug!(broker = &*broker.name, "told other pods what may be of interest here");
        }
    }
}

impl Told {
    /// Nobody has asked.
    pub(super) fn is_idle(&self) -> bool {
        self.version == 0 && self.coming.is_none()
    }

    /// Filters have come. What the others do not know yet is to be sent under the number that is in `version` then.
    pub(super) fn add(&mut self, codes: impl Iterator<Item = Code>) -> News {
        let codes: Vec<Code> = codes.collect();
        self.coming.iter_mut().for_each(|coming| coming.extend(&codes));
        let Some(digest) = &self.digest else { return News::None };
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
            () if !fits => News::Everything,
            () if new.is_empty() => return News::None,
            () => News::Filters(new),
        };
        self.version += 1;
        news
    }

    /// True when it is full for the first time: it is to be made anew at once.
    pub(super) fn is_full(&mut self) -> bool {
        let is_full = self.digest.as_ref().is_some_and(Digest::is_full);
        is_full && !std::mem::replace(&mut self.is_due, true)
    }

    /// The number of what was told before the last look.
    pub(super) fn look(&mut self) -> u64 {
        std::mem::replace(&mut self.looked_at, self.version)
    }

    /// Whether filters may have gone, for some time, or the digest is full.
    pub(super) fn is_old(&self, generation: u64, now: Millis) -> bool {
        let age_ms = AGE_MS + (self.size / FILTERS_PER_MS) as Millis;
        self.version > 0 && (self.is_due || (self.generation != generation && now >= self.made_at + age_ms))
    }

    /// Takes a new digest. False when it says what the old one did.
    fn replace(
        &mut self,
        made: Result<Digest, TooMany>,
        snapshot: &Snapshot,
        now: Millis,
        tell: impl FnOnce(&Self),
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
        self.version += 1;
        tell(self);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_mqtt::QoS;
    use millrace_mqtt::topic::Filter;
    use millrace_router::{Subscription, Target, TopicCode};

    fn add(own: &Own, filters: &[&str]) -> News {
        own.lock().add(filters.iter().map(|filter| Code::of(Filter::parse(filter).unwrap())))
    }

    fn subscribe(broker: &Broker, filter: &str, slot: u32) {
        let target = Target { core: 0, slot, generation: 0 };
        let (qos, identifier) = (QoS::AtMostOnce, 0);
        let [no_local, retain_as_published, kept] = [false; 3];
        let subscription = Subscription { target, qos, no_local, retain_as_published, kept, identifier };
        broker.router.subscribe(Filter::parse(filter).unwrap(), subscription);
    }

    /// Makes a digest; true when it was told.
    fn make(own: &Own, broker: &Broker, now: Millis) -> bool {
        let mut is_told = false;
        own.make(broker, now, |_| true, |_| is_told = true);
        is_told
    }

    fn may_match(own: &Own, topic: &str) -> bool {
        own.lock().digest.as_ref().is_none_or(|digest| digest.may_match(&TopicCode::of(topic), true))
    }

    #[test]
    fn nothing_is_kept_before_somebody_asks_and_then_each_filter_is_told_once() {
        let (own, broker) = (Own::default(), Broker::new(1, "acme", 1));
        subscribe(&broker, "a/+", 1);
        assert_eq!((add(&own, &["a/+"]), own.lock().version), (News::None, 0));
        assert!(make(&own, &broker, 0));
        assert_eq!((add(&own, &["a/+"]), own.lock().version), (News::None, 1));
        let News::Filters(new) = add(&own, &["a/+", "b", "b"]) else { panic!("b is new") };
        assert_eq!((new.len(), own.lock().version), (1, 2));
        assert_eq!((may_match(&own, "b"), may_match(&own, "c")), (true, false));
    }

    #[test]
    fn a_filter_that_comes_while_a_digest_is_made_is_in_it() {
        let (own, broker) = (Own::default(), Broker::new(1, "acme", 1));
        // It is looked at after the snapshot was taken.
        subscribe(&broker, "$share/g/s", 1);
        for (round, filter) in [(0, "first"), (1, "later")] {
            own.make(
                &broker,
                round,
                |_| {
                    subscribe(&broker, filter, 2);
                    add(&own, &[filter]);
                    true
                },
                |_| {},
            );
            assert!(may_match(&own, filter), "{filter}");
        }
    }

    #[test]
    fn what_has_gone_is_told_after_a_while_and_what_is_the_same_is_not() {
        let (own, broker) = (Own::default(), Broker::new(1, "acme", 1));
        let is_old = |now| own.lock().is_old(broker.router.generation(), now);
        assert!(!is_old(AGE_MS), "nobody has asked");
        subscribe(&broker, "a", 1);
        assert!(make(&own, &broker, 0));
        assert!(!is_old(AGE_MS), "nothing has changed");
        subscribe(&broker, "a", 2);
        assert!(!is_old(AGE_MS - 1) && is_old(AGE_MS));
        assert!(!make(&own, &broker, AGE_MS), "another subscriber of the same filter");
        broker.router.edit(|edit| {
            for slot in [1, 2] {
                let target = Target { core: 0, slot, generation: 0 };
                edit.unsubscribe(Filter { share: None, filter: "a" }, target);
            }
        });
        assert!(may_match(&own, "a") && is_old(3 * AGE_MS));
        assert!(make(&own, &broker, 3 * AGE_MS) && !may_match(&own, "a"));
    }

    #[test]
    fn a_full_digest_is_due_once_and_gets_twice_the_room() {
        let (own, broker) = (Own::default(), Broker::new(1, "acme", 1));
        make(&own, &broker, 0);
        let mut number = 0;
        let mut until_full = || {
            let before = number;
            while !own.lock().is_full() {
                let filter = format!("f/{number}");
                subscribe(&broker, &filter, number);
                add(&own, &[&filter]);
                number += 1;
            }
            number - before
        };
        let first = until_full();
        assert!(first as usize >= SPARE_MIN && !own.lock().is_full() && own.lock().is_old(0, 0));
        assert!(make(&own, &broker, 0));
        assert!(until_full() > first && (0..first).all(|number| may_match(&own, &format!("f/{number}"))));
    }

    #[test]
    fn filters_that_do_not_fit_are_everything_until_they_have_gone() {
        let (own, broker) = (Own::default(), Broker::new(1, "acme", 1));
        make(&own, &broker, 0);
        let shapes: Vec<String> =
            (0..=millrace_router::SHAPES_MAX).map(|level| "+/".repeat(level) + "#").collect();
        let news: Vec<News> = shapes.iter().map(|shape| add(&own, &[shape])).collect();
        assert_eq!(news.last(), Some(&News::Everything));
        assert!(may_match(&own, "$SYS/whatever"));
        assert_eq!(add(&own, &["a"]), News::None, "it is told already");
        assert!(make(&own, &broker, 1) && !may_match(&own, "a"));
    }
}
