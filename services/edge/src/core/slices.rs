//! Work on all brokers or all sessions, a slice at a time: a loop never visits all of them in one turn.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::Range;

use super::access_changes::AccessChanges;
use super::by_broker::{ByBroker, ClientsVisit};
use super::connection::NONE;
use super::files::FilesChange;
use super::timers::DueTimer;
use super::{Core, work};
use crate::broker::Broker;
use crate::clock::Millis;

const SESSIONS_PER_SLICE: usize = 2_048;
/// Each has some ten `$SYS` topics.
const SYS_BROKERS_PER_SLICE: usize = 8;
/// Open brokers per slice that are searched for those in use: others publish no `$SYS` topics.
const SYS_BROKERS_SEEN: usize = 500;
const SLICE_EVERY_MS: Millis = 2;
/// Shortest interval of passes over the sessions of one broker, however many notices of other pods are lost.
const AROUND_MS: Millis = 1_000;

#[derive(Default)]
pub(super) struct Slices {
    /// A pass over all sessions: each reads messages whose notice may be lost.
    around: Option<Around>,
    /// The same for the sessions of single brokers.
    around_brokers: BTreeMap<u64, ClientsVisit>,
    last_broker: u64,
    /// Brokers whose pass began within [`AROUND_MS`], and whether another one must follow.
    listed: HashMap<u64, bool>,
    /// The same brokers with the times at which their passes began, the earliest first.
    listed_at: VecDeque<(Millis, u64)>,
    /// Whether sessions must now read messages that they took as copies some time ago, see [`Core::read_behind`].
    pub(super) behind: bool,
    sys: Option<u64>,
    pub(super) access: AccessChanges,
    pub(super) files: VecDeque<FilesChange>,
    last_ms: Millis,
}

/// A pass over the slots of all sessions. A new pass replaces one that has not ended: it continues at the same slot, and visits the
/// earlier slots last. So each session is visited, however often passes begin.
#[derive(Clone, Copy)]
struct Around {
    next: usize,
    end: usize,
    /// After `end`, the pass visits the slots below this one again.
    again: usize,
}

impl Around {
    fn begin(present: Option<Self>) -> Self {
        let next = present.map_or(0, |present| present.next);
        Self { next, end: usize::MAX, again: next }
    }

    fn is_to_visit(&self, session: usize) -> bool {
        (self.next..self.end).contains(&session) || session < self.again
    }

    fn take(self, capacity: usize) -> (Range<usize>, Option<Self>) {
        let end = self.end.min(capacity);
        let slice = self.next..(self.next + SESSIONS_PER_SLICE).min(end).max(self.next);
        let rest = match self {
            _ if slice.end < end => Some(Self { next: slice.end, ..self }),
            Self { again: 0, .. } => None,
            Self { again, .. } => Some(Self { next: 0, end: again, again: 0 }),
        };
        (slice, rest)
    }
}

impl Slices {
    fn is_idle(&self) -> bool {
        self.around.is_none()
            && self.around_brokers.is_empty()
            && !self.behind
            && self.sys.is_none()
            && self.access.is_empty()
            && self.files.is_empty()
    }

    /// When [`Core::next_slices`] has something to do.
    pub(super) fn next_at(&self) -> Option<Millis> {
        let at = if self.is_idle() { self.listed_at.front()?.0 + AROUND_MS } else { 0 };
        Some(at.max(self.last_ms + SLICE_EVERY_MS))
    }

    /// Whether a pass over the broker's sessions may begin now. Otherwise one began within [`AROUND_MS`], and the next follows then.
    fn begin_around(&mut self, broker: u64, now_ms: Millis) -> bool {
        if let Some(again) = self.listed.get_mut(&broker) {
            *again = true;
            return false;
        }
        self.listed.insert(broker, false);
        self.listed_at.push_back((now_ms, broker));
        true
    }

    fn next_again(&mut self, now_ms: Millis) -> Option<u64> {
        while let Some((_, broker)) = self.listed_at.pop_front_if(|(at, _)| now_ms >= *at + AROUND_MS) {
            // A pass that takes longer ends before the next one begins.
            let is_visited = self.around_brokers.contains_key(&broker);
            if !is_visited && self.listed.remove(&broker) == Some(false) {
                continue;
            }
            self.listed_at.push_back((now_ms, broker));
            if !is_visited {
                self.listed.insert(broker, false);
                return Some(broker);
            }
        }
        None
    }

    /// Whether a pass has yet to visit the session, which takes no copy before: a notice of an earlier message may be lost (P4).
    pub(super) fn are_to_visit(&self, broker: u64, session: u32) -> bool {
        self.around.is_some_and(|around| around.is_to_visit(session as usize))
            || self.around_brokers.contains_key(&broker)
            || self.listed.get(&broker) == Some(&true)
    }

    fn begin_visit(&mut self, broker: u64) {
        let present = self.around_brokers.get(&broker).copied();
        self.around_brokers.insert(broker, ClientsVisit::begin(present));
    }

