//! The layer with a program that writes plain files, and with the store. Each test starts this test
//! program a second time with the layer in `LD_PRELOAD`, kills it, simulates a loss of power, and
//! checks the files that are left.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use fastrand::Rng;
use millrace_faults::{Disk, Names, control::Field};
use millrace_storage::{Database, Embedded, Options, Read, StoreError, block_on};

const ROLE: &str = "FAULTS_TEST_ROLE";
const FOLDER: &str = "FAULTS_TEST_FOLDER";

#[test]
#[ignore = "the other tests start it below the layer"]
fn program_below_the_layer() {
    let Ok(role) = env::var(ROLE) else { return };
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap());
    match role.as_str() {
        "files" => write_files(&folder),
        _ => write_keys(&folder.join("data")),
    }
    loop {
        std::thread::park();
    }
}

fn announce(what: &str) {
    // The test harness has begun a line and not ended it.
    println!("\n{what}");
}

fn write_files(folder: &Path) {
    let file = |name: &str| File::create(folder.join(name)).unwrap();
    let sync_folder = || File::open(folder).unwrap().sync_all().unwrap();
    let mut whole = file("whole");
    whole.write_all(b"synced").unwrap();
    whole.sync_all().unwrap();
    let mut old = file("old");
    old.write_all(b"old").unwrap();
    old.sync_all().unwrap();
    sync_folder();
    whole.write_all(b" and not synced").unwrap();
    file("not-synced").write_all(b"gone").unwrap();
    let mut nameless = file("nameless");
    nameless.write_all(b"content").unwrap();
    nameless.sync_all().unwrap();
    fs::remove_file(folder.join("old")).unwrap();
    announce("done");
}

/// Writes one key after the other, and prints each key once its write is acknowledged. Repeats a
/// refused write.
fn write_keys(folder: &Path) {
    let store = Embedded::open(folder, Options { memtable_bytes: 1 << 20, ..Options::default() }).unwrap();
    let database = store.database();
    for number in 0_u64.. {
        let key = format!("key-{number:09}");
        let put = || {
            block_on(database.run(|transaction, _| {
                let key = key.clone();
                async move { transaction.set(key.clone(), value(&key)) }
            }))
        };
        while let Err(error) = put() {
            let _: StoreError = error;
        }
        announce(&key);
    }
}

/// Longer than a page, so that a lost write leaves a hole between its neighbours.
fn value(key: &str) -> String {
    key.repeat(700)
}

