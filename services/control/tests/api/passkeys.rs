//! Passkeys: adding and removing them, signing in with them, and answers that are refused.

use std::sync::Arc;

use axum::http::{Method, StatusCode, header};
use futures_util::future::join_all;
use millrace_control::NothingLive;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::second_factor::Ann as WithApp;
use crate::sign_in_limits::post_from;
use crate::tools::{Answer, Client, PASSWORD, Region};

#[path = "../../src/webauthn/software.rs"]
mod software;

use software::{PRESENT, SoftwareAuthenticator, base64};

const ORIGIN: &str = "https://console.example.org";
const MINUTE_MS: u64 = 60_000;

async fn region() -> Region {
    let region = Region::new().await.unlimited();
    region.control.console_at(ORIGIN.into());
    region
}

fn authenticator() -> SoftwareAuthenticator {
    SoftwareAuthenticator::new("console.example.org", ORIGIN)
}

/// Somebody with a passkey.
struct Ann {
    region: Region,
    client: Client,
    email: String,
    user: String,
    authenticator: SoftwareAuthenticator,
    passkey: String,
    recovery: Vec<String>,
}

impl Ann {
    async fn new(region: &Region) -> Self {
        let client = region.person().await;
        let me = client.get("/me").await;
        let mut ann = Self {
            region: region.clone(),
            email: me.text("/user/email").into(),
            user: base64(Uuid::try_parse(me.text("/user/id")).unwrap().as_bytes()),
            client,
            authenticator: authenticator(),
            passkey: String::new(),
            recovery: Vec::new(),
        };
        let added = ann.add(&ann.authenticator, json!({})).await;
        ann.passkey = added.is(StatusCode::CREATED).text("/passkey/id").into();
        ann.recovery = serde_json::from_value(added.body["recovery_codes"].clone()).unwrap();
        ann
    }

    async fn begin(&self, more: Value) -> Answer {
        let mut proof = json!({ "password": PASSWORD });
        proof.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.client.post("/me/passkeys/begin", proof).await
    }

    /// Adds a passkey, with what is shown beside the password.
    async fn add(&self, authenticator: &SoftwareAuthenticator, more: Value) -> Answer {
        let begun = self.begin(more).await;
        let challenge = begun.is(StatusCode::OK).text("/challenge");
        self.client.post("/me/passkeys", registration(authenticator, challenge)).await
    }

    fn assertion(&self, challenge: &str) -> Value {
        assertion(&self.authenticator, challenge, &self.user)
    }

    /// The passkey's answer for a change in the web session.
    async fn confirmation(&self) -> Value {
        let asked = self.client.post("/me/passkeys/challenge", json!({})).await;
        self.assertion(asked.is(StatusCode::OK).text("/challenge"))
    }

    async fn sign_in(&self, more: Value) -> Answer {
        let mut body = json!({ "email": self.email, "password": PASSWORD });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.region.stranger().post("/sign-in", body).await
    }

    /// The challenge that a sign-in with the right password is answered with.
    async fn second_step(&self) -> String {
        let asked = self.sign_in(json!({})).await;
        asked.is(StatusCode::UNAUTHORIZED).text("/passkey/challenge").into()
    }

    async fn discovery(&self) -> String {
        let asked = self.region.stranger().post("/sign-in/passkey/challenge", json!({})).await;
        asked.is(StatusCode::OK).text("/challenge").into()
    }

    async fn discover(&self, assertion: Value) -> Answer {
        self.region.stranger().post("/sign-in/passkey", assertion).await
    }

    async fn own_audit(&self) -> Vec<Value> {
        let log = self.client.get("/me/audit?limit=100").await;
        log.is(StatusCode::OK).body["items"].as_array().unwrap().clone()
    }
}

fn registration(authenticator: &SoftwareAuthenticator, challenge: &str) -> Value {
    let (client_data, attestation) = authenticator.register(challenge);
    json!({
        "name": "Laptop", "client_data": base64(&client_data), "attestation_object": base64(&attestation),
        "transports": ["internal", "telepathy"],
    })
}

