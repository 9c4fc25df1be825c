//! The operator API on the admin port. It is separate from the tenants' API and has its own OpenAPI description.

mod access;
mod audit;
mod pod;

use std::sync::{Arc, LazyLock};

use axum::extract::{FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, InfoBuilder, SecurityRequirement, Server};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::extract::Path;
use super::problem::{ApiResult, Problem};
use super::usage::UsageQuery;
use super::{List, json, query};
use crate::domain::{
    Control, FormerTenant, Loudest, NewPlan, NewSuspension, OperatorTokens, OrganisationUsage, Page,
    PageRequest, Plan, PlanChoice, PodLease, ResetLink, ResetRequest, SecondFactorRemoval, Tenant,
    TenantBroker,
};
use crate::limits::{BODY_BYTES_MAX, LOUDEST_MAX, PAGE_ROWS, PAGE_ROWS_MAX};
use access::{By, authenticate};
pub use pod::{FabricState, GatewayPeer, HealthCheck, Operations, OwnPod};

pub const OPERATOR_PATH: &str = "/v1/operator";

#[derive(Clone)]
struct Operators(Arc<Inner>);

struct Inner {
    control: Control,
    operations: Arc<dyn Operations>,
    tokens: Option<OperatorTokens>,
}

/// The operator API, to be nested at [`OPERATOR_PATH`].
pub fn operator_router(
    control: Control,
    operations: Arc<dyn Operations>,
    tokens: Option<OperatorTokens>,
) -> Router {
    let operators = Operators(Arc::new(Inner { control, operations, tokens }));
    let (router, described) = routes().split_for_parts();
    let known = Arc::new(query::KnownParameters::of(&described, OPERATOR_PATH));
    let check = move |request: Request, next: Next| {
        let known = Arc::clone(&known);
        async move { query::refuse_unknown(&known, request, next).await }
    };
    router
        .layer(from_fn(check))
        .fallback(super::nothing_here)
        .method_not_allowed_fallback(super::not_like_that)
        .layer(from_fn_with_state(operators.clone(), authenticate))
        .layer(from_fn(super::guard::in_time))
        .layer(from_fn(super::guard::with_headers))
        .layer(from_fn(super::request_id::with_id))
        .with_state(operators)
}

#[must_use]
pub fn operator_openapi() -> utoipa::openapi::OpenApi {
    let (_, mut described) = routes().split_for_parts();
    described.info = InfoBuilder::new()
        .title("Millrace for operators")
        .version("1")
        .description(Some("What operators of a region do with its tenants and pods."))
        .license(Some(super::describe::licence()))
        .build();
    described.servers = Some(vec![Server::new(OPERATOR_PATH)]);
    described.security = Some(vec![SecurityRequirement::new("token", [""; 0])]);
    let components = described.components.get_or_insert_with(Components::new);
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("The operators' token"));
    components.add_security_scheme("token", SecurityScheme::Http(token.build()));
    super::describe::describe_answers(&mut described);
    described
}

