//! The store as the API of the built program shows it: what waits for whom, and what a start
//! recovered.

use rumqttc::{Client, Packet, QoS};
use serde_json::{Value, json};

use super::cli::Terminal;
use super::{Browser, Server, client};

fn subscribe(server: &Server, id: &str, filter: &str) {
    let filter = filter.to_owned();
    let subscribe = |client: &Client| client.subscribe(filter, QoS::AtLeastOnce).unwrap();
    client(server, id, subscribe, |packet| matches!(packet, Packet::SubAck(_)));
}

fn publish(server: &Server, owner: &Browser, broker: &str, topic: &str) {
    let message = json!({ "topic": topic, "payload": "21.5" });
    let answer = server.ask(owner, "POST", &format!("{broker}/publish"), &message);
    assert_eq!(answer.body["stored"], true, "{}", answer.body);
}

#[test]
fn streams_say_what_waits_for_sessions_and_for_groups() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, organisation) = server.machine_owner();
    let broker = format!("{organisation}/brokers/default");
    assert_eq!(server.get(&owner, &format!("{broker}/streams"))["items"], json!([]));

    subscribe(&server, "reader", "plant/+");
    publish(&server, &owner, &broker, "plant/1");
    subscribe(&server, "late", "plant/+");
    for member in ["worker-1", "worker-2"] {
        subscribe(&server, member, "$share/jobs/plant/#");
    }
    publish(&server, &owner, &broker, "plant/2");

    let listed = server.get(&owner, &format!("{broker}/streams"));
    let mut streams = listed["items"].as_array().unwrap().clone();
    streams.sort_by_key(|stream| stream["filter"].to_string());
    let [group, plain] = &streams[..] else { panic!("{listed}") };
    assert_eq!((&group["filter"], &group["subscriptions"]), (&json!("$share/jobs/plant/#"), &json!(2)));
    assert_eq!(group["group"]["waiting_messages"], 1, "{group}");
    assert!(group["group"]["oldest_waiting_at_ms"].as_u64() > Some(0), "{group}");
    assert_eq!((&plain["filter"], &plain["subscriptions"]), (&json!("plant/+"), &json!(2)));
    assert_eq!((&plain["stored_messages"], &plain["group"]), (&json!(2), &Value::Null));
    assert!(plain["oldest_stored_at_ms"].as_u64() > Some(0), "{plain}");

    let show = |filter: &str| server.get(&owner, &format!("{broker}/streams/stream?filter={filter}"));
    let shown = show("plant/%2B");
    let waiting: Vec<_> = shown["sessions"].as_array().unwrap().iter().collect();
    let waiting = waiting.iter().map(|one| (one["client_id"].as_str(), one["waiting_messages"].as_u64()));
    assert!(waiting.eq([(Some("reader"), Some(2)), (Some("late"), Some(1))]), "{shown}");
    assert_eq!((&shown["sessions"][0]["state"], &shown["incomplete"]), (&json!("offline"), &json!(false)));
    let members = &show("$share/jobs/plant/%23")["sessions"];
    assert_eq!((&members[1]["client_id"], &members[1]["waiting_messages"]), (&json!("worker-2"), &json!(0)));

    let first = server.get(&owner, &format!("{broker}/streams?limit=1"));
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = server.get(&owner, &format!("{broker}/streams?limit=1&cursor={cursor}"));
    assert_ne!(first["items"], second["items"]);
    assert_eq!(second["next_cursor"], Value::Null);
    for (path, status) in [("streams/stream?filter=other", 404), ("streams?cursor=eA", 422)] {
        let answer = server.ask(&owner, "GET", &format!("{broker}/{path}"), &Value::Null);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
    }
}

#[test]
fn a_start_after_a_kill_says_that_the_folder_has_every_acknowledged_commit() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, organisation) = server.machine_owner();
    let region = |server: &Server, owner: &Browser| server.get(owner, "/regions")["items"][0].clone();
    let first = region(&server, &owner);
    assert_eq!(first["acknowledged_commits_lost"], Value::Null, "a new folder: {first}");
    subscribe(&server, "reader", "plant/+");
    publish(&server, &owner, &format!("{organisation}/brokers/default"), "plant/1");
    // With SIGKILL.
    drop(server);

    let mut server = Server::start(data.path());
    let (owner, _) = server.machine_owner();
    let second = region(&server, &owner);
    assert_eq!(second["acknowledged_commits_lost"], 0, "{second}");
    assert!(second["started_at_ms"].as_u64() > first["started_at_ms"].as_u64(), "{first} {second}");
    let shown = Terminal::new().run(&format!("pods show --json --admin http://{}", server.admin)).json();
    let (pod, recovery) = (&shown[0], &shown[0]["recovery"]);
    assert_eq!(pod["started_at_ms"], second["started_at_ms"]);
    let number = |name: &str| recovery[name].as_u64().unwrap_or_else(|| panic!("{name}: {pod}"));
    assert!(number("acknowledged_commit") > 0 && number("journal_commits") > 0);
    assert!(number("recovered_commit") >= number("acknowledged_commit"));
}
