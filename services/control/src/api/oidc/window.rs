//! Pages of the browser's window around a sign-in with the provider: the one that opens afterwards, and that of a refusal.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::ApiResult;

const NEXT_BYTES_MAX: usize = 2_000;

/// A path of this server, as the cookie holds it. A browser reads `//host` and `/\host` as another server, and leaves out tabs.
pub(super) fn encoded(next: &str) -> Option<String> {
    let is_path = next.len() <= NEXT_BYTES_MAX
        && next.starts_with('/')
        && !next[1..].starts_with(['/', '\\'])
        && next.bytes().all(|byte| byte.is_ascii_graphic());
    is_path.then(|| URL_SAFE_NO_PAD.encode(next))
}

pub(super) fn page(with: &str) -> Option<HeaderValue> {
    let next = URL_SAFE_NO_PAD.decode(with).ok().and_then(|next| String::from_utf8(next).ok())?;
    encoded(&next)?;
    HeaderValue::from_str(&next).ok()
}

pub(super) fn shown(headers: &HeaderMap, answer: ApiResult<(StatusCode, HeaderMap)>) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    match answer {
        Ok(answer) => answer.into_response(),
        Err(problem) if accept.is_some_and(|accept| accept.contains("text/html")) => problem.into_page(),
        Err(problem) => problem.into_response(),
    }
}
