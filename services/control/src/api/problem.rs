//! Errors in the form of RFC 9457, `application/problem+json`, for each answer with a status of 400 or more.

use std::borrow::Cow;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tracing::error;
use utoipa::ToSchema;
use uuid::Uuid;

use super::request_id;
use crate::domain::{Error, PasskeyRequest};
use crate::limits::{PROBLEM_BYTES_MAX, QUOTED_BYTES_MAX};
use crate::live::LiveError;
use millrace_layers::LayerError;
use millrace_storage::StoreError;

/// An error: its kind, its meaning and what to do.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The kind of problem. It never changes, while texts may.
    #[serde(rename = "type")]
    #[schema(example = "urn:millrace:problem:not-found")]
    kind: String,
    title: &'static str,
    status: u16,
    /// The error of this request, and what to do.
    detail: String,
    /// Invalid fields or query parameters of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fields: Vec<WrongField>,
    /// With `second-factor-required`, for an account with passkeys: the challenge for one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    passkey: Option<Box<PasskeyRequest>>,
    /// With a status of 500 or more: the id of the request, by which the server's log names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    request_id: Option<Box<Uuid>>,
    #[serde(skip)]
    retry_after_s: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WrongField {
    /// Its path in the JSON, or the name of the query parameter.
    #[schema(example = "rules[2].filter")]
    field: String,
    detail: String,
}

impl WrongField {
    /// Shortens both texts, because they may quote the request.
    fn new(field: &str, detail: &str) -> Self {
        let field = quoted(field).into_owned();
        Self { field, detail: start_of(detail, PROBLEM_BYTES_MAX).into_owned() }
    }
}

/// A text of the request as an answer quotes it: whole if it is short, or else its start.
pub(super) fn quoted(text: &str) -> Cow<'_, str> {
    start_of(text, QUOTED_BYTES_MAX)
}

fn start_of(text: &str, bytes_max: usize) -> Cow<'_, str> {
    match text.len() <= bytes_max {
        true => text.into(),
        false => format!("{}...", &text[..text.floor_char_boundary(bytes_max)]).into(),
    }
}

/// Seconds after which to try again, where the server knows no better time.
const RETRY_AFTER_S: u32 = 5;

/// The detail of a problem of status 403, for the audit log; an extension of the response.
#[derive(Clone)]
pub(crate) struct DenialReason(pub(crate) String);

pub(crate) type ApiResult<T> = Result<T, Problem>;

