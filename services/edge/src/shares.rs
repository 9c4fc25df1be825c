//! Divides a bounded number of slots, such as webhook calls in flight, among tenants. A tenant may take a slot while it has fewer than
//! a part of the free ones, so a slot is left for the next tenant: the dynamic threshold of shared-memory switches.

use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct TenantShares {
    max: usize,
    /// With 8, one tenant has at most an eighth of the free slots.
    part: usize,
    taken: usize,
    by_tenant: HashMap<Arc<str>, usize>,
}

impl TenantShares {
    pub(crate) fn new(max: usize, part: usize) -> Self {
        Self { max, part, taken: 0, by_tenant: HashMap::new() }
    }

    /// Each slot that was taken must be given back.
    #[must_use]
    pub(crate) fn take(&mut self, tenant: &Arc<str>) -> bool {
        let (free, has) = (self.max - self.taken, self.by_tenant.get(tenant).copied().unwrap_or(0));
        // A tenant without a slot may take the last ones, too.
        if free == 0 || has > 0 && has >= free / self.part {
            return false;
        }
        *self.by_tenant.entry(tenant.clone()).or_default() += 1;
        self.taken += 1;
        true
    }

    pub(crate) fn give_back(&mut self, tenant: &str) {
        let Some(has) = self.by_tenant.get_mut(tenant) else { return };
        *has -= 1;
        if *has == 0 {
            self.by_tenant.remove(tenant);
        }
        self.taken -= 1;
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    pub(crate) fn of(&self, tenant: &str) -> usize {
        self.by_tenant.get(tenant).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(shares: &mut TenantShares, tenant: &str) -> usize {
        let tenant = tenant.into();
        std::iter::from_fn(|| shares.take(&tenant).then_some(())).count()
    }

    #[test]
    fn however_many_tenants_take_all_that_they_may_another_one_finds_slots() {
        let mut shares = TenantShares::new(10_000, 8);
        // It stops at an eighth of what it leaves free: 1,111 of 8,889.
        assert_eq!(take_all(&mut shares, "alone"), 1_111);
        for number in 0..64 {
            assert!(take_all(&mut shares, &format!("mallory{number}")) > 0);
        }
        assert!(take_all(&mut shares, "ann") > 0);
    }

    #[test]
    fn slots_that_are_given_back_can_be_taken_and_nothing_is_kept_of_a_tenant_without_one() {
        let mut shares = TenantShares::new(2, 1);
        let (ann, bob) = ("ann".into(), "bob".into());
        assert!(shares.take(&ann) && !shares.take(&ann));
        assert!(shares.take(&bob), "the last slot");
        assert!(!shares.take(&"eve".into()));
        for tenant in ["ann", "bob", "eve"] {
            shares.give_back(tenant);
        }
        assert_eq!((shares.taken, shares.of("ann"), shares.by_tenant.len()), (0, 0, 0));
    }
}
