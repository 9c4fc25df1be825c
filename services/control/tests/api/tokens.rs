//! API tokens and their scopes.

use axum::http::StatusCode;
use serde_json::json;

use crate::tools::Region;

#[tokio::test]
async fn a_token_may_what_its_scopes_say_in_its_organisation_until_it_is_deleted() {
    let region = Region::new().await;
    let (ann, bob) = (region.person().await, region.person().await);
    let broker = ann.broker().await;
    let made = ann.post(&ann.own("/tokens"), json!({ "name": "deploy", "scopes": ["brokers:read"] })).await;
    let program = ann.with_token(made.is(StatusCode::CREATED).text("/secret"));
    assert!(made.text("/secret").starts_with("mlr_"));
    program.get(&broker).await.is(StatusCode::OK);
    program.get(&format!("{broker}/credentials")).await.is(StatusCode::FORBIDDEN);
    program.post(&ann.own("/brokers"), json!({ "display_name": "x" })).await.is(StatusCode::FORBIDDEN);
    program.get(&bob.own("/brokers")).await.is(StatusCode::NOT_FOUND);
    program.get("/me").await.is(StatusCode::FORBIDDEN);

    let all = ann.get(&ann.own("/tokens")).await;
    assert_eq!(all.is(StatusCode::OK).column("name"), ["deploy"]);
    assert!(!all.body.to_string().contains(made.text("/secret")));
    let other = ann.post(&ann.own("/tokens"), json!({ "name": "other", "scopes": ["brokers:read"] })).await;
    // It may give itself up, and no other.
    program.delete(&ann.own(&format!("/tokens/{}", other.text("/id")))).await.is(StatusCode::FORBIDDEN);
    program.delete(&ann.own(&format!("/tokens/{}", made.text("/id")))).await.is(StatusCode::NO_CONTENT);
    program.get(&broker).await.is(StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_token_makes_none_that_may_more_and_expires() {
    let region = Region::new().await;
    let ann = region.person().await;
    let now = 1_000_000_000_000_u64;
    let made = ann
        .post(
            &ann.own("/tokens"),
            json!({ "name": "a", "scopes": ["organisation:write", "brokers:read"], "expires_at_ms": now + 1_000 }),
        )
        .await;
    let program = ann.with_token(made.is(StatusCode::CREATED).text("/secret"));
    let more = json!({ "name": "b", "scopes": ["brokers:write"] });
    program.post(&ann.own("/tokens"), more).await.is(StatusCode::FORBIDDEN);
    let less = json!({ "name": "b", "scopes": ["brokers:read"] });
    program.post(&ann.own("/tokens"), less.clone()).await.is(StatusCode::CREATED);
    region.clock.move_on(1_000);
    program.post(&ann.own("/tokens"), less).await.is(StatusCode::UNAUTHORIZED);
    for wrong in [json!([]), json!(["everything"])] {
        let body = json!({ "name": "c", "scopes": wrong });
        ann.post(&ann.own("/tokens"), body).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    }
}
