//! Backup, restore and migration of data folders.

use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_storage::{Embedded, Options, block_on, copy};

use crate::tools::{Server, fill, millrace};

#[test]
fn a_backup_of_a_stopped_folder_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fill(&path("data"));
    let made = millrace(&path("data"), "backup copy").succeeded();
    assert!(made.out.starts_with("Made /") && made.err.is_empty(), "{}{}", made.out, made.err);
    let restored = millrace(&path("back"), "restore copy").succeeded();
    assert!(restored.out.contains("back ("), "{}", restored.out);
    for command in ["sessions list --json", "streams list --json", "sessions show sensor-1 --json"] {
        let (before, after) = (millrace(&path("data"), command), millrace(&path("back"), command));
        assert_eq!(before.out, after.out, "{command}");
    }
    millrace(&path("data"), "backup copy").failed_with("is there already");
    millrace(&path("data"), "restore copy").failed_with("is not empty");
    millrace(&path("new"), "restore nowhere").failed_with("there is no backup at");
    assert!(!path("new").exists() && !path("nowhere").exists());
}

#[test]
fn a_backup_of_a_running_server_has_all_of_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let server = Server::start(&path("data"));
    let (stored, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.client();
            for number in 0..5_000 {
                client.retain(&format!("n/{number:04}"), number.to_string().as_bytes());
                stored.store(number + 1, Ordering::SeqCst);
                if is_over.load(Ordering::SeqCst) > 0 {
                    break;
                }
            }
        });
        while stored.load(Ordering::SeqCst) < 50 {
            std::thread::yield_now();
        }
        let before = stored.load(Ordering::SeqCst);
        // Relative to the command's folder, not to the server's.
        let made = millrace(&path("data"), "backup copy --json");
        is_over.store(1, Ordering::SeqCst);
        let made = made.succeeded().json();
        assert_eq!(made[0]["kind"], "backup_done");
        assert_eq!(made[0]["target"], path("copy").display().to_string());
        millrace(&path("back"), "restore copy").succeeded();
        let found = millrace(&path("back"), "retained list --json --limit 10000").succeeded().json();
        assert!(found.len() >= before, "{} of {before}", found.len());
        for (number, row) in found.iter().enumerate() {
            assert_eq!(row["topic"], format!("n/{number:04}"));
            assert_eq!(row["payload_head"], number.to_string());
        }
    });
}

#[test]
fn a_migrated_folder_has_the_same_sessions_and_messages_and_goes_on_after_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut server = Server::start(&path("data"));
    server.keeper(b'k').subscribe_and_leave("jobs/#");
    let mut client = server.client();
    client.retain("state", b"on");
    client.publish("jobs/1", b"first");
    millrace(&path("data"), "migrate data moved").failed_with("stop that process");
    assert!(!path("moved").exists());
    // As after a crash: nothing is written at the end.
    server.end("-KILL");

    let moved = millrace(&path("data"), "migrate data moved").succeeded();
    assert!(moved.err.contains("Both stores are equal"), "{}", moved.err);
    for command in
        ["sessions list --json", "sessions show k --json", "streams list --json", "retained list --json"]
    {
        let (before, after) = (millrace(&path("data"), command), millrace(&path("moved"), command));
        assert_eq!(before.out, after.out, "{command}");
    }
    let mut server = Server::start(&path("moved"));
    let mut client = server.client();
    assert_eq!(client.retained("state").as_deref(), Some(&b"on"[..]));
    client.publish("jobs/2", b"second");
    server.end("-TERM");
    // The new message has a later position than the copied one.
    let stream = millrace(&path("moved"), "streams show jobs/# --json").succeeded().out;
    let at = |text: &str| stream.find(text).unwrap_or_else(|| panic!("{text} is missing in {stream}"));
    assert!(at("first") < at("second"));
}

#[test]
fn a_migration_refuses_what_would_lose_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fill(&path("data"));
    fill(&path("other"));
    millrace(&path("data"), "migrate data other").failed_with("an empty folder");
    millrace(&path("data"), "migrate nowhere moved").failed_with("there is no data folder at nowhere");
    millrace(&path("data"), "migrate data data").failed_with("stop that process");
    assert!(!path("moved").exists() && !path("nowhere").exists());
}

#[test]
fn no_server_starts_on_a_target_that_has_nothing_yet() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fill(&path("data"));
    // As a migration leaves it that is killed before its first key.
    Embedded::create_after(path("empty"), 1 << 40).unwrap();
    let refused =
        millrace(&path("empty"), "serve --mqtt-listen=127.0.0.1:0 --ws-listen=off --http-listen=off");
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("run the same `millrace migrate` again"), "{}", refused.err);
    millrace(&path("data"), "migrate data empty").succeeded();
    let list = "sessions list --json";
    assert_eq!(millrace(&path("data"), list).out, millrace(&path("empty"), list).out);
}

#[test]
fn a_broken_backup_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fill(&path("data"));
    millrace(&path("data"), "backup copy").succeeded();
    // No text at all.
    std::fs::write(path("copy/format"), [0xff; 20]).unwrap();
    millrace(&path("new"), "restore copy").failed_with("restore another backup");
    assert!(!path("new").exists());
}

#[test]
fn no_server_starts_on_half_of_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fill(&path("data"));
    {
        let open = |name| Embedded::open(path(name), Options::default()).unwrap();
        let (source, target) =
            (open("data"), Embedded::create_after(path("half"), 1 << 40).map(|()| open("half")));
        let target = target.unwrap();
        let interrupted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            block_on(copy(&source.database(), &target.database(), &mut |_| panic!("interrupted"))).map(drop)
        }));
        assert!(interrupted.is_err());
    }
    let refused =
        millrace(&path("half"), "serve --mqtt-listen=127.0.0.1:0 --ws-listen=off --http-listen=off");
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("run the same `millrace migrate` again"), "{}", refused.err);
    millrace(&path("half"), "migrate data half").succeeded();
    let list = "sessions list --json";
    assert_eq!(millrace(&path("data"), list).out, millrace(&path("half"), list).out);
}
