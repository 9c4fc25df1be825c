//! Which event loop owns a client id.
//!
//! The home loop of a broker owns its client ids while there are few, so that a message between two of them crosses no loops.
//! A broker that outgrows its home spreads, for the rest of its life in memory: a client id without a claim then belongs to
//! the loop that its hash names. A [`HomeClaim`] keeps a client id at home while a CONNECT is on its way there, while its
//! session is in memory, and until what the session published has left the loop. So a client id has one owner at any moment
//! (P5), also during a spread.
//!
//! A CONNECT reaches the owner through its mailbox when the owner may have changed. The former owner has delivered its mail before
//! it drops the claim, so the new connection comes behind the messages of the old one (P4).
//!
//! This module knows no broker, no connections and no packets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

#[derive(Debug)]
pub(crate) enum Owner {
    /// The home loop of its broker, at least until the claim is dropped.
    Home(u16, HomeClaim),
    /// The loop that its hash names. `may_have_moved`: the home loop may have owned the client id before.
    Hashed { core: u16, may_have_moved: bool },
}

impl Owner {
    pub(crate) fn core(&self) -> u16 {
        match self {
            Self::Home(core, _) | Self::Hashed { core, .. } => *core,
        }
    }

    pub(crate) fn may_have_moved(&self) -> bool {
        matches!(self, Self::Hashed { may_have_moved: true, .. })
    }

