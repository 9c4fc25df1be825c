//! The store of a simulation: the engine in memory, whose answers may be late, lost or refused, and during whose calls
//! other parts act.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use millrace_storage::{
    Commit, Completion, Database, Engine, EngineTransaction, Host, KeyRange, Pause, RetryPolicy, StoreError,
    StoreVersion, Transaction, block_on,
};

use super::world::{World, world};
use crate::clock::simulated;
use crate::store::testing_engine::{TestEngine, TestTransaction};

/// The environment of the store: the time and the random numbers of the simulation.
pub(super) struct SimulatedHost;

impl Host for SimulatedHost {
    fn now(&self) -> Duration {
        Duration::from_micros(simulated::micros())
    }

    fn unix_ms(&self) -> u64 {
        world().unix_ms()
    }

    fn random(&self) -> u64 {
        world().random(0..u64::MAX)
    }

    fn pause(&self, duration: Duration) -> Pause {
        Box::pin(async move { simulated::pass(duration, &|| false) })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    Conflict,
    /// The answer is lost; the transaction was committed or not.
    Lost {
        committed: bool,
    },
    /// The engine fails. Until it has opened its journal again, it refuses all commits; then this transaction is in it, or not.
    Breaks {
        survives: bool,
    },
    Refused(Refusal),
    /// Committed with all others that are due at this time, in microseconds.
    Late {
        at_us: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Transactions that free space are not refused.
    Full,
    Broken,
    Away,
}

impl Refusal {
    fn error(self) -> StoreError {
        match self {
            Self::Full => StoreError::DiskFull { free_bytes: 1, reserve_bytes: 2 },
            Self::Broken => StoreError::Io("by the simulation".into()),
            Self::Away => StoreError::Unavailable("by the simulation".into()),
        }
    }
}

pub(super) struct SimulatedEngine;

impl SimulatedEngine {
    pub(super) fn database() -> Database {
        Database::new(Arc::new(Self), Arc::new(SimulatedHost), RetryPolicy::default())
    }
}

impl Engine for SimulatedEngine {
    #[allow(clippy::disallowed_methods, reason = "this is an engine")]
    fn begin(&self) -> Box<dyn EngineTransaction> {
        Box::new(TestTransaction::new(Self, world().store().begin_unretried()))
    }
}

impl TestEngine for SimulatedEngine {
    fn before_read(&self) -> Result<(), StoreError> {
        world().before_read()
    }

    fn view(&self, version: StoreVersion) -> Option<Transaction> {
        world().view(version)
    }

    fn commit(&self, inner: Transaction, frees_space: bool, done: Completion) {
        let world = world();
        world.before_commit();
        match world.fate(frees_space) {
            Fate::Done => {
                let result = block_on(inner.commit());
                world.note_commit(result.is_ok());
                world.after_commit();
                done.complete(result);
            }
            Fate::Conflict => done.complete(Err(StoreError::Conflict)),
            Fate::Lost { committed } => {
                if committed {
                    // A conflict is no commit, and its answer is lost all the same.
                    world.note_commit(block_on(inner.commit()).is_ok());
                }
                world.after_commit();
                done.complete(Err(StoreError::CommitUnknown));
            }
            Fate::Breaks { survives } => {
                world.break_engine(survives.then_some(inner));
                done.complete(Err(StoreError::CommitUnknown));
            }
            Fate::Refused(refusal) => done.complete(Err(refusal.error())),
            Fate::Late { at_us } => world.answer_late(Late { inner, done, at_us }),
        }
    }
}

pub(super) struct Late {
    inner: Transaction,
    done: Completion,
    pub(super) at_us: u64,
}

impl Late {
    /// Commits these in one group, as a cluster does: they have the same version.
    pub(super) fn answer(due: Vec<Self>, world: &World) {
        let held = hold_commits(world.store());
        let commit = |late: Self| (late.inner.commit(), late.done);
        let commits: Vec<(Commit, Completion)> = due.into_iter().map(commit).collect();
        drop(held);
        for (commit, done) in commits {
            let result = block_on(commit);
            world.note_commit(result.is_ok());
            done.complete(result);
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a part of the simulated engine")]
fn hold_commits(store: &Database) -> Sender<()> {
    let (held, holds) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel::<()>();
    let tx = store.begin_unretried();
    // Only a transaction that writes goes to the thread that commits.
    tx.add_write_conflict_range(KeyRange::key(b"held")).unwrap();
    tx.commit_then(move |_| {
        drop(begun);
        let _ = holds.recv();
    });
    let _ = begins.recv();
    held
}
