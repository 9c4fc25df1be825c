//! The owner of this machine signs in with the link of the server's start.

use axum::extract::ConnectInfo;
use axum::http::{Method, StatusCode};
use millrace_control::{AccessBySettings, ApiOptions, LocalDoor, Ports, Reach, SignUpBy};
use millrace_layers::{accounts, catalog};
use millrace_storage::Read;
use serde_json::{Value, json};
use std::net::SocketAddr;

use crate::tools::{Answer, Client, Region};

pub(crate) const TOKEN: &str = "a-token-of-this-start";

async fn region() -> Region {
    let local = LocalDoor { token: TOKEN.into(), machine: "bench-7".into() };
    let region =
        Region::with(SignUpBy::Invitation, ApiOptions { local: Some(local), ..ApiOptions::default() }).await;
    region.store.ensure_broker(catalog::DEFAULT).await.unwrap();
    region
}

async fn sign_in(client: &Client, peer: &str, host: &str, token: &str) -> Answer {
    let mut request = axum::http::Request::post("/sign-in/local")
        .header("host", host)
        .header("content-type", "application/json")
        .body(axum::body::Body::from(json!({ "token": token }).to_string()))
        .unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 50_000)));
    client.raw(request).await
}

pub(crate) async fn owner(region: &Region) -> Client {
    let mut client = region.stranger();
    let answer = sign_in(&client, "127.0.0.1", "127.0.0.1:8080", TOKEN).await;
    answer.is(StatusCode::OK);
    client.welcome(&answer);
    client
}

#[tokio::test]
async fn the_owner_of_the_machine_has_the_broker_that_runs_there() {
    let region = region().await;
    let client = owner(&region).await;
    let me = client.get("/me").await;
    assert_eq!(me.body["user"]["email"], json!(null));
    assert_eq!(me.text("/organisations/0/name"), "bench-7");
    assert_eq!(me.text("/organisations/0/role"), "owner");
    assert_eq!(client.get(&client.own("/brokers")).await.column("name"), ["default"]);
    client.get(&client.own("/brokers/default/credentials")).await.is(StatusCode::OK);
    // Another browser, later: the same person.
    let again = owner(&region).await.get("/me").await;
    assert_eq!(again.text("/user/id"), me.text("/user/id"));
    assert_eq!(again.body["organisations"].as_array().unwrap().len(), 1);
    let log = client.get(&client.own("/audit")).await;
    assert!(log.column("action").contains(&"broker.adopt"), "{log:?}");
}

#[tokio::test]
async fn only_a_change_of_access_takes_the_broker_out_of_the_settings() {
    let region = region().await;
    region.control.admits_by_settings(AccessBySettings { anonymous: true, passwords: false });
    let client = owner(&region).await;
    let broker = client.own("/brokers/default");
    let shown = async || {
        let found = client.get(&broker).await;
        [found.body["access_by_settings"].clone(), found.body["anonymous_allowed"].clone()]
    };
    let access = format!("{broker}/access");
    let in_force = async || {
        let found = client.get(&access).await.body;
        ["by_settings", "anonymous", "passwords", "scram"].map(|field| found[field].clone())
    };
    assert_eq!(shown().await, [json!(true), json!(true)]);

    let pump = json!({ "user": "pump" });
    client.post(&format!("{broker}/credentials"), pump).await.is(StatusCode::CREATED);
    client.put(&format!("{broker}/groups/g"), "", json!({ "rules": [] })).await.is(StatusCode::CREATED);
    let limits = json!({ "limits": { "broker": { "connections": 9 } } });
    client.patch(&broker, "*", limits).await.is(StatusCode::OK);
    for action in ["suspend", "resume"] {
        client.send(Method::POST, &format!("{broker}/{action}"), None).await.is(StatusCode::OK);
    }
    assert_eq!(shown().await, [json!(true), json!(true)], "only the limits have changed");
    assert_eq!(in_force().await, [json!(true), json!(true), json!(false), json!(false)]);
    let question = json!({ "client_id": "a", "user": "pump", "action": "publish", "topic": "a" });
    let asked = client.post(&format!("{access}/test"), question).await;
    asked.is(StatusCode::NOT_IMPLEMENTED);

    // A body that a GET answered cannot be sent back by mistake.
    let read = client.get(&access).await.body;
    let refused = client.put(&access, "*", read).await;
    assert_eq!(refused.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), "by_settings");
    assert_eq!(shown().await[0], json!(true));

    let etag = client.get(&access).await.etag();
    let set = client.put(&access, &etag, json!({ "by_settings": false })).await;
    assert_eq!(set.is(StatusCode::OK).body["by_settings"], false);
    assert_eq!(shown().await, [json!(false), json!(false)]);
    assert_eq!(in_force().await, [json!(false), json!(false), json!(true), json!(true)]);
    assert_eq!(client.get(&broker).await.body["limits"]["broker"]["connections"], 9, "limits stay");
    client.put(&access, "*", json!({ "anonymous": true })).await.is(StatusCode::OK);
    assert_eq!(shown().await, [json!(false), json!(true)]);
    let needs_certificate = json!({ "anonymous": true, "certificates": "required" });
    client.put(&access, "*", needs_certificate).await.is(StatusCode::OK);
    assert_eq!(shown().await, [json!(false), json!(false)]);
    client.put(&access, "*", json!({ "by_settings": true })).await.is(StatusCode::UNPROCESSABLE_ENTITY);

    let new = client.broker().await;
    assert_eq!(client.get(&new).await.body["access_by_settings"], false);
}

