//! Which requests may use the operator API.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use subtle::ConstantTimeEq as _;

use super::Operators;
use crate::api::local::is_from_here;
use crate::api::problem::Problem;

/// Requires the operators' token. Without a token, only programs on this machine and the API's own pages have access.
pub(super) async fn authenticate(
    State(operators): State<Operators>,
    request: Request,
    next: Next,
) -> Response {
    use axum::response::IntoResponse as _;

    let refused = match &operators.0.token {
        Some(token) => {
            let shown = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
            let shown = shown.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
            let is_right: bool = shown.trim().as_bytes().ct_eq(token.expose().as_bytes()).into();
            (!is_right).then(|| {
                let detail = "send the operators' token: Authorization: Bearer TOKEN";
                Problem::new(StatusCode::UNAUTHORIZED, detail)
            })
        }
        None => (!is_from_own_page_or_program(&request)).then(|| {
            let detail = "without operator_token_file only programs on this machine and the pages of this port use the operator API";
            Problem::new(StatusCode::FORBIDDEN, detail)
        }),
    };
    match refused {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

/// Browsers send the origin of the page. A page on another port of this machine is foreign, though it shares the host
/// name.
fn is_from_own_page_or_program(request: &Request) -> bool {
    let site = request.headers().get("sec-fetch-site");
    site.is_none_or(|site| site == "same-origin" || site == "none")
        && is_from_here(peer(request.extensions()), request.headers())
}

fn peer(extensions: &axum::http::Extensions) -> Option<IpAddr> {
    extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip().to_canonical())
}

pub(super) struct Peer(pub(super) Option<IpAddr>);

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(peer(&parts.extensions)))
    }
}
