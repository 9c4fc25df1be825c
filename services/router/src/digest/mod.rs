//! Digests: a pod summarises its subscribers' filters, so that other pods send it only messages
//! that may match. A digest takes about two bytes a filter.
//!
//! A filter is a *shape* (number of levels, positions of `+`, whether it ends with `#`) and a hash
//! of its other levels. All filters without wildcards share one shape. One Bloom filter holds the
//! hashes, so a topic costs one lookup per shape. A lookup finds a filter that is not there about
//! once in 300 times, and never misses a filter. With too many shapes or filters there is no
//! digest, and the pod gets every message of the broker.

mod code;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub use code::{Code, TopicCode};
use code::{FilterPath, Shape};

use crate::group::ShareGroup;
use crate::router::Snapshot;
use crate::set::SubscriberSet;

/// Devices use few shapes; only a malicious tenant exceeds this.
pub const SHAPES_MAX: usize = 32;
/// Bits per filter of a new digest; a quarter of them is room for new filters.
const BITS: usize = 16;
/// A digest with fewer bits per filter must be rebuilt: at this size one topic in 270 matches
/// falsely, for each shape.
const BITS_LEAST: usize = 12;
/// 4 MiB of bits hold 2.8 million filters of one broker, as many as the clients of a full pod have.
const BITS_MAX: usize = 32 << 20;
/// Filters of the largest digest: with more, over one topic in four would match falsely.
const FILTERS_MAX: usize = BITS_MAX / 4;
/// Bits set per filter: the optimum for 8 to 10 bits per filter, and little worse than the optimum
/// at 12 to 16.
const PROBES: u64 = 6;
const WORDS_MIN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// Any number of threads may read while one thread inserts; to see an insert, a reader needs a lock or another ordering.
#[derive(Debug)]
pub struct Digest {
    shapes: [AtomicU64; SHAPES_MAX],
    bits: Box<[AtomicU64]>,
    /// Since [`Self::decode`], if it was decoded: only the digest's own pod asks whether it is full.
    filters: AtomicUsize,
}

impl Digest {
    #[must_use]
    pub fn with_room(filters: usize) -> Self {
        let bits = filters.saturating_mul(BITS).min(BITS_MAX);
        let words = bits.div_ceil(64).max(WORDS_MIN);
        Self {
            shapes: [const { AtomicU64::new(0) }; SHAPES_MAX],
            bits: (0..words).map(|_| AtomicU64::new(0)).collect(),
            filters: AtomicUsize::new(0),
        }
    }

    /// False when the digest already matched the filter. Only one thread at a time may insert.
    ///
    /// # Errors
    /// The digest has too many shapes or filters for another; the earlier filters remain.
    pub fn insert(&self, code: Code) -> Result<bool, TooMany> {
        let slot = self.shapes().position(|shape| shape == code.shape());
        let is_new_shape = slot.is_none();
        if is_new_shape {
            let free = self.shapes.iter().find(|shape| shape.load(Ordering::Relaxed) == 0);
            free.ok_or(TooMany)?.store(code.shape().bits(), Ordering::Relaxed);
        }
        let mut changed = is_new_shape;
        for (word, bit) in self.positions(code.hash()) {
            changed |= self.bits[word].fetch_or(bit, Ordering::Relaxed) & bit == 0;
        }
        if changed && self.filters.fetch_add(1, Ordering::Relaxed) >= FILTERS_MAX {
            return Err(TooMany);
        }
        Ok(changed)
    }

    /// With `shared`, filters of shared subscriptions count, too.
    #[must_use]
    pub fn may_match(&self, topic: &TopicCode, shared: bool) -> bool {
        self.shapes()
            .filter(|shape| shared || !shape.is_shared())
            .any(|shape| topic.hash(shape).is_some_and(|hash| self.has(hash)))
    }

    #[must_use]
    pub fn is_full(&self) -> bool {
        let bits = self.bits.len() * 64;
        bits < BITS_MAX && self.filters() * BITS_LEAST > bits
    }

