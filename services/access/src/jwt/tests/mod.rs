//! Tokens of the standard, and tokens that are wrong in every way.

mod vectors;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

use super::*;
use crate::limits::KEY_ID_BYTES_MAX;
use crate::model::{Action, ClaimMapping, Effect, JwtAlgorithm, JwtIssuer, JwtKey, Rule};
use crate::rules::RuleList;

const NOW_S: u64 = 1_000_000;
const SECRET: &str = "a secret of 32 bytes or more than";

/// An issuer of tokens whose user is the claim `user`.
fn record(key: JwtKey, algorithms: &[JwtAlgorithm], user: &str) -> JwtIssuer {
    let claims = ClaimMapping { user: user.into(), ..ClaimMapping::default() };
    JwtIssuer {
        name: "test".into(),
        key,
        algorithms: algorithms.into(),
        claims,
        leeway_s: 5,
        ..JwtIssuer::default()
    }
}

fn hs256() -> JwtIssuer {
    record(JwtKey::Secret { secret: SECRET.into(), base64: false }, &[JwtAlgorithm::Hs256], "sub")
}

fn pem(pem: &str, algorithm: JwtAlgorithm) -> JwtIssuer {
    record(JwtKey::Pem { pem: pem.into() }, &[algorithm], "iss")
}

fn jwks(user: &str) -> Issuer {
    let key = JwtKey::Jwks { url: "https://issuer.test/keys".into() };
    Issuer::new(record(key, &[JwtAlgorithm::Rs256, JwtAlgorithm::Es256], user)).unwrap()
}

fn part(json: &Value) -> String {
    URL_SAFE_NO_PAD.encode(json.to_string())
}

/// A token signed with [`SECRET`].
fn token(claims: &Value) -> String {
    sign(&json!({ "alg": "HS256" }), claims)
}

