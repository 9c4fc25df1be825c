//! Fleets: credentials in batches, and claim tokens as an attacker with one tries them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode};
use futures_util::future::join_all;
use millrace_access::scram;
use millrace_layers::sessions::{self, Attach, Detach, SessionId};
use millrace_layers::{accounts, catalog};
use millrace_storage::Read;
use serde_json::{Value, json};

use crate::credentials::{opens, stored};
use crate::tokens::member;
use crate::tools::{Answer, Client, Region};

const NOW_MS: u64 = 1_000_000_000_000;
const HOUR_MS: u64 = 3_600_000;

fn allow(filter: &str) -> Value {
    json!({ "effect": "allow", "action": "all", "filter": filter, "retain": true, "qos_max": 2 })
}

/// Makes a claim token, and returns its id and its secret.
async fn token(ann: &Client, broker: &str, more: Value) -> (String, String) {
    let mut body = json!({
        "name": "line 2", "user_prefix": "pump-", "uses_max": 5, "expires_at_ms": NOW_MS + HOUR_MS,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = ann.post(&format!("{broker}/claim-tokens"), body).await;
    (made.is(StatusCode::CREATED).text("/id").to_owned(), made.text("/secret").to_owned())
}

async fn claim(device: &Client, secret: &str, user: &str) -> Answer {
    static CLAIMS: AtomicU32 = AtomicU32::new(0);
    let key = format!("claim-{:032}", CLAIMS.fetch_add(1, Ordering::Relaxed));
    let device = device.or_with("idempotency-key", &key);
    device.post("/claim", json!({ "token": secret, "user": user })).await
}

async fn credentials(ann: &Client, broker: &str) -> Vec<String> {
    let all = ann.get(&format!("{broker}/credentials?limit=200")).await;
    all.column("user").into_iter().map(Into::into).collect()
}

/// Adds to the number of credentials that a broker seems to have.
async fn seem(region: &Region, ann: &Client, broker: &str, more: i64) {
    let name = ann.get(broker).await.text("/name").to_owned();
    let name = name.as_bytes();
    let count = region.store.run(|tx| async move {
        let id = catalog::get(&tx, name, Read::Snapshot).await?.unwrap().id;
        accounts::count_credentials(&tx, id, more)
    });
    count.await.unwrap();
}

#[tokio::test]
async fn a_batch_gives_each_device_a_password_that_the_pods_accept() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    ann.put(&format!("{broker}/groups/pumps"), "", json!({})).await.is(StatusCode::CREATED);
    let devices: Vec<Value> = (0..1_000)
        .map(|number| json!({ "user": format!("p{number}"), "client_id": format!("c{number}") }))
        .collect();
    let body = json!({ "devices": devices, "group": "pumps", "rules": [allow("up/%c")] });
    let path = format!("{broker}/credential-batches");
    let named = ann.with("idempotency-key", "k");
    let made = named.post(&path, body.clone()).await;
    assert!(made.is(StatusCode::CREATED).headers.contains_key("millrace-in-force-at-ms"));
    let items = made.body["items"].as_array().unwrap();
    let secrets: BTreeSet<&str> = items.iter().map(|item| item["secret"].as_str().unwrap()).collect();
    assert_eq!((items.len(), secrets.len()), (1_000, 1_000));
    for number in [0, 500, 999] {
        let (item, user) = (&items[number], format!("p{number}"));
        assert_eq!(item["user"], user);
        let record = stored(&region, &ann, &broker, &user).await;
        assert!(opens(&region, &record.secret.unwrap(), item["secret"].as_str().unwrap()).await);
        assert_eq!(record.client_id, Some(format!("c{number}")));
        assert_eq!((record.group.as_deref(), record.rules.len()), (Some("pumps"), 1));
        let mut shown = ann.get(&format!("{broker}/credentials/{user}")).await.body;
        shown["secret"] = item["secret"].clone();
        assert_eq!(&shown, item);
    }
    let again = named.post(&path, body.clone()).await;
    assert_eq!(again.is(StatusCode::CREATED).body, made.body);
    let log = ann.get(&ann.own("/audit?limit=200")).await;
    let noted = log.column("action");
    assert_eq!(
        noted.iter().filter(|action| action.starts_with("credential.")).count(),
        1,
        "one for the batch"
    );
    assert_eq!(noted[0], "credential.create_batch");
    let entry = &log.body["items"][0];
    let details = &entry["details"];
    assert_eq!((&details["count"], &details["batch"]), (&json!(1_000), &made.body["batch"]));
    let users: Vec<_> = devices.iter().map(|device| &device["user"]).collect();
    assert_eq!(details["users"].as_array().unwrap().iter().collect::<Vec<_>>(), users);
    assert_eq!(entry["at_ms"], items[0]["created_at_ms"]);
    assert!(!log.body.to_string().contains(items[0]["secret"].as_str().unwrap()));
}

#[tokio::test]
async fn a_batch_with_scram_has_a_verifier_of_each_password() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let path = format!("{broker}/credential-batches");
    let body = json!({ "devices": [{ "user": "p1" }, { "user": "p2" }], "scram": true });
    let named = ann.with("idempotency-key", "k");
    let made = named.post(&path, body.clone()).await;
    for item in made.is(StatusCode::CREATED).body["items"].as_array().unwrap() {
        assert_eq!(item["scram"], true);
        let verifier = stored(&region, &ann, &broker, item["user"].as_str().unwrap()).await.scram.unwrap();
        assert_eq!(scram::verifier(item["secret"].as_str().unwrap(), verifier.salt.0), verifier);
    }
    assert_eq!(named.post(&path, body).await.body, made.body);
    let devices: Vec<_> = (0..101).map(|number| json!({ "user": format!("q{number}") })).collect();
    let many = ann.post(&path, json!({ "devices": devices, "scram": true })).await;
    assert_eq!(many.is(StatusCode::UNPROCESSABLE_ENTITY).body["fields"][0]["field"], "devices");
}

