//! How a broker lets clients in.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Auth, IfMatch, Input, Path, Seen, etag};
use super::problem::Answer;
use super::{Api, AtBroker};
use crate::domain::AccessSettings;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(get_access, set_access))
}

/// How a broker lets clients in, and the rules of all of them.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/access", tag = "access", params(AtBroker),
    responses((status = 200, description = "The settings", body = AccessSettings)))]
async fn get_access(
    State(api): State<Api>,
    Auth(caller): Auth,
    Path(at): Path<AtBroker>,
) -> Answer<impl IntoResponse> {
    let found = api.control().access(&caller, &at.at()).await?;
    Ok((etag(found.version), Json(found.value)))
}

/// Sets how a broker lets clients in, as a whole.
#[utoipa::path(put, path = "/organisations/{organisation}/brokers/{broker}/access", tag = "access", params(AtBroker, IfMatch),
    request_body = AccessSettings, responses((status = 200, description = "The settings", body = AccessSettings)))]
async fn set_access(
    State(api): State<Api>,
    Auth(caller): Auth,
    Path(at): Path<AtBroker>,
    Seen(seen): Seen,
    Input { value, .. }: Input<AccessSettings>,
) -> Answer<impl IntoResponse> {
    let set = api.control().set_access(&caller, &at.at(), &value, seen).await?;
    Ok((etag(set.version), Json(set.value)))
}
