//! One publishing connection: encodes batches, lets the socket cut them, counts acknowledgements.

use crate::latency::Histogram;
use crate::link::{Filled, Link};
use crate::packet::{self, PublishTemplate};

pub(crate) const WINDOW_MAX: u32 = 16_384;

pub(crate) struct Publisher {
    pub(crate) link: Link,
    pub(crate) index: u32,
    template: PublishTemplate,
    batch_messages: u32,
    sent: u32,
    acks: Option<Acks>,
    /// Waits for its turn in the engine's list.
    pub(crate) queued: bool,
}

/// PUBACKs arrive in the order of the publishes [MQTT-4.6.0-2], so a count identifies the next one.
struct Acks {
    window: u32,
    /// Packet ids wrap around here: a multiple of the window, so an id names its slot in `sent_ns`.
    ids: u32,
    sent_ns: Vec<u64>,
    acked: u32,
    disordered: u64,
}

impl Acks {
    fn new(window: u32) -> Self {
        let window = window.clamp(1, WINDOW_MAX);
        let ids = u32::from(u16::MAX) / window * window;
        Self { window, ids, sent_ns: vec![0; window as usize], acked: 0, disordered: 0 }
    }

    fn packet_id(&self, sequence: u32) -> u16 {
        (sequence % self.ids + 1) as u16
    }
}

impl Publisher {
    /// QoS 1 with a `window` of unacknowledged messages, QoS 0 without.
    pub(crate) fn new(
        link: Link,
        index: u32,
        template: PublishTemplate,
        batch_messages: u32,
        window: Option<u32>,
    ) -> Self {
        let acks = window.map(Acks::new);
        Self { link, index, template, batch_messages, sent: 0, acks, queued: false }
    }

    /// Messages written to the socket; the last one may be incomplete.
    pub(crate) fn sent(&self) -> u32 {
        self.sent
    }

    /// At QoS 0, which has no acknowledgement, all sent messages.
    pub(crate) fn acked(&self) -> u32 {
        self.acks.as_ref().map_or(self.sent, |a| a.acked)
    }

    pub(crate) fn acks_disordered(&self) -> u64 {
        self.acks.as_ref().map_or(0, |a| a.disordered)
    }

    fn credit(&self) -> u32 {
        self.acks.as_ref().map_or(u32::MAX, |a| a.window - (self.sent - a.acked).min(a.window))
    }

    /// Sends at most `allowed` messages in one write; true if the batch was full and the socket
    /// took all of it, so that more can be sent without waiting for an event.
    pub(crate) fn push(&mut self, allowed: u32, batch: &mut Vec<u8>, now_ns: u64) -> bool {
        if !self.link.flush() || !self.link.writable {
            return false;
        }
        let messages = allowed.min(self.credit()).min(self.batch_messages);
        if messages == 0 {
            return false;
        }
        batch.clear();
        for sequence in self.sent..self.sent + messages {
            let id = self.acks.as_ref().map_or(0, |a| a.packet_id(sequence));
            self.template.append(batch, sequence, id, now_ns);
        }
        let taken = self.link.write_some(batch);
        let begun = taken.div_ceil(self.template.len());
        // The rest of a cut message must follow; later messages are encoded again when there is
        // room.
        self.link.hold(&batch[taken..begun * self.template.len()]);
        if let Some(acks) = &mut self.acks {
            for sequence in self.sent..self.sent + begun as u32 {
                acks.sent_ns[(sequence % acks.window) as usize] = now_ns;
            }
        }
        self.sent += begun as u32;
        self.link.writable && messages == self.batch_messages
    }

    /// Reads PUBACKs; returns their number and the state of the link.
    pub(crate) fn pump(
        &mut self,
        buffer: &mut [u8],
        now_ns: u64,
        latency: Option<&mut Histogram>,
    ) -> (u32, Filled) {
        let (mut bytes, mut filled) = self.link.fill(buffer);
        let Some(acks) = &mut self.acks else { return (0, filled) };
        let before = acks.acked;
        let mut latency = latency;
        loop {
            match packet::next_frame(bytes) {
                Ok(Some(frame)) => {
                    bytes = &bytes[frame.length..];
                    let due = acks.packet_id(acks.acked);
                    if frame.kind() != packet::PUBACK || acks.acked == self.sent {
                        acks.disordered += 1;
                        continue;
                    }
                    acks.disordered += u64::from(frame.packet_id() != Some(due));
                    if let Some(latency) = latency.as_deref_mut() {
                        let sent_ns = acks.sent_ns[(acks.acked % acks.window) as usize];
                        latency.record(now_ns.saturating_sub(sent_ns));
                    }
                    acks.acked += 1;
                }
                Ok(None) => break,
                Err(packet::Malformed) => {
                    self.link.open = false;
                    filled = Filled::Closed;
                    break;
                }
            }
        }
        self.link.keep(bytes);
        (acks.acked - before, filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_ids_are_never_zero_and_distinct_within_a_window() {
        for window in [1, 20, 100, 3000, WINDOW_MAX, u32::MAX] {
            let acks = Acks::new(window);
            for start in [0, acks.ids - acks.window / 2, 10 * acks.ids] {
                let ids: Vec<u16> = (start..start + acks.window).map(|s| acks.packet_id(s)).collect();
                assert!(!ids.contains(&0));
                let mut distinct = ids.clone();
                distinct.sort_unstable();
                distinct.dedup();
                assert_eq!(distinct.len(), ids.len(), "window {window} from {start}");
            }
        }
    }
}
