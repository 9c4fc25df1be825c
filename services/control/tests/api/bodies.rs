//! Bodies of requests, by the description of the API: its examples are accepted, and nothing in them is ignored.

use axum::http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::tenancy::{Owned, fill, tenant};
use crate::tools::{Answer, Region};

const UNKNOWN: &str = "no_such_field";

pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) example: Value,
    /// Whether it asks for no credentials.
    pub(crate) is_open: bool,
}

pub(crate) fn operations() -> Vec<Operation> {
    let described = serde_json::to_value(millrace_control::openapi()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let Some(content) = operation.pointer("/requestBody/content/application~1json") else { continue };
            let id = operation["operationId"].as_str().unwrap().to_owned();
            let mut example = content.get("example").unwrap_or_else(|| panic!("{id} has no example")).clone();
            if id == "create_claim_token" {
                // The clock of these tests stands in another year, and a claim token lasts 366 days at most.
                example["expires_at_ms"] = json!(1_000_000_100_000_u64);
            }
            all.push(Operation {
                id,
                method: method.to_uppercase().parse().unwrap(),
                path: path.clone(),
                example,
                is_open: is_open(operation),
            });
        }
    }
    assert!(all.len() > 40, "{}", all.len());
    all
}

fn is_open(operation: &Value) -> bool {
    operation["security"].as_array().is_some_and(|all| all.contains(&json!({})))
}

pub(crate) async fn send(owned: &Owned, operation: &Operation, body: Value) -> Answer {
    let Operation { method, path, .. } = operation;
    let missing = "00000000-0000-7000-8000-000000000000";
    let path = fill(path, &owned.client.organisation, owned).replace("{passkey}", missing);
    // Claims have a key at any rate, which no two requests share.
    let key = format!("{method} {path} {body}");
    let key = blake3::hash(key.as_bytes()).to_hex();
    let client = owned.client.with("if-match", "*").with("idempotency-key", &key);
    client.send(method.clone(), &path, Some(body)).await
}

/// The path of a field by which problems name it.
fn below(object: &str, field: &str) -> String {
    if object.is_empty() { field.to_owned() } else { format!("{object}.{field}") }
}

/// The JSON pointers of all objects in a value, and the paths by which problems name them.
fn objects(value: &Value, at: (String, String), found: &mut Vec<(String, String)>) {
    let (pointer, name) = at;
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                objects(value, (format!("{pointer}/{key}"), below(&name, key)), found);
            }
            found.push((pointer, name));
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                objects(value, (format!("{pointer}/{index}"), format!("{name}[{index}]")), found);
            }
        }
        _ => {}
    }
}

pub(crate) fn fields_of(answer: &Answer) -> Vec<String> {
    let named = answer.body["fields"].as_array().into_iter().flatten();
    named.map(|one| one["field"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn each_example_of_the_description_can_be_sent() {
    let region = Region::new().await.unlimited();
    let owned = tenant(&region).await;
    for operation in operations() {
        let answer = send(&owned, &operation, operation.example.clone()).await;
        // These have codes and passwords that are not the ones of the account.
        let is_made_up = ["/me/", "/sign-in"].iter().any(|of| operation.path.starts_with(of));
        let is_refused = [400, 413, 415, 422, 428, 500].contains(&answer.status.as_u16());
        assert!(is_made_up || !is_refused, "{}: {answer:#?}", operation.id);
    }
}

#[tokio::test]
async fn the_description_that_a_server_gives_has_a_claim_token_that_is_not_over() {
    let region = Region::new().await;
    region.clock.move_on(20 * 365 * 86_400_000);
    let ann = region.person().await;
    let path = format!("{}/claim-tokens", ann.broker().await);
    let described = ann.get("/openapi.json").await;
    let of = "/paths/~1organisations~1{organisation}~1brokers~1{broker}~1claim-tokens/post";
    let example = described.body.pointer(&format!("{of}/requestBody/content/application~1json/example"));
    let mut example = example.unwrap().clone();
    example["group"] = Value::Null;
    let made = ann.post(&path, example).await;
    let of_schema = "/components/schemas/NewClaimToken/properties/expires_at_ms/example";
    assert_eq!(
        made.is(StatusCode::CREATED).body["expires_at_ms"],
        *described.body.pointer(of_schema).unwrap()
    );
}

#[tokio::test]
async fn a_stranger_sends_short_bodies_alone() {
    let region = Region::new().await.unlimited();
    let described = serde_json::to_value(millrace_control::openapi()).unwrap();
    let body = json!({ UNKNOWN: "x".repeat(70_000) });
    let mut tried = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if is_open(operation) && operation.get("requestBody").is_some() {
                let method = method.to_uppercase().parse().unwrap();
                let answer = region.stranger().send(method, path, Some(body.clone())).await;
                assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE, "{path}");
                tried += 1;
            }
        }
    }
    assert!(tried > 7, "{tried}");
}

