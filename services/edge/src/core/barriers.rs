//! Barriers: a session that reads from the store becomes live behind one, see [`super::persistent`].
//!
//! A barrier closes at the end of its turn. When every other core has ended the turn that it was in, this core submits a
//! [`Write::Barrier`], whose answer says that every message that was routed before the barrier is committed.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

use millrace_layers::Position;
use millrace_router::Target;

use super::Core;
use super::feed::{Feed, Way};
use super::jobs::OpenTurns;
use crate::jobs::Write;

/// Barriers that are not passed yet, in the order of their numbers.
#[derive(Default)]
pub(super) struct Barriers {
    open: VecDeque<Barrier>,
    last: u64,
}

pub(super) struct Barrier {
    number: u64,
    broker: u64,
    turns: OpenTurns,
    sessions: Vec<Target>,
    is_submitted: bool,
}

impl Barriers {
    /// Returns the barrier of this turn for the sessions of a broker, and creates it for the first of them.
    fn open(&mut self, broker: u64) -> &mut Barrier {
        let is_open =
            |barrier: &Barrier| barrier.turns.is_empty() && !barrier.is_submitted && barrier.broker == broker;
        let at = self.open.iter().rposition(is_open).unwrap_or_else(|| {
            self.last += 1;
            let (turns, sessions) = (OpenTurns::new(), Vec::new());
            self.open.push_back(Barrier { number: self.last, broker, turns, sessions, is_submitted: false });
            self.open.len() - 1
        });
        &mut self.open[at]
    }
}

impl Core {
    /// Holds live copies from here on for a session that catches up, and sets a barrier after what was routed before; one that
    /// only follows its streams reads on.
    pub(super) fn hold_until_barrier(&mut self, session: u32) {
        let target = self.target_of(session);
        let persistent = self.sessions[session as usize].persistent.as_deref_mut();
        if let Some(persistent) = persistent.filter(|persistent| persistent.follows()) {
            if persistent.grow() {
                self.read_on(session);
            }
            return;
        }
        let local = &mut self.sessions[session as usize];
        let Some(persistent) = &mut local.persistent else { return };
        if let Feed::Reading(reading) = &mut persistent.feed {
            let broker = local.broker.id;
            let barrier = self.barriers.open(broker);
            reading.way = Way::Barrier(barrier.number);
            barrier.sessions.push(target);
        }
    }

    /// Closes the barrier of this turn, and submits each barrier that every core has passed. Must
    /// be called at the end of a turn, before its jobs are submitted.
    pub(super) fn submit_barriers(&mut self) {
        if self.barriers.open.is_empty() {
            return;
        }
        // Every turn that begins after this sees what the router has now.
        fence(Ordering::SeqCst);
        let (now, mut passed) = (self.others_in_turn(), Vec::new());
        let mut barriers = std::mem::take(&mut self.barriers.open);
        for barrier in barriers.iter_mut().filter(|barrier| !barrier.is_submitted) {
            if barrier.turns.is_empty() {
                barrier.turns = now.clone();
            } else {
                self.still_in(&mut barrier.turns);
            }
            if barrier.turns.is_empty() {
                barrier.is_submitted = true;
                passed.push((barrier.number, barrier.broker));
            }
        }
        self.barriers.open = barriers;
        for (number, broker) in passed {
            self.queue_job(Write::Barrier { core: self.index, number, broker });
        }
    }

    /// True while a barrier, or jobs, wait for other cores.
    pub(super) fn waits_for_turns(&self) -> bool {
        self.store_jobs.held.is_some() || self.barriers.open.iter().any(|barrier| !barrier.is_submitted)
    }

    /// Everything that was routed before the barrier is committed.
    pub(super) fn barrier_passed(&mut self, number: u64, through: Position) {
        let Some(at) = self.barriers.open.iter().position(|barrier| barrier.number == number) else { return };
        let Some(barrier) = self.barriers.open.remove(at) else { return };
        for target in barrier.sessions {
            let Some(local) = self.sessions.get_mut(target.slot as usize) else { continue };
            if local.generation != target.generation {
                continue;
            }
            let Some(persistent) = &mut local.persistent else { continue };
            if let Feed::Reading(reading) = &mut persistent.feed
                && reading.way == Way::Barrier(number)
            {
                reading.way = Way::Passed(through);
                self.deliver_unstored(target.slot);
                self.read_on(target.slot);
            }
        }
    }
}
