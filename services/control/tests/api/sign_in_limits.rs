//! Limits of sign-ins, which a restart must not turn against the owner of an account.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode, header};
use millrace_control::{ApiOptions, NothingLive, SignUpBy};
use serde_json::{Value, json};

use crate::tools::{Answer, PASSWORD, Region};

const GUESSES_MAX: usize = 100;

pub(crate) async fn post_from(region: &Region, address: &str, path: &str, body: Value) -> Answer {
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    let mut request = request.body(Body::from(body.to_string())).unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(address.parse().unwrap(), 50_000)));
    region.stranger().raw(request).await
}

async fn sign_in(region: &Region, address: &str, email: &str, password: &str) -> StatusCode {
    post_from(region, address, "/sign-in", json!({ "email": email, "password": password })).await.status
}

/// Wrong sign-ins from many addresses, until the server answers none.
async fn guess(region: &Region, email: &str) {
    let mut guesses = 0;
    while sign_in(region, &format!("192.0.2.{guesses}"), email, "wrong").await == StatusCode::UNAUTHORIZED {
        guesses += 1;
        assert!(guesses < GUESSES_MAX, "guesses are limited");
    }
}

#[tokio::test]
async fn guesses_after_a_restart_do_not_lock_the_owner_out() {
    let region = Region::new().await;
    let ann = region.person().await;
    let me = ann.get("/me").await;
    let email = me.text("/user/email");
    assert_eq!(sign_in(&region, "2001:db8:1:2::1", email, PASSWORD).await, StatusCode::OK);

    // A server that has just started has counted nothing.
    let region = region.live(Arc::new(NothingLive));
    guess(&region, email).await;
    assert_eq!(sign_in(&region, "198.51.100.1", email, PASSWORD).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(sign_in(&region, "2001:db8:1:2::7", email, PASSWORD).await, StatusCode::OK);
}

#[tokio::test]
async fn whoever_ends_all_other_web_sessions_has_signed_in_from_here_alone() {
    let region = Region::new().await;
    let mut ann = region.person().await;
    let email = ann.get("/me").await.text("/user/email").to_owned();
    let home =
        post_from(&region, "2001:db8:1:2::1", "/sign-in", json!({ "email": email, "password": PASSWORD }));
    ann.welcome(home.await.is(StatusCode::OK));
    assert_eq!(sign_in(&region, "198.51.100.1", &email, PASSWORD).await, StatusCode::OK);
    ann.delete("/me/sessions").await.is(StatusCode::NO_CONTENT);
    guess(&region, &email).await;
    assert_eq!(sign_in(&region, "198.51.100.1", &email, PASSWORD).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(sign_in(&region, "2001:db8:1:2::7", &email, PASSWORD).await, StatusCode::OK);
}

#[tokio::test]
async fn the_address_of_a_client_is_the_last_one_that_is_no_proxy() {
    let proxies = ["10.0.0.0/8", "2001:db8:a::/48"].map(|network| network.parse().unwrap()).to_vec();
    let region = Region::with(SignUpBy::Anybody, ApiOptions { proxies, ..ApiOptions::default() }).await;
    let ann = region.person().await;
    let email = ann.get("/me").await.text("/user/email").to_owned();
    for (peer, forwarded, expected) in [
        ("10.0.0.1", &["192.0.2.7"][..], "192.0.2.7"),
        ("10.0.0.1", &["192.0.2.7, 10.0.0.2"], "192.0.2.7"),
        ("10.0.0.1", &["192.0.2.7", "[2001:db8:a::1]:50122, 10.0.0.2"], "192.0.2.7"),
        ("10.0.0.1", &["203.0.113.66, 192.0.2.7, 10.0.0.2"], "192.0.2.7"),
        // All are proxies: the first one is the nearest to the client.
        ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        // Something unreadable was not written by a proxy, or hides what was before it.
        ("10.0.0.1", &["192.0.2.7, unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", &[], "10.0.0.1"),
        ("192.0.2.9", &["192.0.2.7"], "192.0.2.9"),
    ] {
        let body = json!({ "email": email, "password": PASSWORD }).to_string();
        let mut request = Request::post("/sign-in").header(header::CONTENT_TYPE, "application/json");
        for value in forwarded {
            request = request.header("x-forwarded-for", *value);
        }
        let mut request = request.body(Body::from(body)).unwrap();
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 50_000)));
        let mut client = region.stranger();
        client.welcome(region.stranger().raw(request).await.is(StatusCode::OK));
        let sessions = client.get("/me/sessions").await;
        let own = sessions.body["items"].as_array().unwrap().iter().find(|it| it["is_current"] == true);
        assert_eq!(own.unwrap()["address"], expected, "{forwarded:?}");
    }
}

#[tokio::test]
async fn bodies_of_strangers_that_cannot_be_read_count_for_their_rate() {
    let region = Region::new().await;
    let wrong = async |address: &str| post_from(&region, address, "/sign-in", json!({ "email": 1 })).await;
    let mut read = 0;
    while wrong("192.0.2.1").await.status == StatusCode::UNPROCESSABLE_ENTITY {
        read += 1;
        assert!(read < 5_000, "no rate limits them");
    }
    wrong("192.0.2.1").await.is(StatusCode::TOO_MANY_REQUESTS);
    wrong("198.51.100.1").await.is(StatusCode::UNPROCESSABLE_ENTITY);
}
