//! Clients that a tenant's service is asked about.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use millrace_access::model::{Access, Action, CertificateUse, Credential, Group, WebhookAuth};
use millrace_layers::accounts;
use millrace_mqtt::{Connect, Packet, ReasonCode, Version};
use millrace_storage::{Database, Transaction};

use crate::access::{
    allow, bob, certificate, change, connect_as, puback, put, refused, through_gateway, with_access,
};
use crate::common::{Client, Server, connect};
use crate::service::{Asked, Service, edge, ok, useless};
use crate::tools::{eventually, metric};

const ALLOW: &str = r#"{"result":"allow"}"#;

fn asking(url: &str, change: impl FnOnce(&mut WebhookAuth)) -> (Database, u64) {
    let mut webhook = WebhookAuth { url: url.into(), ..WebhookAuth::default() };
    change(&mut webhook);
    with_access(&Access { webhook: Some(webhook), ..Access::default() })
}

fn questions(server: &Server, result: &str) -> u64 {
    metric(server, "millrace_webhook_questions_total", &format!("result=\"{result}\""))
}

/// A service that always gives `answer`, and the list of requests that it has received.
fn listening(answer: &'static str) -> (Service, Arc<Mutex<Vec<Asked>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let all = asked.clone();
    let service = Service::start(move |asked: &Asked| {
        all.lock().unwrap().push(asked.clone());
        ok(answer)
    });
    (service, asked)
}

#[test]
fn an_allowed_client_has_the_user_and_the_rules_of_the_response() {
    let (service, _) = listening(
        r#"{"result":"allow","user":"pump-7","group":"g","rules":[{"effect":"allow","action":"publish","filter":"of/%u"}]}"#,
    );
    let (database, id) = asking(&service.url(), |_| {});
    change(&database, id, &async |tx: &Transaction| {
        let group = Group { name: "g".into(), rules: vec![allow(Action::Publish, "g")], ..Group::default() };
        accounts::groups(id).put(tx, b"g", &group).await
    });
    let own = Credential { user: "pump-7".into(), ..bob(vec![allow(Action::Publish, "own")]) };
    put(&database, id, &own);
    let server = edge(&database);
    let mut client = Client::open(&server, connect_as("eve", "any"));
    for (topic, reason) in [("of/pump-7", 0x10), ("own", 0x10), ("g", 0x10), ("of/eve", 0x87)] {
        assert_eq!(puback(&mut client, topic), reason, "{topic}");
    }
    // The webhook is not asked about a user with a credential.
    assert_eq!(refused(&server, connect_as("pump-7", "wrong")), 0x86);
    Client::open(&server, connect_as("pump-7", "right")).disconnect();
    assert_eq!((service.asked(), questions(&server, "allowed")), (1, 1));
}

#[test]
fn the_question_says_who_wants_to_enter_and_is_signed() {
    let (service, asked) = listening(ALLOW);
    let (database, _) = asking(&service.url(), |webhook| {
        (webhook.signing_key, webhook.cache_s) = (Some("a key of theirs".into()), 0);
    });
    let server = edge(&database);
    let mut client = Client::open(&server, connect_as("eve", "any"));
    let own = client.stream().local_addr().unwrap();
    client.ping();
    Client::open(&server, Connect { client_id: "", ..connect(Version::V5, "") }).disconnect();
    let asked = asked.lock().unwrap();
    let body: serde_json::Value = serde_json::from_str(&asked[0].body).unwrap();
    let expected = serde_json::json!({
        "broker": "default", "client_id": "c1", "user": "eve", "password": "any", "certificate_user": null,
        "address": own.to_string(),
    });
    assert_eq!(body, expected);
    let nameless: serde_json::Value = serde_json::from_str(&asked[1].body).unwrap();
    assert_eq!((&nameless["client_id"], &nameless["user"]), (&"".into(), &serde_json::Value::Null));
    let head = &asked[0].head;
    assert!(
        head.starts_with("POST / HTTP/1.1\r\n") && head.contains("content-type: application/json"),
        "{head}"
    );
    let signature = head.lines().find_map(|line| line.strip_prefix("millrace-signature: t=")).unwrap();
    let (time, signature) = signature.split_once(",v1=").unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"a key of theirs");
    let bytes: Vec<u8> =
        (0..32).map(|n| u8::from_str_radix(&signature[2 * n..2 * n + 2], 16).unwrap()).collect();
    ring::hmac::verify(&key, format!("{time}.{}", asked[0].body).as_bytes(), &bytes).unwrap();
}