impl Problem {
    /// All kinds of problems: status, name, title; the first kind of a status is its default.
    pub(crate) const KINDS: [(StatusCode, &'static str, &'static str); 18] = [
        (StatusCode::BAD_REQUEST, "bad-request", "The request cannot be read"),
        (StatusCode::UNAUTHORIZED, "unauthenticated", "You are not signed in"),
        (StatusCode::FORBIDDEN, "forbidden", "You may not do that"),
        (StatusCode::NOT_FOUND, "not-found", "There is no such thing"),
        (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "This cannot be done here"),
        (StatusCode::REQUEST_TIMEOUT, "timeout", "The request took too long"),
        (StatusCode::CONFLICT, "conflict", "It goes against what is there"),
        (StatusCode::PRECONDITION_FAILED, "changed", "It was changed since you read it"),
        (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The request is too large"),
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", "The request is not JSON"),
        (StatusCode::UNPROCESSABLE_ENTITY, "invalid", "Some fields are not right"),
        (StatusCode::PRECONDITION_REQUIRED, "no-precondition", "Say which version you change"),
        (StatusCode::TOO_MANY_REQUESTS, "too-many-requests", "Too many requests"),
        (StatusCode::INTERNAL_SERVER_ERROR, "internal", "Something broke here"),
        (StatusCode::NOT_IMPLEMENTED, "not-implemented", "This server cannot do that yet"),
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "This does not work for the moment"),
        (StatusCode::UNAUTHORIZED, "second-factor-required", "The second factor is needed"),
        (StatusCode::UNAUTHORIZED, "second-factor-wrong", "The second factor is not right"),
    ];

    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let known = Self::KINDS.iter().find(|(of, ..)| *of == status);
        Self::of(known.copied().unwrap_or((status, "other", "It did not work")), detail)
    }

    pub(crate) fn is(&self, status: StatusCode) -> bool {
        self.status == status.as_u16()
    }

    fn named(name: &str, detail: impl Into<String>) -> Self {
        let known = Self::KINDS.iter().find(|(_, of, _)| *of == name);
        Self::of(
            known.copied().unwrap_or((StatusCode::INTERNAL_SERVER_ERROR, "other", "It did not work")),
            detail,
        )
    }

    fn of(
        (status, name, title): (StatusCode, &'static str, &'static str),
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind: format!("urn:millrace:problem:{name}"),
            title,
            status: status.as_u16(),
            detail: detail.into(),
            fields: Vec::new(),
            passkey: None,
            request_id: status.is_server_error().then(request_id::current).flatten().map(Box::new),
            retry_after_s: match status {
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Some(RETRY_AFTER_S),
                _ => None,
            },
        }
    }

    pub(crate) fn field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "some fields are not right").about(field, detail)
    }

    /// Also names an invalid field or parameter.
    pub(crate) fn about(mut self, field: impl Into<String>, detail: impl Into<String>) -> Self {
        self.fields.push(WrongField::new(&field.into(), &detail.into()));
        self
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.fields.extend(other.fields);
        self
    }

    pub(crate) fn later(seconds: u64) -> Self {
        let detail = format!("there were too many requests like this one: try again in {seconds} s");
        let retry_after_s = Some(u32::try_from(seconds).unwrap_or(u32::MAX));
        Self { retry_after_s, ..Self::new(StatusCode::TOO_MANY_REQUESTS, detail) }
    }

    pub(crate) fn limited(limit: &str, seconds: u64) -> Self {
        let detail = format!("the broker's limit {limit} is reached: try again in {seconds} s");
        Self { detail, ..Self::later(seconds) }
    }

    fn internal(what: &Error) -> Self {
        let request_id = request_id::current().map(tracing::field::display);
        error!(error = %what, request_id, "a request could not be answered: report it with this line");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the server's log says more: try again, or give request_id to the operator",
        )
    }

    fn away() -> Self {
        Self::soon("the store accepts no changes at the moment: try again, with the same Idempotency-Key")
    }

    /// The server has ended a request that took too long.
    pub(super) fn given_up() -> Self {
        Self::soon(
            "it was given up; whether it was done can be seen by reading, or by sending it again with its Idempotency-Key",
        )
    }

    fn soon(detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Error::CodeNeeded(asked) => {
                let passkey = asked.clone();
                return Self { passkey, ..Self::named("second-factor-required", error.to_string()) };
            }
            Error::CodeWrong | Error::PasskeyWrong(_) => {
                return Self::named("second-factor-wrong", error.to_string());
            }
            Error::TooManyCodes(seconds) | Error::TooMuchLogged(seconds) => {
                return Self { detail: error.to_string(), ..Self::later(*seconds) };
            }
            Error::Forbidden(_) => StatusCode::FORBIDDEN,
            Error::NotFound(_) => StatusCode::NOT_FOUND,
            Error::Conflict(_) => StatusCode::CONFLICT,
            Error::Changed => StatusCode::PRECONDITION_FAILED,
            Error::Invalid(_) | Error::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Error::Layer(LayerError::NameTooLong { .. } | LayerError::BodyTooLarge(_)) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Error::Layer(LayerError::Store(error)) if is_away(error) => return Self::away(),
            // The name is longer than any key of the store, so nothing has it.
            Error::Layer(LayerError::Store(StoreError::KeyNotAllowed(_))) => {
                return Self::new(StatusCode::NOT_FOUND, "there is no such thing");
            }
            Error::Layer(_) | Error::Internal(_) => return Self::internal(&error),
        };
        let problem = Self::new(status, error.to_string());
        match error {
            Error::Invalid(found) => {
                let fields = found.into_iter().map(|one| WrongField::new(&one.field, &one.what));
                Self { fields: fields.collect(), ..problem }
            }
            _ => problem,
        }
    }
}

impl Problem {
    /// The same as a page with a link that leads on, for a browser that a link or a redirect has sent here.
    pub(crate) fn into_page(self) -> Response {
        let detail = self.detail.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>It did not work</title>\n<h1>It did not work</h1>\n\
             <p>{}: {detail}.</p>\n<p><a href=\"/\">Go to the console</a></p>\n",
            self.title
        );
        let (mut parts, _) = self.into_response().into_parts();
        parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        parts.headers.remove(header::CONTENT_LENGTH);
        Response::from_parts(parts, Body::from(page))
    }
}

fn is_away(error: &StoreError) -> bool {
    error.is_retryable() || matches!(error, StoreError::DiskFull { .. } | StoreError::Closed)
}

impl From<LiveError> for Problem {
    fn from(error: LiveError) -> Self {
        let status = match &error {
            LiveError::NotWired => StatusCode::NOT_IMPLEMENTED,
            LiveError::NotFound(_) => StatusCode::NOT_FOUND,
            LiveError::Invalid { field, what } => return Self::field(*field, what.clone()),
            LiveError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            LiveError::Forbidden(_) => StatusCode::FORBIDDEN,
            LiveError::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after_s = self.retry_after_s;
        let denied = (status == StatusCode::FORBIDDEN).then(|| DenialReason(self.detail.clone()));
        let mut response = (status, Json(self)).into_response();
        if let Some(denied) = denied {
            response.extensions_mut().insert(denied);
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"millrace\""));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_says_later_says_when() {
        let header = |problem: Problem| problem.into_response().headers().get(header::RETRY_AFTER).cloned();
        for problem in [
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "full"),
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "full"),
            LiveError::Limited("full".into()).into(),
            LiveError::Unavailable("away".into()).into(),
            Problem::away(),
        ] {
            assert_eq!(header(problem).unwrap(), "5");
        }
        assert_eq!(header(Problem::later(7)).unwrap(), "7");
        assert_eq!(header(Problem::new(StatusCode::NOT_FOUND, "none")), None);
    }
}
