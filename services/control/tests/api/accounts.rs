//! People: signing up, in and out, roles, invitations.

use axum::http::{Method, StatusCode};
use futures_util::future::join_all;
use millrace_control::{RequestSource, SignIn, SignUpBy};
use millrace_layers::accounts;
use millrace_storage::Read;
use serde_json::{Value, json};

use crate::second_factor::Ann;
use crate::tools::{Client, PASSWORD, Region, eventually, interleaved};

#[tokio::test]
async fn the_first_person_comes_by_the_printed_link_once_and_gets_the_brokers_of_the_settings() {
    let region = Region::by(SignUpBy::Invitation).await;
    region.store.ensure_broker(b"default").await.unwrap();
    // Each of the servers that start together prints one.
    let other = region.control.setup().await.unwrap().unwrap();
    let link = region.control.setup().await.unwrap().unwrap();
    let mut ann = region.stranger();
    ann.sign_up(json!({})).await.is(StatusCode::FORBIDDEN);
    ann.sign_up(json!({ "token": "nothing" })).await.is(StatusCode::FORBIDDEN);
    ann.sign_up(json!({ "token": link.expose() })).await.is(StatusCode::CREATED);
    assert_eq!(ann.get(&ann.own("/brokers")).await.column("name"), ["default"]);
    assert_eq!(
        ann.get(&ann.own("/brokers/default")).await.is(StatusCode::OK).text("/display_name"),
        "default"
    );

    assert!(region.control.setup().await.unwrap().is_none(), "somebody is there");
    for used in [link, other] {
        region.stranger().sign_up(json!({ "token": used.expose() })).await.is(StatusCode::FORBIDDEN);
    }
}

