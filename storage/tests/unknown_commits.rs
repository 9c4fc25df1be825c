//! Commits on a cluster whose result is lost: a transaction that looks for its own marker before it
//! repeats takes effect once.
#![cfg(feature = "foundationdb")]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use millrace_storage::{Database, FoundationDb, KeyRange, RangeOptions, StoreError, System, block_on};

const THREADS: u64 = 4;

/// `FDB_NETWORK_OPTION_CLIENT_BUGGIFY_ENABLE` makes the client library lose answers.
#[test]
fn an_answer_that_is_lost_repeats_nothing() {
    if std::env::var_os("FDB_NETWORK_OPTION_CLIENT_BUGGIFY_ENABLE").is_none() {
        println!("SKIPPED: the client library loses no answers; `make test-fdb` tells it to");
        return;
    }
    let world = World::new();
    world.run(|place| place < 200, || {});
    assert!(world.check() > 0, "no answer was lost: a test of nothing");
}

/// `FDB_TEST_KILL` is a command that kills the server, and starts it again.
#[test]
fn a_server_that_is_killed_loses_and_repeats_nothing() {
    let Ok(kill) = std::env::var("FDB_TEST_KILL") else {
        println!("SKIPPED: no server to kill; `make test-fdb` starts one");
        return;
    };
    let world = World::new();
    let kills = AtomicU64::new(0);
    let kill_often = || {
        for number in 1..=5 {
            let before = world.done.load(Ordering::Relaxed);
            while world.done.load(Ordering::Relaxed) < before + 100 {
                thread::yield_now();
            }
            let mut words = kill.split(' ');
            assert!(Command::new(words.next().unwrap()).args(words).status().unwrap().success());
            kills.store(number, Ordering::Relaxed);
        }
    };
    // After the last kill each thread continues to a multiple of 100, so that the restarted server commits transactions, too.
    world.run(|place| kills.load(Ordering::Relaxed) < 5 || place % 100 > 0, kill_often);
    world.check();
}

struct World {
    database: Database,
    done: AtomicU64,
    doubts: AtomicU64,
}

impl World {
    fn new() -> Self {
        let database = FoundationDb::scratch(Arc::new(System::new())).unwrap();
        Self { database, done: AtomicU64::new(0), doubts: AtomicU64::new(0) }
    }

    /// Each thread makes transactions while `more(number of the transaction)` is true. Meanwhile this thread runs `beside`.
    fn run(&self, more: impl Fn(u64) -> bool + Sync, beside: impl FnOnce()) {
        thread::scope(|scope| {
            for number in 0..THREADS {
                let more = &more;
                scope.spawn(move || {
                    for place in (0..).take_while(|place| more(*place)) {
                        self.append_once(&format!("{number}/{place:06}"));
                        self.done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            beside();
        });
    }

    /// An append and an addition leave no trace of their own attempt. So the transaction also writes a marker, and an attempt after an
    /// unknown result reads the marker first.
    fn append_once(&self, mark: &str) {
        let mark = format!("done/{mark}");
        let run = self.database.run(|tx, attempt| {
            let mark = mark.clone();
            async move {
                if attempt.maybe_committed {
                    self.doubts.fetch_add(1, Ordering::Relaxed);
                    if tx.get(&mark, Default::default()).await?.is_some() {
                        return Ok::<_, StoreError>(());
                    }
                }
                tx.set(&mark, "")?;
                tx.atomic_add("count", 1)?;
                tx.set_versionstamped_key("log/", [0; 2], "", "")
            }
        });
        block_on(run).unwrap();
    }

    /// Everything was done once. Returns the attempts that were in doubt.
    fn check(&self) -> u64 {
        let (done, doubts) = (self.done.load(Ordering::Relaxed), self.doubts.load(Ordering::Relaxed));
        println!("{done} transactions, {doubts} attempts in doubt");
        let marks = self.count("done/");
        assert_eq!((marks, self.count("log/"), self.counter()), (done, done, done));
        doubts
    }

    fn counter(&self) -> u64 {
        let value: Result<_, StoreError> =
            block_on(self.database.run(async |tx, _| tx.get("count", Default::default()).await));
        u64::from_le_bytes(value.unwrap().unwrap()[..].try_into().unwrap())
    }

    fn count(&self, prefix: &str) -> u64 {
        let count: Result<_, StoreError> = block_on(self.database.run(async |tx, _| {
            let (mut range, mut count) = (KeyRange::prefix(prefix), 0);
            loop {
                let page = tx.range(range.clone(), RangeOptions::first(10_000).snapshot()).await?;
                count += page.items.len() as u64;
                match page.items.last() {
                    Some(last) if page.more => range.begin = millrace_storage::after(&last.key),
                    _ => return Ok(count),
                }
            }
        }));
        count.unwrap()
    }
}
