//! Signing in with a provider, which runs beside and says what a test wants.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use millrace_control::{ApiOptions, OidcSettings, SignUpBy};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::second_factor::Ann;
use crate::tools::{Answer, Client, PASSWORD, Region, interleaved};

const US: &str = "millrace at plant";
const SECRET: &str = "between us: 100%";
const HERE: &str = "https://console.example.org/api/v1/sign-in/oidc/callback";

/// A provider of one person.
#[derive(Clone)]
struct Provider(Arc<Inner>);

struct Inner {
    url: String,
    key: EcdsaKeyPair,
    says: Mutex<Says>,
}

/// How the provider's answers differ from right ones.
#[derive(Clone, Default)]
struct Says {
    /// Claims of the token that are others; null: that are missing.
    claims: HashMap<&'static str, Value>,
    /// Answer of its user info endpoint, if it has one.
    more: Option<Value>,
    /// Parts of its configuration that are others.
    configuration: HashMap<&'static str, Value>,
    /// It signs with a key that it does not show.
    forges: bool,
    /// Challenge and nonce, as the browser has brought them.
    challenge: String,
    nonce: String,
    /// How often its configuration was asked for.
    asked: usize,
}

impl Provider {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let inner = Inner { url, key: key(), says: Mutex::default() };
        let provider = Self(Arc::new(inner));
        let app = Router::new()
            .route("/.well-known/openid-configuration", get(configuration))
            .route("/token", post(token))
            .route("/keys", get(keys))
            .route("/me", get(more))
            .with_state(provider.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        provider
    }

    fn says(&self, change: impl FnOnce(&mut Says)) {
        change(&mut self.0.says.lock().unwrap());
    }

    /// A region whose people may sign in here.
    async fn region(&self, sign_up_by: SignUpBy) -> Region {
        let oidc = OidcSettings {
            name: "Plant".into(),
            issuer: self.0.url.clone(),
            client_id: US.into(),
            client_secret: Some(SECRET.into()),
            redirect_url: HERE.into(),
        };
        Region::with(sign_up_by, ApiOptions { oidc: Some(oidc), ..ApiOptions::default() }).await
    }

    /// Signs in as a browser does: begins here, goes to the provider, and comes back.
    async fn sign_in(&self, client: &mut Client, query: &str) -> Answer {
        let (back, kept) = self.go(client, query).await;
        let answer = client.with("cookie", &kept).get(&back).await;
        if answer.status == StatusCode::SEE_OTHER {
            assert_eq!(answer.headers[header::LOCATION], "/");
            client.keep(&answer).await;
        }
        answer
    }

    /// The same with what its page sends before.
    async fn sign_in_with(&self, client: &mut Client, body: Value) -> Answer {
        let left = client.post("/sign-in/oidc", body).await;
        let (back, kept) = self.left(client, left.is(StatusCode::OK), left.text("/location"));
        let answer = client.with("cookie", &kept).get(&back).await;
        if answer.status == StatusCode::SEE_OTHER {
            client.keep(&answer).await;
        }
        answer
    }

    /// Somebody who is signed in goes to connect an account. Returns them with what their browser keeps then.
    async fn connect(&self, client: &Client) -> Client {
        let left = client.post("/me/identities", json!({})).await;
        let (back, kept) = self.left(client, left.is(StatusCode::OK), left.text("/location"));
        let answer = client.with("cookie", &kept).get(&back).await;
        assert_eq!(answer.is(StatusCode::SEE_OTHER).headers[header::LOCATION], "/me?identity=pending");
        let set = answer.headers.get_all(header::SET_COOKIE).iter().map(|set| set.to_str().unwrap());
        let link =
            set.filter_map(|set| set.split(';').next()).find(|pair| pair.starts_with("millrace-link="));
        let signed_in = client.cookie().unwrap_or_default();
        client.with("cookie", &format!("{signed_in}; {}", link.unwrap()))
    }

    /// The way there. Returns the way back, and all cookies that the browser has then.
    async fn go(&self, client: &Client, query: &str) -> (String, String) {
        let answer = client.get(&format!("/sign-in/oidc{query}")).await;
        answer.is(StatusCode::SEE_OTHER);
        self.left(client, &answer, answer.headers[header::LOCATION].to_str().unwrap())
    }

