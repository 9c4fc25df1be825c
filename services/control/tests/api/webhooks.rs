//! How webhooks get on, and what they refused.

use axum::http::{Method, StatusCode};
use millrace_access::model::Webhook;
use millrace_layers::streams::ReadLimit;
use millrace_layers::webhooks::{
    self, DeliveryFailure, DeliveryOutcome, DeliveryRecord, TakenDelivery, WebhookId,
};
use millrace_layers::{LayerError, accounts, catalog};
use millrace_outgoing::CallSettings;
use millrace_storage::Read;
use serde_json::{Value, json};

use crate::tools::{Client, Region};

/// Somebody with a webhook, where it is, and the number of its broker.
async fn with_webhook(region: &Region) -> (Client, String, u64) {
    let ann = region.person().await;
    let broker = ann.broker().await;
    let path = format!("{broker}/webhooks/orders");
    let body = json!({ "url": "https://a.test", "events": ["message", "limit_reached"], "filters": ["a/#"] });
    ann.put(&path, "", body).await.is(StatusCode::CREATED);
    let name = broker.rsplit('/').next().unwrap().as_bytes();
    let find = async |tx| -> Result<u64, LayerError> {
        Ok(catalog::get(&tx, name, Read::Snapshot).await?.unwrap().id)
    };
    let id = region.store.run(find).await.unwrap();
    (ann, path, id)
}

/// Refuses what is to be sent next; the event.
async fn refuse(region: &Region, broker: u64, status: u16) -> Value {
    let hook = WebhookId { broker, name: "orders" };
    let limit = ReadLimit { entries: 1, bytes: 1 };
    let taken = region.store.run(|tx| async move { webhooks::take(&tx, hook, "pod", 1, limit).await }).await;
    let TakenDelivery::Work(work) = taken.unwrap() else { panic!("nothing is to be sent") };
    let failure =
        DeliveryFailure { at_ms: 5, status: Some(status), reason: "no".into(), signed_by: vec![2, 1] };
    let outcome = DeliveryOutcome::Failed { failure, next_attempt_ms: 9 };
    let made = DeliveryRecord {
        at_ms: 5,
        duration_ms: 3,
        event: "e".into(),
        kind: "millrace.webhook.test".into(),
        events: 1,
        attempt: 1,
        status: Some(status),
        error: Some("no".into()),
        ..DeliveryRecord::default()
    };
    let (told, settled) = (&work, (&outcome, Some(&made)));
    let settle = |tx| async move { webhooks::settle(&tx, hook, told, settled, 5).await };
    region.store.run(settle).await.unwrap();
    serde_json::from_slice(&work.letter.unwrap().event).unwrap()
}

async fn letters(ann: &Client, path: &str) -> Vec<Value> {
    ann.get(&format!("{path}/dead-letters")).await.is(StatusCode::OK).body["items"]
        .as_array()
        .unwrap()
        .clone()
}

async fn post(ann: &Client, path: &str) -> crate::tools::Answer {
    ann.send(Method::POST, path, None).await
}

#[tokio::test]
async fn a_test_event_that_is_refused_is_a_dead_letter_that_can_be_sent_again_and_removed() {
    let region = Region::new().await;
    let (ann, path, broker) = with_webhook(&region).await;
    let status = ann.get(&format!("{path}/status")).await;
    assert_eq!((&status.body["dead_letters"], &status.body["last_failure"]), (&json!(0), &Value::Null));
    for _ in 0..2 {
        post(&ann, &format!("{path}/test")).await.is(StatusCode::ACCEPTED);
        let event = refuse(&region, broker, 503).await;
        assert_eq!(
            (&event["type"], &event["data"]["webhook"]),
            (&json!("millrace.webhook.test"), &json!("orders"))
        );
    }
    let status = ann.get(&format!("{path}/status")).await;
    assert_eq!(
        (&status.body["dead_letters"], &status.body["last_failure"]["status"]),
        (&json!(2), &json!(503))
    );
    let found = letters(&ann, &path).await;
    assert_eq!((found.len(), &found[0]["attempts"], &found[0]["is_retried"]), (2, &json!(1), &json!(false)));
    let one = format!("{path}/dead-letters/{}", found[0]["id"].as_str().unwrap());
    post(&ann, &format!("{one}/retry")).await.is(StatusCode::ACCEPTED);
    assert_eq!(letters(&ann, &path).await[0]["is_retried"], true);
    refuse(&region, broker, 410).await;
    assert_eq!(letters(&ann, &path).await[0]["failure"]["status"], 410);
    ann.delete(&one).await.is(StatusCode::NO_CONTENT);
    ann.delete(&one).await.is(StatusCode::NOT_FOUND);
    post(&ann, &format!("{one}/retry")).await.is(StatusCode::NOT_FOUND);
    let all = post(&ann, &format!("{path}/dead-letters/retry")).await;
    assert_eq!(all.is(StatusCode::ACCEPTED).body["count"], 1);
    let removed = ann.delete(&format!("{path}/dead-letters")).await;
    assert_eq!(
        (removed.is(StatusCode::OK).body["count"].clone(), letters(&ann, &path).await.len()),
        (json!(1), 0)
    );
    let log = ann.get(&ann.own("/audit?limit=200")).await;
    let done = log.column("action").into_iter().filter(|action| action.starts_with("webhook.")).count();
    assert_eq!(done, 7, "{log:?}");
}

