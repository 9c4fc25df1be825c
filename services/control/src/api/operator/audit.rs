//! Routes by which operators read audit logs. The operator API authenticates in front of all its routes.

use axum::Json;
use axum::extract::{Request, State};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Id, Operators, TenantsQuery, page, query};
use crate::api::List;
use crate::api::organisations::AuditQuery;
use crate::api::problem::ApiResult;
use crate::domain::AuditEntry;

pub(super) fn routes() -> OpenApiRouter<Operators> {
    OpenApiRouter::new().routes(routes!(list_tenant_audit_entries)).routes(routes!(list_region_audit_entries))
}

/// The audit log of a tenant or a deleted tenant, the latest entry first.
#[utoipa::path(get, path = "/tenants/{tenant}/audit", tag = "operator",
    params(("tenant" = Uuid, Path, description = "Id of the organisation."), AuditQuery, TenantsQuery),
    responses((status = 200, description = "Entries", body = List<AuditEntry>)))]
async fn list_tenant_audit_entries(
    State(operators): State<Operators>,
    Id(tenant): Id,
    request: Request,
) -> ApiResult<Json<List<AuditEntry>>> {
    let request = request.into_parts().0;
    let (filter, page) = (query::<AuditQuery>(&request)?.filter()?, page(&request)?);
    Ok(List::of(operators.0.control.tenant_audit_log(tenant, &filter, &page).await?))
}

/// The audit log of the region: changes by operators that concern no single tenant, such as the deletion of a plan. The
/// latest entry comes first.
#[utoipa::path(get, path = "/audit", tag = "operator", params(AuditQuery, TenantsQuery),
    responses((status = 200, description = "Entries", body = List<AuditEntry>)))]
async fn list_region_audit_entries(
    State(operators): State<Operators>,
    request: Request,
) -> ApiResult<Json<List<AuditEntry>>> {
    let request = request.into_parts().0;
    let (filter, page) = (query::<AuditQuery>(&request)?.filter()?, page(&request)?);
    Ok(List::of(operators.0.control.region_audit_log(&filter, &page).await?))
}
