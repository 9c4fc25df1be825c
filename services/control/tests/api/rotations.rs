//! Rotations within an overlap: which of a credential's two passwords stays valid beside the new one.

use axum::http::StatusCode;
use millrace_access::model::{Credential, Secret};
use millrace_access::scram;
use serde_json::{Value, json};

use crate::credentials::{opens, stored};
use crate::tools::{Answer, Client, Region};

const NOW_MS: u64 = 1_000_000_000_000;

/// A credential that was rotated with an overlap of a minute, and whose new password is lost.
struct Rotated {
    region: Region,
    ann: Client,
    broker: String,
    first: String,
    lost: String,
}

impl Rotated {
    async fn new(settings: Value) -> Self {
        let region = Region::new().await;
        let ann = region.person().await;
        let broker = ann.broker().await;
        let made = ann.post(&format!("{broker}/credentials"), settings).await;
        let first = made.is(StatusCode::CREATED).text("/secret").to_owned();
        let mut rotated = Self { region, ann, broker, first, lost: String::new() };
        rotated.lost = rotated.rotate(json!({ "overlap_s": 60 })).await.text("/secret").to_owned();
        rotated
    }

    async fn rotate(&self, body: Value) -> Answer {
        self.ann.post(&format!("{}/credentials/a/rotate", self.broker), body).await
    }

    async fn stored(&self) -> Credential {
        stored(&self.region, &self.ann, &self.broker, "a").await
    }

    async fn opens(&self, stored: &Secret, password: &str) -> bool {
        opens(&self.region, stored, password).await
    }

    /// Which of the passwords the pods accept, and until when the previous one.
    async fn valid(&self, passwords: [&str; 3]) -> ([bool; 3], Option<u64>) {
        let record = self.stored().await;
        let mut valid = [false; 3];
        for (valid, password) in valid.iter_mut().zip(passwords) {
            let previous = record.previous_secret.as_ref().map(|previous| &previous.secret);
            for stored in record.secret.iter().chain(previous) {
                *valid |= self.opens(stored, password).await;
            }
        }
        (valid, record.previous_secret.map(|previous| previous.until_ms))
    }
}

#[tokio::test]
async fn a_lost_new_password_is_replaced_and_the_previous_one_stays_valid_until_its_end() {
    let rotated = Rotated::new(json!({ "user": "a", "scram": true })).await;
    rotated.region.clock.move_on(10_000);
    let made = rotated.rotate(json!({ "keep": "previous" })).await;
    let third = made.is(StatusCode::OK).text("/secret").to_owned();
    assert_eq!(made.body["previous_secret_until_ms"], NOW_MS + 60_000);
    let valid = rotated.valid([&rotated.first, &rotated.lost, &third]).await;
    assert_eq!(valid, ([true, false, true], Some(NOW_MS + 60_000)));
    let verifier = rotated.stored().await.scram.unwrap();
    assert_eq!(scram::verifier(&third, verifier.salt.0), verifier);
}