fn assertion(authenticator: &SoftwareAuthenticator, challenge: &str, user: &str) -> Value {
    let answer = authenticator.sign_in(challenge);
    json!({
        "credential_id": base64(&authenticator.id), "client_data": base64(&answer.client_data),
        "authenticator_data": base64(&answer.authenticator_data), "signature": base64(&answer.signature),
        "user_handle": user,
    })
}

#[track_caller]
fn is_refused(answer: &Answer, kind: &str) {
    answer.is(StatusCode::UNAUTHORIZED);
    assert_eq!(answer.text("/type"), format!("urn:millrace:problem:{kind}"), "{answer:?}");
    assert!(answer.headers.get(header::SET_COOKIE).is_none());
}

#[tokio::test]
async fn a_passkey_is_added_used_renamed_and_removed() {
    let region = region().await;
    let person = region.person().await;
    let mut elsewhere = region.stranger();
    let email = person.get("/me").await.text("/user/email").to_owned();
    let sign_in = json!({ "email": email, "password": PASSWORD });
    elsewhere.welcome(region.stranger().post("/sign-in", sign_in).await.is(StatusCode::OK));
    elsewhere.get("/me").await.is(StatusCode::OK);

    let ann = Ann::new(&region).await;
    assert_eq!(ann.recovery.len(), 10);
    let listed = ann.client.get("/me/passkeys").await;
    assert_eq!(listed.is(StatusCode::OK).column("name"), ["Laptop"]);
    assert_eq!(listed.body["items"][0]["last_used_at_ms"], Value::Null);
    let factor = ann.client.get("/me/second-factor").await;
    assert_eq!(factor.body["enabled"], true);
    assert_eq!(factor.body["app_enabled_at"], Value::Null);
    assert_eq!((&factor.body["passkeys"], &factor.body["recovery_codes_left"]), (&json!(1), &json!(10)));

    let challenge = ann.second_step().await;
    ann.sign_in(json!({ "passkey": ann.assertion(&challenge) })).await.is(StatusCode::OK);
    let used = ann.client.get("/me/passkeys").await;
    assert!(used.body["items"][0]["last_used_at_ms"].is_u64(), "{used:?}");
    let signed_in = ann.discover(ann.assertion(&ann.discovery().await)).await;
    assert_eq!(signed_in.is(StatusCode::OK).text("/user/email"), ann.email);

    let at = format!("/me/passkeys/{}", ann.passkey);
    let renamed = ann.client.send(Method::PATCH, &at, Some(json!({ "name": "Phone" }))).await;
    assert_eq!(renamed.is(StatusCode::OK).text("/name"), "Phone");
    let remove = async |more: Value| {
        let mut proof = json!({ "password": PASSWORD });
        proof.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ann.client.post(&format!("{at}/remove"), proof).await
    };
    remove(json!({})).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    remove(json!({ "password": "wrong", "code": ann.recovery[0] }))
        .await
        .is(StatusCode::UNPROCESSABLE_ENTITY);
    remove(json!({ "passkey": ann.confirmation().await })).await.is(StatusCode::NO_CONTENT);
    remove(json!({ "code": ann.recovery[0] })).await.is(StatusCode::NOT_FOUND);
    assert_eq!(ann.client.get("/me/passkeys").await.body["items"], json!([]));
    assert_eq!(ann.client.get("/me/second-factor").await.body["recovery_codes_left"], 0);
    // The password alone is enough again, and the passkey opens nothing.
    ann.sign_in(json!({})).await.is(StatusCode::OK);
    is_refused(&ann.discover(ann.assertion(&ann.discovery().await)).await, "unauthenticated");
    let actions: Vec<_> = ann.own_audit().await.iter().map(|entry| entry["action"].clone()).collect();
    for action in ["person.add_passkey", "person.rename_passkey", "person.remove_passkey", "sign_in"] {
        assert!(actions.contains(&json!(action)), "{actions:?}");
    }
    // It may be added again.
    ann.add(&ann.authenticator, json!({})).await.is(StatusCode::CREATED);
}

