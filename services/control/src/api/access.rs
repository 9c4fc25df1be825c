//! Routes of a broker's access settings: authentication methods and the rules for all clients.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{AuthenticatedCaller, IfMatch, Input, Path, SeenVersion, etag};
use super::problem::ApiResult;
use super::{Api, AtBroker};
use crate::domain::{AccessAnswer, AccessQuestion, AccessSettings, DecidedBy, Permission};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(get_access, set_access)).routes(routes!(test_access))
}

/// The authentication methods of a broker, and the rules for all clients, as they are in force.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/access", tag = "access", params(AtBroker),
    responses((status = 200, description = "The settings", body = AccessSettings)))]
async fn get_access(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
) -> ApiResult<impl IntoResponse> {
    let found = api.control().access(&caller, &at.at()).await?;
    Ok((etag(found.version), Json(found.value)))
}

/// Replaces the authentication methods of a broker and the rules for all clients. If the settings of the server decided
/// so far (`by_settings`), the broker's own access counts from then on, and the server disconnects the clients that its
/// settings admitted.
#[utoipa::path(put, path = "/organisations/{organisation}/brokers/{broker}/access", tag = "access", params(AtBroker, IfMatch),
    request_body = AccessSettings, responses((status = 200, description = "The settings", body = AccessSettings)))]
async fn set_access(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    SeenVersion(seen): SeenVersion,
    Input { value, .. }: Input<AccessSettings>,
) -> ApiResult<impl IntoResponse> {
    let set = api.control().set_access(&caller, &at.at(), &value, seen).await?;
    Ok((etag(set.version), Json(set.value)))
}

/// Evaluates whether a client may publish or subscribe, and returns the deciding rule. Nothing changes, and the client
/// need not be connected. The evaluation does not know rules that come with a JSON web token or from a webhook.
#[utoipa::path(post, path = "/organisations/{organisation}/brokers/{broker}/access/test", tag = "access", params(AtBroker),
    request_body = AccessQuestion, responses((status = 200, description = "The answer", body = AccessAnswer)))]
async fn test_access(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Input { value, .. }: Input<AccessQuestion>,
) -> ApiResult<Json<AccessAnswer>> {
    // Reads the bans of the broker.
    let _turn = api.turn(&caller, at.organisation, Permission::AccessRead).await?;
    let (answer, by_settings) = api.control().test_access(&caller, &at.at(), &value).await?;
    if !by_settings || answer.decided_by == DecidedBy::Protocol {
        return Ok(Json(answer));
    }
    let granted = api.live().by_settings(&value)?;
    Ok(Json(answer.of_settings(granted, value.action)))
}
