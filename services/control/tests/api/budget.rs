//! Requests that are expensive take turns, so that no tenant occupies the server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode, header};
use futures_util::stream;
use millrace_control::{
    CHANGES_MAX, Clients, Live, LiveAnswer, LiveBroker, LiveError, Page, PageRequest, PublishRequest,
    Published, SessionInfo, Visit,
};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;
use tower::util::Oneshot;

use crate::tools::{Answer, Client, Region};

/// A list of sessions that takes until a test lets it end.
struct Slow {
    begun: Notify,
    end: Semaphore,
}

impl Live for Slow {
    fn sessions<'a>(
        &'a self,
        _: &'a LiveBroker,
        _: Option<&'a str>,
        _: &'a PageRequest,
    ) -> LiveAnswer<'a, Page<SessionInfo>> {
        Box::pin(async {
            self.begun.notify_one();
            let _ = self.end.acquire().await;
            Err(LiveError::NotWired)
        })
    }
}

#[tokio::test]
async fn each_expensive_read_waits_for_the_one_before_of_its_organisation_and_no_change_does() {
    let slow = Arc::new(Slow { begun: Notify::new(), end: Semaphore::new(0) });
    let region = Region::new().await.live(Arc::clone(&slow));
    let (ann, bob) = (region.person().await, region.person().await);
    let (broker, others) = (ann.broker().await, bob.broker().await);
    let (first, sessions) = (ann.clone(), format!("{broker}/sessions"));
    let first = tokio::spawn(async move { first.get(&sessions).await });
    slow.begun.notified().await;

    let of_broker = [
        (Method::GET, "clients", None),
        (Method::GET, "clients/a", None),
        (Method::DELETE, "clients/a", None),
        (Method::GET, "clients/a/trace", None),
        (Method::GET, "sessions/a", None),
        (Method::DELETE, "sessions/a", None),
        (Method::GET, "retained", None),
        (Method::GET, "topics", None),
        (Method::GET, "metrics/history", None),
        (Method::GET, "messages?topic=a", None),
        (Method::GET, "usage", None),
        (Method::POST, "credential-batches", Some(json!({ "devices": [{ "user": "b" }] }))),
        (Method::GET, "spend-cap", None),
        (Method::PUT, "spend-cap", Some(json!({ "monthly_micros": 1_000_000, "action": "continue" }))),
        (Method::PUT, "groups/a", Some(json!({ "rules": [] }))),
        (Method::PUT, "bans/a", Some(json!({ "client_id": "x" }))),
        (Method::POST, "access/test", Some(json!({ "client_id": "a", "action": "publish", "topic": "t" }))),
    ];
    let of_broker = of_broker.map(|(method, path, body)| (method, format!("{broker}/{path}"), body));
    let own = ["/usage", "/audit", "/spend-cap", "/brokers"]
        .map(|path| (Method::GET, ann.own(path), None::<Value>));
    let is_change = |method: &Method, path: &str| {
        matches!(*method, Method::DELETE | Method::PUT) || path.ends_with("/credential-batches")
    };
    let all: Vec<_> = of_broker.into_iter().chain(own).collect();
    let changes = all.iter().filter(|(method, path, _)| is_change(method, path));
    let changes: Vec<_> = changes.map(|(_, path, _)| path.clone()).collect();
    let all = all.into_iter().map(|(method, path, body)| {
        let ann = ann.clone();
        let asked = path.clone();
        (path, tokio::spawn(async move { ann.with("if-none-match", "*").send(method, &asked, body).await }))
    });
    let all: Vec<_> = all.collect();
    let answered = || -> Vec<&str> {
        all.iter().filter(|(_, asked)| asked.is_finished()).map(|(path, _)| path.as_str()).collect()
    };
    let changed = async {
        while answered().len() < changes.len() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), changed).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    assert_eq!(answered(), changes);

    // Cheap requests and other organisations do not wait.
    let others = async {
        ann.get("/me").await.is(StatusCode::OK);
        ann.get(&broker).await.is(StatusCode::OK);
        bob.get(&format!("{others}/usage")).await.is(StatusCode::OK);
    };
    timeout(Duration::from_secs(20), others).await.unwrap();

    slow.end.add_permits(1);
    first.await.unwrap().is(StatusCode::NOT_IMPLEMENTED);
    for (path, asked) in all {
        let answer = asked.await.unwrap();
        assert_ne!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
    }
}

