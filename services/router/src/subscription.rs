//! Sessions and subscriptions as the router knows them.

use millrace_mqtt::QoS;

use crate::pmap::MapEntry;
use crate::seed::Seed;

/// A session in this process: its core (event loop) and its slot in the core's table, ordered by
/// core, then slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    pub core: u16,
    pub slot: u32,
    /// Counts the sessions that used the slot, so that a late message for a former session is not
    /// mistaken for the present one's.
    pub generation: u32,
}

impl Target {
    /// A number in the order of targets, because comparing one number is faster than three.
    #[inline]
    pub(crate) fn order(self) -> u128 {
        u128::from(self.core) << 64 | u128::from(self.slot) << 32 | u128::from(self.generation)
    }

    /// 64 bits in the order of targets. Cores and slots are small numbers, so each is encoded as
    /// its length and its digits (base 16). Neighbours then share a prefix, and no prefix is a run
    /// of zeros, which would cost a map one branch per digit. The low bits of the generation fill
    /// the rest; targets with the same address differ in their key.
    pub(crate) fn address(self) -> u64 {
        let mut free = 64;
        let mut address = 0;
        let mut push = |value: u64, bits: u32| {
            free -= bits;
            address |= value << free;
        };
        if self.core < 15 {
            push(u64::from(self.core), 4);
        } else {
            push(15, 4);
            push(u64::from(self.core), 16);
        }
        let digits = (32 - self.slot.leading_zeros()).div_ceil(4);
        push(u64::from(digits), 4);
        push(u64::from(self.slot), digits * 4);
        address | (u64::from(self.generation) & ((1 << free) - 1))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    pub target: Target,
    pub qos: QoS,
    pub no_local: bool,
    pub retain_as_published: bool,
    /// The router only counts these, in [`crate::Receiver::persistent_subscriptions`].
    pub persistent: bool,
    /// Subscription identifier; 0 for none.
    pub identifier: u32,
}

impl MapEntry for Subscription {
    type Key = Target;
    // Entries are plain bytes, so that copying a full leaf is one short memcpy.
    const LEAF_MAX: usize = 32;

    #[inline]
    fn key(&self) -> &Target {
        &self.target
    }

    #[inline]
    fn address(key: &Target, _: &Seed) -> u64 {
        key.address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn addresses_are_in_the_order_of_targets(
            a in (0u16..40, any::<u32>(), 0u32..200),
            b in (0u16..40, any::<u32>(), 0u32..200),
            shift in 0u32..32,
        ) {
            let target = |(core, slot, generation): (u16, u32, u32)| Target { core, slot: slot >> shift, generation };
            let (a, b) = (target(a), target(b));
            prop_assert_eq!(a.cmp(&b), a.address().cmp(&b.address()));
        }
    }

    #[test]
    fn the_largest_target_fits() {
        let last = Target { core: u16::MAX, slot: u32::MAX, generation: u32::MAX };
        assert_eq!(last.address() >> 8, 0xFF_FFF8_FFFF_FFFF);
    }
}
