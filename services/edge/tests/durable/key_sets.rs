//! Tokens of issuers whose keys are fetched.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_access::model::{Access, JwtAlgorithm, JwtIssuer, JwtKey};
use millrace_layers::{Store, accounts};
use millrace_mqtt::{Connect, Packet, ReasonCode, Version};
use millrace_storage::{Database, Transaction, block_on};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

use crate::access::{change, connack, connect_as, refused, set_access, signed_token, with_access};
use crate::common::{Client, Server, connect};
use crate::service::{Service, edge, http, ok, useless};
use crate::tools::{eventually, metric};

/// A key of an issuer.
struct Key {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Key {
    fn new(id: &'static str) -> Self {
        let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        Self { id, pair: EcdsaKeyPair::from_pkcs8(kind, pkcs8.as_ref(), &random).unwrap() }
    }

    fn jwks(&self) -> String {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        let [x, y] = [x, y].map(|half| URL_SAFE_NO_PAD.encode(half));
        format!(r#"{{"keys":[{{"kty":"EC","crv":"P-256","kid":"{}","x":"{x}","y":"{y}"}}]}}"#, self.id)
    }

    fn token(&self, user: &str) -> String {
        let sign = |signed: &[u8]| self.pair.sign(&SystemRandom::new(), signed).unwrap().as_ref().to_vec();
        signed_token(&format!(r#"{{"alg":"ES256","kid":"{}"}}"#, self.id), user, 600, sign)
    }
}

/// A broker that takes tokens of an issuer with this URL.
fn trusting(url: &str) -> Database {
    let (database, id) = with_access(&Access { tokens: true, ..Access::default() });
    trust(&database, id, url);
    database
}

fn trust(database: &Database, id: u64, url: &str) {
    let issuer = JwtIssuer {
        name: "i".into(),
        algorithms: vec![JwtAlgorithm::Es256],
        key: JwtKey::Jwks { url: url.into() },
        ..JwtIssuer::default()
    };
    change(database, id, &async |tx: &Transaction| accounts::jwt_issuers(id).put(tx, b"i", &issuer).await);
}

fn fetches(server: &Server, result: &str) -> u64 {
    metric(server, "millrace_key_set_fetches_total", &format!("result=\"{result}\""))
}

fn v3<'a>(user: &'a str, password: &'a str) -> Connect<'a> {
    Connect { version: Version::V311, ..connect_as(user, password) }
}

#[test]
fn many_clients_wait_for_one_fetch_of_the_keys() {
    let key = Key::new("1");
    let jwks = key.jwks();
    let (service, gate) = Service::gated(move |_| ok(&jwks));
    let server = edge(&trusting(&service.url()));
    let token = key.token("ann");
    let enter = |n| {
        let (id, mut client) = (format!("c{n}"), Client::raw(&server));
        let request = Connect { client_id: &id, ..connect_as("ann", &token) };
        client.send(&Packet::Connect(request));
        client
    };
    let mut clients: Vec<Client> = (0..100).map(enter).collect();
    let waiting = || metric(&server, "millrace_key_set_waiting", "");
    eventually(|| waiting() == 100, || format!("{} wait", waiting()));
    // Other clients need not wait.
    assert_eq!(refused(&server, connect_as("ann", "password")), 0x86);
    drop(gate);
    clients.extend((100..1_000).map(enter));
    for client in &mut clients {
        assert_eq!(client.recv_connack().reason, ReasonCode::SUCCESS);
    }
    Client::open(&server, connect_as("ann", &token)).disconnect();
    assert_eq!((service.asked(), fetches(&server, "fetched"), waiting()), (1, 1, 0));
}

#[test]
fn tokens_with_other_keys_are_refused_and_cause_no_more_fetches() {
    let (key, same_name, other) = (Key::new("1"), Key::new("1"), Key::new("2"));
    let jwks = key.jwks();
    let service = Service::start(move |_| ok(&jwks));
    let server = edge(&trusting(&service.url()));
    for _ in 0..3 {
        assert_eq!(refused(&server, connect_as("ann", &same_name.token("ann"))), 0x87);
        assert_eq!(refused(&server, connect_as("ann", &other.token("ann"))), 0x87);
    }
    Client::open(&server, connect_as("ann", &key.token("ann"))).disconnect();
    assert_eq!(service.asked(), 1);
}

/// Takes half a minute: so long no keys are fetched again because a token names one that is not there.
#[test]
fn a_new_key_is_found_and_counts_when_its_server_is_gone() {
    let (old, new) = (Key::new("old"), Key::new("new"));
    let said = Arc::new(Mutex::new(ok(&old.jwks())));
    let says = said.clone();
    let service = Service::start(move |_| says.lock().unwrap().clone());
    let server = edge(&trusting(&service.url()));
    let enters = |key: &Key| connack(&server, connect_as("ann", &key.token("ann"))) == 0;
    assert!(enters(&old));
    *said.lock().unwrap() = ok(&new.jwks());
    let mut attempts = 0;
    while !enters(&new) {
        attempts += 1;
        assert!(attempts < 400, "the new key was not fetched");
        Client::raw(&server).expect_silence(Duration::from_millis(100));
    }
    assert!(!enters(&old), "it is withdrawn");
    *said.lock().unwrap() = http("500 Internal Server Error", "");
    assert!(enters(&new));
    assert_eq!(service.asked(), 2);
}

#[test]
fn without_keys_clients_are_told_to_come_again_and_the_reason_is_counted() {
    let key = Key::new("1");
    let token = key.token("ann");
    for (answer, reason) in useless().into_iter().filter(|(_, reason)| *reason != "timeout") {
        let service = Service::start(move |_| answer.clone());
        let server = edge(&trusting(&service.url()));
        assert_eq!(refused(&server, connect_as("ann", &token)), 0x88, "{reason}");
        assert_eq!(Client::refused(&server, v3("ann", &token)).reason.0, 3, "{reason}");
        let reason = if reason == "body" { "invalid" } else { reason };
        assert_eq!((fetches(&server, reason), service.asked()), (1, 1), "{reason}");
        assert_eq!(metric(&server, "millrace_connects_refused_total", "no_keys"), 2);
    }
}

/// The fetch of one tenant can fail because that tenant has too many calls in progress.
#[test]
fn a_fetch_that_fails_for_one_tenant_sends_no_client_of_another_away() {
    let key = Key::new("1");
    let (jwks, token, first) = (key.jwks(), key.token("ann"), AtomicBool::new(true));
    let service = Service::start(move |_| match first.swap(false, Ordering::SeqCst) {
        true => http("500 Internal Server Error", ""),
        false => ok(&jwks),
    });
    let database = trusting(&service.url());
    let other = block_on(Store::new(database.clone()).ensure_broker(b"other")).unwrap().id;
    set_access(&database, other, &Access { tokens: true, ..Access::default() });
    trust(&database, other, &service.url());
    let server = edge(&database);
    assert_eq!(refused(&server, connect_as("other/ann", &token)), 0x88);
    Client::open(&server, connect_as("ann", &token)).disconnect();
    assert_eq!(refused(&server, connect_as("other/ann", &token)), 0x88, "its next fetch is later");
    assert_eq!((service.asked(), metric(&server, "millrace_key_sets", "")), (2, 2));
}

#[test]
fn keys_are_not_fetched_where_they_must_not_be() {
    let service = Service::start(|_| panic!("a private address was asked"));
    let port = service.address.port();
    let token = Key::new("1").token("ann");
    for (url, reason) in [
        (service.url(), "forbidden"),
        (format!("http://localhost:{port}/"), "forbidden"),
        (format!("https://[::ffff:127.0.0.1]:{port}/"), "forbidden"),
        ("http://169.254.169.254/latest/meta-data/".into(), "forbidden"),
    ] {
        let server = Server::on(&trusting(&url), |_| {});
        assert_eq!(refused(&server, connect_as("ann", &token)), 0x88, "{url}");
        assert_eq!(fetches(&server, reason), 1, "{url}");
    }
}

#[test]
fn a_server_that_stops_does_not_wait_for_keys() {
    let (service, _gate) = Service::gated(|_| ok(""));
    let server = edge(&trusting(&service.url()));
    let mut client = Client::raw(&server);
    let token = Key::new("1").token("ann");
    client.send(&Packet::Connect(connect_as("ann", &token)));
    eventually(|| service.asked() == 1, || "nobody asks".into());
    Client::refused(&server, connect(Version::V5, "other"));
    drop(server);
}
