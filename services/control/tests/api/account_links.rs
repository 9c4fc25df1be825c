//! Forgotten passwords, new e-mail addresses, and the end of an account.

use std::sync::Arc;

use axum::http::{StatusCode, header};
use futures_util::future::join_all;
use millrace_control::{Error, RequestSource, SignIn, SignUpBy};
use serde_json::{Value, json};

use crate::mail::{Letters, with_mail};
use crate::operator;
use crate::second_factor::Ann;
use crate::tools::{Answer, Client, PASSWORD, Region, interleaved};

const NEW: &str = "a longer sentence than before";

/// Somebody with an account in a region that sends mail.
pub(crate) async fn person(region: &Region, letters: &Letters, email: &str) -> Client {
    let sign_up = json!({ "email": email, "password": PASSWORD, "name": "Ann" });
    region.stranger().post("/sign-up", sign_up).await.is(StatusCode::ACCEPTED);
    let (.., token) = letters.letter();
    let confirm = json!({ "token": token, "password": PASSWORD });
    let mut client = region.stranger();
    client.welcome(region.stranger().post("/sign-up/confirm", confirm).await.is(StatusCode::CREATED));
    client
}

async fn ask(region: &Region, email: &str) -> Answer {
    region.stranger().post("/password-reset", json!({ "email": email })).await
}

/// The secret of a link for a new password.
async fn link(region: &Region, letters: &Letters, email: &str) -> String {
    ask(region, email).await.is(StatusCode::ACCEPTED);
    letters.wait_for(1).await;
    let (to, subject, token) = letters.letter();
    assert_eq!((&*to, subject), (email, "Choose a new password"));
    token
}

async fn reset(region: &Region, token: &str, password: &str) -> Answer {
    region.stranger().post("/password-reset/confirm", json!({ "token": token, "password": password })).await
}

async fn sign_in(region: &Region, email: &str, password: &str) -> Answer {
    region.stranger().post("/sign-in", json!({ "email": email, "password": password })).await
}

fn actions(log: &Answer) -> Vec<&str> {
    log.column("action")
}

#[tokio::test]
async fn a_forgotten_password_is_reset_once_by_the_mailed_link() {
    let (region, letters) = with_mail(SignUpBy::Anybody).await;
    let ann = person(&region, &letters, "ann@example.org").await;
    assert_eq!(region.stranger().get("/sign-in/ways").await.body["password_reset"], true);
    let token = link(&region, &letters, "ann@example.org").await;
    ann.get("/me").await.is(StatusCode::OK);
    reset(&region, &token, "passwordpassword").await.is(StatusCode::UNPROCESSABLE_ENTITY);
    reset(&region, &token, "short").await.is(StatusCode::UNPROCESSABLE_ENTITY);
    let done = reset(&region, &token, NEW).await;
    assert!(done.is(StatusCode::NO_CONTENT).headers.get(header::SET_COOKIE).is_none());
    ann.get("/me").await.is(StatusCode::UNAUTHORIZED);
    sign_in(&region, "ann@example.org", PASSWORD).await.is(StatusCode::UNAUTHORIZED);
    let used = reset(&region, &token, PASSWORD).await;
    let never = reset(&region, "never", PASSWORD).await;
    assert_eq!(used.is(StatusCode::FORBIDDEN).body, never.is(StatusCode::FORBIDDEN).body);
    let mut again = region.stranger();
    again.welcome(sign_in(&region, "ann@example.org", NEW).await.is(StatusCode::OK));
    let log = again.get(&again.own("/audit")).await;
    for action in ["person.ask_password_reset", "person.reset_password"] {
        assert!(actions(&log).contains(&action), "{log:?}");
    }
    assert!(!log.body.to_string().contains(&token));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_resets_at_once_with_one_link_one_counts() {
    let (region, letters) = with_mail(SignUpBy::Anybody).await;
    person(&region, &letters, "ann@example.org").await;
    let token = &link(&region, &letters, "ann@example.org").await;
    let passwords = (0..4).map(|number| format!("{NEW} number {number}"));
    let region = &region;
    let all = join_all(passwords.map(|password| async move { reset(region, token, &password).await })).await;
    let count = |status| all.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(StatusCode::NO_CONTENT), count(StatusCode::FORBIDDEN)), (1, 3), "{all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_was_checked_before_a_reset_does_not_count_after_it() {
    let bodies = [
        ("/sign-in", json!({ "email": "ann@example.org", "password": PASSWORD })),
        ("/me/password", json!({ "current": PASSWORD, "new": "a sentence of the thief" })),
        ("/me/email", json!({ "email": "eve@example.org", "password": PASSWORD })),
        ("/me/second-factor", json!({ "password": PASSWORD })),
        ("/me/delete", json!({ "password": PASSWORD })),
    ];
    for (path, body) in bodies {
        for stop in 0.. {
            let (region, letters) = with_mail(SignUpBy::Anybody).await;
            let ann = person(&region, &letters, "ann@example.org").await;
            if path == "/me/delete" {
                ann.delete(&ann.own("")).await.is(StatusCode::NO_CONTENT);
            }
            let token = link(&region, &letters, "ann@example.org").await;
            let (thief, body) = (ann.clone(), body.clone());
            let request = async move { thief.post(path, body).await };
            let Some((answer, done)) = interleaved(stop, request, reset(&region, &token, NEW)).await else {
                assert!(stop > 1, "{path} looks at the clock before and after the hash");
                break;
            };
            if done.status == StatusCode::FORBIDDEN {
                // The request had committed when it stopped, so the account is gone.
                assert_eq!((path, answer.status), ("/me/delete", StatusCode::NO_CONTENT), "{stop}");
                continue;
            }
            done.is(StatusCode::NO_CONTENT);
            match path {
                "/sign-in" if answer.status == StatusCode::OK => {
                    let mut thief = region.stranger();
                    thief.welcome(&answer);
                    thief.get("/me").await.is(StatusCode::UNAUTHORIZED);
                }
                _ => assert!(answer.status.is_client_error(), "{path} {stop}: {answer:?}"),
            }
            assert!(letters.is_empty(), "{path} {stop}");
            sign_in(&region, "ann@example.org", NEW).await.is(StatusCode::OK);
        }
    }
}

