//! The built program: exit codes, sentences, start and end, the password file.
#![allow(clippy::unwrap_used, reason = "helpers of tests, where a panic is the failure")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

fn millrace(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MILLRACE_")) {
        command.env_remove(name);
    }
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server on free ports, ended with the test.
struct Server {
    child: Child,
    log: BufReader<ChildStderr>,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        let free =
            ["serve", "--mqtt-listen=127.0.0.1:0", "--ws-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"];
        let data_dir: &[&str] =
            if args.iter().any(|arg| arg.starts_with("--data-dir")) { &[] } else { &["--data-dir=off"] };
        let mut child = millrace(&[&free, data_dir, args].concat()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, log }
    }

    /// Reads the log up to the line that has `words`, and returns the rest of that line.
    fn behind(&mut self, words: &str) -> String {
        let mut line = String::new();
        while self.log.read_line(&mut line).unwrap() > 0 {
            if let Some((_, rest)) = line.split_once(words) {
                return rest.trim().to_owned();
            }
            line.clear();
        }
        panic!("the server ended before it said \"{words}\"");
    }

    fn address(&mut self, words: &str) -> String {
        self.behind(words).chars().take_while(|char| char.is_ascii_digit() || ".:".contains(*char)).collect()
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn end(&mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(http: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(http).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Accepted 5.0 clients, with client identifiers that the server chooses.
fn clients(mqtt: &str, count: usize) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = TcpStream::connect(mqtt).unwrap();
        stream.write_all(b"\x10\x0d\0\x04MQTT\x05\x02\0\x3c\0\0\0").unwrap();
        let mut head = [0; 2];
        stream.read_exact(&mut head).unwrap();
        let mut rest = vec![0; head[1].into()];
        stream.read_exact(&mut rest).unwrap();
        assert_eq!((head[0], rest[1]), (0x20, 0));
        stream
    };
    (0..count).map(connect).collect()
}

#[test]
fn on_sigterm_clients_are_sent_away_at_a_rate_and_on_sigint_at_once() {
    let mut server = Server::start(&["--server-reference=other.example:1883"]);
    let mut clients_of = clients(&server.address("mqtt://"), 3);
    server.signal("-TERM");
    for client in &mut clients_of {
        let mut told = Vec::new();
        client.read_to_end(&mut told).unwrap();
        let words = String::from_utf8_lossy(&told).into_owned();
        assert_eq!((told[0], told[2]), (0xE0, 0x9C));
        assert!(words.contains("other.example:1883"), "{words}");
    }
    drop(clients_of);
    server.behind("draining: clients are disconnected");
    server.behind("stopped");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));

    // At one a second this would take a minute.
    let slow = ["--drain-rate=1", "--drain-max-s=600"];
    let mut server = Server::start(&slow);
    let clients_of = clients(&server.address("mqtt://"), 60);
    server.signal("-INT");
    drop(clients_of);
    assert!(!server.behind("stopping").is_empty());
    assert_eq!(server.child.wait().unwrap().code(), Some(0));

    let mut server = Server::start(&slow);
    let mqtt = server.address("mqtt://");
    let http = server.address("HTTP is open at http://");
    let admin = server.address("/metrics at http://");
    let _clients = clients(&mqtt, 60);
    server.signal("-TERM");
    server.behind("draining: clients are disconnected");
    let health = get(&http, "/healthz");
    assert!(health.starts_with("HTTP/1.1 503 ") && health.contains("draining: "), "{health}");
    assert!(get(&admin, "/livez").starts_with("HTTP/1.1 200 "), "a supervisor would end the drain");
    let metrics = get(&admin, "/metrics");
    assert!(
        metrics.contains("millrace_disconnects_total{broker=\"default\",reason=\"drained\"} "),
        "{metrics}"
    );
    // A second signal ends it at once.
    assert_eq!(server.end("-TERM"), Some(1));
}

