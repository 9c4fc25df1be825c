//! Shared subscriptions: one message goes to one member.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use compact_str::CompactString;

use crate::matched::Receiver;
use crate::pmap::Map;
use crate::seed::Seed;
use crate::subscription::{Subscription, Target};

/// The members of one share name on one filter, as of one snapshot.
#[derive(Clone, Debug)]
pub struct Group {
    name: CompactString,
    filter: CompactString,
    /// The address of the member that was served last. All snapshots of the group share it. It is a position in the
    /// order of members and not a count, so a member that joins or leaves does not change the turns of the others.
    turn: Arc<AtomicU64>,
    online: Map<Subscription>,
    offline: Map<Subscription>,
}

impl Group {
    pub(crate) fn new(name: &str, filter: &str) -> Self {
        Self {
            name: name.into(),
            filter: filter.into(),
            // Greater than every address, so the first turn is the first member's.
            turn: Arc::new(AtomicU64::new(u64::MAX)),
            online: Map::Empty,
            offline: Map::Empty,
        }
    }

    /// The share name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The filter, without `$share` and share name.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Members, online or not.
    pub fn len(&self) -> usize {
        self.online.len() + self.offline.len()
    }

    /// True when the group has no member; no snapshot holds such a group.
    pub fn is_empty(&self) -> bool {
        self.online.is_empty() && self.offline.is_empty()
    }

    /// Members that are online.
    pub fn online(&self) -> usize {
        self.online.len()
    }

    /// Picks the next member in turn. Offline members are picked only when no member is online.
    //= [MQTT-4.8.2-3] v5
    // The receiver has the member's own quality of service.
    pub fn pick(&self) -> Option<Receiver> {
        self.pick_online(|_| true).or_else(|| self.take_turn(&self.offline, |_| true))
    }

    /// Picks the next online member for which `may` returns true.
    pub fn pick_online(&self, may: impl Fn(Target) -> bool) -> Option<Receiver> {
        self.take_turn(&self.online, may)
    }

    /// Counts the online members for which `counts` returns true.
    pub fn count_online(&self, counts: impl Fn(Target) -> bool) -> usize {
        self.online.iter().filter(|member| counts(member.target)).count()
    }

    /// Returns whether an online member satisfies `counts`.
    pub fn has_online(&self, counts: impl Fn(Target) -> bool) -> bool {
        self.online.iter().any(|member| counts(member.target))
    }

    /// As [`Group::pick`], but never `target`: for a message that `target` cannot take now.
    pub fn pick_except(&self, target: Target) -> Option<Receiver> {
        let may = |other| other != target;
        self.take_turn(&self.online, may).or_else(|| self.take_turn(&self.offline, may))
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