#[tokio::test]
async fn the_first_passkey_and_a_removed_one_end_other_web_sessions() {
    let region = region().await;
    let ann = Ann::new(&region).await;
    let mut elsewhere = region.stranger();
    let challenge = ann.second_step().await;
    elsewhere.welcome(ann.sign_in(json!({ "passkey": ann.assertion(&challenge) })).await.is(StatusCode::OK));
    let at = format!("/me/passkeys/{}/remove", ann.passkey);
    let proof = json!({ "password": PASSWORD, "code": ann.recovery[0] });
    ann.client.post(&at, proof).await.is(StatusCode::NO_CONTENT);
    elsewhere.get("/me").await.is(StatusCode::UNAUTHORIZED);
    elsewhere.welcome(ann.sign_in(json!({})).await.is(StatusCode::OK));
    elsewhere.get("/me").await.is(StatusCode::OK);
    ann.add(&authenticator(), json!({})).await.is(StatusCode::CREATED);
    elsewhere.get("/me").await.is(StatusCode::UNAUTHORIZED);
    ann.client.get("/me").await.is(StatusCode::OK);
}

#[tokio::test]
async fn adding_a_passkey_needs_the_password_and_the_factor_in_force() {
    let region = region().await;
    let ann = Ann::new(&region).await;
    ann.begin(json!({ "password": "wrong" })).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    ann.begin(json!({})).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    ann.begin(json!({ "code": "000000" })).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    let begun = ann.begin(json!({ "passkey": ann.confirmation().await })).await;
    assert_eq!(begun.is(StatusCode::OK).body["exclude"][0]["id"], base64(&ann.authenticator.id));
    assert_eq!(begun.body["exclude"][0]["transports"], json!(["internal"]));
    let added =
        ann.client.post("/me/passkeys", registration(&authenticator(), begun.text("/challenge"))).await;
    assert_eq!(added.is(StatusCode::CREATED).body["recovery_codes"], json!([]), "the codes from before stay");
    ann.sign_in(json!({ "code": ann.recovery[0] })).await.is(StatusCode::OK);

    // So does the app, beside a passkey.
    let app = json!({ "password": PASSWORD });
    ann.client.post("/me/second-factor", app).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    let app = json!({ "password": PASSWORD, "passkey": ann.confirmation().await });
    ann.client.post("/me/second-factor", app).await.is(StatusCode::CREATED);
    assert_eq!(ann.client.get("/me/second-factor").await.body["app_enabled_at"], Value::Null);
    ann.sign_in(json!({ "code": ann.recovery[1] })).await.is(StatusCode::OK);
}

#[tokio::test]
async fn an_app_and_a_passkey_stand_in_for_each_other_and_share_the_recovery_codes() {
    let region = region().await;
    let app = WithApp::in_force(&region).await;
    let begun = json!({ "password": PASSWORD, "code": app.code() });
    let begun = app.client.post("/me/passkeys/begin", begun).await;
    let device = authenticator();
    let added = app.client.post("/me/passkeys", registration(&device, begun.text("/challenge"))).await;
    assert_eq!(added.is(StatusCode::CREATED).body["recovery_codes"], json!([]));
    app.sign_in(PASSWORD, Some(&app.recovery[0])).await.is(StatusCode::OK);
    let asked = app.sign_in(PASSWORD, None).await;
    let passkey = assertion(&device, asked.text("/passkey/challenge"), &begun_user(&begun));
    let body = json!({ "email": app.email, "password": PASSWORD, "passkey": passkey });
    region.stranger().post("/sign-in", body).await.is(StatusCode::OK);
    // Without the app the passkey stays, and so do the codes.
    let off = json!({ "password": PASSWORD, "code": app.recovery[1] });
    app.client.post("/me/second-factor/disable", off).await.is(StatusCode::NO_CONTENT);
    let left = app.client.get("/me/second-factor").await;
    assert_eq!((&left.body["enabled"], &left.body["recovery_codes_left"]), (&json!(true), &json!(8)));
    app.sign_in(PASSWORD, Some(&app.recovery[2])).await.is(StatusCode::OK);
    let off = json!({ "password": PASSWORD, "code": app.recovery[3] });
    app.client.post("/me/second-factor/disable", off).await.is(StatusCode::CONFLICT);
}

