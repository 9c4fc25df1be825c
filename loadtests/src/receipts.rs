//! Checks that a receiver gets every sequence number of a publisher once and in order.

/// Errors of a run by kind; a correct broker has zeros only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    /// Delivered after a later one of the same publisher.
    pub(crate) disordered: u64,
    /// Delivered to the wrong receiver, unreadable, or never sent.
    pub(crate) stray: u64,
    pub(crate) unacked: u64,
    pub(crate) acks_disordered: u64,
    /// Connections that the broker closed during the run, or did not answer.
    pub(crate) closed: u64,
    /// Persistent sessions that the broker has lost.
    pub(crate) forgotten: u64,
}

impl Faults {
    pub(crate) fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.repeated += other.repeated;
        self.disordered += other.disordered;
        self.stray += other.stray;
        self.unacked += other.unacked;
        self.acks_disordered += other.acks_disordered;
        self.closed += other.closed;
        self.forgotten += other.forgotten;
    }

    pub(crate) fn any(self) -> bool {
        self != Self::default()
    }
}

/// A bit for each received sequence number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Receipts {
    seen: Vec<u64>,
    reach: u32,
    distinct: u32,
    repeated: u32,
    disordered: u32,
}

impl Receipts {
    /// Returns true for the first delivery of a sequence number.
    #[inline]
    pub(crate) fn record(&mut self, sequence: u32) -> bool {
        let word = (sequence / u64::BITS) as usize;
        if word >= self.seen.len() {
            // Grows by doubling, so that a delivery hardly pays for it.
            self.seen.resize((word + 1).next_power_of_two(), 0);
        }
        let bit = 1u64 << (sequence % u64::BITS);
        if self.seen[word] & bit != 0 {
            self.repeated += 1;
            return false;
        }
        self.seen[word] |= bit;
        self.distinct += 1;
        if sequence >= self.reach {
            self.reach = sequence.saturating_add(1);
        } else {
            self.disordered += 1;
        }
        true
    }

    /// One more than the highest received sequence number. The publisher may run a window ahead of it.
    pub(crate) fn reach(&self) -> u32 {
        self.reach
    }

    pub(crate) fn distinct(&self) -> u32 {
        self.distinct
    }

    /// The publisher has sent the sequence numbers 0 to `sent - 1`.
    pub(crate) fn faults(&self, sent: u32) -> Faults {
        let received_of_sent = (0..sent)
            .step_by(u64::BITS as usize)
            .zip(&self.seen)
            .map(|(start, word)| {
                let wanted = sent - start;
                let mask = if wanted >= u64::BITS { u64::MAX } else { (1 << wanted) - 1 };
                u64::from((word & mask).count_ones())
            })
            .sum::<u64>();
        Faults {
            lost: u64::from(sent) - received_of_sent,
            repeated: u64::from(self.repeated),
            disordered: u64::from(self.disordered),
            stray: u64::from(self.distinct) - received_of_sent,
            ..Faults::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(deliveries: impl IntoIterator<Item = u32>, sent: u32) -> Faults {
        let mut receipts = Receipts::default();
        for sequence in deliveries {
            receipts.record(sequence);
        }
        receipts.faults(sent)
    }

    #[test]
    fn all_once_in_order_is_no_fault() {
        for sent in [0, 1, 63, 64, 65, 1000] {
            assert_eq!(after(0..sent, sent), Faults::default(), "{sent}");
        }
    }

    #[test]
    fn a_planted_loss_is_counted() {
        let lossy = (0..1000).filter(|n| *n != 0 && *n != 500 && *n != 999);
        assert_eq!(after(lossy, 1000), Faults { lost: 3, ..Faults::default() });
        assert_eq!(after([], 70), Faults { lost: 70, ..Faults::default() });
    }

    #[test]
    fn a_planted_repeat_is_counted_and_is_no_disorder() {
        let repeating = (0..1000).chain([0, 999, 999]);
        assert_eq!(after(repeating, 1000), Faults { repeated: 3, ..Faults::default() });
    }

    #[test]
    fn a_planted_reorder_is_counted_and_is_no_loss() {
        let swapped = (0..100).map(|n| match n {
            10 => 11,
            11 => 10,
            n => n,
        });
        assert_eq!(after(swapped, 100), Faults { disordered: 1, ..Faults::default() });
    }

    #[test]
    fn a_message_never_sent_is_a_stray() {
        assert_eq!(after(0..12, 10), Faults { stray: 2, ..Faults::default() });
    }

    #[test]
    fn the_reach_passes_over_losses() {
        let mut receipts = Receipts::default();
        assert!(receipts.record(5));
        assert!(!receipts.record(5));
        assert!(receipts.record(2));
        assert_eq!(receipts.reach(), 6);
    }
}
