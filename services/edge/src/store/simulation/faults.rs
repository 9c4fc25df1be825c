//! Faults of the store and of pods.

use std::cell::{Cell, RefCell};

use millrace_storage::{StoreError, Transaction, block_on};

use super::engine::{Fate, Refusal};
use super::world::World;

/// Transactions of the same interval have one version.
const GROUP_EVERY_US: u64 = 20_000;

#[derive(Default)]
pub(super) struct Faults {
    /// From here on nothing goes wrong any more.
    are_over: Cell<bool>,
    full_until_us: Cell<u64>,
    broken_until_us: Cell<u64>,
    away_until_us: Cell<u64>,
    /// The transaction in the journal of the broken engine.
    survivor: RefCell<Option<Transaction>>,
    pub(super) counts: RefCell<Counts>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) conflicts: u64,
    pub(super) lost: u64,
    pub(super) breaks: u64,
    pub(super) refused: u64,
    pub(super) late: u64,
    pub(super) kills: u64,
    pub(super) stalls: u64,
}

impl Faults {
    /// Returns when the next fault is due, in microseconds.
    pub(super) fn act(&self, world: &World) -> u64 {
        self.recover(world);
        if self.are_over.get() {
            return u64::MAX;
        }
        let now_us = world.micros();
        match world.random(0..12) {
            0..=3 => {
                let pod = world.random(0..world.pods.len() as u64) as usize;
                if world.pods[pod].is_up() {
                    self.counts.borrow_mut().kills += 1;
                    world.pods[pod].kill(world, world.one_in(2));
                }
            }
            4 => self.full_until_us.set(now_us + world.random(1..5_000_000)),
            5 if world.plan.is_shared => self.away_until_us.set(now_us + world.random(1..15_000_000)),
            6..=7 if world.plan.is_shared => {
                let pod = world.random(0..world.pods.len() as u64) as usize;
                self.counts.borrow_mut().stalls += 1;
                let until_us = now_us + world.random(1..20_000_000);
                world.log(|| format!("pod {pod} is stalled until {} ms", until_us / 1_000));
                world.pods[pod].stalled_until_us.set(until_us);
            }
            _ => {}
        }
        now_us + world.random(1..2 * 1_000_000 * world.plan.fault_every_s)
    }

    pub(super) fn fill_disk(&self, world: &World, seconds: u64) {
        self.full_until_us.set(world.micros() + 1_000_000 * seconds);
    }

    pub(super) fn end(&self, world: &World) {
        self.are_over.set(true);
        self.full_until_us.set(0);
        self.away_until_us.set(0);
        self.broken_until_us.set(0);
        self.recover(world);
        world.pods.iter().for_each(|pod| pod.stalled_until_us.set(0));
    }

    fn recover(&self, world: &World) {
        if self.broken_until_us.get() <= world.micros()
            && let Some(survivor) = self.survivor.take()
        {
            world.note_commit(block_on(survivor.commit()).is_ok());
        }
    }

    pub(super) fn break_engine(&self, world: &World, survivor: Option<Transaction>) {
        self.counts.borrow_mut().breaks += 1;
        // A transaction of the store is too old after 5 s.
        self.broken_until_us.set(world.micros() + world.random(1..3_000_000));
        *self.survivor.borrow_mut() = survivor;
    }

    pub(super) fn of_read(&self, world: &World) -> Result<(), StoreError> {
        self.recover(world);
        if self.are_over.get() {
            return Ok(());
        }
        if world.micros() < self.away_until_us.get() {
            return Err(StoreError::Unavailable("by the simulation".into()));
        }
        match world.random(0..20_000) {
            0 => Err(StoreError::TooOld),
            1 if world.plan.is_shared => Err(StoreError::Unavailable("by the simulation, once".into())),
            2 => Err(StoreError::Io("by the simulation, once".into())),
            _ => Ok(()),
        }
    }

    pub(super) fn fate(&self, world: &World, frees_space: bool, is_patient: bool) -> Fate {
        self.recover(world);
        if self.are_over.get() {
            return Fate::Done;
        }
        let now_us = world.micros();
        let refusal = match () {
            () if now_us < self.broken_until_us.get() => Some(Refusal::Broken),
            () if now_us < self.away_until_us.get() => Some(Refusal::Away),
            () if now_us < self.full_until_us.get() && !frees_space => Some(Refusal::Full),
            () => None,
        };
        let mut counts = self.counts.borrow_mut();
        if let Some(refusal) = refusal {
            counts.refused += 1;
            return Fate::Refused(refusal);
        }
        match world.random(0..world.plan.commits_per_fault * 10) {
            0..=3 => {
                counts.conflicts += 1;
                Fate::Conflict
            }
            4..=6 => {
                counts.lost += 1;
                Fate::Lost { committed: world.one_in(2) }
            }
            7 if !world.plan.is_shared => Fate::Breaks { survives: world.one_in(2) },
            8 if is_patient => {
                counts.late += 1;
                Fate::Late { at_us: now_us + world.random(1_000..9_000_000) }
            }
            9 => {
                counts.refused += 1;
                Fate::Refused(if world.plan.is_shared { Refusal::Away } else { Refusal::Broken })
            }
            // Together with other commits of this interval.
            _ if is_patient && world.one_in(3) => {
                Fate::Late { at_us: (now_us + 1).next_multiple_of(GROUP_EVERY_US) }
            }
            _ => Fate::Done,
        }
    }
}
