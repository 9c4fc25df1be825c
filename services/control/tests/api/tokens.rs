//! API tokens and their scopes.

use axum::http::StatusCode;
use serde_json::{Value, json};

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
    let own = program.get("/token").await;
    assert_eq!((own.is(StatusCode::OK).text("/name"), own.text("/id")), ("deploy", made.text("/id")));
    assert!(ann.own("").ends_with(own.text("/organisation")));
    assert_eq!(own.body["scopes"], json!(["brokers:read"]));
    assert_eq!((&own.body["secret"], &own.body["expires_at_ms"]), (&json!(null), &json!(null)));
    ann.get("/token").await.is(StatusCode::FORBIDDEN);

    let all = ann.get(&ann.own("/tokens")).await;
    assert_eq!(all.is(StatusCode::OK).column("name"), ["deploy"]);
    assert!(!all.body.to_string().contains(made.text("/secret")));
    let other = ann.post(&ann.own("/tokens"), json!({ "name": "other", "scopes": ["brokers:read"] })).await;
    // It may give itself up, and no other.
    program.delete(&ann.own(&format!("/tokens/{}", other.text("/id")))).await.is(StatusCode::FORBIDDEN);
    program.delete(&ann.own(&format!("/tokens/{}", made.text("/id")))).await.is(StatusCode::NO_CONTENT);
    program.get(&broker).await.is(StatusCode::UNAUTHORIZED);
    program.get("/token").await.is(StatusCode::UNAUTHORIZED);
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
    let made = program.post(&ann.own("/tokens"), less.clone()).await;
    assert_eq!(made.is(StatusCode::CREATED).body["expires_at_ms"], now + 1_000, "it does not prolong itself");
    let later = json!({ "name": "b", "scopes": ["brokers:read"], "expires_at_ms": now + 1_001 });
    program.post(&ann.own("/tokens"), later).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    region.clock.move_on(1_000);
    program.post(&ann.own("/tokens"), less).await.is(StatusCode::UNAUTHORIZED);
    ann.with_token(made.text("/secret")).get("/token").await.is(StatusCode::UNAUTHORIZED);
    for wrong in [json!([]), json!(["everything"])] {
        let body = json!({ "name": "c", "scopes": wrong });
        ann.post(&ann.own("/tokens"), body).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    }
}

#[tokio::test]
async fn nobody_gives_a_role_that_may_more_than_they_may() {
    let region = Region::new().await;
    let ann = region.person().await;
    let token = async |scopes: Value| {
        let made = ann.post(&ann.own("/tokens"), json!({ "name": "a", "scopes": scopes })).await;
        ann.with_token(made.is(StatusCode::CREATED).text("/secret"))
    };
    let invite = |role: &str| json!({ "email": "b@example.org", "role": role });
    let small = token(json!(["organisation:write"])).await;
    for role in ["owner", "operator", "viewer"] {
        small.post(&ann.own("/invitations"), invite(role)).await.is(StatusCode::FORBIDDEN);
    }
    let reads =
        ["organisation", "brokers", "access", "clients", "audit", "messages"].map(|of| format!("{of}:read"));
    let scopes: Vec<String> = reads.into_iter().chain(["organisation:write".into()]).collect();
    let reader = token(json!(scopes)).await;
    reader.post(&ann.own("/invitations"), invite("viewer")).await.is(StatusCode::CREATED);
    reader.post(&ann.own("/invitations"), invite("operator")).await.is(StatusCode::FORBIDDEN);
    let me = ann.get("/me").await.text("/user/id").to_owned();
    let path = ann.own(&format!("/members/{me}"));
    let denied = reader.patch(&path, "*", json!({ "role": "owner" })).await;
    assert!(denied.is(StatusCode::FORBIDDEN).text("/detail").contains(":write"));
    // The same organisation, with its first character encoded.
    let first = ann.organisation.as_bytes()[0];
    let encoded = path.replace(&ann.organisation, &format!("%{first:02x}{}", &ann.organisation[1..]));
    reader.patch(&encoded, "*", json!({ "role": "owner" })).await.is(StatusCode::FORBIDDEN);
    let log = ann.get(&ann.own("/audit")).await;
    let denied = log.column("action").into_iter().filter(|action| *action == "denied").count();
    // Four refused invitations, and two changes of a member.
    assert_eq!(denied, 6, "{log:?}");
    let reason = log.text("/items/0/details/reason");
    assert!(reason.contains("permission") && reason.contains(":write"), "{reason}");
}

/// Bob, who is a member of Ann's organisation with this role.
pub(crate) async fn member(region: &Region, ann: &crate::tools::Client, role: &str) -> crate::tools::Client {
    let mut bob = region.person().await;
    let invite = json!({ "email": bob.get("/me").await.text("/user/email"), "role": role });
    let invited = ann.post(&ann.own("/invitations"), invite).await;
    let taken = bob.post("/invitations/accept", json!({ "token": invited.text("/token") })).await;
    taken.is(StatusCode::OK);
    bob.organisation.clone_from(&ann.organisation);
    bob
}

