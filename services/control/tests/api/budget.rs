//! Requests that are expensive take turns, so that no tenant occupies the server.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use millrace_control::{Live, LiveAnswer, LiveBroker, LiveError, Page, PageRequest, SessionInfo};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

use crate::tools::Region;

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
async fn each_expensive_request_waits_for_the_one_before_of_its_organisation() {
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
    ];
    let of_broker = of_broker.map(|(method, path, body)| (method, format!("{broker}/{path}"), body));
    let own = ["/usage", "/audit"].map(|path| (Method::GET, ann.own(path), None::<Value>));
    let all = of_broker.into_iter().chain(own).map(|(method, path, body)| {
        let ann = ann.clone();
        let asked = path.clone();
        (path, tokio::spawn(async move { ann.send(method, &asked, body).await }))
    });
    let all: Vec<_> = all.collect();
    sleep(Duration::from_millis(300)).await;
    let answered: Vec<_> =
        all.iter().filter(|(_, asked)| asked.is_finished()).map(|(path, _)| path).collect();
    assert_eq!(answered, <[&String; 0]>::default());

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