    fn left(&self, client: &Client, answer: &Answer, to: &str) -> (String, String) {
        let (at, query) = to.split_once('?').unwrap();
        assert_eq!(at, format!("{}/authorize", self.0.url));
        let asked = fields(query);
        assert_eq!(
            (&*asked["client_id"], &*asked["redirect_uri"], &*asked["response_type"], &*asked["scope"]),
            (US, HERE, "code", "openid email profile")
        );
        assert_eq!(asked["code_challenge_method"], "S256");
        self.says(|says| {
            says.challenge.clone_from(&asked["code_challenge"]);
            says.nonce.clone_from(&asked["nonce"]);
        });
        let set = answer.headers[header::SET_COOKIE].to_str().unwrap();
        assert!(set.contains("HttpOnly") && set.contains("Max-Age=600"), "{set}");
        let mut kept = set.split(';').next().unwrap().to_owned();
        if let Some(signed_in) = client.cookie() {
            kept = format!("{signed_in}; {kept}");
        }
        (format!("/sign-in/oidc/callback?code=abc&state={}", asked["state"]), kept)
    }
}

fn key() -> EcdsaKeyPair {
    let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(kind, pkcs8.as_ref(), &random).unwrap()
}

fn fields(form: &str) -> HashMap<String, String> {
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
    form.split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

async fn configuration(State(Provider(provider)): State<Provider>) -> Json<Value> {
    let url = &provider.url;
    let mut said = json!({
        "issuer": url, "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token"),
        "jwks_uri": format!("{url}/keys"), "userinfo_endpoint": format!("{url}/me"),
    });
    let mut says = provider.says.lock().unwrap();
    says.asked += 1;
    for (name, value) in &says.configuration {
        said[*name] = value.clone();
    }
    Json(said)
}

async fn token(
    State(Provider(provider)): State<Provider>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, (StatusCode, Json<Value>)> {
    let says = provider.says.lock().unwrap().clone();
    let fields = fields(std::str::from_utf8(&body).unwrap());
    let pair = headers.get(header::AUTHORIZATION).map(|value| {
        let pair = BASE64_STANDARD.decode(value.to_str().unwrap().strip_prefix("Basic ").unwrap()).unwrap();
        let pair = String::from_utf8(pair).unwrap();
        pair.split(':').map(|part| self::fields(&format!("a={part}"))["a"].clone()).collect::<Vec<_>>()
    });
    let shown =
        pair.unwrap_or_else(|| ["client_id", "client_secret"].map(|name| fields[name].clone()).into());
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, fields["code_verifier"].as_bytes()));
    let is_right = shown == [US, SECRET]
        && challenge == says.challenge
        && (&*fields["code"], &*fields["redirect_uri"], &*fields["grant_type"])
            == ("abc", HERE, "authorization_code");
    if !is_right {
        return Err((StatusCode::BAD_REQUEST, Json(json!({ "error": "invalid_grant" }))));
    }
    let mut claims = json!({
        "iss": provider.url, "sub": "ann-7", "aud": US, "exp": 1_000_000_300, "iat": 1_000_000_000, "nonce": says.nonce,
        "email": "Ann@Example.org", "email_verified": true, "name": "Ann",
    });
    for (name, value) in says.claims {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value,
        }
    }
    let part = |json: &Value| BASE64_URL_SAFE_NO_PAD.encode(json.to_string());
    let signed = format!("{}.{}", part(&json!({ "alg": "ES256", "kid": "1" })), part(&claims));
    let other = key();
    let key = if says.forges { &other } else { &provider.key };
    let signature = key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    let id_token = format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature));
    Ok(Json(json!({ "id_token": id_token, "access_token": "xyz", "token_type": "Bearer" })))
}

async fn keys(State(Provider(provider)): State<Provider>) -> Json<Value> {
    let (x, y) = provider.key.public_key().as_ref()[1..].split_at(32);
    let [x, y] = [x, y].map(|half| BASE64_URL_SAFE_NO_PAD.encode(half));
    Json(json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "1", "use": "sig", "x": x, "y": y }] }))
}