#[test]
fn a_server_says_where_it_is_answers_http_and_ends_in_order() {
    for signal in ["-TERM", "-INT"] {
        let mut server = Server::start(&[]);
        let mqtt = server.address("mqtt://");
        let ws = server.address("ws://");
        let http = server.address("HTTP is open at http://");
        let admin = server.address("/metrics at http://");
        TcpStream::connect(&mqtt).unwrap();
        TcpStream::connect(&ws).unwrap();
        for (at, path, words) in [
            (&http, "/healthz", "ok"),
            (&http, "/", mqtt.as_str()),
            (&admin, "/healthz", "ok"),
            (&admin, "/livez", "ok"),
            (&admin, "/metrics", "version=0.0.4"),
            (&admin, "/metrics", "millrace_http_connections_open "),
        ] {
            let answer = get(at, path);
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(words), "{path}: {answer}");
        }
        // They name the brokers of all tenants.
        assert!(get(&http, "/metrics").starts_with("HTTP/1.1 404 "));
        assert_eq!(server.end(signal), Some(0), "{signal}");
        server.behind("stopped");
    }
}

#[test]
fn a_server_whose_log_nobody_reads_any_more_goes_on() {
    let mut server = Server::start(&["--log-level=trace"]);
    let mqtt = server.address("mqtt://");
    server.log = BufReader::new(ChildStderr::from(OwnedFd::from(File::open("/dev/null").unwrap())));
    for _ in 0..3 {
        let mut stream = TcpStream::connect(&mqtt).unwrap();
        stream.write_all(b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01a").unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"\x20\x02\0\0");
    }
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn what_was_retained_and_acknowledged_survives_a_kill_at_once() {
    const CONNECT: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01a";
    let folder = tempfile::tempdir().unwrap();
    let data_dir = format!("--data-dir={}", folder.path().display());
    for round in b'0'..b'5' {
        let mut server = Server::start(&[&data_dir]);
        let mut stream = TcpStream::connect(server.address("mqtt://")).unwrap();
        stream.write_all(CONNECT).unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        if round > b'0' {
            // SUBSCRIBE to "k": SUBACK, then the message that was retained before the kill.
            stream.write_all(b"\x82\x06\0\x01\0\x01k\0").unwrap();
            let mut answer = [0; 11];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [0x90, 3, 0, 1, 0, 0x31, 4, 0, 1, b'k', round - 1]);
        }
        // PUBLISH to "k" with QoS 1 and RETAIN: PUBACK. (The subscriber's own copy comes first.)
        stream.write_all(&[0x33, 6, 0, 1, b'k', 0, 7, round]).unwrap();
        let mut answers = vec![0; if round > b'0' { 6 + 4 } else { 4 }];
        stream.read_exact(&mut answers).unwrap();
        assert!(answers.ends_with(&[0x40, 2, 0, 7]), "{answers:?}");
        server.end("-KILL");
    }
}

#[test]
fn pods_of_one_process_share_its_data_folder_and_end_with_it() {
    const CONNECT: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01a";
    let folder = tempfile::tempdir().unwrap();
    let data_dir = format!("--data-dir={}", folder.path().display());
    let mut server = Server::start(&[&data_dir, "--pods=3"]);
    let pods = [(); 3].map(|()| server.address("mqtt://"));
    let answer = |stream: &mut TcpStream, sent: &[u8], expected: &[u8]| {
        stream.write_all(sent).unwrap();
        let mut read = vec![0; expected.len()];
        stream.read_exact(&mut read).unwrap();
        assert_eq!(read, expected);
    };
    let connect = |at: &String| {
        let mut stream = TcpStream::connect(at).unwrap();
        answer(&mut stream, CONNECT, b"\x20\x02\0\0");
        stream
    };
    answer(&mut connect(&pods[0]), b"\x33\x06\0\x01t\0\x01x", b"\x40\x02\0\x01");
    answer(&mut connect(&pods[2]), b"\x82\x06\0\x01\0\x01t\0", b"\x90\x03\0\x01\0\x31\x04\0\x01tx");
    let _stays = connect(&pods[1]);
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn a_data_folder_that_cannot_be_used_is_one_sentence_and_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let used = folder.path().join("used");
    let foreign = folder.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("file"), "of something else").unwrap();
    let newer = folder.path().join("newer");
    let _server = {
        let mut server = Server::start(&[&format!("--data-dir={}", used.display())]);
        server.address("mqtt://");
        let mut other = Server::start(&[&format!("--data-dir={}", newer.display())]);
        other.address("mqtt://");
        other.end("-TERM");
        server
    };
    let format = newer.join("format");
    assert!(std::fs::read_to_string(&format).unwrap().starts_with("millrace-store "));
    std::fs::write(&format, "millrace-store 99\n").unwrap();
    for (path, words) in [
        (&used, "in use by another process: stop that process"),
        (&foreign, "is not a data folder of this program: set an empty folder"),
        (&newer, "has format 99"),
    ] {
        let flag = format!("--data-dir={}", path.display());
        let output = millrace(&[
            "serve",
            "--log-level=off",
            "--mqtt-listen=127.0.0.1:0",
            "--ws-listen=off",
            "--http-listen=off",
            &flag,
        ])
        .output()
        .unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.starts_with("millrace: ") && said.contains(words) && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn an_address_in_use_is_one_sentence_and_exit_code_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for listen in ["--mqtt-listen", "--ws-listen", "--http-listen", "--admin-listen"] {
        let mut args = vec!["serve", "--log-level=off", "--data-dir=off", listen, &address];
        for other in ["--mqtt-listen=127.0.0.1:0", "--ws-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"] {
            if !other.starts_with(listen) {
                args.push(other);
            }
        }
        let output = millrace(&args).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{listen}: {said}");
        assert!(
            said.starts_with("millrace: ") && said.contains(&address) && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn a_first_message_is_suggested_only_if_it_needs_no_password() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users.txt");
    std::fs::write(&users, "").unwrap();
    let file = format!("--password-file={}", users.display());
    for (args, suggests) in [(&[][..], true), (&[&*file][..], false)] {
        let mut server = Server::start(args);
        server.behind("MQTT over TCP is open");
        let mut log = String::new();
        while !log.contains("data_dir is off") {
            assert!(server.log.read_line(&mut log).unwrap() > 0, "{log}");
        }
        assert_eq!(log.contains("mosquitto_pub"), suggests, "{log}");
    }
}

#[test]
fn what_is_wrong_in_the_settings_is_exit_code_2() {
    let cases = [
        (&["serve", "--mqtt-listen=0.0.0.0:0"][..], "--password-file"),
        (&["serve", "--threads=many"], "a whole number from 0 to 1024 is allowed"),
        (&["serve", "--config=/nowhere.toml"], "cannot be read"),
        (&["serve", "--no-such-flag"], "--no-such-flag"),
        (&["no-such-command"], "no-such-command"),
        (&[], "Usage: millrace"),
        (&["passwd", "/nowhere/users", "two\nlines"], "is not allowed"),
    ];
    for (args, words) in cases {
        let output = millrace(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(said(&output).contains(words), "{args:?}: {}", said(&output));
    }
}

#[test]
fn a_service_without_a_home_folder_uses_its_environment() {
    let set = [
        ("MILLRACE_URL", "http://127.0.0.1:1"),
        ("MILLRACE_ORGANISATION", "00000000-0000-4000-8000-000000000000"),
        ("MILLRACE_TOKEN", "a-token"),
    ];
    let without_home = |given: &[(&str, &str)]| {
        let mut command = millrace(&["brokers", "list"]);
        command.env_remove("HOME").env_remove("XDG_CONFIG_HOME").envs(given.iter().copied());
        said(&command.output().unwrap())
    };
    let asked = without_home(&set);
    assert!(asked.contains("127.0.0.1:1") && !asked.contains("HOME"), "{asked}");
    assert!(without_home(&set[..2]).contains("neither HOME nor XDG_CONFIG_HOME is set"));
}

#[test]
fn help_and_version_go_to_stdout() {
    for (args, words) in [(["--version"], env!("CARGO_PKG_VERSION")), (["--help"], "passwd")] {
        let output = millrace(&args).output().unwrap();
        assert!(
            output.status.success() && String::from_utf8_lossy(&output.stdout).contains(words),
            "{args:?}"
        );
    }
}

#[test]
fn passwd_adds_changes_and_deletes_users_and_keeps_the_rest() {
    let file: PathBuf = std::env::temp_dir().join(format!("millrace-users-{}", std::process::id()));
    std::fs::write(&file, "# users\n").unwrap();
    let path = file.to_str().unwrap();
    let passwd = |args: &[&str], password: &str| {
        let mut child = millrace(&[&["passwd", path], args].concat()).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(password.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), std::fs::read_to_string(&file).unwrap())
    };
    let users = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect()
    };

    let (code, first) = passwd(&["ann"], "secret\n");
    assert_eq!((code, users(&first)), (Some(0), vec!["# users".into(), "ann".into()]));
    assert!(!first.contains("secret"), "{first}");
    let (_, second) = passwd(&["bob", "--stdin"], "other");
    assert_eq!(users(&second), ["# users", "ann", "bob"]);
    let (_, changed) = passwd(&["ann"], "new\n");
    assert_eq!(users(&changed), ["# users", "ann", "bob"]);
    assert_ne!(changed, second);
    let (code, deleted) = passwd(&["ann", "--delete"], "");
    assert_eq!((code, users(&deleted)), (Some(0), vec!["# users".into(), "bob".into()]));
    for (args, password) in [(&["ann", "--delete"][..], ""), (&["cat"], ""), (&["cat"], "two\nlines\n")] {
        let (code, text) = passwd(args, password);
        assert!(code != Some(0) && text == deleted, "{args:?}");
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn secrets_that_other_users_can_read_are_named_by_the_check_and_at_the_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let (key, config) = (folder.path().join("secret-key"), folder.path().join("millrace.toml"));
    std::fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
    let settings = ["secret_key_file", "operator_token_file"];
    let lines = settings.map(|setting| format!("{setting} = {:?}\n", key.to_str().unwrap()));
    std::fs::write(&config, lines.concat()).unwrap();
    const SAID: &str = "can be read by other users";
    let check = |mode: u32| {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
        let output = millrace(&["config", "check", "--config", config.to_str().unwrap()]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        settings.map(|setting| text.contains(&format!("{setting} {} {SAID}", key.display())))
    };
    assert_eq!([0o600, 0o640, 0o604].map(check), [[false; 2], [true; 2], [true; 2]]);
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let mut server = Server::start(&[&data, "--config", config.to_str().unwrap()]);
    server.behind(SAID);
}

#[test]
fn a_key_management_service_gives_the_secret_key_by_a_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let secret = "0123456789abcdef0123456789abcdef";
    let data_dir = format!("--data-dir={}", folder.path().join("data").display());
    // It counts how often it is asked.
    let calls = folder.path().join("calls");
    let kms = file("kms", &format!("echo call >>{}\necho {secret}\n", calls.display()));
    let command = format!("--secret-key-command=sh {kms}");
    let mut server = Server::start(&[&data_dir, &command]);
    server.behind("HTTP is open at http://");
    assert_eq!(server.end("-INT"), Some(0));
    assert_eq!(std::fs::read_to_string(&calls).unwrap(), "call\n");

    // The same secret in a file opens the store, and another one does not.
    let key = format!("--secret-key-file={}", file("key", secret));
    let mut server = Server::start(&[&data_dir, &key]);
    server.behind("HTTP is open at http://");
    assert_eq!(server.end("-INT"), Some(0));
    let refuses = file("refuses", "echo 'AccessDenied: no such key' >&2; exit 254\n");
    let other = file("other", "echo ffffffffffffffffffffffffffffffff\n");
    for (script, code, why) in
        [(&refuses, 1, "AccessDenied: no such key"), (&other, 1, "is another one than before")]
    {
        let command = format!("--secret-key-command=sh {script}");
        let args = ["serve", "--mqtt-listen=127.0.0.1:0", "--ws-listen=off", "--http-listen=127.0.0.1:0"];
        let output = millrace(&[&args[..], &[&data_dir, &command]].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
    }
    let output = millrace(&["serve", &key, &command]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("--secret-key-file"), "{}", said(&output));
}
