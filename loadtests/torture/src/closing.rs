//! Decides when the last phase of a run ends: after the last delivery, when something counts as lost, or without a verdict.
//!
//! In: the time, the number of arrivals, and the history. Out: a [`ClosingStep`]. The caller owns the clock and the clients.

use crate::checker::{self, CheckRule, Verdict};
use crate::history::History;

/// The rate of arrivals is measured over one to two of these windows, ms.
const RATE_WINDOW_MS: u64 = 10_000;

/// The arrivals of a wait: deliveries and answers that a server owes.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    arrived: usize,
    last_ms: u64,
    /// Beginnings of the previous and of the current window, with the arrivals until then.
    windows: [(u64, usize); 2],
}

impl Flow {
    #[must_use]
    pub fn new(now_ms: u64, arrived: usize) -> Self {
        Self { arrived, last_ms: now_ms, windows: [(now_ms, arrived); 2] }
    }

    /// Returns the milliseconds since the last arrival.
    pub fn look(&mut self, now_ms: u64, arrived: usize) -> u64 {
        if arrived != self.arrived {
            (self.arrived, self.last_ms) = (arrived, now_ms);
        }
        if now_ms >= self.windows[1].0 + RATE_WINDOW_MS {
            self.windows = [self.windows[1], (now_ms, arrived)];
        }
        now_ms.saturating_sub(self.last_ms)
    }

    #[must_use]
    pub fn per_s(&self, now_ms: u64) -> u64 {
        let (since_ms, before) = self.windows[0];
        (self.arrived - before) as u64 * 1_000 / now_ms.saturating_sub(since_ms).max(1)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ClosingTimes {
    /// Time without arrivals after which a run ends in which nothing is missing.
    pub quiet_ms: u64,
    /// Time without arrivals after which a missing message counts as lost; at least `quiet_ms`.
    pub lost_ms: u64,
    /// The wait ends after this time, though messages still arrive.
    pub limit_ms: u64,
}

#[derive(Debug)]
pub enum ClosingStep {
    Waits,
    Ends(Verdict),
    /// The limit is over and messages still arrive, so the `left` ones are late and not lost.
    StillDelivering {
        per_s: u64,
        left: usize,
    },
}

pub struct ClosingPhase {
    times: ClosingTimes,
    ends_ms: u64,
    flow: Flow,
    /// Arrivals when the history was last checked: another check would find the same.
    checked: Option<usize>,
}

impl ClosingPhase {
    #[must_use]
    pub fn new(times: ClosingTimes, now_ms: u64, arrived: usize) -> Self {
        Self { times, ends_ms: now_ms + times.limit_ms, flow: Flow::new(now_ms, arrived), checked: None }
    }

    /// `is_settled`: each request of the clients is answered.
    pub fn step(&mut self, now_ms: u64, arrived: usize, is_settled: bool, history: &History) -> ClosingStep {
        let quiet_ms = self.flow.look(now_ms, arrived);
        if quiet_ms >= self.times.lost_ms {
            return ClosingStep::Ends(checker::check(history));
        }
        let is_quiet = is_settled && quiet_ms >= self.times.quiet_ms && self.checked != Some(arrived);
        let is_over = now_ms >= self.ends_ms;
        if !is_quiet && !is_over {
            return ClosingStep::Waits;
        }
        self.checked = Some(arrived);
        let verdict = checker::check(history);
        match missing(&verdict) {
            0 if is_settled => ClosingStep::Ends(verdict),
            left if is_over => ClosingStep::StillDelivering { per_s: self.flow.per_s(now_ms), left },
            _ => ClosingStep::Waits,
        }
    }
}

fn missing(verdict: &Verdict) -> usize {
    let late = |rule| matches!(rule, CheckRule::Missing | CheckRule::WillLost | CheckRule::Unanswered);
    verdict.violations.iter().filter(|violation| late(violation.rule)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::story::Story;
    use crate::history::{ConnectionId, MessageId};

    const TIMES: ClosingTimes = ClosingTimes { quiet_ms: 2_000, lost_ms: 30_000, limit_ms: 1_800_000 };
    const STEP_MS: u64 = 100;

    /// A subscriber to which the server owes `owed` messages.
    fn story(owed: usize) -> (Story, ConnectionId, Vec<MessageId>) {
        let mut story = Story::default();
        let (ann, bob) = (story.client("ann", true), story.client("bob", true));
        let (subscriber, publisher) = (story.connect(ann, false), story.connect(bob, false));
        story.subscribe(subscriber, "data/#", 1);
        let messages = (0..owed).map(|_| story.publish(publisher, "data/t", 1)).collect();
        (story, subscriber, messages)
    }

    /// Delivers `delivered` of `owed` messages, one every `every_ms`. Returns how the phase ended, and when.
    fn close(times: ClosingTimes, owed: usize, delivered: usize, every_ms: u64) -> (ClosingStep, u64) {
        let (mut story, subscriber, messages) = story(owed);
        let (mut closing, mut arrived, mut now_ms) = (ClosingPhase::new(times, 0, 0), 0, 0);
        loop {
            now_ms += STEP_MS;
            story.wait(STEP_MS);
            if arrived < delivered && now_ms % every_ms == 0 {
                story.receive(subscriber, messages[arrived], 1);
                arrived += 1;
            }
            match closing.step(now_ms, arrived, true, &story.history) {
                ClosingStep::Waits => assert!(now_ms < 10_000_000, "the phase does not end"),
                end => return (end, now_ms),
            }
        }
    }

    fn rules(end: &ClosingStep) -> Vec<CheckRule> {
        let ClosingStep::Ends(verdict) = end else { panic!("{end:?}") };
        verdict.violations.iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn a_run_waits_for_messages_that_arrive_slowly_and_for_long() {
        for every_ms in [500, 5_000, 29_000] {
            let owed = 300_000 / every_ms as usize;
            let (end, ended_ms) = close(TIMES, owed, owed, every_ms);
            assert_eq!((rules(&end), ended_ms), (vec![], owed as u64 * every_ms + TIMES.quiet_ms));
        }
    }

    #[test]
    fn a_message_is_lost_once_nothing_arrived_for_the_stated_time() {
        let (end, ended_ms) = close(TIMES, 100, 99, 500);
        assert_eq!((rules(&end), ended_ms), (vec![CheckRule::Missing], 99 * 500 + TIMES.lost_ms));
        let (end, ended_ms) = close(ClosingTimes { lost_ms: 2_000, ..TIMES }, 2, 0, 500);
        assert_eq!((rules(&end), ended_ms), (vec![CheckRule::Missing; 2], 2_000));
    }

    #[test]
    fn messages_that_still_arrive_at_the_limit_are_late_and_not_lost() {
        let (end, ended_ms) = close(ClosingTimes { limit_ms: 60_000, ..TIMES }, 1_000, 1_000, 500);
        let ClosingStep::StillDelivering { per_s, left } = end else { panic!("{end:?}") };
        assert_eq!((per_s, left, ended_ms), (2, 1_000 - 120, 60_000));
    }

    #[test]
    fn unanswered_requests_end_the_wait_when_nothing_arrives() {
        let (story, ..) = story(0);
        let mut closing = ClosingPhase::new(TIMES, 0, 0);
        let ends = |now_ms: u64| match closing.step(now_ms, 0, false, &story.history) {
            ClosingStep::Ends(_) => true,
            ClosingStep::Waits => false,
            end @ ClosingStep::StillDelivering { .. } => panic!("{end:?}"),
        };
        assert_eq!([2_000, 29_999, 30_000].map(ends), [false, false, true]);
    }
}
