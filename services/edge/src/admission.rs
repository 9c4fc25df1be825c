//! Admission of CONNECT packets: a token bucket that each CONNECT passes before its authentication.
//!
//! A CONNECT over the rate is queued. The brokers take turns, so a storm at one broker does not keep out another's clients (P8).
//! When the queue is full, the CONNECT is refused after a random delay, so that clients refused together do not come back
//! together. This module knows no sockets and reads no clock.
//!
//! **Recovery.** Let R be the rate, B the burst, W the queue length, S the spread of refusals and D the delay before a refused
//! client returns. Then N clients of a broker are admitted within (N - B) / R + S + D, if W / R is at most [`WAIT_MS_MAX`], so that
//! no queued CONNECT is refused, and S + D is at most (W / 2 + B) / R: then the bucket never overflows while a client still waits.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::clock::Millis;
use crate::limits::EdgeLimits;

/// A queued CONNECT is refused after this time, milliseconds.
const WAIT_MS_MAX: Millis = 5_000;
/// Bytes of a client that are buffered while its CONNECT is queued or its refusal delayed.
pub(crate) const HELD_BYTES_MAX: usize = 4096;
/// Tokens of one CONNECT for one loop. At a rate of one a second, one token comes each millisecond.
const COST: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionRefusal {
    Rate,
    BrokerConnects,
    /// The server cannot keep up with the admitted clients.
    Busy,
    BrokerConnections,
    SpendCap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionAnswer {
    Admitted,
    /// [`Admission::next`] returns the result later.
    Waits,
    Refused(AdmissionRefusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionOutcome {
    Admitted,
    Refused(AdmissionRefusal),
    Gone,
}

/// One event loop's share of the rate, and its queue of clients `T`.
#[derive(Debug)]
pub(crate) struct Admission<T> {
    bucket: TokenBucket,
    waiting: HashMap<u64, VecDeque<(T, Millis)>>,
    waiting_len: usize,
    waiting_max: usize,
    turns: VecDeque<u64>,
    refused: BTreeMap<(Millis, u64), (T, AdmissionRefusal)>,
    spread_ms: u64,
    next_refusal: u64,
}

impl<T> Admission<T> {
    pub(crate) fn new(limits: &EdgeLimits, cores: usize, now: Millis) -> Self {
        Self {
            bucket: TokenBucket::new(limits, cores as u64, now),
            waiting: HashMap::new(),
            waiting_len: 0,
            waiting_max: (limits.connects_waiting_max as usize).div_ceil(cores),
            turns: VecDeque::new(),
            refused: BTreeMap::new(),
            spread_ms: u64::from(limits.refusal_spread_ms),
            next_refusal: 0,
        }
    }

    /// Admits, queues or refuses a CONNECT. `keeps_up` is false while the server cannot keep up with the admitted clients;
    /// `random` spreads the refusals.
    pub(crate) fn ask(
        &mut self,
        client: T,
        broker: u64,
        bytes: usize,
        keeps_up: bool,
        now: Millis,
        random: u32,
    ) -> AdmissionAnswer {
        if self.turns.is_empty() && keeps_up && self.bucket.take(now) {
            return AdmissionAnswer::Admitted;
        }
        // A broker's part of the queue is at most what it leaves free: half alone, a third beside another broker that takes all
        // it can.
        let own = self.waiting.get(&broker).map_or(0, VecDeque::len);
        if bytes <= HELD_BYTES_MAX && own < self.waiting_max.saturating_sub(self.waiting_len) {
            self.waiting_len += 1;
            if own == 0 {
                self.turns.push_back(broker);
            }
            self.waiting.entry(broker).or_default().push_back((client, now));
            return AdmissionAnswer::Waits;
        }
        self.refuse(
            client,
            if keeps_up { AdmissionRefusal::Rate } else { AdmissionRefusal::Busy },
            bytes,
            now,
            random,
        )
    }

    /// Refuses a client, with a delay if there is room to remember it until then.
    pub(crate) fn refuse(
        &mut self,
        client: T,
        refusal: AdmissionRefusal,
        bytes: usize,
        now: Millis,
        random: u32,
    ) -> AdmissionAnswer {
        if bytes > HELD_BYTES_MAX || self.refused.len() >= self.waiting_max {
            return AdmissionAnswer::Refused(refusal);
        }
        self.next_refusal += 1;
        let delay_ms = (self.spread_ms * u64::from(random)) >> 32;
        self.refused.insert((now + delay_ms, self.next_refusal), (client, refusal));
        AdmissionAnswer::Waits
    }

    /// Takes the next client whose wait is over, with the result; `None`: all others still wait.
    pub(crate) fn next(
        &mut self,
        keeps_up: bool,
        now: Millis,
        is_there: impl Fn(&T) -> bool,
    ) -> Option<(T, AdmissionOutcome)> {
        if let Some(first) = self.refused.first_entry()
            && first.key().0 <= now
        {
            let (client, refusal) = first.remove();
            let verdict =
                if is_there(&client) { AdmissionOutcome::Refused(refusal) } else { AdmissionOutcome::Gone };
            return Some((client, verdict));
        }
        let (client, since) = self.waiting.get(self.turns.front()?)?.front()?;
        let verdict = match () {
            () if !is_there(client) => AdmissionOutcome::Gone,
            () if keeps_up && self.bucket.take(now) => AdmissionOutcome::Admitted,
            () if now < since + WAIT_MS_MAX => return None,
            () => AdmissionOutcome::Refused(if keeps_up {
                AdmissionRefusal::Rate
            } else {
                AdmissionRefusal::Busy
            }),
        };
        self.take_turn().map(|client| (client, verdict))
    }

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

    pub(crate) fn take_all(&mut self) -> Vec<T> {
        let refused = std::mem::take(&mut self.refused).into_values().map(|(client, _)| client);
        let mut all: Vec<T> = refused.collect();
        while let Some(client) = self.take_turn() {
            all.push(client);
        }
        all
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.turns.is_empty() && self.refused.is_empty()
    }
}

/// A CONNECT costs [`COST`] tokens for each loop of the process.
#[derive(Debug)]
struct TokenBucket {
    tokens: u64,
    tokens_max: u64,
    cost: u64,
    per_ms: u64,
    filled_at: Millis,
}

impl TokenBucket {
    /// A loop's share: client ids are spread evenly over the loops, so they need no common bucket.
    fn new(limits: &EdgeLimits, cores: u64, now: Millis) -> Self {
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
