//! Memory of incomplete packets. A client decides how large its packet is and when the rest of it comes. So each buffer that holds
//! a part of a packet is charged to the client's broker, or to all connections together that have sent no CONNECT yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::broker::Broker;

/// Bytes of each connection that are not charged, so that ordinary packets are never refused.
const UNCHARGED_BYTES: usize = 4 * 1024;
/// Connections before their CONNECT get this part (1/n) of the memory.
const BEFORE_CONNECT_DIVISOR: u64 = 4;
/// The memory is scarce when more than this part (1/n) is used.
const SCARCE_DIVISOR: u64 = 4;
/// Bytes by which each incomplete packet must grow in a minute while memory is scarce.
const GROWTH_SCARCE: usize = 64 * 1024;
/// The same otherwise: a client on a slow radio link may take an hour for a packet.
const GROWTH: usize = 1_000;

#[derive(Debug)]
pub(crate) struct IncompletePackets {
    max: u64,
    bytes: AtomicU64,
    before_connect: AtomicU64,
    /// Brokers with charged bytes.
    brokers: AtomicU64,
}

impl IncompletePackets {
    pub(crate) fn new(max: u64) -> Arc<Self> {
        let (bytes, before_connect, brokers) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { max, bytes, before_connect, brokers })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes by which each incomplete packet must grow in a minute, or its connection is closed and others get the memory.
    pub(crate) fn growth_min(&self) -> usize {
        if self.bytes() > self.max / SCARCE_DIVISOR { GROWTH_SCARCE } else { GROWTH }
    }

    /// Charges `held` bytes of an incomplete packet until the charge is dropped; `None`: nothing is charged for so few bytes.
    ///
    /// # Errors
    /// The broker holds more than its share, or all connections together hold twice the limit: earlier brokers had larger shares,
    /// so shares alone do not bound the sum. Before the CONNECT: these connections hold more than their part. A share is the limit
    /// divided by one more than the brokers that hold bytes, so a single broker gets half of it.
    pub(crate) fn charge(
        self: &Arc<Self>,
        broker: Option<&Arc<Broker>>,
        held: usize,
    ) -> Result<Option<Charge>, OverLimit> {
        let bytes = held.saturating_sub(UNCHARGED_BYTES) as u64;
        if bytes == 0 {
            return Ok(None);
        }
        let all = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let own = match broker {
            Some(broker) => &broker.client_memory.incomplete_packets,
            None => &self.before_connect,
        };
        let before = own.fetch_add(bytes, Ordering::Relaxed);
        let is_first = broker.is_some() && before == 0;
        let brokers = self.brokers.fetch_add(u64::from(is_first), Ordering::Relaxed) + u64::from(is_first);
        let charge = Charge { input: self.clone(), broker: broker.cloned(), bytes };
        let is_over = match broker {
            Some(_) => (before + bytes > self.max / (brokers + 1)) || (all / 2 > self.max),
            None => before + bytes > self.max / BEFORE_CONNECT_DIVISOR,
        };
        if is_over { Err(OverLimit) } else { Ok(Some(charge)) }
    }
}

#[derive(Debug)]
pub(crate) struct OverLimit;

/// Charged bytes; dropping it releases them.
pub(crate) struct Charge {
    input: Arc<IncompletePackets>,
    broker: Option<Arc<Broker>>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.input.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        match &self.broker {
            Some(broker) => {
                if broker.client_memory.incomplete_packets.fetch_sub(self.bytes, Ordering::Relaxed)
                    == self.bytes
                {
                    self.input.brokers.fetch_sub(1, Ordering::Relaxed);
                }
            }
            None => {
                self.input.before_connect.fetch_sub(self.bytes, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: usize = 100_000 + UNCHARGED_BYTES;

    #[test]
    fn a_slow_client_may_take_long_while_memory_is_free() {
        let input = IncompletePackets::new(1_000_000);
        let broker = Arc::new(Broker::new(1, "b", 1));
        let mut held: Vec<_> = (0..2).map(|_| input.charge(Some(&broker), PACKET)).collect();
        assert_eq!(input.growth_min(), GROWTH);
        held.push(input.charge(Some(&broker), PACKET));
        assert_eq!(input.growth_min(), GROWTH_SCARCE);
        held.pop();
        assert_eq!(input.growth_min(), GROWTH);
    }

    #[test]
    fn a_broker_alone_may_use_half_and_leaves_others_a_share() {
        let input = IncompletePackets::new(1_000_000);
        let [one, two] = [1, 2].map(|id| Arc::new(Broker::new(id, "b", 1)));
        let hold = |broker: &Arc<Broker>| input.charge(Some(broker), PACKET);
        let mut all: Vec<_> = (0..5).map(|_| hold(&one).expect("half of it")).collect();
        assert!(hold(&one).is_err() && input.bytes() == 500_000, "a refused packet does not count");
        all.extend((0..3).map(|_| hold(&two).expect("its share")));
        assert!(hold(&two).is_err() && hold(&one).is_err());
        drop(all);
        assert_eq!((input.bytes(), input.brokers.load(Ordering::Relaxed)), (0, 0));
        assert!(hold(&two).is_ok());
    }

    #[test]
    fn brokers_that_use_their_whole_shares_leave_the_next_brokers_a_packet_each() {
        let input = IncompletePackets::new(1_000_000);
        let brokers: Vec<Arc<Broker>> = (0..100).map(|id| Arc::new(Broker::new(id, "b", 1))).collect();
        let mut all = Vec::new();
        for (number, broker) in brokers.iter().enumerate() {
            let held: Vec<_> = (0..10).map_while(|_| input.charge(Some(broker), PACKET).ok()).collect();
            assert!(number >= 8 || !held.is_empty(), "broker {number} holds nothing");
            all.extend(held);
        }
        assert!(input.bytes() <= 2_000_000, "{}", input.bytes());
    }

    #[test]
    fn connections_before_connect_have_a_part_of_their_own_and_small_packets_are_not_charged() {
        let input = IncompletePackets::new(1_000_000);
        let _all: Vec<_> = (0..2).map(|_| input.charge(None, PACKET).expect("within their part")).collect();
        assert!(input.charge(None, PACKET).is_err());
        assert!(input.charge(None, UNCHARGED_BYTES).is_ok());
        assert_eq!(input.bytes(), 200_000);
    }
}
