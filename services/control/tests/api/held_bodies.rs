//! Requests whose bodies come after the web session or the API token has ended: the caller was authenticated before.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode};
use futures_util::stream;
use millrace_storage::{KeyRange, RangeOptions};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::bodies::{Operation, operations};
use crate::tenancy::{Owned, fill, tenant};
use crate::tools::{Answer, Client, PASSWORD, Region, SCOPES, interleaved};

/// The operations with a body that change something.
fn changes() -> impl Iterator<Item = Operation> {
    operations().into_iter().filter(|operation| operation.id != "test_access")
}

/// Every row of the store.
async fn rows(region: &Region) -> Vec<(Bytes, Bytes)> {
    let page = region.store.run(|tx| async move {
        Ok(tx.range(KeyRange::new([0], [255]), RangeOptions::first(100_000).snapshot()).await?)
    });
    let page = page.await.unwrap();
    assert!(!page.more);
    page.items.into_iter().map(|row| (row.key, row.value)).collect()
}

/// A request whose body waits.
struct Held {
    answer: JoinHandle<Answer>,
    /// An error if the server answers without reading the body.
    is_read: oneshot::Receiver<()>,
    go: oneshot::Sender<()>,
}

fn begin(client: &Client, method: Method, path: String, body: Value) -> Held {
    let ((reached, is_read), (go, go_on)) = (oneshot::channel(), oneshot::channel::<()>());
    let body = Body::from_stream(stream::once(async move {
        reached.send(()).unwrap();
        let _ = go_on.await;
        Ok::<_, Infallible>(Bytes::from(body.to_string()))
    }));
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json").header("if-match", "*");
    let (client, request) = (client.clone(), request.body(body).unwrap());
    let answer = tokio::spawn(async move { client.raw(request).await });
    Held { answer, is_read, go }
}

/// Sends the request without its body, waits until the server reads the body, runs `meanwhile`, and sends the body. Returns the answer
/// and whether the rest of the request has changed the store.
async fn held(
    region: &Region,
    client: &Client,
    (operation, owned): (&Operation, &Owned),
    meanwhile: impl Future<Output = ()>,
) -> (Answer, bool) {
    let path = fill(&operation.path, &owned.client.organisation, owned);
    let path = path.replace("{passkey}", "00000000-0000-7000-8000-000000000000");
    let Held { answer, is_read, go } = begin(client, operation.method.clone(), path, body_of(operation));
    is_read.await.unwrap_or_else(|_| panic!("{}: the body is not read", operation.id));
    meanwhile.await;
    let before = rows(region).await;
    go.send(()).unwrap();
    let answer = answer.await.unwrap();
    (answer, before != rows(region).await)
}

/// The example of the description, with the right password.
fn body_of(operation: &Operation) -> Value {
    let mut body = operation.example.clone();
    for field in ["password", "current"] {
        if operation.path.starts_with("/me") && body.get(field).is_some() {
            body[field] = json!(PASSWORD);
        }
    }
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_web_session_ends_before_its_body_comes_changes_nothing() {
    let region = Region::new().await.unlimited();
    let owned = tenant(&region).await;
    let email = owned.client.get("/me").await.text("/user/email").to_owned();
    let mut tried = 0;
    for operation in changes().filter(|operation| !operation.is_open) {
        let mut elsewhere = region.stranger();
        let signed_in = elsewhere.post("/sign-in", json!({ "email": email, "password": PASSWORD })).await;
        elsewhere.welcome(signed_in.is(StatusCode::OK));
        let end = async {
            owned.client.delete("/me/sessions").await.is(StatusCode::NO_CONTENT);
        };
        let (answer, has_changed) = held(&region, &elsewhere, (&operation, &owned), end).await;
        assert!(!has_changed, "{}: {answer:#?}", operation.id);
        // This server has neither mail, a provider nor passkeys.
        let is_refused_before =
            ["request_address", "connect_identity", "begin_passkey", "add_passkey"].contains(&&*operation.id);
        let is_refused = is_refused_before && answer.status.is_client_error();
        assert!(is_refused || answer.status == StatusCode::UNAUTHORIZED, "{}: {answer:#?}", operation.id);
        tried += 1;
    }
    assert!(tried > 30, "{tried}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_token_is_deleted_before_its_body_comes_changes_nothing() {
    let region = Region::new().await.unlimited();
    let owned = tenant(&region).await;
    let ann = &owned.client;
    let mut tried = 0;
    for operation in changes().filter(|operation| operation.path.contains("{organisation}")) {
        let made = ann.post(&ann.own("/tokens"), json!({ "name": "leaked", "scopes": SCOPES })).await;
        let program = ann.with_token(made.is(StatusCode::CREATED).text("/secret"));
        let end = async {
            let token = ann.own(&format!("/tokens/{}", made.text("/id")));
            ann.delete(&token).await.is(StatusCode::NO_CONTENT);
        };
        let (answer, has_changed) = held(&region, &program, (&operation, &owned), end).await;
        assert!(!has_changed, "{}: {answer:#?}", operation.id);
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{}: {answer:#?}", operation.id);
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_session_that_has_ended_ends_no_other() {
    let region = Region::new().await;
    let ann = region.person().await;
    let email = ann.get("/me").await.text("/user/email").to_owned();
    let mut elsewhere = region.stranger();
    let signed_in = elsewhere.post("/sign-in", json!({ "email": email, "password": PASSWORD })).await;
    elsewhere.welcome(signed_in.is(StatusCode::OK));
    // The first look at the clock is that of the authentication, the second that of the change.
    let ending = async move { elsewhere.send(Method::DELETE, "/me/sessions", None).await };
    let both = interleaved(1, ending, ann.delete("/me/sessions")).await;
    let (late, ended) = both.unwrap();
    ended.is(StatusCode::NO_CONTENT);
    late.is(StatusCode::UNAUTHORIZED);
    ann.get("/me").await.is(StatusCode::OK);
}

/// Holds back the bodies of as many changes as the server reads at once of this client.
async fn all_changes(client: &Client) -> Vec<Held> {
    let mut all = Vec::new();
    loop {
        let mut held =
            begin(client, Method::POST, client.own("/brokers"), json!({ "display_name": "Plant" }));
        if (&mut held.is_read).await.is_err() {
            held.answer.await.unwrap().is(StatusCode::TOO_MANY_REQUESTS);
            return all;
        }
        all.push(held);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_only_read_leave_their_maker_the_changes() {
    let region = Region::new().await;
    let ann = region.person().await;
    let token = async |scopes: Value| {
        let made = ann.post(&ann.own("/tokens"), json!({ "name": "a", "scopes": scopes })).await;
        ann.with_token(made.is(StatusCode::CREATED).text("/secret"))
    };
    let readers = [token(json!(["brokers:read"])).await, token(json!(["access:read"])).await];
    let writer = token(json!(["brokers:write"])).await;
    let held = all_changes(&readers[0]).await;
    assert!(all_changes(&readers[1]).await.is_empty(), "they share what an account has");
    ann.broker().await;
    let of_writer = all_changes(&writer).await;
    assert!(!held.is_empty() && !of_writer.is_empty());
    ann.post(&ann.own("/brokers"), json!({ "display_name": "b" })).await.is(StatusCode::TOO_MANY_REQUESTS);
}