#[tokio::test]
async fn an_unknown_field_is_refused_at_each_place_of_each_request() {
    let region = Region::new().await.unlimited();
    let owned = tenant(&region).await;
    let mut tried = 0;
    for operation in operations() {
        let mut places = Vec::new();
        objects(&operation.example, Default::default(), &mut places);
        for (pointer, name) in places {
            let mut body = operation.example.clone();
            let object = body.pointer_mut(&pointer).unwrap().as_object_mut().unwrap();
            object.insert(UNKNOWN.into(), json!(true));
            let answer = send(&owned, &operation, body).await;
            let expected = below(&name, UNKNOWN);
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}: {answer:#?}", operation.id);
            assert!(fields_of(&answer).contains(&expected), "{} {expected}: {answer:#?}", operation.id);
            tried += 1;
        }
    }
    assert!(tried > 60, "{tried}");
}

#[tokio::test]
async fn a_list_is_refused_in_place_of_each_object_of_each_request() {
    let region = Region::new().await.unlimited();
    let owned = tenant(&region).await;
    let mut tried = 0;
    for operation in operations() {
        let mut places = Vec::new();
        objects(&operation.example, Default::default(), &mut places);
        for (pointer, name) in places.into_iter().filter(|(pointer, _)| !pointer.is_empty()) {
            let mut body = operation.example.clone();
            *body.pointer_mut(&pointer).unwrap() = json!([]);
            let answer = send(&owned, &operation, body).await;
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}: {answer:#?}", operation.id);
            assert_eq!(fields_of(&answer), [name], "{}: {answer:#?}", operation.id);
            assert!(answer.body.to_string().contains("must be an object"), "{}: {answer:#?}", operation.id);
            tried += 1;
        }
    }
    assert!(tried > 10, "{tried}");
}

