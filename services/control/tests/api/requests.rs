//! Mistakes that any request may make, and requests that come twice.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use millrace_control::{ApiOptions, NothingLive, PATH, RequestMetrics, router};
use serde_json::json;
use tower::ServiceExt as _;

use crate::tools::Region;

#[tokio::test]
async fn a_request_that_comes_again_with_its_key_is_done_once_and_has_the_same_answer() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let path = format!("{broker}/credentials");
    let named = ann.with("idempotency-key", "first");
    let body = json!({ "user": "a" });
    let first = named.post(&path, body.clone()).await;
    let again = named.post(&path, body.clone()).await;
    assert_eq!(again.is(StatusCode::CREATED).body, first.is(StatusCode::CREATED).body);
    assert_eq!(again.etag(), first.etag());
    named.post(&path, json!({ "user": "b" })).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    named.post(&ann.own("/brokers"), body.clone()).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(ann.get(&path).await.column("user"), ["a"]);

    // It names a request of who sent it, not of others.
    let bob = region.person().await.with("idempotency-key", "first");
    bob.post(&bob.own("/brokers"), json!({ "display_name": "x" })).await.is(StatusCode::CREATED);

    // After a day it is a new request; a password that is made then is another one.
    region.clock.move_on(86_400_000);
    region.control.sweep().await.unwrap();
    named.post(&path, body.clone()).await.is(StatusCode::CONFLICT);
    ann.delete(&format!("{path}/a")).await.is(StatusCode::NO_CONTENT);
    let later = named.post(&path, body).await;
    assert_ne!(later.is(StatusCode::CREATED).text("/secret"), first.text("/secret"));
}

#[tokio::test]
async fn a_request_whose_organisation_is_gone_needs_another_key() {
    let ann = Region::new().await.person().await;
    let named = ann.with("idempotency-key", "first");
    let made = named.post("/organisations", json!({ "name": "Plant" })).await;
    let path = format!("/organisations/{}", made.is(StatusCode::CREATED).text("/id"));
    ann.delete(&path).await.is(StatusCode::NO_CONTENT);
    let again = named.post("/organisations", json!({ "name": "Plant" })).await;
    assert!(again.is(StatusCode::CONFLICT).text("/detail").contains("a new Idempotency-Key"), "{again:?}");
}

#[tokio::test]
async fn a_user_name_that_no_credential_can_have_is_tested_like_others() {
    let ann = Region::new().await.person().await;
    let path = format!("{}/access/test", ann.broker().await);
    for user in ["nobody".to_owned(), "u".repeat(10_000)] {
        let question = json!({ "client_id": "a", "user": user, "action": "publish", "topic": "t" });
        let answer = ann.post(&path, question).await;
        let obstacles = &answer.is(StatusCode::OK).body["obstacles"];
        assert_eq!(obstacles, &json!(["there is no credential of this user name"]));
    }
}

