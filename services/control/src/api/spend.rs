//! Routes of spend caps of organisations and brokers.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{AuthenticatedCaller, IfMatch, IfMatchOrNone, Input, Path, SeenVersion, etag};
use super::problem::ApiResult;
use super::{Api, AtBroker, InOrganisation};
use crate::domain::{BrokerRef, Caller, CapOf, NewSpendCap, Permission, Precondition, SpendCap};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(get_spend_cap, set_spend_cap, delete_spend_cap)).routes(routes!(
        get_broker_spend_cap,
        set_broker_spend_cap,
        delete_broker_spend_cap
    ))
}

impl From<InOrganisation> for CapOf {
    fn from(InOrganisation { organisation }: InOrganisation) -> Self {
        Self { organisation, broker: None }
    }
}

impl From<AtBroker> for CapOf {
    fn from(at: AtBroker) -> Self {
        let BrokerRef { organisation, name } = at.at();
        Self { organisation, broker: Some(name) }
    }
}

/// The spend cap of an organisation.
#[utoipa::path(get, path = "/organisations/{organisation}/spend-cap", tag = "organisations", params(InOrganisation),
    responses((status = 200, description = "The cap", body = SpendCap)))]
async fn get_spend_cap(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<InOrganisation>,
) -> ApiResult<impl IntoResponse> {
    get(&api, &caller, at.into()).await
}

/// Sets the most that all brokers of an organisation may cost in a month.
#[utoipa::path(put, path = "/organisations/{organisation}/spend-cap", tag = "organisations",
    params(InOrganisation, IfMatchOrNone), request_body = NewSpendCap,
    responses((status = 200, description = "The cap, which holds", body = SpendCap)))]
async fn set_spend_cap(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<InOrganisation>,
    SeenVersion(seen): SeenVersion,
    Input { value, .. }: Input<NewSpendCap>,
) -> ApiResult<impl IntoResponse> {
    set(&api, &caller, at.into(), &value, seen).await
}

/// Deletes the spend cap of an organisation.
#[utoipa::path(delete, path = "/organisations/{organisation}/spend-cap", tag = "organisations", params(InOrganisation, IfMatch),
    responses((status = 204, description = "It is gone")))]
async fn delete_spend_cap(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<InOrganisation>,
    SeenVersion(seen): SeenVersion,
) -> ApiResult<StatusCode> {
    delete(&api, &caller, at.into(), seen).await
}

/// The spend cap of a broker.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/spend-cap", tag = "brokers", params(AtBroker),
    responses((status = 200, description = "The cap", body = SpendCap)))]
async fn get_broker_spend_cap(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
) -> ApiResult<impl IntoResponse> {
    get(&api, &caller, at.into()).await
}

/// Sets the most that a broker may cost in a month.
#[utoipa::path(put, path = "/organisations/{organisation}/brokers/{broker}/spend-cap", tag = "brokers",
    params(AtBroker, IfMatchOrNone), request_body = NewSpendCap,
    responses((status = 200, description = "The cap, which holds", body = SpendCap)))]
async fn set_broker_spend_cap(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    SeenVersion(seen): SeenVersion,
    Input { value, .. }: Input<NewSpendCap>,
) -> ApiResult<impl IntoResponse> {
    set(&api, &caller, at.into(), &value, seen).await
}

/// Deletes the spend cap of a broker.
#[utoipa::path(delete, path = "/organisations/{organisation}/brokers/{broker}/spend-cap", tag = "brokers", params(AtBroker, IfMatch),
    responses((status = 204, description = "It is gone")))]
async fn delete_broker_spend_cap(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    SeenVersion(seen): SeenVersion,
) -> ApiResult<StatusCode> {
    delete(&api, &caller, at.into(), seen).await
}

// Each answer reads the month's usage of the brokers, so these requests take turns.

async fn get(api: &Api, caller: &Caller, of: CapOf) -> ApiResult<impl IntoResponse + use<>> {
    let _turn = api.turn(caller, of.organisation, Permission::BrokersRead).await?;
    let found = api.control().spend_cap(caller, &of).await?;
    Ok((etag(found.version), Json(found.value)))
}

async fn set(
    api: &Api,
    caller: &Caller,
    of: CapOf,
    cap: &NewSpendCap,
    seen: Precondition,
) -> ApiResult<impl IntoResponse + use<>> {
    let _turn = api.turn(caller, of.organisation, Permission::OrganisationWrite).await?;
    let set = api.control().set_spend_cap(caller, &of, cap, seen).await?;
    Ok((etag(set.version), Json(set.value)))
}

async fn delete(api: &Api, caller: &Caller, of: CapOf, seen: Precondition) -> ApiResult<StatusCode> {
    let _turn = api.turn(caller, of.organisation, Permission::OrganisationWrite).await?;
    api.control().delete_spend_cap(caller, &of, seen).await?;
    Ok(StatusCode::NO_CONTENT)
}