#[tokio::test]
async fn asking_for_a_reset_does_not_tell_which_accounts_there_are() {
    let (region, letters) = with_mail(SignUpBy::Anybody).await;
    for email in ["ann@example.org", "bob@example.org"] {
        person(&region, &letters, email).await;
    }
    let (known, unknown) = (ask(&region, "Ann@example.org").await, ask(&region, "eve@example.org").await);
    let headers = |answer: &Answer| {
        let mut names: Vec<_> = answer.headers.keys().map(ToString::to_string).collect();
        names.sort();
        names
    };
    assert_eq!(known.is(StatusCode::ACCEPTED).status, unknown.is(StatusCode::ACCEPTED).status);
    assert_eq!(headers(&known), headers(&unknown));
    assert_eq!(known.body, json!({ "email": "Ann@example.org" }));
    letters.wait_for(1).await;
    // An address gets one mail in five minutes, and the answer does not reveal whether one was sent.
    ask(&region, "ann@example.org").await.is(StatusCode::ACCEPTED);
    ask(&region, "bob@example.org").await.is(StatusCode::ACCEPTED);
    letters.wait_for(2).await;
    let to: Vec<_> = letters.0.lock().unwrap().iter().map(|letter| letter.to.clone()).collect();
    assert_eq!(to, ["ann@example.org", "bob@example.org"]);
    // One address asks for a limited number of accounts.
    for number in 0.. {
        assert!(number < 1_000);
        if ask(&region, &format!("p{number}@example.org")).await.status == StatusCode::TOO_MANY_REQUESTS {
            break;
        }
    }
}

#[tokio::test]
async fn a_link_for_a_new_password_names_the_servers_own_address() {
    let (region, letters) = with_mail(SignUpBy::Anybody).await;
    person(&region, &letters, "ann@example.org").await;
    let evil = region.stranger().with("host", "evil.example").with("x-forwarded-host", "evil.example");
    evil.post("/password-reset", json!({ "email": "ann@example.org" })).await.is(StatusCode::ACCEPTED);
    letters.wait_for(1).await;
    let text = letters.0.lock().unwrap()[0].text.expose().to_owned();
    assert!(text.contains("\nhttps://console.example.org/reset-password#token="), "{text}");
    assert!(!text.contains("evil"), "{text}");
}

