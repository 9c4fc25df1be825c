//! The access settings of a broker; groups, issuers, authorities, webhooks and bans.

use axum::http::{Method, StatusCode};
use millrace_access::limits::BANS_MAX;
use millrace_access::model::{Access, Ban, JwtIssuer, JwtKey};
use millrace_layers::{accounts, catalog};
use millrace_storage::Read;
use serde_json::{Value, json};

use crate::tools::{AUTHORITY, Region};

#[tokio::test]
async fn groups_of_a_broker_are_bounded_in_bytes_together() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let rules: Vec<Value> = (0..100)
        .map(|number| json!({ "effect": "deny", "action": "publish", "filter": format!("{number}/{}", "x".repeat(150)) }))
        .collect();
    let mut made = 0;
    let refused = loop {
        let answer = ann.put(&format!("{broker}/groups/g{made}"), "", json!({ "rules": rules })).await;
        if answer.status != StatusCode::CREATED {
            break answer;
        }
        made += 1;
        assert!(made < 200, "groups are not bounded");
    };
    assert!(refused.is(StatusCode::CONFLICT).text("/detail").contains("bytes together"), "{refused:?}");
    assert!(made > 2, "{made} groups fit");
    ann.delete(&format!("{broker}/groups/g0")).await.is(StatusCode::NO_CONTENT);
    ann.put(&format!("{broker}/groups/g{made}"), "", json!({ "rules": rules })).await.is(StatusCode::CREATED);
}

#[tokio::test]
async fn a_connect_token_that_is_too_long_is_refused_without_an_audit_entry() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let rules = |bytes: usize| {
        let rule = json!({ "effect": "allow", "action": "subscribe", "filter": "x".repeat(bytes) });
        json!({ "rules": vec![rule; 50] })
    };
    for bytes in [300, 3_000] {
        ann.post(&format!("{broker}/connect-tokens"), rules(bytes))
            .await
            .is(StatusCode::UNPROCESSABLE_ENTITY);
    }
    let log = ann.get(&ann.own("/audit")).await;
    assert!(!log.is(StatusCode::OK).column("action").contains(&"connect_token.create"));
}