async fn more(State(Provider(provider)): State<Provider>, headers: HeaderMap) -> Json<Value> {
    assert_eq!(headers[header::AUTHORIZATION], "Bearer xyz");
    Json(provider.says.lock().unwrap().more.clone().unwrap())
}

#[tokio::test]
async fn who_comes_from_the_provider_gets_an_account_and_the_same_one_again() {
    let provider = Provider::start().await;
    let region = provider.region(SignUpBy::Anybody).await;
    let ways = region.stranger().get("/sign-in/ways").await;
    assert_eq!(
        ways.is(StatusCode::OK).body,
        json!({ "sign_up": "anybody", "provider": { "name": "Plant" }, "local": false, "passkey_origin": null, "password_reset": false })
    );
    let mut ann = region.stranger();
    provider.sign_in(&mut ann, "").await.is(StatusCode::SEE_OTHER);
    let me = ann.get("/me").await;
    assert_eq!(
        (me.is(StatusCode::OK).text("/user/email"), me.text("/user/name")),
        ("ann@example.org", "Ann")
    );
    assert_eq!(me.text("/organisations/0/role"), "owner");
    // The address is another one by now, and she is the same.
    provider.says(|says| drop(says.claims.insert("email", json!("ann@new.example"))));
    let mut again = region.stranger();
    provider.sign_in(&mut again, "").await.is(StatusCode::SEE_OTHER);
    assert_eq!(again.get("/me").await.text("/user/id"), me.text("/user/id"));
    let log = again.get(&again.own("/audit")).await;
    assert_eq!(log.column("action").iter().filter(|action| **action == "sign_in").count(), 2);
    // She has no password, so none is right, and there is none to change.
    for password in ["", PASSWORD] {
        let sign_in = json!({ "email": "ann@example.org", "password": password });
        region.stranger().post("/sign-in", sign_in).await.is(StatusCode::UNAUTHORIZED);
    }
    let change = json!({ "current": "", "new": PASSWORD });
    again.post("/me/password", change).await.is(StatusCode::CONFLICT);
}

#[tokio::test]
async fn an_account_with_the_same_address_is_not_taken_for_theirs_until_they_connect_it() {
    let provider = Provider::start().await;
    let region = provider.region(SignUpBy::Anybody).await;
    let mut ann = region.stranger();
    ann.sign_up(json!({ "email": "ann@example.org" })).await.is(StatusCode::CREATED);
    let mut visitor = region.stranger();
    provider.sign_in(&mut visitor, "").await.is(StatusCode::CONFLICT);
    // Somebody who is not signed in has no account to connect, and the link of another person connects nothing.
    visitor.post("/me/identities", json!({})).await.is(StatusCode::UNAUTHORIZED);
    ann.get("/sign-in/oidc?connect=true").await.is(StatusCode::BAD_REQUEST);
    ann.without("x-csrf-token").post("/me/identities", json!({})).await.is(StatusCode::FORBIDDEN);
    ann.get("/me/identities/pending").await.is(StatusCode::NOT_FOUND);
    let back = provider.connect(&ann).await;
    assert_eq!(ann.get("/me/identities").await.body["items"], json!([]), "she has not confirmed");
    provider.sign_in(&mut visitor, "").await.is(StatusCode::CONFLICT);
    let pending = back.get("/me/identities/pending").await;
    assert_eq!(
        (pending.is(StatusCode::OK).text("/subject"), pending.text("/email")),
        ("ann-7", "Ann@Example.org")
    );
    back.without("x-csrf-token")
        .send(axum::http::Method::POST, "/me/identities/pending", None)
        .await
        .is(StatusCode::FORBIDDEN);
    // Nobody else confirms it, and it cannot be written by hand.
    let mut bob = region.person().await;
    let link = back.cookie().unwrap().split("; ").last().unwrap().to_owned();
    let stolen = bob.with("cookie", &format!("{}; {link}", bob.cookie().unwrap()));
    stolen.get("/me/identities/pending").await.is(StatusCode::NOT_FOUND);
    let forged = back.with("cookie", &format!("{}x", back.cookie().unwrap()));
    forged.send(axum::http::Method::POST, "/me/identities/pending", None).await.is(StatusCode::NOT_FOUND);
    back.send(axum::http::Method::POST, "/me/identities/pending", None).await.is(StatusCode::CREATED);
    provider.sign_in(&mut visitor, "").await.is(StatusCode::SEE_OTHER);
    assert_eq!(visitor.get("/me").await.text("/user/id"), ann.get("/me").await.text("/user/id"));
    let log = ann.get(&ann.own("/audit")).await;
    assert!(log.column("action").contains(&"person.connect"), "{log:?}");
    // An account of the provider that is connected to Ann cannot be connected to Bob.
    let taken = provider.connect(&bob).await;
    taken.send(axum::http::Method::POST, "/me/identities/pending", None).await.is(StatusCode::CONFLICT);
    // She takes it away again.
    let own = ann.get("/me/identities").await;
    let path = format!("/me/identities/{}", own.text("/items/0/id"));
    bob.delete(&path).await.is(StatusCode::NOT_FOUND);
    ann.delete(&path).await.is(StatusCode::NO_CONTENT);
    provider.sign_in(&mut bob, "").await.is(StatusCode::CONFLICT);
    assert_eq!(ann.get("/me/identities").await.body["items"], json!([]));
}

