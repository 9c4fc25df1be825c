//! Credentials: what the pods will check, rotation, and what may be wrong.

use axum::http::StatusCode;
use millrace_access::model::{Credential, Secret};
use millrace_access::scram;
use millrace_access::secrets::generated::HashKeys;
use millrace_layers::{accounts, accounts::keys, catalog};
use millrace_storage::Read;
use serde_json::json;

use crate::tools::{Client, Region};

pub(crate) async fn stored(region: &Region, ann: &Client, broker: &str, user: &str) -> Credential {
    let name = ann.get(broker).await.text("/name").to_owned();
    let (name, user) = (name.as_bytes(), user.as_bytes());
    let read = region.store.run(|tx| async move {
        let id = catalog::get(&tx, name, Read::Snapshot).await?.unwrap().id;
        accounts::credentials(id).get(&tx, user, Read::Snapshot).await
    });
    read.await.unwrap().unwrap().value
}

/// Whether a generated secret is the one of a stored hash, as a pod finds out.
pub(crate) async fn opens(region: &Region, stored: &Secret, secret: &str) -> bool {
    let keys = region.store.run(|tx| async move { keys::get(&tx, Read::Snapshot).await }).await.unwrap();
    let keys = HashKeys::new(keys.iter().map(|key| (key.id, key.key))).unwrap();
    matches!(stored, Secret::Generated { key, hash } if keys.verify(*key, hash, secret.as_bytes()))
}

#[tokio::test]
async fn a_made_password_opens_what_the_pods_read_and_a_rotation_leaves_the_former_one_for_a_while() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let made = json!({ "user": "a/b ü", "scram": true });
    let made = ann.post(&format!("{broker}/credentials"), made).await;
    let first = made.is(StatusCode::CREATED).text("/secret").to_owned();
    assert!(opens(&region, &stored(&region, &ann, &broker, "a/b ü").await.secret.unwrap(), &first).await);

    let path = format!("{broker}/credentials/a%2Fb%20%C3%BC");
    let rotated = ann.post(&format!("{path}/rotate"), json!({ "overlap_s": 60 })).await;
    let second = rotated.is(StatusCode::OK).text("/secret").to_owned();
    assert_ne!(first, second);
    let record = stored(&region, &ann, &broker, "a/b ü").await;
    let verifier = record.scram.unwrap();
    assert_eq!(scram::verifier(&second, verifier.salt.0), verifier);
    assert!(opens(&region, &record.secret.unwrap(), &second).await);
    let previous = record.previous_secret.unwrap();
    assert!(opens(&region, &previous.secret, &first).await);
    assert_eq!(previous.until_ms, 1_000_000_060_000);

    ann.post(&format!("{path}/rotate"), json!({})).await.is(StatusCode::OK);
    assert_eq!(stored(&region, &ann, &broker, "a/b ü").await.previous_secret, None);
    let too_long = json!({ "overlap_s": 2_592_001 });
    ann.post(&format!("{path}/rotate"), too_long).await.is(StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_second_rotation_does_not_end_a_previous_password_that_devices_may_still_use() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let made = ann.post(&format!("{broker}/credentials"), json!({ "user": "a" })).await;
    let first = made.is(StatusCode::CREATED).text("/secret").to_owned();
    let rotate = format!("{broker}/credentials/a/rotate");
    ann.post(&rotate, json!({ "overlap_s": 60 })).await.is(StatusCode::OK);
    let refused = ann.post(&rotate, json!({ "overlap_s": 3_600 })).await;
    let detail = refused.is(StatusCode::CONFLICT).text("/detail");
    assert!(detail.contains("1000000060000") && detail.contains("overlap_s"), "{detail}");
    let previous = stored(&region, &ann, &broker, "a").await.previous_secret.unwrap();
    assert!(opens(&region, &previous.secret, &first).await);

    // Without an overlap both end at once, as after a leak.
    ann.post(&rotate, json!({})).await.is(StatusCode::OK);
    assert_eq!(stored(&region, &ann, &broker, "a").await.previous_secret, None);
    ann.post(&rotate, json!({ "overlap_s": 60 })).await.is(StatusCode::OK);
    region.clock.move_on(60_000);
    ann.post(&rotate, json!({ "overlap_s": 60 })).await.is(StatusCode::OK);
}