#[tokio::test]
async fn each_kind_is_made_shown_replaced_and_deleted() {
    let ann = Region::new().await.person().await;
    let broker = ann.broker().await;
    let rule = json!({ "effect": "deny", "action": "all", "filter": "#", "retain": true, "qos_max": 2 });
    let issuer =
        json!({ "algorithms": ["RS256"], "key": { "kind": "jwks", "url": "https://issuer.test/keys" } });
    for (kind, body, wrong) in [
        ("groups", json!({ "rules": [rule] }), json!({ "rules": [{ "effect": "deny" }] })),
        (
            "jwt-issuers",
            issuer,
            json!({ "algorithms": ["HS256"], "key": { "kind": "jwks", "url": "https://a" } }),
        ),
        ("client-cas", json!({ "pem": AUTHORITY, "user": "san_uri" }), json!({ "pem": "x" })),
        (
            "webhooks",
            json!({ "url": "https://a.test", "events": ["connect"] }),
            json!({ "url": "a", "events": [] }),
        ),
        (
            "bans",
            json!({ "address": "192.0.2.0/24", "until_ms": 5, "reason": "a storm" }),
            json!({ "client_id": "a", "user": "b" }),
        ),
    ] {
        let path = format!("{broker}/{kind}/one");
        ann.put(&path, "", wrong).await.is(StatusCode::UNPROCESSABLE_ENTITY);
        ann.put(&path, "*", body.clone()).await.is(StatusCode::PRECONDITION_FAILED);
        let made = ann.put(&path, "", body.clone()).await;
        made.is(StatusCode::CREATED);
        ann.put(&path, "", body.clone()).await.is(StatusCode::PRECONDITION_FAILED);
        let shown = ann.get(&path).await;
        assert_eq!(shown.is(StatusCode::OK).etag(), made.etag());
        for (name, value) in body.as_object().unwrap() {
            assert_eq!(&shown.body[name], value, "{kind}: {name}");
        }
        let again = ann.put(&path, &made.etag(), body.clone()).await;
        again.is(StatusCode::NO_CONTENT);
        ann.put(&path, &made.etag(), body.clone()).await.is(StatusCode::PRECONDITION_FAILED);
        ann.send(Method::PUT, &path, Some(body)).await.is(StatusCode::PRECONDITION_REQUIRED);
        assert_eq!(ann.get(&format!("{broker}/{kind}")).await.column("name"), ["one"]);
        ann.delete(&path).await.is(StatusCode::NO_CONTENT);
        ann.get(&path).await.is(StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn a_secret_that_is_set_is_not_shown_and_stays_when_it_is_left_out() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let secret = "0123456789abcdef0123456789abcdef";
    let path = format!("{broker}/jwt-issuers/own");
    let with = |key: Value| json!({ "algorithms": ["HS256"], "key": key });
    let set = ann.put(&path, "", with(json!({ "kind": "secret", "secret": secret }))).await;
    set.is(StatusCode::CREATED);
    let shown = ann.get(&path).await;
    assert!(!shown.body.to_string().contains(secret), "{shown:?}");
    ann.put(&path, &set.etag(), with(json!({ "kind": "secret" }))).await.is(StatusCode::NO_CONTENT);
    let encoded = ann.put(&path, "*", with(json!({ "kind": "secret", "base64": true }))).await;
    assert_eq!(encoded.is(StatusCode::UNPROCESSABLE_ENTITY).body["fields"][0]["field"], "key.base64");

    let name = ann.get(&broker).await.text("/name").to_owned();
    let name = name.as_bytes();
    let read = region.store.run(|tx| async move {
        let id = catalog::get(&tx, name, Read::Snapshot).await?.unwrap().id;
        accounts::jwt_issuers(id).get::<JwtIssuer>(&tx, b"own", Read::Snapshot).await
    });
    let JwtKey::Secret { secret: stored, .. } = read.await.unwrap().unwrap().value.key else { panic!() };
    assert_eq!(stored.expose(), secret);
}

#[tokio::test]
async fn bans_that_have_ended_keep_no_new_one_out() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let name = ann.get(&broker).await.text("/name").to_owned();
    let name = name.as_bytes();
    let fill = region.store.run(|tx| async move {
        let all = accounts::bans(catalog::get(&tx, name, Read::Snapshot).await?.unwrap().id);
        for number in 0..BANS_MAX {
            // All but two have ended.
            let until_ms = (number > 1).then_some(5);
            let ban =
                Ban { name: format!("b{number}"), client_id: Some("a".into()), until_ms, ..Ban::default() };
            all.put(&tx, ban.name.as_bytes(), &ban).await?;
        }
        Ok(())
    });
    fill.await.unwrap();
    ann.put(&format!("{broker}/bans/new"), "", json!({ "client_id": "pump" })).await.is(StatusCode::CREATED);
    assert_eq!(ann.get(&format!("{broker}/bans")).await.column("name"), ["b0", "b1", "new"]);
}

#[tokio::test]
async fn a_url_that_was_read_without_its_secrets_and_is_sent_back_stays_whole() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let url = "https://hooks.test/services/token?key=more";
    let (access, hook) = (format!("{broker}/access"), format!("{broker}/webhooks/w"));
    ann.put(&access, "*", json!({ "webhook": { "url": url } })).await.is(StatusCode::OK);
    ann.put(&hook, "", json!({ "url": url, "events": ["connect"] })).await.is(StatusCode::CREATED);
    let made = ann.post(&ann.own("/tokens"), json!({ "name": "r", "scopes": ["access:read"] })).await;
    let viewer = ann.with_token(made.is(StatusCode::CREATED).text("/secret"));
    let (seen, seen_hook) = (viewer.get(&access).await, viewer.get(&hook).await);
    assert_eq!(seen.text("/webhook/url"), "https://hooks.test/(hidden)");

    // A person whose role has grown since sends what the page has read before.
    let mut body = seen.body.clone();
    body["rules"] = json!([{ "effect": "deny", "action": "publish", "filter": "a" }]);
    ann.put(&access, &seen.etag(), body).await.is(StatusCode::OK);
    let body = json!({ "url": seen_hook.text("/url"), "events": ["disconnect"] });
    ann.put(&hook, &seen_hook.etag(), body).await.is(StatusCode::NO_CONTENT);
    let stored = ann.get(&access).await;
    assert_eq!((stored.text("/webhook/url"), stored.text("/rules/0/filter")), (url, "a"));
    assert_eq!(ann.get(&hook).await.text("/url"), url);

    let hidden = "https://elsewhere.test/(hidden)";
    let refused = ann.put(&access, "*", json!({ "webhook": { "url": hidden } })).await;
    assert_eq!(refused.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), "webhook.url");
    let refused = ann.put(&hook, "*", json!({ "url": hidden, "events": ["connect"] })).await;
    assert_eq!(refused.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), "url");
}

