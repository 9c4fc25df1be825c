//! On a running server.

use std::os::unix::fs::PermissionsExt;

use crate::tools::{Data, Server, millrace};

#[test]
fn a_running_server_answers_as_a_stopped_folder_does() {
    let folder = tempfile::tempdir().unwrap();
    // Too long for the address of a socket.
    let folder = folder.path().join("folder".repeat(20));
    Data::open(&folder).away("sensor-1", None);
    let commands = [
        "sessions list --json",
        "sessions show sensor-1 --json",
        "sessions show nobody",
        "streams list --json",
        "streams show a/+ --json",
        "streams show nothing",
        "sessions list --broker other",
    ];
    let stopped = commands.map(|command| millrace(&folder, command));
    let mut server = Server::start(&folder);
    let mode = std::fs::metadata(folder.join("admin.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for (command, stopped) in commands.iter().zip(&stopped) {
        let running = millrace(&folder, command);
        assert_eq!((running.code, &running.out), (stopped.code, &stopped.out), "{command}: {}", running.err);
        assert_eq!(running.err, stopped.err, "{command}");
    }
    let purged = millrace(&folder, "streams purge a/+ --yes").succeeded().out;
    assert_eq!(purged, "Removed 3 messages (12 B) of \"a/+\".\n");
    server.behind("asked through the admin socket");
    server.end("-TERM");
    assert!(!folder.join("admin.sock").exists());
}

#[test]
fn retained_messages_are_cleared_for_clients_and_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut server = Server::start(folder);
    for topic in ["a/b", "a/c", "d"] {
        server.client().retain(topic, b"1");
    }
    assert_eq!(millrace(folder, "retained list --json").succeeded().json().len(), 3);
    assert_eq!(
        millrace(folder, "retained purge a/# --yes").succeeded().out,
        "Removed 2 retained messages.\n"
    );
    millrace(folder, "retained purge a/b --yes")
        .failed_with("there is no retained message of the topic \"a/b\"");
    assert_eq!(server.client().retained("a/b"), None);
    assert_eq!(server.client().retained("d").as_deref(), Some(&b"1"[..]));
    // Its socket file stays, and the next server replaces it.
    server.end("-KILL");
    assert!(folder.join("admin.sock").exists());
    assert_eq!(millrace(folder, "retained list --json").succeeded().json().len(), 1);
    let server = Server::start(folder);
    assert_eq!(millrace(folder, "retained list --json").succeeded().json().len(), 1);
    assert_eq!(server.client().retained("a/c"), None);
}

#[test]
fn what_waits_for_a_client_is_seen_while_the_server_runs_and_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut server = Server::start(folder);
    server.keeper(b'k').subscribe_and_leave("t/#");
    server.client().publish("t/1", b"hello");
    let look = || {
        // The session is stored as offline a moment after its connection has closed.
        let sessions = loop {
            let sessions = millrace(folder, "sessions list --json").succeeded().json();
            if sessions.iter().all(|session| session["state"] == "offline") {
                break sessions;
            }
        };
        assert_eq!(sessions.len(), 1);
        assert_eq!((&sessions[0]["client_id"], &sessions[0]["waiting"]), (&"k".into(), &1.into()));
        let stream = &millrace(folder, "streams show t/# --json").succeeded().json()[0];
        assert_eq!((&stream["subscribers"], &stream["messages"]), (&1.into(), &1.into()));
        let first = &stream["first"][0];
        assert_eq!((&first["topic"], &first["head"]), (&"t/1".into(), &"hello".into()));
    };
    look();
    server.end("-TERM");
    look();
    assert_eq!(millrace(folder, "sessions purge k --yes").succeeded().out, "Removed 1 session.\n");
    let _server = Server::start(folder);
    assert_eq!(millrace(folder, "sessions list --json").succeeded().out, "");
}