struct Program {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(disk: &Disk, role: &str) -> Self {
        disk.start().unwrap();
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "program_below_the_layer", "--ignored", "--nocapture"])
            .envs(disk.environment(&layer()))
            .env(ROLE, role)
            .env(FOLDER, disk.root())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn wait_for(&mut self, prefix: &str) -> String {
        loop {
            let line = self.lines.next().expect("the program ended").unwrap();
            if line.starts_with(prefix) {
                return line;
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// cargo builds the library of this package before its tests.
fn layer() -> PathBuf {
    let program = env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let name = "libmillrace_faults_layer.so";
    let places = [folder.join(name), folder.parent().unwrap().join(name)];
    let found = places.into_iter().filter(|path| path.is_file());
    found.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).expect("the layer is built")
}

fn lose(disk: &mut Disk, rng: Option<&mut Rng>, names: Names) {
    let loss = disk.lose_power(rng, names).unwrap();
    assert!(loss.unknown == 0 && loss.different.len() <= 1, "the layer missed calls: {loss:?}");
    assert_eq!(disk.control().get(Field::Blind).unwrap(), 0);
}

fn contents(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
        .collect()
}

#[test]
fn a_loss_of_power_leaves_what_was_synced() {
    let synced = [("old", "old"), ("whole", "synced")];
    let current = [("nameless", "content"), ("not-synced", ""), ("whole", "synced")];
    let cases = [(Names::Synced, &synced[..]), (Names::Current, &current[..])];
    for (names, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = Disk::new(folder.path(), true).unwrap();
        let mut program = Program::start(&disk, "files");
        program.wait_for("done");
        program.kill();
        let loss = disk.lose_power(None, names).unwrap();
        assert_eq!((loss.unsynced, loss.survived, loss.unknown), (2, 0, 0), "{loss:?}");
        assert!(loss.different.is_empty(), "{loss:?}");
        let expected = expected.iter().map(|(name, content)| ((*name).into(), (*content).into()));
        assert_eq!(contents(disk.root()), expected.collect(), "{names:?}");
    }
}

#[test]
fn unsynced_writes_may_survive() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = Rng::with_seed(1);
    let mut seen = Vec::new();
    for round in 0..24 {
        let folder = folder.path().join(round.to_string());
        fs::create_dir(&folder).unwrap();
        let mut disk = Disk::new(&folder, true).unwrap();
        let mut program = Program::start(&disk, "files");
        program.wait_for("done");
        program.kill();
        lose(&mut disk, Some(&mut rng), Names::Current);
        seen.push(contents(disk.root())["whole"].len());
    }
    let whole = "synced and not synced".len();
    assert!(seen.contains(&"synced".len()) && seen.contains(&whole), "{seen:?}");
}

/// Opens the store as the program left it, and returns how many of the acknowledged keys are
/// missing.
fn missing(disk: &Disk, last: &str) -> Result<usize, String> {
    let store = Embedded::open(disk.root().join("data"), Options::default());
    let database: Database = store.map_err(|error| error.to_string())?.database();
    let last: u64 = last["key-".len()..].parse().unwrap();
    let lost = (0..=last).filter(|number| {
        let key = format!("key-{number:09}");
        let found = block_on(database.run(|transaction, _| {
            let key = key.clone();
            async move { transaction.get(key, Read::Serializable).await }
        }));
        let found: Option<_> = found.map_err(|error: StoreError| error.to_string()).unwrap();
        found.is_none_or(|found| found != value(&key).as_bytes())
    });
    Ok(lost.count())
}

#[test]
fn a_store_keeps_what_it_acknowledged_when_power_is_lost() {
    for seed in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let (mut rng, mut disk) = (Rng::with_seed(seed), Disk::new(folder.path(), true).unwrap());
        let names = if seed % 2 == 0 { Names::Synced } else { Names::Current };
        let mut program = Program::start(&disk, "store");
        // Several tables of a megabyte each.
        let last = program.wait_for(&format!("key-{:09}", rng.u32(..300)));
        program.kill();
        lose(&mut disk, Some(&mut rng), names);
        assert_eq!(missing(&disk, &last), Ok(0), "seed {seed}");
    }
}

#[test]
fn a_store_on_a_disk_whose_syncs_do_nothing_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut disk = Disk::new(folder.path(), true).unwrap();
    disk.control().set(Field::Lies, 1).unwrap();
    let mut program = Program::start(&disk, "store");
    let last = program.wait_for("key-000000009");
    program.kill();
    lose(&mut disk, None, Names::Current);
    assert_ne!(missing(&disk, &last), Ok(0));
}

/// The process ends between the failed sync and the store's recovery. The next process reads data
/// from the page cache that is not on the disk.
#[test]
fn a_store_that_is_opened_after_a_failed_sync_keeps_everything_over_a_later_loss_of_power() {
    let folder = tempfile::tempdir().unwrap();
    let mut disk = Disk::new(folder.path(), true).unwrap();
    let mut program = Program::start(&disk, "store");
    program.wait_for("key-000000020");
    disk.control().fail_syncs(0, u64::MAX >> 1).unwrap();
    while disk.control().get(Field::SyncErrors).unwrap() == 0 {
        std::thread::yield_now();
    }
    program.kill();
    disk.control().heal().unwrap();
    let mut program = Program::start(&disk, "store");
    let last = program.wait_for("key-000000060");
    program.kill();
    lose(&mut disk, None, Names::Synced);
    assert_eq!(missing(&disk, &last), Ok(0));
}

/// After a failed sync Linux forgets that pages are not on the disk, and the next sync succeeds
/// without them.
#[test]
fn a_store_whose_sync_failed_keeps_everything_over_a_later_loss_of_power() {
    for seed in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let (mut rng, mut disk) = (Rng::with_seed(seed), Disk::new(folder.path(), true).unwrap());
        let mut program = Program::start(&disk, "store");
        program.wait_for("key-000000020");
        let failures = 1 + 2 * seed;
        disk.control().fail_syncs(rng.u64(..5), failures).unwrap();
        let last = program.wait_for("key-000000060");
        assert_eq!(disk.control().get(Field::SyncErrors).unwrap(), failures);
        program.kill();
        lose(&mut disk, None, Names::Synced);
        assert_eq!(missing(&disk, &last), Ok(0), "seed {seed}");
    }
}
