//! Routes to sign up, in and out, and to read and change one's own account.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::cookie::{self, Cookie};
use super::extract::{
    AuthenticatedCaller, CallerSource, IdempotencyKey, Input, PageQuery, Paging, Path, SourceAddress,
};
use super::problem::{ApiResult, Problem};
use super::{Api, List};
use crate::domain::{
    Confirmation, Error, Me, NewPassword, Principal, SignIn, SignInSession, SignUp, SignedIn, SignedUp, User,
    UserChange,
};
use crate::limits::UNAUTHENTICATED_BODY_BYTES_MAX;
use crate::secret::Secret;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(sign_up))
        .routes(routes!(confirm_sign_up))
        .routes(routes!(sign_in))
        .routes(routes!(sign_out))
        .routes(routes!(get_me, change_me))
        .routes(routes!(change_password))
        .routes(routes!(list_web_sessions, end_other_web_sessions))
        .routes(routes!(end_web_session))
}

#[derive(Serialize, ToSchema)]
pub(crate) struct WebSession {
    #[serde(flatten)]
    me: Me,
    /// To be sent in the header X-CSRF-Token with each change. Null with an API token.
    #[schema(value_type = Option<String>)]
    csrf_token: Option<Secret>,
}

/// A link is on its way.
#[derive(Serialize, ToSchema)]
struct MailSent {
    email: String,
}

/// Makes an account, and signs it in.
#[utoipa::path(post, path = "/sign-up", tag = "people", security(()), params(IdempotencyKey), request_body = SignUp,
    responses((status = 201, description = "The new account", body = WebSession),
        (status = 202, description = "Where the server confirms addresses: a link was mailed, or printed on the server's log for the operator to pass on, and its page makes the account. It is the same whether or not the address has an account", body = MailSent)))]
async fn sign_up(
    State(api): State<Api>,
    CallerSource(source): CallerSource,
    Input { value, once }: Input<SignUp, UNAUTHENTICATED_BODY_BYTES_MAX>,
) -> ApiResult<Response> {
    api.rates().password(source.address)?;
    let reveals = api.control().reveals_accounts();
    if reveals {
        api.rates().revealing_sign_up(source.address)?;
    }
    let signed_up = api.control().sign_up(&value, &once, &source).await;
    if reveals && matches!(signed_up, Err(Error::Conflict(_))) {
        api.rates().account_revealed(source.address);
    }
    match signed_up? {
        SignedUp::In(signed_in) => {
            Ok(signed_in_answer(&api, *signed_in, StatusCode::CREATED)?.into_response())
        }
        SignedUp::Asked(mail) => {
            // The answer is the same, so that it does not reveal sign-ups of others with this address.
            if api.rates().mail(&mail.to) {
                api.control().mail(mail);
            }
            Ok((StatusCode::ACCEPTED, Json(MailSent { email: value.email })).into_response())
        }
    }
}

/// Makes the account of a sign-up that was confirmed by mail, and signs it in.
#[utoipa::path(post, path = "/sign-up/confirm", tag = "people", security(()), request_body = Confirmation,
    responses((status = 201, description = "The new account", body = WebSession)))]
async fn confirm_sign_up(
    State(api): State<Api>,
    CallerSource(source): CallerSource,
    Input { value, .. }: Input<Confirmation, UNAUTHENTICATED_BODY_BYTES_MAX>,
) -> ApiResult<(StatusCode, HeaderMap, Json<WebSession>)> {
    api.rates().password(source.address)?;
    let signed_in = api.control().confirm_sign_up(&value, &source).await?;
    signed_in_answer(&api, signed_in, StatusCode::CREATED)
}

/// Signs in.
#[utoipa::path(post, path = "/sign-in", tag = "people", security(()), request_body = SignIn,
    responses((status = 200, description = "The account that signed in", body = WebSession),
        (status = 401, description = "The password is not right; or it is, and the type of the problem is `urn:millrace:problem:second-factor-required` or `urn:millrace:problem:second-factor-wrong`: repeat the request with `code`, or with `passkey`", body = Problem, content_type = "application/problem+json")))]
