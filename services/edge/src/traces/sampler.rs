//! Samples the messages of one event loop. The loop counts every message by [`Sampler::pass`]. While [`Sampler::is_due`], the next
//! message is the sample, and [`Sampler::choose`] begins its trace.

use std::collections::HashMap;

use millrace_session::Seconds;

use super::Tracer;

/// Chooses messages at random and bounds the traces per second: in all, on request of publishers, and on request of one broker's
/// publishers. So no tenant can use up the traces of the others.
pub(crate) struct Sampler {
    /// Messages until the next random sample; without a tracer it is never reached.
    left: u64,
    ratio: f64,
    random: u64,
    max: u32,
    second: Seconds,
    followed: u32,
    requested: u32,
    by_broker: HashMap<u64, u32>,
}

/// Publishers can ask for this part (1/n) of a second's traces.
const REQUESTED_PART: u32 = 2;
/// Publishers of one broker can ask for this part (1/n).
const BROKER_PART: u32 = 4;

impl Sampler {
    pub(crate) fn new(tracer: Option<&Tracer>, cores: usize) -> Self {
        let cores = u32::try_from(cores).unwrap_or(u32::MAX).max(1);
        let mut sampler = Self {
            left: u64::MAX,
            ratio: tracer.map_or(0.0, |tracer| tracer.ratio),
            random: tracer.map_or(0, Tracer::id),
            max: tracer.map_or(0, |tracer| tracer.per_second_max.div_ceil(cores)),
            second: 0,
            followed: 0,
            requested: 0,
            by_broker: HashMap::new(),
        };
        if tracer.is_some() {
            sampler.left = sampler.gap();
        }
        sampler
    }

    /// Returns the number of samples among these messages that the second's limit has left out.
    #[inline]
    pub(crate) fn pass(&mut self, messages: usize) -> usize {
        let messages = messages as u64;
        if messages > self.left && self.is_used_up() {
            return self.leave_out(messages);
        }
        self.left = self.left.saturating_sub(messages);
        0
    }

    /// Whether the next message is a sample that the second's limit allows. Otherwise a sample needs no attention of its own:
    /// [`Self::pass`] counts it.
    #[inline]
    pub(crate) fn is_due(&mut self, now: Seconds) -> bool {
        self.is_near(0, now)
    }

    /// Whether such a sample may be among the next messages.
    #[inline]
    pub(crate) fn is_near(&mut self, messages: usize, now: Seconds) -> bool {
        self.left <= messages as u64 && self.has_room(now)
    }

    /// Begins the trace of the sample that is due.
    pub(crate) fn choose(&mut self) {
        // The message itself is still to pass.
        self.left = self.gap().saturating_add(1);
        self.followed += 1;
    }

    /// True when the limits allow a trace that a publisher of this broker asks for.
    pub(crate) fn requested(&mut self, broker: u64, now: Seconds) -> bool {
        self.turn_to(now);
        let of_broker = self.by_broker.get(&broker).copied().unwrap_or(0);
        let fits =
            self.requested < self.max.div_ceil(REQUESTED_PART) && of_broker < self.max.div_ceil(BROKER_PART);
        if !fits || self.is_used_up() {
            return false;
        }
        self.followed += 1;
        self.requested += 1;
        self.by_broker.insert(broker, of_broker + 1);
        true
    }

    fn has_room(&mut self, now: Seconds) -> bool {
        self.turn_to(now);
        !self.is_used_up()
    }

    fn is_used_up(&self) -> bool {
        self.followed >= self.max
    }

    #[cold]
    fn leave_out(&mut self, mut messages: u64) -> usize {
        let mut samples = 0;
        while messages > self.left {
            messages -= self.left + 1;
            self.left = self.gap();
            samples += 1;
        }
        self.left -= messages;
        samples
    }

    fn turn_to(&mut self, now: Seconds) {
        if self.second != now {
            self.second = now;
            (self.followed, self.requested) = (0, 0);
            self.by_broker.clear();
        }
    }

