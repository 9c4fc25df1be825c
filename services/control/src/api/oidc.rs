//! Signing in with a provider: there, and back.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::cookie::{self, Cookie};
use super::extract::{Coming, From, Query};
use super::problem::{Answer, Problem};
use super::{Api, accounts::with_cookie};
use crate::domain::{Errand, SignUpBy};
use crate::oidc::{OidcError, Provider};
use crate::secret::{self, Secret};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(ways)).routes(routes!(begin)).routes(routes!(finish))
}

/// How people sign in here.
#[derive(Serialize, ToSchema)]
pub(crate) struct Ways {
    /// Who may make an account.
    sign_up: WhoSignsUp,
    /// The provider that one can sign in with, too: GET /sign-in/oidc.
    provider: Option<ProviderName>,
    /// Whether the owner of this machine signs in with the link that the server printed: POST /sign-in/local.
    local: bool,
}

/// Who may make an account.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WhoSignsUp {
    /// Who has an invitation.
    Invited,
    /// Everybody.
    Anybody,
}

/// A provider.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProviderName {
    /// What it is called.
    name: String,
}

/// What somebody goes to the provider for.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Begin {
    /// The secret of an invitation, or of the first start.
    #[param(value_type = Option<String>)]
    token: Option<Secret>,
    /// Who is signed in wants to sign in this way, too, from now on.
    #[serde(default)]
    connect: bool,
}

/// What the provider sends a browser back with (RFC 6749 section 4.1.2, RFC 9207).
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Back {
    /// What the token is had for.
    #[param(value_type = Option<String>)]
    code: Option<Secret>,
    /// As it was sent there.
    state: Option<String>,
    /// Who the provider is.
    iss: Option<String>,
    /// Why there is no code.
    error: Option<String>,
    /// The same, for people.
    error_description: Option<String>,
}

/// How people sign in here.
#[utoipa::path(get, path = "/sign-in/ways", tag = "people", security(()),
    responses((status = 200, description = "The ways", body = Ways)))]
async fn ways(State(api): State<Api>) -> Json<Ways> {
    let sign_up = match api.control().sign_up_by() {
        SignUpBy::Invitation => WhoSignsUp::Invited,
        SignUpBy::Anybody => WhoSignsUp::Anybody,
    };
    let name = |provider: &Provider| ProviderName { name: provider.settings().name.clone() };
    Json(Ways { sign_up, provider: api.provider().map(name), local: api.local_door().is_some() })
}

/// Sends a browser to the provider.
#[utoipa::path(get, path = "/sign-in/oidc", tag = "people", security(()), params(Begin),
    responses((status = 303, description = "Go to the provider"),
        (status = 404, description = "There is none here", body = Problem, content_type = "application/problem+json")))]
async fn begin(
    State(api): State<Api>,
    From(address): From,
    Query(Begin { token, connect }): Query<Begin>,
) -> Answer<(StatusCode, HeaderMap)> {
    let provider = provider(&api)?;
    api.rates().stranger(address)?;
    let secret = secret::generate().map_err(crate::domain::Error::from)?;
    let to = provider.begin(&api.control().oidc_flow(&secret)?).await?;
    let errand = if connect { "connect" } else { "sign-in" };
    let token = token.as_ref().map_or("", Secret::expose);
    // It stands in a cookie, where a semicolon would end it.
    if !token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "the token is none that an invitation has"));
    }
    let note = Secret::from(format!("{}.{errand}.{token}", secret.expose()).as_str());
    let mut headers = HeaderMap::new();
    let broken = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "your provider names no place to go to");
    headers.insert(header::LOCATION, HeaderValue::from_str(&to).map_err(broken)?);
    with_cookie(&api, &mut headers, Cookie::Oidc, Some(&note))?;
    Ok((StatusCode::SEE_OTHER, headers))
}

/// Takes a browser back from the provider, and signs it in.
#[utoipa::path(get, path = "/sign-in/oidc/callback", tag = "people", security(()), params(Back),
    responses((status = 303, description = "You are signed in: go to the console"),
        (status = 404, description = "There is no provider here", body = Problem, content_type = "application/problem+json")))]
async fn finish(
    State(api): State<Api>,
    Coming(source): Coming,
    headers: HeaderMap,
    Query(back): Query<Back>,
) -> Answer<(StatusCode, HeaderMap)> {
    let provider = provider(&api)?;
    api.rates().password(source.address)?;
    let note = cookie::read(&headers, Cookie::Oidc, api.is_secure()).ok_or_else(not_begun)?;
    let mut parts = note.expose().splitn(3, '.');
    let (Some(secret), Some(errand), Some(token)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(not_begun());
    };
    let flow = api.control().oidc_flow(&Secret::from(secret))?;
    let state = back.state.unwrap_or_default();
    if !bool::from(state.as_bytes().ct_eq(flow.state.expose().as_bytes())) {
        return Err(not_begun());
    }
    if back.iss.is_some_and(|issuer| issuer != provider.settings().issuer) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "another provider has sent you here"));
    }
    let Some(code) = back.code else {
        let said = [back.error, back.error_description].into_iter().flatten().collect::<Vec<_>>().join(", ");
        let detail = format!("your provider has not signed you in: {said}");
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    };
    let errand = if errand == "connect" {
        let shown = cookie::read(&headers, Cookie::SignIn, api.is_secure()).ok_or_else(not_begun)?;
        Errand::Connect(api.control().signed_in(&shown, source.address).await?)
    } else {
        Errand::SignIn(Some(token).filter(|token| !token.is_empty()).map(Secret::from))
    };
    let visitor = provider.finish(&flow, code.expose(), api.control().now_ms() / 1_000).await?;
    let signed_in = api.control().welcome(&visitor, &errand, &source).await?;
    let mut headers = HeaderMap::from_iter([(header::LOCATION, HeaderValue::from_static("/"))]);
    with_cookie(&api, &mut headers, Cookie::SignIn, Some(&signed_in.secret))?;
    with_cookie(&api, &mut headers, Cookie::Oidc, None)?;
    Ok((StatusCode::SEE_OTHER, headers))
}

fn provider(api: &Api) -> Answer<&Provider> {
    let none = || {
        Problem::new(
            StatusCode::NOT_FOUND,
            "one signs in with a password here: who runs this server can name a provider with the setting oidc_issuer",
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
        tracing::warn!(%error, "somebody could not sign in with the provider");
        let status = match error {
            OidcError::Call { .. } | OidcError::Answer { .. } => StatusCode::SERVICE_UNAVAILABLE,
            OidcError::Status { status, .. } if status.is_server_error() => StatusCode::SERVICE_UNAVAILABLE,
            OidcError::Status { .. } | OidcError::Token(_) => StatusCode::FORBIDDEN,
        };
        Self::new(status, error.to_string())
    }
}