#[tokio::test]
async fn the_printed_link_expires() {
    let region = Region::by(SignUpBy::Invitation).await;
    let link = region.control.setup().await.unwrap().unwrap();
    region.clock.move_on(24 * 3_600_000);
    region.stranger().sign_up(json!({ "token": link.expose() })).await.is(StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_sign_up_that_comes_again_signs_in_only_while_its_password_is_enough() {
    let region = Region::new().await;
    let named = region.stranger().with("idempotency-key", "one");
    let mut client = region.stranger();
    let body = json!({ "email": "ann@example.org", "password": PASSWORD, "name": "Ann" });
    let again = async || named.post("/sign-up", body.clone()).await;
    client.welcome(again().await.is(StatusCode::CREATED));
    let mut repeated = region.stranger();
    repeated.welcome(again().await.is(StatusCode::CREATED));
    assert_eq!(repeated.get("/me").await.is(StatusCode::OK).text("/user/email"), "ann@example.org");
    assert_eq!(repeated.organisation, client.organisation);

    let change = async |current: &str, new: &str| {
        let body = json!({ "current": current, "new": new });
        client.post("/me/password", body).await.is(StatusCode::NO_CONTENT);
    };
    change(PASSWORD, "another long sentence").await;
    let refused = again().await;
    assert!(refused.is(StatusCode::CONFLICT).headers.get("set-cookie").is_none());
    change("another long sentence", PASSWORD).await;
    again().await.is(StatusCode::CREATED);
    let ann = Ann::pending(&region, client.clone()).await;
    client.post("/me/second-factor/confirm", json!({ "code": ann.code() })).await.is(StatusCode::OK);
    let refused = again().await;
    assert!(refused.is(StatusCode::CONFLICT).headers.get("set-cookie").is_none());
}

#[tokio::test]
async fn all_other_web_sessions_end_also_if_a_transaction_cannot_remove_their_records() {
    let change = json!({ "current": PASSWORD, "new": "another long sentence" });
    for (method, path, body) in [
        (Method::POST, "/me/password", Some(change)),
        (Method::DELETE, "/me/sessions", None),
        (Method::POST, "/me/second-factor/confirm", None),
    ] {
        let region = Region::new().await;
        let ann = Ann::pending(&region, region.person().await).await;
        let mut elsewhere = region.stranger();
        elsewhere.welcome(ann.sign_in(PASSWORD, None).await.is(StatusCode::OK));
        elsewhere.get("/me").await.is(StatusCode::OK);
        let user = ann.client.get("/me").await.text("/user/id").parse::<uuid::Uuid>().unwrap();
        let of_user = || accounts::sign_ins_of(user.as_bytes());
        let before = region.store.run(|tx| async move {
            let rows = accounts::sign_ins().page::<Value>(&tx, None, 10, Read::Snapshot).await?.items;
            let index = of_user().page::<u64>(&tx, None, 10, Read::Snapshot).await?.items;
            Ok((rows, index))
        });
        let (rows, index) = &before.await.unwrap();
        assert_eq!((rows.len(), index.len()), (2, 2));
        let body = if path.ends_with("confirm") { Some(json!({ "code": ann.code() })) } else { body };
        let done = ann.client.send(method, path, body).await;
        assert!(done.status.is_success(), "{path}: {done:?}");

        let put_back = region.store.run(|tx| async move {
            for ((hash, row), (listed, expires)) in rows.iter().zip(index) {
                if accounts::sign_ins().get::<Value>(&tx, hash, Read::Snapshot).await?.is_none() {
                    accounts::sign_ins().put(&tx, hash, &row.value).await?;
                }
                of_user().put(&tx, listed, &expires.value).await?;
            }
            Ok(())
        });
        put_back.await.unwrap();
        elsewhere.get("/me").await.is(StatusCode::UNAUTHORIZED);
        let sessions = ann.client.get("/me/sessions").await;
        assert_eq!(sessions.is(StatusCode::OK).column("id").len(), 1, "{path}: {sessions:?}");
    }
}

#[tokio::test]
async fn a_new_password_is_neither_the_address_nor_a_part_of_it_or_of_the_name() {
    let region = Region::new().await.unlimited();
    let mut ann = region.stranger();
    let person = json!({ "email": "averylongname.smith@example.org", "name": "Ann Featherstonehaugh" });
    ann.sign_up(person).await.is(StatusCode::CREATED);
    for weak in ["averylongname.smith@example.org", "averylongnamesmith", "annfeatherstonehaugh"] {
        let change = json!({ "current": PASSWORD, "new": weak });
        let refused = ann.post("/me/password", change).await;
        assert_eq!(refused.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), "new", "{weak}");
    }
    let change = json!({ "current": PASSWORD, "new": "another long sentence" });
    ann.post("/me/password", change).await.is(StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_web_session_is_ended_by_its_person_alone() {
    let region = Region::new().await;
    let (ann, eve) = (region.person().await, region.person().await);
    let of_ann = ann.get("/me/sessions").await.column("id")[0].to_owned();
    let missing = "00000000-0000-7000-8000-000000000000";
    for path in ["/me/sessions", "/me/passkeys", "/me/identities"] {
        let foreign = eve.delete(&format!("{path}/{of_ann}")).await;
        let nobodys = eve.delete(&format!("{path}/{missing}")).await;
        assert_eq!((foreign.status, &foreign.body), (nobodys.status, &nobodys.body), "{path}");
        assert!(foreign.status.is_client_error(), "{foreign:?}");
    }
    eve.delete(&format!("/me/sessions/{of_ann}")).await.is(StatusCode::NOT_FOUND);
    assert_eq!(ann.get("/me/sessions").await.column("id"), [of_ann.as_str()]);
    ann.delete(&format!("/me/sessions/{of_ann}")).await.is(StatusCode::NO_CONTENT);
    ann.get("/me").await.is(StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_oldest_web_session_ends_when_there_are_too_many() {
    let region = Region::new().await;
    let ann = region.person().await;
    let email = ann.get("/me").await.text("/user/email").to_owned();
    let mut second = region.stranger();
    let body = json!({ "email": email, "password": PASSWORD });
    region.clock.move_on(1);
    second.welcome(region.stranger().post("/sign-in", body).await.is(StatusCode::OK));
    for _ in 2..101 {
        ann.get("/me").await.is(StatusCode::OK);
        region.clock.move_on(1);
        let input = SignIn { email: email.clone(), password: PASSWORD.into(), code: None, passkey: None };
        region.control.sign_in(&input, &RequestSource::default()).await.unwrap();
    }
    ann.get("/me").await.is(StatusCode::UNAUTHORIZED);
    second.get("/me").await.is(StatusCode::OK);
}

#[tokio::test]
async fn one_signs_in_with_the_right_password_and_out_again() {
    let region = Region::new().await;
    let mut ann = region.stranger();
    ann.sign_up(json!({ "email": "Ann@Example.org" })).await.is(StatusCode::CREATED);
    let mut again = region.stranger();
    again.sign_up(json!({ "email": "ann@example.ORG" })).await.is(StatusCode::CONFLICT);

    let sign_in = async |email: &str, password: &str| {
        region.stranger().post("/sign-in", json!({ "email": email, "password": password })).await
    };
    sign_in("ann@example.org", "wrong").await.is(StatusCode::UNAUTHORIZED);
    sign_in("nobody@example.org", PASSWORD).await.is(StatusCode::UNAUTHORIZED);
    let answer = sign_in("ann@example.org", PASSWORD).await;
    let mut elsewhere = region.stranger();
    elsewhere.welcome(answer.is(StatusCode::OK));
    assert_eq!(elsewhere.get("/me").await.is(StatusCode::OK).text("/user/email"), "ann@example.org");

    let out = ann.send(Method::POST, "/sign-out", None).await;
    assert!(out.is(StatusCode::NO_CONTENT).headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    ann.get("/me").await.is(StatusCode::UNAUTHORIZED);
    elsewhere.get("/me").await.is(StatusCode::OK);
    region.clock.move_on(14 * 86_400_000);
    elsewhere.get("/me").await.is(StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_new_password_signs_out_everywhere_else() {
    let region = Region::new().await;
    let ann = region.person().await;
    let email = ann.get("/me").await.text("/user/email").to_owned();
    let mut elsewhere = region.stranger();
    elsewhere.welcome(&elsewhere.post("/sign-in", json!({ "email": email, "password": PASSWORD })).await);
    let change = |current: &str, new: &str| json!({ "current": current, "new": new });
    let new = "a longer sentence than before";
    ann.post("/me/password", change("wrong", new)).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    ann.post("/me/password", change(PASSWORD, "short")).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    ann.post("/me/password", change(PASSWORD, new)).await.is(StatusCode::NO_CONTENT);
    ann.get("/me").await.is(StatusCode::OK);
    elsewhere.get("/me").await.is(StatusCode::UNAUTHORIZED);
    let sign_in = json!({ "email": email, "password": new });
    elsewhere.post("/sign-in", sign_in).await.is(StatusCode::OK);
}

#[tokio::test]
async fn a_change_needs_the_token_that_only_our_page_knows() {
    let ann = Region::new().await.person().await;
    let body = json!({ "name": "Anna" });
    let forged = ann.without("x-csrf-token");
    forged.send(Method::PATCH, "/me", Some(body.clone())).await.is(StatusCode::FORBIDDEN);
    forged.get("/me").await.is(StatusCode::OK);
    let wrong = ann.with("x-csrf-token", "wrong");
    wrong.send(Method::PATCH, "/me", Some(body.clone())).await.is(StatusCode::FORBIDDEN);
    ann.send(Method::PATCH, "/me", Some(body)).await.is(StatusCode::OK);
    assert_eq!(ann.get("/me").await.text("/user/name"), "Anna");
}

#[tokio::test]
async fn who_is_invited_joins_once_with_the_role_of_the_invitation() {
    let region = Region::new().await;
    let (ann, bob) = (region.person().await, region.person().await);
    let invite = json!({ "email": bob.get("/me").await.text("/user/email"), "role": "viewer" });
    let made = ann.post(&ann.own("/invitations"), invite.clone()).await;
    let token = made.is(StatusCode::CREATED).text("/token").to_owned();
    let all = ann.get(&ann.own("/invitations")).await;
    assert!(!all.is(StatusCode::OK).body.to_string().contains(&token));
    let offered = bob.post("/invitations/look", json!({ "token": token })).await;
    let named = ann.get(&ann.own("")).await;
    assert_eq!(offered.is(StatusCode::OK).text("/name"), named.text("/name"));
    assert_eq!((offered.text("/organisation"), offered.text("/role")), (&*ann.organisation, "viewer"));
    assert_eq!(offered.text("/invited_by"), ann.get("/me").await.text("/user/email"));
    ann.post("/invitations/look", json!({ "token": token })).await.is(StatusCode::FORBIDDEN);
    let joined = bob.post("/invitations/accept", json!({ "token": token })).await;
    assert_eq!(joined.is(StatusCode::OK).text("/organisation"), ann.organisation);
    for route in ["accept", "look"] {
        let again = bob.post(&format!("/invitations/{route}"), json!({ "token": token })).await;
        again.is(StatusCode::FORBIDDEN);
    }

    // A viewer sees and changes nothing.
    let broker = ann.broker().await;
    bob.get(&broker).await.is(StatusCode::OK);
    bob.get(&ann.own("/audit")).await.is(StatusCode::OK);
    bob.post(&ann.own("/brokers"), json!({ "display_name": "x" })).await.is(StatusCode::FORBIDDEN);
    bob.post(&format!("{broker}/credentials"), json!({ "user": "x" })).await.is(StatusCode::FORBIDDEN);
    bob.post(&ann.own("/invitations"), invite.clone()).await.is(StatusCode::FORBIDDEN);
    bob.delete(&broker).await.is(StatusCode::FORBIDDEN);

    // An operator does all with brokers, and nothing with people.
    let id = bob.get("/me").await.text("/user/id").to_owned();
    let member = ann.own(&format!("/members/{id}"));
    let role = json!({ "role": "operator" });
    bob.send(Method::PATCH, &member, Some(role.clone())).await.is(StatusCode::FORBIDDEN);
    ann.send(Method::PATCH, &member, Some(role)).await.is(StatusCode::OK);
    bob.post(&ann.own("/brokers"), json!({ "display_name": "x" })).await.is(StatusCode::CREATED);
    bob.post(&ann.own("/invitations"), invite).await.is(StatusCode::FORBIDDEN);

    bob.delete(&member).await.is(StatusCode::NO_CONTENT);
    bob.get(&broker).await.is(StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_invitation_is_void_once_its_maker_may_not_give_the_role() {
    let region = Region::new().await;
    let (ann, bob, eve) = (region.person().await, region.person().await, region.person().await);
    let invite = async |by: &Client, email: &str, role: &str| {
        let made = by.post(&ann.own("/invitations"), json!({ "email": email, "role": role })).await;
        made.is(StatusCode::CREATED).text("/token").to_owned()
    };
    let of = async |one: &Client, what: &str| one.get("/me").await.text(what).to_owned();
    let (email, bobs) =
        (of(&eve, "/user/email").await, ann.own(&format!("/members/{}", of(&bob, "/user/id").await)));
    let of_bob = invite(&ann, &of(&bob, "/user/email").await, "owner").await;
    bob.post("/invitations/accept", json!({ "token": of_bob })).await.is(StatusCode::OK);
    let (as_owner, as_viewer) = (invite(&bob, &email, "owner").await, invite(&bob, &email, "viewer").await);
    ann.send(Method::PATCH, &bobs, Some(json!({ "role": "operator" }))).await.is(StatusCode::OK);
    for token in [&as_owner, &as_viewer] {
        eve.post("/invitations/accept", json!({ "token": token })).await.is(StatusCode::FORBIDDEN);
    }
    ann.send(Method::PATCH, &bobs, Some(json!({ "role": "owner" }))).await.is(StatusCode::OK);
    eve.post("/invitations/accept", json!({ "token": as_viewer })).await.is(StatusCode::OK);
    ann.delete(&ann.own(&format!("/members/{}", of(&eve, "/user/id").await)))
        .await
        .is(StatusCode::NO_CONTENT);
    ann.delete(&bobs).await.is(StatusCode::NO_CONTENT);
    eve.post("/invitations/accept", json!({ "token": as_owner })).await.is(StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn an_invitation_is_taken_by_its_address_alone() {
    let region = Region::by(SignUpBy::Invitation).await;
    let link = region.control.setup().await.unwrap().unwrap();
    let mut ann = region.stranger();
    ann.sign_up(json!({ "token": link.expose() })).await.is(StatusCode::CREATED);
    let invite = async |email: &str| {
        let body = json!({ "email": email, "role": "viewer" });
        ann.post(&ann.own("/invitations"), body).await.is(StatusCode::CREATED).text("/token").to_owned()
    };
    let (first, second) = (invite("Bob@Example.org").await, invite("cleo@example.org").await);
    let sign_up = async |email: &str, token: &str| {
        region.stranger().sign_up(json!({ "email": email, "token": token })).await
    };
    let refused = sign_up("eve@example.org", &first).await;
    assert!(!refused.is(StatusCode::FORBIDDEN).body.to_string().contains("bob"), "{refused:?}");
    // The owner of a link for one address does not learn which others have an account.
    let of_ann = ann.get("/me").await.text("/user/email").to_owned();
    assert_eq!(sign_up(&of_ann, &first).await.body, refused.body);
    assert_eq!(sign_up(&of_ann, "nothing").await.body, sign_up("eve@example.org", "nothing").await.body);
    let mut bob = region.stranger();
    bob.sign_up(json!({ "email": "bob@example.ORG", "token": first })).await.is(StatusCode::CREATED);
    bob.post("/invitations/accept", json!({ "token": second })).await.is(StatusCode::FORBIDDEN);
    sign_up("cleo@example.org", &second).await.is(StatusCode::CREATED);
}

#[tokio::test]
async fn an_invitation_ends_by_time_or_when_it_is_taken_back() {
    let region = Region::new().await;
    let (ann, bob) = (region.person().await, region.person().await);
    let email = &bob.get("/me").await.text("/user/email").to_owned();
    let invite = async || {
        let made = ann.post(&ann.own("/invitations"), json!({ "email": email, "role": "owner" })).await;
        (made.text("/id").to_owned(), made.text("/token").to_owned())
    };
    let (id, token) = invite().await;
    ann.delete(&ann.own(&format!("/invitations/{id}"))).await.is(StatusCode::NO_CONTENT);
    bob.post("/invitations/accept", json!({ "token": token })).await.is(StatusCode::FORBIDDEN);
    let (_, token) = invite().await;
    region.clock.move_on(7 * 86_400_000);
    bob.post("/invitations/accept", json!({ "token": token })).await.is(StatusCode::FORBIDDEN);
    assert_eq!(ann.get(&ann.own("/invitations")).await.body["items"], json!([]));
    region.control.sweep().await.unwrap();
}

#[tokio::test]
async fn an_organisation_keeps_an_owner() {
    let ann = Region::new().await.person().await;
    let id = ann.get("/me").await.text("/user/id").to_owned();
    let member = ann.own(&format!("/members/{id}"));
    ann.delete(&member).await.is(StatusCode::CONFLICT);
    ann.send(Method::PATCH, &member, Some(json!({ "role": "viewer" }))).await.is(StatusCode::CONFLICT);
    assert_eq!(ann.get(&ann.own("/members")).await.column("role"), ["owner"]);
}

#[tokio::test]
async fn who_tries_passwords_is_slowed_down() {
    let region = Region::new().await;
    let guess = async || {
        let body = json!({ "email": "ann@example.org", "password": "guess" });
        region.stranger().post("/sign-in", body).await
    };
    let answers = join_all((0..12).map(|_| guess())).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != StatusCode::UNAUTHORIZED).collect();
    assert!(!refused.is_empty() && refused.len() <= 2, "{refused:?}");
    let headers = &refused[0].is(StatusCode::TOO_MANY_REQUESTS).headers;
    assert!(headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
}

#[tokio::test]
async fn a_sign_in_that_fails_stands_in_the_audit_log() {
    let region = Region::new().await;
    let ann = region.person().await;
    let email = ann.get("/me").await.text("/user/email").to_owned();
    let wrong = json!({ "email": email, "password": "incorrect horse battery" });
    region.stranger().post("/sign-in", wrong).await.is(StatusCode::UNAUTHORIZED);
    // The answer does not wait for the entry.
    let log = eventually(async || {
        let log = ann.get(&ann.own("/audit")).await;
        (log.text("/items/0/action") == "sign_in.refuse").then_some(log)
    })
    .await;
    assert_eq!(log.text("/items/0/actor/kind"), "nobody");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_a_wrong_password_waits_for_nothing_that_an_unknown_address_does_not() {
    let region = Region::new().await.unlimited();
    let ann = region.person().await;
    let known = ann.get("/me").await.text("/user/email").to_owned();
    let mut looks = Vec::new();
    for email in [known, "nobody@example.org".into()] {
        // Each write looks at the clock before its transaction.
        for at in 0.. {
            let (stranger, body) =
                (region.stranger(), json!({ "email": email, "password": "incorrect horse battery" }));
            let refused =
                async move { stranger.post("/sign-in", body).await.is(StatusCode::UNAUTHORIZED).status };
            if interleaved(at, refused, async {}).await.is_none() {
                looks.push(at);
                break;
            }
        }
    }
    assert_eq!(looks[0], looks[1]);
}
