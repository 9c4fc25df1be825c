//! No tenant sees, reaches or learns of another one (P8): every route of the description is tried with another tenant's ids.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::tools::{AUTHORITY, Answer, Client, Region, SCOPES};

/// A dead letter that nobody has. Their ids are their positions in the store.
const LETTER: &str = "000000000000000000000000";

/// The objects of one tenant: a value for each parameter of a path.
pub(crate) struct Owned {
    pub(crate) client: Client,
    broker: String,
    user: String,
    invitation: String,
    token: String,
    claim_token: String,
}

pub(crate) async fn tenant(region: &Region) -> Owned {
    let client = region.person().await;
    let broker = client.broker().await;
    client.post(&format!("{broker}/credentials"), json!({ "user": "one" })).await.is(StatusCode::CREATED);
    for (kind, body) in [
        ("groups", json!({})),
        ("client-cas", json!({ "pem": AUTHORITY })),
        (
            "jwt-issuers",
            json!({ "algorithms": ["RS256"], "key": { "kind": "jwks", "url": "https://a.test" } }),
        ),
        ("webhooks", json!({ "url": "https://a.test", "events": ["connect"] })),
        ("bans", json!({ "client_id": "one" })),
    ] {
        client.put(&format!("{broker}/{kind}/one"), "", body).await.is(StatusCode::CREATED);
    }
    let invite = json!({ "email": "b@example.org", "role": "viewer" });
    let invitation = client.post(&client.own("/invitations"), invite).await.text("/id").to_owned();
    let token = json!({ "name": "a", "scopes": ["audit:read"] });
    let token = client.post(&client.own("/tokens"), token).await.text("/id").to_owned();
    let claim =
        json!({ "name": "a", "user_prefix": "p-", "uses_max": 1, "expires_at_ms": 1_000_000_100_000_u64 });
    let claim_token = client.post(&format!("{broker}/claim-tokens"), claim).await.text("/id").to_owned();
    let user = client.get("/me").await.text("/user/id").to_owned();
    let broker = broker.rsplit('/').next().unwrap().to_owned();
    Owned { client, broker, user, invitation, token, claim_token }
}

/// A path with ids of `owned`, under the organisation `organisation`.
pub(crate) fn fill(path: &str, organisation: &str, owned: &Owned) -> String {
    let user = if path.contains("/credentials/") { "one" } else { &owned.user };
    path.replace("{organisation}", organisation)
        .replace("{broker}", &owned.broker)
        .replace("{user}", user)
        .replace("{invitation}", &owned.invitation)
        .replace("{token}", &owned.token)
        .replace("{claim_token}", &owned.claim_token)
        .replace("{name}", "one")
        .replace("{client_id}", "one")
        .replace("{letter}", LETTER)
}

/// A path with ids that nobody has, of the same shape.
fn fill_missing(path: &str, organisation: &str) -> String {
    let missing = "00000000-0000-7000-8000-000000000000";
    let user = if path.contains("/credentials/") { "none" } else { missing };
    path.replace("{organisation}", organisation)
        .replace("{broker}", "abcdefghjkmn")
        .replace("{user}", user)
        .replace("{invitation}", missing)
        .replace("{token}", missing)
        .replace("{claim_token}", missing)
        .replace("{name}", "none")
        .replace("{client_id}", "none")
        .replace("{letter}", LETTER)
}

