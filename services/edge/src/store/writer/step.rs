//! One pass of the writer's loop, and the waits that let a transaction gather more jobs.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::jobs::FENCED_AFTER_MS;
use crate::store::Job;
use crate::store::apply::{HAND_OVER_MS, WriterState};
use crate::store::pods;
use crate::store::queue::TakenWork;

use super::{RETRY, TICK, Writer};

/// Times of the last pass of the loop and of rarer work, in milliseconds of the process.
#[derive(Default)]
pub(super) struct Rounds {
    stepped_at: u64,
    stalled_until: u64,
    pub(super) swept_at: u64,
    pub(super) looked_around_at: u64,
}

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
        self.note_stall();
        if self.outage.holds() {
            let held = self.outage.take_held();
            self.backlog.push(held.into_iter().flat_map(Job::by_broker));
        }
        match taken {
            TakenWork::Work(jobs) => self.take_in(jobs),
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

    /// A pod that stood still reads what waited in its sockets before its writer has read which sessions other pods have taken. So the
    /// writer looks at the sessions of all publishers for a while.
    fn note_stall(&mut self) {
        let now_ms = self.shared.clock.now();
        let since_ms = now_ms - std::mem::replace(&mut self.rounds.stepped_at, now_ms);
        if since_ms >= FENCED_AFTER_MS || self.shared.leases.can_commit_since(now_ms).is_none() {
            self.rounds.stalled_until = now_ms + HAND_OVER_MS;
        }
    }

    pub(super) fn state(&self) -> WriterState {
        let has_stalled = self.shared.clock.now() < self.rounds.stalled_until;
        WriterState { memory_lags: self.taken_back.memory_lags(), has_stalled }
    }

    fn take_in(&mut self, jobs: Vec<Job>) {
        let gather = &mut self.gather;
        let jobs = jobs.into_iter().flat_map(Job::by_broker);
        self.backlog.push(jobs.inspect(|job| {
            if !gather.is_complete()
                && let Some(broker) = job.broker_of_small_publish()
            {
                gather.note_arrival(broker);
            }
        }));
    }

    /// Takes jobs in for as long as `waits`, but not after `until_us`.
    fn take_in_while(&mut self, until_us: u64, waits: impl Fn(&Self) -> bool) {
        while waits(self)
            && let left_us @ 1.. = until_us.saturating_sub(self.shared.clock.micros())
            && let TakenWork::Work(jobs) = self.shared.writes.take(Duration::from_micros(left_us))
        {
            self.take_in(jobs);
        }
    }

    /// Waits for a moment for brokers that have just been answered, see [`Backlog::is_early`].
    fn linger(&mut self) {
        let share = self.commit_times.budget().share;
        if !self.backlog.is_early(share) {
            return;
        }
        let until_us = self.commit_times.linger_until_us(self.backlog.has_costly_jobs_alone());
        if until_us <= self.shared.clock.micros() || !self.linger.waits() {
            return;
        }
        let absent = self.backlog.absent_of_last();
        self.take_in_while(until_us, |writer| writer.backlog.is_early(share));
        self.linger.end(self.backlog.absent_of_last() == absent);
    }

    /// Waits for a moment for publishers that have just been answered, see [`Gather`].
    fn gather(&mut self) {
        let waits = !self.backlog.is_empty();
        let wait_us = if waits { self.gather.wait_us(self.commit_times.commit_us()) } else { 0 };
        if wait_us == 0 {
            return;
        }
        let until_us = self.shared.clock.micros() + wait_us;
        self.take_in_while(until_us, |writer| !writer.gather.is_complete());
        self.gather.end();
    }
}
