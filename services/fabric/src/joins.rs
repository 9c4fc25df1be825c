//! Joins that some pods have not confirmed yet. A pod announces the receivers that it joins, and
//! waits until every other pod has answered the announcement.

use std::collections::VecDeque;

use crate::address::{PodId, To};
use crate::clock::Millis;

/// Milliseconds to wait for answers before the announcement is repeated.
const ANSWER_MS_MAX: u64 = 1000;
/// Repetitions of an announcement. Even with the longest outage they end before a sender forgets a
/// receiver.
const TRIES_MAX: u32 = 20;

#[derive(Debug)]
pub(crate) struct JoinAnnouncement {
    pub(crate) number: u64,
    pub(crate) list: Vec<To>,
    pub(crate) waits_for: Vec<PodId>,
    since: Millis,
    tries: u32,
}

#[derive(Default)]
pub(crate) struct Joins {
    next: u64,
    open: Vec<JoinAnnouncement>,
    /// The time by which each join must be reported.
    unreported: VecDeque<(Millis, To)>,
}

#[derive(Default)]
pub(crate) struct JoinOutcome {
    pub(crate) complete: Vec<JoinAnnouncement>,
    /// Some pods did not answer in time. The repetition keeps its number, because their answers may
    /// just be late.
    pub(crate) unanswered: Vec<JoinAnnouncement>,
    pub(crate) failed: Vec<JoinAnnouncement>,
}

impl Joins {
    pub(crate) fn requested(&mut self, to: To, report_at: Millis) {
        self.unreported.push_back((report_at, to));
    }

    pub(crate) fn announce(&mut self, list: Vec<To>, waits_for: Vec<PodId>, now: Millis) -> u64 {
        self.next += 1;
        self.open.push(JoinAnnouncement { number: self.next, list, waits_for, since: now, tries: 0 });
        self.next
    }

    pub(crate) fn repeat(&mut self, announcement: JoinAnnouncement, now: Millis) {
        self.open.push(JoinAnnouncement { since: now, tries: announcement.tries + 1, ..announcement });
    }

    /// Forgets all announcements; the caller announces everything again.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }

    /// Returns the receivers of the announcement that `from` answers.
    pub(crate) fn answered(&mut self, number: u64, from: PodId) -> Option<&[To]> {
        let announcement = self.open.iter_mut().find(|announcement| announcement.number == number)?;
        announcement.waits_for.retain(|pod| *pod != from);
        Some(&announcement.list)
    }

    /// Waits for `pod`, too, which was unknown when the announcements were made.
    pub(crate) fn pod_found(&mut self, pod: PodId) {
        for announcement in &mut self.open {
            if !announcement.waits_for.contains(&pod) {
                announcement.waits_for.push(pod);
            }
        }
    }

    pub(crate) fn unanswered(&self, pod: PodId) -> impl Iterator<Item = (u64, &[To])> {
        let waiting = self.open.iter().filter(move |announcement| announcement.waits_for.contains(&pod));
        waiting.map(|announcement| (announcement.number, &*announcement.list))
    }

    pub(crate) fn pod_gone(&mut self, pod: PodId) {
        self.open.iter_mut().for_each(|announcement| announcement.waits_for.retain(|other| *other != pod));
    }

    pub(crate) fn waits_for(&self, pod: PodId) -> bool {
        self.unanswered(pod).next().is_some()
    }

    /// Takes the announcements that are answered, and those that waited long enough for answers.
    pub(crate) fn outcome(&mut self, now: Millis) -> JoinOutcome {
        let mut outcome = JoinOutcome::default();
        let is_over = |announcement: &mut JoinAnnouncement| {
            announcement.waits_for.is_empty() || now - announcement.since >= ANSWER_MS_MAX
        };
        for announcement in self.open.extract_if(.., is_over) {
            if announcement.waits_for.is_empty() {
                outcome.complete.push(announcement);
            } else if announcement.tries < TRIES_MAX {
                outcome.unanswered.push(announcement);
            } else {
                outcome.failed.push(announcement);
            }
        }
        outcome
    }

    /// Takes a join that must be reported by now, whatever was answered.
    pub(crate) fn overdue(&mut self, now: Millis) -> Option<To> {
        let (_, to) = self.unreported.pop_front_if(|(at, _)| *at <= now)?;
        Some(to)
    }
}