/// A body that would be right, so that nothing else stops the request.
fn body(method: &Method, path: &str) -> Option<Value> {
    Some(
        match (
            method.as_str(),
            path.rsplit_once("/organisations/{organisation}").map_or(path, |(_, rest)| rest),
        ) {
            ("PATCH", "") => json!({ "name": "mine now" }),
            ("PATCH", "/members/{user}") => json!({ "role": "viewer" }),
            ("POST", "/invitations") => json!({ "email": "c@example.org", "role": "owner" }),
            ("POST", "/tokens") => json!({ "name": "b", "scopes": ["audit:read"] }),
            ("POST", "/brokers") | ("PATCH", "/brokers/{broker}") => json!({ "display_name": "mine now" }),
            ("POST", "/brokers/{broker}/connect-tokens") => json!({}),
            ("POST", "/brokers/{broker}/access/test") => {
                json!({ "client_id": "a", "action": "publish", "topic": "a" })
            }
            ("POST", "/brokers/{broker}/publish") => json!({ "topic": "a", "payload": "evil" }),
            ("PUT", "/brokers/{broker}/access") => json!({ "anonymous": true }),
            ("POST", "/brokers/{broker}/credentials") => json!({ "user": "two" }),
            ("POST", "/brokers/{broker}/credential-batches") => json!({ "devices": [{ "user": "two" }] }),
            ("POST", "/brokers/{broker}/claim-tokens") => json!({
                "name": "evil", "user_prefix": "evil-", "uses_max": 1, "expires_at_ms": 1_000_000_100_000_u64,
            }),
            ("PUT", "/brokers/{broker}/credentials/{user}") => json!({ "enabled": false }),
            ("POST", "/brokers/{broker}/credentials/{user}/rotate") => json!({}),
            ("PUT", "/spend-cap" | "/brokers/{broker}/spend-cap") => {
                json!({ "monthly_micros": 1, "action": "stop" })
            }
            ("PUT", "/brokers/{broker}/groups/{name}") => json!({}),
            ("PUT", "/brokers/{broker}/client-cas/{name}") => json!({ "pem": AUTHORITY }),
            ("PUT", "/brokers/{broker}/jwt-issuers/{name}") => {
                json!({ "algorithms": ["RS256"], "key": { "kind": "jwks", "url": "https://evil.test" } })
            }
            ("PUT", "/brokers/{broker}/bans/{name}") => json!({ "address": "0.0.0.0/0" }),
            ("POST", "/brokers/{broker}/webhooks/{name}/rotate-key") => json!({}),
            ("PUT", "/brokers/{broker}/webhooks/{name}") => {
                json!({ "url": "https://evil.test", "events": ["connect"] })
            }
            _ => return None,
        },
    )
}

async fn ask(client: &Client, method: &Method, path: String, body: Option<Value>) -> Answer {
    let needs_topic =
        path.contains("/retained/message") || *method == Method::GET && path.ends_with("/messages");
    let path = if needs_topic { format!("{path}?topic=a") } else { path };
    let path = if path.ends_with("/streams/stream") { format!("{path}?filter=a") } else { path };
    client.with("if-match", "*").send(method.clone(), &path, body).await
}

/// The routes with an organisation, and the methods of each.
fn routes() -> Vec<(Method, String)> {
    let described = serde_json::to_value(millrace_control::openapi()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            if let Ok(method) = Method::from_bytes(method.to_uppercase().as_bytes())
                && path.contains("{organisation}")
            {
                all.push((method, path.clone()));
            }
        }
    }
    assert!(all.len() > 50, "{}", all.len());
    all
}

#[tokio::test]
async fn what_is_another_tenants_is_answered_as_what_nobody_has() {
    let region = Region::new().await;
    let (ann, eve) = (tenant(&region).await, tenant(&region).await);
    let missing = "00000000-0000-7000-8000-000000000000";
    let token = json!({ "name": "evil", "scopes": SCOPES });
    let token = eve.client.post(&eve.client.own("/tokens"), token).await.text("/secret").to_owned();
    let programs = eve.client.with_token(&token);

    for (method, path) in routes() {
        for client in [&eve.client, &programs] {
            // The other's organisation, with all that is in it.
            let body = body(&method, &path);
            let foreign = fill(&path, &ann.client.organisation, &ann);
            let answer = ask(client, &method, foreign.clone(), body.clone()).await;
            answer.is(StatusCode::NOT_FOUND);
            let nobodys = ask(client, &method, fill_missing(&path, missing), body.clone()).await;
            assert_eq!((nobodys.status, &nobodys.body), (answer.status, &answer.body), "{method} {path}");

            // Their own organisation, with what is in the other one.
            if !path.trim_start_matches("/organisations/{organisation}").contains('{') {
                continue;
            }
            let smuggled = fill(&path, &eve.client.organisation, &ann);
            let answer = ask(client, &method, smuggled, body.clone()).await;
            answer.is(StatusCode::NOT_FOUND);
            let nobodys = ask(client, &method, fill_missing(&path, &eve.client.organisation), body).await;
            assert_eq!((nobodys.status, &nobodys.body), (answer.status, &answer.body), "{method} {path}");
        }
    }

    // Nothing has changed, and nothing is in the other's log.
    let log = ann.client.get(&ann.client.own("/audit?limit=200")).await;
    assert!(!log.is(StatusCode::OK).body.to_string().contains("evil"));
    assert_eq!(ann.client.get(&ann.client.own("/brokers")).await.column("display_name"), ["Plant"]);
    assert_eq!(ann.client.get(&ann.client.own("/members")).await.column("role"), ["owner"]);
    assert_eq!(ann.client.get(&ann.client.own("/tokens")).await.column("name"), ["a"]);
}