fn begun_user(begun: &Answer) -> String {
    begun.text("/user_handle").into()
}

#[tokio::test]
async fn a_challenge_is_answered_once_in_time_and_in_its_own_ceremony() {
    let region = region().await;
    let ann = Ann::new(&region).await;
    let challenge = ann.second_step().await;
    let answer = ann.assertion(&challenge);
    ann.sign_in(json!({ "passkey": answer })).await.is(StatusCode::OK);
    is_refused(&ann.sign_in(json!({ "passkey": answer })).await, "second-factor-wrong");
    // Another signature over the same challenge is refused, too.
    is_refused(&ann.sign_in(json!({ "passkey": ann.assertion(&challenge) })).await, "second-factor-wrong");
    let challenge = ann.discovery().await;
    ann.discover(ann.assertion(&challenge)).await.is(StatusCode::OK);
    is_refused(&ann.discover(ann.assertion(&challenge)).await, "unauthenticated");

    let late =
        (ann.second_step().await, ann.discovery().await, ann.begin(json!({ "code": ann.recovery[0] })).await);
    region.clock.move_on(5 * MINUTE_MS);
    is_refused(&ann.sign_in(json!({ "passkey": ann.assertion(&late.0) })).await, "second-factor-wrong");
    is_refused(&ann.discover(ann.assertion(&late.1)).await, "unauthenticated");
    let added = registration(&authenticator(), late.2.text("/challenge"));
    ann.client.post("/me/passkeys", added).await.is(StatusCode::CONFLICT);

    let begun = ann.begin(json!({ "code": ann.recovery[1] })).await;
    let in_session = ann.client.post("/me/passkeys/challenge", json!({})).await;
    for other in [begun.text("/challenge"), in_session.text("/challenge"), &ann.discovery().await] {
        is_refused(&ann.sign_in(json!({ "passkey": ann.assertion(other) })).await, "second-factor-wrong");
    }
    for other in [begun.text("/challenge"), in_session.text("/challenge"), &ann.second_step().await] {
        is_refused(&ann.discover(ann.assertion(other)).await, "unauthenticated");
    }
    for other in [in_session.text("/challenge"), &ann.second_step().await, &ann.discovery().await] {
        let added = registration(&authenticator(), other);
        ann.client.post("/me/passkeys", added).await.is(StatusCode::CONFLICT);
    }
    for made_up in ["", "AAAA", &base64(&[7; 73]), &ann.second_step().await[1..]] {
        is_refused(&ann.sign_in(json!({ "passkey": ann.assertion(made_up) })).await, "second-factor-wrong");
    }
    // A swept challenge has expired before.
    region.clock.move_on(5 * MINUTE_MS);
    region.control.sweep().await.unwrap();
    is_refused(&ann.discover(ann.assertion(&challenge)).await, "unauthenticated");
}

#[tokio::test]
async fn the_challenge_of_an_addition_is_for_its_session_and_its_password_and_is_used_once() {
    let region = region().await;
    let ann = Ann::new(&region).await;
    let mut elsewhere = region.stranger();
    elsewhere.welcome(ann.sign_in(json!({ "code": ann.recovery[0] })).await.is(StatusCode::OK));
    let begun = ann.begin(json!({ "code": ann.recovery[1] })).await;
    let device = authenticator();
    let new = registration(&device, begun.text("/challenge"));
    elsewhere.post("/me/passkeys", new.clone()).await.is(StatusCode::CONFLICT);
    let added = ann.client.post("/me/passkeys", new.clone()).await;
    // Once the passkey is removed, its first answer does not bring it back.
    let at = format!("/me/passkeys/{}/remove", added.is(StatusCode::CREATED).text("/passkey/id"));
    let proof = json!({ "password": PASSWORD, "code": ann.recovery[2] });
    ann.client.post(&at, proof).await.is(StatusCode::NO_CONTENT);
    ann.client.post("/me/passkeys", new).await.is(StatusCode::CONFLICT);

    let begun = ann.begin(json!({ "code": ann.recovery[3] })).await;
    let changed = json!({ "current": PASSWORD, "new": "another long sentence" });
    ann.client.post("/me/password", changed).await.is(StatusCode::NO_CONTENT);
    let new = registration(&device, begun.text("/challenge"));
    ann.client.post("/me/passkeys", new).await.is(StatusCode::CONFLICT);
}

