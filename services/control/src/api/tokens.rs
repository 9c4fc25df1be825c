//! Routes of API tokens.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::extract::{AuthenticatedCaller, IdempotencyKey, Input, PageQuery, Paging, Path};
use super::headers::location;
use super::problem::ApiResult;
use super::{Api, InOrganisation, List};
use crate::domain::{NewToken, Once, OwnToken, Token};
use crate::secret::Secret;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_tokens, create_token))
        .routes(routes!(delete_token))
        .routes(routes!(get_own_token))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct AtToken {
    organisation: Uuid,
    token: Uuid,
}

/// An API token with its secret.
#[derive(Serialize, ToSchema)]
struct MadeToken {
    #[serde(flatten)]
    token: Token,
    /// The secret that programs send. Only this answer contains it.
    #[schema(value_type = String, example = "mlr_...")]
    secret: Secret,
}

/// API tokens of an organisation.
#[utoipa::path(get, path = "/organisations/{organisation}/tokens", tag = "tokens", params(InOrganisation, PageQuery),
    responses((status = 200, description = "Tokens", body = List<Token>)))]
async fn list_tokens(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(InOrganisation { organisation }): Path<InOrganisation>,
    Paging(page): Paging,
) -> ApiResult<Json<List<Token>>> {
    Ok(List::of(api.control().tokens(&caller, organisation, &page).await?))
}

/// The API token of this request: its name, organisation, scopes and end. Every token may read itself.
#[utoipa::path(get, path = "/token", tag = "tokens", responses((status = 200, description = "The token", body = OwnToken)))]
async fn get_own_token(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
) -> ApiResult<Json<OwnToken>> {
    Ok(Json(api.control().own_token(&caller).await?))
}

/// Makes an API token.
#[utoipa::path(post, path = "/organisations/{organisation}/tokens", tag = "tokens", params(InOrganisation, IdempotencyKey),
    request_body = NewToken, responses((status = 201, description = "The token", body = MadeToken)))]
async fn create_token(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(InOrganisation { organisation }): Path<InOrganisation>,
    Input { value, once }: Input<NewToken>,
) -> ApiResult<impl IntoResponse> {
    let (token, secret) = api.control().create_token(&caller, organisation, &value, &once).await?;
    let path = location(&["organisations", &organisation.to_string(), "tokens", &token.id.to_string()]);
    Ok((StatusCode::CREATED, path, Json(MadeToken { token, secret })))
}

/// Removes an API token. Requests that send it are refused from then on.
#[utoipa::path(delete, path = "/organisations/{organisation}/tokens/{token}", tag = "tokens", params(AtToken),
    responses((status = 204, description = "It is removed")))]
async fn delete_token(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(AtToken { organisation, token }): Path<AtToken>,
    once: Once,
) -> ApiResult<StatusCode> {
    api.control().delete_token(&caller, organisation, token, &once).await?;
    Ok(StatusCode::NO_CONTENT)
}
