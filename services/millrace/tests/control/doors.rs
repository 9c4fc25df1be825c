//! Access that must be refused: tails whose token or broker is deleted, sessions of another user, credentials at another broker,
//! bodies over the limit, and paths beside the API.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rumqttc::{Client, ConnectReturnCode, ConnectionError, Event, MqttOptions, Packet};
use serde_json::{Value, json};

use crate::messages::Events;
use crate::{Browser, Server};

fn managed(server: &Server, owner: &Browser, organisation: &str) -> String {
    let made =
        server.ask(owner, "POST", &format!("{organisation}/brokers"), &json!({ "display_name": "Plant" }));
    format!("{organisation}/brokers/{}", made.body["name"].as_str().unwrap())
}

#[test]
fn a_tail_ends_with_the_token_or_membership_that_opened_it_and_with_its_broker() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, organisation) = server.machine_owner();
    let broker = managed(&server, &owner, &organisation);
    let tail = format!("{broker}/tail?filter=%23");

    let body = json!({ "name": "tail", "scopes": ["messages:read"] });
    let token = server.ask(&owner, "POST", &format!("{organisation}/tokens"), &body).body;
    let (id, secret) = (token["id"].as_str().unwrap(), token["secret"].as_str().unwrap());
    let mut of_token = Events::open_with(&server, &format!("Authorization: Bearer {secret}"), &tail);
    let gone = server.ask(&owner, "DELETE", &format!("{organisation}/tokens/{id}"), &Value::Null);
    assert_eq!(gone.status, 204, "{}", gone.body);
    assert_eq!(of_token.next("end")["reason"], "this API token is unknown, deleted or expired");

    let invitation = json!({ "email": "bob@example.org", "role": "viewer" });
    let invited = server.ask(&owner, "POST", &format!("{organisation}/invitations"), &invitation);
    assert_eq!(invited.status, 201, "{}", invited.body);
    let account = json!({
        "email": "bob@example.org", "password": "a sentence of Bob alone", "name": "Bob",
        "token": invited.body["token"],
    });
    let (bob, me) = server.sign("/sign-up", &account);
    let mut of_member = Events::open(&server, &bob, &tail);
    let member = format!("{organisation}/members/{}", me["user"]["id"].as_str().unwrap());
    let gone = server.ask(&owner, "DELETE", &member, &Value::Null);
    assert_eq!(gone.status, 204, "{}", gone.body);
    assert!(of_member.next("end")["reason"].is_string());

    let mut of_broker = Events::open(&server, &owner, &tail);
    assert_eq!(server.ask(&owner, "DELETE", &broker, &Value::Null).status, 204);
    assert!(of_broker.next("end")["reason"].is_string());
}

#[allow(clippy::disallowed_methods, reason = "the server compares the expiry with the real clock")]
fn in_an_hour_ms() -> u64 {
    let hour = std::time::Duration::from_secs(3_600);
    (std::time::SystemTime::now() + hour).duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() * 1_000
}

#[test]
fn a_device_that_claims_a_credential_for_any_client_id_takes_over_no_session_of_another_user() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, organisation) = server.machine_owner();
    let broker = managed(&server, &owner, &organisation);
    let pump = server.ask(&owner, "POST", &format!("{broker}/credentials"), &json!({ "user": "pump" })).body;
    let token = json!({
        "name": "line 2", "user_prefix": "valve-", "uses_max": 9, "expires_at_ms": in_an_hour_ms(),
        "bind_client_id": false,
    });
    let token = server.ask(&owner, "POST", &format!("{broker}/claim-tokens"), &token);
    assert_eq!(token.status, 201, "{}", token.body);
    let claim = json!({ "token": token.body["secret"], "user": "valve-1" });
    let key = "Idempotency-Key: 0123456789abcdef0123456789abcdef";
    let valve = server.ask_if(&Browser::default(), "POST", "/claim", key, &claim);
    assert_eq!(valve.status, 201, "{}", valve.body);

    let name = broker.rsplit('/').next().unwrap();
    let pump_user = json!(format!("{name}/pump"));
    let connect = |username: &Value, secret: &Value, clean: bool| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut options = MqttOptions::new("pump", "127.0.0.1", server.mqtt);
        options.set_credentials(text(username), text(secret)).set_clean_session(clean);
        Client::new(options, 10)
    };
    for stays in [true, false] {
        let (_client, mut connection) = connect(&pump_user, &pump["secret"], !stays);
        let first = connection.iter().next().unwrap();
        assert!(matches!(first, Ok(Event::Incoming(Packet::ConnAck(_)))), "{first:?}");
        let refused = |clean: bool| {
            let (_thief, mut connection) = connect(&valve.body["username"], &valve.body["password"], clean);
            let refused = connection.iter().find_map(Result::err).unwrap();
            let is_refused =
                matches!(refused, ConnectionError::ConnectionRefused(ConnectReturnCode::NotAuthorized));
            assert!(is_refused, "{refused:?}");
        };
        refused(true);
        refused(false);
        if stays {
            drop(connection);
            refused(true);
            refused(false);
        }
    }
}

#[test]
fn a_credential_is_refused_at_other_brokers_although_they_admit_anonymous_clients() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, organisation) = server.machine_owner();
    let (own, open) = (managed(&server, &owner, &organisation), managed(&server, &owner, &organisation));
    let changed = server.ask(&owner, "PUT", &format!("{open}/access"), &json!({ "anonymous": true }));
    assert_eq!(changed.status, 200, "{}", changed.body);
    let pump = server.ask(&owner, "POST", &format!("{own}/credentials"), &json!({ "user": "pump" })).body;
    let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let answer = |user: String, password: &str| {
        let mut options = MqttOptions::new("pump", "127.0.0.1", server.mqtt);
        options.set_credentials(user, password);
        let (_client, mut connection) = Client::new(options, 10);
        match connection.iter().next().unwrap() {
            Ok(Event::Incoming(Packet::ConnAck(answer))) => answer.code,
            Err(ConnectionError::ConnectionRefused(code)) => code,
            other => panic!("{other:?}"),
        }
    };
    let secret = pump["secret"].as_str().unwrap();
    assert_eq!(answer(format!("{}/pump", name(&own)), secret), ConnectReturnCode::Success);
    assert_eq!(answer(format!("{}/", name(&open)), ""), ConnectReturnCode::Success, "anonymous");
    for elsewhere in [format!("{}/pump", name(&open)), "pump".to_owned()] {
        assert_eq!(answer(elsewhere.clone(), secret), ConnectReturnCode::BadUserNamePassword, "{elsewhere}");
    }
}

#[test]
fn a_body_whose_announced_length_is_over_the_limit_is_not_waited_for() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (Browser { cookie, csrf }, organisation) = server.machine_owner();
    for expect in ["", "Expect: 100-continue\r\n"] {
        let mut stream = TcpStream::connect(&server.http).unwrap();
        write!(
            stream,
            "POST /api/v1{organisation}/brokers HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{expect}\
             Cookie: {cookie}\r\nX-CSRF-Token: {csrf}\r\nContent-Type: application/json\r\n\
             Content-Length: 99999999999\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 "), "{expect}: {answer}");
    }
}

#[test]
fn a_path_beside_the_api_is_answered_like_one_in_it() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    for path in ["/", "/nothing", "x", "/../v2/me", "/.."] {
        let found = server.ask(&Browser::default(), "GET", path, &Value::Null);
        assert_eq!(
            (found.status, &found.body["status"]),
            (404, &json!(404)),
            "/api/v1{path}: {}",
            found.body
        );
    }
}
