//! On a data folder that no server has open.

use std::fs;

use crate::tools::{Data, Server, fill, millrace};

#[test]
fn sessions_are_listed_shown_and_purged() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fill(folder);
    let list = millrace(folder, "sessions list").succeeded();
    let lines: Vec<&str> = list.out.lines().collect();
    assert!(lines[0].starts_with("CLIENT "), "{}", list.out);
    for (line, words) in [
        (1, ["cut\\n\\x1b[2J", "cut off", "never", " 1 ", " 0  -"]),
        (2, ["old", "expired 59 min ago", "1 min", " 0 ", " 0  -"]),
        (3, ["sensor-1", "offline 3 h", "7 d", " 2 ", " 2  2 h ago"]),
    ] {
        for word in words {
            assert!(lines[line].contains(word), "\"{word}\": {}", list.out);
        }
    }
    let first = millrace(folder, "sessions list --limit 2").succeeded();
    assert!(first.err.contains("add --after old to continue"), "{}", first.err);
    let rest = millrace(folder, "sessions list --after old --json").succeeded();
    assert_eq!(rest.err, "");
    let [sensor] = &rest.json()[..] else { panic!("{}", rest.out) };
    assert_eq!((&sensor["client_id"], &sensor["waiting"]), (&"sensor-1".into(), &2.into()));
    assert_eq!((&sensor["state"], &sensor["expiry_s"]), (&"offline".into(), &604_800.into()));

    let show = millrace(folder, "sessions show sensor-1").succeeded().out;
    for words in [
        "offline since 20",
        "(3 h ago)",
        "7 d, ends 20",
        "(in 6 d)",
        "2 messages, 9 B; the oldest of 20",
        "4 B, to be published 24 h after the connection's end",
        "nothing in flight",
        "a/+             1  no local",
        "live            0  -",
        "none: nothing is kept",
    ] {
        assert!(show.contains(words), "\"{words}\": {show}");
    }
    let details = &millrace(folder, "sessions show sensor-1 --json").succeeded().json()[0];
    assert_eq!(details["filters"][0]["identifier"], 9);

    millrace(folder, "sessions show nobody").failed_with("there is no session of the client \"nobody\"");
    millrace(folder, "sessions purge nobody --yes")
        .failed_with("there is no session of the client \"nobody\"");
    millrace(folder, "sessions purge sensor-1").failed_with("add --yes");
    let purged = millrace(folder, "sessions purge --all-expired --yes").succeeded().out;
    assert_eq!(purged, "Removed 1 session.\nA will was removed and not published: no server runs.\n");
    let purged = &millrace(folder, "sessions purge sensor-1 --yes --json").succeeded().json()[0];
    assert_eq!((&purged["client_id"], &purged["will_lost"]), (&"sensor-1".into(), &true.into()));
    assert_eq!(millrace(folder, "sessions list --json").json().len(), 1);
    // The stream was removed with its last subscriber.
    assert!(!millrace(folder, "streams list").out.contains("a/+"));
}

#[test]
fn streams_are_listed_shown_and_purged() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fill(folder);
    let list = millrace(folder, "streams list").succeeded().out;
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("FILTER ") && lines.len() == 3, "{list}");
    assert!(lines[1].starts_with("$share/g/jobs ") && lines[2].starts_with("a/+ "), "{list}");
    assert!(lines[2].contains(" 3  ") && lines[2].contains("12 B") && lines[2].contains("2 h ago"), "{list}");

    let show = millrace(folder, "streams show a/+ --messages 2").succeeded().out;
    for words in
        ["subscribers   1", "holds         3 messages, 12 B", "4 B  (unknown format)  two\\n", "and 1 more"]
    {
        assert!(show.contains(words), "\"{words}\": {show}");
    }
    assert!(
        millrace(folder, "streams show $share/g/jobs")
            .succeeded()
            .out
            .contains("4 B  (unknown format)  work")
    );
    millrace(folder, "streams show a/b").failed_with("there is no stream of \"a/b\"");

    millrace(folder, "streams purge a/+").failed_with("add --yes");
    let purged = millrace(folder, "streams purge a/+ --yes").succeeded().out;
    assert_eq!(purged, "Removed 3 messages (12 B) of \"a/+\".\n");
    let session = millrace(folder, "sessions show sensor-1").succeeded().out;
    assert!(session.contains("waiting       nothing"), "{session}");
    assert!(session.contains("missed        up to 3 messages, removed by a limit"), "{session}");
}

