//! Routes of the region: its name, its domain and its prices.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::extract::Auth;
use super::problem::Answer;
use crate::domain::UnitPrice;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list_regions)).routes(routes!(list_prices))
}

#[derive(Serialize, ToSchema)]
struct Region {
    #[schema(example = "eu-1")]
    name: String,
    /// Domain below which each broker has its host name; null: brokers have no host names of their own.
    domain: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct Regions {
    items: Vec<Region>,
}

/// Prices of usage.
#[derive(Serialize, ToSchema)]
struct PriceList {
    /// The price of each unit of usage.
    items: Vec<UnitPrice>,
}

/// Regions for brokers. This server is part of one.
#[utoipa::path(get, path = "/regions", tag = "region", responses((status = 200, description = "Regions", body = Regions)))]
async fn list_regions(State(api): State<Api>, Auth(_): Auth) -> Answer<Json<Regions>> {
    let reach = api.control().reach();
    Ok(Json(Regions { items: vec![Region { name: reach.region.clone(), domain: reach.domain.clone() }] }))
}

/// The prices of usage.
#[utoipa::path(get, path = "/prices", tag = "region", responses((status = 200, description = "Prices", body = PriceList)))]
async fn list_prices(State(api): State<Api>, Auth(_): Auth) -> Answer<Json<PriceList>> {
    Ok(Json(PriceList { items: api.control().price_list() }))
}
