//! One pass of the writer's loop, and the waits that let a transaction gather more jobs.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::store::Job;
use crate::store::pods;
use crate::store::queue::TakenWork;

use super::{RETRY, TICK, Writer};

impl Writer<'_> {
    /// How long [`Writer::step`] may wait for jobs.
    pub(in crate::store) fn wait_for_jobs(&self) -> Duration {
        let wait = match () {
            () if self.outage.holds() || !self.backlog.is_empty() => Duration::ZERO,
            () if !self.waiting.is_empty() => RETRY,
            () if self.shared.is_shared => pods::TICK,
            () => TICK,
        };
        wait.min(self.until_step())
    }

    /// One pass of the writer's loop, with the jobs that were submitted meanwhile. Breaks when the queue is closed and
    /// everything in it is written.
    pub(in crate::store) fn step(&mut self, taken: TakenWork<Job>) -> ControlFlow<()> {
        if self.outage.holds() {
            let held = self.outage.take_held();
            self.backlog.push(held.into_iter().flat_map(Job::by_broker));
        }
        match taken {
            TakenWork::Work(jobs) => self.backlog.push(jobs.into_iter().flat_map(Job::by_broker)),
            TakenWork::Nothing if self.backlog.is_empty() => self.taken_back.note_idle(self.shared),
            TakenWork::Nothing => {}
            TakenWork::Closed if self.backlog.is_empty() => {
                while self.retry_unwritten() {}
                self.save_groups();
                self.save_all_claims();
                pods::leave(self);
                return ControlFlow::Break(());
            }
            TakenWork::Closed => {}
        }
        self.linger();
        self.gather();
        self.write_next();
        self.ask_again();
        self.sweep();
        self.put_back_unfinished();
        ControlFlow::Continue(())
    }

    /// Waits for a moment for brokers that have just been answered, see [`Backlog::is_early`].
    fn linger(&mut self) {
        let until = self.commit_times.linger_until_us();
        let mut left = until.saturating_sub(self.shared.clock.micros());
        while left > 0 && self.backlog.is_early() {
            let TakenWork::Work(jobs) = self.shared.writes.take(Duration::from_micros(left)) else { return };
            self.backlog.push(jobs.into_iter().flat_map(Job::by_broker));
            left = until.saturating_sub(self.shared.clock.micros());
        }
    }

    /// Waits for a moment for publishers that have just been answered, see [`Gather`].
    fn gather(&mut self) {
        let mut publishes = self.backlog.small_publishes();
        let is_full = std::mem::take(&mut self.leaves_small);
        let waits = !is_full && !self.backlog.is_empty();
        let wait_us = if waits { self.gather.wait_us(publishes, self.commit_times.commit_us()) } else { 0 };
        if wait_us == 0 {
            return;
        }
        let until = self.shared.clock.micros() + wait_us;
        while !self.gather.is_complete(publishes) {
            let left = until.saturating_sub(self.shared.clock.micros());
            let TakenWork::Work(work) = self.shared.writes.take(Duration::from_micros(left)) else { break };
            self.backlog.push(work.into_iter().flat_map(Job::by_broker));
            publishes = self.backlog.small_publishes();
        }
        self.gather.end(publishes);
    }
}