#[tokio::test]
async fn the_end_of_a_password_that_is_kept_moves_later_but_never_sooner() {
    let rotated = Rotated::new(json!({ "user": "a" })).await;
    rotated.region.clock.move_on(10_000);
    for (overlap_s, until_ms) in [
        (30, NOW_MS + 60_000),
        (120, NOW_MS + 130_000),
        (60, NOW_MS + 130_000),
        (2_592_000, NOW_MS + 10_000 + 2_592_000_000),
    ] {
        let made = rotated.rotate(json!({ "keep": "previous", "overlap_s": overlap_s })).await;
        assert_eq!(made.is(StatusCode::OK).body["previous_secret_until_ms"], until_ms, "{overlap_s}");
        let third = made.text("/secret").to_owned();
        let valid = rotated.valid([&rotated.first, &rotated.lost, &third]).await;
        assert_eq!(valid, ([true, false, true], Some(until_ms)));
    }
    let too_long = json!({ "keep": "previous", "overlap_s": 2_592_001 });
    rotated.rotate(too_long).await.is(StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn the_current_password_is_kept_on_demand_and_the_previous_one_ends() {
    let rotated = Rotated::new(json!({ "user": "a" })).await;
    let refused = rotated.rotate(json!({ "keep": "current" })).await;
    assert_eq!(refused.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), "overlap_s");
    let made = rotated.rotate(json!({ "keep": "current", "overlap_s": 120 })).await;
    let third = made.is(StatusCode::OK).text("/secret").to_owned();
    let valid = rotated.valid([&rotated.first, &rotated.lost, &third]).await;
    assert_eq!(valid, ([false, true, true], Some(NOW_MS + 120_000)));
    let unknown = rotated.rotate(json!({ "keep": "both", "overlap_s": 120 })).await;
    unknown.is(StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_refusal_within_the_overlap_names_each_way_on() {
    let rotated = Rotated::new(json!({ "user": "a" })).await;
    let refused = rotated.rotate(json!({ "overlap_s": 60 })).await;
    let detail = refused.is(StatusCode::CONFLICT).text("/detail");
    for part in ["1000000060000", "keep \"previous\"", "keep \"current\"", "overlap_s 0"] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    let valid = rotated.valid([&rotated.first, &rotated.lost, ""]).await;
    assert_eq!(valid, ([true, true, false], Some(NOW_MS + 60_000)));
}

#[tokio::test]
async fn a_previous_password_that_has_ended_is_not_kept() {
    let rotated = Rotated::new(json!({ "user": "a" })).await;
    rotated.region.clock.move_on(60_000);
    let refused = rotated.rotate(json!({ "keep": "previous", "overlap_s": 60 })).await;
    let detail = refused.is(StatusCode::CONFLICT).text("/detail");
    assert!(detail.contains("leave out keep"), "{detail}");
    let valid = rotated.valid([&rotated.lost, "", ""]).await;
    assert!(valid.0[0], "nothing was changed");
    rotated.rotate(json!({ "overlap_s": 60 })).await.is(StatusCode::OK);
    rotated.rotate(json!({ "overlap_s": 0 })).await.is(StatusCode::OK);
    rotated.rotate(json!({ "keep": "previous" })).await.is(StatusCode::CONFLICT);
}

#[tokio::test]
async fn a_repeated_request_makes_one_password_whichever_it_keeps() {
    let rotated = Rotated::new(json!({ "user": "a" })).await;
    let rotate = format!("{}/credentials/a/rotate", rotated.broker);
    let named = rotated.ann.with("idempotency-key", "k");
    let body = json!({ "keep": "previous", "overlap_s": 60 });
    let third = named.post(&rotate, body.clone()).await.is(StatusCode::OK).text("/secret").to_owned();
    rotated.region.clock.move_on(5_000);
    let again = named.post(&rotate, body).await;
    assert_eq!(again.is(StatusCode::OK).text("/secret"), third);
    assert_eq!(again.body["previous_secret_until_ms"], NOW_MS + 60_000);
    let valid = rotated.valid([&rotated.first, &rotated.lost, &third]).await;
    assert_eq!(valid, ([true, false, true], Some(NOW_MS + 60_000)));
    let other = named.post(&rotate, json!({ "keep": "current", "overlap_s": 60 })).await;
    assert!(other.status.is_client_error(), "{other:?}");
    assert_eq!(rotated.valid([&rotated.first, &rotated.lost, &third]).await, valid);
}

#[tokio::test]
async fn the_audit_log_says_which_password_stayed_valid() {
    let rotated = Rotated::new(json!({ "user": "a" })).await;
    rotated.rotate(json!({ "keep": "previous", "overlap_s": 90 })).await.is(StatusCode::OK);
    rotated.rotate(json!({ "keep": "current", "overlap_s": 30 })).await.is(StatusCode::OK);
    rotated.rotate(json!({})).await.is(StatusCode::OK);
    let log = rotated.ann.get(&rotated.ann.own("/audit?action=credential.rotate")).await;
    let entries = log.is(StatusCode::OK).body["items"].as_array().unwrap();
    let said = entries.iter().map(|entry| &entry["details"]);
    let said: Vec<_> =
        said.map(|said| (said["kept"].clone(), said["previous_secret_until_ms"].clone())).collect();
    let expected = [
        (json!(null), json!(null)),
        (json!("current"), json!(NOW_MS + 30_000)),
        (json!("previous"), json!(NOW_MS + 90_000)),
        (json!("current"), json!(NOW_MS + 60_000)),
    ];
    assert_eq!(said, expected);
}