#[tokio::test]
async fn only_who_asks_for_scram_has_a_verifier_stored() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let all = format!("{broker}/credentials");
    for (user, more) in [
        ("made", json!({})),
        ("chosen", json!({ "password": "of the device" })),
        ("made-scram", json!({ "scram": true })),
        ("chosen-scram", json!({ "password": "of the device", "scram": true })),
    ] {
        let has_scram = user.ends_with("scram");
        let mut body = json!({ "user": user });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = ann.post(&all, body).await;
        assert_eq!(made.is(StatusCode::CREATED).body["scram"], has_scram, "{user}");
        let verifier = stored(&region, &ann, &broker, user).await.scram;
        assert_eq!(verifier.is_some(), has_scram, "{user}");
        // RFC 7677 section 4: a tenth of a second of a modern machine.
        assert!(verifier.is_none_or(|verifier| verifier.iterations >= 100_000), "{user}");

        // A rotation leaves it as it is, or changes it.
        for (wanted, expected) in [(json!({}), has_scram), (json!({ "scram": !has_scram }), !has_scram)] {
            let rotated = ann.post(&format!("{all}/{user}/rotate"), wanted).await;
            assert_eq!(rotated.is(StatusCode::OK).body["scram"], expected, "{user}");
            assert_eq!(stored(&region, &ann, &broker, user).await.scram.is_some(), expected, "{user}");
        }
    }
}

#[tokio::test]
async fn a_broker_has_no_more_credentials_than_it_may() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let all = format!("{broker}/credentials");
    let name = ann.get(&broker).await.text("/name").to_owned();
    let name = name.as_bytes();
    let fill = region.store.run(|tx| async move {
        let id = catalog::get(&tx, name, Read::Snapshot).await?.unwrap().id;
        accounts::count_credentials(&tx, id, 99_999)
    });
    fill.await.unwrap();
    ann.post(&all, json!({ "user": "last" })).await.is(StatusCode::CREATED);
    ann.post(&all, json!({ "user": "more" })).await.is(StatusCode::CONFLICT);
    ann.delete(&format!("{all}/last")).await.is(StatusCode::NO_CONTENT);
    ann.post(&all, json!({ "user": "more" })).await.is(StatusCode::CREATED);
}

#[tokio::test]
async fn the_rules_of_all_credentials_of_a_broker_have_a_bound() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let name = ann.get(&broker).await.text("/name").to_owned();
    let name = name.as_bytes();
    let all = format!("{broker}/credentials");
    let rules = json!([{ "effect": "allow", "action": "publish", "filter": "a" }]);
    let with_rules = |user: &str| json!({ "user": user, "rules": rules });
    ann.post(&all, with_rules("first")).await.is(StatusCode::CREATED);
    let fill = region.store.run(|tx| async move {
        let id = catalog::get(&tx, name, Read::Snapshot).await?.unwrap().id;
        let counted = accounts::credential_rules(&tx, id, Read::Snapshot).await?;
        assert!((50..200).contains(&counted), "{counted}");
        accounts::count_credential_rules(&tx, id, (64 << 20) - 2 * counted)
    });
    fill.await.unwrap();
    ann.post(&all, with_rules("last")).await.is(StatusCode::CREATED);
    let refused = ann.post(&all, with_rules("more")).await;
    assert!(refused.is(StatusCode::CONFLICT).text("/detail").contains("64 MiB"));
    let batch = json!({ "devices": [{ "user": "more" }], "rules": rules });
    ann.post(&format!("{broker}/credential-batches"), batch).await.is(StatusCode::CONFLICT);
    let token = json!({ "name": "t", "user_prefix": "p", "uses_max": 9, "expires_at_ms": 1_000_100_000_000_u64, "rules": rules });
    let token = ann.post(&format!("{broker}/claim-tokens"), token).await;
    let claim = json!({ "token": token.is(StatusCode::CREATED).text("/secret"), "user": "p1" });
    let device = region.stranger().with("idempotency-key", "a-device-of-the-factory-with-number-7");
    device.post("/claim", claim.clone()).await.is(StatusCode::CONFLICT);
    ann.post(&all, json!({ "user": "none" })).await.is(StatusCode::CREATED);
    let change = |rules: &serde_json::Value| json!({ "rules": rules, "enabled": true });
    ann.put(&format!("{all}/none"), "*", change(&rules)).await.is(StatusCode::CONFLICT);
    ann.put(&format!("{all}/last"), "*", change(&json!([]))).await.is(StatusCode::OK);
    ann.put(&format!("{all}/none"), "*", change(&rules)).await.is(StatusCode::OK);
    ann.delete(&format!("{all}/first")).await.is(StatusCode::NO_CONTENT);
    device.post("/claim", claim).await.is(StatusCode::CREATED);
}

