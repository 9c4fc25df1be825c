//! Routes to sign in with an OpenID Connect provider, and to connect its accounts to a person.
//!
//! A request sends the browser to the provider with a cookie that holds a secret and the purpose. The provider sends
//! the browser back to the callback, which checks the cookie, and then either signs the person in or asks them to
//! confirm the account.

mod window;

use std::net::IpAddr;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::cookie::{self, Cookie};
use super::extract::{AuthenticatedCaller, CallerSource, Input, Path, Query, SourceAddress};
use super::headers::location;
use super::problem::{ApiResult, Problem};
use super::{Api, List, accounts::with_cookie};
use crate::domain::{ConnectIdentity, LinkedIdentity, Page, Principal, RequestSource, SignUpBy};
use crate::limits::UNAUTHENTICATED_BODY_BYTES_MAX;
use crate::oidc::{OidcError, Provider};
use crate::secret::{self, Secret};

/// Purpose in the cookie: to connect an account; any other is to sign in.
const CONNECT: &str = "connect";
/// Purpose in the cookie: to sign in, and to open a page of the console afterwards.
const OPEN: &str = "open";
const TO_CONFIRM: &str = "/me?identity=pending";

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(ways))
        .routes(routes!(begin, begin_with))
        .routes(routes!(finish))
        .routes(routes!(list_identities, connect_identity))
        .routes(routes!(pending_identity, confirm_identity))
        .routes(routes!(disconnect_identity))
}

/// How people sign in here.
#[derive(Serialize, ToSchema)]
pub(crate) struct Ways {
    /// Whether accounts are by invitation only.
    sign_up: WhoSignsUp,
    /// The provider that people can also sign in with: GET /sign-in/oidc.
    provider: Option<ProviderName>,
    /// Whether the owner of this machine can sign in with the link that the server printed: POST /sign-in/local.
    local: bool,
    /// Whether the server mails links, such as for a new password: POST /password-reset. Otherwise the operator makes that link, and
    /// passes on links that confirm an e-mail address, which the server's log has.
    password_reset: bool,
    /// Origin of the pages on which people sign in with a passkey: POST /sign-in/passkey. Null: passkeys do not work here.
    #[schema(example = "https://console.example.org")]
    passkey_origin: Option<String>,
}

/// People who may create an account.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WhoSignsUp {
    /// People with an invitation.
    Invited,
    /// Everybody.
    Anybody,
}

/// An OpenID Connect provider.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProviderName {
    name: String,
}

/// Request to sign in with the provider by an invitation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BeginWith {
    /// Secret of the invitation, or of the first start.
    #[schema(value_type = Option<String>, format = Password)]
    token: Option<Secret>,
}

/// The URL to continue at.
#[derive(Serialize, ToSchema)]
pub(crate) struct GoOn {
    location: String,
}

/// `token` and `connect` are of earlier versions; callers now send them in a POST.
#[derive(Deserialize, IntoParams)]
struct BeginParameters {
    next: Option<String>,
    #[param(value_type = Option<String>)]
    token: Option<serde::de::IgnoredAny>,
    #[param(value_type = Option<String>)]
    connect: Option<serde::de::IgnoredAny>,
}

/// Parameters of the provider's redirect (RFC 6749 section 4.1.2, RFC 9207).
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Back {
    #[param(value_type = Option<String>)]
    code: Option<Secret>,
    /// The `state` of the authorization request.
    state: Option<String>,
    /// Issuer identifier of the provider.
    iss: Option<String>,
    /// Error code, instead of `code`.
    error: Option<String>,
    error_description: Option<String>,
}

/// How people sign in here.
#[utoipa::path(get, path = "/sign-in/ways", tag = "people", security(()),
    responses((status = 200, description = "The ways", body = Ways)))]
