//! A store that counts round trips: reads that are asked for together take one, as across a network.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use millrace_storage::{
    Completion, Database, Engine, EngineTransaction, KeyRange, RangeOptions, RangePage, Read, Reply,
    RetryPolicy, StoreError, StoreVersion, System, Transaction, TransactionOption, block_on,
};

#[derive(Clone, Default)]
pub(crate) struct RoundTrips(Arc<AtomicU64>);

impl RoundTrips {
    /// The same store, whose reads count.
    pub(crate) fn of(database: &Database) -> (Self, Database) {
        let trips = Self::default();
        let engine = Counted { database: database.clone(), trips: trips.clone() };
        (trips, Database::new(Arc::new(engine), Arc::new(System::new()), RetryPolicy::default()))
    }

    /// Returns the round trips since the last call.
    pub(crate) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }

    fn ask<'a, T: Unpin + Send + 'a>(&self, reply: Reply<'a, T>) -> Reply<'a, T> {
        let asked_at = self.0.load(Ordering::Relaxed);
        Reply::Later(Box::pin(Answer { trips: self.clone(), asked_at, reply }))
    }
}

struct Answer<'a, T> {
    trips: RoundTrips,
    asked_at: u64,
    reply: Reply<'a, T>,
}

impl<T: Unpin> Future for Answer<'_, T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.get_mut();
        // A wait that began after this was asked for has brought this answer, too.
        let counts = &answer.trips.0;
        let (asked_at, next) = (answer.asked_at, answer.asked_at + 1);
        let _ = counts.compare_exchange(asked_at, next, Ordering::Relaxed, Ordering::Relaxed);
        Pin::new(&mut answer.reply).poll(context)
    }
}

struct Counted {
    database: Database,
    trips: RoundTrips,
}

impl Engine for Counted {
    #[allow(clippy::disallowed_methods, reason = "this is an engine")]
    fn begin(&self) -> Box<dyn EngineTransaction> {
        Box::new(CountedTransaction { inner: self.database.begin_unretried(), trips: self.trips.clone() })
    }
}

struct CountedTransaction {
    inner: Transaction,
    trips: RoundTrips,
}

// The outer transaction has checked all arguments.
impl EngineTransaction for CountedTransaction {
    fn read_version(&self) -> Reply<'_, StoreVersion> {
        self.trips.ask(self.inner.read_version())
    }

    fn get<'a>(&'a self, key: &[u8], read: Read) -> Reply<'a, Option<Bytes>> {
        self.trips.ask(self.inner.get(key, read))
    }

    fn range<'a>(&'a self, range: KeyRange, options: RangeOptions) -> Reply<'a, RangePage> {
        self.trips.ask(self.inner.range(range, options))
    }

    fn set(&self, key: Bytes, value: Bytes) {
        self.inner.set(key, value).unwrap();
    }

    fn clear(&self, key: Bytes) {
        self.inner.clear(key).unwrap();
    }

    fn clear_range(&self, range: KeyRange) {
        self.inner.clear_range(range).unwrap();
    }

    fn atomic_add(&self, key: Bytes, addend: i64) {
        self.inner.atomic_add(key, addend).unwrap();
    }

    fn set_versionstamped_key(&self, template: Vec<u8>, offset: usize, value: Bytes) {
        let (prefix, rest) = template.split_at(offset);
        let (user_bytes, suffix) = rest[10..].split_at(2);
        self.inner.set_versionstamped_key(prefix, user_bytes.try_into().unwrap(), suffix, value).unwrap();
    }

    fn add_read_conflict_range(&self, range: KeyRange) {
        self.inner.add_read_conflict_range(range).unwrap();
    }

    fn add_write_conflict_range(&self, range: KeyRange) {
        self.inner.add_write_conflict_range(range).unwrap();
    }

    fn set_option(&self, option: TransactionOption) {
        self.inner.set_option(option);
    }

    fn commit(&self, done: Completion) {
        done.complete(block_on(self.inner.clone().commit()));
    }
}