#[tokio::test]
async fn the_audit_log_names_each_device_of_a_batch_with_long_names() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let users: Vec<String> = (0..500).map(|number| format!("{}{number}", "\u{1F527}".repeat(60))).collect();
    let devices: Vec<_> = users.iter().map(|user| json!({ "user": user })).collect();
    let made = ann.post(&format!("{broker}/credential-batches"), json!({ "devices": devices })).await;
    made.is(StatusCode::CREATED);
    let log = ann.get(&ann.own("/audit?action=credential.create_batch&limit=200")).await;
    let entries = log.is(StatusCode::OK).body["items"].as_array().unwrap();
    assert!(entries.len() > 1 && entries.len() < 20, "{}", entries.len());
    // The latest entry comes first.
    let named = entries.iter().rev().flat_map(|entry| entry["details"]["users"].as_array().unwrap());
    assert_eq!(named.map(|user| user.as_str().unwrap()).collect::<Vec<_>>(), users);
    assert!(entries.iter().all(|entry| entry["details"]["batch"] == made.body["batch"]));
}

#[tokio::test]
async fn batches_are_limited_by_their_devices_and_strangers_use_nothing_of_it_up() {
    let region = Region::new().await;
    let (ann, bob) = (region.person().await, region.person().await);
    let path = format!("{}/credential-batches", ann.broker().await);
    // Refused for its devices, after each of them was counted.
    let many: Vec<Value> = (0..1_000).map(|_| json!({ "user": "p" })).collect();
    let body = json!({ "devices": many });
    for _ in 0..20 {
        bob.post(&path, body.clone()).await.is(StatusCode::NOT_FOUND);
    }
    ann.post(&path, body.clone()).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    // The limiter gives back 100 a second, so a slow machine needs more batches to reach it.
    for _ in 0..1_000 {
        let answer = ann.post(&path, body.clone()).await;
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            assert!(answer.headers.contains_key("retry-after"));
            return;
        }
        answer.is(StatusCode::UNPROCESSABLE_ENTITY);
    }
    panic!("a million devices were looked at");
}

