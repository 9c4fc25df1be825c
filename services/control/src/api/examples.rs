//! Examples in the description of the API: of requests by operation, of answers from their schemas.

mod answers;
pub(super) mod problems;
mod samples;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Content, OpenApi, RefOr};

use crate::limits::DAY_MS;
use answers::Answers;

/// The field whose example cannot be a fixed time for long, because its time may not be far ahead.
const ENDS: (&str, &str, &str) = ("create_claim_token", "NewClaimToken", "expires_at_ms");
/// Days from now to the time in that example.
const ENDS_IN_DAYS: u64 = 30;

const EXAMPLES: &str = include_str!("examples.json");

pub(super) fn add(api: &mut OpenApi) {
    let examples: Map<String, Value> = serde_json::from_str(EXAMPLES).unwrap_or_default();
    let answers = Answers::new(api.components.as_ref());
    for operation in operations(api) {
        answers.add(operation);
        let example = operation.operation_id.as_ref().and_then(|id| examples.get(id));
        if let Some(example) = example {
            show(operation, example);
        }
    }
}

/// Replaces a time that would be over one day by a time after `now_ms`.
pub(super) fn dated(mut api: OpenApi, now_ms: u64) -> OpenApi {
    let (operation, schema, field) = ENDS;
    let at_ms = Value::from((now_ms / DAY_MS + ENDS_IN_DAYS) * DAY_MS);
    for operation in operations(&mut api).filter(|of| of.operation_id.as_deref() == Some(operation)) {
        if let Some(RefOr::T(body)) = &mut operation.request_body {
            for example in body.content.values_mut().filter_map(example_of) {
                example[field] = at_ms.clone();
            }
        }
    }
    let schemas = api.components.iter_mut().filter_map(|all| all.schemas.get_mut(schema));
    for schema in schemas {
        if let RefOr::T(Schema::Object(object)) = schema
            && let Some(RefOr::T(Schema::Object(field))) = object.properties.get_mut(field)
        {
            field.example = Some(at_ms.clone());
        }
    }
    api
}

fn operations(api: &mut OpenApi) -> impl Iterator<Item = &mut Operation> {
    api.paths.paths.values_mut().flat_map(|item| {
        [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete]
            .into_iter()
            .flatten()
    })
}

fn example_of(content: &mut RefOr<Content>) -> Option<&mut Value> {
    match content {
        RefOr::T(content) => content.example.as_mut(),
        RefOr::Ref(_) => None,
    }
}

fn show(operation: &mut Operation, example: &Value) {
    let Some(RefOr::T(body)) = &mut operation.request_body else { return };
    for content in body.content.values_mut() {
        if let RefOr::T(content) = content {
            content.example = Some(example.clone());
        }
    }
}