    /// Messages before the next sample, geometrically distributed so that a publisher's rhythm does not matter.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn gap(&mut self) -> u64 {
        if self.ratio >= 1.0 {
            return 0;
        }
        if self.ratio <= 0.0 {
            return u64::MAX;
        }
        // xorshift64.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // In (0, 1].
        let random = ((self.random >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (random.ln() / (-self.ratio).ln_1p()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::traces::{MessageSpan, SpanSink};

    struct Nowhere;

    impl SpanSink for Nowhere {
        fn span(&self, _: MessageSpan) {}
    }

    fn sampler(ratio: f64, per_second_max: u32) -> Sampler {
        Sampler::new(Some(&Tracer::new(Arc::new(Nowhere), ratio, per_second_max)), 1)
    }

    /// The number of chosen messages.
    fn chosen(sampler: &mut Sampler, messages: u32) -> u32 {
        let mut chosen = 0;
        for _ in 0..messages {
            if sampler.is_due(1) {
                sampler.choose();
                chosen += 1;
            }
            sampler.pass(1);
        }
        chosen
    }

    #[test]
    fn about_the_ratio_of_all_messages_is_chosen() {
        let ten_percent = chosen(&mut sampler(0.1, u32::MAX), 100_000);
        // Twenty standard deviations.
        assert!((8_000..12_000).contains(&ten_percent), "{ten_percent}");
        assert_eq!(chosen(&mut sampler(1.0, u32::MAX), 100), 100);
        assert_eq!(chosen(&mut Sampler::new(None, 1), 100_000), 0);
        let mut none = sampler(0.0, u32::MAX);
        assert_eq!(chosen(&mut none, 100_000), 0);
        assert!(none.requested(1, 1), "publishers can still ask");
    }

    #[test]
    fn a_sample_is_near_before_it_is_due() {
        let mut sampler = sampler(0.01, 8);
        assert!(sampler.is_near(usize::MAX, 1));
        while !sampler.is_near(5, 1) {
            assert!(!sampler.is_due(1));
            sampler.pass(1);
        }
        sampler.pass(5);
        assert!(sampler.is_due(1));
        let mut without = Sampler::new(None, 1);
        without.pass(1_000_000);
        assert!(!without.is_near(1_000_000, 1), "an event loop without a tracer reads no clock for it");
    }

    #[test]
    fn a_second_has_a_bounded_number_of_traces() {
        let mut sampler = sampler(1.0, 8);
        assert_eq!(chosen(&mut sampler, 100), 8);
        assert!(sampler.is_due(2), "the next second");
    }

    #[test]
    fn samples_beyond_the_limit_are_never_due_or_near_and_all_count() {
        let mut sampler = sampler(0.1, 8);
        chosen(&mut sampler, 10_000);
        assert!(!sampler.is_near(usize::MAX, 1), "so the event loop reads no clock for them");
        let one_by_one: usize = (0..100_000).map(|_| sampler.pass(1)).sum();
        let in_runs: usize = (0..100).map(|_| sampler.pass(1000)).sum();
        // Twenty standard deviations.
        for left_out in [one_by_one, in_runs] {
            assert!((8_000..12_000).contains(&left_out), "{left_out}");
        }
    }

    #[test]
    fn one_broker_cannot_ask_for_all_and_all_together_leave_half_to_chance() {
        let mut sampler = sampler(1.0, 8);
        let of_one = (0..100).filter(|_| sampler.requested(1, 1)).count();
        let of_others = (2..100).filter(|broker| sampler.requested(*broker, 1)).count();
        assert_eq!((of_one, of_others, chosen(&mut sampler, 100)), (2, 2, 4));
        assert!(sampler.requested(1, 2), "the next second");
        assert_eq!(sampler.by_broker.len(), 1, "what a second before had is forgotten");
    }
}