#[tokio::test]
async fn a_batch_with_a_fault_makes_nothing() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let path = format!("{broker}/credential-batches");
    ann.post(&format!("{broker}/credentials"), json!({ "user": "there" })).await.is(StatusCode::CREATED);
    let devices = |users: &[&str]| users.iter().map(|user| json!({ "user": user })).collect::<Vec<_>>();
    let long: Vec<Value> = (0..100).map(|n| allow(&format!("{n}/{}", "x".repeat(100)))).collect();
    let many: Vec<Value> = (0..1_001).map(|n| json!({ "user": format!("d{n}") })).collect();
    for (body, field) in [
        (json!({ "devices": [] }), "devices"),
        (json!({ "devices": many }), "devices"),
        (json!({ "devices": devices(&["a", ""]) }), "devices[1].user"),
        (json!({ "devices": devices(&["a", "b", "a"]) }), "devices[2].user"),
        // The first one is written with Cyrillic characters.
        (json!({ "devices": devices(&["сору-m1", "copy-m1"]) }), "devices[0].user"),
        (json!({ "devices": [{ "user": "a", "client_id": "" }] }), "devices[0].client_id"),
        (json!({ "devices": devices(&["a"]), "group": "none" }), "group"),
        (json!({ "devices": devices(&["a"]), "rules": [allow("a/#/b")] }), "rules[0].filter"),
        (json!({ "devices": &many[..1_000], "rules": long }), "rules"),
        (json!({ "devices": [{ "user": "a", "password": "x" }] }), "devices[0].password"),
    ] {
        let answer = ann.post(&path, body).await;
        assert_eq!(answer.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), field);
    }
    let taken = ann.post(&path, json!({ "devices": devices(&["a", "there", "b"]) })).await;
    assert!(taken.is(StatusCode::CONFLICT).text("/detail").contains("\"there\""), "{taken:?}");
    seem(&region, &ann, &broker, 99_997).await;
    ann.post(&path, json!({ "devices": devices(&["a", "b", "c"]) })).await.is(StatusCode::CONFLICT);
    assert_eq!(credentials(&ann, &broker).await, ["there"]);
    ann.post(&path, json!({ "devices": devices(&["a", "b"]) })).await.is(StatusCode::CREATED);
    assert_eq!(credentials(&ann, &broker).await, ["a", "b", "there"]);
}

#[tokio::test]
async fn a_device_exchanges_a_claim_token_for_a_credential_of_its_own() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    ann.put(&format!("{broker}/groups/pumps"), "", json!({})).await.is(StatusCode::CREATED);
    let more = json!({ "group": "pumps", "rules": [allow("up/%u/#")] });
    let (id, secret) = token(&ann, &broker, more).await;
    assert!(secret.starts_with("mlc_") && secret.len() == 47, "{secret}");

    let device = region.stranger().with("user-agent", "pump/1.0");
    let claimed = claim(&device, &secret, "pump-7").await;
    assert!(!claimed.is(StatusCode::CREATED).headers.contains_key("millrace-in-force-at-ms"));
    let name = broker.rsplit('/').next().unwrap();
    assert_eq!(claimed.text("/broker"), name);
    assert_eq!(claimed.text("/username"), format!("{name}/pump-7"));
    assert_eq!(claimed.text("/client_id"), "pump-7");
    assert_eq!(claimed.text("/endpoints/user_prefix"), format!("{name}/"));
    let record = stored(&region, &ann, &broker, "pump-7").await;
    assert!(opens(&region, &record.secret.clone().unwrap(), claimed.text("/password")).await);
    assert_eq!(record.client_id.as_deref(), Some("pump-7"));
    assert_eq!((record.group.as_deref(), record.rules.len()), (Some("pumps"), 1));
    let shown = ann.get(&format!("{broker}/credentials/pump-7")).await;
    assert_eq!(shown.text("/claim_token"), id);

    let found = ann.get(&format!("{broker}/claim-tokens/{id}")).await;
    assert_eq!((&found.body["uses"], &found.body["uses_max"]), (&json!(1), &json!(5)));
    let listed = ann.get(&format!("{broker}/claim-tokens")).await;
    assert_eq!(listed.body["items"], json!([found.body]));
    let log = ann.get(&ann.own("/audit")).await;
    let entry = &log.body["items"][0];
    assert_eq!((&entry["action"], &entry["target"]), (&json!("credential.claim"), &json!("pump-7")));
    assert_eq!(entry["actor"]["kind"], "nobody");
    assert_eq!(entry["actor"]["name"], "claim token line 2");
    assert_eq!(entry["actor"]["agent"], "pump/1.0");
    assert_eq!(entry["details"]["claim_token"], id);
    for text in [&secret, claimed.text("/password")] {
        assert!(!log.body.to_string().contains(text), "the log shows a secret");
        assert!(!listed.body.to_string().contains(text), "a list shows a secret");
    }

    let (_, free) = token(&ann, &broker, json!({ "bind_client_id": false, "user_prefix": "free-" })).await;
    let claimed = claim(&device, &free, "free-1").await;
    assert_eq!(claimed.is(StatusCode::CREATED).body["client_id"], Value::Null);
    assert_eq!(stored(&region, &ann, &broker, "free-1").await.client_id, None);
}

