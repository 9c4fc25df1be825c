//! Who may come in now: a token bucket for CONNECT packets, asked before anything is done to authenticate one.
//!
//! A CONNECT over the rate waits; the brokers take turns, so one with a storm does not keep another's clients out (P8). What finds
//! no room to wait is refused, after a random delay: clients that were refused together do not come back together. Knows no
//! sockets and reads no clock.
//!
//! **Recovery.** With a rate R, a burst B, room W for those that wait, refusals spread over S, and clients that come back D after
//! one, N clients of a broker are in within (N - B) / R + S + D, as long as S + D is not over (W / 2 + B) / R: then the bucket never
//! overflows while anybody is still out. The tests count that.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::clock::Millis;
use crate::limits::Limits;

/// Who waits in vain for so long is refused, milliseconds.
const WAIT_MS_MAX: Millis = 5_000;
/// Bytes that a client may have sent to wait, or to be refused later: they are kept until then.
pub(crate) const HELD_BYTES_MAX: usize = 4096;
/// Tokens of the bucket that one CONNECT costs, for one loop: one comes each millisecond at a rate of one a second.
const COST: u64 = 1000;

/// Why a CONNECT is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// More come than the rate allows.
    Rate,
    /// More come than the tenant's limit allows.
    Limit,
    /// The server is behind with those it let in.
    Busy,
    /// The broker has as many connections as it may.
    Quota,
    /// What the broker may cost is used up.
    SpendCap,
}

/// What becomes of a CONNECT that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Admitted,
    /// [`Admission::next`] will tell.
    Waits,
    /// At once.
    Refused(Refusal),
}

/// What became of one that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Admitted,
    Refused(Refusal),
    /// Its client has left meanwhile.
    Gone,
}

/// One loop's share of the rate and those that wait there. `T` is what a client is known by.
#[derive(Debug)]
pub(crate) struct Admission<T> {
    bucket: Bucket,
    /// By broker, with the time since which each waits.
    waiting: HashMap<u64, VecDeque<(T, Millis)>>,
    waiting_len: usize,
    waiting_max: usize,
    /// Brokers with somebody who waits, the next one first.
    turns: VecDeque<u64>,
    /// By the time at which they are told.
    refused: BTreeMap<(Millis, u64), (T, Refusal)>,
    spread_ms: u64,
    next_refusal: u64,
}

impl<T> Admission<T> {
    pub(crate) fn new(limits: &Limits, cores: usize, now: Millis) -> Self {
        Self {
            bucket: Bucket::new(limits, cores as u64, now),
            waiting: HashMap::new(),
            waiting_len: 0,
            waiting_max: (limits.connects_waiting_max as usize).div_ceil(cores),
            turns: VecDeque::new(),
            refused: BTreeMap::new(),
            spread_ms: u64::from(limits.refusal_spread_ms),
            next_refusal: 0,
        }
    }

    /// A client of a broker wants to connect, and has sent so many bytes. `keeps_up` is false while the server is behind with those
    /// it let in; `random` says when a refusal is sent.
    pub(crate) fn ask(
        &mut self,
        client: T,
        broker: u64,
        bytes: usize,
        keeps_up: bool,
        now: Millis,
        random: u32,
    ) -> Asked {
        if self.turns.is_empty() && keeps_up && self.bucket.take(now) {
            return Asked::Admitted;
        }
        // A broker has no more of the room than what it leaves: half of it alone, a third beside another one that takes all it can.
        let own = self.waiting.get(&broker).map_or(0, VecDeque::len);
        if bytes <= HELD_BYTES_MAX && own < self.waiting_max.saturating_sub(self.waiting_len) {
            self.waiting_len += 1;
            if own == 0 {
                self.turns.push_back(broker);
            }
            self.waiting.entry(broker).or_default().push_back((client, now));
            return Asked::Waits;
        }
        self.refuse(client, if keeps_up { Refusal::Rate } else { Refusal::Busy }, bytes, now, random)
    }

    /// Refuses a client, in a while if there is room for it until then.
    pub(crate) fn refuse(
        &mut self,
        client: T,
        refusal: Refusal,
        bytes: usize,
        now: Millis,
        random: u32,
    ) -> Asked {
        if bytes > HELD_BYTES_MAX || self.refused.len() >= self.waiting_max {
            return Asked::Refused(refusal);
        }
        self.next_refusal += 1;
        let delay_ms = (self.spread_ms * u64::from(random)) >> 32;
        self.refused.insert((now + delay_ms, self.next_refusal), (client, refusal));
        Asked::Waits
    }

    /// The next client about whom something can be said now.
    pub(crate) fn next(
        &mut self,
        keeps_up: bool,
        now: Millis,
        is_there: impl Fn(&T) -> bool,
    ) -> Option<(T, Verdict)> {
        if let Some(first) = self.refused.first_entry()
            && first.key().0 <= now
        {
            let (client, refusal) = first.remove();
            let verdict = if is_there(&client) { Verdict::Refused(refusal) } else { Verdict::Gone };
            return Some((client, verdict));
        }
        let (client, since) = self.waiting.get(self.turns.front()?)?.front()?;
        let verdict = match () {
            () if !is_there(client) => Verdict::Gone,
            () if keeps_up && self.bucket.take(now) => Verdict::Admitted,
            () if now < since + WAIT_MS_MAX => return None,
            () => Verdict::Refused(if keeps_up { Refusal::Rate } else { Refusal::Busy }),
        };
        self.take_turn().map(|client| (client, verdict))
    }

    /// The client whose turn it is; after it, it is the next broker's.
    fn take_turn(&mut self) -> Option<T> {
        let broker = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&broker)?;
        let taken = waiting.pop_front().map(|(client, _)| client);
        if waiting.is_empty() {
            self.waiting.remove(&broker);
        } else {
            self.turns.push_back(broker);
        }
        self.waiting_len -= 1;
        taken
    }

    /// Everybody that waits, whatever for.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        let refused = std::mem::take(&mut self.refused).into_values().map(|(client, _)| client);
        let mut all: Vec<T> = refused.collect();
        while let Some(client) = self.take_turn() {
            all.push(client);
        }
        all
    }

    /// Whether nobody waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.turns.is_empty() && self.refused.is_empty()
    }
}

/// Tokens, of which a CONNECT costs [`COST`] for each loop of the process.
#[derive(Debug)]
struct Bucket {
    tokens: u64,
    tokens_max: u64,
    cost: u64,
    /// 0: there is no limit.
    per_ms: u64,
    filled_at: Millis,
}

impl Bucket {
    /// A loop's share: client ids are spread over the loops evenly, so they need not share one.
    fn new(limits: &Limits, cores: u64, now: Millis) -> Self {
        let cost = COST * cores;
        let tokens_max = (COST * u64::from(limits.connects_burst)).max(cost);
        let per_ms = u64::from(limits.connects_per_second_max);
        Self { tokens: tokens_max, tokens_max, cost, per_ms, filled_at: now }
    }

    fn take(&mut self, now: Millis) -> bool {
        let new = now.saturating_sub(self.filled_at).saturating_mul(self.per_ms);
        self.tokens = self.tokens.saturating_add(new).min(self.tokens_max);
        self.filled_at = now;
        if self.per_ms == 0 {
            return true;
        }
        let is_there = self.tokens >= self.cost;
        self.tokens -= if is_there { self.cost } else { 0 };
        is_there
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
