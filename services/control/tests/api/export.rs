//! The export of an organisation, and what its deletion leaves behind.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use futures_util::StreamExt as _;
use millrace_control::Erasures;
use millrace_storage::{KeyRange, RangeOptions};
use serde_json::{Value, json};

use crate::tools::{Client, Region};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn count(lines: &[Value]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for line in lines {
        *counts.entry(line["kind"].as_str().unwrap()).or_default() += 1;
    }
    counts
}

async fn fill(ann: &Client) -> String {
    let broker = ann.broker().await;
    let devices: Vec<_> = (0..250).map(|number| json!({ "user": format!("pump-{number}") })).collect();
    let batch = json!({ "devices": devices });
    ann.post(&format!("{broker}/credential-batches"), batch).await.is(StatusCode::CREATED);
    for (path, body) in [
        ("groups/pumps", json!({})),
        ("bans/one", json!({ "client_id": "one" })),
        (
            "webhooks/hook",
            json!({ "url": "https://hook.test/secret-path", "events": ["connect"], "signing_key": "secret-signing-key-of-32-characters" }),
        ),
        (
            "jwt-issuers/own",
            json!({ "algorithms": ["HS256"], "key": { "kind": "secret", "secret": "secret-issuer-key-of-32-characters" } }),
        ),
    ] {
        ann.put(&format!("{broker}/{path}"), "", body).await.is(StatusCode::CREATED);
    }
    let cap = json!({ "monthly_micros": 5, "action": "continue" });
    ann.put(&format!("{broker}/spend-cap"), "", cap).await.is(StatusCode::OK);
    let token = json!({ "name": "ci", "scopes": ["brokers:read"] });
    ann.post(&ann.own("/tokens"), token).await.is(StatusCode::CREATED);
    let invitation = json!({ "email": "ben@example.org", "role": "viewer" });
    ann.post(&ann.own("/invitations"), invitation).await.is(StatusCode::CREATED);
    broker
}

#[tokio::test]
async fn an_export_has_everything_but_secrets() {
    let region = Region::new().await.unlimited();
    let ann = region.person().await;
    let broker = fill(&ann).await;
    let answer = ann.get(&ann.own("/export")).await;
    assert_eq!(answer.headers["content-type"], "application/x-ndjson");
    let all = lines(&answer.table);
    let counts = count(&all);
    for (kind, expected) in [
        ("organisation", 1),
        ("member", 1),
        ("invitation", 1),
        ("token", 1),
        ("usage", 1),
        ("broker", 1),
        ("access", 1),
        ("spend_cap", 1),
        ("group", 1),
        ("ban", 1),
        ("webhook", 1),
        ("jwt_issuer", 1),
        ("credential", 250),
        ("end", 1),
    ] {
        assert_eq!(counts.get(kind), Some(&expected), "{kind}: {counts:?}");
    }
    assert!(counts["audit_entry"] > 5, "{counts:?}");
    assert_eq!(all.last().unwrap()["kind"], "end");
    let name = broker.rsplit('/').next().unwrap();
    let webhook = all.iter().find(|line| line["kind"] == "webhook").unwrap();
    assert_eq!((&webhook["broker"], &webhook["data"]["name"]), (&json!(name), &json!("hook")));
    for secret in ["secret-", "mlr_"] {
        assert!(!answer.table.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn an_export_is_for_callers_who_may_read_all_of_it() {
    let region = Region::new().await;
    let (ann, ben) = (region.person().await, region.person().await);
    ben.get(&ann.own("/export")).await.is(StatusCode::NOT_FOUND);
    let scopes = json!({ "name": "some", "scopes": ["organisation:read", "brokers:read", "access:read"] });
    let token = ann.post(&ann.own("/tokens"), scopes).await.text("/secret").to_owned();
    ann.with_token(&token).get(&ann.own("/export")).await.is(StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn an_export_ends_with_the_token_or_the_web_session_that_began_it() {
    let region = Region::new().await;
    let ann = region.person().await;
    let scopes = ["organisation:read", "brokers:read", "access:read", "audit:read"];
    let made = ann.post(&ann.own("/tokens"), json!({ "name": "backup", "scopes": scopes })).await;
    let token = ann.own(&format!("/tokens/{}", made.text("/id")));
    let exporters = [ann.with_token(made.text("/secret")), ann.clone()];
    let mut exports = Vec::new();
    for exporter in &exporters {
        let mut parts = exporter.begin(&ann.own("/export")).await.into_body().into_data_stream();
        let first = parts.next().await.unwrap().unwrap();
        assert_eq!(lines(std::str::from_utf8(&first).unwrap())[0]["kind"], "organisation");
        exports.push(parts);
    }
    ann.delete(&token).await.is(StatusCode::NO_CONTENT);
    ann.post("/sign-out", Value::Null).await.is(StatusCode::NO_CONTENT);
    for mut parts in exports {
        let mut all = Vec::new();
        while let Some(part) = parts.next().await {
            all.extend(part.unwrap());
        }
        let all = lines(std::str::from_utf8(&all).unwrap());
        assert_eq!(all.last().unwrap()["kind"], "error", "{all:?}");
        assert_eq!(all.last().unwrap()["data"]["status"], 401, "{all:?}");
        assert!(all.len() <= 2, "{all:?}");
    }
}

async fn keys(region: &Region, part: &[u8]) -> Vec<Vec<u8>> {
    let all = region.store.run(|tx| async move {
        Ok(tx.range(KeyRange::new([0], [255]), RangeOptions::first(100_000).snapshot()).await?)
    });
    let all = all.await.unwrap();
    assert!(!all.more);
    all.items
        .into_iter()
        .map(|row| row.key.to_vec())
        .filter(|key| key.windows(part.len()).any(|window| window == part))
        .collect()
}

#[tokio::test]
async fn a_deleted_organisation_leaves_nothing_but_what_operators_may_read() {
    let region = Region::new().await.unlimited();
    let ann = region.person().await;
    let broker = fill(&ann).await;
    let organisation = ann.own("");
    let id: uuid::Uuid = organisation.rsplit('/').find(|part| !part.is_empty()).unwrap().parse().unwrap();
    ann.delete(&broker).await.is(StatusCode::NO_CONTENT);
    ann.delete(&organisation).await.is(StatusCode::NO_CONTENT);
    for _ in 0..3 {
        // The second erasure of a broker is ten minutes after the first.
        region.clock.move_on(11 * 60_000);
        region.control.erase(&mut Erasures::default(), 1_000).await.unwrap();
        region.control.sweep().await.unwrap();
    }
    // The audit log, and the record for operators with its expiry and ledger.
    let left = keys(&region, id.as_bytes()).await;
    let kinds = [&b"\x01al\x00"[..], b"\x01afg\x00", b"\x01ax\x00", b"\x01afl\x00", b"\x01afo\x00"];
    let others: Vec<_> = left
        .iter()
        .filter(|key| !kinds.iter().any(|kind| key.windows(kind.len()).any(|part| part == *kind)))
        .collect();
    assert_eq!(others.len(), 0, "{others:?}");
    for gone in ["pump-249", "ben@example.org"] {
        let left = keys(&region, gone.as_bytes()).await;
        assert_eq!(left.len(), 0, "{gone}: {left:?}");
    }
    // Operators can read the audit log for 400 days, and then all of it is gone.
    region.clock.move_on(402 * 86_400_000);
    region.control.sweep().await.unwrap();
    let left = keys(&region, id.as_bytes()).await;
    assert_eq!(left.len(), 0, "{left:?}");
}
