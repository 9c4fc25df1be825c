//! Encodes filters and topics as numbers for a digest. Pods of different builds must compute the
//! same numbers, so the hash is XXH3 without a seed, whose values never change. A tenant that
//! constructs collisions only gets needless messages of its own.

use millrace_mqtt::topic::Filter;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

/// Levels of a filter that the code distinguishes; a longer filter with wildcards counts as its
/// first levels followed by `#`.
const LEVELS_MAX: u32 = 32;

/// From the low bits: which levels are `+` (32 bits), the number of levels (6 bits), and the flags
/// below; never 0. All filters without wildcards share one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape(u64);

const MANY: u64 = 1 << 40;
const SHARED: u64 = 1 << 41;
const EXACT: u64 = 1 << 42;

impl Shape {
    fn wild(mask: u32, levels: u32, many: bool) -> Self {
        Self(u64::from(mask) | u64::from(levels) << 32 | if many { MANY } else { 0 })
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    fn is_exact(self) -> bool {
        self.0 & EXACT != 0
    }

    fn is_many(self) -> bool {
        self.0 & MANY != 0
    }

    fn levels(self) -> usize {
        usize::from((self.0 >> 32) as u8 & 0x3F)
    }

    fn is_plus(self, level: usize) -> bool {
        level < LEVELS_MAX as usize && self.0 >> level & 1 == 1
    }

    fn begins_wild(self) -> bool {
        self.is_plus(0) || (self.levels() == 0 && self.is_many())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code {
    shape: u64,
    hash: u64,
}

impl Code {
    pub const LEN: usize = 16;

    #[must_use]
    pub fn of(filter: Filter<'_>) -> Self {
        let shared = filter.share.is_some();
        let (head, many) = match filter.filter.strip_suffix('#') {
            Some(head) => (head.strip_suffix('/'), true),
            None => (Some(filter.filter), false),
        };
        let path = head.map_or(FilterPath::default(), |head| {
            head.split('/').fold(FilterPath::default(), FilterPath::with)
        });
        path.code(many, shared)
    }

    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        (u128::from(self.shape) << 64 | u128::from(self.hash)).to_be_bytes()
    }

    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Option<Self> {
        let number = u128::from_be_bytes(bytes);
        let code = Self { shape: (number >> 64) as u64, hash: number as u64 };
        (code.shape != 0).then_some(code)
    }

    pub(super) fn shape(self) -> Shape {
        Shape(self.shape)
    }

    pub(super) fn hash(self) -> u64 {
        self.hash
    }
}

/// A filter while its levels are added one after the other, for example on a walk through a trie.
#[derive(Clone, Copy, Default)]
pub(super) struct FilterPath {
    hash: u64,
    levels: u32,
    mask: u32,
    is_wild: bool,
    /// The hash of the first [`LEVELS_MAX`] levels, set once the filter has more.
    head: u64,
}

impl FilterPath {
    pub(super) fn with(mut self, level: &str) -> Self {
        if self.levels == LEVELS_MAX {
            self.head = self.hash;
        }
        if level == "+" {
            self.is_wild = true;
            self.mask |= 1u32.checked_shl(self.levels).unwrap_or(0);
        } else {
            self.hash = join(self.hash, xxh3_64(level.as_bytes()));
        }
        self.levels += 1;
        self
    }

    /// `many`: the filter ends with `/#`.
    pub(super) fn code(self, many: bool, shared: bool) -> Code {
        let (shape, hash) = match () {
            () if !self.is_wild && !many => (Shape(EXACT), self.hash),
            () if self.levels > LEVELS_MAX => (Shape::wild(self.mask, LEVELS_MAX, true), self.head),
            () => (Shape::wild(self.mask, self.levels, many), self.hash),
        };
        let shape = Shape(shape.0 | if shared { SHARED } else { 0 });
        Code { shape: shape.0, hash: finish(hash, shape) }
    }
}

#[derive(Debug)]
pub struct TopicCode {
    levels: SmallVec<[u64; 16]>,
    /// The topic starts with `$`, so wildcards in the first level do not match it.
    is_hidden: bool,
}

impl TopicCode {
    #[must_use]
    pub fn of(topic: &str) -> Self {
        let levels = topic.split('/').map(|level| xxh3_64(level.as_bytes())).collect();
        //= [MQTT-4.7.2-1] v5 v3.1.1
        Self { levels, is_hidden: topic.starts_with('$') }
    }

    /// `None` when no filter of this shape can match the topic.
    pub(super) fn hash(&self, shape: Shape) -> Option<u64> {
        let levels = if shape.is_exact() { self.levels.len() } else { shape.levels() };
        let fits = match shape.is_many() {
            true => self.levels.len() >= levels,
            false => self.levels.len() == levels,
        };
        if !fits || (self.is_hidden && shape.begins_wild()) {
            return None;
        }
        let own = self.levels[..levels].iter().enumerate().filter(|(level, _)| !shape.is_plus(*level));
        Some(finish(own.fold(0, |hash, (_, level)| join(hash, *level)), shape))
    }
}

/// Mixes a level into a hash by Fibonacci hashing: the factor is 2^64 divided by the golden ratio.
fn join(hash: u64, level: u64) -> u64 {
    let mixed = (hash ^ level).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 32
}

/// Spreads a hash over all bits; the steps are the end of MurmurHash3.
fn finish(hash: u64, shape: Shape) -> u64 {
    let mut mixed = hash ^ shape.0.rotate_left(17);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    mixed ^ mixed >> 33
}
