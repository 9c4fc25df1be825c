//! Values outside the bounds that the description names: each refusal names its field and the bound.

use axum::http::{Method, StatusCode};
use millrace_access::model::{Action, Credential, Effect, Rule};
use millrace_layers::{accounts, catalog};
use millrace_storage::Read;
use serde_json::{Value, json};

use crate::bodies::{Operation, operations, send};
use crate::tenancy::{fill, tenant};
use crate::tools::{Answer, Region};

/// A field of a body with the keyword that bounds it. A path has the names of fields, and 0 for an item.
#[derive(Debug)]
struct Bounded {
    path: Vec<String>,
    schema: Value,
}

impl Bounded {
    /// By which problems name the field.
    fn name(&self) -> String {
        let joined = self.path.join(".");
        joined.replace(".0", "[0]")
    }

    fn pointer(&self) -> String {
        format!("/{}", self.path.join("/"))
    }
}

/// Collects the fields below a schema that have `keyword`.
fn collect(described: &Value, schema: &Value, keyword: &str, path: &[String], found: &mut Vec<Bounded>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = described.pointer(reference.trim_start_matches('#')).unwrap();
        return collect(described, schema, keyword, path, found);
    }
    for choice in ["allOf", "oneOf", "anyOf"].iter().filter_map(|of| schema[of].as_array()).flatten() {
        collect(described, choice, keyword, path, found);
    }
    if schema.get(keyword).is_some() {
        found.push(Bounded { path: path.to_vec(), schema: schema.clone() });
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        collect(described, schema, keyword, &[path, std::slice::from_ref(name)].concat(), found);
    }
    if let Some(items) = schema.get("items") {
        collect(described, items, keyword, &[path, &["0".to_owned()]].concat(), found);
    }
}

fn bounded(described: &Value, operation: &Operation, keyword: &str) -> Vec<Bounded> {
    let path = operation.path.replace('/', "~1");
    let method = operation.method.as_str().to_lowercase();
    let at = format!("/paths/{path}/{method}/requestBody/content/application~1json/schema");
    let mut found = Vec::new();
    collect(described, described.pointer(&at).unwrap(), keyword, &[], &mut found);
    found
}

/// Sets a field, and makes the objects and lists that lead to it. False: one of them was made.
fn set(body: &mut Value, path: &[String], new: Value) -> bool {
    let Some((step, rest)) = path.split_first() else {
        *body = new;
        return true;
    };
    let is_item = step == "0";
    let was_there = if is_item { !body[0].is_null() } else { !body[step].is_null() };
    if is_item && !was_there {
        *body = json!([{}]);
    } else if !is_item && !body.is_object() {
        *body = json!({});
    }
    let below = if is_item { &mut body[0] } else { &mut body[step] };
    set(below, rest, new) && (was_there || rest.is_empty())
}

fn detail_of(answer: &Answer, field: &str) -> Option<String> {
    let named = answer.body["fields"].as_array()?.iter().find(|one| one["field"] == field)?;
    Some(named["detail"].as_str()?.to_owned())
}