#[tokio::test]
async fn a_chosen_password_is_stored_as_argon2id_and_not_shown() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let body = json!({ "user": "old-device", "password": "swordfish" });
    let made = ann.post(&format!("{broker}/credentials"), body).await;
    assert_eq!(made.is(StatusCode::CREATED).body["secret"], json!(null));
    let Some(Secret::Chosen { phc }) = stored(&region, &ann, &broker, "old-device").await.secret else {
        panic!()
    };
    assert!(phc.expose().starts_with("$argon2id$"));
}

#[tokio::test]
async fn a_tenant_whose_passwords_are_hashed_one_after_the_other_is_told_to_come_later() {
    let region = Region::new().await;
    let (ann, bob) = (region.person().await, region.person().await);
    let (broker, other) = (ann.broker().await, bob.broker().await);
    let made = |client: Client, broker: String, number: usize| async move {
        let body = json!({ "user": format!("d{number}"), "password": "chosen and long enough" });
        client.post(&format!("{broker}/credentials"), body).await
    };
    let mut all = tokio::task::JoinSet::new();
    for number in 0..60 {
        all.spawn(made(ann.clone(), broker.clone(), number));
    }
    made(bob.clone(), other.clone(), 0).await.is(StatusCode::CREATED);
    // A generated password costs no hash, and needs no turn.
    ann.post(&format!("{broker}/credentials"), json!({ "user": "e" })).await.is(StatusCode::CREATED);
    let answers = all.join_all().await;
    let (refused, made): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status == StatusCode::TOO_MANY_REQUESTS);
    assert!(!refused.is_empty(), "60 at once are more than may wait");
    assert!(made.len() >= 33 && made.iter().all(|answer| answer.status == StatusCode::CREATED));
    assert!(refused.iter().all(|answer| answer.headers.contains_key("retry-after")));
    // Strangers use up nothing of the organisation.
    let strange = json!({ "user": "x", "password": "chosen" });
    bob.post(&format!("{broker}/credentials"), strange).await.is(StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_credential_is_disabled_with_its_rules_and_deleted() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let all = format!("{broker}/credentials");
    let made = ann.post(&all, json!({ "user": "a" })).await;
    ann.post(&all, json!({ "user": "a" })).await.is(StatusCode::CONFLICT);
    let rule =
        json!({ "effect": "allow", "action": "publish", "filter": "up/%c", "retain": true, "qos_max": 1 });
    let change = json!({ "enabled": false, "rules": [rule] });
    let path = format!("{all}/a");
    let changed = ann.put(&path, &made.etag(), change.clone()).await;
    assert_eq!(changed.is(StatusCode::OK).body["rules"], json!([rule]));
    ann.put(&path, &made.etag(), change).await.is(StatusCode::PRECONDITION_FAILED);
    let record = stored(&region, &ann, &broker, "a").await;
    assert!(!record.enabled && record.secret.is_some() && record.rules.len() == 1);
    ann.delete(&path).await.is(StatusCode::NO_CONTENT);
    ann.delete(&path).await.is(StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_is_wrong_is_named_field_by_field() {
    let ann = Region::new().await.person().await;
    let all = format!("{}/credentials", ann.broker().await);
    let rule = |filter: &str| json!({ "effect": "allow", "action": "all", "filter": filter });
    for (body, field) in [
        (json!({ "user": "" }), "user"),
        (json!({ "user": "a", "password": "" }), "password"),
        (json!({ "user": "a", "group": "nobody" }), "group"),
        (json!({ "user": "a", "rules": [rule("a"), rule("a/#/b")] }), "rules[1].filter"),
    ] {
        let answer = ann.post(&all, body).await;
        assert_eq!(answer.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), field);
    }
    let user = "x".repeat(257);
    ann.post(&all, json!({ "user": user })).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    ann.post(&all, json!({ "user": "a", "qos": 1 })).await.is(StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_change_says_from_when_on_it_is_in_force() {
    let ann = Region::new().await.person().await;
    let broker = ann.broker().await;
    let made =
        ann.post(&format!("{broker}/credentials"), json!({ "user": "a", "client_id": "pump-7" })).await;
    let at_ms: u64 = made.headers["millrace-in-force-at-ms"].to_str().unwrap().parse().unwrap();
    assert_eq!(at_ms, 1_000_000_000_000 + 2_000);
    assert_eq!(made.is(StatusCode::CREATED).text("/client_id"), "pump-7");
    let limits = ann.patch(&broker, "*", json!({ "limits": {} })).await;
    assert!(limits.is(StatusCode::OK).headers.contains_key("millrace-in-force-at-ms"));
    for answer in [
        ann.get(&format!("{broker}/credentials")).await,
        ann.post(&format!("{broker}/credentials"), json!({ "user": "a" })).await,
        ann.post(&ann.own("/tokens"), json!({ "name": "a", "scopes": ["audit:read"] })).await,
    ] {
        assert!(!answer.headers.contains_key("millrace-in-force-at-ms"), "{answer:?}");
    }
    let wrong = json!({ "user": "b", "client_id": "" });
    let answer = ann.post(&format!("{broker}/credentials"), wrong).await;
    assert_eq!(answer.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), "client_id");
}

#[tokio::test]
async fn a_new_user_name_does_not_look_like_another_one() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let (credentials, batches) = (format!("{broker}/credentials"), format!("{broker}/credential-batches"));
    for (user, status) in [
        ("dev1", StatusCode::CREATED),
        ("насос-7", StatusCode::CREATED),
        ("насос-pump", StatusCode::CREATED),
        // A Cyrillic character that looks like an e.
        ("d\u{435}v1", StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        let made = ann.post(&credentials, json!({ "user": user })).await;
        let field = made.is(status).body["fields"][0]["field"].clone();
        assert_eq!(field, if status == StatusCode::CREATED { json!(null) } else { json!("user") }, "{user}");
    }
    let many = json!({ "devices": [{ "user": "dev2" }, { "user": "d\u{435}v2" }] });
    let refused = ann.post(&batches, many).await;
    assert_eq!(refused.is(StatusCode::UNPROCESSABLE_ENTITY).body["fields"][0]["field"], "devices[1].user");
}

#[tokio::test]
async fn credentials_are_found_by_the_beginning_of_their_user_name() {
    let ann = Region::new().await.person().await;
    let (broker, other) = (ann.broker().await, ann.broker().await);
    for user in ["pump-1", "pump-2", "pumpe", "valve", "Pump-9"] {
        let made = ann.post(&format!("{broker}/credentials"), json!({ "user": user })).await;
        made.is(StatusCode::CREATED);
    }
    ann.post(&format!("{other}/credentials"), json!({ "user": "pump-3" })).await.is(StatusCode::CREATED);
    let found = async |query: &str| {
        let list = ann.get(&format!("{broker}/credentials?{query}")).await;
        let next = list.is(StatusCode::OK).body["next_cursor"].as_str().map(str::to_owned);
        (list.column("user").join(" "), next)
    };
    assert_eq!(found("search=pump-").await, ("pump-1 pump-2".into(), None));
    assert_eq!(found("search=valve").await.0, "valve");
    assert_eq!(found("search=w").await, (String::new(), None));
    assert_eq!(found("search=").await.0, "Pump-9 pump-1 pump-2 pumpe valve");
    let (first, next) = found("search=pump&limit=2").await;
    assert_eq!(first, "pump-1 pump-2");
    let next = next.unwrap();
    assert_eq!(found(&format!("search=pump&limit=2&cursor={next}")).await, ("pumpe".into(), None));
    assert_eq!(found(&format!("search=a&cursor={next}")).await.0, "", "a cursor of another search");
}

#[tokio::test]
async fn an_end_is_in_the_future_and_not_too_far_ahead() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let (now_ms, year_ms) = (1_000_000_000_000_u64, 366 * 24 * 3_600_000);
    let tokens = format!("/organisations/{}/tokens", ann.organisation);
    let (credentials, batch) = (format!("{broker}/credentials"), format!("{broker}/credential-batches"));
    let mut number = 0;
    for (ends, status) in [
        (0, StatusCode::UNPROCESSABLE_ENTITY),
        (now_ms, StatusCode::UNPROCESSABLE_ENTITY),
        (now_ms + 101 * year_ms, StatusCode::UNPROCESSABLE_ENTITY),
        (u64::MAX, StatusCode::UNPROCESSABLE_ENTITY),
        (now_ms + 1, StatusCode::CREATED),
        (now_ms + 99 * year_ms, StatusCode::CREATED),
    ] {
        number += 1;
        for (path, mut body) in [
            (&tokens, json!({ "name": "a", "scopes": ["audit:read"] })),
            (&credentials, json!({ "user": format!("one-{number}") })),
            (&batch, json!({ "devices": [{ "user": format!("two-{number}") }] })),
        ] {
            body["expires_at_ms"] = json!(ends);
            let answer = ann.post(path, body).await;
            answer.is(status);
            if status == StatusCode::UNPROCESSABLE_ENTITY {
                assert_eq!(answer.text("/fields/0/field"), "expires_at_ms", "{path}: {}", answer.body);
            }
        }
    }
    let one = format!("{credentials}/one-5");
    let change = |ends: u64, enabled: bool| json!({ "enabled": enabled, "expires_at_ms": ends });
    ann.put(&one, "*", change(now_ms - 1, true)).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    region.clock.move_on(2);
    ann.put(&one, "*", change(now_ms + 1, false)).await.is(StatusCode::OK);
}

#[tokio::test]
async fn a_page_of_long_rows_has_fewer_of_them() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let rule = |n: usize| json!({ "effect": "allow", "action": "publish", "filter": format!("{n}/{}", "x".repeat(150)) });
    let rules: Vec<_> = (0..100).map(rule).collect();
    let devices: Vec<_> = (0..70).map(|number| json!({ "user": format!("d{number:02}") })).collect();
    let batch = json!({ "devices": devices, "rules": rules });
    ann.post(&format!("{broker}/credential-batches"), batch).await.is(StatusCode::CREATED);
    let path = format!("{broker}/credentials?limit=200");
    let first = ann.get(&path).await;
    let count = first.is(StatusCode::OK).column("user").len();
    assert!((35..60).contains(&count), "{count}");
    let last = ann.get(&format!("{path}&cursor={}", first.text("/next_cursor"))).await;
    assert_eq!((count + last.column("user").len(), &last.body["next_cursor"]), (70, &json!(null)));
}