#[tokio::test]
async fn nobody_takes_a_role_that_may_more_than_they_may() {
    let region = Region::new().await;
    let ann = region.person().await;
    let (owner, viewer) = (member(&region, &ann, "owner").await, member(&region, &ann, "viewer").await);
    let of = async |client: &crate::tools::Client| {
        let id = client.get("/me").await.text("/user/id").to_owned();
        ann.own(&format!("/members/{id}"))
    };
    let (of_owner, of_viewer) = (of(&owner).await, of(&viewer).await);
    let token = async |scopes: Value| {
        let made = ann.post(&ann.own("/tokens"), json!({ "name": "a", "scopes": scopes })).await;
        ann.with_token(made.is(StatusCode::CREATED).text("/secret"))
    };
    let small = token(json!(["organisation:write"])).await;
    let reads =
        ["organisation", "brokers", "access", "clients", "audit", "messages"].map(|of| format!("{of}:read"));
    let scopes: Vec<String> = reads.into_iter().chain(["organisation:write".into()]).collect();
    let reader = token(json!(scopes)).await;
    for (program, path) in [(&small, &of_viewer), (&small, &of_owner), (&reader, &of_owner)] {
        program.delete(path).await.is(StatusCode::FORBIDDEN);
    }
    reader.patch(&of_owner, "*", json!({ "role": "viewer" })).await.is(StatusCode::FORBIDDEN);
    let members = ann.get(&ann.own("/members")).await;
    let mut roles = members.column("role");
    roles.sort_unstable();
    assert_eq!(roles, ["owner", "owner", "viewer"]);
    reader.delete(&of_viewer).await.is(StatusCode::NO_CONTENT);
    // Everybody may leave, whatever they have.
    owner.delete(&of_owner).await.is(StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_token_ends_with_the_membership_of_who_made_it() {
    let region = Region::new().await;
    let ann = region.person().await;
    let bob = member(&region, &ann, "owner").await;
    let scopes = ["brokers:read", "brokers:write", "organisation:write"];
    let made = bob.post(&bob.own("/tokens"), json!({ "name": "ci", "scopes": scopes })).await;
    let program = bob.with_token(made.is(StatusCode::CREATED).text("/secret"));
    let child =
        program.post(&bob.own("/tokens"), json!({ "name": "of ci", "scopes": ["brokers:read"] })).await;
    let child = bob.with_token(child.is(StatusCode::CREATED).text("/secret"));
    let id = bob.get("/me").await.text("/user/id").to_owned();
    let path = ann.own(&format!("/members/{id}"));
    let named = program.with("idempotency-key", "k");
    let body = json!({ "display_name": "Plant" });
    named.post(&ann.own("/brokers"), body.clone()).await.is(StatusCode::CREATED);
    named.post(&ann.own("/brokers"), body.clone()).await.is(StatusCode::CREATED);
    ann.patch(&path, "*", json!({ "role": "viewer" })).await.is(StatusCode::OK);
    named.post(&ann.own("/brokers"), body).await.is(StatusCode::FORBIDDEN);
    program.get(&ann.own("/brokers")).await.is(StatusCode::OK);
    program.post(&ann.own("/brokers"), json!({ "display_name": "x" })).await.is(StatusCode::FORBIDDEN);
    ann.delete(&path).await.is(StatusCode::NO_CONTENT);
    // It does not come back with another membership of the same person.
    let invite = json!({ "email": bob.get("/me").await.text("/user/email"), "role": "owner" });
    region.clock.move_on(1);
    let invited = ann.post(&ann.own("/invitations"), invite).await;
    for is_member in [false, true] {
        if is_member {
            let taken = bob.post("/invitations/accept", json!({ "token": invited.text("/token") })).await;
            taken.is(StatusCode::OK);
        }
        for of_bob in [&program, &child] {
            of_bob.get(&ann.own("/brokers")).await.is(StatusCode::UNAUTHORIZED);
        }
    }
    let made = bob.post(&bob.own("/tokens"), json!({ "name": "new", "scopes": ["brokers:read"] })).await;
    bob.with_token(made.is(StatusCode::CREATED).text("/secret"))
        .get(&ann.own("/brokers"))
        .await
        .is(StatusCode::OK);
}

#[tokio::test]
async fn an_invitation_and_a_claim_token_of_a_former_member_stay_void_when_they_come_back() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let bob = member(&region, &ann, "owner").await;
    let carl = region.person().await;
    let email = |of: &crate::tools::Answer| of.text("/user/email").to_owned();
    let (bobs, carls) = (email(&bob.get("/me").await), email(&carl.get("/me").await));
    let invite = json!({ "email": carls, "role": "viewer" });
    let invited = bob.post(&bob.own("/invitations"), invite).await;
    let invitation = json!({ "token": invited.is(StatusCode::CREATED).text("/token") });
    let token = json!({
        "name": "a", "user_prefix": "p-", "uses_max": 5, "expires_at_ms": 1_000_003_600_000_u64,
    });
    let made = bob.post(&format!("{broker}/claim-tokens"), token).await;
    let secret = made.is(StatusCode::CREATED).text("/secret").to_owned();
    let claim = async |number: u32| {
        let device = region.stranger().with("idempotency-key", &format!("{number:032}"));
        device.post("/claim", json!({ "token": secret, "user": format!("p-{number}") })).await
    };
    claim(1).await.is(StatusCode::CREATED);
    let id = bob.get("/me").await.text("/user/id").to_owned();
    ann.delete(&ann.own(&format!("/members/{id}"))).await.is(StatusCode::NO_CONTENT);
    region.clock.move_on(1);
    let again = ann.post(&ann.own("/invitations"), json!({ "email": bobs, "role": "owner" })).await;
    bob.post("/invitations/accept", json!({ "token": again.text("/token") })).await.is(StatusCode::OK);
    carl.post("/invitations/accept", invitation).await.is(StatusCode::FORBIDDEN);
    claim(2).await.is(StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn an_answer_is_not_repeated_to_somebody_who_may_not_have_it_any_more() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let bob = member(&region, &ann, "operator").await.with("idempotency-key", "k");
    let path = format!("{broker}/credentials");
    let body = json!({ "user": "a" });
    bob.post(&path, body.clone()).await.is(StatusCode::CREATED);
    bob.post(&path, body.clone()).await.is(StatusCode::CREATED);
    let id = bob.get("/me").await.text("/user/id").to_owned();
    let member = ann.own(&format!("/members/{id}"));
    ann.patch(&member, "*", json!({ "role": "viewer" })).await.is(StatusCode::OK);
    bob.post(&path, body.clone()).await.is(StatusCode::FORBIDDEN);
    ann.delete(&member).await.is(StatusCode::NO_CONTENT);
    bob.post(&path, body).await.is(StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_token_that_does_not_say_who_made_it_makes_none() {
    let region = Region::new().await;
    let ann = region.person().await;
    let scopes = ["organisation:write", "brokers:read"];
    let made = ann.post(&ann.own("/tokens"), json!({ "name": "old", "scopes": scopes })).await;
    let program = ann.with_token(made.is(StatusCode::CREATED).text("/secret"));
    let id = |text: &str| uuid::Uuid::parse_str(text).unwrap();
    let (organisation, token) = (id(&ann.organisation), id(made.text("/id")));
    let aged = region.store.run(|tx| async move {
        let all = millrace_layers::accounts::tokens(organisation.as_bytes());
        let read = millrace_storage::Read::Serializable;
        let mut record = all.get::<Value>(&tx, token.as_bytes(), read).await?.unwrap().value;
        assert!(record["shown"].as_object_mut().unwrap().remove("made_by").is_some(), "{record}");
        all.put(&tx, token.as_bytes(), &record).await
    });
    aged.await.unwrap();
    program.get(&ann.own("/brokers")).await.is(StatusCode::OK);
    let less = json!({ "name": "b", "scopes": ["brokers:read"] });
    program.post(&ann.own("/tokens"), less).await.is(StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn expired_tokens_give_way_to_new_ones() {
    let region = Region::new().await;
    let ann = region.person().await;
    let token = |ends: Value| json!({ "name": "login", "scopes": ["brokers:read"], "expires_at_ms": ends });
    let made = ann.post(&ann.own("/tokens"), token(Value::Null)).await;
    let forever = ann.with_token(made.is(StatusCode::CREATED).text("/secret"));
    for number in 1..100_u64 {
        let ends = token(json!(1_000_000_000_000 + number * 1_000));
        ann.post(&ann.own("/tokens"), ends).await.is(StatusCode::CREATED);
    }
    ann.post(&ann.own("/tokens"), token(Value::Null)).await.is(StatusCode::CONFLICT);
    region.clock.move_on(2_000);
    ann.post(&ann.own("/tokens"), token(Value::Null)).await.is(StatusCode::CREATED);
    // Two had expired.
    ann.post(&ann.own("/tokens"), token(Value::Null)).await.is(StatusCode::CREATED);
    ann.post(&ann.own("/tokens"), token(Value::Null)).await.is(StatusCode::CONFLICT);
    forever.get("/token").await.is(StatusCode::OK);
    let all = ann.get(&ann.own("/tokens?limit=200")).await;
    assert_eq!(all.column("name").len(), 100);
}