#[test]
fn retained_messages_are_listed_shown_and_purged() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut server = Server::start(folder);
    let mut client = server.client();
    for (topic, payload) in [("a/b", &b"21.5"[..]), ("a/c", b"\xff\0"), ("d", b"x\ny")] {
        client.retain(topic, payload);
    }
    server.end("-TERM");

    let list = millrace(folder, "retained list").succeeded().out;
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("TOPIC ") && lines.len() == 4, "{list}");
    assert!(
        lines[2].contains("2 B") && lines[2].contains("never") && lines[2].ends_with("\\xff\\x00"),
        "{list}"
    );
    let of = |command: &str| -> Vec<String> {
        let rows = millrace(folder, command).succeeded().json();
        rows.iter().map(|row| row["topic"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(of("retained list a/# --json"), ["a/b", "a/c"]);
    assert_eq!(of("retained list --json --after a/b"), ["a/c", "d"]);
    let first = millrace(folder, "retained list a/+ --limit 1").succeeded();
    assert!(first.err.contains("add --after a/b to continue"), "{}", first.err);
    let all = millrace(folder, "retained list a/+ --limit 2").succeeded();
    assert_eq!(all.err, "");

    assert_eq!(millrace(folder, "retained show d --raw").succeeded().out, "x\ny");
    let show = millrace(folder, "retained show a/b").succeeded().out;
    assert!(show.contains("qos           1\n") && show.ends_with("\n21.5\n"), "{show}");
    assert_eq!(millrace(folder, "retained show a/c --json").json()[0]["payload_base64"], "/wA=");
    millrace(folder, "retained show a").failed_with("there is no retained message of the topic \"a\"");

    millrace(folder, "retained purge a/#").failed_with("add --yes");
    for filter in ["a/#/b", "a#", "$share/g/a"] {
        millrace(folder, &format!("retained purge {filter} --yes")).failed_with("is not a topic");
    }
    assert_eq!(
        millrace(folder, "retained purge a/# --yes").succeeded().out,
        "Removed 2 retained messages.\n"
    );
    millrace(folder, "retained purge a/# --yes").failed_with("there is no retained message that matches");
    assert_eq!(of("retained list --json"), ["d"]);
    let server = Server::start(folder);
    assert_eq!(server.client().retained("a/b"), None);
}

#[test]
fn what_cannot_be_looked_into_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["data", "damaged", "used"] {
        fill(&path(name));
    }
    fs::write(path("damaged").join("format"), "what is this").unwrap();
    fs::create_dir(path("empty")).unwrap();
    fs::create_dir(path("foreign")).unwrap();
    fs::write(path("foreign").join("file"), "of something else").unwrap();
    let _used = Data::open(&path("used"));
    for (name, command, words) in [
        ("nowhere", "sessions list", "there is no data folder at"),
        ("empty", "sessions list", "there is no data folder at"),
        ("foreign", "streams list", "is not a data folder of this program"),
        ("damaged", "retained list", "is corrupted"),
        ("used", "sessions list", "in use by another process that does not answer at"),
        ("data", "sessions list --broker other", "there is no broker \"other\""),
    ] {
        millrace(&path(name), command).failed_with(words);
    }
    assert!(!path("nowhere").exists() && fs::read_dir(path("empty")).unwrap().next().is_none());
    for (name, command, words) in [
        ("off", "sessions list", "data_dir is off"),
        ("data", "sessions purge", "<CLIENT|--all-expired>"),
        ("data", "sessions list --limit 0", "a whole number from 1"),
    ] {
        let path = if name == "off" { name.into() } else { path(name) };
        let said = millrace(&path, command);
        assert!(said.code == Some(2) && said.err.contains(words), "{}", said.err);
    }
}
