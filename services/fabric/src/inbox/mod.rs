//! The inbox: checks the numbers of received batches, joins batches that came in parts, and passes
//! messages and gaps to the sink.

mod parts;
mod track;

use std::sync::Arc;

use bytes::Bytes;

use crate::address::{PodId, To};
use crate::clock::Millis;
use crate::collections::HashMap;
use crate::counters::Counts;
use crate::frame::{self, FabricFrame, FrameContent, Numbers, SenderPosition};
use crate::limits::FabricLimits;
use crate::sink::{Gap, MessageBatch, Sink};
use parts::{PartOutcome, Parts};
use track::{BatchArrival, Track};

/// Silent heartbeats after which this pod forgets a sender; the sender forgets the receiver after
/// 64.
const FORGET_HEARTBEATS: u64 = 128;
/// Milliseconds after which an incomplete batch is dropped.
const PARTS_MS_MAX: u64 = 10_000;

pub(crate) struct Inbox {
    limits: FabricLimits,
    counts: Arc<Counts>,
    sink: Arc<dyn Sink>,
    interests: HashMap<To, Interest>,
    parts_bytes: usize,
}

#[derive(Default)]
struct Interest {
    announcement: u64,
    /// All other pods have confirmed the join, so an unknown sender's numbers start at 0; an overdue join is reported to the
    /// sink without that.
    is_complete: bool,
    /// This pod was disconnected for long after the join was confirmed.
    is_doubtful: bool,
    /// The pod has subscribed at NATS, or will after reconnecting.
    is_subscribed: bool,
    is_reported: bool,
    senders: Vec<(PodId, Track)>,
    parts: Vec<(PodId, Parts)>,
}

impl Inbox {
    pub(crate) fn new(limits: FabricLimits, counts: Arc<Counts>, sink: Arc<dyn Sink>) -> Self {
        Self { limits, counts, sink, interests: HashMap::default(), parts_bytes: 0 }
    }

    /// False when the receiver was joined already; the join is then reported again.
    pub(crate) fn join(&mut self, to: To) -> bool {
        match self.interests.get(&to) {
            None => {
                self.interests.insert(to, Interest::default());
                self.counts.joined.set(self.interests.len());
                true
            }
            Some(interest) => {
                if interest.is_reported {
                    self.sink.joined(to, interest.is_complete);
                }
                false
            }
        }
    }

    pub(crate) fn leave(&mut self, to: To) {
        if let Some(interest) = self.interests.remove(&to) {
            self.parts_bytes -= interest.parts.iter().map(|(_, parts)| parts.bytes()).sum::<usize>();
            self.counts.joined.set(self.interests.len());
        }
    }

    /// Keeps the receivers in `list` that are still joined.
    pub(crate) fn subscribed(&mut self, list: &mut Vec<To>) {
        list.retain(|to| match self.interests.get_mut(to) {
            Some(interest) => {
                interest.is_subscribed = true;
                true
            }
            None => false,
        });
    }

    pub(crate) fn all_subscribed(&self) -> Vec<To> {
        let subscribed = self.interests.iter().filter(|(_, interest)| interest.is_subscribed);
        subscribed.map(|(to, _)| *to).collect()
    }

    pub(crate) fn announced(&mut self, announcement: u64, list: &[To]) {
        for to in list {
            if let Some(interest) = self.interests.get_mut(to) {
                interest.announcement = announcement;
            }
        }
    }

    /// Takes a pod's answer to an announcement. With `is_known`, the pod had answered all earlier ones.
    pub(crate) fn answered(
        &mut self,
        (from, is_known): (PodId, bool),
        (announcement, list): (u64, &[To]),
        positions: &[SenderPosition],
        now: Millis,
    ) {
        let positions: HashMap<To, SenderPosition> =
            positions.iter().map(|position| (position.to, *position)).collect();
        for to in list {
            let Some(interest) = self.interests.get_mut(to) else { continue };
            // Nothing to learn: this pod knows the sender's numbers, and the heartbeats after the
            // answer show every loss.
            let is_confirmed = interest.is_complete && is_known;
            if interest.announcement != announcement || is_confirmed || !to.is_numbered() {
                continue;
            }
            let position = positions.get(to).copied();
            match interest.senders.iter_mut().find(|(pod, _)| *pod == from) {
                Some((_, track)) => {
                    track.last_seen_at = now;
                    let missing = track.answered(position);
                    self.gap(from, *to, missing);
                }
                None => {
                    if let Some(position) = position {
                        interest.senders.push((from, Track::announced(position, now)));
                    }
                }
            }
        }
    }