#[tokio::test]
async fn every_void_claim_token_gets_one_answer() {
    let region = Region::new().await;
    let ann = region.person().await;
    let bob = member(&region, &ann, "operator").await;
    let broker = ann.broker().await;
    let device = region.stranger();
    let (deleted_id, deleted) = token(&ann, &broker, json!({})).await;
    let (_, used_up) = token(&ann, &broker, json!({ "uses_max": 1 })).await;
    let (_, expired) = token(&ann, &broker, json!({ "expires_at_ms": NOW_MS + 1_000 })).await;
    let (_, of_bob) = token(&bob, &broker, json!({})).await;
    let (_, right) = token(&ann, &broker, json!({})).await;
    claim(&device, &of_bob, "pump-bob").await.is(StatusCode::CREATED);
    claim(&device, &used_up, "pump-1").await.is(StatusCode::CREATED);
    ann.delete(&format!("{broker}/claim-tokens/{deleted_id}")).await.is(StatusCode::NO_CONTENT);
    region.clock.move_on(1_000);
    let id = bob.get("/me").await.text("/user/id").to_owned();
    let me = ann.own(&format!("/members/{id}"));
    ann.patch(&me, "*", json!({ "role": "viewer" })).await.is(StatusCode::OK);

    let unknown = claim(&device, "mlc_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "pump-2").await;
    unknown.is(StatusCode::UNAUTHORIZED);
    for secret in [&deleted, &used_up, &expired, &of_bob, ""] {
        let answer = claim(&device, secret, "pump-2").await;
        assert_eq!((answer.status, &answer.body), (unknown.status, &unknown.body), "{secret}");
    }
    assert_eq!(claim(&device, &used_up, "valve").await.body, unknown.body, "it tells no prefix");
    ann.delete(&me).await.is(StatusCode::NO_CONTENT);
    assert_eq!(claim(&device, &of_bob, "pump-2").await.body, unknown.body);
    claim(&device, &right, "pump-2").await.is(StatusCode::CREATED);
    assert_eq!(credentials(&ann, &broker).await, ["pump-1", "pump-2", "pump-bob"]);

    let log = ann.get(&ann.own("/audit?limit=200")).await;
    let refused = log.column("action").iter().filter(|action| **action == "credential.refuse_claim").count();
    assert_eq!(refused, 5, "a deleted token has no organisation, and the others are noted");

    region.control.sweep().await.unwrap();
    assert_eq!(ann.get(&format!("{broker}/claim-tokens")).await.body["items"].as_array().unwrap().len(), 3);
    assert_eq!(claim(&device, &expired, "pump-3").await.body, unknown.body);
    ann.delete(&broker).await.is(StatusCode::NO_CONTENT);
    assert_eq!(claim(&device, &right, "pump-3").await.body, unknown.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn devices_that_claim_at_once_share_the_uses_that_are_left() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let (id, secret) = token(&ann, &broker, json!({ "uses_max": 3 })).await;
    let tasks = (0..12).map(|number| {
        let (device, secret) = (region.stranger(), secret.clone());
        tokio::spawn(async move { claim(&device, &secret, &format!("pump-{}", number % 10)).await.status })
    });
    let answers: Vec<StatusCode> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    let made = answers.iter().filter(|status| **status == StatusCode::CREATED).count();
    assert_eq!((made, credentials(&ann, &broker).await.len()), (3, 3), "{answers:?}");
    assert_eq!(ann.get(&format!("{broker}/claim-tokens/{id}")).await.body["uses"], 3);
}

#[tokio::test]
async fn a_claim_takes_no_name_that_it_may_not_have() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let device = region.stranger();
    let (id, secret) = token(&ann, &broker, json!({})).await;
    for user in
        ["", "pump-", "pump", "valve-1", "Pump-1", "pump-a/b", "pump-+", "pump-#", "pump- 1", "pump-é"]
    {
        let answer = claim(&device, &secret, user).await;
        assert_eq!(answer.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), "user", "{user}");
    }
    claim(&device, &secret, &format!("pump-{}", "x".repeat(252))).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    ann.post(&format!("{broker}/credentials"), json!({ "user": "pump-1" })).await.is(StatusCode::CREATED);
    let before = stored(&region, &ann, &broker, "pump-1").await;
    claim(&device, &secret, "pump-1").await.is(StatusCode::CONFLICT);
    assert_eq!(stored(&region, &ann, &broker, "pump-1").await, before);
    assert_eq!(ann.get(&format!("{broker}/claim-tokens/{id}")).await.body["uses"], 0, "a refusal is no use");
    // Nothing beside the name comes from the device.
    let more = json!({ "token": secret, "user": "pump-2", "rules": [], "client_id": "x" });
    device.post("/claim", more).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    // The log has ten refusals a minute, and on a slow machine those of the next minute.
    let log = ann.get(&ann.own("/audit?limit=200")).await;
    let refused = log.column("action").iter().filter(|action| **action == "credential.refuse_claim").count();
    assert!((10..=12).contains(&refused), "{refused}");
}

