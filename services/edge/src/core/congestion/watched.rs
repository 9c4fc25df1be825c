//! Whether most receivers of a publisher lag, over all its recent topics.
//!
//! A topic knows only its own receivers. If one of two topics has a slow reader, a pause would slow the readers of the other
//! topic, too. A publisher is watched from the first pause that a receiver asks for, so other publishers cost nothing.

use std::collections::HashMap;

use crate::clock::Millis;
use crate::connection_id::ConnectionId;
use crate::core::limits::{WATCHED_PUBLISHERS_MAX, WATCHED_RECEIVERS_MAX};
use crate::outbound::GRACE_MS;
use crate::routes::RouteProgress;

/// How long receivers count after their last message: several times as long as a pause, in which nobody gets messages.
const RECENT_MS: Millis = 5 * GRACE_MS;

#[derive(Default)]
pub(in crate::core) struct Watched {
    of: HashMap<ConnectionId, Vec<RecentProgress>, foldhash::fast::RandomState>,
}

/// Topics with the same receivers: how many accept messages (`moving`), and how many of these lag (`behind`).
struct RecentProgress {
    progress: RouteProgress,
    at: Millis,
    lagged_at: Millis,
}

impl Watched {
    #[inline]
    pub(in crate::core) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    #[inline]
    pub(in crate::core) fn note(
        &mut self,
        publisher: Option<ConnectionId>,
        progress: RouteProgress,
        now: Millis,
    ) {
        if !self.of.is_empty()
            && let Some(recent) = publisher.and_then(|id| self.of.get_mut(&id))
        {
            update(recent, progress, now);
        }
    }

    pub(in crate::core) fn are_most_behind(
        &mut self,
        publisher: ConnectionId,
        progress: RouteProgress,
        now: Millis,
    ) -> bool {
        if self.of.len() >= WATCHED_PUBLISHERS_MAX && !self.of.contains_key(&publisher) {
            // The topic decides by itself.
            return true;
        }
        let recent = self.of.entry(publisher).or_default();
        update(recent, progress, now);
        let sum = |of: fn(&RouteProgress) -> usize| recent.iter().map(|one| of(&one.progress)).sum::<usize>();
        sum(|progress| progress.behind) * 2 > sum(|progress| progress.moving)
    }

    pub(in crate::core) fn forget_old(&mut self, now: Millis) {
        self.of.retain(|_, recent| recent.iter().any(|one| now < one.lagged_at + RECENT_MS));
    }
}

fn update(recent: &mut Vec<RecentProgress>, progress: RouteProgress, now: Millis) {
    recent.retain(|one| now < one.at + RECENT_MS);
    for one in &mut *recent {
        if now >= one.lagged_at + GRACE_MS {
            one.progress.behind = 0;
        }
    }
    let found = recent.iter().position(|one| one.progress.receivers == progress.receivers);
    let index = found.unwrap_or_else(|| {
        if recent.len() >= WATCHED_RECEIVERS_MAX
            && let Some(oldest) = (0..recent.len()).min_by_key(|index| recent[*index].at)
        {
            recent.swap_remove(oldest);
        }
        recent.push(RecentProgress { progress, at: now, lagged_at: 0 });
        recent.len() - 1
    });
    let one = &mut recent[index];
    one.at = now;
    if progress.behind > 0 {
        (one.progress, one.lagged_at) = (progress, now);
    } else {
        one.progress.moving = progress.moving;
    }
}

#[cfg(test)]
mod tests {
    use millrace_router::Target;

    use super::*;

    const ANN: ConnectionId = ConnectionId { core: 0, slot: 1, generation: 1 };

    fn one(slot: u32, behind: usize) -> RouteProgress {
        RouteProgress::of_one(Target { core: 0, slot, generation: 1 }, behind)
    }

    #[test]
    fn receivers_of_all_recent_topics_count() {
        let mut watched = Watched::default();
        watched.note(Some(ANN), one(2, 0), 1_000);
        assert!(watched.is_empty() && watched.are_most_behind(ANN, one(1, 1), 1_000), "the only one known");
        watched.note(Some(ANN), one(2, 0), 2_000);
        assert!(!watched.are_most_behind(ANN, one(1, 1), 2_100), "one of two");
        assert!(watched.are_most_behind(ANN, one(2, 1), 2_200), "both");
        watched.note(Some(ANN), one(2, 0), 2_300);
        assert!(watched.are_most_behind(ANN, one(1, 1), 2_400));
        assert!(!watched.are_most_behind(ANN, one(1, 1), 2_200 + GRACE_MS));
        assert!(watched.are_most_behind(ANN, one(1, 1), 2_300 + RECENT_MS), "the other topic is not recent");
    }

    #[test]
    fn publishers_and_their_receivers_are_limited() {
        let mut watched = Watched::default();
        assert!(watched.are_most_behind(ANN, one(0, 1), 1_000));
        (1..1_000).for_each(|slot| watched.note(Some(ANN), one(slot, 0), 1_000));
        assert_eq!(watched.of[&ANN].len(), WATCHED_RECEIVERS_MAX);
        assert!(!watched.are_most_behind(ANN, one(0, 1), 1_001));
        for slot in 2..2 * WATCHED_PUBLISHERS_MAX {
            let id = ConnectionId { slot: u32::try_from(slot).unwrap(), ..ANN };
            assert!(watched.are_most_behind(id, one(0, 1), 1_002));
        }
        assert_eq!(watched.of.len(), WATCHED_PUBLISHERS_MAX);
        watched.forget_old(1_002 + RECENT_MS);
        assert!(watched.is_empty());
    }
}