#[tokio::test]
async fn how_a_broker_lets_clients_in_is_set_as_a_whole_and_keeps_its_limits() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    ann.patch(&broker, "*", json!({ "limits": { "client": { "packet_bytes": 900 } } }))
        .await
        .is(StatusCode::OK);
    let path = format!("{broker}/access");
    let shown = ann.get(&path).await;
    assert_eq!(shown.is(StatusCode::OK).body["passwords"], true);
    let webhook = json!({ "url": "https://who.test", "signing_key": "hidden-key", "timeout_ms": 100 });
    let body = json!({ "anonymous": true, "tokens": true, "webhook": webhook });
    let set = ann.put(&path, &shown.etag(), body.clone()).await;
    assert!(!set.is(StatusCode::OK).body.to_string().contains("hidden-key"));
    ann.put(&path, &shown.etag(), body).await.is(StatusCode::PRECONDITION_FAILED);
    let missing = json!({ "webhook": { "url": "https://who.test", "group": "nobody" } });
    let missing = ann.put(&path, "*", missing).await;
    assert_eq!(missing.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), "webhook.group");

    let name = ann.get(&broker).await.text("/name").to_owned();
    let name = name.as_bytes();
    let read = region.store.run(|tx| async move {
        let id = catalog::get(&tx, name, Read::Snapshot).await?.unwrap().id;
        assert_eq!(accounts::changes(&tx, id, Read::Snapshot).await?, 2);
        accounts::access(id).get::<Access>(&tx, accounts::ACCESS, Read::Snapshot).await
    });
    let access = read.await.unwrap().unwrap().value;
    assert!(access.anonymous && access.tokens && access.limits.client.packet_bytes == Some(900));
    assert_eq!(access.webhook.unwrap().signing_key.unwrap().expose(), "hidden-key");
}

/// Else the pods would refuse it, and nobody would see why.
#[tokio::test]
async fn what_lets_nobody_in_is_not_saved() {
    let ann = Region::new().await.person().await;
    let broker = ann.broker().await;
    let of = |label: &str, body: &str| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
    let key = |pem: String| json!({ "algorithms": ["ES256"], "key": { "kind": "pem", "pem": pem } });
    let rule = |filter: &str| json!([{ "effect": "allow", "action": "all", "filter": filter }]);
    for (path, body, field) in [
        ("client-cas/one", json!({ "pem": of("CERTIFICATE", "eA==") }), "pem"),
        ("client-cas/one", json!({ "pem": format!("{AUTHORITY}{}", of("CERTIFICATE", "%")) }), "pem"),
        ("client-cas/one", json!({ "pem": AUTHORITY, "revoked": of("X509 CRL", "eA==") }), "revoked"),
        ("jwt-issuers/one", key(of("PUBLIC KEY", "eA==")), "key.pem"),
        ("groups/one", json!({ "rules": rule("a#") }), "rules[0].filter"),
        ("access", json!({ "rules": rule("a/#/b") }), "rules[0].filter"),
        ("credentials/one", json!({ "enabled": true, "rules": rule("+a") }), "rules[0].filter"),
    ] {
        let seen = if path.contains("/one") && !path.starts_with("cred") { "" } else { "*" };
        if path.starts_with("cred") {
            ann.post(&format!("{broker}/credentials"), json!({ "user": "one" }))
                .await
                .is(StatusCode::CREATED);
        }
        let answer = ann.put(&format!("{broker}/{path}"), seen, body).await;
        let told = answer.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field").to_owned();
        assert_eq!(told, field, "{path}");
    }
}