    pub(crate) fn into_claim(self) -> Option<HomeClaim> {
        match self {
            Self::Home(_, claim) => Some(claim),
            Self::Hashed { .. } => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Home {
    broker: u64,
    broker_name: Box<str>,
    /// Set once; a broker without it is spread from the start.
    home_loop: OnceLock<HomeLoop>,
    claims: Mutex<ClaimCounts>,
    /// The broker has spread and no claim is left: nothing can be at home again.
    is_left: AtomicBool,
}

#[derive(Debug)]
struct HomeLoop {
    core: u16,
    clients_max: usize,
    /// How many brokers are at home on that loop.
    homes: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct ClaimCounts {
    has_spread: bool,
    /// Claims by the hash of the client id. Client ids with the same hash have the same owner.
    counts: HashMap<u64, u32, foldhash::fast::FixedState>,
}

impl Home {
    pub(crate) fn new(broker: u64, broker_name: &str) -> Arc<Self> {
        Arc::new(Self {
            broker,
            broker_name: broker_name.into(),
            home_loop: OnceLock::new(),
            claims: Mutex::default(),
            is_left: AtomicBool::new(false),
        })
    }

    /// Settles a broker on a loop, which takes so many of its client ids before the broker spreads.
    fn settle(&self, core: u16, clients_max: usize, homes: &Arc<AtomicUsize>) {
        if self.home_loop.set(HomeLoop { core, clients_max, homes: homes.clone() }).is_ok() {
            homes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The owner of the client id with this hash, of which `cores` have a share.
    pub(crate) fn owner(self: &Arc<Self>, hash: u64, cores: u64) -> Owner {
        let hashed = |may_have_moved| {
            let core = u16::try_from((hash >> 32) % cores).unwrap_or(0);
            Owner::Hashed { core, may_have_moved }
        };
        let Some(home_loop) = self.home_loop.get().filter(|_| cores > 1) else { return hashed(false) };
        if self.is_left.load(Ordering::Acquire) {
            return hashed(true);
        }
        let mut claims = self.claims();
        if !claims.has_spread
            && claims.counts.len() >= home_loop.clients_max
            && !claims.counts.contains_key(&hash)
        {
            tracing::info!(
                broker = &*self.broker_name,
                clients = claims.counts.len(),
                "a broker spreads over all event loops"
            );
            self.spread_now(&mut claims);
        }
        let has_spread = claims.has_spread;
        match claims.counts.get_mut(&hash) {
            Some(count) => *count += 1,
            None if has_spread => return hashed(true),
            None => {
                claims.counts.insert(hash, 1);
            }
        }
        drop(claims);
        Owner::Home(home_loop.core, HomeClaim::of_session(self.clone(), hash))
    }

    /// The home loop, while the broker has not spread.
    pub(crate) fn core(&self) -> Option<u16> {
        let home_loop = self.home_loop.get()?;
        (!self.is_left.load(Ordering::Acquire) && !self.claims().has_spread).then_some(home_loop.core)
    }

    /// Claimed client ids stay at home until their claims are dropped.
    pub(crate) fn spread(&self) {
        self.spread_now(&mut self.claims());
    }

    fn spread_now(&self, claims: &mut ClaimCounts) {
        if !std::mem::replace(&mut claims.has_spread, true)
            && let Some(home_loop) = self.home_loop.get()
        {
            home_loop.homes.fetch_sub(1, Ordering::Relaxed);
        }
        self.note_left(claims);
    }

    fn note_left(&self, claims: &ClaimCounts) {
        if claims.has_spread && claims.counts.is_empty() {
            self.is_left.store(true, Ordering::Release);
        }
    }

    fn release(&self, hash: u64) {
        let mut claims = self.claims();
        let Some(count) = claims.counts.get_mut(&hash) else { return };
        *count -= 1;
        if *count == 0 {
            claims.counts.remove(&hash);
            if claims.has_spread {
                claims.counts.shrink_to_fit();
            }
            self.note_left(&claims);
        }
    }

    pub(crate) fn claimed(&self) -> usize {
        self.claims().counts.len()
    }

    fn claims(&self) -> MutexGuard<'_, ClaimCounts> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !self.claims().has_spread
            && let Some(home_loop) = self.home_loop.get()
        {
            home_loop.homes.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Keeps a client id on the home loop of its broker.
pub(crate) struct HomeClaim {
    home: Arc<Home>,
    hash: u64,
    is_left_to_session: bool,
}

impl HomeClaim {
    pub(crate) fn of_session(home: Arc<Home>, hash: u64) -> Self {
        Self { home, hash, is_left_to_session: false }
    }

    /// Leaves the claim, still counted, to a session, which knows broker and hash already and needs a flag only.
    /// [`HomeClaim::of_session`], which does not count, must follow once.
    pub(crate) fn leave_to_session(mut self) {
        self.is_left_to_session = true;
    }

    pub(crate) fn key(&self) -> (u64, u64) {
        (self.home.broker, self.hash)
    }
}

impl Clone for HomeClaim {
    fn clone(&self) -> Self {
        if let Some(count) = self.home.claims().counts.get_mut(&self.hash) {
            *count += 1;
        }
        Self::of_session(self.home.clone(), self.hash)
    }
}

impl Drop for HomeClaim {
    fn drop(&mut self) {
        if !self.is_left_to_session {
            self.home.release(self.hash);
        }
    }
}

impl std::fmt::Debug for HomeClaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HomeClaim").field(&self.home.broker_name).field(&self.hash).finish()
    }
}

/// How busy each event loop is, and the choice of a home.
#[derive(Debug)]
pub(crate) struct Loads {
    loops: Box<[Load]>,
    clients_max: usize,
}

#[derive(Debug, Default)]
struct Load {
    /// Part of the last second that was spent in turns, per cent.
    busy: AtomicU8,
    homes: Arc<AtomicUsize>,
}

/// A loop this busy is full, per cent.
const FULL: u8 = 80;
/// A loop is idle enough to take clients of a full one, per cent.
const IDLE: u8 = 50;
/// Differences in load that do not matter when a home is chosen, per cent.
const STEP: u8 = 10;

impl Loads {
    /// `clients_max`: client ids of a broker at home; 0: brokers have no home.
    pub(crate) fn new(cores: usize, clients_max: usize) -> Self {
        Self { loops: (0..cores).map(|_| Load::default()).collect(), clients_max }
    }

    /// Settles a broker on the loop with the least work in the last second; among several, with the fewest brokers.
    pub(crate) fn settle(&self, home: &Home) {
        if self.clients_max == 0 || self.loops.len() < 2 {
            return;
        }
        let load =
            |load: &Load| (load.busy.load(Ordering::Relaxed) / STEP, load.homes.load(Ordering::Relaxed));
        let least = (0..).zip(&self.loops).min_by_key(|(_, of)| load(of));
        if let Some((core, of)) = least {
            home.settle(core, self.clients_max, &of.homes);
        }
    }

    pub(crate) fn note(&self, core: u16, busy: u8) {
        self.loops[usize::from(core)].busy.store(busy, Ordering::Relaxed);
    }

    pub(crate) fn is_outgrown(&self, core: u16) -> bool {
        let busy = |of: &Load| of.busy.load(Ordering::Relaxed);
        busy(&self.loops[usize::from(core)]) >= FULL && self.loops.iter().any(|of| busy(of) < IDLE)
    }
}

#[cfg(test)]
#[path = "home_tests.rs"]
mod tests;