async fn ways(State(api): State<Api>) -> Json<Ways> {
    let sign_up = match api.control().sign_up_by() {
        SignUpBy::Invitation => WhoSignsUp::Invited,
        SignUpBy::Anybody | SignUpBy::Confirmed => WhoSignsUp::Anybody,
    };
    let name = |provider: &Provider| ProviderName { name: provider.settings().name.clone() };
    Json(Ways {
        sign_up,
        provider: api.provider().map(name),
        local: api.local_door().is_some(),
        password_reset: api.control().can_send_mail(),
        passkey_origin: api.control().passkey_origin(),
    })
}

/// Sends a browser to the provider, to sign in.
#[utoipa::path(get, path = "/sign-in/oidc", tag = "people", security(()),
    params(("next" = Option<String>, Query, description = "Path of the console that opens after the sign-in.")),
    responses((status = 303, description = "Go to the provider"),
        (status = 404, description = "There is none here", body = Problem, content_type = "application/problem+json")))]
async fn begin(
    State(api): State<Api>,
    SourceAddress(address): SourceAddress,
    headers: HeaderMap,
    Query(parameters): Query<BeginParameters>,
) -> Response {
    window::shown(&headers, to_provider(&api, address, parameters).await)
}

async fn to_provider(
    api: &Api,
    address: Option<IpAddr>,
    BeginParameters { next, token, connect }: BeginParameters,
) -> ApiResult<(StatusCode, HeaderMap)> {
    // Otherwise a link on another site could make a browser join an organisation or connect an account.
    if token.is_some() {
        let detail = "an invitation is taken from its page: POST /sign-in/oidc with the token";
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    if connect.is_some() {
        let detail =
            "an account of a provider is connected from the page of your account: POST /me/identities";
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    api.rates().unauthenticated(address)?;
    let with = next.as_deref().and_then(window::encoded);
    let errand = if with.is_some() { OPEN } else { "sign-in" };
    let (to, mut headers) = leave(api, &journey()?, errand, &with.unwrap_or_default()).await?;
    let broken = |_| {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the configuration of your provider has no valid authorization_endpoint: report this to the operator",
        )
    };
    headers.insert(header::LOCATION, HeaderValue::from_str(&to).map_err(broken)?);
    Ok((StatusCode::SEE_OTHER, headers))
}

/// Begins a sign-in with the provider by an invitation. Only this server's pages can send it, because browsers let no
/// other site send JSON here.
#[utoipa::path(post, path = "/sign-in/oidc", tag = "people", security(()), request_body = BeginWith,
    responses((status = 200, description = "Send the browser there", body = GoOn),
        (status = 404, description = "There is none here", body = Problem, content_type = "application/problem+json")))]
async fn begin_with(
    State(api): State<Api>,
    SourceAddress(address): SourceAddress,
    Input { value, .. }: Input<BeginWith, UNAUTHENTICATED_BODY_BYTES_MAX>,
) -> ApiResult<(HeaderMap, Json<GoOn>)> {
    api.rates().unauthenticated(address)?;
    let token = value.token.as_ref().map_or("", Secret::expose);
    // The token is stored in a cookie, which a semicolon would end.
    if !token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        return Err(Problem::field("token", "is not the token of an invitation"));
    }
    let (location, headers) = leave(&api, &journey()?, "sign-in", token).await?;
    Ok((headers, Json(GoOn { location })))
}

/// Returns the URL to send the browser to, and sets the cookie with the purpose of its return.
async fn leave(api: &Api, journey: &Secret, errand: &str, with: &str) -> ApiResult<(String, HeaderMap)> {
    let provider = provider(api)?;
    let (flow, now_s) = (api.control().oidc_flow(journey)?, api.control().now_ms() / 1_000);
    let to = provider.begin(&flow, errand == CONNECT, now_s).await?;
    let note = Secret::from(format!("{}.{errand}.{with}", journey.expose()).as_str());
    let mut headers = HeaderMap::new();
    with_cookie(api, &mut headers, Cookie::Oidc, Some(&note))?;
    Ok((to, headers))
}

