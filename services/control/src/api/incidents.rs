//! Route of the incidents of a broker: requests and messages that it has refused or dropped.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{AuthenticatedCaller, PageQuery, Paging, Path, Query};
use super::problem::ApiResult;
use super::{Api, AtBroker, List};
use crate::domain::{Incident, IncidentKind, Permission};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list_incidents))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct IncidentQuery {
    client_id: Option<String>,
    #[param(inline)]
    kind: Option<IncidentKind>,
}

/// Requests that were refused and messages that were dropped, the latest first: the last thousand, for a week.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/incidents", tag = "clients",
    params(AtBroker, IncidentQuery, PageQuery), responses((status = 200, description = "Incidents", body = List<Incident>)))]
async fn list_incidents(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Query(IncidentQuery { client_id, kind }): Query<IncidentQuery>,
    Paging(page): Paging,
) -> ApiResult<Json<List<Incident>>> {
    let _turn = api.turn(&caller, at.organisation, Permission::ClientsRead).await?;
    Ok(List::of(api.control().incidents(&caller, &at.at(), client_id.as_deref(), kind, &page).await?))
}