#[tokio::test]
async fn a_stolen_session_connects_no_account_of_a_provider() {
    let provider = Provider::start().await;
    provider.says(|says| drop(says.claims.insert("exp", json!(2_000_000_000))));
    let region = provider.region(SignUpBy::Anybody).await;
    let ann = region.person().await;
    let user = ann.get("/me").await.text("/user/id").to_owned();
    region.clock.move_on(10 * 60_000);
    ann.post("/me/identities", json!({})).await.is(StatusCode::OK);
    region.clock.move_on(1);
    for body in [json!({}), json!({ "password": "not the password of Ann" })] {
        let answer = ann.post("/me/identities", body).await;
        assert_eq!(answer.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), "password");
    }
    let right = json!({ "password": PASSWORD });
    ann.post("/me/identities", right.clone()).await.is(StatusCode::OK);

    // The cookie of a plain sign-in does not become that of a connection, also not with the permit of another one.
    let left = ann.post("/me/identities", right.clone()).await;
    let (_, permitted) = provider.left(&ann, &left, left.text("/location"));
    let permit = permitted.split_once(".connect.").unwrap().1;
    let (back, kept) = provider.go(&ann, "").await;
    for errand in [
        format!("connect.{user}"),
        format!("connect.{user}.9000000000000."),
        format!("connect.{permit}"),
        "connect.".to_owned(),
    ] {
        let forged = ann.with("cookie", &kept.replace("sign-in.", &errand));
        assert!(forged.get(&back).await.is(StatusCode::FORBIDDEN).text("/detail").contains("was not begun"));
    }
    // A permit ends after ten minutes.
    let left = ann.post("/me/identities", right).await;
    let (back, kept) = provider.left(&ann, &left, left.text("/location"));
    region.clock.move_on(10 * 60_000);
    let late = ann.with("cookie", &kept).get(&back).await;
    assert!(late.is(StatusCode::FORBIDDEN).text("/detail").contains("was not begun"));
}