fn journey() -> ApiResult<Secret> {
    Ok(secret::generate().map_err(crate::domain::Error::from)?)
}

/// Signs in a browser that the provider has sent back.
#[utoipa::path(get, path = "/sign-in/oidc/callback", tag = "people", security(()), params(Back),
    responses((status = 303, description = "You are signed in, or are asked for a confirmation: go to the console"),
        (status = 404, description = "There is no provider here", body = Problem, content_type = "application/problem+json")))]
async fn finish(
    State(api): State<Api>,
    CallerSource(source): CallerSource,
    headers: HeaderMap,
    Query(back): Query<Back>,
) -> Response {
    window::shown(&headers, from_provider(&api, &source, &headers, back).await)
}

async fn from_provider(
    api: &Api,
    source: &RequestSource,
    headers: &HeaderMap,
    back: Back,
) -> ApiResult<(StatusCode, HeaderMap)> {
    let provider = provider(api)?;
    api.rates().password(source.address)?;
    let note = cookie::read(headers, Cookie::Oidc, api.is_secure()).ok_or_else(not_begun)?;
    let mut parts = note.expose().splitn(3, '.');
    let (Some(secret), Some(errand), Some(with)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(not_begun());
    };
    let flow = api.control().oidc_flow(&Secret::from(secret))?;
    let state = back.state.unwrap_or_default();
    if !bool::from(state.as_bytes().ct_eq(flow.state.expose().as_bytes())) {
        return Err(not_begun());
    }
    if back.iss.is_some_and(|issuer| issuer != provider.settings().issuer) {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "the answer comes from another provider than the one of this server: begin the sign-in again",
        ));
    }
    let Some(code) = back.code else {
        let said = [back.error, back.error_description].into_iter().flatten().collect::<Vec<_>>().join(", ");
        let detail = format!("your provider has not signed you in: {said}");
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    };
    let visitor = provider.finish(&flow, code.expose(), api.control().now_ms() / 1_000).await?;
    if errand == CONNECT {
        // The browser may be signed in at the provider as another person, so the person must look at the account first.
        let user = api.control().permitted(with, &Secret::from(secret))?.ok_or_else(not_begun)?;
        let link = api.control().link(user, visitor)?;
        let mut headers = HeaderMap::from_iter([(header::LOCATION, HeaderValue::from_static(TO_CONFIRM))]);
        with_cookie(api, &mut headers, Cookie::Link, Some(&link))?;
        with_cookie(api, &mut headers, Cookie::Oidc, None)?;
        return Ok((StatusCode::SEE_OTHER, headers));
    }
    let token = Some(with).filter(|token| errand != OPEN && !token.is_empty()).map(Secret::from);
    let signed_in = api.control().welcome(&visitor, token.as_ref(), source).await?;
    let page = Some(with).filter(|_| errand == OPEN).and_then(window::page);
    let page = page.unwrap_or(HeaderValue::from_static("/"));
    let mut headers = HeaderMap::from_iter([(header::LOCATION, page)]);
    with_cookie(api, &mut headers, Cookie::SignIn, Some(&signed_in.secret))?;
    with_cookie(api, &mut headers, Cookie::Oidc, None)?;
    Ok((StatusCode::SEE_OTHER, headers))
}

/// Your identities: accounts of the provider that you sign in with.
#[utoipa::path(get, path = "/me/identities", tag = "people",
    responses((status = 200, description = "Identities", body = List<LinkedIdentity>)))]
async fn list_identities(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
) -> ApiResult<Json<List<LinkedIdentity>>> {
    let items = api.control().identities(&caller).await?;
    Ok(List::of(Page { items, next: None }))
}

/// Begins to connect an account of the provider. The browser goes there, comes back to the console, and you confirm.
/// Send the password if you have signed in more than 10 minutes ago.
#[utoipa::path(post, path = "/me/identities", tag = "people", request_body = ConnectIdentity,
    responses((status = 200, description = "Send the browser there", body = GoOn),
        (status = 404, description = "There is no provider here", body = Problem, content_type = "application/problem+json")))]