#[tokio::test]
async fn only_the_device_that_knows_the_key_of_its_claim_gets_the_answer_again() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let (id, secret) = token(&ann, &broker, json!({ "uses_max": 1 })).await;
    let device = region.stranger().with("idempotency-key", "5f0c1d6e9a2b4c7d8e3f5a6b7c8d9e0f");
    let first = claim(&device, &secret, "pump-1").await;
    let again = claim(&device, &secret, "pump-1").await;
    assert_eq!(first.is(StatusCode::CREATED).body, again.is(StatusCode::CREATED).body);
    assert_eq!(ann.get(&format!("{broker}/claim-tokens/{id}")).await.body["uses"], 1);
    let log = ann.get(&ann.own("/audit?limit=200")).await;
    let noted: Vec<_> =
        log.column("action").into_iter().filter(|action| action.starts_with("credential.")).collect();
    assert_eq!(noted, ["credential.repeat_claim", "credential.claim"]);
    claim(&device, &secret, "pump-2").await.is(StatusCode::UNPROCESSABLE_ENTITY);
    claim(&region.stranger(), &secret, "pump-1").await.is(StatusCode::UNAUTHORIZED);
    let guessable = region.stranger().with("idempotency-key", "pump-1");
    claim(&guessable, &secret, "pump-1").await.is(StatusCode::BAD_REQUEST);
    let unnamed = region.stranger().post("/claim", json!({ "token": secret, "user": "pump-1" })).await;
    assert!(unnamed.is(StatusCode::BAD_REQUEST).text("/detail").contains("Idempotency-Key"), "{unnamed:?}");
    ann.delete(&format!("{broker}/claim-tokens/{id}")).await.is(StatusCode::NO_CONTENT);
    claim(&device, &secret, "pump-1").await.is(StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_claim_ends_at_the_limits_of_the_broker_and_without_the_group() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let device = region.stranger();
    let group = format!("{broker}/groups/pumps");
    ann.put(&group, "", json!({})).await.is(StatusCode::CREATED);
    let (_, secret) = token(&ann, &broker, json!({ "group": "pumps" })).await;
    seem(&region, &ann, &broker, 99_999).await;
    claim(&device, &secret, "pump-1").await.is(StatusCode::CREATED);
    claim(&device, &secret, "pump-2").await.is(StatusCode::CONFLICT);
    seem(&region, &ann, &broker, -99_999).await;
    ann.delete(&group).await.is(StatusCode::NO_CONTENT);
    claim(&device, &secret, "pump-2").await.is(StatusCode::CONFLICT);
    assert_eq!(credentials(&ann, &broker).await, ["pump-1"]);
}

#[tokio::test]
async fn claims_are_limited_by_address() {
    let device = Region::new().await.stranger();
    // The limiter gives back five a second, so a slow machine needs more guesses to reach it.
    for _ in 0..100_000 {
        let answer = claim(&device, "mlc_guess", "pump-1").await;
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            assert!(answer.headers.contains_key("retry-after"));
            return;
        }
        answer.is(StatusCode::UNAUTHORIZED);
    }
    panic!("100,000 guesses were answered");
}