fn routes() -> OpenApiRouter<Operators> {
    OpenApiRouter::new()
        .routes(routes!(list_tenants))
        .routes(routes!(get_tenant))
        .routes(routes!(suspend_tenant))
        .routes(routes!(resume_tenant))
        .merge(audit::routes())
        .routes(routes!(get_tenant_usage))
        .routes(routes!(list_former_tenants))
        .routes(routes!(choose_plan))
        .routes(routes!(list_plans))
        .routes(routes!(set_plan, delete_plan))
        .routes(routes!(get_tenant_broker))
        .routes(routes!(list_loudest))
        .routes(routes!(make_reset_link))
        .routes(routes!(remove_second_factor))
        .routes(routes!(get_own_pod))
        .routes(routes!(list_pods))
        .routes(routes!(drain_pod))
        .routes(routes!(get_operator_openapi))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct TenantsQuery {
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LoudestQuery {
    #[serde(default)]
    #[param(minimum = 1, maximum = 100, default = 20)]
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
struct PodLeases {
    items: Vec<PodLease>,
}

fn limit(asked: Option<usize>, default: usize, max: usize) -> ApiResult<usize> {
    let limit = asked.unwrap_or(default);
    match (1..=max).contains(&limit) {
        true => Ok(limit),
        false => Err(super::query::wrong("limit", &format!("must be between 1 and {max}"))),
    }
}

fn query<T: serde::de::DeserializeOwned + IntoParams>(request: &Parts) -> ApiResult<T> {
    super::query::parse(&request.uri)
}

/// Tenants of the region, in order of ids.
#[utoipa::path(get, path = "/tenants", tag = "operator", params(TenantsQuery),
    responses((status = 200, description = "Tenants", body = List<Tenant>)))]
async fn list_tenants(State(operators): State<Operators>, request: Request) -> ApiResult<Json<List<Tenant>>> {
    let page = page(&request.into_parts().0)?;
    Ok(List::of(operators.0.control.tenants(&page).await?))
}

fn page(request: &Parts) -> ApiResult<PageRequest> {
    let TenantsQuery { cursor, limit: asked } = query(request)?;
    let wrong = |_| super::query::wrong("cursor", "is not a cursor of a list");
    let after = cursor.map(|cursor| URL_SAFE_NO_PAD.decode(cursor).map_err(wrong)).transpose()?;
    Ok(PageRequest { after, limit: limit(asked, PAGE_ROWS, PAGE_ROWS_MAX)? })
}

/// Deleted tenants, in order of ids. Their audit log and usage are stored for 400 days.
#[utoipa::path(get, path = "/former-tenants", tag = "operator", params(TenantsQuery),
    responses((status = 200, description = "Former tenants", body = List<FormerTenant>)))]
async fn list_former_tenants(
    State(operators): State<Operators>,
    request: Request,
) -> ApiResult<Json<List<FormerTenant>>> {
    let page = page(&request.into_parts().0)?;
    Ok(List::of(operators.0.control.former_tenants(&page).await?))
}

/// The usage of a tenant or a deleted tenant.
#[utoipa::path(get, path = "/tenants/{tenant}/usage", tag = "operator",
    params(("tenant" = Uuid, Path, description = "Id of the organisation."), UsageQuery),
    responses((status = 200, description = "Usage", body = OrganisationUsage)))]
async fn get_tenant_usage(
    State(operators): State<Operators>,
    Id(tenant): Id,
    request: Request,
) -> ApiResult<Json<OrganisationUsage>> {
    let asked: UsageQuery = query(&request.into_parts().0)?;
    Ok(Json(operators.0.control.tenant_usage(tenant, asked.into()).await?))
}

/// A broker and its tenant, by the name of the broker.
#[utoipa::path(get, path = "/brokers/{broker}", tag = "operator", params(("broker" = String, Path, description = "Name of the broker.")),
    responses((status = 200, description = "The broker", body = TenantBroker)))]
async fn get_tenant_broker(
    State(operators): State<Operators>,
    Path(broker): Path<String>,
) -> ApiResult<Json<TenantBroker>> {
    Ok(Json(operators.0.control.tenant_broker(&broker).await?))
}

/// The plans of the region.
#[utoipa::path(get, path = "/plans", tag = "operator", responses((status = 200, description = "Plans", body = List<Plan>)))]
async fn list_plans(State(operators): State<Operators>) -> ApiResult<Json<List<Plan>>> {
    Ok(List::of(Page { items: operators.0.control.plans().await?, next: None }))
}

/// Creates or replaces a plan. Its ceilings apply at once to the brokers of tenants with this plan.
#[utoipa::path(put, path = "/plans/{plan}", tag = "operator", request_body = NewPlan,
    params(("plan" = String, Path, description = "Name of the plan.")),
    responses((status = 200, description = "The plan", body = Plan)))]
