//! Chooses how much of a connection's output one system call writes.

const MEDIUM_WRITE_BYTES: usize = 128 * 1024;
const SHORT_WRITE_BYTES: usize = 64 * 1024;
const SHORTEST_WRITE_BYTES: usize = 16 * 1024;
/// Fast writes of a length before writes are twice as long.
const FAST_WRITES: i16 = 4;
/// Fast writes of [`SHORTEST_WRITE_BYTES`] after a first slow write; each further slow one doubles them, up to [`SLOW_WRITES_MAX`].
const FAST_WRITES_AGAIN: i16 = 60;
const SLOW_WRITES_MAX: u8 = 6;
/// So many fast writes in a row make up for a slow one.
const FAST_WRITES_MANY: i16 = 1_000;
pub(super) const FAST_WRITE_US: u64 = 250;
const SLOW_WRITE_US: u64 = 2_000;

/// How much is written to a connection at once: a write of 256 KiB to a peer on the same machine that reads through a small
/// window took 15 ms. So writes begin short and grow while they are fast.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteSizer {
    /// Negative after a slow write.
    fast: i16,
    /// Slow writes that were longer than [`SHORTEST_WRITE_BYTES`].
    slow: u8,
}

impl WriteSizer {
    pub(super) fn bytes(self, most: usize) -> usize {
        match self.fast / FAST_WRITES {
            _ if self.fast < 0 => most.min(SHORTEST_WRITE_BYTES),
            0 => most.min(SHORT_WRITE_BYTES),
            1 => most.min(MEDIUM_WRITE_BYTES),
            _ => most,
        }
    }

    pub(super) fn note(&mut self, written: usize, took_us: u64) {
        if took_us > SLOW_WRITE_US {
            if written > SHORTEST_WRITE_BYTES {
                self.slow = SLOW_WRITES_MAX.min(self.slow + 1);
            }
            self.fast = -(FAST_WRITES_AGAIN << self.slow.saturating_sub(1));
        } else if written >= self.bytes(MEDIUM_WRITE_BYTES) && took_us < FAST_WRITE_US {
            self.fast += 1;
            if self.fast == FAST_WRITES_MANY {
                (self.fast, self.slow) = (2 * FAST_WRITES, self.slow.saturating_sub(1));
            }
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
    fn writes_grow_with_fast_ones_until_one_is_slow() {
        let mut sizer = WriteSizer::default();
        for (written, took_us) in [(1, FAST), (SHORT_WRITE_BYTES, USUAL)] {
            for _ in 0..=FAST_WRITES {
                sizer.note(written, took_us);
                assert_eq!(sizer.bytes(FLUSH_BYTES), SHORT_WRITE_BYTES, "{written} bytes in {took_us} us");
            }
        }
        takes_fast_writes(&mut sizer, FAST_WRITES, SHORT_WRITE_BYTES);
        takes_fast_writes(&mut sizer, FAST_WRITES, MEDIUM_WRITE_BYTES);
        sizer.note(FLUSH_BYTES, USUAL);
        assert_eq!((sizer.bytes(FLUSH_BYTES), sizer.bytes(1)), (FLUSH_BYTES, 1));
        sizer.note(FLUSH_BYTES, SLOW);
        assert_eq!(sizer.bytes(FLUSH_BYTES), SHORTEST_WRITE_BYTES);
    }

    #[test]
    fn each_slow_write_makes_writes_short_for_longer() {
        let mut sizer = WriteSizer::default();
        for again in [60, 120, 240, 480, 960, 1_920, 1_920] {
            sizer.note(SHORT_WRITE_BYTES, SLOW);
            takes_fast_writes(&mut sizer, again, SHORTEST_WRITE_BYTES);
            assert_eq!(sizer.bytes(FLUSH_BYTES), SHORT_WRITE_BYTES);
        }
        sizer.note(SHORT_WRITE_BYTES, SLOW);
        for _ in 0..1_920 + 3 * FAST_WRITES_MANY {
            sizer.note(sizer.bytes(FLUSH_BYTES), FAST);
        }
        sizer.note(FLUSH_BYTES, SLOW);
        takes_fast_writes(&mut sizer, 480, SHORTEST_WRITE_BYTES);
        let mut sizer = WriteSizer::default();
        for _ in 0..3 {
            sizer.note(SHORTEST_WRITE_BYTES, SLOW);
        }
        takes_fast_writes(&mut sizer, FAST_WRITES_AGAIN, SHORTEST_WRITE_BYTES);
        assert_eq!(sizer.bytes(FLUSH_BYTES), SHORT_WRITE_BYTES, "their length was not the reason");
    }
}