#[tokio::test]
async fn a_claim_token_is_made_within_limits_by_who_may_make_credentials() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let path = format!("{broker}/claim-tokens");
    let body = |field: &str, value: Value| {
        let mut body = json!({
            "name": "a", "user_prefix": "p-", "uses_max": 1, "expires_at_ms": NOW_MS + HOUR_MS,
        });
        body[field] = value;
        body
    };
    for (field, value) in [
        ("name", json!("")),
        ("user_prefix", json!("")),
        ("user_prefix", json!("a/")),
        ("user_prefix", json!("x".repeat(129))),
        ("uses_max", json!(0)),
        ("uses_max", json!(100_001)),
        ("expires_at_ms", json!(NOW_MS)),
        ("expires_at_ms", json!(NOW_MS + 367 * 24 * HOUR_MS)),
        ("group", json!("none")),
        ("rules", json!([allow("a/#/b")])),
        ("client_id", json!("a")),
    ] {
        let answer = ann.post(&path, body(field, value)).await;
        let named = answer.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field");
        assert!(named.starts_with(field), "{field}: {answer:?}");
    }
    let reader = json!({ "name": "a", "scopes": ["access:read", "brokers:read"] });
    let reader = ann.post(&ann.own("/tokens"), reader).await.text("/secret").to_owned();
    let reader = ann.with_token(&reader);
    reader.post(&path, body("uses_max", json!(1))).await.is(StatusCode::FORBIDDEN);
    let batch = json!({ "devices": [{ "user": "a" }] });
    reader.post(&format!("{broker}/credential-batches"), batch).await.is(StatusCode::FORBIDDEN);
    let viewer = member(&region, &ann, "viewer").await;
    viewer.post(&path, body("uses_max", json!(1))).await.is(StatusCode::FORBIDDEN);
    let named = ann.with("idempotency-key", "k");
    let (one, other) = (
        named.post(&path, body("uses_max", json!(1))).await,
        named.post(&path, body("uses_max", json!(1))).await,
    );
    assert_eq!(one.is(StatusCode::CREATED).body, other.is(StatusCode::CREATED).body);
    for _ in 1..100 {
        ann.post(&path, body("uses_max", json!(1))).await.is(StatusCode::CREATED);
    }
    ann.post(&path, body("uses_max", json!(1))).await.is(StatusCode::CONFLICT);
    assert_eq!(reader.get(&format!("{path}/{}", one.text("/id"))).await.is(StatusCode::OK).body["uses"], 0);
    reader.delete(&format!("{path}/{}", one.text("/id"))).await.is(StatusCode::FORBIDDEN);
}

/// Makes the stored session of a client.
async fn session(region: &Region, ann: &Client, broker: &str, client: &str, expiry_s: u32) {
    let name = ann.get(broker).await.text("/name").to_owned();
    let (name, client) = (name.as_bytes(), client.as_bytes());
    let made = region.store.run(|tx| async move {
        let id = catalog::get(&tx, name, Read::Snapshot).await?.unwrap().id;
        let id = SessionId { broker: id, client };
        let request =
            Attach { owner: "pod".into(), clean: false, expiry_s, now_ms: NOW_MS, will: None, details: None };
        let epoch = sessions::attach(&tx, id, request).await?.epoch;
        let owned = sessions::fence(&tx, id, epoch).await?;
        sessions::detach(owned, Detach { now_ms: NOW_MS, expiry_s: None, keep_will: false.into() }).await
    });
    made.await.unwrap();
}

#[tokio::test]
async fn a_claim_does_not_take_over_the_session_of_another_client() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let device = region.stranger();
    // A client of a JWT, a certificate or the webhook has a session and no credential.
    session(&region, &ann, &broker, "pump-7", 3_600).await;
    session(&region, &ann, &broker, "pump-8", 1).await;
    for more in [json!({}), json!({ "bind_client_id": false })] {
        let (id, secret) = token(&ann, &broker, more).await;
        let refused = claim(&device, &secret, "pump-7").await;
        assert!(refused.is(StatusCode::CONFLICT).text("/detail").contains("session"), "{refused:?}");
        assert_eq!(ann.get(&format!("{broker}/claim-tokens/{id}")).await.body["uses"], 0);
    }
    assert!(credentials(&ann, &broker).await.is_empty());
    let (_, secret) = token(&ann, &broker, json!({})).await;
    claim(&device, &secret, "pump-9").await.is(StatusCode::CREATED);
    region.clock.move_on(2_000);
    claim(&device, &secret, "pump-8").await.is(StatusCode::CREATED);
}