fn sign(header: &Value, claims: &Value) -> String {
    let signed = format!("{}.{}", part(header), part(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}

fn verify(issuer: JwtIssuer, token: &str, now_s: u64) -> Result<Identity, TokenRefusal> {
    let issuer = Issuer::new(issuer).unwrap();
    issuer.verify(&JsonWebToken::parse(token.as_bytes())?, issuer.keys().unwrap(), now_s)
}

#[test]
fn the_examples_of_the_standard_are_taken() {
    let secret = JwtKey::Secret { secret: vectors::HS256_SECRET.into(), base64: true };
    let hs256 = record(secret, &[JwtAlgorithm::Hs256], "iss");
    let rs256 = pem(vectors::RS256_PEM, JwtAlgorithm::Rs256);
    for (issuer, token) in [(&hs256, vectors::HS256), (&rs256, vectors::RS256)] {
        let identity = verify(issuer.clone(), token, vectors::EXPIRES_S).unwrap();
        assert_eq!((&*identity.user, identity.expires_at_s), ("joe", vectors::EXPIRES_S));
        assert_eq!(verify(issuer.clone(), token, vectors::EXPIRES_S + 5), Err(TokenRefusal::Expired));
    }
    let keys = format!(r#"{{"keys":[{{"kty":"new"}},{},{}]}}"#, vectors::RS256_JWK, vectors::ES256_JWK);
    let keys = KeySet::parse(keys.as_bytes()).unwrap();
    for token in [vectors::RS256, vectors::ES256] {
        let identity =
            jwks("iss").verify(&JsonWebToken::parse(token.as_bytes()).unwrap(), &keys, NOW_S).unwrap();
        assert_eq!(&*identity.user, "joe");
    }
}

#[test]
fn a_changed_token_is_not_taken() {
    for token in [vectors::RS256, vectors::ES256] {
        let keys = format!(r#"{{"keys":[{},{}]}}"#, vectors::RS256_JWK, vectors::ES256_JWK);
        let keys = KeySet::parse(keys.as_bytes()).unwrap();
        let forged = token.replacen(".eyJpc3MiOiJqb2Ui", ".eyJpc3MiOiJKb2Ui", 1);
        assert_ne!(forged, token);
        let refusal = jwks("iss").verify(&JsonWebToken::parse(forged.as_bytes()).unwrap(), &keys, NOW_S);
        assert_eq!(refusal, Err(TokenRefusal::Signature));
    }
    let good = token(&json!({ "sub": "bob", "exp": NOW_S + 1 }));
    let other = token(&json!({ "sub": "eve", "exp": NOW_S + 1 }));
    let (good_end, other_start) = (good.rsplit_once('.').unwrap().1, other.rsplit_once('.').unwrap().0);
    assert!(verify(hs256(), &good, NOW_S).is_ok());
    assert_eq!(verify(hs256(), &format!("{other_start}.{good_end}"), NOW_S), Err(TokenRefusal::Signature));
    assert_eq!(verify(hs256(), &format!("{other_start}."), NOW_S), Err(TokenRefusal::Signature));
}

#[test]
fn a_token_cannot_choose_how_it_is_checked() {
    let claims = json!({ "sub": "bob", "iss": "bob", "exp": NOW_S + 1 });
    let parse = |header: Value| JsonWebToken::parse(sign(&header, &claims).as_bytes()).err();
    for algorithm in ["none", "None", "HS384", "PS256", "", "hs256"] {
        assert_eq!(parse(json!({ "alg": algorithm })), Some(TokenRefusal::Algorithm), "{algorithm}");
    }
    assert_eq!(
        parse(json!({ "alg": "HS256", "crit": ["b64"], "b64": false })),
        Some(TokenRefusal::Malformed)
    );
    // The public key of RS256 as the secret of HS256.
    let signed = format!("{}.{}", part(&json!({ "alg": "HS256" })), part(&claims));
    let secret = hmac::Key::new(hmac::HMAC_SHA256, vectors::RS256_PEM.as_bytes());
    let confused = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&secret, signed.as_bytes())));
    assert_eq!(
        verify(pem(vectors::RS256_PEM, JwtAlgorithm::Rs256), &confused, NOW_S),
        Err(TokenRefusal::Algorithm)
    );
    assert_eq!(verify(hs256(), vectors::RS256, NOW_S), Err(TokenRefusal::Algorithm));
}

#[test]
fn other_passwords_are_malformed_tokens() {
    let long = format!("{}.e30.", "A".repeat(20_000));
    for text in ["", ".", "..", "...", "a.b.c", "e30.e30.", "secret", "eyJhbGciOiJIUzI1NiJ9.e30=.", &long] {
        assert_eq!(JsonWebToken::parse(text.as_bytes()).err(), Some(TokenRefusal::Malformed), "{text:.20}");
    }
    assert!(JsonWebToken::is_likely(vectors::ES256.as_bytes()));
    for text in ["secret", "eyJ", "eyJ.x", "a.b.c", ""] {
        assert!(!JsonWebToken::is_likely(text.as_bytes()), "{text}");
    }
}

#[test]
fn claims_are_held_against_the_record() {
    let strict =
        JwtIssuer { issuer: Some("us".into()), audience: vec!["mqtt".into(), "all".into()], ..hs256() };
    let good = json!({ "sub": "bob", "exp": NOW_S + 1, "iss": "us", "aud": ["web", "mqtt"] });
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        verify(strict.clone(), &token(&claims), NOW_S).map(|_| ())
    };
    let claim = |name: &str| Err(TokenRefusal::Claim(name.into()));
    for (name, value, expected) in [
        ("x", json!(1), Ok(())),
        ("exp", json!(NOW_S - 4), Ok(())),
        ("exp", json!(NOW_S - 5), Err(TokenRefusal::Expired)),
        ("exp", json!(NOW_S as f64 + 0.5), Ok(())),
        ("exp", json!(-1), Err(TokenRefusal::Expired)),
        ("exp", json!(u64::MAX), Ok(())),
        ("exp", json!(1e300), Ok(())),
        ("exp", json!(f64::MIN), Err(TokenRefusal::Expired)),
        ("nbf", json!(u64::MAX), Err(TokenRefusal::NotYet)),
        ("nbf", json!(1e300), Err(TokenRefusal::NotYet)),
        ("exp", json!("tomorrow"), claim("exp")),
        ("exp", Value::Null, claim("exp")),
        ("nbf", json!(NOW_S + 5), Ok(())),
        ("nbf", json!(NOW_S + 6), Err(TokenRefusal::NotYet)),
        ("iss", json!("them"), Err(TokenRefusal::Issuer)),
        ("iss", json!(["us"]), claim("iss")),
        ("aud", json!("all"), Ok(())),
        ("aud", json!("web"), Err(TokenRefusal::Audience)),
        ("aud", json!([]), Err(TokenRefusal::Audience)),
        ("aud", Value::Null, Err(TokenRefusal::Audience)),
        ("sub", json!(""), claim("sub")),
        ("sub", json!(7), claim("sub")),
        ("sub", json!("x".repeat(USER_BYTES_MAX)), Ok(())),
        ("sub", json!("x".repeat(USER_BYTES_MAX + 1)), Err(TokenRefusal::LongUserName)),
    ] {
        assert_eq!(with(name, value.clone()), expected, "{name} {value}");
    }
    assert_eq!(
        verify(hs256(), &token(&json!({ "sub": "bob" })), NOW_S),
        claim("exp").map(|()| unreachable!())
    );
    let no_issuer = json!({ "sub": "bob", "exp": NOW_S + 1 });
    assert_eq!(verify(strict, &token(&no_issuer), NOW_S), Err(TokenRefusal::Issuer));
}