    /// Clients of the next broker whose sessions are to be visited.
    fn next_of_brokers(&mut self, by_broker: &ByBroker) -> Option<(u64, Vec<u32>)> {
        let after = self.around_brokers.range((Excluded(self.last_broker), Unbounded)).next();
        let broker = *after.or_else(|| self.around_brokers.first_key_value())?.0;
        self.last_broker = broker;
        let visit = self.around_brokers.get_mut(&broker)?;
        let slots: Vec<u32> =
            std::iter::from_fn(|| by_broker.next(broker, visit)).take(SESSIONS_PER_SLICE).collect();
        if slots.len() < SESSIONS_PER_SLICE {
            self.around_brokers.remove(&broker);
        }
        Some((broker, slots))
    }
}

impl Core {
    /// Makes the sessions of a broker, or all, read their streams, because notices of messages may be lost.
    pub(super) fn look_around(&mut self, broker: Option<u64>) {
        let Some(broker) = broker else {
            let around = &mut self.unfinished.slices.around;
            *around = Some(Around::begin(*around));
            return;
        };
        if self.unfinished.slices.begin_around(broker, self.now_ms) {
            self.unfinished.slices.begin_visit(broker);
        }
    }

    pub(super) fn publish_sys(&mut self) {
        self.unfinished.slices.sys.get_or_insert(0);
        let interval = u32::from(self.process.limits.sys_interval_s);
        self.calendar.add(self.now + interval, DueTimer::Sys);
    }

    pub(super) fn next_slices(&mut self) {
        if self.unfinished.slices.next_at().is_none_or(|at| self.now_ms < at) {
            return;
        }
        self.unfinished.slices.last_ms = self.now_ms;
        if let Some(around) = self.unfinished.slices.around {
            let (slice, rest) = around.take(self.sessions.capacity());
            self.unfinished.slices.around = rest;
            self.look_at(slice.map(|session| u32::try_from(session).unwrap_or(NONE)));
        }
        if let Some(broker) = self.unfinished.slices.next_again(self.now_ms) {
            self.unfinished.slices.begin_visit(broker);
        }
        if let Some((broker, slots)) = self.unfinished.slices.next_of_brokers(&self.by_broker) {
            let began = self.begin_work(|_| broker);
            let sessions: Vec<u32> =
                slots.into_iter().map(|slot| self.connections[slot as usize].session).collect();
            self.look_at(sessions);
            self.end_work(began);
        }
        if let Some(broker) = self.unfinished.slices.access.next() {
            let began = self.begin_work(|_| broker);
            self.visit_changed();
            self.end_work(began);
        }
        self.visit_after_files();
        if self.unfinished.slices.behind {
            self.unfinished.slices.behind = self.read_behind(SESSIONS_PER_SLICE);
        }
        if let Some(from) = self.unfinished.slices.sys {
            let mut seen = 0;
            let is_in_use = |broker: &Broker| {
                seen += work::SEEN;
                broker.has_clients() || broker.stays_open()
            };
            let (brokers, next) =
                self.process.brokers.page(from, SYS_BROKERS_SEEN, SYS_BROKERS_PER_SLICE, is_in_use);
            self.spend(seen);
            self.unfinished.slices.sys = next;
            for broker in brokers {
                self.publish_sys_of(&broker);
            }
        }
    }

