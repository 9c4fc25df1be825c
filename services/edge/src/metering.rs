//! Usage of each broker: each core counts for itself, and a thread adds the counts to the store every few seconds
//! (`reporters/usage.rs`).
//!
//! A message is measured by its topic, properties and payload, in units of 4 KiB (rounded up), so it has the same size for its
//! publisher and each of its receivers, whatever protocol version they speak. The transaction that stores a message also counts
//! it (`store/apply.rs`), so stored messages are counted exactly even when this process is killed. `$SYS`, acknowledgements,
//! pings and retransmissions are free.

use std::sync::{Mutex, PoisonError};

use millrace_layers::metering::{DROP_REASONS, LatencyClasses, message_units};
use millrace_session::Message;

use crate::clock::Millis;
use crate::metrics::Count;

/// Aligned, so that no two cores write to one cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct UsageCounter {
    pub(crate) received: Volume,
    pub(crate) delivered: Volume,
    /// Messages that the store counts itself, and their bytes.
    stored: Count,
    stored_bytes: Count,
    presence: Mutex<Presence>,
}

#[derive(Debug, Default)]
pub(crate) struct Volume {
    messages: Count,
    units: Count,
    bytes: Count,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) messages: usize,
    pub(crate) units: usize,
    pub(crate) bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Presence {
    connected: u64,
    /// The sum of disconnection times minus the sum of connection times. Adding the present time for each open connection gives
    /// the total connection time.
    ends_less_starts_ms: u64,
}

impl Amount {
    pub(crate) fn of(bytes: usize) -> Self {
        let mut amount = Self::default();
        amount.add(bytes);
        amount
    }

    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.units += usize::try_from(message_units(bytes)).unwrap_or(usize::MAX);
        self.bytes += bytes;
    }
}

impl Volume {
    #[inline]
    pub(crate) fn add(&self, amount: Amount, times: usize) {
        self.messages.add(amount.messages * times);
        self.units.add(amount.units * times);
        self.bytes.add(amount.bytes * times);
    }
}

impl UsageCounter {
    pub(crate) fn delivered(&self, message: &Message) {
        if !message.topic().starts_with("$SYS/") {
            self.delivered.add(Amount::of(message.size()), 1);
        }
    }

    /// Counts a message that was submitted to the store, which counts it again as stored.
    pub(crate) fn submitted(&self, bytes: usize) {
        self.stored.add(1);
        self.stored_bytes.add(bytes);
    }

    pub(crate) fn came(&self, now: Millis) {
        self.change_presence(|presence| {
            presence.connected += 1;
            presence.ends_less_starts_ms = presence.ends_less_starts_ms.wrapping_sub(now);
        });
    }

    pub(crate) fn went(&self, now: Millis) {
        self.change_presence(|presence| {
            presence.connected -= 1;
            presence.ends_less_starts_ms = presence.ends_less_starts_ms.wrapping_add(now);
        });
    }

    fn change_presence(&self, change: impl FnOnce(&mut Presence)) {
        change(&mut self.presence.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The counts of a broker at one moment, of all cores together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) connections: u64,
    pub(crate) connected_ms: u64,
    /// Messages that are not stored: units and bytes.
    pub(crate) received: [u64; 2],
    pub(crate) delivered: [u64; 2],
    /// Including stored messages: messages and bytes.
    pub(crate) all_received: [u64; 2],
    pub(crate) messages_delivered: u64,
    /// By [`DropCause`](millrace_layers::metering::DropCause).
    pub(crate) drops: [u64; DROP_REASONS],
    /// Acknowledged messages.
    pub(crate) latencies: LatencyClasses,
    pub(crate) deliveries: LatencyClasses,
}

impl Reading {
    pub(crate) fn add(&mut self, meter: &UsageCounter, now: Millis) {
        let presence = *meter.presence.lock().unwrap_or_else(PoisonError::into_inner);
        self.connections += presence.connected;
        let so_far = presence.connected.wrapping_mul(now);
        let connected_ms = presence.ends_less_starts_ms.wrapping_add(so_far);
        self.connected_ms = self.connected_ms.wrapping_add(connected_ms);
        let volume = |volume: &Volume| [volume.units.get(), volume.bytes.get()];
        let received = volume(&meter.received);
        add_each(&mut self.received, received);
        add_each(&mut self.delivered, volume(&meter.delivered));
        let messages = meter.received.messages.get() + meter.stored.get();
        add_each(&mut self.all_received, [messages, received[1] + meter.stored_bytes.get()]);
        self.messages_delivered += meter.delivered.messages.get();
    }

    /// The counts since `earlier`, with wrapping, and the present connections.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let less = |now: u64, before: u64| now.wrapping_sub(before);
        Self {
            connections: self.connections,
            connected_ms: less(self.connected_ms, earlier.connected_ms),
            received: std::array::from_fn(|at| less(self.received[at], earlier.received[at])),
            delivered: std::array::from_fn(|at| less(self.delivered[at], earlier.delivered[at])),
            all_received: std::array::from_fn(|at| less(self.all_received[at], earlier.all_received[at])),
            messages_delivered: less(self.messages_delivered, earlier.messages_delivered),
            drops: std::array::from_fn(|at| less(self.drops[at], earlier.drops[at])),
            latencies: std::array::from_fn(|at| less(self.latencies[at], earlier.latencies[at])),
            deliveries: std::array::from_fn(|at| less(self.deliveries[at], earlier.deliveries[at])),
        }
    }
}

fn add_each(sum: &mut [u64; 2], added: [u64; 2]) {
    sum.iter_mut().zip(added).for_each(|(sum, added)| *sum += added);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(meters: &[UsageCounter], now: Millis) -> Reading {
        let mut reading = Reading::default();
        meters.iter().for_each(|meter| reading.add(meter, now));
        reading
    }

    #[test]
    fn the_time_of_connections_is_exact_whenever_it_is_read() {
        let meters = [UsageCounter::default(), UsageCounter::default()];
        meters[0].came(100);
        meters[1].came(250);
        assert_eq!(reading(&meters, 300).connected_ms, 250);
        meters[0].came(300);
        meters[1].went(320);
        assert_eq!(reading(&meters, 400).connected_ms, 300 + 70 + 100);
        meters[0].went(400);
        // Its turn began a little before the last reading.
        meters[0].went(399);
        let end = reading(&meters, 10_000);
        assert_eq!((end.connected_ms, end.connections), (300 + 70 + 99, 0));
    }

    #[test]
    fn an_amount_counts_each_message_in_units_of_4_kib() {
        let mut amount = Amount::default();
        for bytes in [1, 4_096, 4_097, 10_000] {
            amount.add(bytes);
        }
        assert_eq!(amount, Amount { messages: 4, units: 1 + 1 + 2 + 3, bytes: 18_194 });
        let meter = UsageCounter::default();
        meter.received.add(amount, 3);
        meter.submitted(5);
        let read = reading(&[meter], 0);
        assert_eq!((read.received, read.all_received), ([21, 54_582], [13, 54_587]));
    }
}
