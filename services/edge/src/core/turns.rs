//! The turns of an event loop: sleep, read the clock, one turn of everything that is due, submit jobs to the writer.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use mio::{Events, Token};

use super::{Core, FIRST_LISTENER, WAKER, allocator, work};
use crate::clock::{Millis, seconds, tick_ms};

pub(super) const EVENTS: usize = 1024;
/// Longest sleep: the health check expects a turn at least this often.
const SLEEP_MAX_MS: u64 = 1000;
/// Interval of looks at paused publishers and other work that no event announces.
pub(super) const PAUSE_MS: u64 = 2;

impl Core {
    /// Runs turns until the process stops and all connections have gone, or `grace` has passed.
    pub(crate) fn run(mut self, grace: &OnceLock<Duration>) {
        let mut events = Events::with_capacity(EVENTS);
        let mut give_up_at = Millis::MAX;
        loop {
            if let Err(error) = self.wait(&mut events) {
                // Without this loop a part of the clients would wait for ever.
                panic!("event loop {} cannot wait for events: {error}", self.index);
            }
            self.read_clock();
            self.count_turn();
            if !self.stopping && self.process.stopping.load(Ordering::Relaxed) {
                let grace = grace.get().copied().unwrap_or_default();
                give_up_at = self.now_ms.saturating_add(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
                self.begin_stop();
            }
            self.turn(&events);
            self.submit_jobs();
            self.drop_claims();
            self.count_turn();
            if self.stopping && (self.is_done() || self.now_ms >= give_up_at) {
                return self.submit(self.store_jobs.queue.len());
            }
        }
    }

    /// Begins or ends a turn: see [`crate::process::PerCore::turns`].
    pub(super) fn count_turn(&self) {
        let turn = &self.process.core(self.index).turns;
        turn.store(turn.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
        // If a `Fence` saw this core outside of a turn, this turn must see everything that was put into the router
        // before.
        fence(Ordering::SeqCst);
    }

    pub(super) fn read_clock(&mut self) {
        self.now_ms = self.process.clock.now();
        let last = std::mem::replace(&mut self.now, seconds(self.now_ms));
        if self.now != last {
            self.look_at_memory();
            self.check_load();
            self.maintain_outbound();
            self.routes.forget_idle();
            allocator::purge_empty_pages();
        }
        self.process.core(self.index).turned_at.store(self.now_ms, Ordering::Relaxed);
        self.counters().turns.add(1);
    }

    fn look_at_memory(&mut self) {
        let memory = &self.process.memory;
        if self.index == 0
            && let Some(pressure) = memory.look()
        {
            let (used, budget) = (memory.used(), memory.budget());
            tracing::warn!(
                used,
                budget,
                pressure = pressure.name(),
                "the memory in use has reached another level of its budget"
            );
        }
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let mut timeout = SLEEP_MAX_MS;
        if let Some(next) = self.calendar.next() {
            // Seconds are counted from 1: the next one begins when the present thousand ends.
            timeout = timeout.min(1000 - self.now_ms % 1000).min(tick_ms(next).saturating_sub(self.now_ms));
        }
        let has_work =
            self.is_draining() || !self.connects.admission.is_idle() || !self.unfinished.scans.is_idle();
        if !self.pauses.paused.is_empty() || self.stopping || has_work {
            timeout = timeout.min(PAUSE_MS);
        }
        if self.waits_for_turns() {
            timeout = timeout.min(1);
        }
        for at in [self.pauses.rates.next(), self.unfinished.slices.next_at()].into_iter().flatten() {
            timeout = timeout.min(at.saturating_sub(self.now_ms));
        }
        let has_waiting = self.work.has_waiting()
            || self.unfinished.has_fanouts()
            || self.unfinished.replays.is_ready()
            || !self.unfinished.due.is_empty()
            || self.listeners.has_more()
            || self.mail.has_more();
        if has_waiting || !self.ready.is_empty() || self.has_relief() || !self.mailbox().sleep() {
            timeout = 0;
        }
        let result = self.poll.poll(events, Some(Duration::from_millis(timeout)));
        self.mailbox().awake();
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            other => other,
        }
    }

    pub(super) fn turn(&mut self, events: &Events) {
        let began_us = self.process.clock.micros();
        self.tracing.turn_us = began_us;
        self.work.begin_turn();
        let written = self.serve(events);
        self.continue_unfinished();
        self.write_out(self.work.spent().max(work::TURN) + work::TURN - written.min(work::TURN));
        self.process.core(self.index).work_max.fetch_max(self.work.counted(), Ordering::Relaxed);
        let took_us = self.process.clock.micros().saturating_sub(began_us);
        self.process.core(self.index).turn_times.note(took_us);
        self.homes.occupation.add_turn(took_us);
    }

    /// Takes what has come, and hands it to its receivers. Its output does not wait for unfinished work of other clients. Returns
    /// the work of writing.
    pub(super) fn serve(&mut self, events: &Events) -> u64 {
        for event in events {
            match event.token() {
                WAKER => {}
                Token(token) if token >= FIRST_LISTENER => self.listeners.readable(token - FIRST_LISTENER),
                Token(token) => self.socket_event(token, event),
            }
        }
        self.accept();
        self.read_ready();
        self.take_mail(self.work.spent().max(work::TURN) + work::TURN);
        self.fan_out();
        let before = self.work.spent();
        if self.has_unfinished() {
            self.write_out(before.max(work::TURN) + work::TURN);
        }
        self.work.spent() - before
    }

    fn has_unfinished(&self) -> bool {
        self.unfinished.replays.is_ready()
            || self.work.has_removals()
            || !self.unfinished.due.is_empty()
            || !self.unfinished.scans.is_idle()
            || !self.unfinished.filter_changes.is_empty()
            || self.pauses.rates.next().is_some_and(|at| at <= self.now_ms)
    }

    fn continue_unfinished(&mut self) {
        self.send_retained();
        self.remove_ended();
        self.look_at_due();
        self.end_stalled();
        self.scan();
        self.next_slices();
        self.relieve();
        self.resume_paused();
        self.resume_rate_limited();
        self.admit_waiting();
        self.drain();
        self.change_filters_of_turn();
    }

    /// Writes until the turn has spent `end` units: a turn may exceed its budget for reading by another [`work::TURN`] to write.
    fn write_out(&mut self, end: u64) {
        // Writing may end a connection, and the connection may publish a will, so there may be more to write.
        loop {
            self.send_mail();
            self.flush_dirty(end);
            if self.output.dirty.is_empty() && self.mail.is_sent() {
                break;
            }
        }
    }
}