#[tokio::test]
async fn after_a_new_password_a_passkey_signs_in_alone_once_it_has_followed_the_password() {
    let region = region().await;
    let ann = Ann::new(&region).await;
    ann.discover(ann.assertion(&ann.discovery().await)).await.is(StatusCode::OK);
    let new = "another long sentence";
    let changed = json!({ "current": PASSWORD, "new": new });
    ann.client.post("/me/password", changed).await.is(StatusCode::NO_CONTENT);
    let refused = ann.discover(ann.assertion(&ann.discovery().await)).await;
    assert!(
        refused.is(StatusCode::UNAUTHORIZED).text("/detail").contains("password was changed"),
        "{refused:?}"
    );
    let asked = ann.sign_in(json!({ "password": new })).await;
    let passkey = ann.assertion(asked.is(StatusCode::UNAUTHORIZED).text("/passkey/challenge"));
    ann.sign_in(json!({ "password": new, "passkey": passkey })).await.is(StatusCode::OK);
    ann.discover(ann.assertion(&ann.discovery().await)).await.is(StatusCode::OK);
}

#[tokio::test]
async fn an_addition_that_was_begun_without_a_factor_is_void_once_one_is_in_force() {
    let region = region().await;
    let client = region.person().await;
    let proof = json!({ "password": PASSWORD });
    let begun = client.post("/me/passkeys/begin", proof.clone()).await;
    let earlier = registration(&authenticator(), begun.text("/challenge"));
    let begun = client.post("/me/passkeys/begin", proof).await;
    let first = registration(&authenticator(), begun.text("/challenge"));
    client.post("/me/passkeys", first).await.is(StatusCode::CREATED);
    client.post("/me/passkeys", earlier).await.is(StatusCode::CONFLICT);
}

#[tokio::test]
async fn an_addition_that_comes_again_with_its_key_has_the_same_codes() {
    let region = region().await;
    let client = region.person().await;
    let begun = client.post("/me/passkeys/begin", json!({ "password": PASSWORD })).await;
    let new = registration(&authenticator(), begun.text("/challenge"));
    let named = client.with("idempotency-key", "one");
    let first = named.post("/me/passkeys", new.clone()).await;
    let second = named.post("/me/passkeys", new).await;
    assert_eq!(first.is(StatusCode::CREATED).body, second.is(StatusCode::CREATED).body);
    assert_eq!(client.get("/me/passkeys").await.column("name"), ["Laptop"]);
}

#[tokio::test]
async fn wrong_answers_are_refused_and_recorded() {
    let region = region().await;
    let mut ann = Ann::new(&region).await;
    let user = ann.user.clone();
    let faults: [fn(&mut SoftwareAuthenticator); 5] = [
        |it| it.origin = "https://evil.example.org".into(),
        |it| it.rp_id = "evil.example.org".into(),
        |it| it.flags = 0,
        |it| it.more = r#","crossOrigin":true"#.into(),
        |it| it.kind = Some("webauthn.create"),
    ];
    for (number, fault) in faults.iter().enumerate() {
        let mut faulty =
            SoftwareAuthenticator::with_key(ann.authenticator.key.clone(), "console.example.org", ORIGIN);
        faulty.id.clone_from(&ann.authenticator.id);
        fault(&mut faulty);
        let second_step = assertion(&faulty, &ann.second_step().await, &user);
        is_refused(&ann.sign_in(json!({ "passkey": second_step })).await, "second-factor-wrong");
        let discovered = assertion(&faulty, &ann.discovery().await, &user);
        is_refused(&ann.discover(discovered).await, "unauthenticated");
        let begun = ann.region.person().await;
        let begun_at = begun.post("/me/passkeys/begin", json!({ "password": PASSWORD })).await;
        let refused = registration(&faulty, begun_at.text("/challenge"));
        // The planted type is the right one of a registration.
        let expected = if number == 4 { StatusCode::CONFLICT } else { StatusCode::UNPROCESSABLE_ENTITY };
        begun.post("/me/passkeys", refused).await.is(expected);
    }
    // Without a check of its user, the passkey only follows a password.
    ann.authenticator.flags = PRESENT;
    is_refused(&ann.discover(ann.assertion(&ann.discovery().await)).await, "unauthenticated");
    let challenge = ann.second_step().await;
    ann.sign_in(json!({ "passkey": ann.assertion(&challenge) })).await.is(StatusCode::OK);
    let refused = ann.own_audit().await;
    let refused = refused.iter().filter(|entry| entry["action"] == "sign_in.refuse");
    assert_eq!(refused.count(), 11);
}