#[tokio::test]
async fn a_broker_that_the_version_before_managed_stays_managed() {
    let region = region().await;
    let client = owner(&region).await;
    let id = region.store.ensure_broker(catalog::DEFAULT).await.unwrap().id;
    let written = region.store.run(|tx| async move {
        let before = json!({ "anonymous": false, "passwords": true });
        accounts::access(id).put(&tx, accounts::ACCESS, &before).await
    });
    written.await.unwrap();
    let broker = client.own("/brokers/default");
    assert_eq!(client.get(&broker).await.body["access_by_settings"], false);
    assert_eq!(client.get(&format!("{broker}/access")).await.body["by_settings"], false);
}

#[tokio::test]
async fn a_plan_limits_the_broker_of_the_settings_and_leaves_it_to_them() {
    let region = region().await;
    let operator = crate::operator::router(&region, None);
    let small = json!({ "ceiling": { "broker": { "connections": 10 } } });
    let (status, _) = crate::operator::here(&operator, "PUT /plans/default", Some(small.clone())).await;
    assert_eq!(status, StatusCode::OK);
    // A new organisation has the plan `default`, and so has the broker that it adopts.
    let client = owner(&region).await;
    let broker = client.own("/brokers/default");
    let ceiling = async || {
        let found = client.get(&broker).await.body;
        assert_eq!(found["access_by_settings"], true);
        found["ceiling"]["broker"]["connections"].clone()
    };
    assert_eq!(ceiling().await, 10);
    let id = region.store.ensure_broker(catalog::DEFAULT).await.unwrap().id;
    let stored = region.store.run(|tx| async move {
        accounts::access(id).get::<Value>(&tx, accounts::ACCESS, Read::Snapshot).await
    });
    assert_eq!(stored.await.unwrap().unwrap().value["by_settings"], true, "the servers read it");
    let smaller = json!({ "ceiling": { "broker": { "connections": 5 } } });
    let (status, _) = crate::operator::here(&operator, "PUT /plans/default", Some(smaller)).await;
    assert_eq!((status, ceiling().await), (StatusCode::OK, json!(5)));
}

#[tokio::test]
async fn the_first_record_of_the_broker_has_the_ceiling_of_the_plan() {
    for by_access in [true, false] {
        let region = region().await;
        let client = owner(&region).await;
        let operator = crate::operator::router(&region, None);
        let small = json!({ "ceiling": { "broker": { "connections": 10 } } });
        let (status, _) = crate::operator::here(&operator, "PUT /plans/small", Some(small)).await;
        assert_eq!(status, StatusCode::OK);
        let path = format!("PUT /tenants/{}/plan", client.organisation);
        let (status, said) = crate::operator::here(&operator, &path, Some(json!({ "plan": "small" }))).await;
        assert_eq!(status, StatusCode::OK, "{said}");

        let broker = client.own("/brokers/default");
        let limit = |connections: u64| json!({ "limits": { "broker": { "connections": connections } } });
        if by_access {
            let access = json!({ "anonymous": true });
            client.put(&format!("{broker}/access"), "*", access).await.is(StatusCode::OK);
        } else {
            client.patch(&broker, "*", limit(11)).await.is(StatusCode::UNPROCESSABLE_ENTITY);
            client.patch(&broker, "*", limit(9)).await.is(StatusCode::OK);
        }
        assert_eq!(client.get(&broker).await.body["ceiling"]["broker"]["connections"], 10);
        client.patch(&broker, "*", limit(11)).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    }
}