#[test]
fn the_question_has_the_user_of_the_certificate_and_the_address_that_the_gateway_says() {
    let (service, asked) = listening(ALLOW);
    let webhook = WebhookAuth { url: service.url(), ..WebhookAuth::default() };
    let (database, id) = with_access(&Access {
        webhook: Some(webhook),
        certificates: CertificateUse::Additional,
        ..Access::default()
    });
    let (authority, pem) = certificate("pump-7");
    change(&database, id, &async |tx: &Transaction| accounts::client_cas(id).put(tx, b"f", &authority).await);
    let server = Server::on(&database, |config| {
        config.outgoing.allow = vec!["127.0.0.1/32".parse().unwrap()];
        config.gateway_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        config.gateway_from = vec!["127.0.0.1/32".parse().unwrap()];
    });
    assert_eq!(through_gateway(&server, &pem).1, 0);
    let body: serde_json::Value = serde_json::from_str(&asked.lock().unwrap()[0].body).unwrap();
    assert_eq!((&body["certificate_user"], &body["address"]), (&"pump-7".into(), &"192.0.2.1:54321".into()));
}

#[test]
fn an_answer_is_remembered_for_the_same_client() {
    let (service, _) = listening(ALLOW);
    let server = edge(&asking(&service.url(), |_| {}).0);
    for _ in 0..3 {
        Client::open(&server, connect_as("eve", "any")).disconnect();
    }
    assert_eq!((service.asked(), questions(&server, "remembered")), (1, 2));
    Client::open(&server, connect_as("eve", "other")).disconnect();
    assert_eq!(service.asked(), 2);
    let (service, _) = listening(r#"{"result":"deny"}"#);
    let server = edge(&asking(&service.url(), |_| {}).0);
    for _ in 0..3 {
        assert_eq!(refused(&server, connect_as("eve", "any")), 0x87);
    }
    assert_eq!((service.asked(), questions(&server, "refused")), (1, 1));
}

#[test]
fn the_same_question_is_asked_once_at_a_time_and_others_are_not_held_up() {
    let (service, gate) = Service::gated(|_| ok(ALLOW));
    let (database, id) = asking(&service.url(), |webhook| (webhook.cache_s, webhook.timeout_ms) = (0, 8_000));
    put(&database, id, &bob(vec![]));
    let server = edge(&database);
    let enter = |_| {
        let mut client = Client::raw(&server);
        client.send(&Packet::Connect(connect_as("eve", "any")));
        client
    };
    let mut clients: Vec<Client> = (0..10).map(enter).collect();
    eventually(|| questions(&server, "shared") == 9, || "they do not wait".into());
    Client::open(&server, Connect { client_id: "bob", ..connect_as("bob", "right") }).disconnect();
    eventually(|| service.asked() == 1, || "the service is not asked".into());
    assert_eq!(metric(&server, "millrace_webhook_questions", ""), 1);
    drop(gate);
    for client in &mut clients {
        assert_eq!(client.recv_connack().reason, ReasonCode::SUCCESS);
    }
    assert_eq!((service.asked(), metric(&server, "millrace_webhook_questions", "")), (1, 0));
}

#[test]
fn when_the_service_fails_clients_are_told_to_come_again_and_the_reason_is_counted() {
    for (answer, reason) in useless() {
        let service = Service::start(move |_| answer.clone());
        let server = edge(&asking(&service.url(), |webhook| webhook.timeout_ms = 1_000).0);
        assert_eq!(refused(&server, connect_as("eve", "any")), 0x88, "{reason}");
        let v3 = Connect { version: Version::V311, ..connect_as("eve", "any") };
        assert_eq!(Client::refused(&server, v3).reason.0, 3, "{reason}");
        let reason = if ["body", "status"].contains(&reason) { "answer" } else { reason };
        assert_eq!((questions(&server, reason), service.asked()), (2, 2), "{reason}");
        assert_eq!(metric(&server, "millrace_connects_refused_total", "webhook_failed"), 2);
    }
    let server = Server::on(&asking("http://127.0.0.1:1/", |_| {}).0, |_| {});
    assert_eq!(refused(&server, connect_as("eve", "any")), 0x88);
    assert_eq!(questions(&server, "forbidden"), 1);
}

#[test]
fn more_questions_than_a_broker_may_have_are_refused() {
    let (service, _gate) = Service::gated(|_| ok(ALLOW));
    let server = edge(&asking(&service.url(), |webhook| webhook.timeout_ms = 8_000).0);
    let enter = |n| {
        let (id, mut client) = (format!("c{n}"), Client::raw(&server));
        client.send(&Packet::Connect(Connect { client_id: &id, ..connect_as("eve", "any") }));
        client
    };
    let _clients: Vec<Client> = (0..1_100).map(enter).collect();
    let refused = || metric(&server, "millrace_connects_refused_total", "webhook_failed");
    eventually(|| refused() >= 100, || format!("{} are refused", refused()));
    assert_eq!(questions(&server, "busy"), 100);
}
