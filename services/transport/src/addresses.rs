//! Limits per address: open connections, and the rate of new ones.
//!
//! An IPv4 address counts as itself. An IPv6 address counts as its /64, which is a network of one
//! customer, and as its /48, because many customers have hundreds of such networks. All event loops share one table, because the kernel spreads the connections of an
//! address over them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use ipnet::IpNet;

use crate::Millis;

/// Parts of the table with a lock each, so that loops accepting at the same time rarely wait for
/// each other.
const SHARDS: usize = 16;
/// How much more than a /64 an IPv6 /48 may have: offices and shared networks have one, too.
const SITE_FACTOR: u32 = 8;
/// Entries below which a shard is not swept, because so few take little memory.
const SWEEP_LEN_MIN: usize = 1024;

/// Costs are the caller's: at the edge 1 for a plain connection, 4 with TLS.
#[derive(Clone, Copy, Debug)]
pub struct AddressLimits {
    pub connections_max: u32,
    pub cost_per_second_max: u32,
    /// Cost that an address may spend at once after it was quiet.
    pub burst: u32,
}

/// Networks whose addresses have no limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks(pub Vec<IpNet>);

impl Default for Networks {
    /// Loopback addresses, because a proxy or a test on this machine connects many clients.
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
    IpNet::new_assert(address, if address.is_ipv4() { 8 } else { 128 })
}

/// The address that a connection counts for, in eight bytes because every connection stores one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(u64);

impl Address {
    pub const NONE: Self = Self(u64::MAX);

    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            // No clash: every IPv6 network that is routed is a greater number.
            IpAddr::V4(v4) => Self(u64::from(u32::from(v4))),
            IpAddr::V6(v6) => Self((u128::from(v6) >> 64) as u64),
        }
    }

    pub fn number(self) -> u64 {
        self.0
    }

    fn counted(self) -> impl Iterator<Item = CountedAs> {
        let site = (self.0 > u64::from(u32::MAX)).then_some(CountedAs::Site(self.0 >> 16));
        [CountedAs::Address(self.0)].into_iter().chain(site)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CountedAs {
    Address(u64),
    /// An IPv6 /48.
    Site(u64),
}

impl CountedAs {
    fn factor(self) -> u32 {
        match self {
            Self::Address(_) => 1,
            Self::Site(_) => SITE_FACTOR,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressRefusal {
    Connections,
    Rate,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    open: u32,
    /// Microseconds at which all cost so far is paid for (GCRA's theoretical arrival time).
    paid_at: u64,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<CountedAs, Entry, RandomState>,
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

    /// Counts a connection; the caller must pass the returned address to [`Addresses::release`]
    /// when it closes.
    ///
    /// # Errors
    /// The address is over a limit, and nothing must be released.
    pub fn admit(&self, address: IpAddr, cost: u32, now: Millis) -> Result<Address, AddressRefusal> {
        if self.unlimited.contain(address) {
            return Ok(Address::NONE);
        }
        let address = Address::of(address);
        for (at, counted) in address.counted().enumerate() {
            if let Err(refused) = self.count(counted, cost, now) {
                address.counted().take(at).for_each(|counted| self.uncount(counted, cost));
                return Err(refused);
            }
        }
        Ok(address)
    }

    fn count(&self, counted: CountedAs, cost: u32, now: Millis) -> Result<(), AddressRefusal> {
        let mut shard = self.shard(counted);
        shard.sweep(now);
        let entry = shard.entries.entry(counted).or_default();
        if entry.open >= self.limits.connections_max.saturating_mul(counted.factor()) {
            return Err(AddressRefusal::Connections);
        }
        if self.limits.cost_per_second_max > 0 {
            let micros = |cost: u32| self.micros(cost) / u64::from(counted.factor());
            let burst = self.limits.burst.saturating_mul(counted.factor()).max(cost);
            let paid_at = entry.paid_at.max(now * 1000) + micros(cost);
            if paid_at > now * 1000 + micros(burst) {
                return Err(AddressRefusal::Rate);
            }
            entry.paid_at = paid_at;
        }
        entry.open += 1;
        Ok(())
    }

    pub fn release(&self, address: Address) {
        if address != Address::NONE {
            address.counted().for_each(|counted| self.uncount(counted, 0));
        }
    }

    fn uncount(&self, counted: CountedAs, cost: u32) {
        if let Some(entry) = self.shard(counted).entries.get_mut(&counted) {
            entry.open = entry.open.saturating_sub(1);
            entry.paid_at = entry.paid_at.saturating_sub(self.micros(cost) / u64::from(counted.factor()));
        }
    }

    fn micros(&self, cost: u32) -> u64 {
        u64::from(cost) * 1_000_000 / u64::from(self.limits.cost_per_second_max.max(1))
    }

    fn shard(&self, counted: CountedAs) -> MutexGuard<'_, Shard> {
        let (CountedAs::Address(number) | CountedAs::Site(number)) = counted;
        // Mixes the bits, because neighbours differ in the last bits, which are often 0 for IPv6
        // networks.
        let at = (number ^ (number >> 16) ^ (number >> 32)) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// Forgets addresses without connections whose cost is paid for, each time the shard has doubled:
    /// so a new entry costs about one visit.
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