#[tokio::test]
async fn a_signature_counter_that_goes_back_is_refused_and_reported() {
    let region = region().await;
    let mut ann = Ann::new(&region).await;
    let steps = [(5, true), (6, true), (6, false), (5, false), (0, false), (7, true)];
    for (counter, is_right) in steps {
        ann.authenticator.counter = counter;
        let challenge = ann.second_step().await;
        let answer = ann.sign_in(json!({ "passkey": ann.assertion(&challenge) })).await;
        match is_right {
            true => drop(answer.is(StatusCode::OK)),
            false => is_refused(&answer, "second-factor-wrong"),
        }
    }
    let log = ann.own_audit().await;
    let reported = log.iter().filter(|entry| entry["action"] == "person.refuse_passkey");
    let reported: Vec<_> = reported.map(|entry| entry["details"]["counter"].as_u64().unwrap()).collect();
    assert_eq!(reported, [0, 5, 6]);
}

#[tokio::test]
async fn nobody_signs_in_with_the_passkey_of_another_account() {
    let region = region().await;
    let (ann, bob) = (Ann::new(&region).await, Ann::new(&region).await);
    let challenge = ann.second_step().await;
    is_refused(&ann.sign_in(json!({ "passkey": bob.assertion(&challenge) })).await, "second-factor-wrong");
    // A challenge of Bob's account, and a challenge of Ann's with Bob's key under Ann's credential id.
    let of_bob = bob.second_step().await;
    is_refused(&ann.sign_in(json!({ "passkey": ann.assertion(&of_bob) })).await, "second-factor-wrong");
    let mut forged = bob.assertion(&ann.second_step().await);
    forged["credential_id"] = base64(&ann.authenticator.id).into();
    is_refused(&ann.sign_in(json!({ "passkey": forged })).await, "second-factor-wrong");
    // The user handle has to be the owner's.
    for handle in [json!(bob.user), Value::Null, json!("")] {
        let mut answer = ann.assertion(&ann.discovery().await);
        answer["user_handle"] = handle;
        is_refused(&ann.discover(answer).await, "unauthenticated");
    }
    // An unknown passkey is answered like a known one with a wrong signature.
    let stranger = assertion(&authenticator(), &ann.discovery().await, &ann.user);
    let unknown = ann.discover(stranger).await;
    let mut wrong = ann.assertion(&ann.discovery().await);
    wrong["signature"] = base64(&[7; 70]).into();
    let known = ann.discover(wrong).await;
    assert_eq!((unknown.status, &unknown.body), (known.status, &known.body));
    // Somebody without a passkey and somebody unknown are answered alike, too.
    let one = region.stranger().post("/sign-in/passkey/challenge", json!({})).await;
    assert_eq!(one.body["credentials"], json!([]));

    // Bob finds none of Ann's passkeys, and does not register one of hers.
    let at = format!("/me/passkeys/{}", ann.passkey);
    bob.client.send(Method::PATCH, &at, Some(json!({ "name": "mine" }))).await.is(StatusCode::NOT_FOUND);
    let proof = json!({ "password": PASSWORD, "code": bob.recovery[0] });
    bob.client.post(&format!("{at}/remove"), proof).await.is(StatusCode::NOT_FOUND);
    bob.add(&ann.authenticator, json!({ "code": bob.recovery[0] })).await.is(StatusCode::CONFLICT);
    ann.add(&ann.authenticator, json!({ "code": ann.recovery[0] })).await.is(StatusCode::CONFLICT);
    assert_eq!(ann.client.get("/me/passkeys").await.column("name"), ["Laptop"]);
}

