//! The second factor: putting it in force, signing in with it, and what makes a code void.

use axum::http::{Method, StatusCode, header};
use futures_util::future::join_all;
use millrace_control::{Error, RequestSource, SignIn, SignUpBy};
use serde_json::{Value, json};
use totp_rs::{Builder, Secret, Totp};
use uuid::Uuid;

use crate::account_links::person;
use crate::mail::with_mail;
use crate::tools::{Answer, Client, PASSWORD, Region, SCOPES};

const STEP_MS: u64 = 30_000;

/// Somebody with an authenticator app.
pub(crate) struct Ann {
    pub(crate) region: Region,
    pub(crate) client: Client,
    pub(crate) email: String,
    device: Totp,
    pub(crate) recovery: Vec<String>,
}

impl Ann {
    /// Somebody with a second factor in force, whose codes were not used in the present step.
    pub(crate) async fn in_force(region: &Region) -> Self {
        let client = region.person().await;
        let mut ann = Self::pending(region, client).await;
        let confirmed = ann.client.post("/me/second-factor/confirm", json!({ "code": ann.code() })).await;
        ann.recovery = recovery(confirmed.is(StatusCode::OK));
        region.clock.move_on(STEP_MS);
        ann
    }

    /// Somebody whose device has its secret.
    pub(crate) async fn pending(region: &Region, client: Client) -> Self {
        let begun = client.post("/me/second-factor", json!({ "password": PASSWORD })).await;
        let secret = Secret::try_from_base32(begun.is(StatusCode::CREATED).text("/secret")).unwrap();
        let uri = begun.text("/uri");
        assert!(uri.starts_with("otpauth://totp/Millrace:"), "{uri}");
        assert!(uri.contains(&format!("secret={}&issuer=Millrace", begun.text("/secret"))), "{uri}");
        let device = Builder::new().with_secret(secret).build_noncompliant();
        let email = client.get("/me").await.text("/user/email").to_owned();
        Self { region: region.clone(), client, email, device, recovery: Vec::new() }
    }

    /// The code of the device, now.
    pub(crate) fn code(&self) -> String {
        self.code_at(0)
    }

    /// The code so many milliseconds ago.
    fn code_at(&self, ago_ms: u64) -> String {
        self.device.generate((now_ms(&self.region) - ago_ms) / 1_000).to_string()
    }

    /// A code that is not right in any of the three steps.
    pub(crate) fn wrong(&self) -> String {
        let right: Vec<_> =
            [0, STEP_MS].iter().map(|ago| self.code_at(*ago)).chain([self.code_ahead()]).collect();
        (0..).map(|number| format!("{number:06}")).find(|code| !right.contains(code)).unwrap()
    }

    fn code_ahead(&self) -> String {
        self.device.generate((now_ms(&self.region) + STEP_MS) / 1_000).to_string()
    }

    pub(crate) async fn sign_in(&self, password: &str, code: Option<&str>) -> Answer {
        let mut body = json!({ "email": self.email, "password": password });
        if let Some(code) = code {
            body["code"] = code.into();
        }
        self.region.stranger().post("/sign-in", body).await
    }
}

fn now_ms(region: &Region) -> u64 {
    millrace_control::UnixClock::now_ms(&region.clock)
}

