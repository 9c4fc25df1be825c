//! Limits of sign-ins, which a restart must not turn against the owner of an account.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode, header};
use millrace_control::NothingLive;
use serde_json::json;

use crate::tools::{PASSWORD, Region};

const GUESSES_MAX: usize = 100;

async fn sign_in(region: &Region, address: &str, email: &str, password: &str) -> StatusCode {
    let body = json!({ "email": email, "password": password }).to_string();
    let request = Request::post("/sign-in").header(header::CONTENT_TYPE, "application/json");
    let mut request = request.body(Body::from(body)).unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(address.parse().unwrap(), 50_000)));
    region.stranger().raw(request).await.status
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
    let mut guesses = 0;
    while sign_in(&region, &format!("192.0.2.{guesses}"), email, "wrong").await == StatusCode::UNAUTHORIZED {
        guesses += 1;
        assert!(guesses < GUESSES_MAX, "guesses are limited");
    }
    assert_eq!(sign_in(&region, "198.51.100.1", email, PASSWORD).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(sign_in(&region, "2001:db8:1:2::7", email, PASSWORD).await, StatusCode::OK);
}
