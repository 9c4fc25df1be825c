//! Routes of the caller's passkeys, and of signing in with one.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::accounts::{WebSession, signed_in_answer};
use super::extract::{AuthenticatedCaller, CallerSource, IdempotencyKey, Input, Path, SourceAddress};
use super::headers::location;
use super::problem::{ApiResult, Problem};
use super::{Api, List};
use crate::domain::{
    NewPasskey, Page, Passkey, PasskeyAdded, PasskeyAssertion, PasskeyChange, PasskeyCreation,
    PasskeyRequest, Proof,
};
use crate::limits::{PASSKEY_BODY_BYTES_MAX, UNAUTHENTICATED_BODY_BYTES_MAX};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(sign_in_challenge))
        .routes(routes!(sign_in_with_passkey))
        .routes(routes!(list_passkeys, add_passkey))
        .routes(routes!(begin_passkey))
        .routes(routes!(passkey_challenge))
        .routes(routes!(rename_passkey))
        .routes(routes!(remove_passkey))
}

/// Makes a challenge to sign in with a passkey, without a password.
#[utoipa::path(post, path = "/sign-in/passkey/challenge", tag = "people", security(()),
    responses((status = 200, description = "The challenge. It is of the same kind with and without an account", body = PasskeyRequest),
        (status = 409, description = "Passkeys do not work on this server: `GET /sign-in/ways` has no `passkey_origin`", body = Problem, content_type = "application/problem+json")))]
async fn sign_in_challenge(
    State(api): State<Api>,
    SourceAddress(address): SourceAddress,
) -> ApiResult<Json<PasskeyRequest>> {
    api.rates().unauthenticated(address)?;
    Ok(Json(api.control().discovery()?))
}

/// Signs in with a passkey that names its account and has verified you, by your fingerprint or a PIN for example.
#[utoipa::path(post, path = "/sign-in/passkey", tag = "people", security(()), request_body = PasskeyAssertion,
    responses((status = 200, description = "The account that signed in", body = WebSession),
        (status = 401, description = "The passkey is not known here, or its answer is wrong, late or used: make a new challenge. Or your password was changed: sign in with it once, and the passkey works alone again", body = Problem, content_type = "application/problem+json")))]
async fn sign_in_with_passkey(
    State(api): State<Api>,
    CallerSource(source): CallerSource,
    Input { value, .. }: Input<PasskeyAssertion, UNAUTHENTICATED_BODY_BYTES_MAX>,
) -> ApiResult<(StatusCode, HeaderMap, Json<WebSession>)> {
    api.rates().password(source.address)?;
    let has_signed_in = api.control().has_passkey_signed_in_from(&value.credential_id, source.address);
    api.rates().sign_in(&value.credential_id, source.address, has_signed_in).await?;
    let signed_in = api.control().sign_in_with_passkey(&value, &source).await?;
    signed_in_answer(&api, signed_in, StatusCode::OK)
}

/// Your passkeys.
#[utoipa::path(get, path = "/me/passkeys", tag = "people",
    responses((status = 200, description = "Passkeys", body = List<Passkey>)))]
async fn list_passkeys(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
) -> ApiResult<Json<List<Passkey>>> {
    let items = api.control().passkeys(&caller).await?;
    Ok(List::of(Page { items, next: None }))
}

/// Makes a challenge to add a passkey. It needs your password, and your second factor if you have one.
#[utoipa::path(post, path = "/me/passkeys/begin", tag = "people", request_body = Proof,
    responses((status = 200, description = "The challenge", body = PasskeyCreation)))]
async fn begin_passkey(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    SourceAddress(address): SourceAddress,
    Input { value, .. }: Input<Proof>,
) -> ApiResult<Json<PasskeyCreation>> {
    api.rates().password(address)?;
    Ok(Json(api.control().begin_passkey(&caller, &value).await?))
}

/// Adds the passkey that has answered the challenge. Your first second factor signs you out everywhere else.
#[utoipa::path(post, path = "/me/passkeys", tag = "people", params(IdempotencyKey), request_body = NewPasskey,
    responses((status = 201, description = "The passkey", body = PasskeyAdded)))]
async fn add_passkey(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    SourceAddress(address): SourceAddress,
    Input { value, once }: Input<NewPasskey, PASSKEY_BODY_BYTES_MAX>,
) -> ApiResult<impl IntoResponse> {
    api.rates().password(address)?;
    let added = api.control().add_passkey(&caller, &value, &once).await?;
    Ok((StatusCode::CREATED, location(&["me", "passkeys", &added.passkey.id.to_string()]), Json(added)))
}

/// Makes a challenge by which you confirm a change of your account with a passkey instead of a code.
#[utoipa::path(post, path = "/me/passkeys/challenge", tag = "people",
    responses((status = 200, description = "The challenge", body = PasskeyRequest)))]
async fn passkey_challenge(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
) -> ApiResult<Json<PasskeyRequest>> {
    Ok(Json(api.control().passkey_request(&caller).await?))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct AtPasskey {
    passkey: Uuid,
}

/// Renames a passkey.
#[utoipa::path(patch, path = "/me/passkeys/{passkey}", tag = "people", params(AtPasskey), request_body = PasskeyChange,
    responses((status = 200, description = "The passkey", body = Passkey)))]
async fn rename_passkey(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(AtPasskey { passkey }): Path<AtPasskey>,
    Input { value, once }: Input<PasskeyChange>,
) -> ApiResult<Json<Passkey>> {
    Ok(Json(api.control().rename_passkey(&caller, passkey, &value, &once).await?))
}

/// Removes a passkey. It needs your password and a second factor, which may be the passkey itself.
#[utoipa::path(post, path = "/me/passkeys/{passkey}/remove", tag = "people", params(AtPasskey), request_body = Proof,
    responses((status = 204, description = "It is removed. Without another second factor, signing in asks for the password alone")))]
async fn remove_passkey(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    SourceAddress(address): SourceAddress,
    Path(AtPasskey { passkey }): Path<AtPasskey>,
    Input { value, .. }: Input<Proof>,
) -> ApiResult<StatusCode> {
    api.rates().password(address)?;
    api.control().remove_passkey(&caller, passkey, &value).await?;
    Ok(StatusCode::NO_CONTENT)
}
