//! The driver against its own floor: every scenario runs, counts its messages and finds no fault.
//! The exit code reports scenarios that cannot run.
#![allow(clippy::unwrap_used, reason = "the functions around the tests may fail like the tests")]

use std::process::{Command, Output};

fn mqttload(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mqttload")).args(arguments.split(' ')).output().unwrap()
}

fn json(arguments: &str) -> String {
    let output = mqttload(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn number(json: &str, name: &str) -> f64 {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap();
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

#[test]
fn every_live_scenario_counts_all_messages_and_finds_no_fault() {
    let small = "--broker floor --seconds 0.2 --pairs 10 --subscribers 20 --messages 20000 --json";
    for scenario in ["qos1-closed", "qos0-flood", "qos0-window", "fanout", "fanin-qos0", "fanin-qos1"] {
        for threads in [1, 3] {
            let json = json(&format!("run {scenario} {small} --threads {threads}"));
            assert!(number(&json, "count") >= 100.0, "{json}");
            for fault in ["lost", "repeated", "disordered", "stray", "unacked", "closed"] {
                assert!(number(&json, fault) == 0.0, "{fault} in {json}");
            }
            assert!(json.contains("\"timed_out\":false"), "{json}");
        }
    }
}

#[test]
fn connections_are_counted_idle_and_passing() {
    let idle = json("run idle --broker floor --connections 50 --subscribe --json");
    assert_eq!((number(&idle, "count"), number(&idle, "closed")), (50.0, 0.0));
    let churn = json("run connect --broker floor --connects 200 --json");
    assert_eq!((number(&churn, "count"), number(&churn, "closed")), (200.0, 0.0));
}

#[test]
fn durable_scenarios_report_both_latencies_and_what_stands_behind_a_puback() {
    let small = "--broker floor --seconds 0.2 --pairs 4 --messages 4000 --json";
    for scenario in ["durable-online-closed", "durable-online", "durable-publish-closed", "durable-publish"] {
        let json = json(&format!("run {scenario} {small}"));
        assert!(number(&json, "count") >= 10.0, "{json}");
        assert!(number(&json, "ack_p99_us") > 0.0, "{json}");
        assert_eq!(json.contains("\"p99_us\""), scenario.contains("online"), "{json}");
        assert!(json.contains("\"fsync_before_puback\":\"no ("), "{json}");
    }
}

/// Publishes reach nobody on the floor, but sessions are made and PUBACKs come.
#[test]
fn each_size_of_offline_sessions_is_a_run_of_its_own() {
    let small = "--broker floor --sessions 1,300 --publishes 200 --seconds 0.3 --json";
    let lines = json(&format!("run offline-sessions {small}"));
    let runs: Vec<&str> = lines.lines().collect();
    assert_eq!(runs.len(), 2, "{lines}");
    for (run, sessions) in runs.into_iter().zip([1.0, 300.0]) {
        assert_eq!((number(run, "sessions"), number(run, "count")), (sessions, 200.0), "{run}");
        assert_eq!((number(run, "window_publishes"), number(run, "unacked")), (200.0, 0.0), "{run}");
        assert!(run.contains("\"timed_out\":false"), "{run}");
    }
}

#[test]
fn a_broker_that_forgets_its_sessions_is_found_out() {
    for (scenario, lost) in [("resume", 600.0), ("reconnect", 0.0)] {
        let json = json(&format!("run {scenario} --broker floor --sessions 200 --backlog 3 --json"));
        assert_eq!((number(&json, "forgotten"), number(&json, "lost")), (200.0, lost), "{json}");
    }
}

#[test]
fn a_run_that_is_out_of_time_says_so() {
    let arguments = "run offline-sessions --broker floor --sessions 15000000 --seconds-max 0.1 --seconds 0.1";
    let json = json(&format!("{arguments} --publishes 20 --json"));
    assert!(number(&json, "sessions") < 15e6 && json.contains("\"timed_out\":true"), "{json}");
}

/// The floor stores nothing, so messages for offline clients are lost: the driver must report that.
#[test]
fn a_broker_that_loses_is_found_out() {
    let quick = "--seconds 0.1 --pairs 2 --messages 100 --quiet-seconds 0.2 --json";
    let json = json(&format!("run durable-drain --broker floor {quick}"));
    assert_eq!((number(&json, "count"), number(&json, "lost")), (0.0, 100.0));
}

#[test]
fn comparing_prints_a_table_and_skips_what_is_missing() {
    let small = "--rounds 1 --seconds 0.1 --pairs 4 --messages 1000";
    let output =
        mqttload(&format!("compare --broker floor --broker no=/no/such {small} --scenario qos0-flood"));
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("| qos0-flood | msg per CPU s |"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("SKIPPED: no: there is no program"));
}

#[test]
fn a_scenario_that_cannot_run_fails() {
    for arguments in ["run idle --broker no=/no/such", "run idle --broker no=true", "run nonsense"] {
        assert!(!mqttload(arguments).status.success(), "{arguments}");
    }
}
