use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::budget::Turn;
use super::extract::{
    AuthenticatedCaller, IdempotencyKey, IfMatch, Input, PageQuery, Paging, Path, Query, SeenVersion,
    checked_search, etag,
};
use super::problem::ApiResult;
use super::{Api, AtBroker, List};
use crate::domain::{
    BrokerRef, Caller, CredentialChange, CredentialInfo, NewCredential, Permission, Rotation,
};
use crate::secret::Secret;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_credentials, create_credential))
        .routes(routes!(get_credential, change_credential, delete_credential))
        .routes(routes!(rotate_credential))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct AtCredential {
    organisation: Uuid,
    broker: String,
    user: String,
}

impl AtCredential {
    fn split(self) -> (BrokerRef, String) {
        (BrokerRef { organisation: self.organisation, name: self.broker }, self.user)
    }
}

/// A credential with its secret.
#[derive(Serialize, ToSchema)]
pub(super) struct MadeCredential {
    #[serde(flatten)]
    pub(super) credential: CredentialInfo,
    /// The generated password. Only this answer contains it. Null if you chose one.
    #[schema(value_type = Option<String>)]
    pub(super) secret: Option<Secret>,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct CredentialSearch {
    #[param(max_length = 1024)]
    search: Option<String>,
}

/// Credentials of a broker.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/credentials", tag = "access",
    params(AtBroker, CredentialSearch, PageQuery), responses((status = 200, description = "Credentials", body = List<CredentialInfo>)))]
async fn list_credentials(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Query(CredentialSearch { search }): Query<CredentialSearch>,
    Paging(page): Paging,
) -> ApiResult<Json<List<CredentialInfo>>> {
    let search = checked_search(search.as_deref())?;
    let _turn = api.turn(&caller, at.organisation, Permission::AccessRead).await?;
    Ok(List::of(api.control().credentials(&caller, &at.at(), search, &page).await?))
}

/// Creates a credential, and generates a password unless you choose one.
#[utoipa::path(post, path = "/organisations/{organisation}/brokers/{broker}/credentials", tag = "access",
    params(AtBroker, IdempotencyKey), request_body = NewCredential,
    responses((status = 201, description = "The credential", body = MadeCredential)))]
async fn create_credential(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Input { value, once }: Input<NewCredential>,
) -> ApiResult<impl IntoResponse> {
    let at = at.at();
    let costs_a_hash = value.password.is_some() || value.scram;
    let _turn = if costs_a_hash { Some(turn(&api, &caller, &at).await?) } else { None };
    let (made, secret) = api.control().create_credential(&caller, &at, &value, &once).await?;
    let path = at.location(&["credentials", &made.value.user]);
    let made = (etag(made.version), path, Json(MadeCredential { credential: made.value, secret }));
    Ok((StatusCode::CREATED, made))
}

/// A credential.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/credentials/{user}", tag = "access",
    params(AtCredential), responses((status = 200, description = "The credential", body = CredentialInfo)))]
async fn get_credential(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtCredential>,
) -> ApiResult<impl IntoResponse> {
    let (at, user) = at.split();
    let found = api.control().credential(&caller, &at, &user).await?;
    Ok((etag(found.version), Json(found.value)))
}

/// Replaces a credential's settings, except its secret.
#[utoipa::path(put, path = "/organisations/{organisation}/brokers/{broker}/credentials/{user}", tag = "access",
    params(AtCredential, IfMatch), request_body = CredentialChange,
    responses((status = 200, description = "The credential", body = CredentialInfo)))]
async fn change_credential(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtCredential>,
    SeenVersion(seen): SeenVersion,
    Input { value, .. }: Input<CredentialChange>,
) -> ApiResult<impl IntoResponse> {
    let (at, user) = at.split();
    let changed = api.control().change_credential(&caller, (&at, &user), &value, seen).await?;
    Ok((etag(changed.version), Json(changed.value)))
}

/// Removes a credential.
#[utoipa::path(delete, path = "/organisations/{organisation}/brokers/{broker}/credentials/{user}", tag = "access",
    params(AtCredential, IfMatch), responses((status = 204, description = "It is removed")))]
async fn delete_credential(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtCredential>,
    SeenVersion(seen): SeenVersion,
) -> ApiResult<StatusCode> {
    let (at, user) = at.split();
    api.control().delete_credential(&caller, (&at, &user), seen).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Replaces a credential's password by a new one. While a previous password is valid, devices may still use it, and a
/// rotation with an overlap must say by `keep` which password stays valid; without `keep` it is refused (409).
#[utoipa::path(post, path = "/organisations/{organisation}/brokers/{broker}/credentials/{user}/rotate", tag = "access",
    params(AtCredential, IdempotencyKey), request_body = Rotation,
    responses((status = 200, description = "The credential", body = MadeCredential)))]
async fn rotate_credential(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtCredential>,
    Input { value, once }: Input<Rotation>,
) -> ApiResult<impl IntoResponse> {
    let (at, user) = at.split();
    // The verifier of SCRAM is made before it is known whether the credential has one.
    let costs_a_hash = value.scram != Some(false);
    let _turn = if costs_a_hash { Some(turn(&api, &caller, &at).await?) } else { None };
    let (made, secret) = api.control().rotate_credential(&caller, (&at, &user), &value, &once).await?;
    Ok((etag(made.version), Json(MadeCredential { credential: made.value, secret: Some(secret) })))
}

/// Waits until a password of the organisation may be hashed. The permission comes first, so that strangers cannot use
/// up the organisation's turns.
async fn turn(api: &Api, caller: &Caller, at: &BrokerRef) -> ApiResult<Turn> {
    api.control().may(caller, at.organisation, Permission::AccessWrite).await?;
    api.hashing().turn_of_change(at.organisation, caller.account()).await
}