/// Makes sure that a link for a new password is void after something has happened to its account.
async fn is_void_after(change: impl AsyncFnOnce(&Region, &Letters, &Client)) {
    let (region, letters) = with_mail(SignUpBy::Anybody).await;
    let client = person(&region, &letters, "ann@example.org").await;
    let token = link(&region, &letters, "ann@example.org").await;
    change(&region, &letters, &client).await;
    reset(&region, &token, "yet another sentence of ours").await.is(StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_link_for_a_new_password_is_void_after_a_change_of_the_password() {
    is_void_after(async |_, _, client| {
        let body = json!({ "current": PASSWORD, "new": NEW });
        client.post("/me/password", body).await.is(StatusCode::NO_CONTENT);
    })
    .await;
}

#[tokio::test]
async fn a_link_for_a_new_password_is_void_after_a_change_of_the_address() {
    is_void_after(async |_, letters, client| {
        let token = new_address(letters, client, "anna@example.org").await;
        client.post("/me/email/confirm", json!({ "token": token })).await.is(StatusCode::NO_CONTENT);
    })
    .await;
}

#[tokio::test]
async fn a_link_for_a_new_password_is_void_after_an_hour() {
    is_void_after(async |region, _, _| {
        region.clock.move_on(3_600_000);
    })
    .await;
    is_void_after(async |region, _, _| {
        region.clock.move_on(3_600_000);
        region.control.sweep().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_link_for_a_new_password_is_void_after_the_end_of_the_account() {
    is_void_after(async |_, _, client| {
        client.delete(&client.own("")).await.is(StatusCode::NO_CONTENT);
        client.post("/me/delete", json!({ "password": PASSWORD })).await.is(StatusCode::NO_CONTENT);
    })
    .await;
}

/// Asks for another address. Returns the secret of the link that was mailed to it.
async fn new_address(letters: &Letters, client: &Client, email: &str) -> String {
    let old = client.get("/me").await.text("/user/email").to_owned();
    client.post("/me/email", json!({ "email": email, "password": PASSWORD })).await.is(StatusCode::ACCEPTED);
    letters.wait_for(2).await;
    let notice = letters.0.lock().unwrap().pop().unwrap();
    assert_eq!((notice.to, notice.subject), (old, "Your e-mail address is about to change"));
    assert!(!notice.text.expose().contains('#'), "the notice has no link");
    let (to, subject, token) = letters.letter();
    assert_eq!((&*to, subject), (email, "Confirm your new e-mail address"));
    token
}

#[tokio::test]
async fn a_reset_leaves_the_second_factor_on() {
    let region = Region::new().await;
    let ann = Ann::in_force(&region).await;
    let operators = operator::router(&region, None);
    let body = json!({ "email": ann.email });
    let (status, made) = operator::here(&operators, "/reset-links", Some(body)).await;
    assert_eq!(status, StatusCode::CREATED);
    let token = made["url"].as_str().unwrap().split_once("#token=").unwrap().1;
    // Wrong codes of somebody who knew the old password do not lock the device out after the reset.
    for _ in 0..20 {
        let (email, code) = (ann.email.clone(), Some(ann.wrong().as_str().into()));
        let input = SignIn { email, password: PASSWORD.into(), code, passkey: None };
        let wrong = region.control.sign_in(&input, &RequestSource::default()).await;
        assert!(matches!(wrong, Err(Error::CodeWrong)), "{wrong:?}");
    }
    ann.sign_in(PASSWORD, Some(&ann.code())).await.is(StatusCode::TOO_MANY_REQUESTS);
    reset(&region, token, NEW).await.is(StatusCode::NO_CONTENT);
    let refused = ann.sign_in(NEW, None).await;
    assert_eq!(
        refused.is(StatusCode::UNAUTHORIZED).text("/type"),
        "urn:millrace:problem:second-factor-required"
    );
    ann.sign_in(NEW, Some(&ann.code())).await.is(StatusCode::OK);
}

#[tokio::test]
async fn an_operator_removes_a_lost_second_factor() {
    let (region, letters) = (Region::new().await, Letters::default());
    let ann = Ann::in_force(&region).await;
    region.control.confirm_addresses(Arc::new(letters.clone()), "https://console.example.org".into());
    let operators = operator::router(&region, None);
    let remove = async |email: &str| {
        operator::here(&operators, "/second-factor-removals", Some(json!({ "email": email }))).await.0
    };
    assert_eq!(remove("eve@example.org").await, StatusCode::NOT_FOUND);
    assert_eq!(remove(&ann.email.to_uppercase()).await, StatusCode::NO_CONTENT);
    assert_eq!(remove(&ann.email).await, StatusCode::CONFLICT);
    let (to, subject, _) = letters.letter();
    assert_eq!((&*to, subject), (&*ann.email, "Your second factor is off"));
    ann.client.get("/me").await.is(StatusCode::UNAUTHORIZED);
    let mut again = region.stranger();
    again.welcome(ann.sign_in(PASSWORD, None).await.is(StatusCode::OK));
    let log = again.get(&again.own("/audit")).await;
    let entries = log.body["items"].as_array().unwrap();
    let removed = entries.iter().find(|entry| entry["action"] == "person.remove_second_factor").unwrap();
    assert_eq!(removed["actor"]["kind"], "operator");

    let ann = Ann::pending(&region, again).await;
    let confirm = json!({ "code": ann.code() });
    ann.client.post("/me/second-factor/confirm", confirm).await.is(StatusCode::OK);
    assert_eq!(letters.letter().1, "Your second factor is on");
}

#[tokio::test]
async fn without_mail_an_operator_makes_the_link() {
    let region = Region::new().await;
    let ann = region.person().await;
    let email = ann.get("/me").await.text("/user/email").to_owned();
    assert_eq!(region.stranger().get("/sign-in/ways").await.body["password_reset"], false);
    let (known, unknown) = (ask(&region, &email).await, ask(&region, "eve@example.org").await);
    assert_eq!(known.is(StatusCode::CONFLICT).body, unknown.is(StatusCode::CONFLICT).body);
    let change = json!({ "email": "new@example.org", "password": PASSWORD });
    ann.post("/me/email", change).await.is(StatusCode::CONFLICT);

    region.control.console_at("http://127.0.0.1:8080".into());
    let operators = operator::router(&region, None);
    let make =
        async |email: &str| operator::here(&operators, "/reset-links", Some(json!({ "email": email }))).await;
    assert_eq!(make("eve@example.org").await.0, StatusCode::NOT_FOUND);
    let (status, made) = make(&email.to_uppercase()).await;
    assert_eq!(status, StatusCode::CREATED);
    let token = made["url"].as_str().unwrap().strip_prefix("http://127.0.0.1:8080/reset-password#token=");
    reset(&region, token.unwrap(), NEW).await.is(StatusCode::NO_CONTENT);
    let mut again = region.stranger();
    again.welcome(sign_in(&region, &email, NEW).await.is(StatusCode::OK));
    let log = again.get(&again.own("/audit")).await;
    let entries = log.body["items"].as_array().unwrap();
    let made = entries.iter().find(|entry| entry["action"] == "person.make_reset_link").unwrap();
    assert_eq!(made["actor"]["kind"], "operator");
}

#[tokio::test]
async fn an_address_is_changed_by_the_link_that_was_mailed_to_it() {
    let (region, letters) = with_mail(SignUpBy::Anybody).await;
    let ann = person(&region, &letters, "ann@example.org").await;
    let bob = person(&region, &letters, "bob@example.org").await;
    let wrong = json!({ "email": "anna@example.org", "password": "wrong" });
    ann.post("/me/email", wrong).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    let same = json!({ "email": "Ann@Example.org", "password": PASSWORD });
    ann.post("/me/email", same).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    assert!(letters.is_empty());

    let token = json!({ "token": new_address(&letters, &ann, "anna@example.org").await });
    assert_eq!(ann.get("/me").await.text("/user/email"), "ann@example.org");
    // The link is of no use to anybody else.
    let foreign = bob.post("/me/email/confirm", token.clone()).await;
    region.stranger().post("/me/email/confirm", token.clone()).await.is(StatusCode::UNAUTHORIZED);
    ann.post("/me/email/confirm", token.clone()).await.is(StatusCode::NO_CONTENT);
    let used = ann.post("/me/email/confirm", token).await;
    assert_eq!(used.is(StatusCode::CONFLICT).body, foreign.is(StatusCode::CONFLICT).body);
    assert_eq!(ann.get("/me").await.text("/user/email"), "anna@example.org");
    sign_in(&region, "ann@example.org", PASSWORD).await.is(StatusCode::UNAUTHORIZED);
    sign_in(&region, "anna@example.org", PASSWORD).await.is(StatusCode::OK);
    let log = ann.get(&ann.own("/audit")).await;
    assert!(actions(&log).contains(&"person.change_address"), "{log:?}");

    // An address that is taken is asked for as any other, and refused as a link that is over.
    let token = new_address(&letters, &ann, "bob@example.org").await;
    let taken = ann.post("/me/email/confirm", json!({ "token": token })).await;
    assert_eq!(taken.is(StatusCode::CONFLICT).body, used.body);
    assert_eq!(bob.get("/me").await.text("/user/email"), "bob@example.org");
    // The address from before is free again.
    person(&region, &letters, "ann@example.org").await;
}

#[tokio::test]
async fn a_link_for_an_address_is_no_link_for_a_password() {
    let (region, letters) = with_mail(SignUpBy::Anybody).await;
    let ann = person(&region, &letters, "ann@example.org").await;
    let token = new_address(&letters, &ann, "anna@example.org").await;
    reset(&region, &token, NEW).await.is(StatusCode::FORBIDDEN);
    let other = link(&region, &letters, "ann@example.org").await;
    ann.post("/me/email/confirm", json!({ "token": other })).await.is(StatusCode::CONFLICT);
    // A change of the password voids it, and so does a day.
    let change = json!({ "current": PASSWORD, "new": NEW });
    ann.post("/me/password", change).await.is(StatusCode::NO_CONTENT);
    ann.post("/me/email/confirm", json!({ "token": token })).await.is(StatusCode::CONFLICT);
}

#[tokio::test]
async fn new_addresses_are_limited_by_person_and_by_address() {
    let (region, letters) = with_mail(SignUpBy::Anybody).await;
    let ann = person(&region, &letters, "ann@example.org").await;
    for number in 0..5 {
        new_address(&letters, &ann, &format!("a{number}@example.org")).await;
    }
    let sixth = json!({ "email": "a6@example.org", "password": PASSWORD });
    ann.post("/me/email", sixth).await.is(StatusCode::TOO_MANY_REQUESTS);
    assert!(letters.is_empty());
}

#[tokio::test]
async fn an_account_is_deleted_once_no_organisation_is_left_without_an_owner() {
    let region = Region::new().await;
    let ann = region.person().await;
    let bob = region.person().await;
    let (id, email) = (ann.get("/me").await.text("/user/id").to_owned(), ann.get("/me").await);
    let email = email.text("/user/email");
    let delete = async |body: Value| ann.post("/me/delete", body).await;
    delete(json!({})).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    delete(json!({ "password": "wrong" })).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    let named = ann.get(&ann.own("")).await.text("/name").to_owned();
    let refused = delete(json!({ "password": PASSWORD })).await;
    let detail = refused.is(StatusCode::CONFLICT).text("/detail");
    assert!(detail.contains(&format!("\"{named}\"")), "{detail}");

    let token = json!({ "name": "mine", "scopes": ["organisation:read"] });
    let token = ann.post(&ann.own("/tokens"), token).await.text("/secret").to_owned();
    let program = ann.with_token(&token);
    program.get(&ann.own("")).await.is(StatusCode::OK);
    let invite = json!({ "email": bob.get("/me").await.text("/user/email"), "role": "owner" });
    let invitation = ann.post(&ann.own("/invitations"), invite).await.text("/token").to_owned();
    bob.post("/invitations/accept", json!({ "token": invitation })).await.is(StatusCode::OK);
    let done = delete(json!({ "password": PASSWORD })).await;
    let cookie = done.is(StatusCode::NO_CONTENT).headers[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("Max-Age=0"), "{cookie}");

    ann.get("/me").await.is(StatusCode::UNAUTHORIZED);
    program.get(&ann.own("")).await.is(StatusCode::UNAUTHORIZED);
    sign_in(&region, email, PASSWORD).await.is(StatusCode::UNAUTHORIZED);
    assert!(!bob.get(&ann.own("/members")).await.column("id").contains(&id.as_str()));
    let log = bob.get(&ann.own("/audit")).await;
    assert!(actions(&log).contains(&"person.delete"), "{log:?}");
    // Somebody else may have the address, and gets nothing of the account.
    let mut other = region.stranger();
    other.sign_up(json!({ "email": email })).await.is(StatusCode::CREATED);
    assert_ne!(other.organisation, ann.organisation);
}

#[tokio::test]
async fn an_account_with_a_second_factor_is_deleted_with_a_code() {
    let region = Region::new().await;
    let ann = Ann::in_force(&region).await;
    ann.client.delete(&ann.client.own("")).await.is(StatusCode::NO_CONTENT);
    let delete = async |body: Value| ann.client.post("/me/delete", body).await;
    delete(json!({ "password": PASSWORD })).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    let wrong = json!({ "password": PASSWORD, "code": "aaaa-aaaa-aaaa-aaaa" });
    delete(wrong).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    let right = json!({ "password": PASSWORD, "code": ann.recovery[0] });
    delete(right).await.is(StatusCode::NO_CONTENT);
}
