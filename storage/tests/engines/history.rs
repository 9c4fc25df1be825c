//! Random transactions on few keys, from several threads, and their history.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use bytes::Bytes;
use millrace_storage::{Database, KeyRange, RangeOptions, Read, StoreError, Transaction, block_on};

use crate::{
    checker::{End, Record, State, Value, check},
    support::{Random, TestHost, begin},
};

const KEYS: u64 = 6;
const THREADS: u64 = 4;

/// Transactions of a thread. `MILLRACE_HISTORY` sets another number, `MILLRACE_SEED` the seed.
fn transactions() -> u64 {
    setting("MILLRACE_HISTORY").unwrap_or(300)
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

pub(crate) fn random_transactions_are_strictly_serializable(database: &Database, _: &Arc<TestHost>) {
    let seed = setting("MILLRACE_SEED").unwrap_or(1);
    let clock = AtomicU64::new(1);
    let thread = |number| {
        let mut random = Random(seed.wrapping_mul(1_000).wrapping_add(number));
        let mut one = |count| transaction(database, &clock, &mut random, number << 32 | count);
        (1..=transactions()).map(&mut one).collect::<Vec<_>>()
    };
    let histories = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || thread(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let history = histories.concat();
    let count = |end: fn(&End) -> bool| history.iter().filter(|record| end(&record.end)).count();
    let committed = count(|end| matches!(end, End::Committed(_)));
    let refused = count(|end| *end == End::Refused);
    assert!(committed > 100 && refused > 0, "{committed} committed, {refused} refused: a test of nothing");
    let end = read_range(&begin(database), 0, KEYS, false).into_iter().filter(|(_, value)| *value != 0);
    check(&history, &end.collect()).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
}

fn transaction(database: &Database, clock: &AtomicU64, random: &mut Random, value: Value) -> Record {
    let began = clock.fetch_add(1, Ordering::SeqCst);
    let transaction = begin(database);
    let read_version = block_on(transaction.read_version()).unwrap();
    let mut reads = Vec::new();
    for _ in 0..random.below(3) {
        let key = random.below(KEYS);
        reads.extend(read_range(&transaction, key, key + 1, false));
    }
    if random.below(3) == 0 {
        let from = random.below(KEYS);
        let to = from + 1 + random.below(KEYS - from);
        reads.extend(read_range(&transaction, from, to, random.below(2) == 0));
    }
    if random.below(4) == 0 {
        thread::yield_now();
    }
    let mut writes = State::new();
    for place in 0..random.below(3) {
        let key = random.below(KEYS) as u8;
        let erase = random.below(4) == 0;
        writes.insert(key, if erase { 0 } else { value << 2 | place });
    }
    for (key, value) in &writes {
        write(&transaction, *key, *value, random);
    }
    let end = match block_on(transaction.commit()) {
        Ok(committed) => committed.versionstamp.map_or(End::ReadOnly, End::Committed),
        Err(StoreError::Conflict | StoreError::TooOld) => End::Refused,
        Err(error) => panic!("{error}"),
    };
    let ended = clock.fetch_add(1, Ordering::SeqCst);
    Record { began, ended, read_version, reads, writes: writes.into_iter().collect(), end }
}

fn write(transaction: &Transaction, key: u8, value: Value, random: &mut Random) {
    let name = [b'k', key];
    match (value, random.below(2)) {
        (0, 0) => transaction.clear(name),
        (0, _) => transaction.clear_range(KeyRange::key(name)),
        (value, _) => transaction.set(name, Bytes::copy_from_slice(&value.to_le_bytes())),
    }
    .unwrap();
}

/// The values of keys, the absent ones too.
fn read_range(transaction: &Transaction, from: u64, to: u64, reverse: bool) -> Vec<(u8, Value)> {
    let value = |bytes: &Bytes| Value::from_le_bytes(bytes[..].try_into().unwrap());
    if to == from + 1 {
        let found = block_on(transaction.get([b'k', from as u8], Read::Serializable)).unwrap();
        return vec![(from as u8, found.as_ref().map_or(0, value))];
    }
    let range = KeyRange::new([b'k', from as u8], [b'k', to as u8]);
    let options = RangeOptions { reverse, ..RangeOptions::first(100) };
    let items = block_on(transaction.range(range, options)).unwrap().items;
    let find = |key: u8| items.iter().find(|item| item.key[1] == key).map_or(0, |item| value(&item.value));
    (from as u8..to as u8).map(|key| (key, find(key))).collect()
}