async fn sign_in(
    State(api): State<Api>,
    CallerSource(source): CallerSource,
    Input { value, .. }: Input<SignIn, UNAUTHENTICATED_BODY_BYTES_MAX>,
) -> ApiResult<(StatusCode, HeaderMap, Json<WebSession>)> {
    api.rates().password(source.address)?;
    let has_signed_in = api.control().has_signed_in_from(&value.email, source.address);
    api.rates().sign_in(&value.email, source.address, has_signed_in).await?;
    let signed_in = api.control().sign_in(&value, &source).await?;
    signed_in_answer(&api, signed_in, StatusCode::OK)
}

pub(crate) fn signed_in_answer(
    api: &Api,
    signed_in: SignedIn,
    status: StatusCode,
) -> ApiResult<(StatusCode, HeaderMap, Json<WebSession>)> {
    let SignedIn { secret, csrf, me, .. } = signed_in;
    let mut headers = HeaderMap::new();
    with_cookie(api, &mut headers, Cookie::SignIn, Some(&secret))?;
    Ok((status, headers, Json(WebSession { me, csrf_token: Some(csrf) })))
}

pub(crate) fn with_cookie(
    api: &Api,
    headers: &mut HeaderMap,
    of: Cookie,
    secret: Option<&Secret>,
) -> ApiResult<()> {
    let broken = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the cookie cannot be written");
    headers.append(header::SET_COOKIE, cookie::set(of, secret, api.is_secure()).ok_or_else(broken)?);
    Ok(())
}

/// Signs out.
#[utoipa::path(post, path = "/sign-out", tag = "people", responses((status = 204, description = "You are signed out")))]
async fn sign_out(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
) -> ApiResult<(StatusCode, HeaderMap)> {
    api.control().sign_out(&caller).await?;
    let mut headers = HeaderMap::new();
    with_cookie(&api, &mut headers, Cookie::SignIn, None)?;
    Ok((StatusCode::NO_CONTENT, headers))
}

/// The caller and their organisations.
#[utoipa::path(get, path = "/me", tag = "people", responses((status = 200, description = "You", body = WebSession)))]
async fn get_me(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
) -> ApiResult<Json<WebSession>> {
    let me = api.control().me(&caller).await?;
    let csrf_token = match &caller.who {
        Principal::Person { sign_in, .. } => Some(api.control().csrf(sign_in)?),
        Principal::Token { .. } => None,
    };
    Ok(Json(WebSession { me, csrf_token }))
}

/// Changes what you are called.
#[utoipa::path(patch, path = "/me", tag = "people", request_body = UserChange,
    responses((status = 200, description = "You", body = User)))]
async fn change_me(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Input { value, once }: Input<UserChange>,
) -> ApiResult<Json<User>> {
    Ok(Json(api.control().change_me(&caller, &value, &once).await?))
}

/// Changes your password, and signs you out everywhere else.
#[utoipa::path(post, path = "/me/password", tag = "people", request_body = NewPassword,
    responses((status = 204, description = "It is changed")))]
async fn change_password(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    SourceAddress(address): SourceAddress,
    Input { value, .. }: Input<NewPassword>,
) -> ApiResult<StatusCode> {
    api.rates().password(address)?;
    api.control().change_password(&caller, &value).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct AtSession {
    session: String,
}

/// Browsers in which you are signed in.
#[utoipa::path(get, path = "/me/sessions", tag = "people", params(PageQuery),
    responses((status = 200, description = "Web sessions", body = List<SignInSession>)))]
async fn list_web_sessions(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Paging(page): Paging,
) -> ApiResult<Json<List<SignInSession>>> {
    Ok(List::of(api.control().sessions(&caller, &page).await?))
}

/// Signs you out everywhere but here.
#[utoipa::path(delete, path = "/me/sessions", tag = "people", responses((status = 204, description = "They have ended")))]
async fn end_other_web_sessions(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
) -> ApiResult<StatusCode> {
    api.control().end_sessions(&caller, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Signs you out in one browser.
#[utoipa::path(delete, path = "/me/sessions/{session}", tag = "people", params(AtSession),
    responses((status = 204, description = "It has ended")))]
async fn end_web_session(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(AtSession { session }): Path<AtSession>,
) -> ApiResult<StatusCode> {
    api.control().end_sessions(&caller, Some(&session)).await?;
    Ok(StatusCode::NO_CONTENT)
}
