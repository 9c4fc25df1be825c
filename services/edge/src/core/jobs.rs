//! Jobs for the store, left at the end of a turn.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::Core;
use crate::store::{Job, Write};

/// Cores that were in a turn, with its number.
pub(super) type Turns = SmallVec<[(u16, u64); 4]>;

/// Jobs that wait until other cores have ended their turns: so many of the first ones.
pub(super) struct HeldJobs {
    turns: Turns,
    len: usize,
}

impl Core {
    /// Leaves a job with the store, at the end of this turn.
    pub(super) fn leave_job(&mut self, write: Write) {
        self.jobs.push(Job { write, ack: None });
    }

    /// Leaves what is to be written with the store.
    ///
    /// A session that is left may have got messages from cores that have not ended their turn, and so have not left their jobs. What
    /// it has is known by the places of its messages, so its job must come after theirs: it waits for the ends of
    /// those turns, and what was left after it waits with it. Messages never wait: who has seen the end of a turn knows that
    /// those of that turn are left. They depend on nothing that may stand before them.
    pub(super) fn leave_jobs(&mut self) {
        self.pass_fences();
        self.leave_shared();
        let is_message = |job: &mut Job| matches!(job.write, Write::Publish(_) | Write::Confirmed { .. });
        let mut messages: Vec<Job> = self.jobs.extract_if(.., is_message).collect();
        if let Some(store) = &self.process.store
            && !messages.is_empty()
        {
            store.submit(&mut messages);
        }
        if let Some(mut held) = self.held_jobs.take() {
            self.still_in(&mut held.turns);
            if !held.turns.is_empty() {
                self.held_jobs = Some(held);
                return;
            }
            self.submit(held.len);
        }
        let waits = |job: &Job| matches!(&job.write, Write::Detach(detach) if !detach.is_placed());
        let ready = self.jobs.iter().position(waits);
        self.submit(ready.unwrap_or(self.jobs.len()));
        if ready.is_some() {
            let turns = self.others_in_turn();
            if turns.is_empty() {
                self.submit(self.jobs.len());
            } else {
                self.held_jobs = Some(HeldJobs { turns, len: self.jobs.len() });
            }
        }
    }

    /// Leaves the first jobs now.
    pub(super) fn submit(&mut self, len: usize) {
        if let Some(store) = &self.process.store
            && len > 0
        {
            let rest = self.jobs.split_off(len);
            store.submit(&mut self.jobs);
            self.jobs = rest;
        }
    }

    /// The other cores that are in a turn now.
    pub(super) fn others_in_turn(&self) -> Turns {
        let turns = self.process.turns.iter().zip(0..);
        let now = turns.map(|(turn, core)| (core, turn.load(Ordering::SeqCst)));
        // Odd: between its beginning and its end.
        now.filter(|(core, turn)| *core != self.index && turn % 2 == 1).collect()
    }

    /// Forgets those that have ended that turn.
    pub(super) fn still_in(&self, turns: &mut Turns) {
        let now = |core: u16| self.process.turns[usize::from(core)].load(Ordering::SeqCst);
        turns.retain(|(core, turn)| now(*core) == *turn);
    }
}