#[tokio::test]
async fn a_number_that_is_out_of_its_range_is_refused_with_field_and_range() {
    let region = Region::new().await.unlimited();
    let owned = tenant(&region).await;
    let described = serde_json::to_value(millrace_control::openapi()).unwrap();
    let mut tried = 0;
    for operation in operations() {
        for field in bounded(&described, &operation, "minimum") {
            let (name, context) = (field.name(), format!("{} {}", operation.id, field.name()));
            let (least, most) = (&field.schema["minimum"], &field.schema["maximum"]);
            let most = most.as_u64().unwrap_or_else(|| panic!("{context} has no maximum"));
            let range = format!("from {least} to {most}");
            for wrong in [json!(1e20), json!(-1), json!("x"), json!(1.5)] {
                let mut body = operation.example.clone();
                set(&mut body, &field.path, wrong.clone());
                let answer = send(&owned, &operation, body).await;
                assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{context}: {answer:#?}");
                let detail = detail_of(&answer, &name).unwrap_or_else(|| panic!("{context}: {answer:#?}"));
                assert!(detail.contains(&range), "{context} {wrong}: {detail}");
            }
            let mut body = operation.example.clone();
            if set(&mut body, &field.path, json!(most + 1)) {
                let answer = send(&owned, &operation, body).await;
                let detail = detail_of(&answer, &name).unwrap_or_else(|| panic!("{context}: {answer:#?}"));
                let bounds = [most.to_string(), "100 years".into(), "366 days".into(), "year 9999".into()];
                assert!(bounds.iter().any(|bound| detail.contains(bound)), "{context}: {detail}");
            }
            tried += 1;
        }
    }
    assert!(tried > 30, "{tried}");
}

#[tokio::test]
async fn a_text_or_list_that_is_too_long_is_refused_with_field_and_bound() {
    let region = Region::new().await.unlimited();
    region.control.console_at("https://console.example.org".into());
    let owned = tenant(&region).await;
    let described = serde_json::to_value(millrace_control::openapi()).unwrap();
    let (mut tried, mut wrong) = (0, Vec::new());
    for operation in operations() {
        for keyword in ["maxLength", "maxItems"] {
            for field in bounded(&described, &operation, keyword) {
                let pointer = field.pointer();
                let Some(was) = operation.example.pointer(&pointer) else { continue };
                let most = usize::try_from(field.schema[keyword].as_u64().unwrap()).unwrap();
                let long = match was {
                    Value::String(text) => json!(format!("{text}{}", "x".repeat(most))),
                    Value::Array(items) if !items.is_empty() => json!(vec![items[0].clone(); most + 1]),
                    _ => continue,
                };
                let mut body = operation.example.clone();
                *body.pointer_mut(&pointer).unwrap() = long;
                let answer = send(&owned, &operation, body).await;
                let context = format!("{} {}", operation.id, field.name());
                // This region has no identity provider, no mail and no broker that runs.
                if [404, 409, 501].contains(&answer.status.as_u16()) {
                    continue;
                }
                let detail = detail_of(&answer, &field.name()).unwrap_or_default();
                let is_named = detail.contains(&most.to_string());
                let is_kept_out = operation.is_open && answer.status == StatusCode::UNAUTHORIZED
                    || detail_of(&answer, "password").is_some_and(|detail| detail == "is not your password");
                if !is_named && !is_kept_out && answer.status != StatusCode::PAYLOAD_TOO_LARGE {
                    wrong.push(format!("{context}, {most}: {} {}", answer.status, answer.body));
                }
                tried += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(tried > 20, "{tried}");
}

#[tokio::test]
async fn a_parameter_that_is_out_of_its_range_is_refused_with_its_range() {
    let region = Region::new().await.unlimited();
    let owned = tenant(&region).await;
    let described = serde_json::to_value(millrace_control::openapi()).unwrap();
    let mut tried = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        let parameters = methods["get"]["parameters"].as_array().into_iter().flatten();
        for parameter in parameters.filter(|one| one["in"] == "query" && !one["schema"]["minimum"].is_null())
        {
            let (name, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
            let (least, most) = (&schema["minimum"], schema["maximum"].as_u64().unwrap());
            let others = if path.ends_with("/messages") { "&topic=a" } else { "" };
            for wrong in ["100000000000000000000".to_owned(), "-1".into(), "x".into(), (most + 1).to_string()]
            {
                let url =
                    format!("{}?{name}={wrong}{others}", fill(path, &owned.client.organisation, &owned));
                let answer = owned.client.send(Method::GET, &url, None).await;
                let detail = detail_of(&answer, name).unwrap_or_else(|| panic!("{url}: {answer:#?}"));
                let bounds = [format!("from {least} to {most}"), format!("between {least} and {most}")];
                let is_named =
                    bounds.iter().any(|bound| detail.contains(bound)) || detail.contains("year 9999");
                assert!(is_named, "{url}: {detail}");
                tried += 1;
            }
        }
    }
    assert!(tried > 60, "{tried}");
}

#[tokio::test]
async fn an_authentication_service_without_a_url_is_refused_with_what_to_send() {
    let region = Region::new().await;
    let ann = region.person().await;
    let path = format!("{}/access", ann.broker().await);
    for (webhook, field, words) in [
        (json!({}), "webhook.url", "is missing"),
        (json!({ "url": "" }), "webhook.url", "starts with https://"),
        (json!({ "url": "https://a.test", "timeout_ms": 9_000 }), "webhook.timeout_ms", "between 1 and 8000"),
        (json!({ "url": "https://a.test", "cache_s": 3_601 }), "webhook.cache_s", "between 0 and 3600"),
        (json!([]), "webhook", "must be an object"),
    ] {
        let answer = ann.put(&path, "*", json!({ "webhook": webhook })).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{webhook}: {answer:#?}");
        let detail = detail_of(&answer, field).unwrap_or_else(|| panic!("{webhook}: {answer:#?}"));
        assert!(detail.contains(words), "{webhook}: {detail}");
    }
    ann.put(&path, "*", json!({ "webhook": { "url": "https://a.test" } })).await.is(StatusCode::OK);
    ann.put(&path, "*", json!({ "webhook": null })).await.is(StatusCode::OK);
}

#[tokio::test]
async fn rules_of_more_than_16_kib_are_refused_wherever_they_are_stored() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let rule = json!({ "effect": "allow", "action": "all", "filter": "a".repeat(3_500) });
    let rules = json!(vec![rule; 5]);
    let expires_at_ms = 1_000_003_600_000_u64;
    let token = json!({
        "name": "a", "user_prefix": "p-", "uses_max": 5, "expires_at_ms": expires_at_ms, "rules": rules,
    });
    let answers = [
        ann.post(&format!("{broker}/credentials"), json!({ "user": "a", "rules": rules })).await,
        ann.put(&format!("{broker}/access"), "*", json!({ "rules": rules })).await,
        ann.put(&format!("{broker}/groups/a"), "", json!({ "rules": rules })).await,
        ann.post(&format!("{broker}/claim-tokens"), token).await,
        ann.post(
            &format!("{broker}/credential-batches"),
            json!({ "devices": [{ "user": "a" }], "rules": rules }),
        )
        .await,
    ];
    for answer in answers {
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{answer:#?}");
        let detail = detail_of(&answer, "rules").unwrap_or_else(|| panic!("{answer:#?}"));
        assert!(detail.contains("16 KiB"), "{detail}");
    }
}

#[tokio::test]
async fn a_stored_credential_with_longer_rules_is_shown_and_can_be_shortened() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let path = format!("{broker}/credentials/a");
    ann.post(&format!("{broker}/credentials"), json!({ "user": "a" })).await.is(StatusCode::CREATED);
    let name = ann.get(&broker).await.text("/name").to_owned();
    let name = name.as_bytes();
    let aged = region.store.run(|tx| async move {
        let all = accounts::credentials(catalog::get(&tx, name, Read::Snapshot).await?.unwrap().id);
        let record = all.get::<Credential>(&tx, b"a", Read::Serializable).await?.unwrap().value;
        let rules = vec![Rule::new(Effect::Allow, Action::All, &"a".repeat(60_000)); 20];
        all.put(&tx, b"a", &Credential { rules, ..record }).await
    });
    aged.await.unwrap();
    let shown = ann.get(&path).await;
    assert_eq!(shown.is(StatusCode::OK).body["rules"].as_array().unwrap().len(), 20);
    let same = json!({ "enabled": true, "rules": shown.body["rules"] });
    ann.put(&path, "*", same).await.is(StatusCode::OK);
    ann.post(&format!("{path}/rotate"), json!({ "scram": false })).await.is(StatusCode::OK);
    let fewer = json!({ "enabled": true, "rules": shown.body["rules"].as_array().unwrap()[..19] });
    ann.put(&path, "*", fewer).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    ann.put(&path, "*", json!({ "enabled": true })).await.is(StatusCode::OK);
}

#[tokio::test]
async fn the_receipt_of_a_request_without_a_key_has_no_copy_of_its_answer() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let rules = json!(vec![json!({ "effect": "allow", "action": "all", "filter": "a".repeat(3_000) }); 5]);
    let named = ann.with("idempotency-key", "k");
    named.post(&format!("{broker}/credentials"), json!({ "user": "a", "rules": rules })).await;
    ann.post(&format!("{broker}/credentials/a/rotate"), json!({ "scram": false })).await.is(StatusCode::OK);
    ann.put(&format!("{broker}/credentials/a"), "*", json!({ "enabled": true, "rules": rules })).await;
    let read = region
        .store
        .run(|tx| async move { accounts::receipts().page::<Value>(&tx, None, 1_000, Read::Snapshot).await });
    let receipts = read.await.unwrap().items;
    let long = receipts.iter().filter(|(_, receipt)| receipt.value.to_string().len() > 1_000);
    assert_eq!(long.count(), 1, "the named one alone");
}
