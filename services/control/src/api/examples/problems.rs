//! Examples of problems, by their kinds; a kind without a text in [`DETAILS`] has none.

use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Response};

use super::samples::UUID;
use crate::api::problem::Problem;

const DETAILS: &[(&str, &str)] = &[
    ("bad-request", "the query parameter \"limit\" must be between 1 and 200"),
    ("changed", "it was changed since you read it: read it again, and send its ETag with If-Match"),
    ("conflict", "there is a credential with this user name"),
    ("forbidden", "your role does not allow that"),
    ("internal", "the server's log says more: try again, or give request_id to the operator"),
    ("invalid", "some fields are not right"),
    ("method-not-allowed", "this path is there, and not for this method: see the header Allow"),
    ("no-precondition", "send If-Match with the ETag of what you have read; * changes whatever is there"),
    ("not-found", "there is no such broker"),
    ("not-implemented", "this server cannot do that yet"),
    ("not-json", "send JSON, with Content-Type: application/json"),
    ("second-factor-required", "send the code of your second factor as well"),
    ("second-factor-wrong", "the code is not right"),
    ("timeout", "the body did not come in time"),
    ("too-large", "this request has more than the 1300000 bytes that it may have"),
    ("too-many-requests", "there were too many requests like this one: try again in 5 s"),
    ("unauthenticated", "sign in, or send an API token: Authorization: Bearer mlr_..."),
    ("unavailable", "the store accepts no changes at the moment: try again, with the same Idempotency-Key"),
];

fn example(name: &str) -> Option<Value> {
    let (status, _, title) = Problem::KINDS.iter().find(|(_, of, _)| *of == name)?;
    let (_, detail) = DETAILS.iter().find(|(of, _)| *of == name)?;
    let mut problem = json!({
        "type": format!("urn:millrace:problem:{name}"),
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    });
    if name == "invalid" {
        problem["fields"] = json!([{ "field": "rules[2].filter", "detail": "is not a topic filter" }]);
    }
    if status.is_server_error() {
        problem["request_id"] = UUID.into();
    }
    Some(problem)
}

pub(in crate::api) fn show(name: &str, response: &mut Response) {
    for content in response.content.values_mut() {
        if let RefOr::T(content) = content {
            content.example = example(name);
        }
    }
}

/// Shows the default problem of a status where an operation describes its answer itself.
pub(super) fn show_default(status: &str, response: &mut Response) {
    let kind = Problem::KINDS.iter().find(|(of, ..)| of.as_str() == status);
    if let Some((_, name, _)) = kind {
        show(name, response);
    }
}