    fn look_at(&mut self, sessions: impl IntoIterator<Item = u32>) {
        for session in sessions {
            self.spend(work::SEEN);
            let persistent =
                self.sessions.get_mut(session as usize).and_then(|local| local.persistent.as_deref_mut());
            if persistent.is_some_and(|persistent| persistent.follows() && persistent.grow()) {
                self.read_on(session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_broker(clients: &[(u64, Range<u32>)]) -> ByBroker {
        let mut by_broker = ByBroker::default();
        for (broker, slots) in clients {
            slots.clone().for_each(|slot| by_broker.add(*broker, slot));
        }
        by_broker
    }

    #[test]
    fn a_session_takes_no_copy_until_it_was_visited() {
        let mut slices = Slices::default();
        assert!(!slices.are_to_visit(7, 0));
        slices.around = Some(Around { next: 10, ..Around::begin(None) });
        assert_eq!([9, 10, 11].map(|session| slices.are_to_visit(7, session)), [false, true, true]);
        slices.around = None;
        slices.begin_visit(7);
        assert_eq!([7, 8].map(|broker| slices.are_to_visit(broker, 5)), [true, false]);
        assert_eq!(slices.next_of_brokers(&by_broker(&[(7, 5..6)])), Some((7, vec![5])));
        assert!(!slices.are_to_visit(7, 5));
    }

    #[test]
    fn however_often_a_look_at_all_sessions_begins_each_session_is_visited() {
        const CAPACITY: usize = 3 * SESSIONS_PER_SLICE + 5;
        let (mut around, mut visited) = (None, vec![0_u32; CAPACITY]);
        let visit = |around: Option<Around>, visited: &mut [u32]| {
            let (slice, rest) = around.unwrap().take(CAPACITY);
            assert!(slice.len() <= SESSIONS_PER_SLICE);
            slice.for_each(|session| visited[session] += 1);
            rest
        };
        for _ in 0..8 {
            around = visit(Some(Around::begin(around)), &mut visited);
        }
        assert!(visited.iter().all(|times| *times == 2), "two passes");
        // The last one begins anew in the middle of a pass.
        let (middle, _) = Around::begin(None).take(CAPACITY);
        around = Some(Around::begin(Around::begin(None).take(CAPACITY).1));
        let mut is_due: Vec<bool> = vec![true; CAPACITY];
        assert!((0..CAPACITY).all(|session| around.unwrap().is_to_visit(session)));
        visited.fill(0);
        while around.is_some() {
            let before = visited.clone();
            around = visit(around, &mut visited);
            for session in 0..CAPACITY {
                is_due[session] &= visited[session] == before[session];
                assert_eq!(around.is_some_and(|around| around.is_to_visit(session)), is_due[session]);
            }
        }
        assert!(visited.iter().all(|times| *times == 1) && middle == (0..SESSIONS_PER_SLICE));
    }

    #[test]
    fn a_broker_that_is_asked_for_again_and_again_delays_no_other() {
        let mut slices = Slices::default();
        let by_broker = by_broker(&[(1, 10..11), (8, 0..2 * SESSIONS_PER_SLICE as u32), (9, 90..91)]);
        [8, 9].into_iter().for_each(|broker| slices.begin_visit(broker));
        let visited: Vec<u64> = (0..5)
            .map(|_| {
                slices.begin_visit(1);
                slices.next_of_brokers(&by_broker).unwrap().0
            })
            .collect();
        assert_eq!(visited, [1, 8, 9, 1, 8]);
    }

    #[test]
    fn any_number_of_gaps_of_a_broker_make_one_look_a_second() {
        let mut slices = Slices::default();
        let by_broker = by_broker(&[(7, 5..6)]);
        let gap = |slices: &mut Slices, now_ms| {
            if slices.begin_around(7, now_ms) {
                slices.begin_visit(7);
            }
        };
        let looks = |slices: &mut Slices, now_ms| {
            if let Some(broker) = slices.next_again(now_ms) {
                slices.begin_visit(broker);
            }
            slices.next_of_brokers(&by_broker).is_some()
        };
        let mut times = Vec::new();
        for now_ms in 0..2_500 {
            gap(&mut slices, now_ms);
            assert!(slices.are_to_visit(7, 5), "an earlier message may be missing");
            times.extend(looks(&mut slices, now_ms).then_some(now_ms));
        }
        assert_eq!(times, [0, 1_000, 2_000]);
        assert!(looks(&mut slices, 3_000) && !slices.are_to_visit(7, 5), "the last gaps count, too");
        assert!(!looks(&mut slices, 4_000) && slices.next_at().is_none());
    }

    #[test]
    fn nothing_is_to_do_between_the_visits_and_the_next_listing() {
        let mut slices = Slices::default();
        assert!(slices.begin_around(7, 5));
        assert!(!slices.begin_around(7, 6));
        assert_eq!(slices.next_at(), Some(5 + AROUND_MS));
        slices.begin_visit(8);
        assert_eq!(slices.next_at(), Some(SLICE_EVERY_MS));
    }

    #[test]
    fn gaps_do_not_begin_a_look_again_that_takes_longer_than_a_second() {
        let mut slices = Slices::default();
        let by_broker = by_broker(&[(7, 0..2 * SESSIONS_PER_SLICE as u32 - 1)]);
        assert!(slices.begin_around(7, 0));
        slices.begin_visit(7);
        assert!(!slices.begin_around(7, 1));
        assert_eq!(slices.next_of_brokers(&by_broker).unwrap().1.len(), SESSIONS_PER_SLICE);
        assert_eq!(slices.next_again(1_000), None);
        assert_eq!(slices.next_of_brokers(&by_broker).unwrap().1.len(), SESSIONS_PER_SLICE - 1);
        assert!(slices.are_to_visit(7, 5));
        assert_eq!(slices.next_again(2_000), Some(7));
    }

    #[test]
    fn a_gap_after_a_second_does_not_begin_a_look_again_that_is_not_finished() {
        let mut slices = Slices::default();
        let by_broker = by_broker(&[(7, 0..SESSIONS_PER_SLICE as u32 - 1)]);
        assert!(slices.begin_around(7, 0));
        slices.begin_visit(7);
        assert_eq!(slices.next_again(1_000), None);
        assert!(!slices.begin_around(7, 1_100));
        assert_eq!(slices.next_of_brokers(&by_broker).unwrap().1.len(), SESSIONS_PER_SLICE - 1);
        assert!(slices.are_to_visit(7, 5));
        assert_eq!(slices.next_again(2_000), Some(7));
        assert_eq!((slices.next_again(3_000), slices.listed.len()), (None, 0));
    }
}