#[tokio::test]
async fn each_long_list_waits_for_the_expensive_request_before_of_its_organisation() {
    let slow = Arc::new(Slow { begun: Notify::new(), end: Semaphore::new(0) });
    let region = Region::new().await.live(Arc::clone(&slow));
    let ann = region.person().await;
    let broker = ann.broker().await;
    let get = |path: &str| {
        let (ann, path) = (ann.clone(), format!("{broker}/{path}"));
        tokio::spawn(async move { ann.get(&path).await })
    };
    let first = get("sessions");
    slow.begun.notified().await;
    let lists = [
        "bans",
        "claim-tokens",
        "client-cas",
        "credentials",
        "groups",
        "incidents",
        "jwt-issuers",
        "webhooks",
        "webhooks/a/dead-letters",
    ];
    let all = lists.map(get);
    sleep(Duration::from_millis(300)).await;
    let answered = lists.iter().zip(&all).filter(|(_, asked)| asked.is_finished());
    assert_eq!(answered.map(|(path, _)| *path).collect::<Vec<_>>(), <[&str; 0]>::default());
    slow.end.add_permits(1);
    first.await.unwrap().is(StatusCode::NOT_IMPLEMENTED);
    for asked in all {
        let status = asked.await.unwrap().status;
        assert!(status == StatusCode::OK || status == StatusCode::NOT_FOUND, "{status}");
    }
}

/// A server on which nothing can be published until a test lets it.
struct Stuck(Semaphore);

impl Live for Stuck {
    fn publish<'a>(&'a self, _: &'a Visit, _: &'a PublishRequest) -> LiveAnswer<'a, Published> {
        Box::pin(async {
            let _ = self.0.acquire().await;
            Err(LiveError::NotWired)
        })
    }
}

#[tokio::test]
async fn changes_of_one_account_that_do_not_end_leave_room_to_others() {
    let stuck = Arc::new(Stuck(Semaphore::new(0)));
    let region = Region::new().await.live(Arc::clone(&stuck));
    let (ann, bob) = (region.person().await, region.person().await);
    let broker = ann.broker().await;
    let asked: Vec<_> = (0..CHANGES_MAX / 2)
        .map(|_| {
            let (ann, path) = (ann.clone(), format!("{broker}/publish"));
            tokio::spawn(async move { ann.post(&path, json!({ "topic": "a", "payload": "b" })).await })
        })
        .collect();
    let is_refused = async {
        while !asked.iter().any(tokio::task::JoinHandle::is_finished) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), is_refused).await.expect("changes beyond the share are refused");
    bob.broker().await;
    stuck.0.close();
    let mut statuses = Vec::new();
    for asked in asked {
        statuses.push(asked.await.unwrap().status);
    }
    let of = |status| statuses.iter().filter(|found| **found == status).count();
    let (passed, refused) = (of(StatusCode::NOT_IMPLEMENTED), of(StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(passed + refused, statuses.len(), "{statuses:?}");
    assert!(passed <= CHANGES_MAX / 4, "{passed}");
    // They have ended.
    ann.broker().await;
}

/// A server whose pods do not answer until a test lets them.
struct Silent {
    asked: Semaphore,
    end: Semaphore,
}

impl Live for Silent {
    fn clients<'a>(
        &'a self,
        _: &'a LiveBroker,
        _: Option<&'a str>,
        _: &'a PageRequest,
    ) -> LiveAnswer<'a, Clients> {
        Box::pin(async {
            self.asked.add_permits(1);
            let _ = self.end.acquire().await;
            Err(LiveError::NotWired)
        })
    }
}