#[tokio::test]
async fn a_value_of_the_wrong_kind_is_refused_with_its_field() {
    let region = Region::new().await.unlimited();
    let owned = tenant(&region).await;
    for operation in operations() {
        for field in operation.example.as_object().unwrap().keys() {
            let mut body = operation.example.clone();
            body[field] = json!({ UNKNOWN: [1] });
            let answer = send(&owned, &operation, body).await;
            let context = format!("{} {field}", operation.id);
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{context}: {answer:#?}");
            assert!(
                fields_of(&answer).iter().any(|named| named.starts_with(field)),
                "{context}: {answer:#?}"
            );
            let said = answer.body.to_string();
            for word in ["struct ", "enum ", "variant", "u64", "u32", "usize", "Option<", "::"] {
                assert!(!said.contains(word), "{context} has {word:?}: {said}");
            }
        }
    }
}

#[tokio::test]
async fn a_field_that_is_there_twice_is_refused() {
    let region = Region::new().await.unlimited();
    let owned = tenant(&region).await;
    for operation in operations() {
        for (field, twice) in repeated(&operation.example) {
            let path = fill(&operation.path, &owned.client.organisation, &owned);
            let request = axum::http::Request::builder()
                .method(operation.method.clone())
                .uri(path.replace("{passkey}", "00000000-0000-7000-8000-000000000000"))
                .header("content-type", "application/json")
                .header("if-match", "*")
                .header("idempotency-key", "0123456789abcdef0123456789abcdef");
            let answer = owned.client.raw(request.body(axum::body::Body::from(twice)).unwrap()).await;
            let context = format!("{} {field}", operation.id);
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{context}: {answer:#?}");
            assert_eq!(fields_of(&answer), [field], "{context}");
        }
    }
}

/// The JSON of a value with one field twice, for each field of each object, and the path of that field.
fn repeated(value: &Value) -> Vec<(String, String)> {
    const AGAIN: &str = "written once more";
    let (mut places, mut all) = (Vec::new(), Vec::new());
    objects(value, Default::default(), &mut places);
    for (pointer, name) in places {
        let fields = value.pointer(&pointer).unwrap().as_object().unwrap();
        for (field, again) in fields {
            let mut value = value.clone();
            let object = value.pointer_mut(&pointer).unwrap().as_object_mut().unwrap();
            object.insert(AGAIN.into(), again.clone());
            let text = value.to_string().replace(&format!("\"{AGAIN}\""), &format!("\"{field}\""));
            all.push((below(&name, field), text));
        }
    }
    all
}

fn limits() -> Vec<(String, String)> {
    let described = serde_json::to_value(millrace_control::openapi()).unwrap();
    let schemas = &described["components"]["schemas"];
    let mut all = Vec::new();
    for group in ["broker", "client"] {
        let name = schemas.pointer(&format!("/Limits/properties/{group}/$ref")).unwrap().as_str().unwrap();
        let schema = described.pointer(name.trim_start_matches('#')).unwrap();
        let fields = schema["properties"].as_object().unwrap().keys();
        all.extend(fields.map(|field| (group.to_owned(), field.clone())));
    }
    assert!(all.len() > 10, "{all:?}");
    all
}

#[tokio::test]
async fn changing_one_limit_leaves_all_others() {
    let region = Region::new().await.unlimited();
    let ann = region.person().await;
    let broker = ann.broker().await;
    let mut expected = json!({ "broker": {}, "client": {} });
    let check = async |expected: &Value| {
        let found = ann.get(&broker).await;
        for (group, field) in limits() {
            assert_eq!(found.body["limits"][&group][&field], expected[&group][&field], "{group}.{field}");
        }
        assert_eq!(found.body["display_name"], "Plant");
    };
    let patch = async |group: &str, field: &str, value: Value| {
        let limits = json!({ group: Value::Object(Map::from_iter([(field.to_owned(), value)])) });
        ann.patch(&broker, "*", json!({ "limits": limits })).await.is(StatusCode::OK);
    };
    for (number, (group, field)) in limits().into_iter().enumerate() {
        expected[&group][&field] = json!(10_000 + number);
        patch(&group, &field, json!(10_000 + number)).await;
        check(&expected).await;
    }
    for empty in [json!({}), json!({ "limits": {} }), json!({ "limits": { "broker": {} } })] {
        ann.patch(&broker, "*", empty).await.is(StatusCode::OK);
        check(&expected).await;
    }
    for (group, field) in limits() {
        expected[&group][&field] = Value::Null;
        patch(&group, &field, Value::Null).await;
        check(&expected).await;
    }
}

/// Characters that do not show, or turn the direction of text.
const HIDDEN: [char; 7] = ['\u{200B}', '\u{202E}', '\u{2066}', '\u{FEFF}', '\u{AD}', '\u{3164}', '\u{2800}'];

#[tokio::test]
async fn no_name_has_characters_that_do_not_show_or_turn_the_text() {
    let region = Region::new().await.unlimited();
    let owned = tenant(&region).await;
    let named = [
        ("change_me", "name"),
        ("create_organisation", "name"),
        ("change_organisation", "name"),
        ("create_broker", "display_name"),
        ("change_broker", "display_name"),
        ("create_claim_token", "name"),
        ("create_claim_token", "user_prefix"),
        ("create_credential", "user"),
        ("create_credential", "group"),
        ("create_token", "name"),
        ("invite", "email"),
        ("put_ban", "reason"),
        ("put_webhook", "url"),
        ("rename_passkey", "name"),
        ("sign_up", "name"),
        ("sign_up", "email"),
        ("sign_up", "organisation"),
    ];
    let all = operations();
    for (id, field) in named {
        let operation = all.iter().find(|operation| operation.id == id).unwrap();
        for hidden in HIDDEN {
            let mut body = operation.example.clone();
            body[field] = format!("An{hidden}n").into();
            let answer = send(&owned, operation, body).await;
            let context = format!("{id} {field} U+{:04X}: {answer:#?}", u32::from(hidden));
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{context}");
            assert_eq!(fields_of(&answer), [field], "{context}");
        }
    }
    for operation in all.iter().filter(|one| one.method == Method::PUT && one.path.ends_with("/{name}")) {
        for hidden in HIDDEN {
            let path = operation.path.replace("{name}", &format!("An{}n", encoded(hidden)));
            let path = fill(&path, &owned.client.organisation, &owned);
            let answer = owned.client.put(&path, "", operation.example.clone()).await;
            let context = format!("{path}: {answer:#?}");
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{context}");
            assert_eq!(fields_of(&answer), ["name"], "{context}");
        }
    }
}

fn encoded(letter: char) -> String {
    letter.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02X}")).collect()
}