#[tokio::test]
async fn an_account_of_a_provider_is_connected_with_the_second_factor_or_a_new_sign_in() {
    let provider = Provider::start().await;
    provider.says(|says| drop(says.claims.insert("exp", json!(2_000_000_000))));
    let region = provider.region(SignUpBy::Anybody).await;
    let ann = Ann::in_force(&region).await;
    region.clock.move_on(10 * 60_000);
    for (code, status) in [
        (Value::Null, StatusCode::UNPROCESSABLE_ENTITY),
        (json!(ann.wrong()), StatusCode::UNPROCESSABLE_ENTITY),
        (json!(ann.code()), StatusCode::OK),
    ] {
        let body = json!({ "password": PASSWORD, "code": code });
        ann.client.post("/me/identities", body).await.is(status);
    }

    // Somebody without a password signs in again.
    let mut visitor = region.stranger();
    provider.sign_in(&mut visitor, "").await.is(StatusCode::SEE_OTHER);
    visitor.post("/me/identities", json!({})).await.is(StatusCode::OK);
    region.clock.move_on(10 * 60_000 + 1);
    visitor.post("/me/identities", json!({})).await.is(StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn the_last_way_to_sign_in_is_not_taken_away() {
    let provider = Provider::start().await;
    let region = provider.region(SignUpBy::Anybody).await;
    let mut ann = region.stranger();
    provider.sign_in(&mut ann, "").await.is(StatusCode::SEE_OTHER);
    let own = ann.get("/me/identities").await;
    let path = format!("/me/identities/{}", own.text("/items/0/id"));
    ann.delete(&path).await.is(StatusCode::CONFLICT);
}

#[tokio::test]
async fn where_accounts_are_by_invitation_one_is_needed_and_used_once() {
    let provider = Provider::start().await;
    let region = provider.region(SignUpBy::Invitation).await;
    let link = region.control.setup().await.unwrap().unwrap();
    let mut owner = region.stranger();
    owner.sign_up(json!({ "token": link.expose() })).await.is(StatusCode::CREATED);
    let mut ann = region.stranger();
    provider.sign_in(&mut ann, "").await.is(StatusCode::FORBIDDEN);
    let invited =
        owner.post(&owner.own("/invitations"), json!({ "email": "ann@example.org", "role": "viewer" })).await;
    let token = json!({ "token": invited.is(StatusCode::CREATED).text("/token") });
    provider.sign_in_with(&mut ann, json!({ "token": "nothing" })).await.is(StatusCode::FORBIDDEN);
    // A token that would add attributes to the cookie in which it is kept.
    let more = json!({ "token": "a; Domain=example.org" });
    ann.post("/sign-in/oidc", more).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    // A link of somebody else joins nothing, and neither does a form of another site.
    ann.get("/sign-in/oidc?token=a").await.is(StatusCode::BAD_REQUEST);
    let form = ann.with("content-type", "text/plain");
    form.post("/sign-in/oidc", token.clone()).await.is(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    provider.sign_in_with(&mut ann, token.clone()).await.is(StatusCode::SEE_OTHER);
    let me = ann.get("/me").await;
    assert_eq!(me.text("/organisations/0/role"), "viewer");
    provider.sign_in_with(&mut region.stranger(), token).await.is(StatusCode::FORBIDDEN);
    provider.sign_in(&mut region.stranger(), "").await.is(StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn only_the_browser_that_has_begun_comes_back_with_what_it_was_given() {
    let provider = Provider::start().await;
    let region = provider.region(SignUpBy::Anybody).await;
    let client = region.stranger();
    let (back, kept) = provider.go(&client, "").await;
    client.get(&back).await.is(StatusCode::FORBIDDEN);
    let (other, _) = provider.go(&client, "").await;
    let browser = client.with("cookie", &kept);
    // Another one's code in this browser: it would be signed in as somebody else.
    browser.get(&other).await.is(StatusCode::FORBIDDEN);
    let state = back.split_once("&state=").unwrap().1;
    let without_code = format!("/sign-in/oidc/callback?state={state}");
    let refused = browser.get(&format!("{without_code}&error=access_denied&error_description=no")).await;
    assert!(refused.is(StatusCode::FORBIDDEN).text("/detail").contains("access_denied, no"));
    browser.get(&format!("{back}&iss=https://evil.example")).await.is(StatusCode::FORBIDDEN);
    // In the window of a browser the refusal is a page that leads on.
    let window = browser.with("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    let page = window.get(&format!("{without_code}&error=%3Cb%3Edenied")).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert_eq!(page.headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
    assert!(page.table.contains("&lt;b&gt;denied") && page.table.contains("href=\"/\""), "{}", page.table);
    let wrong_code = format!("{without_code}&code=other");
    assert!(
        browser.get(&wrong_code).await.is(StatusCode::FORBIDDEN).text("/detail").contains("invalid_grant")
    );
    // The nonce is of the other one's sign-in, which was the last.
    browser.get(&back).await.is(StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_sign_in_leads_to_the_page_that_was_asked_for_and_to_no_other_server() {
    let provider = Provider::start().await;
    let region = provider.region(SignUpBy::Anybody).await;
    let client = region.stranger();
    for (next, expected) in [
        ("/b/plant/access?tab=rules", "/b/plant/access?tab=rules"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("https://evil.example", "/"),
        ("", "/"),
    ] {
        let encoded = percent_encoding::utf8_percent_encode(next, percent_encoding::NON_ALPHANUMERIC);
        let (back, kept) = provider.go(&client, &format!("?next={encoded}")).await;
        let answer = client.with("cookie", &kept).get(&back).await;
        assert_eq!(answer.is(StatusCode::SEE_OTHER).headers[header::LOCATION], expected, "{next}");
    }
}

#[tokio::test]
async fn a_token_that_is_wrong_signs_nobody_in() {
    let provider = Provider::start().await;
    for (name, value) in [
        ("iss", json!("https://evil.example")),
        ("aud", json!("somebody else")),
        ("aud", json!([US, "somebody else"])),
        ("azp", json!("somebody else")),
        ("exp", json!(999_999_000)),
        ("exp", Value::Null),
        ("nonce", json!("of before")),
        ("nonce", Value::Null),
        ("sub", Value::Null),
        ("sub", json!("x".repeat(256))),
        ("email_verified", json!(false)),
        ("email", json!("nothing")),
    ] {
        provider.says(|says| says.claims = HashMap::from([(name, value.clone())]));
        // A region for each: sign-ins are limited by the minute.
        let region = provider.region(SignUpBy::Anybody).await;
        let answer = provider.sign_in(&mut region.stranger(), "").await;
        assert!(
            answer.status.is_client_error() || answer.status == StatusCode::SERVICE_UNAVAILABLE,
            "{name}: {value}"
        );
    }
    let region = provider.region(SignUpBy::Anybody).await;
    provider.says(|says| {
        says.claims.clear();
        says.forges = true;
    });
    provider.sign_in(&mut region.stranger(), "").await.is(StatusCode::FORBIDDEN);
    provider.says(|says| says.forges = false);
    provider.sign_in(&mut region.stranger(), "").await.is(StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn what_stands_in_no_token_is_asked_for() {
    let provider = Provider::start().await;
    let region = provider.region(SignUpBy::Anybody).await;
    provider.says(|says| {
        says.claims = HashMap::from([("email", Value::Null), ("aud", json!([US])), ("azp", json!(US))]);
        says.more = Some(json!({ "sub": "bob-1", "email": "bob@example.org" }));
        says.configuration =
            HashMap::from([("token_endpoint_auth_methods_supported", json!(["client_secret_post"]))]);
    });
    let mut ann = region.stranger();
    provider.sign_in(&mut ann, "").await.is(StatusCode::SERVICE_UNAVAILABLE);
    provider.says(|says| says.more = Some(json!({ "sub": "ann-7", "email": "ann@example.org" })));
    provider.sign_in(&mut ann, "").await.is(StatusCode::SEE_OTHER);
    assert_eq!(ann.get("/me").await.text("/user/email"), "ann@example.org");
}

#[tokio::test]
async fn a_provider_that_is_away_or_is_another_is_said_and_without_one_there_is_none() {
    let provider = Provider::start().await;
    let region = provider.region(SignUpBy::Anybody).await;
    provider.says(|says| says.configuration = HashMap::from([("issuer", json!("https://evil.example"))]));
    let answer = region.stranger().get("/sign-in/oidc").await;
    assert!(answer.is(StatusCode::SERVICE_UNAVAILABLE).text("/detail").contains("evil.example"));
    let nobody =
        Provider(Arc::new(Inner { url: "http://127.0.0.1:9".into(), key: key(), says: Mutex::default() }));
    let region = nobody.region(SignUpBy::Anybody).await;
    region.stranger().get("/sign-in/oidc").await.is(StatusCode::SERVICE_UNAVAILABLE);

    let without = Region::new().await;
    without.stranger().get("/sign-in/oidc").await.is(StatusCode::NOT_FOUND);
    without.stranger().get("/sign-in/oidc/callback?code=a&state=b").await.is(StatusCode::NOT_FOUND);
    assert_eq!(without.stranger().get("/sign-in/ways").await.body["provider"], Value::Null);
}

#[tokio::test]
async fn the_audit_log_of_a_person_names_them_and_their_browser_at_each_sign_in() {
    let provider = Provider::start().await;
    let region = provider.region(SignUpBy::Anybody).await;
    let mut ann = region.stranger().with("user-agent", "a browser");
    provider.sign_in(&mut ann, "").await.is(StatusCode::SEE_OTHER);
    // The provider knows the person by another address from now on.
    provider.says(|says| says.claims = HashMap::from([("email", json!("ann@new.example"))]));
    provider.sign_in(&mut ann, "").await.is(StatusCode::SEE_OTHER);
    let id = ann.get("/me").await.text("/user/id").to_owned();
    let log = ann.get(&format!("/me/audit?action=sign_in&actor={id}")).await;
    let entries = log.is(StatusCode::OK).body["items"].as_array().unwrap();
    assert_eq!(entries.len(), 2, "{log:#?}");
    for entry in entries {
        assert_eq!(entry["actor"]["agent"], "a browser");
        // The entry of the first sign-in has the address as the provider writes it.
        for address in [&entry["actor"]["name"], &entry["target"]] {
            assert!(address.as_str().unwrap().eq_ignore_ascii_case("ann@example.org"), "{entry:#?}");
        }
    }
}

#[tokio::test]
async fn a_provider_may_write_as_text_whether_an_address_is_verified() {
    let provider = Provider::start().await;
    for (said, is_verified) in [("true", true), ("false", false), ("", false), ("yes", false)] {
        provider.says(|says| says.claims = HashMap::from([("email_verified", json!(said))]));
        let region = provider.region(SignUpBy::Anybody).await;
        let answer = provider.sign_in(&mut region.stranger(), "").await;
        let expected = if is_verified { StatusCode::SEE_OTHER } else { StatusCode::FORBIDDEN };
        assert_eq!(answer.status, expected, "{said:?}: {answer:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_that_is_removed_during_its_sign_in_begins_no_session() {
    for at in 0.. {
        let provider = Provider::start().await;
        let region = provider.region(SignUpBy::Anybody).await;
        let mut ann = region.stranger();
        ann.sign_up(json!({ "email": "ann@example.org" })).await.is(StatusCode::CREATED);
        let back = provider.connect(&ann).await;
        back.send(axum::http::Method::POST, "/me/identities/pending", None).await.is(StatusCode::CREATED);
        let id = ann.get("/me/identities").await.text("/items/0/id").to_owned();
        let visitor = region.stranger();
        let (back, kept) = provider.go(&visitor, "").await;
        let returning = visitor.with("cookie", &kept);
        let signing_in = async move { returning.get(&back).await };
        let remove = async {
            ann.delete(&format!("/me/identities/{id}")).await.is(StatusCode::NO_CONTENT);
            ann.delete("/me/sessions").await.is(StatusCode::NO_CONTENT);
        };
        let Some((answer, ())) = interleaved(at, signing_in, remove).await else {
            assert!(at > 2, "{at}");
            return;
        };
        let set = answer.headers.get_all(header::SET_COOKIE).iter().map(|set| set.to_str().unwrap());
        let session = set.filter_map(|set| set.split(';').next()).find(|pair| pair.starts_with("millrace="));
        if let Some(session) = session {
            visitor.with("cookie", session).get("/me").await.is(StatusCode::UNAUTHORIZED);
        }
    }
}

#[tokio::test]
async fn strangers_who_begin_sign_ins_cost_the_provider_one_request() {
    let provider = Provider::start().await;
    let region = provider.region(SignUpBy::Anybody).await;
    let begun = (0..20).map(|_| {
        let stranger = region.stranger();
        async move { stranger.get("/sign-in/oidc").await.status }
    });
    let begun = futures_util::future::join_all(begun).await;
    assert_eq!(begun, [StatusCode::SEE_OTHER; 20]);
    provider.sign_in(&mut region.stranger(), "").await.is(StatusCode::SEE_OTHER);
    assert_eq!(provider.0.says.lock().unwrap().asked, 1);
    region.clock.move_on(600_000);
    region.stranger().get("/sign-in/oidc").await.is(StatusCode::SEE_OTHER);
    assert_eq!(provider.0.says.lock().unwrap().asked, 2);
}