#[tokio::test]
async fn requests_that_wait_for_silent_pods_delay_no_other_organisation() {
    let silent = Arc::new(Silent { asked: Semaphore::new(0), end: Semaphore::new(0) });
    let region = Region::new().await.live(Arc::clone(&silent));
    let mut asked = Vec::new();
    for _ in 0..3 {
        let ann = region.person().await;
        let path = format!("{}/clients", ann.broker().await);
        asked.push(tokio::spawn(async move { ann.get(&path).await }));
    }
    let all_asked = timeout(Duration::from_secs(20), silent.asked.acquire_many(3)).await;
    assert!(all_asked.is_ok(), "a list of clients waits for those of others");
    let bob = region.person().await;
    let answered = timeout(Duration::from_secs(20), bob.get(&bob.own("/usage"))).await.unwrap();
    answered.is(StatusCode::OK);
    silent.end.close();
    for asked in asked {
        asked.await.unwrap().is(StatusCode::NOT_IMPLEMENTED);
    }
}

/// A sign-in from an address, whose body does not arrive.
fn unfinished(region: &Region, address: &str) -> Pin<Box<Oneshot<Router, Request<Body>>>> {
    let body = Body::from_stream(stream::pending::<Result<Vec<u8>, Infallible>>());
    let request = Request::post("/sign-in").header(header::CONTENT_TYPE, "application/json");
    let mut request = request.body(body).unwrap();
    let address = SocketAddr::new(address.parse().unwrap(), 50_000);
    request.extensions_mut().insert(ConnectInfo(address));
    Box::pin(region.router().oneshot(request))
}

/// The status of a refusal, or `None` while the server reads the body.
fn refusal(request: &mut Pin<Box<Oneshot<Router, Request<Body>>>>) -> Option<StatusCode> {
    match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer.unwrap().status()),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn changes_of_strangers_from_one_network_leave_room_to_others() {
    let region = Region::new().await;
    let mut held = Vec::new();
    let refused = (0..CHANGES_MAX).find_map(|number| {
        let mut request = unfinished(&region, &format!("2001:db8:1:2::{number:x}"));
        let refused = refusal(&mut request);
        held.push(request);
        refused
    });
    assert_eq!(refused, Some(StatusCode::TOO_MANY_REQUESTS));
    assert!(held.len() <= CHANGES_MAX / 4 + 1, "{}", held.len());
    let mut others = unfinished(&region, "2001:db8:1:3::1");
    assert_eq!(refusal(&mut others), None);
    assert_eq!(refusal(&mut unfinished(&region, "2001:db8:1:2::1")), Some(StatusCode::TOO_MANY_REQUESTS));
    held.clear();
    assert_eq!(refusal(&mut unfinished(&region, "2001:db8:1:2::1")), None, "its share came back");
}

/// Refuses messages to `nowhere`, and gives no answer about messages to `unanswered`.
struct Takes;

impl Live for Takes {
    fn publish<'a>(&'a self, _: &'a Visit, of: &'a PublishRequest) -> LiveAnswer<'a, Published> {
        Box::pin(async {
            if of.topic == "nowhere" {
                return Err(LiveError::Forbidden("no rule allows it".into()));
            }
            if of.topic == "unanswered" {
                return Err(LiveError::Unavailable("it may still be published".into()));
            }
            Ok(Published { stored: true, matched: None })
        })
    }
}

async fn limit(client: &Client, broker: &str, bytes_per_s: u64) {
    let limits = json!({ "limits": { "client": { "publish_bytes_per_s": bytes_per_s } } });
    client.patch(broker, "*", limits).await.is(StatusCode::OK);
}

async fn publish(client: &Client, broker: &str, topic: &str, payload_bytes: usize) -> Answer {
    let message = json!({ "topic": topic, "payload": "x".repeat(payload_bytes) });
    client.post(&format!("{broker}/publish"), message).await
}

