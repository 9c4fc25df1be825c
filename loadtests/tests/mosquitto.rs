//! The scenarios about persistent sessions against a broker that keeps them: all come back, and
//! nothing is missing.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "the functions around the tests are tests too")]

use std::process::Command;

fn is_installed() -> bool {
    let found = ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto", "/usr/bin/mosquitto"]
        .iter()
        .any(|path| std::path::Path::new(path).is_file());
    if !found {
        eprintln!("!!! SKIPPED: mosquitto is not installed");
    }
    found
}

fn json(arguments: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mqttload"));
    let output =
        command.args(arguments.split(' ')).args(["--broker", "mosquitto", "--json"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn number(json: &str, name: &str) -> f64 {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap();
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

fn assert_sound(json: &str) {
    for fault in ["lost", "repeated", "disordered", "stray", "unacked", "closed", "forgotten"] {
        assert!(number(json, fault) == 0.0, "{fault} in {json}");
    }
    assert!(json.contains("\"timed_out\":false"), "{json}");
}

#[test]
fn sessions_come_back_to_their_whole_backlog() {
    if is_installed() {
        // The last group of sessions is smaller than the others.
        let json = json("run resume --sessions 250 --backlog 30");
        assert_eq!(number(&json, "count"), 250.0, "{json}");
        assert!(
            number(&json, "deliveries_per_server_cpu_s") > 0.0 && number(&json, "p99_us") > 0.0,
            "{json}"
        );
        assert_sound(&json);
    }
}

#[test]
fn sessions_without_a_backlog_come_back_and_stay() {
    if is_installed() {
        let json = json("run reconnect --sessions 300");
        assert_eq!(number(&json, "count"), 300.0, "{json}");
        assert_sound(&json);
    }
}

#[test]
fn offline_sessions_are_saved_and_published_to() {
    if is_installed() {
        let json = json("run offline-sessions --sessions 500 --publishes 150 --seconds 0.5");
        assert_eq!(number(&json, "sessions"), 500.0, "{json}");
        assert!(number(&json, "folder_bytes_each") > 10.0, "{json}");
        assert_sound(&json);
    }
}

#[test]
fn closed_loops_deliver_each_message_once() {
    if is_installed() {
        for scenario in ["durable-online-closed", "durable-publish-closed", "durable-drain"] {
            let json = json(&format!("run {scenario} --seconds 0.3 --pairs 5 --messages 2000"));
            assert!(number(&json, "count") > 0.0, "{json}");
            assert_sound(&json);
        }
    }
}
