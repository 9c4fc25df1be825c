//! Extractors of handlers: caller, body, path, page and version of a request. A wrong request becomes a [`Problem`].

use std::net::{IpAddr, SocketAddr};

use axum::body::Bytes;
use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, Request};
use axum::http::{HeaderMap, Method, StatusCode, header, request::Parts};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq as _;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::Api;
use super::body;
use super::cookie::{self, Cookie};
use super::guard::RequestNotes;
use super::json;
use super::problem::{ApiResult, Problem};
use super::query;
use crate::domain::{Caller, Once, PageRequest, Precondition, Principal, RequestSource, shortened};
use crate::limits::{
    BODY_BYTES_MAX, CURSOR_BYTES_MAX, IDEMPOTENCY_KEY_BYTES_MAX, PAGE_ROWS, PAGE_ROWS_MAX, SEARCH_BYTES_MAX,
};
use crate::secret::Secret;

/// Header that the console's scripts send with the web session's CSRF token.
pub(crate) const CSRF: &str = "x-csrf-token";

pub(crate) struct AuthenticatedCaller(pub(crate) Caller);

/// The address of the client, also behind a proxy.
pub(crate) struct SourceAddress(pub(crate) Option<IpAddr>);

pub(crate) struct CallerSource(pub(crate) RequestSource);

pub(crate) struct Path<T>(pub(crate) T);

pub(crate) struct Query<T>(pub(crate) T);

/// A JSON body of at most `MAX` bytes, and the name of the request.
pub(crate) struct Input<T, const MAX: usize = BODY_BYTES_MAX> {
    pub(crate) value: T,
    pub(crate) once: Once,
}

/// The version that the caller expects, from `If-Match` and `If-None-Match`.
pub(crate) struct SeenVersion(pub(crate) Precondition);

pub(crate) struct Paging(pub(crate) PageRequest);

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
}

/// The version to change.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "only described: the extractor reads the headers")]
pub(crate) struct IfMatch {
    /// `ETag` of the version that you have read; `*`: any version.
    #[param(rename = "If-Match", pattern = r#"^("[^"]*"|\*)$"#)]
    if_match: String,
}

/// The version to replace, or the absence of one.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "only described: the extractor reads the headers")]
pub(crate) struct IfMatchOrNone {
    /// `ETag` of the version to replace.
    #[param(rename = "If-Match", pattern = r#"^("[^"]*"|\*)$"#)]
    if_match: Option<String>,
    /// `*`: create it; the request fails if it exists.
    #[param(rename = "If-None-Match", pattern = r"^\*$")]
    if_none_match: Option<String>,
}

/// The name of a request.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "only described: the extractor reads the header")]
pub(crate) struct IdempotencyKey {
    /// A name for this request that you never use for another one, such as a random UUID. If you repeat the request
    /// within a day, the server does not perform it again, and returns the first answer.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
}

impl FromRequestParts<Api> for SourceAddress {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> ApiResult<Self> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip().to_canonical());
        let Some(peer) = peer.filter(|peer| api.is_proxy(*peer)) else { return Ok(Self(peer)) };
        Ok(Self(Some(behind_proxies(&parts.headers, peer, |address| api.is_proxy(address)))))
    }
}

/// Each proxy appends the address that it was called from. So the last address that is no proxy is the client: what stands before
/// it was written by the client. An address that cannot be read ends the search at the proxy after it.
fn behind_proxies(headers: &HeaderMap, peer: IpAddr, is_proxy: impl Fn(IpAddr) -> bool) -> IpAddr {
    let values = headers.get_all("x-forwarded-for").iter().rev();
    let hops = values.flat_map(|value| value.to_str().unwrap_or_default().rsplit(',').map(address));
    let mut client = peer;
    for hop in hops {
        let Some(hop) = hop else { break };
        client = hop;
        if !is_proxy(hop) {
            break;
        }
    }
    client
}

/// Some proxies write the port, too: `192.0.2.1:50122`, `[2001:db8::1]:50122`.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse::<SocketAddr>().map(|address| address.ip());
    bare.parse::<IpAddr>().or_else(|_| with_port()).ok().map(|address| address.to_canonical())
}

impl FromRequestParts<Api> for CallerSource {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> ApiResult<Self> {
        let SourceAddress(address) = SourceAddress::from_request_parts(parts, api).await?;
        let agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        Ok(Self(RequestSource { address, user_agent: agent.map(Into::into) }))
    }
}

