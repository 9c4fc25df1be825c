//! A subscribed connection, and the ledger in which the receivers of a thread record deliveries.

use crate::latency::Histogram;
use crate::link::{Filled, Link};
use crate::packet::{self, Stamp};
use crate::receipts::{Faults, Receipts};

/// Receives from `publishers` publishers; the first is number `first_publisher`.
pub(crate) struct Receiver {
    pub(crate) link: Link,
    pub(crate) first_publisher: u32,
    pub(crate) publishers: u32,
}

pub(crate) struct Ledger {
    /// By receiver and publisher: each receiver has a row of its publishers.
    receipts: Vec<Receipts>,
    /// [`Receipts::reach`] of each, adjacent in memory, because the windows read a thousand of them
    /// in a turn.
    reach: Vec<u32>,
    pub(crate) delivered: u64,
    /// Deliveries to the wrong receiver, or unreadable ones.
    pub(crate) stray: u64,
    pub(crate) latency: Option<Histogram>,
    payload_bytes: usize,
}

impl Ledger {
    pub(crate) fn new(rows: usize, payload_bytes: usize, latency: bool) -> Self {
        Self {
            receipts: vec![Receipts::default(); rows],
            reach: vec![0; rows],
            delivered: 0,
            stray: 0,
            latency: latency.then(Histogram::new),
            payload_bytes,
        }
    }

    pub(crate) fn reach(&self, row: usize) -> u32 {
        self.reach[row]
    }

    pub(crate) fn slowest(&self) -> u32 {
        self.reach.iter().copied().min().unwrap_or(u32::MAX)
    }

    pub(crate) fn faults(&self, row: usize, sent: u32) -> Faults {
        self.receipts[row].faults(sent)
    }

    #[inline]
    fn note(&mut self, row: usize, publishers: u32, first_publisher: u32, payload: &[u8], now_ns: u64) {
        let stamp = Stamp::read(payload).filter(|s| {
            payload.len() == self.payload_bytes && s.publisher.wrapping_sub(first_publisher) < publishers
        });
        let Some(stamp) = stamp else {
            self.stray += 1;
            return;
        };
        let row = row + (stamp.publisher - first_publisher) as usize;
        let receipts = &mut self.receipts[row];
        if !receipts.record(stamp.sequence) {
            return;
        }
        self.reach[row] = receipts.reach();
        self.delivered += 1;
        if let Some(latency) = &mut self.latency {
            latency.record(now_ns.saturating_sub(stamp.sent_ns));
        }
    }
}

impl Receiver {
    /// Reads once, records deliveries from row `row` on, and acknowledges them.
    pub(crate) fn pump(
        &mut self,
        row: usize,
        ledger: &mut Ledger,
        buffer: &mut [u8],
        acks: &mut Vec<u8>,
        now_ns: u64,
    ) -> Filled {
        let (mut bytes, mut filled) = self.link.fill(buffer);
        acks.clear();
        loop {
            match packet::next_frame(bytes) {
                Ok(Some(frame)) => {
                    bytes = &bytes[frame.length..];
                    let publish = (frame.kind() == packet::PUBLISH).then(|| frame.publish()).flatten();
                    let Some((id, payload)) = publish else {
                        ledger.stray += 1;
                        continue;
                    };
                    ledger.note(row, self.publishers, self.first_publisher, payload, now_ns);
                    if id != 0 {
                        acks.extend_from_slice(&packet::puback(id));
                    }
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
        if !acks.is_empty() {
            self.link.write_or_hold(acks);
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PublishTemplate;

    fn payload(publisher: u32, sequence: u32) -> Vec<u8> {
        let mut out = Vec::new();
        PublishTemplate::new("t", 0, publisher, 100).append(&mut out, sequence, 0, 5);
        let (_, payload) = packet::next_frame(&out).unwrap().unwrap().publish().unwrap();
        payload.to_vec()
    }

    #[test]
    fn deliveries_land_in_the_row_of_their_publisher() {
        let mut ledger = Ledger::new(3, 100, false);
        ledger.note(1, 2, 40, &payload(41, 0), 9);
        ledger.note(1, 2, 40, &payload(41, 1), 9);
        assert_eq!((ledger.reach(0), ledger.reach(1), ledger.reach(2)), (0, 0, 2));
        assert_eq!((ledger.delivered, ledger.stray, ledger.slowest()), (2, 0, 0));
        assert_eq!(ledger.faults(2, 2), Faults::default());
    }

    #[test]
    fn a_message_for_another_receiver_is_a_stray() {
        let mut ledger = Ledger::new(1, 100, false);
        for (publisher, bytes) in [(39, 100), (41, 100), (40, 99), (40, 8)] {
            ledger.note(0, 1, 40, &payload(publisher, 0)[..bytes], 9);
        }
        assert_eq!((ledger.delivered, ledger.stray), (0, 4));
    }

    #[test]
    fn a_repeat_is_neither_a_delivery_nor_a_latency() {
        let mut ledger = Ledger::new(1, 100, true);
        ledger.note(0, 1, 0, &payload(0, 0), 9);
        ledger.note(0, 1, 0, &payload(0, 0), 900_000);
        assert_eq!(ledger.delivered, 1);
        assert_eq!(ledger.latency.unwrap().percentiles().unwrap().p999_ns, 4);
    }
}