#[test]
fn a_token_says_client_id_and_rules() {
    let claims =
        ClaimMapping { user: "sub".into(), client_id: Some("dev".into()), rules: Some("acl".into()) };
    let issuer = JwtIssuer { claims, ..hs256() };
    let rule = Rule::new(Effect::Allow, Action::Publish, "a/%c");
    let mut said = json!({ "sub": "bob", "exp": NOW_S + 1, "dev": "d1", "acl": [rule] });
    let identity = verify(issuer.clone(), &token(&said), NOW_S).unwrap();
    assert_eq!(identity.rules, Some(RuleList::compile(&[rule]).unwrap()));
    for (user, id, may) in [
        (None, "d1", true),
        (Some(""), "d1", true),
        (Some("bob"), "d1", true),
        (Some("bob"), "d2", false),
        (Some("eve"), "d1", false),
        (None, "", false),
    ] {
        assert_eq!(identity.check_client(user, id).is_ok(), may, "{user:?} {id}");
    }
    said["acl"] = json!([{ "effect": "allow", "action": "publish", "filter": "a/#/b" }]);
    assert_eq!(verify(issuer.clone(), &token(&said), NOW_S), Err(TokenRefusal::Claim("acl".into())));
    said["acl"] = json!([]);
    assert!(verify(issuer.clone(), &token(&said), NOW_S).is_ok_and(|identity| identity.rules.is_some()));
    said["dev"] = Value::Null;
    assert_eq!(verify(issuer, &token(&said), NOW_S), Err(TokenRefusal::Claim("dev".into())));
}

