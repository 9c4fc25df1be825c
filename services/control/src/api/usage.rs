//! Routes of usage, as JSON or as a CSV table.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{AuthenticatedCaller, Path, Query};
use super::problem::ApiResult;
use super::{Api, AtBroker, InOrganisation};
use crate::domain::{OrganisationUsage, Permission, Span, Usage, UsageStep, UsageWindow};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(get_usage)).routes(routes!(get_organisation_usage))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct UsageQuery {
    /// Start in unix milliseconds, rounded down to the hour, or to the day with `step=day`. Left out: the beginning of
    /// the month (UTC). Usage is stored for 400 days.
    #[param(maximum = 253_402_300_799_999_u64)]
    from: Option<u64>,
    /// End (exclusive) in unix milliseconds. Left out: now.
    #[param(maximum = 253_402_300_799_999_u64)]
    to: Option<u64>,
    /// Sums by hours (at most 31 days), by days, or one sum, which is the default.
    #[serde(default)]
    #[param(inline)]
    step: UsageStep,
}

impl From<UsageQuery> for Span {
    fn from(UsageQuery { from, to, step }: UsageQuery) -> Self {
        Self { from_ms: from, to_ms: to, step }
    }
}

/// The usage of a broker.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/usage", tag = "brokers", params(AtBroker, UsageQuery),
    responses((status = 200, description = "Usage; with Accept: text/csv a table of it",
        content((Usage = "application/json"), (String = "text/csv")))))]
async fn get_usage(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Query(query): Query<UsageQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let _turn = api.turn(&caller, at.organisation, Permission::BrokersRead).await?;
    let usage = api.control().usage(&caller, &at.at(), query.into()).await?;
    Ok(shown(&headers, &usage.total, &usage.windows, &usage))
}

/// The usage of all brokers of an organisation.
#[utoipa::path(get, path = "/organisations/{organisation}/usage", tag = "brokers", params(InOrganisation, UsageQuery),
    responses((status = 200, description = "Usage; with Accept: text/csv a table of it",
        content((OrganisationUsage = "application/json"), (String = "text/csv")))))]
async fn get_organisation_usage(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(InOrganisation { organisation }): Path<InOrganisation>,
    Query(query): Query<UsageQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let _turn = api.turn(&caller, organisation, Permission::BrokersRead).await?;
    let usage = api.control().organisation_usage(&caller, organisation, query.into()).await?;
    Ok(shown(&headers, &usage.total, &usage.windows, &usage))
}

fn shown(
    headers: &HeaderMap,
    total: &UsageWindow,
    windows: &[UsageWindow],
    all: &impl Serialize,
) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if !accept.is_some_and(|accept| accept.starts_with("text/csv")) {
        return Json(all).into_response();
    }
    let windows = if windows.is_empty() { std::slice::from_ref(total) } else { windows };
    let rows = windows.iter().map(UsageWindow::row);
    let table: Vec<String> = std::iter::once(UsageWindow::COLUMNS.to_owned()).chain(rows).collect();
    ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], table.join("\n") + "\n").into_response()
}
