//! Group commit for publishers that wait for each PUBACK.
//!
//! A transaction answers its publishers all at once, and a round trip later they send the next message. If the next
//! transaction began at once, it would have the messages that arrived during the commit alone. The answered publishers
//! would wait for the one after it: two groups that take turns, each with half of the messages. So the writer waits for
//! a small part of the time of a commit, until as many messages came as were answered. PostgreSQL has `commit_delay`
//! for the same reason.
//!
//! Messages are counted by broker, and only small ones. The writer does not wait for a broker that has more to write than
//! its share: what such a broker sends next depends on no answer. Where the messages do not come, the writer waits less
//! and less often.

use std::collections::HashMap;

/// The wait is at most this part (1/n) of the time of a commit.
const WAIT_DIVISOR: u64 = 4;
const WAIT_MAX_US: u64 = 2_000;
/// Most transactions between two waits.
const PAUSE_MAX: u32 = 255;

/// How often the writer waits: waits in vain become rare, and one that pays brings them back.
#[derive(Default)]
pub(super) struct Patience {
    /// Occasions that are let pass, because the last wait was in vain.
    pause: u32,
    pause_next: u32,
}

impl Patience {
    /// Whether to wait on this occasion. After the wait, [`Self::end`] says whether it paid.
    pub(super) fn waits(&mut self) -> bool {
        let is_over = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        is_over
    }

    pub(super) fn end(&mut self, is_in_vain: bool) {
        self.pause_next = if is_in_vain { (2 * self.pause_next + 1).min(PAUSE_MAX) } else { 0 };
        self.pause = self.pause_next;
    }
}

#[derive(Default)]
pub(super) struct Gather {
    /// Messages that were answered last and have no successor yet, by broker.
    awaited: HashMap<u64, usize>,
    answered: usize,
    missing: usize,
    /// Messages that were in the queue when the others were answered: they are from other publishers.
    queued: usize,
    patience: Patience,
}

impl Gather {
    /// Notes that the publishers of these brokers, each named once for each message, are about to be answered while so many
    /// messages are in the queue.
    pub(super) fn note_answers(&mut self, brokers: impl Iterator<Item = u64>, queued: usize) {
        let mut brokers = brokers.peekable();
        if brokers.peek().is_none() {
            return;
        }
        self.awaited.clear();
        brokers.for_each(|broker| *self.awaited.entry(broker).or_default() += 1);
        self.answered = self.awaited.values().sum();
        (self.missing, self.queued) = (self.answered, queued);
    }

    /// Notes a small message of a broker, in the order of the queue. Until the wait is complete, each must be noted.
    pub(super) fn note_arrival(&mut self, broker: u64) {
        if self.queued > 0 {
            self.queued -= 1;
        } else if let Some(awaited @ 1..) = self.awaited.get_mut(&broker) {
            *awaited -= 1;
            self.missing -= 1;
        }
    }

    /// How long the next transaction waits, in microseconds; `commit_us`: the time of a commit.
    pub(super) fn wait_us(&mut self, commit_us: u64) -> u64 {
        let waits = !self.is_complete() && self.patience.waits();
        if waits { (commit_us / WAIT_DIVISOR).min(WAIT_MAX_US) } else { 0 }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Ends a wait. It was in vain if fewer than half of the answered publishers sent something.
    pub(super) fn end(&mut self) {
        self.patience.end(self.answered - self.missing < self.answered.div_ceil(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT_US: u64 = 4_000;
    const ONE: u64 = 1;
    const FLOOD: u64 = 2;

    impl Gather {
        fn answer(&mut self, answered: usize, queued: usize) {
            self.note_answers(std::iter::repeat_n(ONE, answered), queued);
        }

        fn arrive(&mut self, broker: u64, messages: usize) {
            (0..messages).for_each(|_| self.note_arrival(broker));
        }
    }

    #[test]
    fn the_next_transaction_waits_for_publishers_that_were_answered() {
        let mut gather = Gather::default();
        assert_eq!(gather.wait_us(COMMIT_US), 0, "nobody was answered");
        gather.answer(1, 0);
        gather.arrive(ONE, 1);
        assert_eq!(gather.wait_us(COMMIT_US), 0, "the only publisher is here");
        gather.answer(40, 60);
        gather.arrive(ONE, 60);
        assert_eq!(gather.wait_us(COMMIT_US), 1_000, "those in the queue are from others");
        assert_eq!(gather.wait_us(60_000), WAIT_MAX_US);
        gather.arrive(ONE, 39);
        assert!(!gather.is_complete());
        gather.arrive(ONE, 1);
        assert!(gather.is_complete() && gather.wait_us(COMMIT_US) == 0);
    }

    #[test]
    fn messages_of_another_broker_do_not_end_the_wait() {
        let mut gather = Gather::default();
        gather.answer(8, 500);
        gather.arrive(FLOOD, 2_000);
        assert!(!gather.is_complete());
        gather.arrive(ONE, 8);
        assert!(gather.is_complete());
    }

    #[test]
    fn a_transaction_that_answers_nobody_leaves_the_wait_as_it_is() {
        let mut gather = Gather::default();
        gather.answer(2, 0);
        gather.answer(0, 5);
        gather.arrive(ONE, 2);
        assert!(gather.is_complete());
    }

    #[test]
    fn waits_in_vain_get_rare_and_one_that_pays_brings_them_back() {
        let mut gather = Gather::default();
        let mut count = |transactions: u32, arrives: usize| {
            (0..transactions)
                .filter(|_| {
                    gather.answer(40, 60);
                    gather.arrive(ONE, 60);
                    let waits = gather.wait_us(COMMIT_US) > 0;
                    if waits {
                        gather.arrive(ONE, arrives);
                        gather.end();
                    }
                    waits
                })
                .count()
        };
        assert_eq!(count(1_000, 19), 10);
        assert!(count(PAUSE_MAX + 1, 20) > 0);
        assert_eq!(count(100, 20), 100);
    }
}
