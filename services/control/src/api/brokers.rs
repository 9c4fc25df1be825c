use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{
    AuthenticatedCaller, IdempotencyKey, IfMatch, Input, PageQuery, Paging, Path, SeenVersion, etag,
};
use super::headers::location;
use super::problem::ApiResult;
use super::{Api, AtBroker, InOrganisation, List};
use crate::domain::{Broker, BrokerChange, NewBroker, Permission};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_brokers, create_broker))
        .routes(routes!(get_broker, change_broker, delete_broker))
        .routes(routes!(suspend_broker))
        .routes(routes!(resume_broker))
}

/// Brokers of an organisation.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers", tag = "brokers", params(InOrganisation, PageQuery),
    responses((status = 200, description = "Brokers", body = List<Broker>)))]
async fn list_brokers(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(InOrganisation { organisation }): Path<InOrganisation>,
    Paging(page): Paging,
) -> ApiResult<Json<List<Broker>>> {
    let _turn = api.turn(&caller, organisation, Permission::BrokersRead).await?;
    Ok(List::of(api.control().brokers(&caller, organisation, &page).await?))
}

/// Makes a broker.
#[utoipa::path(post, path = "/organisations/{organisation}/brokers", tag = "brokers", params(InOrganisation, IdempotencyKey),
    request_body = NewBroker, responses((status = 201, description = "The broker", body = Broker)))]
async fn create_broker(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(InOrganisation { organisation }): Path<InOrganisation>,
    Input { value, once }: Input<NewBroker>,
) -> ApiResult<impl IntoResponse> {
    let made = api.control().create_broker(&caller, organisation, &value, &once).await?;
    let path = location(&["organisations", &organisation.to_string(), "brokers", &made.value.name]);
    Ok((StatusCode::CREATED, etag(made.version), path, Json(made.value)))
}

/// A broker.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}", tag = "brokers", params(AtBroker),
    responses((status = 200, description = "The broker", body = Broker)))]
async fn get_broker(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
) -> ApiResult<impl IntoResponse> {
    let found = api.control().broker(&caller, &at.at()).await?;
    Ok((etag(found.version), Json(found.value)))
}

/// Changes the name or the limits of a broker.
#[utoipa::path(patch, path = "/organisations/{organisation}/brokers/{broker}", tag = "brokers", params(AtBroker, IfMatch),
    request_body = BrokerChange, responses((status = 200, description = "The broker", body = Broker)))]
async fn change_broker(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    SeenVersion(seen): SeenVersion,
    Input { value, .. }: Input<BrokerChange>,
) -> ApiResult<impl IntoResponse> {
    let changed = api.control().change_broker(&caller, &at.at(), &value, seen).await?;
    Ok((etag(changed.version), Json(changed.value)))
}

/// Removes a broker with everything in it. It is gone at once; what it has is erased after that.
#[utoipa::path(delete, path = "/organisations/{organisation}/brokers/{broker}", tag = "brokers", params(AtBroker, IfMatch),
    responses((status = 204, description = "It is gone")))]
async fn delete_broker(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    SeenVersion(seen): SeenVersion,
) -> ApiResult<StatusCode> {
    api.control().delete_broker(&caller, &at.at(), seen).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets nobody connect any more.
#[utoipa::path(post, path = "/organisations/{organisation}/brokers/{broker}/suspend", tag = "brokers", params(AtBroker),
    responses((status = 200, description = "The broker", body = Broker)))]
async fn suspend_broker(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
) -> ApiResult<impl IntoResponse> {
    let changed = api.control().suspend_broker(&caller, &at.at(), true).await?;
    Ok((etag(changed.version), Json(changed.value)))
}

/// Lets clients connect again.
#[utoipa::path(post, path = "/organisations/{organisation}/brokers/{broker}/resume", tag = "brokers", params(AtBroker),
    responses((status = 200, description = "The broker", body = Broker)))]
async fn resume_broker(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
) -> ApiResult<impl IntoResponse> {
    let changed = api.control().suspend_broker(&caller, &at.at(), false).await?;
    Ok((etag(changed.version), Json(changed.value)))
}
