//! The commit thread over a backend that a test blocks, breaks and repairs.

use std::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;

use super::{Backend, KeyWrite, LocalEngine, Readiness, View};
use crate::{
    completion::{Commit, block_on},
    database::{Attempt, Database},
    error::StoreError,
    host::System,
    key::KeyRange,
    retry::RetryPolicy,
    transaction::Transaction,
    version::StoreVersion,
};

/// Keeps no keys; counts what is applied.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    version: AtomicU64,
    recoveries: AtomicU64,
}

#[derive(Default)]
struct State {
    closed: bool,
    broken: bool,
    refusing: bool,
    /// Writes of each group that came to the gate.
    groups: Vec<usize>,
}

struct Nothing;

impl View for Nothing {
    fn get(&self, _: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(None)
    }

    fn scan(&self, _: &KeyRange, _: bool, _: &mut dyn FnMut(Bytes, Bytes) -> bool) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait_for_groups(&self, count: usize) {
        let state = self.lock();
        drop(self.changed.wait_while(state, |state| state.groups.len() < count).unwrap());
    }
}

impl Backend for Gate {
    type View = Nothing;

    fn version(&self) -> StoreVersion {
        self.version.load(Ordering::Relaxed)
    }

    fn view(&self) -> Nothing {
        Nothing
    }

    fn readiness(&self) -> Readiness {
        let refused = StoreError::DiskFull { free_bytes: 1, reserve_bytes: 2 };
        if self.lock().refusing { Readiness::Refuse(refused) } else { Readiness::Ready }
    }

    fn apply(&self, version: StoreVersion, writes: Vec<KeyWrite>) -> Result<(), StoreError> {
        self.change(|state| state.groups.push(writes.len()));
        let state = self.changed.wait_while(self.lock(), |state| state.closed).unwrap();
        self.version.store(version, Ordering::Relaxed);
        if state.broken { Err(StoreError::Io("broken".into())) } else { Ok(()) }
    }

    fn recover(&self) -> Result<(), StoreError> {
        self.recoveries.fetch_add(1, Ordering::Relaxed);
        if self.lock().broken { Err(StoreError::Io("still broken".into())) } else { Ok(()) }
    }
}

fn start() -> (Arc<Gate>, Database) {
    let gate = Arc::new(Gate::default());
    let engine = Arc::new(LocalEngine::start(gate.clone()).unwrap());
    (gate, Database::new(engine, Arc::new(System::new()), RetryPolicy::default()))
}

#[allow(clippy::disallowed_methods)]
fn begin(database: &Database) -> Transaction {
    database.begin_unretried()
}

fn writer(database: &Database, bytes: usize) -> Transaction {
    let transaction = begin(database);
    transaction.set_versionstamped_key("k", [0; 2], "", vec![0; bytes]).unwrap();
    transaction
}

#[test]
fn while_one_group_is_written_the_next_gathers() {
    let (gate, database) = start();
    gate.change(|state| state.closed = true);
    let first = writer(&database, 1).commit();
    gate.wait_for_groups(1);
    let rest: Vec<Commit> = (0..50).map(|_| writer(&database, 1).commit()).collect();
    gate.change(|state| state.closed = false);
    let first = block_on(first).unwrap().versionstamp.unwrap();
    let stamps: Vec<_> =
        rest.into_iter().map(|commit| block_on(commit).unwrap().versionstamp.unwrap()).collect();
    assert_eq!(gate.lock().groups, [1, 50]);
    assert!(stamps.is_sorted() && stamps.iter().all(|stamp| stamp.version() == first.version() + 1));
    assert_eq!(stamps.iter().map(|stamp| u64::from(stamp.number())).sum::<u64>(), (0..50).sum());
}

#[test]
fn queued_commits_are_bounded() {
    let (gate, database) = start();
    gate.change(|state| state.closed = true);
    let mut commits = vec![writer(&database, 1).commit()];
    gate.wait_for_groups(1);
    // 100,000 bytes each: 64 MiB and one more are accepted, and the rest is refused at once.
    commits.extend((0..700).map(|_| writer(&database, 100_000).commit()));
    assert_eq!(block_on(commits.pop().unwrap()), Err(StoreError::Busy));
    gate.change(|state| state.closed = false);
    let taken = commits.into_iter().map(block_on).filter(Result::is_ok).count();
    assert!((665..680).contains(&taken), "{taken}");
    // Groups are bounded, too.
    assert!(gate.lock().groups[1..].iter().all(|writes| *writes <= 85), "{:?}", gate.lock().groups);
}

#[test]
fn after_a_failure_writes_are_refused_until_it_recovered() {
    let (gate, database) = start();
    gate.change(|state| state.broken = true);
    assert_eq!(block_on(writer(&database, 1).commit()), Err(StoreError::CommitUnknown));
    assert_eq!(block_on(writer(&database, 1).commit()), Err(StoreError::Io("broken".into())));
    let old = begin(&database);
    assert_eq!(block_on(old.get("k", Default::default())), Ok(None), "reads continue");
    gate.change(|state| state.broken = false);
    let clock = System::new();
    while block_on(writer(&database, 1).commit()).is_err() {
        block_on(crate::host::Host::pause(&clock, std::time::Duration::from_millis(10)));
    }
    assert!(gate.recoveries.load(Ordering::Relaxed) > 0);
    // Earlier reads cannot be checked any more.
    old.set("k", "v").unwrap();
    assert_eq!(block_on(old.commit()), Err(StoreError::TooOld));
}

#[test]
fn the_body_learns_that_an_earlier_attempt_may_have_committed() {
    let (gate, database) = start();
    gate.change(|state| state.broken = true);
    let mut attempts: Vec<Attempt> = Vec::new();
    let result: Result<(), StoreError> = block_on(database.run(|transaction, attempt| {
        attempts.push(attempt);
        async move {
            match attempt.maybe_committed {
                true => Ok(()),
                false => transaction.set("k", "v"),
            }
        }
    }));
    result.unwrap();
    let expected = [(1, false), (2, true)];
    assert!(attempts.iter().map(|attempt| (attempt.number, attempt.maybe_committed)).eq(expected));
}

#[test]
fn a_refusal_ends_with_its_reason() {
    let (gate, database) = start();
    gate.change(|state| state.refusing = true);
    let refused = block_on(writer(&database, 1).commit());
    assert_eq!(refused, Err(StoreError::DiskFull { free_bytes: 1, reserve_bytes: 2 }));
    gate.change(|state| state.refusing = false);
    assert!(block_on(writer(&database, 1).commit()).is_ok());
    assert_eq!(gate.recoveries.load(Ordering::Relaxed), 0);
}

#[test]
fn queued_commits_complete_when_the_store_is_closed() {
    let (gate, database) = start();
    gate.change(|state| state.closed = true);
    let commits: Vec<Commit> = (0..10).map(|_| writer(&database, 1).commit()).collect();
    let late = writer(&database, 1);
    gate.change(|state| state.closed = false);
    drop(database);
    for commit in commits {
        block_on(commit).unwrap();
    }
    assert_eq!(block_on(late.commit()), Err(StoreError::Closed));
}