async fn set_plan(
    State(operators): State<Operators>,
    Path(plan): Path<String>,
    By(operator): By,
    request: Request,
) -> ApiResult<Json<Plan>> {
    let input: NewPlan = body(request).await?;
    Ok(Json(operators.0.control.set_plan(&plan, &input, &operator).await?))
}

/// Deletes a plan without tenants.
#[utoipa::path(delete, path = "/plans/{plan}", tag = "operator", params(("plan" = String, Path, description = "Name of the plan.")),
    responses((status = 204, description = "It is removed")))]
async fn delete_plan(
    State(operators): State<Operators>,
    Path(plan): Path<String>,
    By(operator): By,
) -> ApiResult<StatusCode> {
    operators.0.control.delete_plan(&plan, &operator).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Assigns a plan to a tenant, whose brokers are then bound by its ceilings, or removes the assignment.
#[utoipa::path(put, path = "/tenants/{tenant}/plan", tag = "operator", request_body = PlanChoice,
    params(("tenant" = Uuid, Path, description = "Id of the organisation.")),
    responses((status = 200, description = "The tenant", body = Tenant)))]
async fn choose_plan(
    State(operators): State<Operators>,
    Id(tenant): Id,
    By(operator): By,
    request: Request,
) -> ApiResult<Json<Tenant>> {
    let input: PlanChoice = body(request).await?;
    Ok(Json(operators.0.control.choose_plan(tenant, &input, &operator).await?))
}

async fn body<T: serde::de::DeserializeOwned + ToSchema>(request: Request) -> ApiResult<T> {
    json::parse(&super::body::read(request.into_body(), BODY_BYTES_MAX).await?)
}

/// A tenant.
#[utoipa::path(get, path = "/tenants/{tenant}", tag = "operator", params(("tenant" = Uuid, Path, description = "Id of the organisation.")),
    responses((status = 200, description = "The tenant", body = Tenant)))]
async fn get_tenant(State(operators): State<Operators>, Id(tenant): Id) -> ApiResult<Json<Tenant>> {
    Ok(Json(operators.0.control.tenant(tenant).await?))
}

/// Suspends a tenant: its clients are disconnected, and its members can only read.
#[utoipa::path(post, path = "/tenants/{tenant}/suspend", tag = "operator", request_body = NewSuspension,
    params(("tenant" = Uuid, Path, description = "Id of the organisation.")),
    responses((status = 200, description = "The tenant", body = Tenant)))]
async fn suspend_tenant(
    State(operators): State<Operators>,
    Id(tenant): Id,
    By(operator): By,
    request: Request,
) -> ApiResult<Json<Tenant>> {
    let input: NewSuspension = body(request).await?;
    Ok(Json(operators.0.control.suspend_tenant(tenant, &input, &operator).await?))
}

/// Ends the suspension of a tenant.
#[utoipa::path(post, path = "/tenants/{tenant}/resume", tag = "operator",
    params(("tenant" = Uuid, Path, description = "Id of the organisation.")),
    responses((status = 200, description = "The tenant", body = Tenant)))]
async fn resume_tenant(
    State(operators): State<Operators>,
    Id(tenant): Id,
    By(operator): By,
) -> ApiResult<Json<Tenant>> {
    Ok(Json(operators.0.control.resume_tenant(tenant, &operator).await?))
}

/// The tenants that have published the most messages in this month.
#[utoipa::path(get, path = "/loudest", tag = "operator", params(LoudestQuery),
    responses((status = 200, description = "Tenants", body = Loudest)))]
async fn list_loudest(State(operators): State<Operators>, request: Request) -> ApiResult<Json<Loudest>> {
    let LoudestQuery { limit: asked } = query(&request.into_parts().0)?;
    Ok(Json(operators.0.control.loudest(limit(asked, 20, LOUDEST_MAX)?).await?))
}

