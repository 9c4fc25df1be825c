//! Chooses how much of a connection's output one system call writes.

const SHORT_WRITE_BYTES: usize = 64 * 1024;
const SHORTEST_WRITE_BYTES: usize = 16 * 1024;
/// Fast writes of [`SHORT_WRITE_BYTES`] before longer ones.
const FAST_WRITES: i16 = 4;
/// Fast writes of [`SHORTEST_WRITE_BYTES`] after a slow write. Each slow one in a row doubles them, up to [`SLOW_WRITES_MAX`].
const FAST_WRITES_AGAIN: i16 = 60;
const SLOW_WRITES_MAX: u8 = 6;
/// A slow write is no longer in a row with the one before after so many fast long ones: the thread of a healthy connection loses its
/// core now and then.
const FAST_WRITES_BETWEEN: i16 = 32;
pub(super) const FAST_WRITE_US: u64 = 250;
const SLOW_WRITE_US: u64 = 2_000;

/// How much is written to a connection at once: a write of 256 KiB to a peer on the same machine that reads through a small
/// window took 15 ms. So writes begin short and grow while they are fast.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteSizer {
    /// Negative after a slow write.
    fast: i16,
    /// Slow writes in a row that were longer than [`SHORTEST_WRITE_BYTES`].
    slow: u8,
}

impl WriteSizer {
    pub(super) fn bytes(self, most: usize) -> usize {
        match self.fast {
            ..0 => most.min(SHORTEST_WRITE_BYTES),
            0..FAST_WRITES => most.min(SHORT_WRITE_BYTES),
            _ => most,
        }
    }

    pub(super) fn note(&mut self, written: usize, took_us: u64) {
        if took_us > SLOW_WRITE_US {
            if self.fast >= FAST_WRITES + FAST_WRITES_BETWEEN {
                self.slow = 0;
            }
            if written > SHORTEST_WRITE_BYTES {
                self.slow = SLOW_WRITES_MAX.min(self.slow + 1);
            }
            self.fast = -(FAST_WRITES_AGAIN << self.slow.saturating_sub(1));
        } else if written >= self.bytes(SHORT_WRITE_BYTES) && took_us < FAST_WRITE_US {
            self.fast = (FAST_WRITES + FAST_WRITES_BETWEEN).min(self.fast + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::output::FLUSH_BYTES;

    const FAST: u64 = FAST_WRITE_US / 2;
    const USUAL: u64 = FAST_WRITE_US * 2;
    const SLOW: u64 = SLOW_WRITE_US + 1;

    #[track_caller]
    fn takes_fast_writes(sizer: &mut WriteSizer, count: i16, bytes: usize) {
        for number in 0..count {
            assert_eq!(sizer.bytes(FLUSH_BYTES), bytes, "after {number}");
            sizer.note(bytes, FAST);
        }
    }

    #[test]
    fn writes_are_long_after_fast_ones_until_one_is_slow() {
        let mut sizer = WriteSizer::default();
        for (written, took_us) in [(1, FAST), (SHORT_WRITE_BYTES, USUAL)] {
            for _ in 0..=FAST_WRITES {
                sizer.note(written, took_us);
                assert_eq!(sizer.bytes(FLUSH_BYTES), SHORT_WRITE_BYTES, "{written} bytes in {took_us} us");
            }
        }
        takes_fast_writes(&mut sizer, FAST_WRITES, SHORT_WRITE_BYTES);
        sizer.note(FLUSH_BYTES, USUAL);
        assert_eq!((sizer.bytes(FLUSH_BYTES), sizer.bytes(1)), (FLUSH_BYTES, 1));
        sizer.note(FLUSH_BYTES, SLOW);
        assert_eq!(sizer.bytes(FLUSH_BYTES), SHORTEST_WRITE_BYTES);
    }

    #[test]
    fn writes_that_are_slow_again_and_again_are_short_for_longer() {
        let mut sizer = WriteSizer::default();
        for again in [60, 120, 240, 480, 960, 1_920, 1_920] {
            sizer.note(FLUSH_BYTES, SLOW);
            takes_fast_writes(&mut sizer, again, SHORTEST_WRITE_BYTES);
            takes_fast_writes(&mut sizer, FAST_WRITES, SHORT_WRITE_BYTES);
            takes_fast_writes(&mut sizer, FAST_WRITES_BETWEEN - 1, FLUSH_BYTES);
        }
        takes_fast_writes(&mut sizer, 1, FLUSH_BYTES);
        for _ in 0..3 {
            sizer.note(FLUSH_BYTES, SLOW);
            takes_fast_writes(&mut sizer, 60, SHORTEST_WRITE_BYTES);
            takes_fast_writes(&mut sizer, FAST_WRITES, SHORT_WRITE_BYTES);
            takes_fast_writes(&mut sizer, FAST_WRITES_BETWEEN, FLUSH_BYTES);
        }
        sizer.note(SHORTEST_WRITE_BYTES, SLOW);
        sizer.note(SHORTEST_WRITE_BYTES, SLOW);
        takes_fast_writes(&mut sizer, 60, SHORTEST_WRITE_BYTES);
        assert_eq!(sizer.bytes(FLUSH_BYTES), SHORT_WRITE_BYTES, "their length was not the reason");
    }
}