    /// Notes that `pod` sends all its messages from now on: it has begun, or has answered every announcement. Without `counts`, the
    /// messages received from `pod` so far may be from before that, and show no gap.
    pub(crate) fn sends_all(&mut self, pod: PodId, counts: bool) {
        let mut gaps = Vec::new();
        for (to, interest) in self.interests.iter_mut().filter(|(_, interest)| interest.is_complete) {
            let track = interest.senders.iter_mut().find(|(sender, _)| *sender == pod);
            gaps.extend(track.map(|(_, track)| (*to, track.answered(None))));
        }
        if counts {
            gaps.into_iter().for_each(|(to, missing)| self.gap(pod, to, missing));
        }
    }

    /// All live pods have confirmed this announcement, or its last try has failed: its joins are reported as complete.
    pub(crate) fn complete(&mut self, announcement: u64, list: &[To]) {
        for to in list {
            let Some(interest) = self.interests.get_mut(to) else { continue };
            if interest.announcement != announcement {
                continue;
            }
            interest.is_complete = true;
            // A pod that has not answered by now is gone, or its gap was reported by `unanswered`.
            interest.senders.iter_mut().for_each(|(_, track)| _ = track.answered(None));
            if std::mem::take(&mut interest.is_doubtful) {
                // Until now a loss could have gone unnoticed.
                self.vague_gap(None, *to);
            }
            self.report(*to);
        }
    }

    pub(crate) fn report(&mut self, to: To) {
        if let Some(interest) = self.interests.get_mut(&to)
            && !std::mem::replace(&mut interest.is_reported, true)
        {
            if !interest.is_complete {
                self.counts.joins_unconfirmed.add(1);
            }
            self.sink.joined(to, interest.is_complete);
        }
    }

    /// A pod did not answer the announcement, so its messages may be missing.
    pub(crate) fn unanswered(&self, from: PodId, announcement: u64, list: &[To]) {
        for to in list {
            if let Some(interest) = self.interests.get(to)
                && interest.announcement == announcement
            {
                self.vague_gap(Some(from), *to);
            }
        }
    }

    /// This pod was disconnected for so long that the others have forgotten the numbers of their
    /// messages to it.
    pub(crate) fn doubt_all(&mut self) {
        self.parts_bytes = 0;
        for interest in self.interests.values_mut() {
            interest.senders.iter_mut().for_each(|(_, track)| track.doubt());
            interest.parts.clear();
            // A pod that has not answered yet may be at any number.
            interest.is_doubtful |= std::mem::take(&mut interest.is_complete);
        }
        for (to, _) in self.interests.iter().filter(|(_, interest)| interest.is_doubtful) {
            self.vague_gap(None, *to);
        }
    }

    /// With `is_known`, the sender has answered with its positions, or began while this pod
    /// listened.
    pub(crate) fn receive(&mut self, to: To, frame: FabricFrame, is_known: bool, now: Millis) {
        let from = (frame.from, is_known);
        let Some(interest) = self.interests.get_mut(&to) else { return };
        match frame.content {
            FrameContent::Batch { numbers, body } => {
                if let Some(parts) = interest.take_parts(frame.from) {
                    self.parts_bytes -= parts.bytes();
                    self.counts.parts_incomplete.add(1);
                }
                self.batch(from, to, numbers, body, now);
            }
            FrameContent::Part { numbers, index, parts, piece } => {
                if let Some(body) = self.part(frame.from, to, (numbers, index, parts), &piece, now) {
                    match frame::check_body(&body, numbers.count) {
                        Ok(()) => self.batch(from, to, numbers, body, now),
                        Err(_) => self.counts.malformed.add(1),
                    }
                }
            }
            _ => self.counts.malformed.add(1),
        }
    }

