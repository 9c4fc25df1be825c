//! The commands of operators, of the built program, against a running server.

use super::cli::{Terminal, logged_in};
use super::*;

#[test]
fn operators_suspend_tenants_and_bind_them_by_plans() {
    let (_data, server, ann) = logged_in();
    let own = ann.run("organisations show --json").json()[0]["id"].as_str().unwrap().to_owned();
    let eve = Terminal::new();
    let run = |command: &str| eve.run(&format!("{command} --admin http://{}", server.admin));
    let listed = run("tenants list --json").json().remove(0);
    assert_eq!((&listed["id"], &listed["plan"]), (&json!(own), &Value::Null));
    assert!(run("tenants list").well().out.contains(&own));
    run("tenants show acme").badly(2, "millrace tenants list");
    run("tenants show 00000000-0000-4000-8000-000000000000").badly(1, "no such organisation");

    run("region-plans put small broker.connections=2 client.subscriptions=7").well();
    let shown = run("region-plans list").well().out;
    assert!(shown.contains("broker.connections=2 client.subscriptions=7"), "{shown}");
    run(&format!("tenants set-plan {own}")).badly(2, "<PLAN>");
    run(&format!("tenants set-plan {own} large")).badly(1, "no such plan");
    let bound = run(&format!("tenants set-plan {own} small --json")).json().remove(0);
    assert_eq!(bound["plan"], "small");
    ann.run("limits set broker.connections=3 --broker default").badly(1, "broker.connections");
    run("region-plans delete small --yes").badly(1, "tenants have this plan");
    run(&format!("tenants set-plan {own} --none")).well();
    run("region-plans delete small").badly(1, "--yes");
    run("region-plans delete small --yes").well();
    assert!(run("region-plans list").well().err.contains("no plan"));

    run(&format!("tenants suspend {own} --reason unpaid")).badly(1, "--yes");
    run(&format!("tenants suspend {own} --reason unpaid --yes")).well();
    assert_eq!(run("tenants list --json").json()[0]["suspension"]["reason"], "unpaid");
    ann.run("brokers resume default").badly(1, "unpaid");
    run(&format!("tenants resume {own}")).well();
    run(&format!("tenants resume {own}")).badly(1, "not suspended");
    let log = run(&format!("tenants audit {own} --action organisation. --json")).json();
    let actions: Vec<_> = log.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    let expected = ["organisation.resume", "organisation.suspend", "organisation.plan", "organisation.plan"];
    assert_eq!(actions[..4], expected);
    assert!(run(&format!("tenants usage {own} --step day")).well().out.contains("total"));
}

#[test]
fn operators_find_the_tenant_of_a_broker_and_the_loudest_with_the_token_of_the_environment() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("operator-token");
    std::fs::write(&file, "a-token-of-the-operators-that-nobody-knows").unwrap();
    let file = file.to_str().unwrap();
    let flags = ["--usage-interval-s=1", "--operator-token-file", file];
    let mut server = Server::start_with(&data.path().join("data"), &flags);
    server.first_person();
    let terminal = Terminal::new();
    let run_as = |command: &str, variables: &[(&str, &str)]| {
        terminal.run_with(&format!("{command} --admin http://{}", server.admin), "", variables)
    };
    let run = |command: &str| run_as(command, &[("MILLRACE_OPERATOR_TOKEN_FILE", file)]);
    run_as("tenants find default", &[]).badly(1, "--operator-token-file");
    let found = run("tenants find default --json").json().remove(0);
    assert_eq!(found["name"], "default");
    let tenant = run("tenants list --json").json().remove(0);
    assert_eq!(found["tenant"]["id"], tenant["id"]);
    run("tenants find nowhere").badly(1, "no such broker");

    run("tenants loudest --limit 101").badly(2, "--limit");
    publish(&server, 3);
    // Each message has more than 4 KiB, so it counts twice.
    let is_counted = || run("tenants loudest --limit 1 --json").json()[0]["used"]["messages_in"] == 6;
    while !is_counted() {
        std::thread::park_timeout(std::time::Duration::from_millis(100));
    }
    let shown = run("tenants loudest").well().out;
    let lines: Vec<Vec<_>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..4], ["ID", "NAME", "IN", "DELIVERED"]);
    assert_eq!((lines[1][0], lines.len()), (tenant["id"].as_str().unwrap(), 2), "{shown}");
    assert!(lines[1].contains(&"6"), "{shown}");
}

#[test]
fn operators_drain_a_pod() {
    let (_data, server, eve) = logged_in();
    let run = |command: &str| eve.run(&format!("{command} --admin http://{}", server.admin));
    assert!(run("pods list").well().err.contains("millrace pods show"));
    let is_draining = || run("pods show --json").json()[0]["is_draining"].as_bool().unwrap();
    assert!(!is_draining());
    run("pods drain self").badly(1, "--yes");
    run("pods drain other --yes").badly(1, "no pod of this process");
    run("pods drain self --yes").well();
    assert!(is_draining());
}

#[test]
fn usage_by_days_is_a_table() {
    let (_data, _server, ann) = logged_in();
    let lines = |command: &str| -> Vec<Vec<String>> {
        let out = ann.run(command).well().out;
        out.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let days = lines("usage --broker default --step day");
    assert_eq!(days[0][..4], ["OF", "CONNECTED", "STORED", "SESSIONS"]);
    assert_eq!(days.last().unwrap()[0], "total");
    let all = lines("usage --all");
    assert_eq!((&*all[1][0], &*all[2][0], all.len()), ("default", "total", 3));
}
