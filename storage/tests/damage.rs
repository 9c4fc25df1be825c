//! A damaged file: the store reports it or is not affected, and all other data can still be read. `MILLRACE_DAMAGE_BYTES` sets how many bytes of each file are tried (25); 0: all.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use common::{begin, files, get, put};
use millrace_storage::{Embedded, KeyRange, OpenError, Options, RangeOptions, StoreError, block_on};

/// Transactions before the tables were made, and after.
const IN_TABLES: usize = 150;
const IN_JOURNALS: usize = 60;

fn options() -> Options {
    Options { memtable_bytes: 32 << 10, disk_reserve_bytes: 0, ..Options::default() }
}

fn key(number: usize) -> String {
    format!("k{number:04}")
}

fn value(number: usize) -> String {
    format!("{number:04}").repeat(if number < IN_TABLES { 250 } else { 25 })
}

/// The files of a store with tables, a sealed journal and an active one.
fn files_of_a_store() -> Files {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let store = Embedded::open(&data, options()).unwrap();
    let database = store.database();
    for number in 0..IN_TABLES {
        put(&database, &key(number), &value(number)).unwrap();
    }
    drop((store, database));
    let copy = folder.path().join("copy");
    Embedded::open(&data, options()).unwrap().backup(&copy).unwrap();
    let store = Embedded::open(&copy, Options { memtable_bytes: 64 << 20, ..options() }).unwrap();
    let database = store.database();
    let mut middle = 0;
    for number in IN_TABLES..IN_TABLES + IN_JOURNALS {
        put(&database, &key(number), &value(number)).unwrap();
        if number == IN_TABLES + IN_JOURNALS / 2 {
            middle = length(&fs::read(&files(&copy, ".jnl")[0]).unwrap());
        }
    }
    drop((store, database));
    let mut found = BTreeMap::new();
    for path in files(&copy, "") {
        let name = path.strip_prefix(&copy).unwrap().to_owned();
        let mut bytes = fs::read(&path).unwrap();
        if name == Path::new("tables/0.jnl") {
            // A journal begins anywhere between two batches, so its halves are a sealed one and the active one.
            let active = bytes.split_off(middle);
            found.insert("tables/1.jnl".into(), active);
        }
        found.insert(name, bytes);
    }
    found
}

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn lay_out(files: &Files, to: &Path) {
    drop(fs::remove_dir_all(to));
    for (name, bytes) in files {
        lay(&to.join(name), bytes);
    }
}

fn lay(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // Without the zeros at the end: the file has a hole there, as it had.
    fs::write(path, &bytes[..length(bytes)]).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_len(bytes.len() as u64).unwrap();
}

/// Bytes before the zeros at the end: what was written of a journal.
fn length(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// The state of a store with a damaged file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Whole,
    SaidWhenRead,
    Refused(String),
    Lost(String),
}

fn look(data: &Path) -> Outcome {
    let store = match Embedded::open(data, options()) {
        Ok(store) => store,
        Err(OpenError::Corrupt { reason, .. }) => {
            // The numbers in it are many.
            return Outcome::Refused(reason.replace(|letter: char| letter.is_ascii_digit(), ""));
        }
        Err(OpenError::NotAStore(_)) => return Outcome::Refused("not a store".into()),
        Err(error) => return Outcome::Lost(format!("no clear message: {error:?}")),
    };
    let (database, count) = (store.database(), IN_TABLES + IN_JOURNALS);
    let mut outcome = Outcome::Whole;
    for number in 0..count {
        match get(&database, &key(number)) {
            Ok(found) if found == Some(value(number)) => {}
            Err(StoreError::Corrupt(_)) => outcome = Outcome::SaidWhenRead,
            other => return Outcome::Lost(format!("{number}: {other:?}")),
        }
    }
    match block_on(begin(&database).range(KeyRange::prefix("k"), RangeOptions::first(10_000))) {
        Ok(page) if page.items.len() == count => outcome,
        Err(StoreError::Corrupt(_)) => Outcome::SaidWhenRead,
        other => Outcome::Lost(format!("in a range: {other:?}")),
    }
}

/// Ways in which a file is damaged.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Byte(usize),
    /// A sector that was never written.
    Sector(usize),
    CutAt(usize),
    Missing,
}

impl Damage {
    fn of(self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut damaged = bytes.to_vec();
        match self {
            Self::Byte(at) => damaged[at] ^= 0x55,
            Self::Sector(at) => damaged.iter_mut().skip(at / 512 * 512).take(512).for_each(|byte| *byte = 0),
            Self::CutAt(length) => damaged.truncate(length),
            Self::Missing => return None,
        }
        Some(damaged)
    }
}

