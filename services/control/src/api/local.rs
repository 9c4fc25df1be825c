//! Sign-in on the server's own machine by a link instead of a form.

use std::net::IpAddr;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use subtle::ConstantTimeEq as _;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::accounts::{WebSession, signed_in_answer};
use super::extract::{CallerSource, Input};
use super::problem::{ApiResult, Problem};
use crate::limits::UNAUTHENTICATED_BODY_BYTES_MAX;
use crate::secret::Secret;

/// Sign-in of this machine's owner, which exists only while all listeners of the server are on loopback
/// addresses.
#[derive(Clone, Debug)]
pub struct LocalDoor {
    /// The secret in the link that the server prints when it starts.
    pub token: Secret,
    /// Name of the machine, for the owner's organisation.
    pub machine: String,
}

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(sign_in_local))
}

/// Request to sign in as this machine's owner.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LocalSignIn {
    /// The text after `#local=` in the link that the server printed at its start.
    #[schema(value_type = String, format = Password)]
    token: Secret,
}

/// Signs in the owner of this machine, without a form. It works only while no other machine can reach the server.
#[utoipa::path(post, path = "/sign-in/local", tag = "people", security(()), request_body = LocalSignIn,
    responses((status = 200, description = "You are signed in", body = WebSession),
        (status = 404, description = "The server can be reached from elsewhere: sign in with an account", body = Problem,
            content_type = "application/problem+json")))]
async fn sign_in_local(
    State(api): State<Api>,
    CallerSource(source): CallerSource,
    headers: HeaderMap,
    Input { value, .. }: Input<LocalSignIn, UNAUTHENTICATED_BODY_BYTES_MAX>,
) -> ApiResult<(StatusCode, HeaderMap, Json<WebSession>)> {
    let Some(door) = api.local_door() else {
        let detail = "this server can be reached from elsewhere, so it asks for an account: POST /sign-in";
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    };
    if !is_from_here(source.address, &headers) {
        let detail =
            "only a browser on this machine, at http://127.0.0.1 or http://localhost, signs in this way";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    api.rates().password(source.address)?;
    if !bool::from(value.token.expose().as_bytes().ct_eq(door.token.expose().as_bytes())) {
        let detail = "this link is of an earlier start of the server: open the one that it printed when it started last";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, detail));
    }
    let signed_in = api.control().sign_in_machine_owner(&door.machine, &source).await?;
    signed_in_answer(&api, signed_in, StatusCode::OK)
}

/// Whether a program on this machine sent the request, to this machine by name. A page of another site can make a
/// browser send requests here (DNS rebinding), but not with our host name. A proxy on this machine is recognised by its
/// forwarding header.
pub(super) fn is_from_here(address: Option<IpAddr>, headers: &HeaderMap) -> bool {
    let forwards = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
    let mut names = headers.get_all(header::HOST).iter();
    let (host, no_other) = (names.next(), names.next().is_none());
    let is_ours = |value: &header::HeaderValue| value.to_str().is_ok_and(is_loopback_authority);
    let is_own_page = |value: &header::HeaderValue| {
        value
            .to_str()
            .ok()
            .and_then(|origin| origin.strip_prefix("http://"))
            .is_some_and(is_loopback_authority)
    };
    address.is_some_and(|address| address.is_loopback())
        && no_other
        && host.is_some_and(is_ours)
        && headers.get(header::ORIGIN).is_none_or(is_own_page)
        && !forwards.iter().any(|name| headers.contains_key(*name))
}

/// Whether a request names this machine: its one `Host` is `localhost` or a loopback address, or it has none.
#[must_use]
pub fn is_loopback_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let is_ours = hosts.next().is_none_or(|host| host.to_str().is_ok_and(is_loopback_authority));
    is_ours && hosts.next().is_none()
}

fn is_loopback_authority(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<axum::http::uri::Authority>() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let is_plain = !authority.as_str().contains('@');
    is_plain
        && (host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comes(address: &str, headers: &[(&'static str, &str)]) -> bool {
        let all = headers.iter().map(|(name, value)| {
            (header::HeaderName::from_static(name), header::HeaderValue::from_str(value).unwrap())
        });
        let mut map = HeaderMap::new();
        all.for_each(|(name, value)| {
            map.append(name, value);
        });
        is_from_here(Some(address.parse().unwrap()), &map)
    }

    #[test]
    fn only_a_browser_of_this_machine_that_means_this_machine_is_from_here() {
        for host in ["127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "127.9.9.9"] {
            assert!(comes("127.0.0.1", &[("host", host)]), "{host}");
            assert!(comes("127.0.0.1", &[("host", host), ("origin", &format!("http://{host}"))]), "{host}");
        }
        let host = ("host", "127.0.0.1:8080");
        for (address, headers) in [
            ("192.0.2.1", vec![host]),
            ("127.0.0.1", vec![]),
            ("127.0.0.1", vec![("host", "evil.example:8080")]),
            ("127.0.0.1", vec![("host", "127.0.0.1.evil.example")]),
            ("127.0.0.1", vec![("host", "127.0.0.1@evil.example")]),
            ("127.0.0.1", vec![host, ("host", "evil.example")]),
            ("127.0.0.1", vec![host, ("origin", "http://evil.example")]),
            ("127.0.0.1", vec![host, ("origin", "https://127.0.0.1.evil.example")]),
            ("127.0.0.1", vec![host, ("origin", "null")]),
            ("127.0.0.1", vec![host, ("x-forwarded-for", "192.0.2.1")]),
            ("127.0.0.1", vec![host, ("forwarded", "for=192.0.2.1")]),
        ] {
            assert!(!comes(address, &headers), "{address} {headers:?}");
        }
    }
}
