//! Finished frames, in the order in which they leave.
//!
//! A frame that exceeds the largest NATS message leaves in parts. Frames to other receivers leave between the parts, as
//! many bytes as the last part had; later frames to the same receiver wait for the last part.

use std::collections::VecDeque;

use crate::frame::{self, HEAD};

use super::Outgoing;

pub(super) struct Ready {
    frames: VecDeque<Outgoing>,
    /// The first one is leaving.
    large: VecDeque<Large>,
    /// Bytes of other frames that leave before the next part.
    others: usize,
    part_bytes_max: usize,
}

struct Large {
    whole: Outgoing,
    /// Bytes of a part, and number of parts.
    cut: (usize, u16),
    next: u16,
    /// Later frames to the same receiver.
    behind: VecDeque<Outgoing>,
}

impl Ready {
    pub(super) fn new(part_bytes_max: usize) -> Self {
        Self { frames: VecDeque::new(), large: VecDeque::new(), others: 0, part_bytes_max }
    }

    pub(super) fn set_part_bytes(&mut self, part_bytes_max: usize) {
        self.part_bytes_max = part_bytes_max;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.large.is_empty()
    }

    pub(super) fn push(&mut self, outgoing: Outgoing) {
        self.frames.push_back(outgoing);
    }

    pub(super) fn pop(&mut self) -> Option<Outgoing> {
        while self.large.is_empty() || self.others > 0 {
            let Some(outgoing) = self.frames.pop_front() else { break };
            let to = outgoing.destination;
            if let Some(large) = self.large.iter_mut().find(|large| large.whole.destination == to) {
                large.behind.push_back(outgoing);
            } else if self.is_large(&outgoing) {
                let cut = frame::cut(&outgoing.frame, self.part_bytes_max);
                self.large.push_back(Large { whole: outgoing, cut, next: 0, behind: VecDeque::new() });
            } else {
                self.others = self.others.saturating_sub(outgoing.frame.len());
                return Some(outgoing);
            }
        }
        let (part, is_last) = self.large.front_mut()?.part();
        self.others = if is_last { 0 } else { part.frame.len() };
        if is_last && let Some(large) = self.large.pop_front() {
            large.behind.into_iter().rev().for_each(|outgoing| self.frames.push_front(outgoing));
        }
        Some(part)
    }

    /// A message to a group is not cut, because each part would go to another pod.
    fn is_large(&self, outgoing: &Outgoing) -> bool {
        let is_numbered = outgoing.numbers.is_some_and(|numbers| numbers.generation > 0);
        is_numbered && outgoing.frame.len() > self.part_bytes_max
    }

    pub(super) fn clear(&mut self) -> impl Iterator<Item = Outgoing> {
        let large = std::mem::take(&mut self.large).into_iter();
        let large = large.flat_map(|large| std::iter::once(large.whole).chain(large.behind));
        large.chain(std::mem::take(&mut self.frames))
    }
}

impl Large {
    /// The next part, and whether it is the last one.
    fn part(&mut self) -> (Outgoing, bool) {
        let Outgoing { destination, frame, numbers, probe, .. } = &mut self.whole;
        let (room, parts) = self.cut;
        let begin = HEAD + room * usize::from(self.next);
        let piece = frame.slice(begin..(begin + room).min(frame.len()));
        let part = Some((self.next, parts));
        self.next += 1;
        let outgoing = Outgoing {
            destination: *destination,
            frame: piece,
            numbers: *numbers,
            probe: probe.take(),
            part,
        };
        (outgoing, self.next == parts)
    }
}
