//! Routes of the region: its name, its domain, its last start, its prices and its plans.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::extract::AuthenticatedCaller;
use super::problem::ApiResult;
use crate::domain::{TenantPlan, UnitPrice};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_regions))
        .routes(routes!(list_prices))
        .routes(routes!(list_plans))
}

#[derive(Serialize, ToSchema)]
struct Region {
    #[schema(example = "eu-1")]
    name: String,
    /// Domain below which each broker has its host name; null: brokers have no host names of their own.
    domain: Option<String>,
    /// When the server that answers started, in unix milliseconds.
    started_at_ms: Option<u64>,
    /// Commits that the process before had acknowledged and that its data folder lacked at this start; null: the folder is
    /// new, or the data is in a cluster. Messages with QoS 1 and 2 are acknowledged after their commit. After a loss of
    /// power, commits count up to the last one that is noted on the disk.
    #[schema(example = 0)]
    acknowledged_commits_lost: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct Regions {
    items: Vec<Region>,
}

#[derive(Serialize, ToSchema)]
struct PriceList {
    items: Vec<UnitPrice>,
    /// ISO 4217 code of the currency; null: the operator has not set it.
    #[schema(example = "EUR")]
    currency: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct TenantPlans {
    items: Vec<TenantPlan>,
}

/// Regions for brokers. This server is part of one.
#[utoipa::path(get, path = "/regions", tag = "region", responses((status = 200, description = "Regions", body = Regions)))]
async fn list_regions(
    State(api): State<Api>,
    AuthenticatedCaller(_): AuthenticatedCaller,
) -> ApiResult<Json<Regions>> {
    let (reach, start) = (api.control().reach(), api.control().server_start());
    let recovery = start.and_then(|start| start.recovery);
    Ok(Json(Regions {
        items: vec![Region {
            name: reach.region.clone(),
            domain: reach.domain.clone(),
            started_at_ms: start.map(|start| start.at_ms),
            acknowledged_commits_lost: recovery.and_then(|found| found.acknowledged_commits_lost),
        }],
    }))
}

/// The prices of usage.
#[utoipa::path(get, path = "/prices", tag = "region", responses((status = 200, description = "Prices", body = PriceList)))]
async fn list_prices(
    State(api): State<Api>,
    AuthenticatedCaller(_): AuthenticatedCaller,
) -> ApiResult<Json<PriceList>> {
    let (items, currency) = (api.control().price_list(), api.control().currency());
    Ok(Json(PriceList { items, currency }))
}

/// The plans of the region that you may see: public ones, and those of your organisations. A plan bounds the limits of
/// its tenants' brokers.
#[utoipa::path(get, path = "/plans", operation_id = "list_tenant_plans", tag = "region",
    responses((status = 200, description = "Plans", body = TenantPlans)))]
async fn list_plans(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
) -> ApiResult<Json<TenantPlans>> {
    Ok(Json(TenantPlans { items: api.control().plans_for(&caller).await? }))
}
