//! Which requests may use the operator API.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::Operators;
use crate::api::extract::single;
use crate::api::local::is_from_here;
use crate::api::problem::Problem;
use crate::domain::{Operator, shortened, shown_name};

/// Header with the operator's name, for the audit log. It counts where the request's token has no name.
const OPERATOR: HeaderName = HeaderName::from_static("millrace-operator");

/// Requires a token of an operator. Without tokens, only programs on this machine and the API's own pages have access.
pub(super) async fn authenticate(
    State(operators): State<Operators>,
    mut request: Request,
    next: Next,
) -> Response {
    use axum::response::IntoResponse as _;

    let operator = match &operators.0.tokens {
        Some(tokens) => single(request.headers(), header::AUTHORIZATION.as_str()).and_then(|shown| {
            let shown = shown.and_then(|value| value.to_str().ok());
            let shown = shown.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
            tokens.find(shown.trim()).cloned().ok_or_else(|| {
                let detail = "send the operators' token: Authorization: Bearer TOKEN";
                Problem::new(StatusCode::UNAUTHORIZED, detail)
            })
        }),
        None if is_from_own_page_or_program(&request) => Ok(None),
        None => {
            let detail = "without operator_token_file only programs on this machine and the pages of this port use the operator API";
            Err(Problem::new(StatusCode::FORBIDDEN, detail))
        }
    };
    match operator {
        Ok(name) => {
            request.extensions_mut().insert(TokenOf(name));
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

#[derive(Clone)]
struct TokenOf(Option<String>);

/// The operator of the request: named by the token, otherwise by the program itself.
pub(super) struct By(pub(super) Operator);

impl<S: Sync> FromRequestParts<S> for By {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let of_token = parts.extensions.get::<TokenOf>().and_then(|token| token.0.clone());
        let name = of_token.or_else(|| header(OPERATOR).and_then(shown_name));
        let agent = header(header::USER_AGENT).map(shortened);
        Ok(Self(Operator { name, address: peer(&parts.extensions), agent }))
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