#[test]
fn damage_is_reported_and_costs_nothing_else() {
    let tries: usize = env::var("MILLRACE_DAMAGE_BYTES").map_or(25, |tries| tries.parse().unwrap());
    let pristine = files_of_a_store();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for (name, bytes) in &pristine {
        let length = length(bytes);
        let step = length.checked_div(tries).unwrap_or(1).max(1);
        let places = (0..length).step_by(step);
        let mut ways = vec![Damage::Missing];
        ways.extend(places.clone().map(Damage::Byte));
        ways.extend(places.clone().step_by(5).flat_map(|at| [Damage::Sector(at), Damage::CutAt(at)]));
        // In the zeros that a journal is filled up with.
        if bytes.len() > length + 100 {
            ways.push(Damage::Byte(length + 100));
        }
        let mut outcomes: BTreeMap<Outcome, Vec<Damage>> = BTreeMap::new();
        for way in ways {
            lay_out(&pristine, &data);
            let path = data.join(name);
            match way.of(bytes) {
                Some(damaged) => lay(&path, &damaged),
                None => fs::remove_file(&path).unwrap(),
            }
            let outcome = look(&data);
            if matches!(outcome, Outcome::Refused(_)) {
                // Nothing else was changed.
                lay(&path, bytes);
                assert_eq!(look(&data), Outcome::Whole, "{name:?} {way:?}: {outcome:?}, then put back");
            }
            outcomes.entry(outcome).or_default().push(way);
        }
        println!("{}: {length} bytes", name.display());
        for (outcome, ways) in outcomes {
            println!("    {} times {outcome:?}", ways.len());
            assert!(!matches!(outcome, Outcome::Lost(_)), "{name:?} {ways:?}: {outcome:?}");
        }
    }
}

/// The bytes of the watermark file when commits up to `version` were acknowledged.
fn watermark(version: u64) -> Vec<u8> {
    [version.to_be_bytes(), (!version).to_be_bytes()].concat()
}

#[test]
fn a_write_cut_short_by_a_crash_is_dropped_alone() {
    let mut pristine = files_of_a_store();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let last = IN_TABLES + IN_JOURNALS - 1;
    let journal = PathBuf::from("tables/1.jnl");
    let whole = pristine[&journal].clone();
    let end = length(&whole);
    // Each transaction here has a batch of the same size.
    let begin = end - (end / (IN_JOURNALS / 2 - 1));
    for at in (begin..end).step_by(7) {
        for zeros in [0, 100, end - at] {
            // A crash may leave the batch short (no zeros), or have written some of its pages and left zeros in the others.
            let mut cut = whole.clone();
            cut[at..(at + zeros).min(end)].fill(0);
            if zeros == 0 {
                cut.truncate(at);
            }
            pristine.insert(journal.clone(), cut);
            pristine.insert("watermark".into(), watermark(last as u64 + 1));
            lay_out(&pristine, &data);
            // The watermark names the cut transaction as acknowledged, so its loss is damage.
            let refused = look(&data);
            assert!(matches!(refused, Outcome::Refused(_)), "acknowledged, cut at {at}: {refused:?}");
            pristine.insert("watermark".into(), watermark(last as u64));
            // Nobody was acknowledged, so the cut transaction is dropped, and the store continues.
            lay_out(&pristine, &data);
            let store = Embedded::open(&data, options()).unwrap();
            let (recovery, all) = (store.recovery(), last as u64);
            assert_eq!((recovery.acknowledged, recovery.recovered, recovery.lost()), (all, all, Some(0)));
            assert_eq!(recovery.journal_commits, IN_JOURNALS as u64 - 1);
            let left = length(&pristine[&journal]).saturating_sub(begin);
            assert_eq!(recovery.cut_bytes, left as u64, "cut at {at}, {zeros} zeros");
            let database = store.database();
            for number in 0..last {
                assert_eq!(get(&database, &key(number)).unwrap(), Some(value(number)));
            }
            assert_eq!(get(&database, &key(last)).unwrap(), None, "cut at {at}, {zeros} zeros");
            put(&database, &key(last), &value(last)).unwrap();
            drop((store, database));
            assert_eq!(look(&data), Outcome::Whole);
        }
    }
}

#[test]
fn a_first_start_that_was_cut_short_is_started_again() {
    for journal in [None, Some(0), Some(1 << 20)] {
        let folder = tempfile::tempdir().unwrap();
        let tables = folder.path().join("tables");
        fs::create_dir_all(tables.join("keyspaces")).unwrap();
        fs::write(folder.path().join("format"), "millrace-store 1\n").unwrap();
        fs::write(tables.join("lock"), "").unwrap();
        if let Some(length) = journal {
            fs::write(tables.join("0.jnl"), vec![0; length]).unwrap();
        }
        let database = Embedded::open(&folder, options()).unwrap().database();
        put(&database, "k", "v").unwrap();
    }
}
