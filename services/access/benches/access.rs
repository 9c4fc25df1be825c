//! Measures authentication of a client by each method, and authorization of a topic: `cargo bench
//! -p millrace-access`.
//!
//! The target is 16,000 connects a second on one machine; the figures are for one core. Each
//! measurement starts from the edge's input: the stored record in JSON, or the received token.

#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_access::jwt::{Issuer, JsonWebToken, KeySet};
use millrace_access::model::{
    Action, ClaimMapping, ClientCa, Credential, Effect, JwtAlgorithm, JwtIssuer, JwtKey, Rule, Secret,
};
use millrace_access::rules::{ClientIdentity, Permissions, RuleList};
use millrace_access::scram::{Enhanced, FakeKey, NONCE_BYTES, verifier};
use millrace_access::secrets::generated::{HashKeys, RANDOM_BYTES, generate};
use millrace_access::secrets::password::{PasswordCheck, check};
use millrace_access::secrets::{VerifiedCache, chosen};
use millrace_access::x509::Authority;
use millrace_mqtt::QoS;
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

#[path = "../src/jwt/tests/vectors.rs"]
mod vectors;

/// Runs `work` for about a second and prints how often a second and how long it takes.
fn time(what: &str, mut work: impl FnMut()) {
    let (start, mut count) = (Instant::now(), 0u32);
    while start.elapsed() < Duration::from_secs(1) {
        for _ in 0..10 {
            work();
        }
        count += 10;
    }
    let each = start.elapsed() / count;
    println!(
        "{:>10}/s {:>10.2} µs  {what}",
        1_000_000_000 / each.as_nanos().max(1),
        each.as_nanos() as f64 / 1e3
    );
}

fn passwords() {
    let keys = HashKeys::new([(1, [1; 32])]).unwrap();
    let rules = vec![Rule::new(Effect::Allow, Action::All, "fleet/%c/#"); 5];
    let secret = generate(&[7; RANDOM_BYTES]);
    let credential = Credential {
        user: "pump-7".into(),
        secret: Some(keys.hash(secret.as_bytes())),
        rules,
        ..Credential::default()
    };
    let stored = serde_json::to_vec(&credential).unwrap();
    time("generated secret", || {
        let credential: Credential = serde_json::from_slice(&stored).unwrap();
        assert_eq!(check(Some(&credential), secret.as_bytes(), &keys, 1), PasswordCheck::Right);
    });
    time("generated secret, and the client's five rules made ready", || {
        let credential: Credential = serde_json::from_slice(&stored).unwrap();
        assert_eq!(check(Some(&credential), secret.as_bytes(), &keys, 1), PasswordCheck::Right);
        black_box(Permissions::new([Arc::new(RuleList::compile(&credential.rules).unwrap())]));
    });
    let phc = chosen::hash(b"hunter2", &[1; chosen::SALT_BYTES]).unwrap();
    let chosen = Credential { secret: Some(Secret::Chosen { phc: phc.clone().into() }), ..credential };
    let stored = serde_json::to_vec(&chosen).unwrap();
    let mut cache = VerifiedCache::new(&[1; 32], 100_000, 300);
    cache.insert("pump-7", b"hunter2", &phc, 0);
    time("chosen password, found right a moment ago", || {
        let credential: Credential = serde_json::from_slice(&stored).unwrap();
        let PasswordCheck::Slow(hashes) = check(Some(&credential), b"hunter2", &keys, 1) else {
            unreachable!()
        };
        assert!(cache.contains("pump-7", b"hunter2", hashes[0], 1));
    });
    time("chosen password, for the first time", || assert!(chosen::verify(&phc, b"hunter2")));
}

