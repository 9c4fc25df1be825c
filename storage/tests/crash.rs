//! Acknowledged transactions survive SIGKILL, and no transaction survives in part.
//!
//! A child process commits from several threads and writes each acknowledged commit to a pipe. The test
//! kills the child at a random acknowledgement, again and again on one folder. After each kill the store
//! must have every commit of the pipe. `MILLRACE_CRASH_ROUNDS` sets how often (10), `MILLRACE_SEED` the seed.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use common::begin;
use millrace_storage::{
    Database, Embedded, KeyRange, KeyValue, Options, RangeOptions, Read, StoreError, StoreVersion,
    Transaction, Versionstamp, after, block_on,
};

const THREADS: u64 = 4;
const FOLDER: &str = "MILLRACE_CRASH_FOLDER";

/// Entries that a thread keeps in its log; older ones are cleared with the append of new ones.
const KEPT: u64 = 100;

fn options() -> Options {
    // Small, so that tables are made and merged all the time.
    Options { memtable_bytes: 256 << 10, disk_reserve_bytes: 0, ..Options::default() }
}

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

#[test]
fn acknowledged_commits_survive_sigkill() {
    let mut folder = tempfile::tempdir().unwrap();
    let rounds = setting("MILLRACE_CRASH_ROUNDS").unwrap_or(10);
    let seed = setting("MILLRACE_SEED").unwrap_or(1);
    let mut acknowledged = Acknowledged::default();
    for round in 0..rounds {
        // The comparison costs more with each round on a folder, so every tenth round begins a new one.
        if round > 0 && round % 10 == 0 {
            (folder, acknowledged) = (tempfile::tempdir().unwrap(), Acknowledged::default());
        }
        let mixed = (seed * 1_000 + round + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let kill_after = (mixed >> 32) % if round % 3 == 0 { 50 } else { 1_500 };
        run_child(folder.path(), kill_after, &mut acknowledged);
        let found = check(folder.path(), &acknowledged);
        println!("round {round}: killed after {kill_after} acknowledgements, {found} transactions found");
    }
    assert!(acknowledged.newest > 0, "nothing was acknowledged: a test of nothing");
}

/// The commits that the children have written to their pipes.
#[derive(Default)]
struct Acknowledged {
    /// The number of the last commit of each thread.
    last: BTreeMap<u64, u64>,
    newest: StoreVersion,
}

fn run_child(folder: &Path, kill_after: u64, acknowledged: &mut Acknowledged) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut count = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        // The kill may cut the last line off.
        let Some(rest) = line.strip_prefix("ack ").and_then(|rest| rest.strip_suffix(" .")) else { continue };
        let numbers: Vec<u64> = rest.split(' ').map(|number| number.parse().unwrap()).collect();
        acknowledged.last.insert(numbers[0], numbers[1]);
        acknowledged.newest = acknowledged.newest.max(numbers[2]);
        count += 1;
        if count == kill_after + 1 {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(!status.success() && count > kill_after, "the child ended by itself: {status}");
}

/// Not a test: what the child process runs.
#[test]
#[ignore = "run by acknowledged_commits_survive_sigkill"]
fn child() {
    let folder = env::var(FOLDER).unwrap();
    let store = Embedded::open(folder, options()).unwrap();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let database = store.database();
            scope.spawn(move || commit_for_ever(&database, number));
        }
    });
}

fn commit_for_ever(database: &Database, number: u64) {
    loop {
        let (count, commit) = {
            let transaction = begin(database);
            let count = last(&transaction, number) + 1;
            write(&transaction, number, count);
            (count, transaction.commit())
        };
        let stamp = block_on(commit).unwrap().versionstamp.unwrap();
        // One write call, so that lines of threads do not mix.
        let line = format!("ack {number} {count} {} .\n", stamp.version());
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

/// Commits changes of several kinds in one transaction. `check` finds it if any of them is missing.
fn write(transaction: &Transaction, number: u64, count: u64) {
    transaction.set(format!("last/{number}"), count.to_string()).unwrap();
    transaction.atomic_add("sum", 1).unwrap();
    let payload = vec![b'x'; (count % 7 * 100) as usize];
    transaction.set(entry(number, count), payload).unwrap();
    if count > KEPT {
        transaction.clear_range(KeyRange::new(entry(number, 0), entry(number, count - KEPT))).unwrap();
    }
    transaction.set_versionstamped_key("log/", [0; 2], "", format!("{number} {count}")).unwrap();
}

fn entry(number: u64, count: u64) -> String {
    format!("entry/{number}/{count:09}")
}

fn last(transaction: &Transaction, number: u64) -> u64 {
    let value = block_on(transaction.get(format!("last/{number}"), Read::Serializable)).unwrap();
    value.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap())
}

/// Opens the store after the kill and compares it with the acknowledged commits. Returns the number of its transactions.
fn check(folder: &Path, acknowledged: &Acknowledged) -> u64 {
    let store = Embedded::open(folder, options()).unwrap();
    let recovery = store.recovery();
    assert!(
        recovery.acknowledged >= acknowledged.newest,
        "{recovery:?}: the note is older than {}",
        acknowledged.newest
    );
    assert_eq!(recovery.lost(), Some(0), "{recovery:?}");
    let database = store.database();
    let transaction = begin(&database);
    let log = read_all(&transaction, "log/");
    let mut sum = 0;
    for number in 0..THREADS {
        let last = last(&transaction, number);
        let promised = acknowledged.last.get(&number).copied().unwrap_or(0);
        assert!(last >= promised, "thread {number} ends at {last}; {promised} was acknowledged");
        let entries = read_all(&transaction, &format!("entry/{number}/"));
        let first = last.saturating_sub(KEPT).max(1);
        let expected: Vec<_> = (first..=last).map(|count| entry(number, count)).collect();
        assert_eq!(entries.iter().map(|item| item.key.clone()).collect::<Vec<_>>(), expected);
        let mine = log.iter().filter_map(|item| logged(item, number));
        assert!(mine.eq(1..=last), "the log of thread {number} is not 1 to {last}");
        sum += last;
    }
    let stored = block_on(transaction.get("sum", Read::Serializable)).unwrap();
    assert_eq!(stored.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().unwrap())), sum);
    let newest = log.last().map_or(0, |item| Versionstamp(item.key[4..14].try_into().unwrap()).version());
    assert!(newest >= acknowledged.newest);
    transaction.set("round", "checked").unwrap();
    let next: Result<_, StoreError> = block_on(transaction.commit());
    assert!(next.unwrap().versionstamp.unwrap().version() > newest, "versions went back");
    sum
}

fn logged(item: &KeyValue, number: u64) -> Option<u64> {
    let text = std::str::from_utf8(&item.value).unwrap();
    text.strip_prefix(&format!("{number} "))?.parse().ok()
}

fn read_all(transaction: &Transaction, prefix: &str) -> Vec<KeyValue> {
    let (mut range, mut items) = (KeyRange::prefix(prefix), Vec::new());
    loop {
        let page =
            block_on(transaction.range(range.clone(), RangeOptions::first(10_000).snapshot())).unwrap();
        items.extend(page.items);
        match items.last() {
            Some(last) if page.more => range.begin = after(&last.key),
            _ => return items,
        }
    }
}