    fn batch(&mut self, (from, is_known): (PodId, bool), to: To, numbers: Numbers, body: Bytes, now: Millis) {
        let Some(interest) = self.interests.get_mut(&to) else { return };
        let is_doubtful = interest.is_doubtful && numbers.count > 0;
        if to.is_numbered() {
            let arrival = interest.take(from, numbers, is_known, now);
            match arrival {
                BatchArrival::Late => {
                    self.counts.late.add(usize::from(numbers.count > 0));
                    return;
                }
                // Without the answers its numbers do not show what was lost before it.
                BatchArrival::Take { .. } if is_doubtful => self.vague_gap(Some(from), to),
                BatchArrival::Take { missing } => self.gap(from, to, missing),
            }
        }
        if numbers.count > 0 {
            self.counts.received.add(numbers.count as usize);
            self.counts.batches_received.add(1);
            self.sink.receive(&MessageBatch { from, to, count: numbers.count, body });
        }
    }

    fn part(
        &mut self,
        from: PodId,
        to: To,
        (numbers, index, count): (Numbers, u16, u16),
        piece: &[u8],
        now: Millis,
    ) -> Option<Bytes> {
        let interest = self.interests.get_mut(&to)?;
        if interest.senders.iter().any(|(pod, track)| *pod == from && track.is_late(numbers)) {
            self.counts.late.add(1);
            return None;
        }
        let before = interest.take_parts(from);
        self.parts_bytes -= before.as_ref().map_or(0, Parts::bytes);
        let mut parts = match before {
            Some(parts) if index > 0 => parts,
            before => {
                self.counts.parts_incomplete.add(usize::from(before.is_some()));
                Parts::new(numbers, now)
            }
        };
        let bytes = parts.bytes() + piece.len();
        let message_bytes_max = self.limits.message_bytes_max.max(self.limits.batch_bytes_max) as usize;
        if bytes > message_bytes_max + frame::LENGTH
            || self.parts_bytes + bytes > self.limits.parts_bytes_max as usize
        {
            self.counts.parts_limit.add(1);
            return None;
        }
        match parts.add(numbers, index, count, piece) {
            PartOutcome::Whole(body) => Some(body),
            PartOutcome::Waits => {
                self.parts_bytes += bytes;
                interest.parts.push((from, parts));
                None
            }
            PartOutcome::Stray => {
                self.counts.parts_incomplete.add(1);
                None
            }
        }
    }

    /// Drops senders that must have forgotten this pod.
    pub(crate) fn sweep(&mut self, now: Millis) {
        let silent_ms = FORGET_HEARTBEATS * u64::from(self.limits.heartbeat_ms);
        for interest in self.interests.values_mut() {
            interest.senders.retain(|(_, track)| now - track.last_seen_at < silent_ms);
            interest.parts.retain(|(_, parts)| {
                let stays = now - parts.since < PARTS_MS_MAX;
                if !stays {
                    self.parts_bytes -= parts.bytes();
                    self.counts.parts_incomplete.add(1);
                }
                stays
            });
        }
    }

    fn vague_gap(&self, from: Option<PodId>, to: To) {
        if !to.is_numbered() {
            return;
        }
        self.counts.gaps.add(1);
        self.sink.gap(&Gap { from, to, missing: None });
    }

    fn gap(&self, from: PodId, to: To, missing: u64) {
        if missing > 0 {
            self.counts.gaps.add(1);
            self.counts.missed.add(usize::try_from(missing).unwrap_or(usize::MAX));
            self.sink.gap(&Gap { from: Some(from), to, missing: Some(missing) });
        }
    }
}

impl Interest {
    fn take(&mut self, from: PodId, numbers: Numbers, is_known: bool, now: Millis) -> BatchArrival {
        if let Some((_, track)) = self.senders.iter_mut().find(|(pod, _)| *pod == from) {
            return track.take(numbers, now);
        }
        let (track, arrival) = Track::new(numbers, self.is_complete && is_known, now);
        self.senders.push((from, track));
        arrival
    }

    fn take_parts(&mut self, from: PodId) -> Option<Parts> {
        let index = self.parts.iter().position(|(pod, _)| *pod == from)?;
        Some(self.parts.swap_remove(index).1)
    }
}
