//! Brokers: the way of a new tenant, changes, and what is left of a deleted one.

use axum::http::StatusCode;
use millrace_control::Erasures;
use millrace_layers::{accounts, catalog};
use millrace_storage::Read;
use serde_json::{Value, json};

use crate::tools::{Answer, Region};

#[tokio::test]
async fn a_new_tenant_has_a_broker_and_a_credential_after_three_requests_and_all_is_in_the_log() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let made = ann.post(&format!("{broker}/credentials"), json!({ "user": "pump-7" })).await;
    made.is(StatusCode::CREATED);
    assert_eq!(made.text("/secret").len(), 35);

    let all = ann.get(&format!("{broker}/credentials")).await;
    assert_eq!(all.is(StatusCode::OK).column("user"), ["pump-7"]);
    assert!(!all.body.to_string().contains(made.text("/secret")), "it is shown once");
    let brokers = ann.get(&ann.own("/brokers")).await;
    assert_eq!(brokers.is(StatusCode::OK).column("display_name"), ["Plant"]);
    let log = ann.get(&ann.own("/audit")).await;
    let actions = log.is(StatusCode::OK).column("action");
    assert_eq!(actions, ["credential.create", "broker.create", "organisation.create"]);
    assert!(!log.body.to_string().contains(made.text("/secret")));
}

#[tokio::test]
async fn a_broker_is_changed_only_by_who_has_seen_it() {
    let ann = Region::new().await.person().await;
    let broker = ann.broker().await;
    let first = ann.get(&broker).await.etag();
    let change = json!({ "display_name": "Plant 8", "limits": { "broker": { "connections": 5 } } });
    let changed = ann.patch(&broker, &first, change.clone()).await;
    changed.is(StatusCode::OK);
    assert_eq!(changed.text("/display_name"), "Plant 8");
    assert_eq!(changed.body["limits"]["broker"]["connections"], 5);
    assert_ne!(changed.etag(), first);
    ann.patch(&broker, &first, change.clone()).await.is(StatusCode::PRECONDITION_FAILED);
    ann.send(axum::http::Method::PATCH, &broker, Some(change.clone()))
        .await
        .is(StatusCode::PRECONDITION_REQUIRED);
    let now = changed.etag().trim_matches('"').to_owned();
    for other in ["x", "", &format!("+{now}"), &format!("0{now}"), &format!(" {now}")] {
        let refused = ann.patch(&broker, &format!("\"{other}\""), change.clone()).await;
        refused.is(StatusCode::PRECONDITION_FAILED);
    }
    ann.patch(&broker, "x", change).await.is(StatusCode::BAD_REQUEST);
    let again = ann.patch(&broker, &changed.etag(), json!({ "display_name": "Plant 9" })).await;
    assert_eq!(again.is(StatusCode::OK).body["limits"]["broker"]["connections"], 5);
}

#[tokio::test]
async fn a_broker_is_suspended_and_resumed_where_the_pods_read_it() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let name = ann.get(&broker).await.text("/name").to_owned();
    for (what, suspended) in [("suspend", true), ("resume", false)] {
        let answer = ann.send(axum::http::Method::POST, &format!("{broker}/{what}"), None).await;
        assert_eq!(answer.is(StatusCode::OK).body["suspended"], suspended);
        let name = name.as_bytes();
        let stored =
            region.store.run(|tx| async move { catalog::get(&tx, name, Read::Snapshot).await }).await;
        assert_eq!(stored.unwrap().unwrap().details().unwrap().value.suspended, suspended);
    }
}

#[tokio::test]
async fn a_deleted_broker_is_gone_at_once_and_nothing_is_left_of_it() {
    let region = Region::new().await;
    let ann = region.person().await;
    let (broker, other) = (ann.broker().await, ann.broker().await);
    let name = ann.get(&broker).await.text("/name").to_owned();
    for user in ["a", "b"] {
        ann.post(&format!("{broker}/credentials"), json!({ "user": user })).await.is(StatusCode::CREATED);
        ann.post(&format!("{other}/credentials"), json!({ "user": user })).await.is(StatusCode::CREATED);
    }
    let find = async || {
        let name = name.as_bytes();
        region.store.run(|tx| async move { catalog::get(&tx, name, Read::Snapshot).await }).await.unwrap()
    };
    let id = find().await.unwrap().id;
    ann.delete(&broker).await.is(StatusCode::NO_CONTENT);
    ann.get(&broker).await.is(StatusCode::NOT_FOUND);
    ann.get(&format!("{broker}/credentials")).await.is(StatusCode::NOT_FOUND);
    assert!(find().await.is_none());

    assert_eq!(
        region.control.erase(&mut Erasures::default(), 1_000).await.unwrap(),
        0,
        "pods are to see first that it is gone"
    );
    // `ERASE_AFTER_MS`, and below `ERASE_AGAIN_MS`.
    region.clock.move_on(5_000);
    // A pod that had the broker open may write for a while, so the broker is erased again until that is over.
    assert!(region.control.erase(&mut Erasures::default(), 1_000).await.unwrap() > 0);
    region.store.run(|tx| async move { accounts::touch(&tx, id) }).await.unwrap();
    assert_eq!(region.control.erase(&mut Erasures::default(), 1_000).await.unwrap(), 1);
    region.clock.move_on(10 * 60 * 1_000);
    assert_eq!(region.control.erase(&mut Erasures::default(), 1_000).await.unwrap(), 0);
    let condemned = region.store.run(|tx| async move { catalog::condemned(&tx, 0, 9).await }).await.unwrap();
    assert_eq!(condemned, []);
    let left = ann.get(&format!("{other}/credentials")).await;
    assert_eq!(left.is(StatusCode::OK).column("user"), ["a", "b"]);
}

