use serde::{Serialize, de::DeserializeOwned};
use serde_json::{from_str, from_value, json, to_string, to_value};

use super::*;

fn check_round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(json: &serde_json::Value) {
    let record = T::deserialize(json).unwrap();
    assert_eq!(&to_value(&record).unwrap(), json);
    assert_eq!(from_str::<T>(&to_string(&record).unwrap()).unwrap(), record);
}

fn zeros(bytes: usize) -> String {
    "A".repeat(bytes.div_ceil(3) * 4 - (3 - bytes % 3) % 3) + &"=".repeat((3 - bytes % 3) % 3)
}

fn credential() -> serde_json::Value {
    json!({
        "user": "pump-7",
        "secret": { "kind": "generated", "key": 1, "hash": zeros(32) },
        "previous_secret": { "secret": { "kind": "chosen", "phc": "$argon2id$v=19$m=8" }, "until_ms": 5 },
        "scram": { "iterations": 4096, "salt": zeros(16), "stored_key": zeros(32), "server_key": zeros(32) },
        "group": "pumps",
        "rules": [
            { "effect": "allow", "action": "publish", "filter": "a/%c/#", "retain": false, "qos_max": 1 }
        ],
        "enabled": false,
        "expires_at_ms": 9,
        "created_at_ms": 1,
        "client_id": "pump-7",
    })
}

#[test]
fn stored_json_never_changes_its_shape() {
    check_round_trip::<Credential>(&credential());
    check_round_trip::<Group>(&json!({
        "name": "pumps",
        "rules": [{ "effect": "deny", "action": "all", "filter": "#", "retain": true, "qos_max": 2 }],
        "created_at_ms": 1,
    }));
    for key in [
        json!({ "kind": "secret", "secret": "x", "base64": true }),
        json!({ "kind": "pem", "pem": "x" }),
        json!({ "kind": "jwks", "url": "https://issuer.test/keys" }),
    ] {
        check_round_trip::<JwtIssuer>(&json!({
            "name": "issuer", "enabled": true, "algorithms": ["HS256", "RS256", "ES256"], "key": key,
            "issuer": "https://issuer.test", "audience": ["mqtt"],
            "claims": { "user": "name", "client_id": "device", "rules": "acl" },
            "leeway_s": 5, "group": null, "disconnect_at_expiry": false, "created_at_ms": 1,
        }));
    }
    for user in ["common_name", "san_dns", "san_uri", "san_email"] {
        check_round_trip::<ClientCa>(&json!({
            "name": "factory", "enabled": true, "pem": "x", "revoked": "y", "user": user, "group": "g",
            "created_at_ms": 1,
        }));
    }
    for certificates in ["off", "accepted", "required", "additional"] {
        check_round_trip::<Access>(&json!({
            "anonymous": true, "passwords": false, "scram": false, "tokens": true,
            "certificates": certificates,
            "webhook": {
                "url": "https://who.test", "signing_key": "k", "timeout_ms": 1, "cache_s": 2, "group": null,
            },
            "rules": [],
            "limits": {
                "broker": {
                    "connections": 1, "connects_per_s": 2, "publishes_per_s": 3, "publish_bytes_per_s": 4,
                    "filters_per_s": 5, "subscriptions": 6, "queue_bytes": 7, "retained_messages": 8,
                },
                "client": {
                    "connects_per_min": 1, "publishes_per_s": 2, "publish_bytes_per_s": 3, "subscriptions": 4,
                    "queue_messages": 5, "queue_bytes": 6, "queue_age_s": 7, "packet_bytes": 8,
                },
            },
        }));
    }
}

#[test]
fn a_record_of_another_version_is_read_with_defaults() {
    let credential: Credential = from_value(json!({ "user": "bob", "hat": "red" })).unwrap();
    assert_eq!(credential, Credential { user: "bob".into(), ..Credential::default() });
    // Pods of older versions do not know `client_id`, so it is left out where it is not set.
    assert!(!to_string(&credential).unwrap().contains("client_id"));
    assert!(credential.enabled && credential.is_active(u64::MAX));
    assert_eq!(from_value::<Access>(json!({})).unwrap(), Access::default());
    assert_eq!(from_value::<JwtIssuer>(json!({})).unwrap(), JwtIssuer::default());
    assert_eq!(from_value::<ClientCa>(json!({})).unwrap(), ClientCa::default());
    let rule = json!({ "effect": "allow", "action": "all", "filter": "a" });
    assert_eq!(from_value::<Rule>(rule).unwrap(), Rule::new(Effect::Allow, Action::All, "a"));
}

#[test]
fn an_unreadable_record_authenticates_nobody() {
    for wrong in [
        json!({ "effect": "maybe", "action": "all", "filter": "a" }),
        json!({ "effect": "allow", "action": "listen", "filter": "a" }),
        json!({ "action": "all", "filter": "a" }),
    ] {
        assert!(from_value::<Rule>(wrong.clone()).is_err(), "{wrong}");
    }
    let short = json!({ "kind": "generated", "hash": zeros(31) });
    assert!(from_value::<Secret>(short).unwrap_err().to_string().contains("not 32 bytes"));
}