#[tokio::test]
async fn a_caller_who_publishes_meets_the_limits_of_a_client() {
    let region = Region::new().await.live(Arc::new(Takes));
    let ann = region.person().await;
    let (broker, other) = (ann.broker().await, ann.broker().await);
    limit(&ann, &broker, 2).await;
    publish(&ann, &broker, "a", 99).await.is(StatusCode::OK);
    let refused = publish(&ann, &broker, "a", 99).await;
    assert!(refused.is(StatusCode::TOO_MANY_REQUESTS).text("/detail").contains("client.publish_bytes_per_s"));
    let wait: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(wait <= 51, "{wait}");
    let made = ann.post(&ann.own("/tokens"), json!({ "name": "a", "scopes": ["messages:write"] })).await;
    publish(&ann.with_token(made.text("/secret")), &broker, "a", 99).await.is(StatusCode::OK);
    for _ in 0..3 {
        publish(&ann, &other, "a", 99).await.is(StatusCode::OK);
    }
}

#[tokio::test]
async fn a_message_that_takes_more_than_a_minute_of_the_limit_is_refused_and_costs_nothing() {
    let region = Region::new().await.live(Arc::new(Takes));
    let ann = region.person().await;
    let broker = ann.broker().await;
    limit(&ann, &broker, 1).await;
    let refused = publish(&ann, &broker, "a", 60).await;
    let detail = refused.is(StatusCode::PAYLOAD_TOO_LARGE).text("/detail");
    assert!(detail.contains("client.publish_bytes_per_s") && detail.contains("60 bytes"), "{detail}");
    publish(&ann, &broker, "a", 59).await.is(StatusCode::OK);
}

#[tokio::test]
async fn a_raised_limit_frees_the_callers_who_wait_for_the_lower_one() {
    let region = Region::new().await.live(Arc::new(Takes));
    let ann = region.person().await;
    let broker = ann.broker().await;
    limit(&ann, &broker, 2).await;
    publish(&ann, &broker, "a", 99).await.is(StatusCode::OK);
    publish(&ann, &broker, "a", 99).await.is(StatusCode::TOO_MANY_REQUESTS);
    limit(&ann, &broker, 1_000_000).await;
    publish(&ann, &broker, "a", 99).await.is(StatusCode::OK);
}

#[tokio::test]
async fn a_publish_that_the_broker_refuses_costs_nothing() {
    let region = Region::new().await.live(Arc::new(Takes));
    let ann = region.person().await;
    let broker = ann.broker().await;
    limit(&ann, &broker, 2).await;
    for _ in 0..3 {
        publish(&ann, &broker, "nowhere", 90).await.is(StatusCode::FORBIDDEN);
    }
    publish(&ann, &broker, "a", 99).await.is(StatusCode::OK);
}

#[tokio::test]
async fn a_publish_without_an_answer_of_the_broker_costs_as_much_as_a_publish() {
    let region = Region::new().await.live(Arc::new(Takes));
    let ann = region.person().await;
    let broker = ann.broker().await;
    limit(&ann, &broker, 2).await;
    publish(&ann, &broker, "unanswered", 90).await.is(StatusCode::SERVICE_UNAVAILABLE);
    publish(&ann, &broker, "a", 99).await.is(StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_person_whose_changes_leave_long_receipts_is_told_to_come_later() {
    let region = Region::new().await.unlimited();
    let ann = region.person().await;
    let broker = ann.broker().await;
    let rule = |number| {
        let filter = format!("{}{number}", "a-long-level-of-a-topic/".repeat(6));
        json!({ "effect": "allow", "action": "publish", "filter": filter })
    };
    let rules: Vec<_> = (0..100).map(rule).collect();
    let made = ann.post(&format!("{broker}/credentials"), json!({ "user": "a", "rules": rules })).await;
    made.is(StatusCode::CREATED);
    let rotate = async |number: usize| {
        let named = ann.with("idempotency-key", &format!("k{number}"));
        named.post(&format!("{broker}/credentials/a/rotate"), json!({ "scram": false })).await
    };
    let mut rotated = 0;
    let refused = loop {
        let answer = rotate(rotated).await;
        if answer.status != StatusCode::OK {
            break answer;
        }
        rotated += 1;
        assert!(rotated < 2_000, "receipts of {rotated} rotations are stored");
    };
    refused.is(StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers.contains_key("retry-after") && rotated > 100, "{rotated}");
    assert_eq!(rotate(0).await.status, StatusCode::OK, "a stored answer costs nothing");
    let bob = region.person().await;
    bob.broker().await;
}