impl FromRequestParts<Api> for AuthenticatedCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> ApiResult<Self> {
        let SourceAddress(address) = SourceAddress::from_request_parts(parts, api).await?;
        let shown = match single(&parts.headers, header::AUTHORIZATION.as_str())? {
            Some(value) => PresentedSecret::Token(bearer(value)?),
            None => PresentedSecret::Cookie(
                cookie::read(&parts.headers, Cookie::SignIn, api.is_secure()).ok_or_else(nobody)?,
            ),
        };
        let caller = match &shown {
            PresentedSecret::Token(token) => api.control().with_token(token, address).await,
            PresentedSecret::Cookie(secret) => api.control().signed_in(secret, address).await,
        };
        let agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let caller = match caller {
            Ok(caller) => Caller { agent: agent.map(shortened), ..caller },
            // Limits how fast an address can guess credentials.
            Err(error) => {
                api.rates().unauthenticated(address)?;
                return Err(error.into());
            }
        };
        if let (PresentedSecret::Cookie(_), Principal::Person { sign_in, .. }) = (&shown, &caller.who) {
            check_csrf(&parts.method, &parts.headers, &api.control().csrf(sign_in)?)?;
        }
        api.rates().request(caller.id(), caller.account())?;
        if let Some(known) = parts.extensions.get::<RequestNotes>() {
            if !parts.method.is_safe() {
                let _ = known.0.change.set(api.changes().take(&caller)?);
            }
            let _ = known.0.caller.set(caller.clone());
        }
        parts.extensions.insert(CallerId(caller.id()));
        Ok(Self(caller))
    }
}

/// Counts a change whose handler asks for no credentials, before its body is read; [`AuthenticatedCaller`] runs first and counts those of callers.
async fn take_unauthenticated_share(parts: &mut Parts, api: &Api) -> ApiResult<()> {
    let Some(RequestNotes(known)) = parts.extensions.get().cloned() else { return Ok(()) };
    if known.change.get().is_none() && !parts.method.is_safe() {
        let SourceAddress(address) = SourceAddress::from_request_parts(parts, api).await?;
        api.rates().unauthenticated(address)?;
        let _ = known.change.set(api.changes().take_unauthenticated(address)?);
    }
    Ok(())
}

/// Id of the caller, which the extractor of the body reads for [`Once`].
#[derive(Clone, Copy)]
struct CallerId(Uuid);

enum PresentedSecret {
    Token(Secret),
    Cookie(Secret),
}

fn bearer(value: &header::HeaderValue) -> ApiResult<Secret> {
    let text = value.to_str().ok().and_then(|text| text.split_once(' '));
    match text {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Secret::from(token.trim())),
        _ => Err(Problem::new(StatusCode::UNAUTHORIZED, "send an API token: Authorization: Bearer mlr_...")),
    }
}

fn nobody() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "sign in, or send an API token: Authorization: Bearer mlr_...")
}

/// Refuses a header that is there twice: a proxy and this server could each read another of its values.
pub(super) fn single<'h>(headers: &'h HeaderMap, name: &str) -> ApiResult<Option<&'h header::HeaderValue>> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(Problem::new(StatusCode::BAD_REQUEST, format!("send the header {name} only once"))),
    }
}

/// Another site can make a browser send our cookie, but not a header of ours.
fn check_csrf(method: &Method, headers: &HeaderMap, expected: &Secret) -> ApiResult<()> {
    if method.is_safe() {
        return Ok(());
    }
    let shown = single(headers, CSRF)?.map_or(&b""[..], header::HeaderValue::as_bytes);
    if shown.ct_eq(expected.expose().as_bytes()).into() {
        return Ok(());
    }
    let detail = "send what signing in answered as csrf_token in the header X-CSRF-Token";
    Err(Problem::new(StatusCode::FORBIDDEN, detail))
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        if let Some(wrong) = wrong_encoding(parts.uri.path()) {
            let detail = format!(
                "the path has a percent-encoding that cannot be read, at {wrong:?}: write a % as %25, and other characters as the \
                 bytes of their UTF-8"
            );
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        }
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        // Text that is no id gets the answer of an unknown id.
        path.map(|path| Self(path.0))
            .map_err(|_| Problem::new(StatusCode::NOT_FOUND, "there is no such thing"))
    }
}

/// The first segment of a path that is not percent-encoded UTF-8 (RFC 3986 section 2.1).
fn wrong_encoding(path: &str) -> Option<&str> {
    path.split('/').find(|segment| {
        let mut parts = segment.split('%');
        parts.next();
        let is_hex =
            |part: &str| part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
        !parts.all(is_hex) || percent_decode_str(segment).decode_utf8().is_err()
    })
}

impl<T: DeserializeOwned + IntoParams + Send> FromRequestParts<Api> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> ApiResult<Self> {
        query::parse(&parts.uri).map(Self)
    }
}

impl FromRequestParts<Api> for Paging {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> ApiResult<Self> {
        let Query(PageQuery { cursor, limit }) = Query::from_request_parts(parts, api).await?;
        let limit = limit.unwrap_or(PAGE_ROWS);
        if !(1..=PAGE_ROWS_MAX).contains(&limit) {
            return Err(query::wrong("limit", &format!("must be between 1 and {PAGE_ROWS_MAX}")));
        }
        let wrong = || query::wrong("cursor", "is not a cursor of a list");
        let decode =
            |cursor| URL_SAFE_NO_PAD.decode(cursor).ok().filter(|bytes| bytes.len() <= CURSOR_BYTES_MAX);
        let after = cursor.map(|cursor| decode(cursor).ok_or_else(wrong)).transpose()?;
        Ok(Self(PageRequest { after, limit }))
    }
}

