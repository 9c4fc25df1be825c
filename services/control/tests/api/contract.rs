//! openapi.json: the server serves it, each operation is described whole, and it shows no secret.

use axum::http::StatusCode;
use serde_json::Value;

use crate::tools::Region;

fn operations(described: &Value) -> Vec<(String, &Value)> {
    let paths = described["paths"].as_object().unwrap();
    let all = paths.iter().flat_map(|(path, methods)| {
        methods
            .as_object()
            .unwrap()
            .iter()
            .map(move |(method, operation)| (format!("{method} {path}"), operation))
    });
    all.collect()
}

#[tokio::test]
async fn the_server_gives_its_description() {
    let region = Region::new().await;
    let answer = region.stranger().get("/openapi.json").await;
    let mut served = answer.is(StatusCode::OK).body.clone();
    let mut described = serde_json::to_value(millrace_control::openapi()).unwrap();
    without_ends(&mut served);
    without_ends(&mut described);
    assert_eq!(served, described);
}

/// Removes the examples of ends, which follow the server's clock.
fn without_ends(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            match fields.get_mut("expires_at_ms") {
                Some(Value::Object(schema)) => drop(schema.remove("example")),
                Some(end) if end.is_number() => *end = Value::Null,
                _ => {}
            }
            fields.values_mut().for_each(without_ends);
        }
        Value::Array(items) => items.iter_mut().for_each(without_ends),
        _ => {}
    }
}

#[test]
fn every_operation_has_an_id_of_its_own_a_sentence_and_its_problems() {
    let described = serde_json::to_value(millrace_control::openapi()).unwrap();
    let mut ids = Vec::new();
    for (name, operation) in operations(&described) {
        ids.push(operation["operationId"].as_str().unwrap().to_owned());
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
        let responses = operation["responses"].as_object().unwrap();
        for status in ["400", "500", "503"] {
            assert!(responses.contains_key(status), "{name}: {status}");
        }
        let is_open = name.contains("/sign-") && !name.contains("out") || name.contains("openapi");
        assert!(is_open || responses.contains_key("401"), "{name}");
        assert!(!name.contains('{') || responses.contains_key("404"), "{name}");
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

#[test]
fn no_schema_shows_a_stored_secret() {
    let described = serde_json::to_value(millrace_control::openapi()).unwrap().to_string();
    for word in ["phc", "\"hash\"", "stored_key"] {
        assert!(!described.contains(word), "{word}");
    }
}

#[test]
fn secrets_that_a_request_may_have_are_described_and_no_answer_has_them() {
    let described = serde_json::to_value(millrace_control::openapi()).unwrap();
    let schemas = &described["components"]["schemas"];
    for at in [
        "/IssuerKey/oneOf/0/properties/secret",
        "/WebhookSettings/properties/signing_key",
        "/AccessWebhook/properties/signing_key",
    ] {
        assert_eq!(schemas.pointer(at).unwrap()["writeOnly"], true, "{at}");
    }
}