#[tokio::test]
async fn an_organisation_has_a_hundred_brokers_and_they_come_in_pages() {
    let ann = Region::new().await.person().await;
    for _ in 0..100 {
        ann.broker().await;
    }
    let more = ann.post(&ann.own("/brokers"), json!({ "display_name": "one more" })).await;
    more.is(StatusCode::CONFLICT);
    let (mut names, mut query) = (Vec::new(), "?limit=30".to_owned());
    loop {
        let page = ann.get(&ann.own(&format!("/brokers{query}"))).await;
        names.extend(page.is(StatusCode::OK).column("name").into_iter().map(str::to_owned));
        match page.body["next_cursor"].as_str() {
            Some(cursor) => query = format!("?limit=30&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(names.len(), 100);
    assert!(names.is_sorted_by(|a, b| a < b));
}

#[tokio::test]
async fn an_organisation_goes_only_without_brokers() {
    let ann = Region::new().await.person().await;
    let broker = ann.broker().await;
    ann.delete(&ann.own("")).await.is(StatusCode::CONFLICT);
    ann.delete(&broker).await.is(StatusCode::NO_CONTENT);
    ann.delete(&ann.own("")).await.is(StatusCode::NO_CONTENT);
    ann.get(&ann.own("")).await.is(StatusCode::NOT_FOUND);
    assert_eq!(ann.get("/me").await.body["organisations"], json!([]));
}

#[tokio::test]
async fn limits_that_are_left_out_stay_and_unknown_ones_are_refused() {
    let ann = Region::new().await.person().await;
    let broker = ann.broker().await;
    let patch = async |limits: Value| ann.patch(&broker, "*", json!({ "limits": limits })).await;
    let first =
        json!({ "broker": { "connections": 5 }, "client": { "packet_bytes": 1000, "subscriptions": 2 } });
    patch(first).await.is(StatusCode::OK);
    let second = patch(json!({ "client": { "subscriptions": null, "queue_messages": 3 } })).await;
    let limits = &second.is(StatusCode::OK).body["limits"];
    assert_eq!(limits["broker"]["connections"], 5);
    assert_eq!(
        [
            &limits["client"]["packet_bytes"],
            &limits["client"]["subscriptions"],
            &limits["client"]["queue_messages"]
        ],
        [&json!(1000), &Value::Null, &json!(3)]
    );
    for (wrong, field) in [
        (json!({ "broker": { "conections": 5 } }), "limits.broker.conections"),
        (json!({ "brokers": {} }), "limits.brokers"),
        (json!({ "broker": { "connections": "5" } }), "limits.broker.connections"),
        (json!({ "broker": { "publishes_per_s": 0 } }), "limits.broker.publishes_per_s"),
    ] {
        let answer = patch(wrong).await;
        assert_eq!(answer.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), field);
    }
    let cleared = patch(json!({ "broker": null, "client": null })).await;
    assert_eq!(cleared.is(StatusCode::OK).body["limits"]["client"]["packet_bytes"], Value::Null);
}

#[tokio::test]
async fn a_misspelt_field_of_a_rule_is_refused_with_its_name() {
    let ann = Region::new().await.person().await;
    let broker = ann.broker().await;
    let rule = json!({ "effect": "allow", "action": "publish", "filter": "#", "retian": false });
    for (path, body) in [("access", json!({ "rules": [rule] })), ("groups/g", json!({ "rules": [rule] }))] {
        let seen = if path == "access" { "*" } else { "" };
        let answer = ann.put(&format!("{broker}/{path}"), seen, body).await;
        assert_eq!(answer.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), "rules[0].retian");
    }
    let credential = json!({ "user": "a", "rules": [rule] });
    let answer = ann.post(&format!("{broker}/credentials"), credential).await;
    assert_eq!(answer.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), "rules[0].retian");
}

