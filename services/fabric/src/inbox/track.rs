//! Tracks the numbers of one sender, to find lost messages.

use crate::clock::Millis;
use crate::frame::{Numbers, SenderPosition};

/// Missing ranges remembered until a sender answers; the oldest are forgotten uncounted, because losses before the answer need not
/// show.
const HOLES_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Track {
    generation: u64,
    next: u64,
    since: Since,
    pub(super) last_seen_at: Millis,
}

/// The number from which on every message must arrive. The sender sends earlier messages only by
/// chance, because it did not know of the join.
#[derive(Debug)]
enum Since {
    Number(u64),
    /// Unknown until the sender answers. Meanwhile these ranges are missing, each up to a number
    /// that arrived.
    Unknown(Vec<(u64, u64)>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum BatchArrival {
    /// The batch counts; `missing` messages before it are lost.
    Take { missing: u64 },
    /// The batch is not used: it was reported as missing when a later batch overtook it.
    Late,
}

impl Track {
    /// Starts at the first batch of a sender. With `is_confirmed`, the sender knew of the join before its message 0, so every earlier
    /// message is missing.
    pub(super) fn new(numbers: Numbers, is_confirmed: bool, now: Millis) -> (Self, BatchArrival) {
        let since = if is_confirmed { Since::Number(0) } else { Since::Unknown(Vec::new()) };
        let mut track = Self { generation: numbers.generation, next: 0, since, last_seen_at: now };
        let arrival = track.take(numbers, now);
        (track, arrival)
    }

    pub(super) fn announced(position: SenderPosition, now: Millis) -> Self {
        let since = Since::Number(position.next);
        Self { generation: position.generation, next: 0, since, last_seen_at: now }
    }

    pub(super) fn is_late(&self, numbers: Numbers) -> bool {
        (numbers.generation, numbers.first) < (self.generation, self.next)
    }

    pub(super) fn take(&mut self, numbers: Numbers, now: Millis) -> BatchArrival {
        if self.is_late(numbers) {
            return BatchArrival::Late;
        }
        // A sender that had forgotten this receiver starts again at 0; what it sent before its answer need not show.
        if numbers.generation > self.generation {
            self.next = 0;
            match &mut self.since {
                Since::Number(since) => *since = 0,
                Since::Unknown(holes) => holes.clear(),
            }
        }
        let hole = (self.next, numbers.first);
        (self.generation, self.next, self.last_seen_at) = (numbers.generation, numbers.next(), now);
        let missing = match &mut self.since {
            Since::Number(since) => missing_of(hole, *since),
            Since::Unknown(holes) => {
                if hole.0 < hole.1 {
                    holes.drain(..(holes.len() + 1).saturating_sub(HOLES_MAX));
                    holes.push(hole);
                }
                0
            }
        };
        BatchArrival::Take { missing }
    }

    /// This pod was disconnected for so long that the sender may have forgotten it. A message is
    /// still not accepted twice.
    pub(super) fn doubt(&mut self) {
        self.since = Since::Unknown(Vec::new());
    }

    /// Takes the position at which the sender learned of the join; `None` if the sender had sent
    /// nothing. Returns how many later messages are missing.
    pub(super) fn answered(&mut self, position: Option<SenderPosition>) -> u64 {
        let Since::Unknown(holes) = &mut self.since else { return 0 };
        let holes = std::mem::take(holes);
        let since = match position {
            Some(position) if position.generation > self.generation => {
                *self = Self::announced(position, self.last_seen_at);
                return 0;
            }
            Some(position) if position.generation == self.generation => position.next,
            // The sender forgot this receiver after the answer, or had sent nothing: all received messages are later.
            Some(_) | None => 0,
        };
        self.since = Since::Number(since);
        holes.into_iter().map(|hole| missing_of(hole, since)).sum()
    }
}

fn missing_of((from, to): (u64, u64), since: u64) -> u64 {
    to.saturating_sub(from.max(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::To;

    fn batch(generation: u64, first: u64, count: u32) -> Numbers {
        Numbers { generation, first, count }
    }

    fn at(generation: u64, next: u64) -> SenderPosition {
        SenderPosition { to: To::Pods, generation, next }
    }

    #[track_caller]
    fn check(track: &mut Track, numbers: Numbers, missing: u64) {
        assert_eq!(track.take(numbers, 0), BatchArrival::Take { missing });
    }

    #[test]
    fn numbers_without_a_hole_are_no_gap() {
        let (mut track, arrival) = Track::new(batch(1, 0, 3), true, 0);
        assert_eq!(arrival, BatchArrival::Take { missing: 0 });
        check(&mut track, batch(1, 3, 2), 0);
        check(&mut track, batch(1, 5, 0), 0);
        check(&mut track, batch(1, 5, 1), 0);
    }

    #[test]
    fn a_hole_is_a_gap_of_its_size() {
        let (mut track, _) = Track::new(batch(1, 0, 3), true, 0);
        check(&mut track, batch(1, 10, 2), 7);
        check(&mut track, batch(1, 15, 0), 3);
        assert_eq!(track.take(batch(1, 10, 2), 0), BatchArrival::Late);
    }

    #[test]
    fn the_first_batch_shows_a_loss_only_where_all_earlier_numbers_are_known() {
        assert_eq!(Track::new(batch(1, 9, 1), true, 0).1, BatchArrival::Take { missing: 9 });
        assert_eq!(Track::new(batch(1, 9, 1), false, 0).1, BatchArrival::Take { missing: 0 });
    }

    #[test]
    fn after_an_answer_a_lower_number_is_no_gap_and_a_higher_one_is() {
        check(&mut Track::announced(at(1, 5), 0), batch(1, 3, 1), 0);
        check(&mut Track::announced(at(1, 5), 0), batch(1, 5, 1), 0);
        check(&mut Track::announced(at(1, 5), 0), batch(1, 6, 1), 1);
        let mut track = Track::announced(at(1, 5), 0);
        check(&mut track, batch(1, 1, 1), 0);
        check(&mut track, batch(1, 3, 1), 0);
        check(&mut track, batch(1, 7, 1), 2);
    }

    #[test]
    fn an_answer_that_comes_after_the_first_batch_shows_what_was_between() {
        let late_joiner = |first| Track::new(batch(2, first, 1), false, 0).0;
        assert_eq!(late_joiner(9).answered(Some(at(2, 7))), 2);
        assert_eq!(late_joiner(9).answered(Some(at(2, 12))), 0);
        assert_eq!(late_joiner(9).answered(Some(at(1, 7))), 9);
        assert_eq!(late_joiner(9).answered(Some(at(3, 7))), 0);
        assert_eq!(late_joiner(9).answered(None), 9);
        let mut track = late_joiner(9);
        assert_eq!(track.answered(Some(at(3, 7))), 0);
        check(&mut track, batch(3, 9, 1), 2);
        let mut track = late_joiner(9);
        assert_eq!((track.answered(Some(at(2, 7))), track.answered(Some(at(2, 7)))), (2, 0));
    }

    #[test]
    fn before_the_answer_a_hole_is_kept_and_after_it_only_its_end_counts() {
        let (mut track, _) = Track::new(batch(1, 2, 1), false, 0);
        check(&mut track, batch(1, 5, 1), 0);
        check(&mut track, batch(1, 6, 1), 0);
        check(&mut track, batch(1, 9, 1), 0);
        assert_eq!(track.answered(Some(at(1, 4))), 1 + 2);
        check(&mut track, batch(1, 11, 1), 1);
    }

    #[test]
    fn after_an_outage_numbers_count_from_the_answer() {
        let (mut track, _) = Track::new(batch(1, 0, 3), true, 0);
        track.doubt();
        assert_eq!(track.take(batch(1, 2, 1), 0), BatchArrival::Late);
        check(&mut track, batch(1, 6, 1), 0);
        assert_eq!(track.answered(Some(at(1, 5))), 1);
        check(&mut track, batch(1, 8, 1), 1);
    }

    #[test]
    fn a_new_generation_starts_at_0() {
        let (mut track, _) = Track::new(batch(3, 0, 3), true, 0);
        check(&mut track, batch(4, 0, 1), 0);
        assert_eq!(track.take(batch(3, 3, 1), 0), BatchArrival::Late);
        check(&mut track, batch(7, 2, 1), 2);
    }
}
