use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use millrace_layers::Position;
use millrace_layers::streams::{self, ReadLimit, StreamRef, StreamSource};

use super::*;
use crate::inspect::testing::{BROKER, append, opened, subscribed};

fn nowhere(_: InspectRow) -> Result<(), AnswerError> {
    Ok(())
}

/// The bodies of a stream, as numbers.
fn numbers(opened: &OpenFolder, of: StreamRef) -> Vec<u64> {
    let limit = ReadLimit { entries: 1_000_000, bytes: 1 << 30 };
    let source = [StreamSource { stream: of.stream, since: 0 }];
    let batch = opened
        .run(|tx| async move { streams::read(&tx, BROKER, &source, Position::MIN, limit).await })
        .unwrap();
    batch.entries.iter().map(|entry| u64::from_be_bytes(entry.body[..8].try_into().unwrap())).collect()
}

#[test]
fn a_copy_that_is_made_while_others_write_has_all_of_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let opened = opened(&folder.path().join("data"), None);
    let both = [subscribed(&opened.layers, "c", "a/+"), subscribed(&opened.layers, "d", "a/b")];
    let (written, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _end = End(&done);
        scope.spawn(|| {
            for number in 0.. {
                // Each is in both streams, by one transaction; some in bodies that stand apart.
                let mut body = vec![7; if number % 10 == 0 { 2_000 } else { 8 }];
                body[..8].copy_from_slice(&u64::to_be_bytes(number));
                append(&opened.layers, &both, &Bytes::from(body));
                written.store(number + 1, Ordering::SeqCst);
                if done.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        for round in 0..5 {
            while written.load(Ordering::SeqCst) < round * 200 {
                std::thread::yield_now();
            }
            let before = written.load(Ordering::SeqCst);
            let copy = folder.path().join(format!("copy{round}"));
            let restored = folder.path().join(format!("restored{round}"));
            backup(&opened, &copy, &mut nowhere).unwrap();
            restore(&copy, &restored, &mut nowhere).unwrap();

            let restored = crate::inspect::testing::opened(&restored, None);
            let found = numbers(&restored, both[0]);
            assert!(found.len() as u64 >= before, "{} of {before}", found.len());
            assert!(found.iter().copied().eq(0..found.len() as u64));
            assert_eq!(found, numbers(&restored, both[1]));
            for one in both {
                let totals =
                    restored.run(|tx| async move { streams::totals(&tx, BROKER, one.stream).await }).unwrap();
                assert_eq!(totals.entries, found.len() as u64);
            }
        }
    });
}

/// Ends the writer, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_backup_is_not_made_where_it_would_do_harm() {
    let folder = tempfile::tempdir().unwrap();
    let opened = opened(&folder.path().join("data"), None);
    let there = folder.path().join("there");
    fs::create_dir(&there).unwrap();
    for (target, words) in [
        (there, "is there already"),
        (folder.path().join("data/copy"), "in the data folder itself"),
        (folder.path().join("data/x/copy"), "in the data folder itself"),
    ] {
        let Err(AnswerError::Failed(said)) = backup(&opened, &target, &mut nowhere) else {
            panic!("{words}")
        };
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_restore_fills_only_an_empty_folder_and_only_from_a_backup() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let opened = opened(&path("data"), None);
    backup(&opened, &path("copy"), &mut nowhere).unwrap();
    fs::create_dir(path("foreign")).unwrap();
    // As a backup leaves it that was killed: a data folder without keys.
    backup(&opened, &path("other"), &mut nowhere).unwrap();
    fs::rename(path("other"), path("copy.partial")).unwrap();
    fs::write(path("foreign/file"), "of something else").unwrap();
    for (from, to, words) in [
        ("nowhere", "new", "there is no backup at"),
        ("copy", "foreign", "is not empty"),
        ("foreign", "new", "is not a data folder"),
        ("copy.partial", "new", "a part of a backup that did not end"),
        ("data", "new", "is the data folder of a running server"),
        ("copy", "new.partial", "name one that does not end with .partial"),
    ] {
        let Err(AnswerError::Failed(said)) = restore(&path(from), &path(to), &mut nowhere) else {
            panic!("{words}")
        };
        assert!(said.contains(words), "{said}");
        assert!(!path("nowhere").exists() && !path("new").exists(), "{said}");
    }
    fs::create_dir(path("empty")).unwrap();
    restore(&path("copy"), &path("empty"), &mut nowhere).unwrap();
    assert!(fs::read_dir(path("empty")).unwrap().next().is_some());
}

#[test]
fn a_backup_that_another_one_is_making_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let opened = opened(&folder.path().join("data"), None);
    let partial = folder.path().join("copy.partial");
    fs::create_dir(&partial).unwrap();
    let lock = fs::File::create(partial.join("lock")).unwrap();
    lock.lock().unwrap();
    let refused = backup(&opened, &folder.path().join("copy"), &mut nowhere);
    let Err(AnswerError::Failed(said)) = refused else { panic!("two backups write into one folder") };
    assert!(said.contains("another backup or restore is making it"), "{said}");
    assert!(partial.join("lock").exists());
}

#[test]
fn a_copy_leaves_the_reserve_of_a_server() {
    assert_eq!(check_room(100, 150, 50), Ok(()));
    let Err(AnswerError::Failed(said)) = check_room(101, 150, 50) else { panic!("the disk gets full") };
    assert!(said.contains("make room"), "{said}");
}

#[test]
fn a_backup_on_a_disk_that_cannot_be_written_to_is_copied_first() {
    let said = |path: &str| {
        let error = RestoreError::Open(OpenError::ReadOnly(path.into()));
        let AnswerError::Failed(said) = failed(&error, Path::new("backup")) else { panic!("{path}") };
        said
    };
    assert!(said("backup").contains("restore the copy") && said("target").contains("may write there"));
}

/// The files of a folder that other users than its own may read or write.
pub(crate) fn open_to_others(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let metadata = fs::metadata(path).unwrap();
    if metadata.permissions().mode() & 0o077 != 0 {
        found.push(path.to_owned());
    }
    if metadata.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| found.extend(open_to_others(&entry.unwrap().path())));
    }
    found
}

#[test]
fn a_copy_is_for_its_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    let opened = opened(&folder.path().join("data"), None);
    let (target, restored) = (folder.path().join("copy"), folder.path().join("restored"));
    backup(&opened, &target, &mut nowhere).unwrap();
    restore(&target, &restored, &mut nowhere).unwrap();
    for path in [target, restored] {
        assert_eq!(open_to_others(&path), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_copy_goes_on_when_nobody_looks_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let opened = opened(&folder.path().join("data"), None);
    let target = folder.path().join("copy");
    let gone = backup(&opened, &target, &mut |_| Err(AnswerError::NobodyReads));
    assert_eq!(gone, Err(AnswerError::NobodyReads));
    assert!(target.exists());
}