#[tokio::test]
async fn tokens_and_invitations_that_are_asked_for_twice_are_the_same() {
    let ann = Region::new().await.person().await.with("idempotency-key", "k");
    for (path, body) in [
        ("/tokens", json!({ "name": "a", "scopes": ["audit:read"] })),
        ("/invitations", json!({ "email": "b@example.org", "role": "viewer" })),
    ] {
        let ann = ann.with("idempotency-key", path);
        let (one, other) =
            (ann.post(&ann.own(path), body.clone()).await, ann.post(&ann.own(path), body).await);
        assert_eq!(one.is(StatusCode::CREATED).body, other.body);
        assert_eq!(ann.get(&ann.own(path)).await.body["items"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_answered_with_what_is_wrong() {
    let ann = Region::new().await.person().await;
    let path = ann.own("/brokers");
    let post = async |kind: &str, body: &str| {
        let request = Request::post(&path).header("content-type", kind).body(Body::from(body.to_owned()));
        ann.raw(request.unwrap()).await
    };
    post("text/plain", "{}").await.is(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    post("application/json", "{").await.is(StatusCode::BAD_REQUEST);
    post("application/json", "[]").await.is(StatusCode::UNPROCESSABLE_ENTITY);
    post("application/json; charset=utf-8", "{\"display_name\":\"x\"}").await.is(StatusCode::CREATED);
    let large = format!("{{\"display_name\":\"{}\"}}", "x".repeat(1_300_000));
    post("application/json", &large).await.is(StatusCode::PAYLOAD_TOO_LARGE);

    ann.get("/nothing").await.is(StatusCode::NOT_FOUND);
    for name in ["%zz", "a%", "%2", "%ff", "b%25%c3"] {
        let answer = ann.get(&format!("{path}/{name}")).await;
        assert!(
            answer.is(StatusCode::BAD_REQUEST).text("/detail").contains(&format!("{name:?}")),
            "{answer:?}"
        );
    }
    for name in ["%25zz", "%c3%bc", "100%25"] {
        ann.get(&format!("{path}/{name}")).await.is(StatusCode::NOT_FOUND);
    }
    let wrong = ann.send(Method::PUT, &path, Some(json!({}))).await;
    assert_eq!(wrong.is(StatusCode::METHOD_NOT_ALLOWED).headers["allow"], "GET,HEAD,POST");
    for query in ["?limit=0", "?limit=201", "?limit=x", "?cursor=%21"] {
        ann.get(&format!("{path}{query}")).await.is(StatusCode::BAD_REQUEST);
    }
    ann.get(&ann.own("/audit?cursor=AAAA")).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    let long = "x".repeat(20_000);
    for path in [format!("/brokers/{long}"), format!("/brokers/{long}/credentials/{long}")] {
        ann.get(&ann.own(&path)).await.is(StatusCode::NOT_FOUND);
    }
    let broker = ann.broker().await;
    ann.get(&format!("{broker}/credentials/{long}")).await.is(StatusCode::NOT_FOUND);
    ann.get(&format!("{broker}/credentials?cursor={long}")).await.is(StatusCode::BAD_REQUEST);
    ann.get("/organisations/nobody").await.is(StatusCode::NOT_FOUND);
    region_less(&ann).await;
}

#[tokio::test]
async fn a_body_that_is_encoded_is_refused_with_the_header_to_leave_out() {
    let ann = Region::new().await.person().await;
    let make = async |encoding: &'static str| {
        let ann = ann.with("content-encoding", encoding);
        ann.post(&ann.own("/brokers"), json!({ "display_name": "x" })).await
    };
    make("identity").await.is(StatusCode::CREATED);
    for encoding in ["gzip", "br", "identity, gzip"] {
        let answer = make(encoding).await;
        let detail = answer.is(StatusCode::UNSUPPORTED_MEDIA_TYPE).text("/detail");
        assert!(detail.contains("Content-Encoding"), "{detail}");
    }
    let ann = ann.with_both("content-encoding", ["identity", "gzip"]);
    let answer = ann.post(&ann.own("/brokers"), json!({ "display_name": "x" })).await;
    answer.is(StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn a_header_that_decides_is_refused_when_it_is_there_twice() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let make = async |client: &crate::tools::Client| {
        client.post(&ann.own("/brokers"), json!({ "display_name": "x" })).await
    };
    let csrf = ann.get("/me").await.text("/csrf_token").to_owned();
    for (name, values) in [
        ("authorization", ["Bearer mlr_a", "Bearer mlr_b"]),
        ("x-csrf-token", [&csrf, "wrong"]),
        ("idempotency-key", ["a", "b"]),
    ] {
        let answer = make(&ann.with_both(name, values)).await;
        let detail = answer.is(StatusCode::BAD_REQUEST).text("/detail").to_lowercase();
        assert!(detail.contains(name), "{detail}");
    }
    let tag = ann.get(&broker).await.etag();
    let change = json!({ "display_name": "y" });
    let seen = ann.with_both("if-match", [&tag, "\"99\""]);
    seen.send(Method::PATCH, &broker, Some(change)).await.is(StatusCode::BAD_REQUEST);
}

/// Nobody is known by nothing, nor by what is no token.
async fn region_less(ann: &crate::tools::Client) {
    let nobody = ann.without("cookie");
    let answer = nobody.get("/me").await;
    assert!(answer.is(StatusCode::UNAUTHORIZED).headers.contains_key("www-authenticate"));
    for wrong in ["Bearer mlr_x", "Basic eDp5", "Bearer", ""] {
        nobody.with("authorization", wrong).get("/me").await.is(StatusCode::UNAUTHORIZED);
    }
}

#[tokio::test]
async fn every_answer_tells_browsers_what_not_to_do_with_it() {
    let ann = Region::new().await.person().await;
    for path in ["/me", "/nothing", "/openapi.json"] {
        let headers = ann.get(path).await.headers;
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["cache-control"], "no-store");
        assert!(headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
    }
}

#[tokio::test]
async fn what_this_server_cannot_tell_says_so() {
    let ann = Region::new().await.person().await;
    let broker = ann.broker().await;
    for path in ["clients", "clients/a/trace", "sessions/a", "retained", "metrics", "metrics/stream"] {
        ann.get(&format!("{broker}/{path}")).await.is(StatusCode::NOT_IMPLEMENTED);
    }
}

#[tokio::test]
async fn usage_is_what_the_store_counts() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let name = ann.get(&broker).await.text("/name").to_owned();
    let name = name.as_bytes();
    let count = region.store.run(|tx| async move {
        use millrace_layers::{catalog, usage};
        let id = catalog::get(&tx, name, millrace_storage::Read::Snapshot).await?.unwrap().id;
        usage::add(&tx, id, usage::Counter::DroppedMessages, 7)
    });
    count.await.unwrap();
    let usage = ann.get(&format!("{broker}/usage")).await;
    assert_eq!(usage.is(StatusCode::OK).body["losses"]["dropped_messages"], 7);
}

#[tokio::test]
async fn an_unknown_or_wrong_query_parameter_is_refused_with_what_there_is() {
    let ann = Region::new().await.person().await;
    let (broker, long) = (ann.broker().await, "x".repeat(1_025));
    for (path, name, detail) in [
        (format!("{broker}/metrics?step=60"), "step", "takes no parameters"),
        (ann.own("/audit?who=x"), "who", "there are actor, action, from, to, cursor, limit"),
        (format!("{broker}/credentials?user=dev"), "user", "there are search, cursor, limit"),
        (format!("{broker}/credentials?search={long}"), "search", "more than 1024 bytes"),
        (ann.own(&format!("/audit?actor={long}")), "actor", "more than 1024 bytes"),
        (ann.own("/audit?from=-1"), "from", "must be a whole number"),
        (format!("{broker}/credentials?limit=abc"), "limit", "must be a whole number"),
        (format!("{broker}/credentials?limit=5&limit=6"), "limit", "more than once"),
        (format!("{broker}/usage?step=foo"), "step", "is `foo`, and must be one of `hour`"),
        (ann.own("/brokers?limit=0"), "limit", "between 1 and 200"),
        (ann.own("/brokers?cursor=%21"), "cursor", "is not a cursor"),
        ("/openapi.json?x".into(), "x", "takes no parameters"),
        (format!("{broker}/messages?topic=%ff"), "topic", "is not UTF-8"),
        (format!("{broker}/retained/message?topic=a%ED%A0%80"), "topic", "is not UTF-8"),
        (ann.own("/audit?%ff=1"), "\u{fffd}", "is not UTF-8"),
    ] {
        let refused = ann.get(&path).await;
        let field = &refused.is(StatusCode::BAD_REQUEST).body["fields"][0];
        assert_eq!(field["field"], name, "{path}");
        for text in [&field["detail"], &refused.body["detail"]] {
            assert!(text.as_str().unwrap().contains(detail), "{path}: {text}");
        }
    }
    let made = ann.post(&ann.own("/brokers?dry=1"), json!({ "display_name": "x" })).await;
    assert_eq!(made.is(StatusCode::BAD_REQUEST).body["fields"][0]["field"], "dry");
    ann.get(&ann.own("/audit?limit=5&")).await.is(StatusCode::OK);
    ann.get("/sign-in/oidc/callback?session_state=x").await.is(StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_wrong_body_is_described_in_the_words_of_the_api() {
    let ann = Region::new().await.person().await;
    let (broker, brokers) = (ann.broker().await, ann.own("/brokers"));
    let fields = |answer: &crate::tools::Answer| {
        let named =
            answer.is(StatusCode::UNPROCESSABLE_ENTITY).body["fields"].as_array().into_iter().flatten();
        named.map(|one| one["field"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(fields(&ann.post(&brokers, json!({ "name": "x" })).await), ["name", "display_name"]);
    let list = ann.post(&brokers, json!([1])).await;
    assert!(fields(&list).is_empty() && list.text("/detail").contains("must be an object"), "{}", list.body);
    for (ban, named) in [
        (json!({}), vec!["client_id", "user", "address"]),
        (json!({ "user": "a", "address": "192.0.2.1" }), vec!["user", "address"]),
    ] {
        assert_eq!(fields(&ann.put(&format!("{broker}/bans/x"), "", ban).await), named);
    }
}

#[tokio::test]
async fn requests_are_counted_by_the_template_of_their_route() {
    let region = Region::new().await;
    let metrics = Arc::new(RequestMetrics::default());
    let api = router(region.control.clone(), Arc::new(NothingLive), ApiOptions::default());
    let server = Router::new().nest(PATH, metrics.around(api));
    for (method, path) in [
        ("GET", "/organisations/11111111-1111-4111-8111-111111111111/brokers"),
        ("GET", "/organisations/22222222-2222-4222-8222-222222222222/brokers?limit=1"),
        ("GET", "/openapi.json"),
        ("DELETE", "/openapi.json"),
        ("GET", "/secret-of-somebody"),
        ("BREW", "/pot-of-somebody"),
    ] {
        let request = Request::builder().method(method).uri(format!("{PATH}{path}"));
        server.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    }
    let mut text = String::new();
    metrics.write(&mut text);
    for (labels, count) in [
        ("method=\"GET\",route=\"/api/v1/organisations/{organisation}/brokers\",status=\"4xx\"", 2),
        ("method=\"GET\",route=\"/api/v1/openapi.json\",status=\"2xx\"", 1),
        ("method=\"DELETE\",route=\"/api/v1/openapi.json\",status=\"4xx\"", 1),
        ("method=\"GET\",route=\"_other\",status=\"4xx\"", 1),
        ("method=\"_other\",route=\"_other\",status=\"4xx\"", 1),
    ] {
        let line = format!("millrace_http_requests_total{{{labels}}} {count}");
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
    assert!(!text.contains("somebody") && !text.contains("1111") && !text.contains("BREW"), "{text}");
}

#[tokio::test]
async fn a_request_whose_client_leaves_is_counted_as_cancelled() {
    let metrics = Arc::new(RequestMetrics::default());
    let api = Router::new().route("/slow", axum::routing::get(std::future::pending::<()>));
    let asked = metrics.around(api).oneshot(Request::get("/slow").body(Body::empty()).unwrap());
    {
        let mut asked = std::pin::pin!(asked);
        assert!(
            std::future::poll_fn(|context| std::task::Poll::Ready(asked.as_mut().poll(context).is_pending()))
                .await
        );
    }
    let mut text = String::new();
    metrics.write(&mut text);
    let line = "millrace_http_requests_total{method=\"GET\",route=\"/slow\",status=\"cancelled\"} 1";
    assert!(text.lines().any(|found| found == line), "{text}");
}

#[tokio::test]
async fn each_request_has_an_id_of_the_servers_that_errors_of_the_server_repeat() {
    let ann = Region::new().await.person().await.with("x-request-id", "mine");
    let broker = ann.broker().await;
    let id = |answer: &crate::tools::Answer| answer.headers["x-request-id"].to_str().unwrap().to_owned();
    let (one, other) = (ann.get("/me").await, ann.get("/me").await);
    assert!(id(&one).len() == 36 && id(&one) != id(&other));
    let fault = ann.get(&format!("{broker}/clients")).await;
    assert_eq!(fault.is(StatusCode::NOT_IMPLEMENTED).text("/request_id"), id(&fault));
    assert!(ann.get("/nothing").await.is(StatusCode::NOT_FOUND).body.get("request_id").is_none());
}

#[tokio::test]
async fn a_location_leads_to_what_was_made() {
    let ann = Region::new().await.person().await;
    let follow = async |made: &crate::tools::Answer| {
        let location = made.is(StatusCode::CREATED).headers["location"].to_str().unwrap();
        let path = location.strip_prefix(PATH).unwrap().to_owned();
        (ann.get(&path).await, path)
    };
    let organisation = ann.post("/organisations", json!({ "name": "Second" })).await;
    let (found, _) = follow(&organisation).await;
    assert_eq!(found.is(StatusCode::OK).body, organisation.body);
    let broker = ann.post(&ann.own("/brokers"), json!({ "display_name": "Plant" })).await;
    let (found, broker_path) = follow(&broker).await;
    assert_eq!(found.is(StatusCode::OK).text("/name"), broker.text("/name"));
    let named = json!({ "user": "a/b %?é" });
    let credential = ann.post(&format!("{broker_path}/credentials"), named).await;
    let (found, _) = follow(&credential).await;
    assert_eq!(found.is(StatusCode::OK).text("/user"), "a/b %?é");
    let claims = json!({
        "name": "Line 1", "user_prefix": "pump-", "uses_max": 1, "expires_at_ms": 1_000_000_100_000_u64,
    });
    let claim_token = ann.post(&format!("{broker_path}/claim-tokens"), claims).await;
    let (found, _) = follow(&claim_token).await;
    assert_eq!(found.is(StatusCode::OK).text("/id"), claim_token.text("/id"));
    let group = ann.put(&format!("{broker_path}/groups/pumps"), "", json!({ "rules": [] })).await;
    let (found, path) = follow(&group).await;
    assert_eq!(found.is(StatusCode::OK).text("/name"), "pumps");
    let again = ann.put(&path, "*", json!({ "rules": [] })).await;
    assert!(again.is(StatusCode::NO_CONTENT).headers.get("location").is_none());
    for (list, body) in [
        ("/tokens", json!({ "name": "a", "scopes": ["audit:read"] })),
        ("/invitations", json!({ "email": "b@example.org", "role": "viewer" })),
    ] {
        let made = ann.post(&ann.own(list), body).await;
        let (_, path) = follow(&made).await;
        ann.delete(&path).await.is(StatusCode::NO_CONTENT);
    }
}

#[tokio::test]
async fn an_address_that_is_too_long_is_nobodys() {
    let stranger = Region::new().await.stranger();
    let email = format!("{}@example.org", "x".repeat(20_000));
    let sign_in = json!({ "email": email, "password": "x" });
    stranger.post("/sign-in", sign_in).await.is(StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn strangers_do_not_learn_from_ids_that_are_none() {
    let stranger = Region::new().await.stranger();
    let api = serde_json::to_value(millrace_control::openapi()).unwrap();
    let mut tried = 0;
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let is_open = operation["security"] == json!([{}]);
            if is_open || !path.contains('{') {
                continue;
            }
            let mut asked = path.clone();
            while let Some((before, rest)) = asked.split_once('{') {
                asked = format!("{before}%FF{}", rest.split_once('}').unwrap().1);
            }
            let method = method.to_uppercase().parse().unwrap();
            stranger.send(method, &asked, None).await.is(StatusCode::UNAUTHORIZED);
            tried += 1;
        }
    }
    assert!(tried > 50, "{tried}");
}

#[tokio::test]
async fn the_description_of_the_api_is_limited_by_address() {
    let stranger = Region::new().await.stranger();
    let guesser = stranger.with_token("mlr_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    for _ in 0..10_000 {
        // Wrong tokens count against the same limit, and their answers are faster than the limiter.
        if guesser.get("/me").await.status != StatusCode::TOO_MANY_REQUESTS {
            continue;
        }
        let answer = stranger.get("/openapi.json").await;
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            assert!(answer.headers.contains_key("retry-after"));
            return;
        }
        answer.is(StatusCode::OK);
    }
    panic!("10,000 requests were answered");
}

#[tokio::test]
async fn answers_say_what_is_left_of_the_rate_limits() {
    let region = Region::new().await;
    let ann = region.person().await;
    let header = |answer: &crate::tools::Answer, name: &str| {
        answer.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    };
    let left = |answer: &crate::tools::Answer, policy: &str| {
        let limits = header(answer, "ratelimit").unwrap_or_default();
        let of = limits.split(", ").find_map(|one| one.strip_prefix(&format!("\"{policy}\";r=")));
        of.map(|rest| rest.split(';').next().unwrap().parse::<u32>().unwrap())
    };
    let answer = ann.get("/me").await;
    assert_eq!(header(&answer, "ratelimit-policy").as_deref(), Some("\"requests\";q=500;w=10"));
    assert!(left(&answer, "requests").is_some_and(|left| (400..500).contains(&left)), "{answer:?}");
    for missing in ["/brokers/none", "/nothing"] {
        let answer = ann.get(&ann.own(missing)).await;
        answer.is(StatusCode::NOT_FOUND);
        assert_eq!(left(&answer, "requests").is_some(), missing != "/nothing");
    }
    let wrong = json!({ "current": "wrong", "new": "a lamp of forty dull geese" });
    let answer = ann.post("/me/password", wrong).await;
    let policies = header(&answer, "ratelimit-policy").unwrap();
    assert_eq!(policies, "\"requests\";q=500;w=10, \"passwords\";q=20;w=60");
    let sign_in = json!({ "email": "ann@example.org", "password": "wrong" });
    let stranger = region.stranger();
    let mut last = 11;
    loop {
        let answer = stranger.post("/sign-in", sign_in.clone()).await;
        let now = left(&answer, "sign-ins");
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            // The guesses at an account from elsewhere are nobody's business.
            assert!(!header(&answer, "ratelimit-policy").unwrap().contains("guesses"));
            assert!(answer.headers.contains_key("retry-after"));
            break assert!(now == Some(0) || left(&answer, "passwords") == Some(0), "{answer:?}");
        }
        assert!(now.is_some_and(|now| now <= last), "{answer:?}");
        last = now.unwrap();
    }
    assert!(header(&stranger.get("/sign-in/ways").await, "ratelimit").is_none());
}