#[tokio::test]
async fn an_answer_to_a_change_that_pods_read_says_from_when_it_is_in_force() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let at = |answer: &Answer| {
        let at = answer.headers.get("millrace-in-force-at-ms")?;
        at.to_str().unwrap().parse::<u64>().ok()
    };
    let rules = json!({ "rules": [{ "effect": "allow", "action": "publish", "filter": "a" }] });
    let put = async || ann.put(&format!("{broker}/access"), "*", rules.clone()).await;
    let first = put().await;
    let first = at(first.is(StatusCode::OK)).unwrap();
    region.clock.move_on(1_000);
    assert_eq!(at(&put().await), Some(first + 1_000));
    // Servers read changes twice a second.
    assert!((1_000_000_000_500..1_000_000_010_000).contains(&first), "{first}");
    let limits = json!({ "limits": { "broker": { "connections": 5 } } });
    assert!(at(&ann.patch(&broker, "*", limits.clone()).await).is_some());
    assert!(at(&ann.post(&format!("{broker}/credentials"), json!({ "user": "pump" })).await).is_some());
    assert!(at(&ann.delete(&format!("{broker}/credentials/pump")).await).is_some());
    assert_eq!(at(&ann.get(&format!("{broker}/access")).await), None);
    assert_eq!(at(&ann.patch(&broker, "\"0\"", limits).await), None, "it was refused");
    assert_eq!(at(&ann.post(&ann.own("/brokers"), json!({ "display_name": "B" })).await), None);
}

/// A large and a small broker that are to be erased, and the id of the large one.
async fn large_and_small(region: &Region) -> u64 {
    let ann = region.person().await;
    let (large, small) = (ann.broker().await, ann.broker().await);
    let name = ann.get(&large).await.text("/name").to_owned();
    let name = name.as_bytes();
    let find = region.store.run(|tx| async move { catalog::get(&tx, name, Read::Snapshot).await });
    let id = find.await.unwrap().unwrap().id;
    for part in 0..5_u32 {
        let filled = region.store.run(|tx| async move {
            for number in 0..1_000 {
                accounts::credentials(id).put(&tx, format!("{part}-{number}").as_bytes(), &json!({})).await?;
            }
            Ok(())
        });
        filled.await.unwrap();
    }
    for broker in [&large, &small] {
        ann.delete(broker).await.is(StatusCode::NO_CONTENT);
    }
    region.clock.move_on(5_000);
    id
}

#[tokio::test]
async fn a_round_erases_a_bounded_number_of_keys_and_the_next_one_continues() {
    let region = Region::new().await;
    let id = large_and_small(&region).await;
    let mut erasures = Erasures::default();
    // One transaction for each broker.
    let first = region.control.erase(&mut erasures, 5).await.unwrap();
    assert!((2_001..3_000).contains(&first), "{first}");
    assert_eq!(erasures.unfinished.keys().copied().collect::<Vec<_>>(), [id]);
    let mut all = first;
    while !erasures.unfinished.is_empty() {
        all += region.control.erase(&mut erasures, 5).await.unwrap();
    }
    assert!(all > 5_000, "{all}");
    assert_eq!(region.control.erase(&mut erasures, 5).await.unwrap(), 0);
}

#[tokio::test]
async fn a_small_deleted_broker_waits_for_one_round_of_a_large_one() {
    let region = Region::new().await;
    large_and_small(&region).await;
    let mut erasures = Erasures::default();
    let mut rounds = Vec::new();
    for _ in 0..9 {
        rounds.push(region.control.erase(&mut erasures, 1).await.unwrap());
    }
    // A round that comes to the end of the list erases nothing.
    assert_eq!((rounds[0], rounds[2], rounds[3]), (2_000, 0, 2_000), "{rounds:?}");
    assert!((1..1_000).contains(&rounds[1]), "{rounds:?}");
    assert!(rounds.iter().sum::<usize>() > 5_000, "{rounds:?}");
}

#[tokio::test]
async fn brokers_with_nothing_to_erase_take_part_of_a_round_once() {
    let region = Region::new().await;
    let ann = region.person().await;
    let mut erasures = Erasures::default();
    let delete = async |number: usize| {
        for _ in 0..number {
            ann.delete(&ann.broker().await).await.is(StatusCode::NO_CONTENT);
        }
        region.clock.move_on(5_000);
    };
    delete(2).await;
    while region.control.erase(&mut erasures, 100).await.unwrap() > 0 {}
    delete(1).await;
    assert_eq!(
        region.control.erase(&mut Erasures::default(), 2).await.unwrap(),
        0,
        "the first two take the round"
    );
    assert!(region.control.erase(&mut erasures, 2).await.unwrap() > 0, "their last pass is later");
}