#[tokio::test]
async fn a_passkey_of_somebody_else_is_answered_as_one_that_nobody_has() {
    let region = region().await;
    let (ann, eve) = (Ann::new(&region).await, Ann::new(&region).await);
    let missing = "00000000-0000-7000-8000-000000000000";
    let remove = json!({ "password": PASSWORD, "code": eve.recovery[0] });
    for (method, end, body) in
        [(Method::PATCH, "", json!({ "name": "mine now" })), (Method::POST, "/remove", remove)]
    {
        let ask = async |id: &str| {
            let path = format!("/me/passkeys/{id}{end}");
            eve.client.with("if-match", "*").send(method.clone(), &path, Some(body.clone())).await
        };
        let (foreign, nobodys) = (ask(&ann.passkey).await, ask(missing).await);
        assert_eq!((foreign.status, &foreign.body), (nobodys.status, &nobodys.body), "{method}");
        foreign.is(StatusCode::NOT_FOUND);
    }
    let own = ann.client.get("/me/passkeys").await;
    assert!(own.body.to_string().contains(&ann.passkey) && !own.body.to_string().contains("mine now"));
}

#[tokio::test]
async fn a_person_has_ten_passkeys_at_most_and_inputs_have_bounds() {
    let region = region().await;
    let ann = Ann::new(&region).await;
    for number in 1..10 {
        let more = json!({ "passkey": ann.confirmation().await });
        ann.add(&authenticator(), more).await.is(StatusCode::CREATED);
        assert_eq!(ann.client.get("/me/passkeys").await.column("id").len(), number + 1);
    }
    ann.begin(json!({ "passkey": ann.confirmation().await })).await.is(StatusCode::CONFLICT);

    let long = "A".repeat(70_000);
    let answer = ann.assertion(&ann.discovery().await);
    for field in ["credential_id", "client_data", "authenticator_data", "signature", "user_handle"] {
        for (text, expected) in [
            (&long[..], StatusCode::PAYLOAD_TOO_LARGE),
            (&long[..6_000], StatusCode::UNAUTHORIZED),
            ("not Base64!", StatusCode::UNAUTHORIZED),
            ("QQ==", StatusCode::UNAUTHORIZED),
        ] {
            let mut wrong = answer.clone();
            wrong[field] = text.into();
            ann.discover(wrong).await.is(expected);
        }
    }
    let bob = region.person().await;
    let begun = bob.post("/me/passkeys/begin", json!({ "password": PASSWORD })).await;
    let new = registration(&authenticator(), begun.text("/challenge"));
    for (field, text) in
        [("name", ""), ("name", "a\u{202e}b"), ("client_data", "!"), ("attestation_object", "AAAA")]
    {
        let mut wrong = new.clone();
        wrong[field] = text.into();
        let refused = bob.post("/me/passkeys", wrong).await;
        assert_eq!(refused.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), field);
    }
    bob.post("/me/passkeys", new).await.is(StatusCode::CREATED);
}