#[tokio::test]
async fn a_repeated_claim_is_checked_like_the_first() {
    let region = Region::new().await;
    let ann = region.person().await;
    let bob = member(&region, &ann, "operator").await;
    let broker = ann.broker().await;
    ann.put(&format!("{broker}/groups/pumps"), "", json!({})).await.is(StatusCode::CREATED);
    let device = |number: u32| region.stranger().with("idempotency-key", &format!("{number:032}"));
    let (_, secret) = token(&ann, &broker, json!({ "uses_max": 3, "group": "pumps" })).await;
    let (_, of_bob) = token(&bob, &broker, json!({ "user_prefix": "bob-" })).await;
    for (number, user) in [(1, "pump-1"), (2, "pump-2"), (3, "pump-3")] {
        claim(&device(number), &secret, user).await.is(StatusCode::CREATED);
    }
    claim(&device(4), &of_bob, "bob-1").await.is(StatusCode::CREATED);
    claim(&device(1), &secret, "pump-1").await.is(StatusCode::CREATED);

    // The credential has another password now, or is another one.
    let two = format!("{broker}/credentials/pump-2");
    ann.post(&format!("{two}/rotate"), json!({})).await.is(StatusCode::OK);
    claim(&device(2), &secret, "pump-2").await.is(StatusCode::CONFLICT);
    ann.delete(&format!("{broker}/credentials/pump-3")).await.is(StatusCode::NO_CONTENT);
    claim(&device(3), &secret, "pump-3").await.is(StatusCode::CONFLICT);

    // The broker accepts no devices.
    ann.send(Method::POST, &format!("{broker}/suspend"), None).await.is(StatusCode::OK);
    claim(&device(1), &secret, "pump-1").await.is(StatusCode::FORBIDDEN);
    ann.send(Method::POST, &format!("{broker}/resume"), None).await.is(StatusCode::OK);
    claim(&device(1), &secret, "pump-1").await.is(StatusCode::CREATED);

    // The maker may not make credentials any more.
    let id = bob.get("/me").await.text("/user/id").to_owned();
    let me = ann.own(&format!("/members/{id}"));
    ann.patch(&me, "*", json!({ "role": "viewer" })).await.is(StatusCode::OK);
    claim(&device(4), &of_bob, "bob-1").await.is(StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_suspended_broker_takes_no_devices() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let (id, secret) = token(&ann, &broker, json!({})).await;
    ann.send(Method::POST, &format!("{broker}/suspend"), None).await.is(StatusCode::OK);
    claim(&region.stranger(), &secret, "pump-1").await.is(StatusCode::FORBIDDEN);
    assert_eq!(ann.get(&format!("{broker}/claim-tokens/{id}")).await.body["uses"], 0);
    ann.send(Method::POST, &format!("{broker}/resume"), None).await.is(StatusCode::OK);
    claim(&region.stranger(), &secret, "pump-1").await.is(StatusCode::CREATED);
}

#[tokio::test]
async fn a_claim_makes_no_pod_read_the_broker_again() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let (_, secret) = token(&ann, &broker, json!({})).await;
    let name = ann.get(&broker).await.text("/name").to_owned();
    let changes = async || {
        let name = name.as_bytes();
        let read = region.store.run(|tx| async move {
            let id = catalog::get(&tx, name, Read::Snapshot).await?.unwrap().id;
            accounts::changes(&tx, id, Read::Snapshot).await
        });
        read.await.unwrap()
    };
    let before = changes().await;
    claim(&region.stranger(), &secret, "pump-1").await.is(StatusCode::CREATED);
    assert_eq!(changes().await, before);
}

