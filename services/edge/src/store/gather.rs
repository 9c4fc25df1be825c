//! Group commit for publishers that wait for each PUBACK.
//!
//! A transaction answers its publishers all at once, and a round trip later they send the next message. If the next
//! transaction began at once, it would have the messages that arrived during the commit alone. The answered publishers
//! would wait for the one after it: two groups that take turns, each with half of the messages. So the writer waits for
//! a small part of the time of a commit, until as many messages came as were answered. PostgreSQL has `commit_delay`
//! for the same reason. Where the messages do not come, the writer waits less and less often. Only small messages count:
//! a broker with many large ones, or a SUBSCRIBE that is written in parts, would end each wait for the others.

/// The wait is at most this part (1/n) of the time of a commit.
const WAIT_DIVISOR: u64 = 4;
const WAIT_MAX_US: u64 = 2_000;
/// Most transactions between two waits.
const PAUSE_MAX: u32 = 255;

#[derive(Default)]
pub(super) struct Gather {
    /// Messages that arrived during the last commit, and one from each publisher that it answered.
    expected: usize,
    /// How many of `expected` arrived during the commit.
    queued: usize,
    /// Transactions that do not wait, because the last wait was in vain.
    pause: u32,
    pause_next: u32,
    /// The last batch had no room for all small messages, so the next one is full without waiting.
    pub(super) leaves_small: bool,
}

impl Gather {
    /// Notes that a transaction is about to answer this many publishers, and that so many jobs are queued.
    pub(super) fn note_answers(&mut self, answered: usize, queued: usize) {
        if answered > 0 {
            (self.expected, self.queued) = (answered + queued, queued);
        }
    }

    /// How long the next transaction waits for more than these messages, in microseconds; `commit_us`: the time of a commit.
    pub(super) fn wait_us(&mut self, messages: usize, commit_us: u64) -> u64 {
        if self.is_complete(messages) {
            return 0;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        (commit_us / WAIT_DIVISOR).min(WAIT_MAX_US)
    }

    pub(super) fn is_complete(&self, messages: usize) -> bool {
        messages >= self.expected
    }

    /// Ends a wait with this many messages. It was in vain if fewer than half of the answered publishers sent something.
    pub(super) fn end(&mut self, messages: usize) {
        let answered = self.expected - self.queued;
        let is_in_vain = messages.saturating_sub(self.queued) < answered.div_ceil(2);
        self.pause_next = if is_in_vain { (2 * self.pause_next + 1).min(PAUSE_MAX) } else { 0 };
        self.pause = self.pause_next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT_US: u64 = 4_000;

    #[test]
    fn the_next_transaction_waits_for_publishers_that_were_answered() {
        let mut gather = Gather::default();
        assert_eq!(gather.wait_us(1, COMMIT_US), 0, "nobody was answered");
        gather.note_answers(1, 0);
        assert_eq!(gather.wait_us(1, COMMIT_US), 0, "the only publisher is here");
        gather.note_answers(40, 60);
        assert_eq!((gather.wait_us(60, COMMIT_US), gather.wait_us(100, COMMIT_US)), (1_000, 0));
        assert_eq!(gather.wait_us(60, 60_000), WAIT_MAX_US);
        assert!(gather.is_complete(100) && !gather.is_complete(99));
    }

    #[test]
    fn waits_in_vain_get_rare_and_one_that_pays_brings_them_back() {
        let mut gather = Gather::default();
        gather.note_answers(40, 60);
        let mut count = |transactions: u32, arrives: usize| {
            (0..transactions)
                .filter(|_| {
                    let waits = gather.wait_us(60, COMMIT_US) > 0;
                    if waits {
                        gather.end(60 + arrives);
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