async fn connect_identity(
    State(api): State<Api>,
    SourceAddress(address): SourceAddress,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Input { value, .. }: Input<ConnectIdentity>,
) -> ApiResult<(HeaderMap, Json<GoOn>)> {
    let Principal::Person { user, .. } = &caller.who else {
        return Err(Problem::new(StatusCode::FORBIDDEN, "only people have identities: sign in"));
    };
    provider(&api)?;
    if value.password.is_some() {
        api.rates().password(address)?;
    }
    api.control().may_connect(&caller, &value).await?;
    let journey = journey()?;
    let (location, headers) = leave(&api, &journey, CONNECT, &api.control().permit(*user, &journey)?).await?;
    Ok((headers, Json(GoOn { location })))
}

/// The account of the provider that you have yet to confirm.
#[utoipa::path(get, path = "/me/identities/pending", tag = "people",
    responses((status = 200, description = "The account", body = LinkedIdentity),
        (status = 404, description = "No account of a provider waits", body = Problem, content_type = "application/problem+json")))]
async fn pending_identity(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    headers: HeaderMap,
) -> ApiResult<Json<LinkedIdentity>> {
    Ok(Json(api.control().pending(&caller, &link(&api, &headers)?)?))
}

/// Confirms the pending account, so that you can sign in with it.
#[utoipa::path(post, path = "/me/identities/pending", tag = "people",
    responses((status = 201, description = "The identity", body = LinkedIdentity),
        (status = 404, description = "No account of a provider waits", body = Problem, content_type = "application/problem+json")))]
async fn confirm_identity(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    headers: HeaderMap,
) -> ApiResult<impl IntoResponse> {
    let identity = api.control().confirm(&caller, &link(&api, &headers)?).await?;
    let mut headers = HeaderMap::new();
    with_cookie(&api, &mut headers, Cookie::Link, None)?;
    Ok((StatusCode::CREATED, headers, location(&["me", "identities", &identity.id]), Json(identity)))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct AtIdentity {
    identity: String,
}

/// Removes an identity, so that you no longer sign in with it.
#[utoipa::path(delete, path = "/me/identities/{identity}", tag = "people", params(AtIdentity),
    responses((status = 204, description = "It is removed")))]
async fn disconnect_identity(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(AtIdentity { identity }): Path<AtIdentity>,
) -> ApiResult<StatusCode> {
    api.control().disconnect(&caller, &identity).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn link(api: &Api, headers: &HeaderMap) -> ApiResult<Secret> {
    let detail = "no account of a provider waits for your confirmation: sign in with the provider again";
    let none = || Problem::new(StatusCode::NOT_FOUND, detail);
    cookie::read(headers, Cookie::Link, api.is_secure()).ok_or_else(none)
}

fn provider(api: &Api) -> ApiResult<&Provider> {
    let none = || {
        Problem::new(
            StatusCode::NOT_FOUND,
            "sign in with a password: this server has no provider, which its operator names with the setting oidc_issuer",
        )
    };
    api.provider().ok_or_else(none)
}

fn not_begun() -> Problem {
    let detail = "this sign-in was not begun in this browser, or more than ten minutes ago: begin it again";
    Problem::new(StatusCode::FORBIDDEN, detail)
}

impl std::convert::From<OidcError> for Problem {
    fn from(error: OidcError) -> Self {
        tracing::warn!(%error, "a sign-in with the provider failed: check the provider and the settings oidc_*");
        let status = match error {
            OidcError::Call { .. } | OidcError::Answer { .. } => StatusCode::SERVICE_UNAVAILABLE,
            OidcError::Status { status, .. } if status.is_server_error() => StatusCode::SERVICE_UNAVAILABLE,
            OidcError::Status { .. } | OidcError::Token(_) => StatusCode::FORBIDDEN,
        };
        Self::new(status, error.to_string())
    }
}
