//! Limits per address: connections at once, and their rate.
//!
//! An IPv4 address counts as itself, an IPv6 address as its /64, which is what one customer of a
//! provider has. The event loops share one table, because the kernel spreads the connections of one
//! address over all of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use ipnet::IpNet;

use crate::Millis;

/// Parts of the table, each with a lock of its own, so that loops which accept at the same time
/// rarely meet.
const SHARDS: usize = 16;
const SWEEP_LEN_MIN: usize = 1024;

#[derive(Clone, Copy, Debug)]
pub struct AddressLimits {
    pub connections_max: u32,
    pub cost_per_second_max: u32,
    /// Cost that is admitted at once after a quiet time.
    pub burst: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks(pub Vec<IpNet>);

impl Default for Networks {
    /// This machine, where a proxy or a test connects many clients.
    fn default() -> Self {
        Self([IpAddr::from([127, 0, 0, 0]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])].map(loopback).to_vec())
    }
}

impl Networks {
    /// A listener for both families has IPv4 peers mapped into IPv6.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

fn loopback(address: IpAddr) -> IpNet {
    // Both lengths are within their families.
    IpNet::new_assert(address, if address.is_ipv4() { 8 } else { 128 })
}

/// The address that a connection counts for, in eight bytes, because every connection stores one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(u64);

impl Address {
    pub const NONE: Self = Self(u64::MAX);

    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            // Below the /64 of every IPv6 address that is routed.
            IpAddr::V4(v4) => Self(u64::from(u32::from(v4))),
            IpAddr::V6(v6) => Self((u128::from(v6) >> 64) as u64),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Connections,
    Rate,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    open: u32,
    /// Time at which all cost so far is paid for, microseconds (GCRA's theoretical arrival time).
    paid_at: u64,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<u64, Entry, RandomState>,
    sweep_len: usize,
}

#[derive(Debug)]
pub struct Addresses {
    limits: AddressLimits,
    unlimited: Networks,
    shards: [Mutex<Shard>; SHARDS],
}

impl Addresses {
    pub fn new(limits: AddressLimits, unlimited: Networks) -> Self {
        Self { limits, unlimited, shards: Default::default() }
    }

    /// The caller must pass the returned address to [`Addresses::release`] later.
    ///
    /// # Errors
    /// The address is over a limit, and nothing must be released.
    pub fn admit(&self, address: IpAddr, cost: u32, now: Millis) -> Result<Address, Refused> {
        if self.unlimited.contain(address) {
            return Ok(Address::NONE);
        }
        let address = Address::of(address);
        let mut shard = self.shard(address);
        shard.sweep(now);
        let entry = shard.entries.entry(address.0).or_default();
        if entry.open >= self.limits.connections_max {
            return Err(Refused::Connections);
        }
        if self.limits.cost_per_second_max > 0 {
            let paid_at = entry.paid_at.max(now * 1000) + self.micros(cost);
            if paid_at > now * 1000 + self.micros(self.limits.burst.max(cost)) {
                return Err(Refused::Rate);
            }
            entry.paid_at = paid_at;
        }
        entry.open += 1;
        Ok(address)
    }

    pub fn release(&self, address: Address) {
        if address == Address::NONE {
            return;
        }
        let mut shard = self.shard(address);
        if let Some(entry) = shard.entries.get_mut(&address.0) {
            entry.open = entry.open.saturating_sub(1);
        }
    }

    fn micros(&self, cost: u32) -> u64 {
        u64::from(cost) * 1_000_000 / u64::from(self.limits.cost_per_second_max.max(1))
    }

    fn shard(&self, address: Address) -> MutexGuard<'_, Shard> {
        // Neighbours differ in their last bits, and the lower bits of an IPv6 network are often 0.
        let at = (address.0 ^ (address.0 >> 16) ^ (address.0 >> 32)) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// Forgets addresses without connections whose cost is paid for. The part must double in
    /// between, so a new entry costs about one visit.
    fn sweep(&mut self, now: Millis) {
        if self.entries.len() < self.sweep_len.max(SWEEP_LEN_MIN) {
            return;
        }
        self.entries.retain(|_, entry| entry.open > 0 || entry.paid_at > now * 1000);
        self.sweep_len = 2 * self.entries.len();
        self.entries.shrink_to(self.sweep_len);
    }
}

#[cfg(test)]
#[path = "addresses_tests.rs"]
mod tests;