#[tokio::test]
async fn a_claim_token_ends_with_the_api_token_that_made_it() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let device = region.stranger();
    let day = 24 * HOUR_MS;
    let made = json!({ "name": "ci", "scopes": ["access:read", "access:write", "brokers:read"] });
    let forever = ann.post(&ann.own("/tokens"), made.clone()).await;
    let mut short = made;
    short["expires_at_ms"] = json!(NOW_MS + day);
    let short = ann.post(&ann.own("/tokens"), short).await;
    let (ci, laptop) = (ann.with_token(forever.text("/secret")), ann.with_token(short.text("/secret")));

    let late = json!({ "name": "a", "user_prefix": "p-", "uses_max": 1, "expires_at_ms": NOW_MS + day + 1 });
    let refused = laptop.post(&format!("{broker}/claim-tokens"), late).await;
    assert_eq!(refused.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), "expires_at_ms");
    let (id, of_laptop) = token(&laptop, &broker, json!({ "expires_at_ms": NOW_MS + day })).await;
    let (_, of_ci) = token(&ci, &broker, json!({ "user_prefix": "ci-" })).await;
    let (own_id, own) = token(&ann, &broker, json!({ "user_prefix": "own-" })).await;
    let shown =
        async |id: &str| ann.get(&format!("{broker}/claim-tokens/{id}")).await.body["api_token"].clone();
    assert_eq!(shown(&id).await, short.body["id"]);
    assert_eq!(shown(&own_id).await, Value::Null);

    claim(&device, &of_laptop, "pump-1").await.is(StatusCode::CREATED);
    claim(&device, &of_ci, "ci-1").await.is(StatusCode::CREATED);
    ann.delete(&ann.own(&format!("/tokens/{}", forever.text("/id")))).await.is(StatusCode::NO_CONTENT);
    claim(&device, &of_ci, "ci-2").await.is(StatusCode::UNAUTHORIZED);
    claim(&device, &own, "own-1").await.is(StatusCode::CREATED);
    assert_eq!(credentials(&ann, &broker).await, ["ci-1", "own-1", "pump-1"]);
}

#[tokio::test]
async fn a_claim_that_is_too_long_is_not_read() {
    let device = Region::new().await.stranger();
    let answer = claim(&device, &"x".repeat(100_000), "pump-1").await;
    answer.is(StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_claim_over_the_limit_is_refused_before_its_body_is_read() {
    let device = Region::new().await.stranger();
    let body = "{".repeat(1_000);
    // The limiter gives back five a second, so a slow machine needs more requests to reach it.
    for _ in 0..5_000 {
        let answer = device.post("/claim", json!(body)).await;
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            return;
        }
        answer.is(StatusCode::UNPROCESSABLE_ENTITY);
    }
    panic!("5,000 bodies were read");
}

#[tokio::test]
async fn an_unknown_claim_token_is_limited_like_a_known_one() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let (_, known) = token(&ann, &broker, json!({})).await;
    for secret in [known.as_str(), "mlc_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
        // One token has 20 claims a second. Each comes from another address, so that no address reaches its own limit.
        let mut is_limited = false;
        for number in 0..5_000_u32 {
            let body = json!({ "token": secret, "user": "x" }).to_string();
            let request = Request::builder().method(Method::POST).uri("/claim");
            let request = request.header("idempotency-key", format!("{number:032}"));
            let mut request =
                request.header("content-type", "application/json").body(Body::from(body)).unwrap();
            let address = SocketAddr::new((0x0A00_0000 + number).to_be_bytes().into(), 50_000);
            request.extensions_mut().insert(ConnectInfo(address));
            is_limited = region.stranger().raw(request).await.status == StatusCode::TOO_MANY_REQUESTS;
            if is_limited {
                break;
            }
        }
        assert!(is_limited, "{secret}");
    }
}

#[tokio::test]
async fn repetitions_of_a_claim_fill_no_log() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let (_, secret) = token(&ann, &broker, json!({})).await;
    let device = region.stranger().with("idempotency-key", "5f0c1d6e9a2b4c7d8e3f5a6b7c8d9e0f");
    for _ in 0..19 {
        claim(&device, &secret, "pump-1").await.is(StatusCode::CREATED);
    }
    let log = ann.get(&ann.own("/audit?limit=200")).await;
    let noted = log.column("action").iter().filter(|action| **action == "credential.repeat_claim").count();
    assert!((10..=12).contains(&noted), "{noted}");
}

#[tokio::test]
async fn a_broker_has_a_hundred_claim_tokens_however_long_their_rules_are() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let rules: Vec<Value> = (0..100).map(|number| allow(&format!("{number}/{}", "x".repeat(150)))).collect();
    for _ in 0..100 {
        token(&ann, &broker, json!({ "rules": rules })).await;
    }
    let more = json!({
        "name": "more", "user_prefix": "pump-", "uses_max": 5, "expires_at_ms": NOW_MS + HOUR_MS,
    });
    ann.post(&format!("{broker}/claim-tokens"), more).await.is(StatusCode::CONFLICT);
}
