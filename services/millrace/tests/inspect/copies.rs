//! Backup and restore.

use std::sync::atomic::{AtomicUsize, Ordering};

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
    for command in ["sessions list --json", "streams list --json", "sessions show sensor-1"] {
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
