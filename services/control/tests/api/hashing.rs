//! Hashing for devices delays neither requests that hash nothing nor single credentials behind batches.

use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::future::{Either, select};
use serde_json::json;
use tokio::time::timeout;

use crate::tools::{Answer, Client, Region};

type Asked = Pin<Box<dyn Future<Output = Answer> + Send>>;

async fn batch(client: &Client, devices: usize) -> Asked {
    let (client, path) = (client.clone(), format!("{}/credential-batches", client.broker().await));
    let devices: Vec<_> = (0..devices).map(|number| json!({ "user": format!("p{number}") })).collect();
    let body = json!({ "devices": devices, "scram": true });
    Box::pin(async move { client.post(&path, body).await })
}

/// Two batches of two organisations. Each hashes a password, and continues only when it is polled.
async fn hashing_batches(region: &Region) -> (Asked, Asked) {
    let mut first = batch(&region.person().await, 100).await;
    let mut second = batch(&region.person().await, 100).await;
    for batch in [&mut first, &mut second] {
        assert!(batch.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    (first, second)
}

#[tokio::test]
async fn batches_that_hash_delay_no_expensive_read_of_others() {
    let region = Region::new().await;
    let ann = region.person().await;
    let _hashing = hashing_batches(&region).await;
    let read = timeout(Duration::from_secs(20), ann.get(&ann.own("/usage"))).await;
    read.expect("it waits for batches of others").is(StatusCode::OK);
}

#[tokio::test]
async fn a_single_credential_gets_in_between_the_passwords_of_batches() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let (first, second) = hashing_batches(&region).await;
    let path = format!("{broker}/credentials");
    let single = pin!(ann.post(&path, json!({ "user": "a", "scram": true })));
    let batches = pin!(select(first, second));
    let Either::Right((made, _)) = select(batches, single).await else {
        panic!("a batch ends before the credential");
    };
    made.is(StatusCode::CREATED);
}

#[tokio::test]
async fn a_batch_that_was_answered_before_is_not_hashed_again() {
    let region = Region::new().await;
    let ann = region.person().await;
    let (path, ann) =
        (format!("{}/credential-batches", ann.broker().await), ann.with("idempotency-key", "k"));
    let body = json!({ "devices": [{ "user": "a" }], "scram": true });
    let made = ann.post(&path, body.clone()).await;
    let _hashing = hashing_batches(&region).await;
    let again = timeout(Duration::from_secs(20), ann.post(&path, body)).await;
    let again = again.expect("it waits for a turn to hash");
    assert_eq!(again.is(StatusCode::CREATED).body, made.is(StatusCode::CREATED).body);
}