#[tokio::test]
async fn a_broker_has_eight_authorities() {
    let ann = Region::new().await.person().await;
    let broker = ann.broker().await;
    let pem = json!({ "pem": AUTHORITY });
    for n in 0..8 {
        ann.put(&format!("{broker}/client-cas/{n}"), "", pem.clone()).await.is(StatusCode::CREATED);
    }
    ann.put(&format!("{broker}/client-cas/8"), "", pem.clone()).await.is(StatusCode::CONFLICT);
    ann.put(&format!("{broker}/client-cas/7"), "*", pem).await.is(StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn texts_of_parts_have_a_length_that_is_named() {
    let ann = Region::new().await.person().await;
    let broker = ann.broker().await;
    let long = "x".repeat(5_000);
    let issuer = |more: Value| {
        let key = json!({ "kind": "secret", "secret": "a secret of more than 32 characters" });
        let mut issuer = json!({ "algorithms": ["HS256"], "key": key });
        issuer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        issuer
    };
    let webhook = |key: &str, value: Value| {
        let mut webhook = json!({ "url": "https://a.test", "events": ["connect"] });
        webhook[key] = value;
        webhook
    };
    for (path, body, field) in [
        ("jwt-issuers/a", issuer(json!({ "issuer": long })), "issuer"),
        ("jwt-issuers/a", issuer(json!({ "audience": ["a", long] })), "audience[1]"),
        ("jwt-issuers/a", issuer(json!({ "audience": vec!["a"; 33] })), "audience"),
        ("jwt-issuers/a", issuer(json!({ "algorithms": vec!["HS256"; 4] })), "algorithms"),
        ("jwt-issuers/a", issuer(json!({ "key": { "kind": "secret", "secret": long } })), "key.secret"),
        ("webhooks/a", webhook("signing_key", json!(long)), "signing_key"),
        ("webhooks/a", webhook("events", json!(vec!["connect"; 5])), "events"),
    ] {
        let refused = ann.put(&format!("{broker}/{path}"), "", body).await;
        assert_eq!(refused.is(StatusCode::UNPROCESSABLE_ENTITY).body["fields"][0]["field"], field, "{path}");
    }
    let access = json!({ "webhook": { "url": "https://a.test", "signing_key": long } });
    let refused = ann.put(&format!("{broker}/access"), "*", access).await;
    let field = &refused.is(StatusCode::UNPROCESSABLE_ENTITY).body["fields"][0]["field"];
    assert_eq!(field, "webhook.signing_key");
}

#[tokio::test]
async fn an_issuer_of_an_earlier_build_with_a_long_text_keeps_working() {
    let mut issuer =
        JwtIssuer { name: "own".into(), issuer: Some("x".repeat(5_000)), ..JwtIssuer::default() };
    issuer.algorithms = vec![millrace_access::model::JwtAlgorithm::Hs256];
    issuer.key = JwtKey::Secret { secret: "x".repeat(5_000).into(), base64: false };
    assert!(issuer.check_lengths().is_err());
    assert!(millrace_access::jwt::Issuer::new(issuer).is_ok());
}

#[tokio::test]
async fn names_that_look_like_other_names_are_refused() {
    let ann = Region::new().await.person().await;
    let broker = ann.broker().await;
    for name in ["ｐｕｍｐ", "e\u{301}cole", "pump\u{3164}"] {
        let credential = ann.post(&format!("{broker}/credentials"), json!({ "user": name })).await;
        assert_eq!(credential.is(StatusCode::UNPROCESSABLE_ENTITY).body["fields"][0]["field"], "user");
        let batch = json!({ "devices": [{ "user": name }] });
        let batch = ann.post(&format!("{broker}/credential-batches"), batch).await;
        assert_eq!(batch.is(StatusCode::UNPROCESSABLE_ENTITY).body["fields"][0]["field"], "devices[0].user");
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let group = ann.put(&format!("{broker}/groups/{encoded}"), "", json!({})).await;
        assert_eq!(group.is(StatusCode::UNPROCESSABLE_ENTITY).body["fields"][0]["field"], "name");
    }
    let make = async |user: &str| ann.post(&format!("{broker}/credentials"), json!({ "user": user })).await;
    for user in ["Насос-7", "copy-7"] {
        make(user).await.is(StatusCode::CREATED);
    }
    let alike = make("сору-7").await;
    assert!(alike.is(StatusCode::UNPROCESSABLE_ENTITY).body.to_string().contains("copy-7"), "{alike:?}");
    let batch = json!({ "devices": [{ "user": "сору-8" }, { "user": "сору-7" }] });
    let batch = ann.post(&format!("{broker}/credential-batches"), batch).await;
    assert_eq!(batch.is(StatusCode::UNPROCESSABLE_ENTITY).body["fields"][0]["field"], "devices[1].user");
}