/// Makes a link with which a person chooses a new password, once and within an hour, where no mail is sent. The second factor of the account
/// stays in force.
#[utoipa::path(post, path = "/reset-links", tag = "operator", request_body = ResetRequest,
    responses((status = 201, description = "The link, which is shown once", body = ResetLink),
        (status = 404, description = "There is no account with this address", body = Problem, content_type = "application/problem+json")))]
async fn make_reset_link(
    State(operators): State<Operators>,
    By(operator): By,
    request: Request,
) -> ApiResult<(StatusCode, Json<ResetLink>)> {
    let input: ResetRequest = body(request).await?;
    Ok((StatusCode::CREATED, Json(operators.0.control.reset_link(&input, &operator).await?)))
}

/// Removes the second factor of a person who has lost the device and all recovery codes, and ends the web sessions of the account. Make
/// sure first that it is the person who asks.
#[utoipa::path(post, path = "/second-factor-removals", tag = "operator", request_body = SecondFactorRemoval,
    responses((status = 204, description = "It is removed"),
        (status = 404, description = "There is no account with this address", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The account has no second factor", body = Problem, content_type = "application/problem+json")))]
async fn remove_second_factor(
    State(operators): State<Operators>,
    By(operator): By,
    request: Request,
) -> ApiResult<StatusCode> {
    let input: SecondFactorRemoval = body(request).await?;
    operators.0.control.remove_second_factor(&input, &operator).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The pod that serves this API.
#[utoipa::path(get, path = "/pod", tag = "operator", responses((status = 200, description = "The pod", body = OwnPod)))]
async fn get_own_pod(State(operators): State<Operators>) -> ApiResult<Json<OwnPod>> {
    let stopping =
        || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping: ask another one");
    operators.0.operations.pod().map(Json).ok_or_else(stopping)
}

/// The pods of the region, by their leases in the store. A server without other pods has none.
#[utoipa::path(get, path = "/pods", tag = "operator", responses((status = 200, description = "Pods", body = PodLeases)))]
async fn list_pods(State(operators): State<Operators>) -> ApiResult<Json<PodLeases>> {
    Ok(Json(PodLeases { items: operators.0.control.pods().await? }))
}

/// Drains a pod of this process: disconnects its clients at the rate of its settings. The pod accepts no clients until
/// it is restarted.
#[utoipa::path(post, path = "/pods/{pod}/drain", tag = "operator",
    params(("pod" = String, Path, description = "Name of the pod; `self` for a server without a name.")),
    responses((status = 202, description = "It has begun; /healthz says how many are left")))]
async fn drain_pod(
    State(operators): State<Operators>,
    Path(pod): Path<String>,
    By(operator): By,
) -> ApiResult<StatusCode> {
    match operators.0.operations.drain(&pod) {
        true => {
            tracing::info!(%pod, operator = operator.name, "an operator drains the pod");
            // The drain has begun, so the answer is no failure even if the store does not take the audit entry.
            if let Err(error) = operators.0.control.note_of_region(&operator, "pod.drain", &pod).await {
                tracing::warn!(%pod, %error, "the audit log of the region lacks the drain");
            }
            Ok(StatusCode::ACCEPTED)
        }
        false => Err(Problem::new(
            StatusCode::NOT_FOUND,
            "no pod of this process has that name: ask the admin port of the process that it is in",
        )),
    }
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "description",
    responses((status = 200, description = "The description of the operator API", body = serde_json::Value)))]
async fn get_operator_openapi() -> Json<&'static utoipa::openapi::OpenApi> {
    static DESCRIBED: LazyLock<utoipa::openapi::OpenApi> = LazyLock::new(operator_openapi);
    Json(&DESCRIBED)
}

/// A tenant's id in a path: text that is no id gets the answer of an unknown tenant.
struct Id(Uuid);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        let id = Path::<Uuid>::from_request_parts(parts, state).await;
        id.map(|id| Self(id.0)).map_err(|_| {
            Problem::new(
                StatusCode::NOT_FOUND,
                "there is no tenant of this id: GET /v1/operator/tenants lists them",
            )
        })
    }
}