fn recovery(answer: &Answer) -> Vec<String> {
    let codes = answer.body["recovery_codes"].as_array().unwrap();
    codes.iter().map(|code| code.as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn is_refused(answer: &Answer, kind: &str) {
    answer.is(StatusCode::UNAUTHORIZED);
    assert_eq!(answer.text("/type"), format!("urn:millrace:problem:{kind}"));
    assert!(answer.headers.get(header::SET_COOKIE).is_none());
}

#[tokio::test]
async fn a_second_factor_is_in_force_with_the_first_code_and_ends_other_sessions() {
    let region = Region::new().await;
    let client = region.person().await;
    let off = json!({
        "enabled": false, "enabled_at": null, "app_enabled_at": null, "passkeys": 0, "recovery_codes_left": 0,
    });
    assert_eq!(client.get("/me/second-factor").await.is(StatusCode::OK).body, off);
    let wrong = json!({ "password": "wrong" });
    client.post("/me/second-factor", wrong).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    let confirm = "/me/second-factor/confirm";
    client.post(confirm, json!({ "code": "000000" })).await.is(StatusCode::CONFLICT);

    let ann = Ann::pending(&region, client.clone()).await;
    let mut elsewhere = region.stranger();
    elsewhere.welcome(ann.sign_in(PASSWORD, None).await.is(StatusCode::OK));
    assert_eq!(client.get("/me/second-factor").await.body, off, "it waits for the first code");
    client.post(confirm, json!({ "code": ann.wrong() })).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    let codes = recovery(client.post(confirm, json!({ "code": ann.code() })).await.is(StatusCode::OK));
    assert_eq!(codes.len(), 10);
    assert!(codes.iter().all(|code| code.len() == 19), "{codes:?}");
    let at = now_ms(&region);
    let on = json!({
        "enabled": true, "enabled_at": at, "app_enabled_at": at, "passkeys": 0, "recovery_codes_left": 10,
    });
    assert_eq!(client.get("/me/second-factor").await.body, on);
    elsewhere.get("/me").await.is(StatusCode::UNAUTHORIZED);
    let again = json!({ "password": PASSWORD });
    client.post("/me/second-factor", again).await.is(StatusCode::CONFLICT);
    client.post(confirm, json!({ "code": ann.code() })).await.is(StatusCode::CONFLICT);
    // The code that put it in force is spent.
    is_refused(&ann.sign_in(PASSWORD, Some(&ann.code())).await, "second-factor-wrong");
    let log = client.get(&client.own("/audit")).await;
    for action in ["person.begin_second_factor", "person.enable_second_factor"] {
        assert!(log.column("action").contains(&action), "{log:?}");
    }
    let shown = log.body.to_string();
    assert!(!codes.iter().any(|code| shown.contains(code.as_str())));
}

#[tokio::test]
async fn a_sign_in_asks_for_the_code_once_the_password_is_right() {
    let region = Region::new().await;
    let ann = Ann::in_force(&region).await;
    is_refused(&ann.sign_in(PASSWORD, None).await, "second-factor-required");
    is_refused(&ann.sign_in(PASSWORD, Some("")).await, "second-factor-required");
    is_refused(&ann.sign_in(PASSWORD, Some(&ann.wrong())).await, "second-factor-wrong");
    is_refused(&ann.sign_in(PASSWORD, Some("+12345")).await, "second-factor-wrong");
    // The answer to a wrong password reveals nothing, with a right code or without one.
    let bob = region.person().await;
    let body = json!({ "email": bob.get("/me").await.text("/user/email"), "password": "wrong" });
    let without_factor = region.stranger().post("/sign-in", body).await;
    for code in [None, Some(ann.code())] {
        let refused = ann.sign_in("wrong", code.as_deref()).await;
        is_refused(&refused, "unauthenticated");
        assert_eq!(refused.body, without_factor.body);
    }
    let code = ann.code();
    ann.sign_in(PASSWORD, Some(&format!("{} {}", &code[..3], &code[3..]))).await.is(StatusCode::OK);
    is_refused(&ann.sign_in(PASSWORD, Some(&code)).await, "second-factor-wrong");
    let log = ann.client.get(&ann.client.own("/audit")).await;
    let refused = log.body["items"].as_array().unwrap().iter();
    let refused = refused
        .filter(|entry| entry["action"] == "sign_in.refuse" && entry["details"]["second_factor"] == true);
    assert_eq!(refused.count(), 3);
    let asked = log.body["items"].as_array().unwrap().iter();
    assert_eq!(asked.filter(|entry| entry["action"] == "sign_in.ask_code").count(), 2);
}

#[tokio::test]
async fn a_code_is_right_for_its_step_and_the_ones_beside() {
    let region = Region::new().await;
    let ann = Ann::in_force(&region).await;
    region.clock.move_on(10 * STEP_MS);
    is_refused(&ann.sign_in(PASSWORD, Some(&ann.code_at(2 * STEP_MS))).await, "second-factor-wrong");
    ann.sign_in(PASSWORD, Some(&ann.code_at(STEP_MS))).await.is(StatusCode::OK);
    ann.sign_in(PASSWORD, Some(&ann.code_ahead())).await.is(StatusCode::OK);
    // The present step is before the one that was used last.
    is_refused(&ann.sign_in(PASSWORD, Some(&ann.code())).await, "second-factor-wrong");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sign_ins_at_once_with_one_code_one_gets_in() {
    let region = Region::new().await;
    let ann = Ann::in_force(&region).await;
    for code in [ann.code(), ann.recovery[0].clone()] {
        let all = join_all((0..4).map(|_| ann.sign_in(PASSWORD, Some(&code)))).await;
        let count = |status| all.iter().filter(|answer| answer.status == status).count();
        assert_eq!((count(StatusCode::OK), count(StatusCode::UNAUTHORIZED)), (1, 3), "{all:?}");
    }
}

#[tokio::test]
async fn a_recovery_code_works_once_in_any_case() {
    let region = Region::new().await;
    let ann = Ann::in_force(&region).await;
    let first = ann.recovery[0].to_uppercase().replace('-', " ");
    ann.sign_in(PASSWORD, Some(&first)).await.is(StatusCode::OK);
    is_refused(&ann.sign_in(PASSWORD, Some(&ann.recovery[0])).await, "second-factor-wrong");
    let shown = ann.client.get("/me/second-factor").await;
    assert_eq!(shown.body["recovery_codes_left"], 9);
    // The recovery codes of another person open nothing.
    let bob = Ann::in_force(&region).await;
    is_refused(&ann.sign_in(PASSWORD, Some(&bob.recovery[1])).await, "second-factor-wrong");

    let renew = async |code: &str| {
        let body = json!({ "password": PASSWORD, "code": code });
        ann.client.post("/me/second-factor/recovery-codes", body).await
    };
    renew(&ann.wrong()).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    let renewed = recovery(renew(&ann.recovery[1]).await.is(StatusCode::OK));
    assert_eq!(renewed.len(), 10);
    is_refused(&ann.sign_in(PASSWORD, Some(&ann.recovery[2])).await, "second-factor-wrong");
    ann.sign_in(PASSWORD, Some(&renewed[9])).await.is(StatusCode::OK);
}

#[tokio::test]
async fn a_second_factor_is_turned_off_with_password_and_code() {
    let region = Region::new().await;
    let ann = Ann::in_force(&region).await;
    let off = async |password: &str, code: &str| {
        let body = json!({ "password": password, "code": code });
        ann.client.post("/me/second-factor/disable", body).await
    };
    off("wrong", &ann.code()).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    off(PASSWORD, &ann.wrong()).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    off(PASSWORD, &ann.recovery[3]).await.is(StatusCode::NO_CONTENT);
    ann.sign_in(PASSWORD, None).await.is(StatusCode::OK);
    off(PASSWORD, &ann.code()).await.is(StatusCode::CONFLICT);
    assert_eq!(ann.client.get("/me/second-factor").await.body["enabled"], false);
    let log = ann.client.get(&ann.client.own("/audit")).await;
    for action in ["person.refuse_code", "person.disable_second_factor"] {
        assert!(log.column("action").contains(&action), "{log:?}");
    }
    // Another device has another secret and other codes.
    let again = Ann::pending(&region, ann.client.clone()).await;
    assert_ne!(again.code(), ann.code());
}

#[tokio::test]
async fn a_second_factor_waits_ten_minutes_for_its_first_code() {
    let region = Region::new().await;
    let ann = Ann::pending(&region, region.person().await).await;
    region.clock.move_on(10 * 60_000);
    let late = ann.client.post("/me/second-factor/confirm", json!({ "code": ann.code() })).await;
    late.is(StatusCode::CONFLICT);
    assert_eq!(ann.client.get("/me/second-factor").await.body["enabled"], false);
    ann.sign_in(PASSWORD, None).await.is(StatusCode::OK);
    // The secret of a second try counts, not that of the first.
    let again = Ann::pending(&region, ann.client.clone()).await;
    let confirm =
        async |code: String| ann.client.post("/me/second-factor/confirm", json!({ "code": code })).await;
    confirm(ann.code()).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    confirm(again.code()).await.is(StatusCode::OK);
}

#[tokio::test]
async fn ten_wrong_first_codes_void_a_second_factor_that_waits() {
    let region = Region::new().await;
    let ann = Ann::pending(&region, region.person().await).await;
    let confirm =
        async |code: String| ann.client.post("/me/second-factor/confirm", json!({ "code": code })).await;
    for _ in 0..10 {
        confirm(ann.wrong()).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    }
    confirm(ann.code()).await.is(StatusCode::CONFLICT);
    let again = Ann::pending(&region, ann.client.clone()).await;
    for _ in 0..3 {
        let wrong = json!({ "code": again.wrong() });
        let refused = ann.client.post("/me/second-factor/confirm", wrong).await;
        refused.is(StatusCode::UNPROCESSABLE_ENTITY);
    }
    confirm(again.code()).await.is(StatusCode::OK);
    let log = ann.client.get(&ann.client.own("/audit?limit=100")).await;
    let refused = log.column("action").into_iter().filter(|action| *action == "person.refuse_code");
    assert_eq!(refused.count(), 13);
}

#[tokio::test]
async fn wrong_codes_are_limited_and_a_recovery_code_lets_the_owner_in() {
    let region = Region::new().await;
    let ann = Ann::in_force(&region).await;
    let sign_in = async |code: String| {
        let input = SignIn {
            email: ann.email.clone(),
            password: PASSWORD.into(),
            code: Some(code.as_str().into()),
            passkey: None,
        };
        region.control.sign_in(&input, &RequestSource::default()).await
    };
    for number in 0..20 {
        let wrong = sign_in(ann.wrong()).await;
        assert!(matches!(wrong, Err(Error::CodeWrong)), "{number}: {wrong:?}");
    }
    for _ in 0..2 {
        let refused = ann.sign_in(PASSWORD, Some(&ann.code())).await;
        refused.is(StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.headers.contains_key(header::RETRY_AFTER));
    }
    // Somebody who does not know the password learns nothing of it and counts for nothing.
    is_refused(&ann.sign_in("wrong", Some(&ann.code())).await, "unauthenticated");
    ann.sign_in(PASSWORD, Some(&ann.recovery[0])).await.is(StatusCode::OK);
    region.clock.move_on(86_400_000);
    ann.sign_in(PASSWORD, Some(&ann.code())).await.is(StatusCode::OK);
}

#[tokio::test]
async fn a_right_code_does_not_clear_the_count_of_wrong_ones_and_a_new_password_does_once_a_day() {
    let region = Region::new().await;
    let ann = Ann::in_force(&region).await;
    let sign_in = async |password: &str, code: String| {
        let (email, code) = (ann.email.clone(), Some(code.as_str().into()));
        let input = SignIn { email, password: password.into(), code, passkey: None };
        region.control.sign_in(&input, &RequestSource::default()).await
    };
    for _ in 0..19 {
        assert!(matches!(sign_in(PASSWORD, ann.wrong()).await, Err(Error::CodeWrong)));
    }
    sign_in(PASSWORD, ann.code()).await.unwrap();
    region.clock.move_on(STEP_MS);
    let new = "another long sentence";
    let change = async |current: &str, new: &str| {
        let body = json!({ "current": current, "new": new });
        ann.client.post("/me/password", body).await.is(StatusCode::NO_CONTENT);
    };
    for (password, next) in [(PASSWORD, new), (new, PASSWORD)] {
        let left = if password == PASSWORD { 1 } else { 20 };
        for _ in 0..left {
            assert!(matches!(sign_in(password, ann.wrong()).await, Err(Error::CodeWrong)));
        }
        assert!(matches!(sign_in(password, ann.code()).await, Err(Error::TooManyCodes(_))));
        change(password, next).await;
    }
    // The second new password of a day clears nothing.
    assert!(matches!(sign_in(PASSWORD, ann.code()).await, Err(Error::TooManyCodes(_))));
}

#[tokio::test]
async fn a_confirmation_that_comes_again_with_its_key_has_the_same_codes() {
    let region = Region::new().await;
    let ann = Ann::pending(&region, region.person().await).await;
    let named = ann.client.with("idempotency-key", "one");
    let confirm = async || {
        let body = json!({ "code": ann.code() });
        recovery(named.post("/me/second-factor/confirm", body).await.is(StatusCode::OK))
    };
    assert_eq!(confirm().await, confirm().await);
}

#[tokio::test]
async fn new_recovery_codes_that_are_asked_for_again_with_the_same_key_stay_the_same() {
    let region = Region::new().await;
    let ann = Ann::in_force(&region).await;
    let named = ann.client.with("idempotency-key", "one");
    let renew = async || {
        let body = json!({ "password": PASSWORD, "code": ann.recovery[0] });
        recovery(named.post("/me/second-factor/recovery-codes", body).await.is(StatusCode::OK))
    };
    let renewed = renew().await;
    assert_eq!(renewed, renew().await);
    ann.sign_in(PASSWORD, Some(&renewed[0])).await.is(StatusCode::OK);
}

#[tokio::test]
async fn a_session_that_somebody_chose_is_not_taken_over_by_a_sign_in() {
    let region = Region::new().await;
    let ann = Ann::in_force(&region).await;
    let chosen = region.stranger().with("cookie", "millrace=a-cookie-that-somebody-has-set");
    let body = |code: &str| json!({ "email": ann.email, "password": PASSWORD, "code": code });
    is_refused(&chosen.post("/sign-in", body("")).await, "second-factor-required");
    chosen.get("/me").await.is(StatusCode::UNAUTHORIZED);
    let mut signed_in = chosen.clone();
    signed_in.welcome(chosen.post("/sign-in", body(&ann.code())).await.is(StatusCode::OK));
    assert_ne!(signed_in.cookie(), chosen.cookie());
    chosen.get("/me").await.is(StatusCode::UNAUTHORIZED);
    // A new sign-in in a browser that has a session makes another one.
    region.clock.move_on(STEP_MS);
    let mut again = signed_in.clone();
    again.welcome(signed_in.post("/sign-in", body(&ann.code())).await.is(StatusCode::OK));
    assert_ne!(again.cookie(), signed_in.cookie());
}

/// Every route of one's own account, with a body that would be right.
fn own_routes() -> Vec<(Method, String, Option<Value>)> {
    let described = serde_json::to_value(millrace_control::openapi()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let Ok(method) = Method::from_bytes(method.to_uppercase().as_bytes()) else { continue };
            if path != "/me" && !path.starts_with("/me/") {
                continue;
            }
            let body = match (method.as_str(), path.as_str()) {
                ("PATCH", "/me") => Some(json!({ "name": "Eve" })),
                ("POST", "/me/password") => {
                    Some(json!({ "current": PASSWORD, "new": "another long sentence" }))
                }
                ("POST", "/me/identities" | "/me/identities/pending") => Some(json!({})),
                ("POST", "/me/second-factor") => Some(json!({ "password": PASSWORD })),
                ("POST", "/me/second-factor/confirm") => Some(json!({ "code": "000000" })),
                ("POST", "/me/second-factor/recovery-codes" | "/me/second-factor/disable") => {
                    Some(json!({ "password": PASSWORD, "code": "000000" }))
                }
                ("POST", "/me/email") => Some(json!({ "email": "eve@example.org", "password": PASSWORD })),
                ("POST", "/me/email/confirm") => Some(json!({ "token": "x" })),
                ("POST", "/me/delete") => Some(json!({ "password": PASSWORD })),
                ("POST", "/me/passkeys/begin" | "/me/passkeys/{passkey}/remove") => {
                    Some(json!({ "password": PASSWORD, "code": "000000" }))
                }
                ("POST", "/me/passkeys") => {
                    Some(json!({ "name": "a", "client_data": "e30", "attestation_object": "oA" }))
                }
                ("POST", "/me/passkeys/challenge") => None,
                ("PATCH", "/me/passkeys/{passkey}") => Some(json!({ "name": "a" })),
                ("POST", other) => panic!("{other} is new: say what it takes"),
                _ => None,
            };
            let path = path.replace("{session}", "x").replace("{identity}", "x");
            all.push((method, path.replace("{passkey}", &Uuid::nil().to_string()), body));
        }
    }
    assert!(all.len() >= 16, "{all:?}");
    all
}

#[tokio::test]
async fn no_api_token_and_no_stranger_reaches_an_account() {
    let region = Region::new().await;
    let ann = region.person().await;
    let token = json!({ "name": "all", "scopes": SCOPES });
    let token = ann.post(&ann.own("/tokens"), token).await.text("/secret").to_owned();
    for (method, path, body) in own_routes() {
        let program = ann.with_token(&token).send(method.clone(), &path, body.clone()).await;
        // Where there is no provider, connecting an account of one is refused for that.
        if !path.starts_with("/me/identities") {
            assert_eq!(program.status, StatusCode::FORBIDDEN, "{method} {path}: {program:?}");
        }
        assert!(!program.status.is_success(), "{method} {path}: {program:?}");
        let stranger = region.stranger().send(method.clone(), &path, body.clone()).await;
        assert_eq!(stranger.status, StatusCode::UNAUTHORIZED, "{method} {path}: {stranger:?}");
        if method != Method::GET {
            let forged = ann.without("x-csrf-token").send(method.clone(), &path, body).await;
            assert_eq!(forged.status, StatusCode::FORBIDDEN, "{method} {path}: {forged:?}");
        }
    }
    ann.get("/me").await.is(StatusCode::OK);
}

#[tokio::test]
async fn new_recovery_codes_are_never_older_ones_even_with_the_same_key() {
    let region = Region::new().await;
    let ann = Ann::in_force(&region).await;
    let named = ann.client.with("idempotency-key", "monthly");
    let renew = async || {
        let body = json!({ "password": PASSWORD, "code": ann.code() });
        recovery(named.post("/me/second-factor/recovery-codes", body).await.is(StatusCode::OK))
    };
    let first = renew().await;
    // The answer of a request is stored for a day.
    region.clock.move_on(25 * 3_600_000);
    let second = renew().await;
    assert!(second.iter().all(|code| !first.contains(code)), "{first:?} {second:?}");
    ann.sign_in(PASSWORD, Some(&second[0])).await.is(StatusCode::OK);
}

#[tokio::test]
async fn a_new_address_needs_the_second_factor_of_an_account_that_has_one() {
    let (region, letters) = with_mail(SignUpBy::Anybody).await;
    let client = person(&region, &letters, "ann@example.org").await;
    let ann = Ann::pending(&region, client).await;
    ann.client.post("/me/second-factor/confirm", json!({ "code": ann.code() })).await.is(StatusCode::OK);
    letters.letter();
    region.clock.move_on(STEP_MS);
    let ask = async |more: Value| {
        let mut body = json!({ "email": "new@example.org", "password": PASSWORD });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ann.client.post("/me/email", body).await
    };
    for wrong in [json!({}), json!({ "code": ann.wrong() }), json!({ "code": "" })] {
        let refused = ask(wrong).await;
        assert_eq!(refused.is(StatusCode::UNPROCESSABLE_ENTITY).body["fields"][0]["field"], "code");
    }
    assert!(letters.is_empty(), "nothing was mailed");
    ask(json!({ "code": ann.code() })).await.is(StatusCode::ACCEPTED);
    assert!(!letters.is_empty());
    let log = ann.client.get("/me/audit").await;
    assert!(log.column("action").contains(&"person.refuse_code"), "{log:?}");
}
