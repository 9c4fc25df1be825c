//! Submits jobs to the store at the end of a turn.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::Core;
use super::unconfirmed::RefusalsByConnection;
use crate::jobs::{Job, SharedMessages, Write};

/// Cores that were in a turn, with the number of that turn.
pub(super) type OpenTurns = SmallVec<[(u16, u64); 4]>;

/// The first `len` jobs wait until other cores have ended their turns.
pub(super) struct HeldJobs {
    turns: OpenTurns,
    len: usize,
}

/// Jobs for the store, submitted at the end of the turn, after the mail: see [`crate::store`].
#[derive(Default)]
pub(super) struct StoreJobs {
    pub(super) queue: Vec<Job>,
    /// Outcomes of shared subscriptions' messages in this turn, submitted with the jobs.
    pub(super) shared: SharedMessages,
    pub(super) held: Option<HeldJobs>,
    pub(super) unconfirmed: RefusalsByConnection,
}

impl Core {
    pub(super) fn queue_job(&mut self, write: Write) {
        self.store_jobs.queue.push(Job { write, ack: None });
    }

    /// Submits the jobs of this turn. Publish jobs are submitted at once: they depend on no other job, and after the end of a turn
    /// every core can rely on its messages being submitted. A detach names the session's messages by position, and some may have
    /// none yet (`is_decided`), because they come from cores that are still in a turn and have not submitted them. So the detach,
    /// and every later job but messages, waits for the ends of those turns.
    pub(super) fn submit_jobs(&mut self) {
        self.submit_barriers();
        self.queue_shared_outcomes();
        let is_message = |job: &mut Job| matches!(job.write, Write::Publish(_) | Write::Confirmed { .. });
        let mut messages: Vec<Job> = self.store_jobs.queue.extract_if(.., is_message).collect();
        if let Some(store) = &self.process.store
            && !messages.is_empty()
        {
            store.submit(&mut messages);
        }
        if let Some(mut held) = self.store_jobs.held.take() {
            self.still_in(&mut held.turns);
            if !held.turns.is_empty() {
                self.store_jobs.held = Some(held);
                return;
            }
            self.submit(held.len);
        }
        let waits = |job: &Job| matches!(&job.write, Write::Detach(detach) if !detach.is_decided());
        let ready = self.store_jobs.queue.iter().position(waits);
        self.submit(ready.unwrap_or(self.store_jobs.queue.len()));
        if ready.is_some() {
            let turns = self.others_in_turn();
            if turns.is_empty() {
                self.submit(self.store_jobs.queue.len());
            } else {
                self.store_jobs.held = Some(HeldJobs { turns, len: self.store_jobs.queue.len() });
            }
        }
    }

    pub(super) fn submit(&mut self, len: usize) {
        if let Some(store) = &self.process.store
            && len > 0
        {
            let rest = self.store_jobs.queue.split_off(len);
            store.submit(&mut self.store_jobs.queue);
            self.store_jobs.queue = rest;
        }
    }

    pub(super) fn others_in_turn(&self) -> OpenTurns {
        let cores = self.process.cores.iter().zip(0..);
        let now = cores.map(|(core, index)| (index, core.turns.load(Ordering::SeqCst)));
        // Odd inside a turn.
        now.filter(|(core, turn)| *core != self.index && turn % 2 == 1).collect()
    }

    pub(super) fn still_in(&self, turns: &mut OpenTurns) {
        let now = |core: u16| self.process.core(core).turns.load(Ordering::SeqCst);
        turns.retain(|(core, turn)| now(*core) == *turn);
    }
}