/// The prefix that a search asks for. No name of the store is longer than this bound.
pub(crate) fn checked_search(search: Option<&str>) -> ApiResult<Option<&str>> {
    match search.is_some_and(|search| search.len() > SEARCH_BYTES_MAX) {
        true => Err(query::wrong("search", &format!("has more than {SEARCH_BYTES_MAX} bytes"))),
        false => Ok(search),
    }
}

impl FromRequestParts<Api> for SeenVersion {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> ApiResult<Self> {
        let header = |name: header::HeaderName| {
            let value = single(&parts.headers, name.as_str())?;
            Ok::<_, Problem>(value.map(|value| value.to_str().unwrap_or_default().trim()))
        };
        match (header(header::IF_MATCH)?, header(header::IF_NONE_MATCH)?) {
            (Some("*"), None) => Ok(Self(Precondition::Present)),
            (Some(tag), None) => version(tag).map(|version| Self(Precondition::Version(version))),
            (None, Some("*")) => Ok(Self(Precondition::Absent)),
            (None, None) => Err(Problem::new(
                StatusCode::PRECONDITION_REQUIRED,
                "send If-Match with the ETag of what you have read; * changes whatever is there",
            )),
            _ => Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "send If-Match with one ETag, or with *; or If-None-Match: * for what is new",
            )),
        }
    }
}

/// A foreign tag matches no version.
fn version(tag: &str) -> ApiResult<u64> {
    let inner = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).filter(|tag| !tag.contains('"'));
    let inner = inner.ok_or_else(|| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "If-Match takes one ETag as it was answered, with its quotes, or *",
        )
    })?;
    // An ETag is compared as text (RFC 9110 section 8.8.3): "+7" and "07" are none of version 7.
    let version = inner.parse::<u64>().ok().filter(|version| version.to_string() == inner);
    version.ok_or_else(|| {
        Problem::new(StatusCode::PRECONDITION_FAILED, "this is no ETag of what is there: read it again")
    })
}

pub(crate) fn etag(version: u64) -> [(header::HeaderName, String); 1] {
    [(header::ETAG, format!("\"{version}\""))]
}

impl<T: DeserializeOwned + ToSchema, const MAX: usize> FromRequest<Api> for Input<T, MAX> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> ApiResult<Self> {
        let (mut parts, unread) = request.into_parts();
        take_unauthenticated_share(&mut parts, api).await?;
        let is_json = parts.headers.get(header::CONTENT_TYPE).is_some_and(|value| {
            let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
            essence.eq_ignore_ascii_case("application/json")
        });
        if !is_json {
            let detail = "send JSON, with Content-Type: application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let mut encodings = parts.headers.get_all(header::CONTENT_ENCODING).iter();
        if !encodings.all(|value| value.as_bytes().eq_ignore_ascii_case(b"identity")) {
            let detail = "send the body as it is, without Content-Encoding";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let body = body::read(unread, MAX).await?;
        let once = once(&parts, &body)?;
        Ok(Self { value: json::parse(&body)?, once })
    }
}

impl FromRequestParts<Api> for Once {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> ApiResult<Self> {
        once(parts, &Bytes::new())
    }
}

fn once(parts: &Parts, body: &Bytes) -> ApiResult<Once> {
    let Some(key) = single(&parts.headers, "idempotency-key")? else {
        return Once::unnamed().map_err(|error| crate::domain::Error::from(error).into());
    };
    let key = key.to_str().ok().filter(|key| (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()));
    let key = key.ok_or_else(|| {
        let detail = format!("an Idempotency-Key has 1 to {IDEMPOTENCY_KEY_BYTES_MAX} printable characters");
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    let client = parts.extensions.get::<CallerId>().map_or(Uuid::nil(), |client| client.0);
    let mut fingerprint = blake3::Hasher::new();
    for part in [parts.method.as_str().as_bytes(), parts.uri.path().as_bytes(), body] {
        fingerprint.update(&(part.len() as u64).to_be_bytes()).update(part);
    }
    Ok(Once::named(client.as_bytes(), key, *fingerprint.finalize().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_client_behind_a_proxy_may_have_a_port() {
        for (text, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            (" 192.0.2.1:50122 ", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:50122", Some("2001:db8::1")),
            ("\"[2001:db8::1]:50122\"", Some("2001:db8::1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("unknown", None),
            ("192.0.2.1:", None),
            ("192.0.2.1:x", None),
            ("", None),
        ] {
            assert_eq!(address(text), expected.map(|address| address.parse().unwrap()), "{text}");
        }
    }
}