#[tokio::test]
async fn nobody_gets_anything_without_being_known() {
    let region = Region::new().await;
    let ann = tenant(&region).await;
    for (method, path) in routes() {
        let body = body(&method, &path);
        let answer =
            ask(&region.stranger(), &method, fill(&path, &ann.client.organisation, &ann), body).await;
        answer.is(StatusCode::UNAUTHORIZED);
    }
}

#[test]
fn each_route_with_an_id_outside_of_an_organisation_has_its_own_test_of_tenancy() {
    let described = serde_json::to_value(millrace_control::openapi()).unwrap();
    let paths = described["paths"].as_object().unwrap().keys();
    let mut others: Vec<_> =
        paths.filter(|path| path.contains('{') && !path.contains("{organisation}")).collect();
    others.sort();
    // In accounts.rs, oidc.rs and passkeys.rs.
    let tested = [
        "/me/identities/{identity}",
        "/me/passkeys/{passkey}",
        "/me/passkeys/{passkey}/remove",
        "/me/sessions/{session}",
    ];
    assert_eq!(others, tested);
}

/// A token may see these outside of its organisation's routes.
const OF_TOKENS: [&str; 4] = ["/plans", "/prices", "/regions", "/token"];

#[tokio::test]
async fn a_token_is_no_person_and_reaches_no_account() {
    let region = Region::new().await.unlimited();
    let (ann, eve) = (tenant(&region).await, region.person().await);
    let everything =
        ["organisation:read", "organisation:write", "brokers:read", "audit:read", "access:write"];
    let token = json!({ "name": "all", "scopes": everything });
    let token = ann.client.post(&ann.client.own("/tokens"), token).await.text("/secret").to_owned();
    let program = ann.client.with_token(&token);
    let before = ann.client.get("/me").await;
    let sessions = ann.client.get("/me/sessions").await.column("id")[0].to_owned();
    let described = serde_json::to_value(millrace_control::openapi()).unwrap();
    let (mut tried, mut wrong) = (0, Vec::new());
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let is_open = operation["security"] == json!([{}]);
            if path.contains("{organisation}") || is_open {
                continue;
            }
            let missing = "00000000-0000-7000-8000-000000000000";
            let asked = path.replace("{session}", &sessions);
            let asked = asked.replace("{identity}", missing).replace("{passkey}", missing);
            let example = operation.pointer("/requestBody/content/application~1json/example").cloned();
            let method: Method = method.to_uppercase().parse().unwrap();
            let answer = program.send(method.clone(), &asked, example.clone()).await;
            let is_of_tokens = method == Method::GET && OF_TOKENS.contains(&path.as_str());
            let status = answer.status.as_u16();
            let right = match path.as_str() {
                _ if is_of_tokens => 200,
                // It asks for the cookie of a browser that comes from a provider, before anything else.
                "/me/identities/pending" => 404,
                _ => 403,
            };
            if status != right {
                wrong.push(format!("{method} {path}: {status} {}", answer.body));
            }
            region.stranger().send(method.clone(), &asked, example).await.is(StatusCode::UNAUTHORIZED);
            tried += 1;
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(tried > 30, "{tried}");
    eve.delete(&format!("/me/sessions/{sessions}")).await.is(StatusCode::NOT_FOUND);
    assert_eq!(ann.client.get("/me").await.is(StatusCode::OK).body, before.body);
}