#[test]
fn keys_are_found_by_their_id_and_replaced() {
    let make = |id: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let (x, y) = key.public_key_raw()[1..].split_at(32);
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        (
            json!({ "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": id, "x": encode(x), "y": encode(y) }),
            key,
        )
    };
    let sign = |id: Option<&str>, key: &rcgen::KeyPair| {
        let header = part(&json!({ "alg": "ES256", "kid": id }));
        let signed = format!("{header}.{}", part(&json!({ "sub": "bob", "exp": NOW_S + 1 })));
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.serialize_der(), &random)
            .unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(pair.sign(&random, signed.as_bytes()).unwrap()))
    };
    let verify = |keys: &[&Value], token: &str| {
        let keys = KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap();
        jwks("sub").verify(&JsonWebToken::parse(token.as_bytes()).unwrap(), &keys, NOW_S).map(|_| ())
    };
    let ((a, key_a), (b, key_b)) = (make("a"), make("b"));
    let (of_a, of_b, unnamed) = (sign(Some("a"), &key_a), sign(Some("b"), &key_b), sign(None, &key_a));
    assert_eq!(verify(&[&a], &of_b), Err(TokenRefusal::UnknownKey));
    assert_eq!((verify(&[&a, &b], &of_a), verify(&[&a, &b], &of_b)), (Ok(()), Ok(())));
    assert_eq!(verify(&[&b], &of_a), Err(TokenRefusal::UnknownKey));
    assert_eq!(verify(&[&a, &b], &sign(Some("a"), &key_b)), Err(TokenRefusal::Signature));
    // Without an id only when there is no choice.
    assert_eq!(
        (verify(&[&a], &unnamed), verify(&[&a, &b], &unnamed)),
        (Ok(()), Err(TokenRefusal::UnknownKey))
    );
}

#[test]
fn a_key_set_has_only_keys_that_we_use() {
    let with = |member: &str, text: &str| {
        let mut jwk: Value = serde_json::from_str(vectors::RS256_JWK).unwrap();
        jwk[member] = text.into();
        jwk
    };
    // A secret, an RSA key of 24 bits, another curve, no point of the curve, a key for encryption, another algorithm, long members.
    for jwk in [
        with("kid", &"k".repeat(KEY_ID_BYTES_MAX + 1)),
        with("e", &"_".repeat(1_000)),
        json!({ "kty": "oct", "k": "AAAA" }),
        json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" }),
        json!({ "kty": "EC", "crv": "P-384", "x": "AA", "y": "AA" }),
        json!({ "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA" }),
        serde_json::from_str(&vectors::RS256_JWK.replace("sig", "enc")).unwrap(),
        serde_json::from_str(&vectors::RS256_JWK.replace("\"sig\"", "\"sig\",\"alg\":\"RS512\"")).unwrap(),
    ] {
        let error = KeySet::parse(json!({ "keys": [jwk] }).to_string().as_bytes()).unwrap_err();
        assert!(matches!(error, KeySetError::Empty), "{jwk}");
    }
    assert!(matches!(KeySet::parse(b"<html>"), Err(KeySetError::Json(_))));
}

#[test]
fn a_record_with_a_wrong_key_is_named() {
    let field = |issuer: JwtIssuer| Issuer::new(issuer).unwrap_err()[0].field.clone();
    let elliptic = rcgen::KeyPair::generate().unwrap().public_key_pem();
    assert!(Issuer::new(pem(&elliptic, JwtAlgorithm::Es256)).is_ok());
    assert_eq!(field(pem(&elliptic, JwtAlgorithm::Rs256)), "key.pem");
    assert_eq!(
        field(pem("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", JwtAlgorithm::Rs256)),
        "key.pem"
    );
    let p384 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap().public_key_pem();
    assert_eq!(field(pem(&p384, JwtAlgorithm::Es256)), "key.pem");
    let secret =
        JwtKey::Secret { secret: "%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%".into(), base64: true };
    assert_eq!(field(record(secret, &[JwtAlgorithm::Hs256], "sub")), "key.secret");
}

#[test]
fn a_token_is_tried_with_the_issuers_that_it_may_be_of() {
    let token = token(&json!({ "iss": "us" }));
    let token = JsonWebToken::parse(token.as_bytes()).unwrap();
    let issuer = |issuer: Option<&str>| JwtIssuer { issuer: issuer.map(Into::into), ..hs256() };
    let may = |record| Issuer::new(record).unwrap().may_have_issued(&token);
    assert!(may(issuer(None)) && may(issuer(Some("us"))) && !may(issuer(Some("them"))));
    assert!(!may(JwtIssuer { enabled: false, ..issuer(None) }));
}