fn tokens() {
    let claims = ClaimMapping { user: "iss".into(), ..ClaimMapping::default() };
    let record = |key, algorithm| {
        let (name, algorithms) = ("bench".into(), vec![algorithm]);
        JwtIssuer { name, key, algorithms, claims: claims.clone(), ..JwtIssuer::default() }
    };
    let secret = JwtKey::Secret { secret: vectors::HS256_SECRET.into(), base64: true };
    let jwks = || JwtKey::Jwks { url: "https://issuer.test".into() };
    let set = |jwk: &str| KeySet::parse(format!(r#"{{"keys":[{jwk}]}}"#).as_bytes()).unwrap();
    for (name, record, keys, token) in [
        ("JWT, HS256", record(secret, JwtAlgorithm::Hs256), None, vectors::HS256),
        (
            "JWT, RS256 of 2048 bits",
            record(jwks(), JwtAlgorithm::Rs256),
            Some(set(vectors::RS256_JWK)),
            vectors::RS256,
        ),
        ("JWT, ES256", record(jwks(), JwtAlgorithm::Es256), Some(set(vectors::ES256_JWK)), vectors::ES256),
    ] {
        let issuer = Issuer::new(record).unwrap();
        let keys = keys.as_ref().or(issuer.keys()).unwrap();
        time(name, || {
            let token = JsonWebToken::parse(token.as_bytes()).unwrap();
            black_box(issuer.verify(&token, keys, vectors::EXPIRES_S).unwrap());
        });
    }
    let pem = Issuer::new(record(JwtKey::Pem { pem: vectors::RS256_PEM.into() }, JwtAlgorithm::Rs256));
    assert!(pem.is_ok());
}

fn certificates() {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let (ca_key, key) = (rcgen::KeyPair::generate().unwrap(), rcgen::KeyPair::generate().unwrap());
    let ca = params.self_signed(&ca_key).unwrap();
    let mut client = rcgen::CertificateParams::default();
    client.distinguished_name.push(rcgen::DnType::CommonName, "pump-7");
    let certificate = client.signed_by(&key, &rcgen::Issuer::from_params(&params, &ca_key)).unwrap();
    let record = ClientCa { name: "bench".into(), pem: ca.pem(), ..ClientCa::default() };
    let authority = Authority::new(record).unwrap();
    let chain = [certificate.der().clone()];
    time("certificate (P-256), without revocation list", || {
        black_box(authority.verify(&chain, 1_780_272_000).unwrap());
    });
    for count in [1_000_u64, 25_000] {
        let revoked = (0..count).map(|n| rcgen::RevokedCertParams {
            serial_number: rcgen::SerialNumber::from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            revocation_time: rcgen::date_time_ymd(2026, 2, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2026, 2, 1),
            next_update: rcgen::date_time_ymd(2026, 3, 1),
            crl_number: rcgen::SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&rcgen::Issuer::from_params(&params, &ca_key)).unwrap().pem().unwrap();
        let record =
            ClientCa { name: "bench".into(), pem: ca.pem(), revoked: Some(list), ..ClientCa::default() };
        time(&format!("client CA with {count} revoked certificates, read from its record"), || {
            black_box(Authority::new(record.clone()).unwrap());
        });
        let authority = Authority::new(record).unwrap();
        time(&format!("certificate (P-256), not among {count} revoked"), || {
            black_box(authority.verify(&chain, 1_780_272_000).unwrap());
        });
    }
}

fn scram() {
    let verifier = verifier("mr_0123456789", [1; 16]);
    let (fake, random) = (FakeKey([2; 32]), [3; NONCE_BYTES]);
    // Once with a client; then what it sent again, with the same nonces.
    let mut client = ScramSha256::new(b"mr_0123456789", ChannelBinding::unsupported());
    let first = client.message().to_vec();
    let begin = || {
        let mut enhanced = Enhanced::default();
        enhanced.begin(&first).unwrap();
        let challenge = enhanced.challenge(Some(&verifier), &fake, &random).unwrap();
        (enhanced, challenge)
    };
    client.update(&begin().1).unwrap();
    let last = client.message().to_vec();
    time("SCRAM-SHA-256, the server's side", || {
        black_box(begin().0.verify_proof(&last).unwrap());
    });
}

fn rules() {
    let rule = |n: usize| Rule::new(Effect::Allow, Action::All, &format!("fleet/{n}/%c/+/#"));
    let client = ClientIdentity { user: Some("bob"), id: "pump-7" };
    for count in [1, 10, 100] {
        let rules: Vec<Rule> = (0..count).map(rule).collect();
        let permissions = Permissions::new([Arc::new(RuleList::compile(&rules).unwrap())]);
        let topic = format!("fleet/{}/pump-7/up/pressure", count - 1);
        let ask = || black_box(permissions.publish(client, &topic, false, QoS::AtLeastOnce)).unwrap();
        time(&format!("publish, decided by the last of {count} rules"), ask);
        let ask = || {
            black_box(permissions.subscribe(client, &topic, QoS::AtLeastOnce).unwrap());
        };
        time(&format!("subscribe, decided by the last of {count} rules"), ask);
    }
}

fn main() {
    passwords();
    tokens();
    certificates();
    scram();
    rules();
}