#[tokio::test]
async fn only_a_browser_of_this_machine_with_the_token_of_this_start_is_let_in() {
    let region = region().await;
    let stranger = region.stranger();
    for (peer, host, token, status) in [
        ("192.0.2.7", "127.0.0.1:8080", TOKEN, StatusCode::FORBIDDEN),
        ("127.0.0.1", "rebound.example:8080", TOKEN, StatusCode::FORBIDDEN),
        ("127.0.0.1", "127.0.0.1:8080", "another", StatusCode::UNAUTHORIZED),
        ("127.0.0.1", "127.0.0.1:8080", "", StatusCode::UNAUTHORIZED),
    ] {
        sign_in(&stranger, peer, host, token).await.is(status);
    }
    let tries = async |n: u32| {
        let mut last = StatusCode::OK;
        for _ in 0..n {
            last = sign_in(&stranger, "127.0.0.1", "localhost", "guess").await.status;
        }
        last
    };
    assert_eq!(tries(30).await, StatusCode::TOO_MANY_REQUESTS);
    let elsewhere = Region::by(SignUpBy::Anybody).await.stranger();
    sign_in(&elsewhere, "127.0.0.1", "localhost", TOKEN).await.is(StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_first_account_shares_the_organisation_of_the_machines_owner() {
    let region = region().await;
    let machine = owner(&region).await;
    let token = region.control.setup().await.unwrap().unwrap();
    let mut ann = region.stranger();
    ann.sign_up(json!({ "token": token.expose() })).await.is(StatusCode::CREATED);
    assert_eq!(ann.organisation, machine.organisation);
    assert_eq!(ann.get(&ann.own("/brokers")).await.column("name"), ["default"]);
    assert!(region.control.setup().await.unwrap().is_none(), "now somebody is there");
}

#[tokio::test]
async fn who_signed_up_before_goes_on_to_have_the_broker_and_the_machines_owner_joins() {
    let region = region().await;
    let token = region.control.setup().await.unwrap().unwrap();
    let mut ann = region.stranger();
    ann.sign_up(json!({ "token": token.expose() })).await.is(StatusCode::CREATED);
    let machine = owner(&region).await;
    assert_eq!(machine.organisation, ann.organisation);
    assert_eq!(ann.get(&ann.own("/members")).await.column("role"), ["owner", "owner"]);
}

#[tokio::test]
async fn a_broker_says_where_its_clients_connect() {
    let region = region().await;
    region.control.reached_at(Reach {
        region: "eu-1".into(),
        domain: None,
        host: "127.0.0.1".into(),
        ports: Ports { mqtt: Some(1883), ..Ports::default() },
        ca_pem: None,
    });
    let client = owner(&region).await;
    let found = client.get(&client.own("/brokers/default")).await;
    assert_eq!(found.text("/endpoints/mqtt/url"), "mqtt://127.0.0.1:1883");
    assert_eq!(found.body["endpoints"]["user_prefix"], json!(null));
    let other = client.broker().await;
    let other = client.get(&other).await;
    assert_eq!(other.text("/endpoints/user_prefix"), format!("{}/", other.text("/name")));
    assert_eq!(client.get("/regions").await.column("name"), ["eu-1"]);
    assert_eq!(client.get("/prices").await.column("unit").len(), 7);
}

#[tokio::test]
async fn a_stranger_who_signs_up_first_does_not_take_the_setup_link_away() {
    let region = Region::new().await;
    region.store.ensure_broker(catalog::DEFAULT).await.unwrap();
    region.person().await;
    let link = region.control.setup().await.unwrap().expect("nobody owns the server");
    let mut owner = region.stranger();
    owner.sign_up(json!({ "token": link.expose() })).await.is(StatusCode::CREATED);
    assert_eq!(owner.get(&owner.own("/brokers")).await.column("name"), ["default"]);
    assert!(region.control.setup().await.unwrap().is_none());
}

#[tokio::test]
async fn the_owner_of_this_machine_takes_an_invitation_by_its_link() {
    let region = region().await;
    let (machine, link) = (owner(&region).await, region.control.setup().await.unwrap().unwrap());
    let mut ann = region.stranger();
    ann.sign_up(json!({ "token": link.expose() })).await.is(StatusCode::CREATED);
    let made = ann.post("/organisations", json!({ "name": "Plant" })).await;
    let plant = made.is(StatusCode::CREATED).text("/id").to_owned();
    let invite = json!({ "email": "bob@example.org", "role": "viewer" });
    let invited = ann.post(&format!("/organisations/{plant}/invitations"), invite).await;
    let accept = json!({ "token": invited.is(StatusCode::CREATED).text("/token") });
    machine.post("/invitations/accept", accept).await.is(StatusCode::OK);
    assert_eq!(
        machine.get(&format!("/organisations/{plant}")).await.is(StatusCode::OK).text("/name"),
        "Plant"
    );
}

#[tokio::test]
async fn the_audit_log_names_the_owner_of_this_machine_at_each_sign_in() {
    let region = region().await;
    let first = owner(&region).await;
    let again = owner(&region).await;
    let id = first.get("/me").await.text("/user/id").to_owned();
    let log = again.get(&format!("/me/audit?action=sign_in&actor={id}")).await;
    assert_eq!(log.is(StatusCode::OK).body["items"].as_array().unwrap().len(), 2, "{log:#?}");
}
