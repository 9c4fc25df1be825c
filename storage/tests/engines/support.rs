//! Helpers of the engine tests: the engines, a clock that a test advances, and seeded random
//! numbers.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use millrace_storage::{
    Committed, Database, Embedded, Host, KeyRange, KeyValue, Options, Pause, RangeOptions, RangePage, Read,
    RetryPolicy, StoreError, Transaction, Versionstamp, block_on,
};

/// Values that must live as long as the store.
pub(crate) type Keep = Box<dyn Any>;

pub(crate) fn memory(host: Arc<TestHost>) -> (Database, Keep) {
    (Database::memory_on(host), Box::new(()))
}

pub(crate) fn embedded(host: Arc<TestHost>) -> (Database, Keep) {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path().join("data"), Options::default()).unwrap();
    (store.database_on(host, RetryPolicy::default()), Box::new(folder))
}

#[cfg(feature = "foundationdb")]
pub(crate) fn foundationdb(host: Arc<TestHost>) -> (Database, Keep) {
    (millrace_storage::FoundationDb::scratch(host).expect("a cluster"), Box::new(()))
}

/// A clock that only moves by [`TestHost::advance`]; pauses end at once and are counted.
pub(crate) struct TestHost {
    milliseconds: AtomicU64,
    pub(crate) pauses: AtomicU64,
}

impl TestHost {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { milliseconds: AtomicU64::new(0), pauses: AtomicU64::new(0) })
    }

    pub(crate) fn advance(&self, duration: Duration) {
        self.milliseconds.fetch_add(duration.as_millis() as u64, Ordering::Relaxed);
    }
}

impl Host for TestHost {
    fn now(&self) -> Duration {
        Duration::from_millis(self.milliseconds.load(Ordering::Relaxed))
    }

    fn random(&self) -> u64 {
        0
    }

    fn pause(&self, _: Duration) -> Pause {
        self.pauses.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }
}

/// Numbers that look random and are the same for a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[allow(clippy::disallowed_methods)]
pub(crate) fn begin(database: &Database) -> Transaction {
    database.begin_unretried()
}

pub(crate) fn commit(transaction: Transaction) -> Result<Committed, StoreError> {
    block_on(transaction.commit())
}

pub(crate) fn stamp(transaction: Transaction) -> Versionstamp {
    commit(transaction).unwrap().versionstamp.expect("something was written")
}

pub(crate) fn get(transaction: &Transaction, key: &str) -> Option<Bytes> {
    block_on(transaction.get(key, Read::Serializable)).unwrap()
}

pub(crate) fn page(transaction: &Transaction, begin: &str, end: &str, options: RangeOptions) -> RangePage {
    block_on(transaction.range(KeyRange::new(begin, end), options)).unwrap()
}

pub(crate) fn set(database: &Database, items: &[(&str, &'static str)]) {
    let transaction = begin(database);
    for (key, value) in items {
        transaction.set(key, *value).unwrap();
    }
    commit(transaction).unwrap();
}

/// All keys from "a" to "z" as text, such as `a=1 b=2`.
pub(crate) fn all(transaction: &Transaction) -> String {
    text(&page(transaction, "a", "z", RangeOptions::first(1_000)).items)
}

pub(crate) fn text(items: &[KeyValue]) -> String {
    let pair = |item: &KeyValue| {
        format!("{}={}", String::from_utf8_lossy(&item.key), String::from_utf8_lossy(&item.value))
    };
    items.iter().map(pair).collect::<Vec<_>>().join(" ")
}

pub(crate) fn number(value: Option<Bytes>) -> i64 {
    value.map_or(0, |bytes| i64::from_le_bytes(bytes[..].try_into().unwrap()))
}
