//! Routes for forgotten passwords, new e-mail addresses, and the end of an account.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::accounts::with_cookie;
use super::cookie::Cookie;
use super::extract::{AuthenticatedCaller, CallerSource, Input, SourceAddress};
use super::problem::{ApiResult, Problem};
use crate::domain::{AddressChange, DeleteAccount, LinkToken, NewPasswordByLink, ResetRequest};
use crate::limits::UNAUTHENTICATED_BODY_BYTES_MAX;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(request_password_reset))
        .routes(routes!(reset_password))
        .routes(routes!(request_address))
        .routes(routes!(confirm_address))
        .routes(routes!(delete_account))
}

/// The mail is sent if an account has this address.
#[derive(Serialize, ToSchema)]
struct LetterAsked {
    email: String,
}

/// Mails a link with which one chooses a new password. The link works once, for an hour. An address gets one mail in 5 minutes.
#[utoipa::path(post, path = "/password-reset", tag = "people", security(()), request_body = ResetRequest,
    responses((status = 202, description = "If there is such an account, a mail is on its way. The answer is the same without one", body = LetterAsked)))]
async fn request_password_reset(
    State(api): State<Api>,
    CallerSource(source): CallerSource,
    Input { value, .. }: Input<ResetRequest, UNAUTHENTICATED_BODY_BYTES_MAX>,
) -> ApiResult<(StatusCode, Json<LetterAsked>)> {
    api.rates().password(source.address)?;
    if !api.control().can_send_mail() {
        let detail = "this server sends no mail: ask its operator for a link, which `millrace accounts reset-link` makes";
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    }
    let answer = LetterAsked { email: value.email.clone() };
    if api.rates().password_reset(&value.email) {
        let control = api.control().clone();
        // The answer does not wait, so that its time is the same for an address without an account.
        tokio::spawn(async move {
            if let Err(error) = control.mail_password_reset(&value, &source).await {
                tracing::warn!(%error, "no mail with a link for a new password was sent: the person has to ask for another one");
            }
        });
    }
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

/// Sets a new password by the link in a mail, and signs you out everywhere. A second factor stays in force.
#[utoipa::path(post, path = "/password-reset/confirm", tag = "people", security(()), request_body = NewPasswordByLink,
    responses((status = 204, description = "It is set: sign in with it")))]
async fn reset_password(
    State(api): State<Api>,
    CallerSource(source): CallerSource,
    Input { value, .. }: Input<NewPasswordByLink, UNAUTHENTICATED_BODY_BYTES_MAX>,
) -> ApiResult<StatusCode> {
    api.rates().password(source.address)?;
    api.control().reset_password(&value, &source).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Mails a link to a new e-mail address of yours, and a notice to the old one. The link works once, for a day, where you are signed in.
/// A server that sends no mail prints the link on its log, and its operator passes it on.
#[utoipa::path(post, path = "/me/email", tag = "people", request_body = AddressChange,
    responses((status = 202, description = "The mails are on their way. The answer is the same with and without an account", body = LetterAsked)))]
async fn request_address(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    SourceAddress(address): SourceAddress,
    Input { value, .. }: Input<AddressChange>,
) -> ApiResult<(StatusCode, Json<LetterAsked>)> {
    api.rates().password(address)?;
    let is_mailed = |email: &str| api.rates().new_address(email);
    api.rates().address_change(caller.id())?;
    api.control().request_address(&caller, &value, is_mailed).await?;
    Ok((StatusCode::ACCEPTED, Json(LetterAsked { email: value.email })))
}

/// Gives you the e-mail address that the link was mailed to.
#[utoipa::path(post, path = "/me/email/confirm", tag = "people", request_body = LinkToken,
    responses((status = 204, description = "From now on you sign in with it")))]
async fn confirm_address(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    SourceAddress(address): SourceAddress,
    Input { value, .. }: Input<LinkToken>,
) -> ApiResult<StatusCode> {
    api.rates().password(address)?;
    api.control().confirm_address(&caller, &value).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes your account. The answer names the organisations of which you are the last owner: give or delete them first.
#[utoipa::path(post, path = "/me/delete", tag = "people", request_body = DeleteAccount,
    responses((status = 204, description = "It is deleted")))]
async fn delete_account(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    SourceAddress(address): SourceAddress,
    Input { value, .. }: Input<DeleteAccount>,
) -> ApiResult<(StatusCode, HeaderMap)> {
    api.rates().password(address)?;
    api.control().delete_account(&caller, &value).await?;
    let mut headers = HeaderMap::new();
    with_cookie(&api, &mut headers, Cookie::SignIn, None)?;
    Ok((StatusCode::NO_CONTENT, headers))
}