    #[must_use]
    pub fn filters(&self) -> usize {
        self.filters.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let bits = |digest: &Self| -> Vec<u64> { digest.words().collect() };
        let shapes = |digest: &Self| {
            let mut shapes: Vec<u64> = digest.shapes().map(Shape::bits).collect();
            shapes.sort_unstable();
            shapes
        };
        self.bits.len() == other.bits.len() && shapes(self) == shapes(other) && bits(self) == bits(other)
    }

    /// Appends the number of shapes (1 byte), the shapes (8 bytes each) and the bits, all
    /// big-endian.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let shapes: Vec<u64> = self.shapes().map(Shape::bits).collect();
        out.reserve(1 + 8 * (shapes.len() + self.bits.len()));
        out.push(u8::try_from(shapes.len()).unwrap_or(u8::MAX));
        for word in shapes.into_iter().chain(self.words()) {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }

    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (shapes, rest) = bytes.split_first()?;
        let (words, []) = rest.as_chunks::<8>() else { return None };
        let (shapes, words) = words.split_at_checked(usize::from(*shapes))?;
        let is_right = shapes.len() <= SHAPES_MAX && (WORDS_MIN..=BITS_MAX / 64).contains(&words.len());
        if !is_right || shapes.contains(&[0; 8]) {
            return None;
        }
        let digest = Self::with_room(0);
        for (slot, shape) in digest.shapes.iter().zip(shapes) {
            slot.store(u64::from_be_bytes(*shape), Ordering::Relaxed);
        }
        let bits = words.iter().map(|word| AtomicU64::new(u64::from_be_bytes(*word))).collect();
        Some(Self { bits, ..digest })
    }

    fn shapes(&self) -> impl Iterator<Item = Shape> {
        let shapes = self.shapes.iter().map(|shape| shape.load(Ordering::Relaxed));
        shapes.take_while(|shape| *shape != 0).map(Shape::from_bits)
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        self.bits.iter().map(|word| word.load(Ordering::Relaxed))
    }

    fn has(&self, hash: u64) -> bool {
        self.positions(hash).all(|(word, bit)| self.bits[word].load(Ordering::Relaxed) & bit != 0)
    }

    /// The bits of a hash, derived from its two halves, which is as good as independent hashes
    /// (Kirsch and Mitzenmacher, 2006).
    fn positions(&self, hash: u64) -> impl Iterator<Item = (usize, u64)> {
        let bits = self.bits.len() as u64 * 64;
        let (start, step) = (hash >> 32, hash | 1);
        (0..PROBES).map(move |probe| {
            let of_32_bits = start.wrapping_add(probe.wrapping_mul(step)) & u64::from(u32::MAX);
            let place = (of_32_bits * bits) >> 32;
            ((place / 64) as usize, 1 << (place % 64))
        })
    }
}

impl Snapshot {
    /// The digest of all plain filters and of the shared filters for which `counts` returns true,
    /// with room for `spare` more filters.
    pub fn digest(&self, counts: impl Fn(&ShareGroup) -> bool, spare: usize) -> Result<Digest, TooMany> {
        let mut filters = 0;
        self.walk(
            (),
            |(), _| (),
            |(), set, _| {
                filters +=
                    usize::from(!set.subscribers.is_empty()) + usize::from(set.groups().next().is_some());
            },
        );
        if filters > FILTERS_MAX {
            return Err(TooMany);
        }
        let digest = Digest::with_room(filters + spare);
        let mut inserted = Ok(());
        let visit = |path: FilterPath, set: &SubscriberSet, many: bool| {
            let is_plain = !set.subscribers.is_empty();
            let is_shared = set.groups().any(|group| counts(group));
            for (_, shared) in [(is_plain, false), (is_shared, true)].into_iter().filter(|(is, _)| *is) {
                inserted = inserted.and_then(|()| digest.insert(path.code(many, shared)).map(drop));
            }
        };
        self.walk(FilterPath::default(), FilterPath::with, visit);
        inserted.map(|()| digest)
    }
}

#[cfg(test)]
mod tests;
