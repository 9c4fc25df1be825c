//! Compares the headers of each answer of these tests with the description of the API.

use std::sync::LazyLock;

use axum::http::Method;
use serde_json::Value;

use crate::tools::Answer;

/// Headers that an answer has whenever its operation declares them for its status.
const ALWAYS: [&str; 4] = ["X-Request-Id", "ETag", "Location", "Millrace-In-Force-At-Ms"];
const SOMETIMES: [&str; 3] = ["Retry-After", "RateLimit-Policy", "RateLimit"];

static DESCRIBED: LazyLock<Value> =
    LazyLock::new(|| serde_json::to_value(millrace_control::openapi()).unwrap());

pub(crate) fn check(method: &Method, path: &str, answer: &Answer) {
    let request = format!("{method} {path}: {answer:#?}");
    assert_eq!(answer.headers.get_all("x-request-id").iter().count(), 1, "{request}");
    let Some(operation) = operation(method, path) else { return };
    let Some(mut response) = operation["responses"].get(answer.status.as_str()) else { return };
    if let Some(name) = response["$ref"].as_str() {
        response = DESCRIBED.pointer(name.trim_start_matches('#')).unwrap();
    }
    for name in ALWAYS.into_iter().chain(SOMETIMES) {
        let is_declared = response["headers"].get(name).is_some();
        let is_sent = answer.headers.contains_key(name);
        assert!(is_declared || !is_sent, "{name} is sent and not declared by {request}");
        assert!(
            is_sent || !is_declared || SOMETIMES.contains(&name),
            "{name} is declared and not sent by {request}"
        );
    }
}

fn operation(method: &Method, path: &str) -> Option<&'static Value> {
    let asked: Vec<&str> = path.split('/').collect();
    let fits = |template: &str| {
        let parts: Vec<&str> = template.split('/').collect();
        let fits = |(part, asked): (&&str, &&str)| part.starts_with('{') || part == asked;
        parts.len() == asked.len() && parts.iter().zip(&asked).all(fits)
    };
    let paths = DESCRIBED["paths"].as_object().unwrap().iter().filter(|(template, _)| fits(template));
    let (_, methods) = paths.min_by_key(|(template, _)| template.matches('{').count())?;
    methods.get(method.as_str().to_lowercase())
}