#[tokio::test]
async fn what_is_kept_of_a_webhook_goes_with_it() {
    let region = Region::new().await;
    let (ann, path, broker) = with_webhook(&region).await;
    post(&ann, &format!("{path}/test")).await.is(StatusCode::ACCEPTED);
    refuse(&region, broker, 500).await;
    ann.delete(&path).await.is(StatusCode::NO_CONTENT);
    for of in ["status", "dead-letters"] {
        ann.get(&format!("{path}/{of}")).await.is(StatusCode::NOT_FOUND);
    }
    post(&ann, &format!("{path}/test")).await.is(StatusCode::NOT_FOUND);
    let body = json!({ "url": "https://b.test", "events": ["connect"] });
    ann.put(&path, "", body).await.is(StatusCode::CREATED);
    assert!(letters(&ann, &path).await.is_empty());
}

#[tokio::test]
async fn dead_letters_come_page_by_page() {
    let region = Region::new().await;
    let (ann, path, broker) = with_webhook(&region).await;
    for _ in 0..3 {
        post(&ann, &format!("{path}/test")).await.is(StatusCode::ACCEPTED);
        refuse(&region, broker, 500).await;
    }
    let first = ann.get(&format!("{path}/dead-letters?limit=2")).await;
    let cursor = first.text("/next_cursor");
    let second = ann.get(&format!("{path}/dead-letters?limit=2&cursor={cursor}")).await;
    let ids = [first.column("id"), second.column("id")].concat();
    let all: Vec<Value> = letters(&ann, &path).await;
    let all: Vec<&str> = all.iter().map(|letter| letter["id"].as_str().unwrap()).collect();
    assert_eq!(ids, all);
    ann.get(&format!("{path}/dead-letters?cursor=eA")).await.is(StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_filter_that_is_none_of_topics_is_refused() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    for filter in ["", "a#", "$share/g/a", "$SYS/#", "$SYS"] {
        let body = json!({ "url": "https://a.test", "events": ["message"], "filters": [filter] });
        let answer = ann.put(&format!("{broker}/webhooks/one"), "", body).await;
        assert_eq!(answer.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), "filters[0]");
    }
    let body = json!({ "url": "https://a.test", "events": ["connect"], "batch_max": 101 });
    ann.put(&format!("{broker}/webhooks/one"), "", body).await.is(StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_url_that_no_server_would_call_is_refused_when_it_is_stored() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    for url in
        ["http://127.0.0.1:1/", "https://169.254.169.254/latest", "https://[::1]/", "https://localhost/"]
    {
        let hook = json!({ "url": url, "events": ["connect"] });
        let issuer = json!({ "algorithms": ["RS256"], "key": { "kind": "jwks", "url": url } });
        let access = json!({ "webhook": { "url": url } });
        for (path, field, body) in [
            ("webhooks/one", "url", hook),
            ("jwt-issuers/one", "key.url", issuer),
            ("access", "webhook.url", access),
        ] {
            let condition = if path == "access" { "*" } else { "" };
            let answer = ann.put(&format!("{broker}/{path}"), condition, body).await;
            answer.is(StatusCode::UNPROCESSABLE_ENTITY);
            assert_eq!(answer.text("/fields/0/field"), field, "{url}: {}", answer.body);
            assert!(answer.text("/fields/0/detail").contains("private or loopback"), "{}", answer.body);
        }
    }
    let plain = json!({ "url": "http://8.8.8.8/", "events": ["connect"] });
    let answer = ann.put(&format!("{broker}/webhooks/one"), "", plain).await;
    assert_eq!(answer.text("/fields/0/detail"), "must start with https://", "{}", answer.body);
    let named = json!({ "url": "https://10.0.0.1.nip.io/", "events": ["connect"] });
    ann.put(&format!("{broker}/webhooks/one"), "", named).await.is(StatusCode::CREATED);
}

#[tokio::test]
async fn a_network_that_the_operator_allows_may_be_stored() {
    let region = Region::new().await;
    let allow = vec!["127.0.0.0/8".parse().unwrap()];
    region.control.calls_by(CallSettings { allow, ..CallSettings::default() });
    let ann = region.person().await;
    let broker = ann.broker().await;
    let path = format!("{broker}/webhooks/one");
    let hook = |url: &str| json!({ "url": url, "events": ["connect"] });
    ann.put(&path, "", hook("http://127.0.0.1:1/")).await.is(StatusCode::CREATED);
    ann.put(&path, "*", hook("http://10.0.0.1/")).await.is(StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_stored_url_stays_when_the_operator_allows_its_network_no_more() {
    let region = Region::new().await;
    let (ann, path, id) = with_webhook(&region).await;
    let mut stored = stored(&region, id).await;
    stored.url = "http://127.0.0.1:1/".into();
    let written = region.store.run(|tx| {
        let stored = stored.clone();
        async move { accounts::webhooks(id).put(&tx, b"orders", &stored).await }
    });
    written.await.unwrap();
    let hook = |url: &str| json!({ "url": url, "events": ["connect"] });
    ann.put(&path, "*", hook("http://127.0.0.1:1/")).await.is(StatusCode::NO_CONTENT);
    ann.put(&path, "*", hook("http://127.0.0.1:2/")).await.is(StatusCode::UNPROCESSABLE_ENTITY);
}

async fn stored(region: &Region, broker: u64) -> Webhook {
    let read = region.store.run(|tx| async move {
        accounts::webhooks(broker).get::<Webhook>(&tx, b"orders", Read::Snapshot).await
    });
    read.await.unwrap().unwrap().value
}

#[tokio::test]
async fn a_rotated_key_and_the_previous_one_sign_until_the_overlap_ends() {
    let region = Region::new().await;
    let (ann, path, broker) = with_webhook(&region).await;
    let rotate = format!("{path}/rotate-key");
    let now_ms = 1_000_000_000_000_u64;
    let signs = |webhook: &Webhook, at_ms: u64| {
        let keys = webhook.keys(at_ms);
        keys.into_iter().map(|(number, key)| (number, key.expose().to_owned())).collect::<Vec<_>>()
    };

    let first = ann.post(&rotate, json!({ "signing_key": "chosen" })).await;
    let expected = json!({
        "key_number": 1, "previous_key_number": null, "previous_key_until_ms": null, "signing_key": null,
    });
    assert_eq!(first.is(StatusCode::OK).body, expected);
    assert_eq!(signs(&stored(&region, broker).await, now_ms), [(1, "chosen".to_owned())]);

    let named = ann.with("idempotency-key", "k");
    let second = named.post(&rotate, json!({ "overlap_s": 60 })).await;
    assert!(second.is(StatusCode::OK).headers.contains_key("millrace-in-force-at-ms"));
    let made = second.text("/signing_key").to_owned();
    assert_eq!(named.post(&rotate, json!({ "overlap_s": 60 })).await.body, second.body);
    let webhook = stored(&region, broker).await;
    let both = [(2, made.clone()), (1, "chosen".to_owned())];
    assert_eq!(signs(&webhook, now_ms + 59_999), both);
    assert_eq!(signs(&webhook, now_ms + 60_000), both[..1]);

    // An unrelated change keeps both, and so does the same key once more.
    for key in [Value::Null, json!(made)] {
        let mut body = json!({ "url": "https://b.test", "events": ["message"], "filters": ["a/#"] });
        if key.is_string() {
            body["signing_key"] = key;
        }
        ann.put(&path, "*", body).await.is(StatusCode::NO_CONTENT);
        assert_eq!(signs(&stored(&region, broker).await, now_ms), both);
    }
    let status = ann.get(&format!("{path}/status")).await;
    let shown = ["key_number", "previous_key_number", "previous_key_until_ms", "signed_by"]
        .map(|name| status.body[name].clone());
    assert_eq!(shown, [json!(2), json!(1), json!(now_ms + 60_000), json!([])]);
    post(&ann, &format!("{path}/test")).await.is(StatusCode::ACCEPTED);
    refuse(&region, broker, 401).await;
    assert_eq!(letters(&ann, &path).await[0]["failure"]["signed_by"], json!([2, 1]));

    region.clock.move_on(60_000);
    let status = ann.get(&format!("{path}/status")).await;
    assert_eq!((&status.body["key_number"], &status.body["previous_key_number"]), (&json!(2), &Value::Null));
    // A key that is set as a whole has no overlap, and no number is used twice.
    let mut body =
        json!({ "url": "https://b.test", "events": ["message"], "filters": ["a/#"], "signing_key": "" });
    ann.put(&path, "*", body.clone()).await.is(StatusCode::NO_CONTENT);
    assert_eq!(signs(&stored(&region, broker).await, now_ms), []);
    body["signing_key"] = json!("third");
    ann.put(&path, "*", body).await.is(StatusCode::NO_CONTENT);
    assert_eq!(signs(&stored(&region, broker).await, now_ms), [(3, "third".to_owned())]);

    for (body, field) in [
        (json!({ "overlap_s": 2_592_001 }), "overlap_s"),
        (json!({ "signing_key": "" }), "signing_key"),
        (json!({ "signing_key": "x".repeat(1_025) }), "signing_key"),
    ] {
        let answer = ann.post(&rotate, body).await;
        assert_eq!(answer.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), field);
    }
    let log = ann.get(&ann.own("/audit")).await;
    assert!(log.column("action").contains(&"webhook.rotate_key"));
    for secret in ["chosen", "third", &made] {
        assert!(!log.body.to_string().contains(secret), "the log shows {secret}");
    }
}

#[tokio::test]
async fn a_rotation_does_not_remove_a_previous_key_that_is_still_in_force() {
    let region = Region::new().await;
    let (ann, path, broker) = with_webhook(&region).await;
    let rotate = format!("{path}/rotate-key");
    let numbers = |webhook: &Webhook, at_ms: u64| {
        webhook.keys(at_ms).into_iter().map(|(number, _)| number).collect::<Vec<_>>()
    };
    let now_ms = 1_000_000_000_000_u64;
    ann.post(&rotate, json!({ "signing_key": "first" })).await.is(StatusCode::OK);
    ann.post(&rotate, json!({ "overlap_s": 60 })).await.is(StatusCode::OK);
    let refused = ann.post(&rotate, json!({ "overlap_s": 3_600 })).await;
    let detail = refused.is(StatusCode::CONFLICT).text("/detail");
    assert!(detail.contains("1000000060000") && detail.contains("overlap_s"), "{detail}");
    assert_eq!(numbers(&stored(&region, broker).await, now_ms), [2, 1]);
    // Without an overlap both end at once, as after a leak.
    ann.post(&rotate, json!({})).await.is(StatusCode::OK);
    assert_eq!(numbers(&stored(&region, broker).await, now_ms), [3]);
    ann.post(&rotate, json!({ "overlap_s": 60 })).await.is(StatusCode::OK);
    region.clock.move_on(60_000);
    ann.post(&rotate, json!({ "overlap_s": 60 })).await.is(StatusCode::OK);
    assert_eq!(numbers(&stored(&region, broker).await, now_ms + 60_000), [5, 4]);
}

#[tokio::test]
async fn attempts_are_listed_the_latest_first_to_those_who_may_see_the_webhook() {
    let region = Region::new().await;
    let (ann, path, broker) = with_webhook(&region).await;
    let log = format!("{path}/deliveries");
    assert_eq!(ann.get(&log).await.is(StatusCode::OK).body, json!({ "items": [], "next_cursor": null }));
    for status in [503, 500] {
        post(&ann, &format!("{path}/test")).await.is(StatusCode::ACCEPTED);
        refuse(&region, broker, status).await;
    }
    let latest = json!({
        "number": 2, "at_ms": 5, "duration_ms": 3, "event_id": "e", "event_type": "millrace.webhook.test",
        "events": 1, "attempt": 1, "status": 500, "error": "no",
    });
    let items = ann.get(&log).await.is(StatusCode::OK).body["items"].clone();
    assert_eq!((&items[0], &items[1]["status"]), (&latest, &json!(503)));
    let bob = region.person().await;
    bob.get(&log).await.is(StatusCode::NOT_FOUND);
    ann.delete(&path).await.is(StatusCode::NO_CONTENT);
    ann.get(&log).await.is(StatusCode::NOT_FOUND);
}
