//! Shared subscriptions: the members of a group take turns, and each message goes to one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use compact_str::CompactString;

use crate::pmap::Map;
use crate::receiver::Receiver;
use crate::seed::Seed;
use crate::subscription::{Subscription, Target};

/// Members that [`ShareGroup::neighbour`] asks.
const LOOKS_MAX: usize = 16;

#[derive(Clone, Debug)]
pub struct ShareGroup {
    name: CompactString,
    filter: CompactString,
    /// [`Target::address`] of the member that was served last, shared by all snapshots of the group. With an
    /// index instead, a member that joins or leaves would change whose turn is next.
    turn: Arc<AtomicU64>,
    online: Map<Subscription>,
    offline: Map<Subscription>,
}

impl ShareGroup {
    pub(crate) fn new(name: &str, filter: &str) -> Self {
        Self {
            name: name.into(),
            filter: filter.into(),
            // Above every address, so that the first member is served first.
            turn: Arc::new(AtomicU64::new(u64::MAX)),
            online: Map::Empty,
            offline: Map::Empty,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The topic filter alone, without `$share` and share name.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    pub fn len(&self) -> usize {
        self.online.len() + self.offline.len()
    }

    pub fn is_empty(&self) -> bool {
        self.online.is_empty() && self.offline.is_empty()
    }

    pub fn online(&self) -> usize {
        self.online.len()
    }

    /// Picks the next online member in turn, or the next offline member when none is online.
    //= [MQTT-4.8.2-3] v5
    // The receiver has the member's own QoS.
    pub fn pick(&self) -> Option<Receiver> {
        self.pick_if(|_| true)
    }

    /// As [`Self::pick`], among the members for which `may` is true.
    pub fn pick_if(&self, may: impl Fn(Target) -> bool) -> Option<Receiver> {
        self.pick_online(&may).or_else(|| self.take_turn(&self.offline, &may))
    }

    pub fn pick_online(&self, may: impl Fn(Target) -> bool) -> Option<Receiver> {
        self.take_turn(&self.online, may)
    }

    /// The next online member behind `of` on its core that has room. Looks at a few members only, because a message to a
    /// group of thousands of which none has room must not cost thousands of looks.
    pub fn neighbour(&self, of: Target, has_room: impl Fn(Target) -> bool) -> Option<Receiver> {
        let address = |member: &Subscription| member.target.address();
        let is_near = |member: &&Subscription| member.target.core == of.core;
        let first = Target { core: of.core, slot: 0, generation: 0 }.address();
        let first = || match first.checked_sub(1) {
            Some(before) => self.online.next_after(before, address),
            None => self.online.first(address),
        };
        let mut last = of.address();
        for _ in 0..LOOKS_MAX {
            let next = self.online.next_after(last, address).filter(is_near);
            let member = next.or_else(|| first().filter(is_near))?;
            if member.target == of {
                return None;
            }
            if has_room(member.target) {
                return Some(Receiver::from(member));
            }
            last = address(member);
        }
        None
    }

    /// Counts up to `most` of them.
    pub fn count_online(&self, most: usize, counts: impl Fn(Target) -> bool) -> usize {
        self.online.iter().filter(|member| counts(member.target)).take(most).count()
    }

    pub fn has_online(&self, counts: impl Fn(Target) -> bool) -> bool {
        self.online.iter().any(|member| counts(member.target))
    }

    fn take_turn(&self, members: &Map<Subscription>, may: impl Fn(Target) -> bool) -> Option<Receiver> {
        let address = |member: &Subscription| member.target.address();
        let following = |last| members.next_after(last, address).or_else(|| members.first(address));
        // Relaxed, because the counter guards no other data.
        let mut last = self.turn.load(Ordering::Relaxed);
        loop {
            let mut member = following(last)?;
            let mut others = members.len();
            while !may(member.target) {
                others = others.checked_sub(1)?;
                member = following(address(member))?;
            }
            match self.turn.compare_exchange_weak(last, address(member), Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Some(Receiver::from(member)),
                Err(seen) => last = seen,
            }
        }
    }

    pub(crate) fn get(&self, target: Target, seed: &Seed) -> Option<(&Subscription, bool)> {
        let online = self.online.get(&target, seed).map(|member| (member, true));
        online.or_else(|| self.offline.get(&target, seed).map(|member| (member, false)))
    }

    pub(crate) fn join(&mut self, member: Subscription, online: bool, seed: &Seed) {
        let (to, from) = if online {
            (&mut self.online, &mut self.offline)
        } else {
            (&mut self.offline, &mut self.online)
        };
        from.remove(&member.target, seed);
        *to.get_or_insert(&member.target, seed, || member).0 = member;
    }

    pub(crate) fn leave(&mut self, target: Target, seed: &Seed) {
        if self.online.remove(&target, seed).is_none() {
            self.offline.remove(&target, seed);
        }
    }
}
