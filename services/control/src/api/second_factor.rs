//! Routes of the caller's second factor, for web sessions only. A route takes an idempotency key if its answer has recovery codes.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::extract::{AuthenticatedCaller, IdempotencyKey, Input, SourceAddress};
use super::problem::ApiResult;
use crate::domain::{DeviceKey, FirstCode, Proof, RecoveryCodes, SecondFactor};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(get_second_factor, begin_second_factor))
        .routes(routes!(confirm_second_factor))
        .routes(routes!(renew_recovery_codes))
        .routes(routes!(disable_second_factor))
}

/// Whether signing in with your password asks for a second factor.
#[utoipa::path(get, path = "/me/second-factor", tag = "people",
    responses((status = 200, description = "Your second factor", body = SecondFactor)))]
async fn get_second_factor(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
) -> ApiResult<Json<SecondFactor>> {
    Ok(Json(api.control().second_factor(&caller).await?))
}

/// Makes a secret for your authenticator app. Send a `code` or the answer of a passkey as well if you have passkeys. The secret is in force once you have confirmed its first code, within 10 minutes.
#[utoipa::path(post, path = "/me/second-factor", tag = "people", request_body = Proof,
    responses((status = 201, description = "The secret, which is shown once", body = DeviceKey)))]
async fn begin_second_factor(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    SourceAddress(address): SourceAddress,
    Input { value, .. }: Input<Proof>,
) -> ApiResult<(StatusCode, Json<DeviceKey>)> {
    api.rates().password(address)?;
    Ok((StatusCode::CREATED, Json(api.control().begin_second_factor(&caller, &value).await?)))
}

/// Puts your authenticator app in force with its first code, and signs you out everywhere else.
#[utoipa::path(post, path = "/me/second-factor/confirm", tag = "people", params(IdempotencyKey), request_body = FirstCode,
    responses((status = 200, description = "Your recovery codes, which are shown once", body = RecoveryCodes)))]
async fn confirm_second_factor(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    SourceAddress(address): SourceAddress,
    Input { value, once }: Input<FirstCode>,
) -> ApiResult<Json<RecoveryCodes>> {
    api.rates().password(address)?;
    Ok(Json(api.control().confirm_second_factor(&caller, &value, &once).await?))
}

/// Makes new recovery codes, and invalidates the old ones.
#[utoipa::path(post, path = "/me/second-factor/recovery-codes", tag = "people", params(IdempotencyKey), request_body = Proof,
    responses((status = 200, description = "Your recovery codes, which are shown once", body = RecoveryCodes)))]
async fn renew_recovery_codes(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    SourceAddress(address): SourceAddress,
    Input { value, once }: Input<Proof>,
) -> ApiResult<Json<RecoveryCodes>> {
    api.rates().password(address)?;
    Ok(Json(api.control().renew_recovery_codes(&caller, &value, &once).await?))
}

/// Turns your authenticator app off. Your passkeys stay.
#[utoipa::path(post, path = "/me/second-factor/disable", tag = "people", request_body = Proof,
    responses((status = 204, description = "It is off")))]
async fn disable_second_factor(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    SourceAddress(address): SourceAddress,
    Input { value, .. }: Input<Proof>,
) -> ApiResult<StatusCode> {
    api.rates().password(address)?;
    api.control().disable_second_factor(&caller, &value).await?;
    Ok(StatusCode::NO_CONTENT)
}