#[test]
fn no_debug_output_shows_a_secret() {
    let credential: Credential = from_value(credential()).unwrap();
    let webhook = WebhookAuth { signing_key: Some("SECRET".into()), ..WebhookAuth::default() };
    let key = JwtKey::Secret { secret: "SECRET".into(), base64: false };
    for shown in [format!("{credential:?}"), format!("{webhook:?}"), format!("{key:?}")] {
        assert!(shown.contains("(hidden)"), "{shown}");
        assert!(
            !shown.contains("SECRET") && !shown.contains("argon2id") && !shown.contains("AAAA"),
            "{shown}"
        );
    }
}

#[test]
fn a_credential_ends_when_it_expires_or_is_disabled() {
    let credential = Credential { expires_at_ms: Some(10), ..Credential::default() };
    assert!(credential.is_active(9) && !credential.is_active(10));
    assert!(!Credential { enabled: false, ..credential }.is_active(9));
}

#[test]
fn all_that_is_wrong_is_named_with_its_path() {
    fn fields(checked: Checked) -> Vec<String> {
        checked.err().unwrap_or_default().into_iter().map(|invalid| invalid.field).collect()
    }
    let rule = |filter: &str| Rule::new(Effect::Allow, Action::All, filter);
    let good = Credential { user: "bob".into(), rules: vec![rule("a/%c/#")], ..Credential::default() };
    assert_eq!(good.validate(), Ok(()));
    let bad = Credential {
        user: " bob".into(),
        secret: Some(Secret::Chosen { phc: "$2y$x".into() }),
        group: Some(String::new()),
        rules: vec![rule("a"), rule("a/#/b"), Rule { qos_max: 3, ..rule("$share/g/a") }],
        ..good.clone()
    };
    let expected = ["user", "secret.phc", "group", "rules[1].filter", "rules[2].filter", "rules[2].qos_max"];
    assert_eq!(fields(bad.validate()), expected);
    let many = Group { name: "g".into(), rules: vec![rule("a"); 101], ..Group::default() };
    assert_eq!(fields(many.validate()), ["rules"]);
    let long = |filters: &[usize]| filters.iter().map(|bytes| rule(&"a".repeat(*bytes))).collect::<Vec<_>>();
    for (rules, expected) in [
        (long(&[4_096; 4]), &[][..]),
        (long(&[4_096, 4_096, 4_096, 4_095, 2]), &["rules"][..]),
        (long(&[4_097]), &["rules[0].filter"][..]),
        (long(&[64_000; 2]), &["rules[0].filter", "rules[1].filter", "rules"][..]),
    ] {
        let new = Credential { rules: rules.clone(), ..good.clone() };
        assert_eq!(fields(new.validate()), expected);
        assert_eq!(fields(Access { rules: rules.clone(), ..Access::default() }.validate()), expected);
        assert_eq!(
            fields(Group { name: "g".into(), rules: rules.clone(), ..Group::default() }.validate()),
            expected
        );
        assert_eq!(Rule::validate_all(&rules), Ok(()));
    }
    let named = |bytes| Credential { client_id: Some("a".repeat(bytes)), ..good.clone() };
    assert_eq!(named(1_024).validate(), Ok(()));
    assert_eq!(fields(named(1_025).validate()), ["client_id"]);

    let issuer = JwtIssuer {
        name: "i".into(),
        algorithms: vec![JwtAlgorithm::Rs256, JwtAlgorithm::Hs256],
        key: JwtKey::Jwks { url: "ftp://x".into() },
        leeway_s: 601,
        ..JwtIssuer::default()
    };
    assert_eq!(fields(issuer.validate()), ["algorithms[1]", "key.url", "leeway_s"]);
    let key = JwtKey::Secret { secret: "short".into(), base64: false };
    assert_eq!(fields(JwtIssuer { key, ..issuer }.validate()), ["algorithms[0]", "key.secret", "leeway_s"]);

    let mut limits = Limits::default();
    assert_eq!(limits.validate(), Ok(()));
    (limits.broker.publishes_per_s, limits.client.packet_bytes) = (Some(0), Some(127));
    limits.client.subscriptions = Some(0);
    let wrong = ["limits.broker.publishes_per_s", "limits.client.packet_bytes"];
    assert_eq!(fields(limits.validate()), wrong);
    assert_eq!(fields(Access { limits, ..Access::default() }.validate()), wrong);

    assert_eq!(fields(ClientCa::default().validate()), ["name", "pem"]);
    for url in ["", "https://", "https://user@host/", "https://ho st/"] {
        let webhook = WebhookAuth { url: url.into(), timeout_ms: 0, ..WebhookAuth::default() };
        let access = Access { webhook: Some(webhook), ..Access::default() };
        assert_eq!(fields(access.validate()), ["webhook.url", "webhook.timeout_ms"], "{url}");
    }
}
