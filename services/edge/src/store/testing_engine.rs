//! An engine for tests: the engine in memory, whose reads and commits the test decides.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use bytes::Bytes;
use millrace_storage::{
    Completion, Database, Engine, EngineTransaction, Host, KeyRange, Pause, RangeOptions, RangePage, Read,
    Reply, RetryPolicy, StoreError, StoreVersion, Transaction, TransactionOption, block_on,
};

pub(in crate::store) trait TestEngine: Send + Sync + 'static {
    fn before_read(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// A transaction that reads at this version, instead of at the newest one.
    fn view(&self, _version: StoreVersion) -> Option<Transaction> {
        None
    }

    /// Commits a transaction that has written something, or not.
    fn commit(&self, inner: Transaction, frees_space: bool, done: Completion);
}

pub(in crate::store) struct TestTransaction<H> {
    engine: H,
    inner: RwLock<Transaction>,
    writes: AtomicBool,
    frees_space: AtomicBool,
}

impl<H: TestEngine> TestTransaction<H> {
    pub(in crate::store) fn new(engine: H, inner: Transaction) -> Self {
        Self {
            engine,
            inner: RwLock::new(inner),
            writes: AtomicBool::new(false),
            frees_space: AtomicBool::new(false),
        }
    }

    fn inner(&self) -> Transaction {
        self.inner.read().unwrap().clone()
    }

    fn wrote(&self) {
        self.writes.store(true, Ordering::Relaxed);
    }
}

// The outer transaction has checked all arguments.
impl<H: TestEngine> EngineTransaction for TestTransaction<H> {
    fn read_version(&self) -> Reply<'_, StoreVersion> {
        match self.engine.before_read() {
            Ok(()) => Reply::ready(block_on(self.inner().read_version())),
            Err(error) => Reply::ready(Err(error)),
        }
    }

    fn set_read_version(&self, version: StoreVersion) {
        if let Some(view) = self.engine.view(version) {
            *self.inner.write().unwrap() = view;
        }
    }

    fn get<'a>(&'a self, key: &[u8], read: Read) -> Reply<'a, Option<Bytes>> {
        match self.engine.before_read() {
            Ok(()) => Reply::ready(block_on(self.inner().get(key, read))),
            Err(error) => Reply::ready(Err(error)),
        }
    }

    fn range<'a>(&'a self, range: KeyRange, options: RangeOptions) -> Reply<'a, RangePage> {
        match self.engine.before_read() {
            Ok(()) => Reply::ready(block_on(self.inner().range(range, options))),
            Err(error) => Reply::ready(Err(error)),
        }
    }

    fn set(&self, key: Bytes, value: Bytes) {
        self.wrote();
        self.inner().set(key, value).unwrap();
    }

    fn clear(&self, key: Bytes) {
        self.wrote();
        self.inner().clear(key).unwrap();
    }

    fn clear_range(&self, range: KeyRange) {
        self.wrote();
        self.inner().clear_range(range).unwrap();
    }

    fn atomic_add(&self, key: Bytes, addend: i64) {
        self.wrote();
        self.inner().atomic_add(key, addend).unwrap();
    }

    fn set_versionstamped_key(&self, template: Vec<u8>, offset: usize, value: Bytes) {
        self.wrote();
        let (prefix, rest) = template.split_at(offset);
        let (user_bytes, suffix) = rest[10..].split_at(2);
        self.inner().set_versionstamped_key(prefix, user_bytes.try_into().unwrap(), suffix, value).unwrap();
    }

    fn add_read_conflict_range(&self, range: KeyRange) {
        self.inner().add_read_conflict_range(range).unwrap();
    }

    fn add_write_conflict_range(&self, range: KeyRange) {
        self.wrote();
        self.inner().add_write_conflict_range(range).unwrap();
    }

    fn set_option(&self, option: TransactionOption) {
        self.frees_space.store(option == TransactionOption::FreesSpace, Ordering::Relaxed);
        self.inner().set_option(option);
    }

    fn commit(&self, done: Completion) {
        let inner = self.inner();
        if self.writes.load(Ordering::Relaxed) {
            self.engine.commit(inner, self.frees_space.load(Ordering::Relaxed), done);
        } else {
            done.complete(block_on(inner.commit()));
        }
    }
}

pub(in crate::store) enum Fate {
    Fails(StoreError),
    /// The engine fails, with this transaction in its journal.
    Breaks,
    /// The engine has opened its journal again.
    Recovered,
}

type BeforeCommit = Box<dyn FnMut() + Send>;

/// The engine in memory, with a fate for each of the next commits. Nobody waits between attempts.
#[derive(Clone)]
pub(in crate::store) struct ScriptedEngine {
    pub(in crate::store) store: Database,
    fates: Arc<Mutex<VecDeque<Fate>>>,
    journal: Arc<Mutex<Vec<Transaction>>>,
    before_commit: Arc<Mutex<Option<BeforeCommit>>>,
}

impl ScriptedEngine {
    pub(in crate::store) fn new() -> (Self, Database) {
        let store = Database::memory();
        let (fates, journal, before_commit) = Default::default();
        let engine = Self { store, fates, journal, before_commit };
        (engine.clone(), Database::new(Arc::new(engine), Arc::new(Still), RetryPolicy::default()))
    }

    pub(in crate::store) fn then(&self, fates: impl IntoIterator<Item = Fate>) {
        self.fates.lock().unwrap().extend(fates);
    }

    pub(in crate::store) fn before_each_commit(&self, act: impl FnMut() + Send + 'static) {
        *self.before_commit.lock().unwrap() = Some(Box::new(act));
    }
}

impl Engine for ScriptedEngine {
    #[allow(clippy::disallowed_methods, reason = "this is an engine")]
    fn begin(&self) -> Box<dyn EngineTransaction> {
        Box::new(TestTransaction::new(self.clone(), self.store.begin_unretried()))
    }
}

impl TestEngine for ScriptedEngine {
    fn commit(&self, inner: Transaction, _: bool, done: Completion) {
        if let Some(act) = &mut *self.before_commit.lock().unwrap() {
            act();
        }
        let fate = self.fates.lock().unwrap().pop_front();
        match fate {
            Some(Fate::Fails(error)) => return done.complete(Err(error)),
            Some(Fate::Breaks) => {
                self.journal.lock().unwrap().push(inner);
                return done.complete(Err(StoreError::CommitUnknown));
            }
            Some(Fate::Recovered) => {
                let journal = std::mem::take(&mut *self.journal.lock().unwrap());
                for inner in journal {
                    block_on(inner.commit()).unwrap();
                }
            }
            None => {}
        }
        done.complete(block_on(inner.commit()));
    }
}

/// Time does not pass.
struct Still;

impl Host for Still {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn random(&self) -> u64 {
        7
    }

    fn pause(&self, _: Duration) -> Pause {
        Box::pin(async {})
    }
}
