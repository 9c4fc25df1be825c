//! Whole examples of requests in the description of the API, by operation.

use serde_json::{Map, Value};
use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi, RefOr};

const EXAMPLES: &str = include_str!("examples.json");

pub(super) fn add(api: &mut OpenApi) {
    let examples: Map<String, Value> = serde_json::from_str(EXAMPLES).unwrap_or_default();
    let operations = api.paths.paths.values_mut().flat_map(|item| {
        [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete]
            .into_iter()
            .flatten()
    });
    for operation in operations {
        let example = operation.operation_id.as_ref().and_then(|id| examples.get(id));
        if let Some(example) = example {
            show(operation, example);
        }
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