#[tokio::test]
async fn a_deleted_account_and_an_operator_take_its_passkeys_away() {
    let region = region().await;
    let ann = Ann::new(&region).await;
    ann.client.delete(&ann.client.own("")).await.is(StatusCode::NO_CONTENT);
    ann.client.post("/me/delete", json!({ "password": PASSWORD })).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    let proof = json!({ "password": PASSWORD, "passkey": ann.confirmation().await });
    ann.client.post("/me/delete", proof).await.is(StatusCode::NO_CONTENT);
    is_refused(&ann.discover(ann.assertion(&ann.discovery().await)).await, "unauthenticated");
    // The credential is free for another account.
    let mut bob = Ann::new(&region).await;
    let added = bob.add(&ann.authenticator, json!({ "code": bob.recovery[0] })).await;
    added.is(StatusCode::CREATED);

    let operators = crate::operator::router(&region, None);
    let email = json!({ "email": bob.email });
    crate::operator::here(&operators, "/second-factor-removals", Some(email)).await;
    is_refused(&bob.discover(bob.assertion(&bob.discovery().await)).await, "unauthenticated");
    bob.client = region.stranger();
    bob.client.welcome(bob.sign_in(json!({})).await.is(StatusCode::OK));
    assert_eq!(bob.client.get("/me/passkeys").await.body["items"], json!([]));
}

#[tokio::test]
async fn guesses_at_a_passkey_are_limited_like_sign_ins() {
    let region = Region::new().await;
    region.control.console_at(ORIGIN.into());
    let ann = Ann::new(&region).await;
    let mut statuses = Vec::new();
    for _ in 0..200 {
        let wrong = ann.assertion("AAAA");
        statuses.push(ann.discover(wrong).await.status);
        if statuses.ends_with(&[StatusCode::TOO_MANY_REQUESTS]) {
            break;
        }
    }
    assert!(statuses.contains(&StatusCode::UNAUTHORIZED), "{statuses:?}");
    assert!(statuses.contains(&StatusCode::TOO_MANY_REQUESTS), "{statuses:?}");
}

#[tokio::test]
async fn guesses_after_a_restart_do_not_keep_the_owner_of_a_passkey_out() {
    let region = Region::new().await;
    region.control.console_at(ORIGIN.into());
    let mut ann = Ann::new(&region).await;
    let right = ann.assertion(&ann.discovery().await);
    post_from(&region, "2001:db8:1:2::1", "/sign-in/passkey", right).await.is(StatusCode::OK);

    // A server that has just started has counted nothing.
    ann.region = region.live(Arc::new(NothingLive));
    let wrong = async |number: u8| {
        post_from(&ann.region, &format!("192.0.2.{number}"), "/sign-in/passkey", ann.assertion("AAAA")).await
    };
    let mut guesses = 0;
    while wrong(guesses).await.status == StatusCode::UNAUTHORIZED {
        guesses += 1;
        assert!(guesses < 100, "guesses are limited");
    }
    for (address, expected) in
        [("198.51.100.1", StatusCode::TOO_MANY_REQUESTS), ("2001:db8:1:2::7", StatusCode::OK)]
    {
        let right = ann.assertion(&ann.discovery().await);
        post_from(&ann.region, address, "/sign-in/passkey", right).await.is(expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sign_ins_at_once_with_one_answer_one_gets_in() {
    let region = region().await;
    let ann = Ann::new(&region).await;
    let answer = ann.assertion(&ann.discovery().await);
    let all = join_all((0..4).map(|_| ann.discover(answer.clone()))).await;
    let count = |status| all.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(StatusCode::OK), count(StatusCode::UNAUTHORIZED)), (1, 3), "{all:?}");
}

#[tokio::test]
async fn a_server_without_a_name_has_no_passkeys() {
    let region = Region::new().await;
    let ways = region.stranger().get("/sign-in/ways").await;
    assert_eq!(ways.body["passkey_origin"], Value::Null);
    let client = region.person().await;
    client.post("/me/passkeys/begin", json!({ "password": PASSWORD })).await.is(StatusCode::CONFLICT);
    region.stranger().post("/sign-in/passkey/challenge", json!({})).await.is(StatusCode::CONFLICT);
    region.control.console_at("http://127.0.0.1:8080".into());
    let ways = region.stranger().get("/sign-in/ways").await;
    assert_eq!(ways.body["passkey_origin"], "http://localhost:8080");
    client.post("/me/passkeys/begin", json!({ "password": PASSWORD })).await.is(StatusCode::OK);
}
