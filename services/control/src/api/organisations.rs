//! Routes of organisations, their members, invitations and audit log.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::extract::{
    AuthenticatedCaller, IdempotencyKey, IfMatch, Input, PageQuery, Paging, Path, Query, SeenVersion, etag,
};
use super::headers::location;
use super::problem::{ApiResult, Problem};
use super::{Api, InOrganisation, List, query};
use crate::domain::{
    AuditEntry, AuditFilter, Invitation, Member, MemberChange, Membership, NewInvitation, NewOrganisation,
    OfferedInvitation, Once, Organisation, Permission,
};
use crate::limits::{SEARCH_BYTES_MAX, TIME_MS_MAX, TOO_LATE};
use crate::secret::Secret;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_organisations, create_organisation))
        .routes(routes!(get_organisation, change_organisation, delete_organisation))
        .routes(routes!(list_members))
        .routes(routes!(change_member, remove_member))
        .routes(routes!(list_invitations, invite))
        .routes(routes!(delete_invitation))
        .routes(routes!(offered_invitation))
        .routes(routes!(accept_invitation))
        .routes(routes!(list_audit_entries))
        .routes(routes!(list_own_audit_entries))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct AtMember {
    organisation: Uuid,
    /// Id of the person.
    user: Uuid,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct AtInvitation {
    organisation: Uuid,
    invitation: Uuid,
}

/// An invitation with its secret.
#[derive(Serialize, ToSchema)]
struct MadeInvitation {
    #[serde(flatten)]
    invitation: Invitation,
    /// Secret of the invitation. Only this answer contains it.
    #[schema(value_type = String)]
    token: Secret,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Acceptance {
    #[schema(value_type = String, format = Password)]
    token: Secret,
}

/// The organisation of an accepted invitation.
#[derive(Serialize, ToSchema)]
struct Joined {
    organisation: Uuid,
}

/// Your organisations.
#[utoipa::path(get, path = "/organisations", tag = "organisations",
    responses((status = 200, description = "Your organisations", body = List<Membership>)))]
async fn list_organisations(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
) -> ApiResult<Json<List<Membership>>> {
    let items = api.control().me(&caller).await?.organisations;
    Ok(Json(List { items, next_cursor: None }))
}

/// Creates an organisation; you become its owner.
#[utoipa::path(post, path = "/organisations", tag = "organisations", params(IdempotencyKey), request_body = NewOrganisation,
    responses((status = 201, description = "The organisation", body = Organisation)))]
async fn create_organisation(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Input { value, once }: Input<NewOrganisation>,
) -> ApiResult<impl IntoResponse> {
    let made = api.control().create_organisation(&caller, &value, &once).await?;
    let path = location(&["organisations", &made.value.id.to_string()]);
    Ok((StatusCode::CREATED, etag(made.version), path, Json(made.value)))
}

/// An organisation.
#[utoipa::path(get, path = "/organisations/{organisation}", tag = "organisations", params(InOrganisation),
    responses((status = 200, description = "The organisation", body = Organisation)))]
async fn get_organisation(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(InOrganisation { organisation }): Path<InOrganisation>,
) -> ApiResult<impl IntoResponse> {
    let found = api.control().organisation(&caller, organisation).await?;
    Ok((etag(found.version), Json(found.value)))
}

/// Renames an organisation.
#[utoipa::path(patch, path = "/organisations/{organisation}", tag = "organisations", params(InOrganisation, IfMatch),
    request_body = NewOrganisation, responses((status = 200, description = "The organisation", body = Organisation)))]
async fn change_organisation(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(InOrganisation { organisation }): Path<InOrganisation>,
    SeenVersion(seen): SeenVersion,
    Input { value, once }: Input<NewOrganisation>,
) -> ApiResult<impl IntoResponse> {
    let changed = api.control().rename_organisation(&caller, organisation, &value, &seen, &once).await?;
    Ok((etag(changed.version), Json(changed.value)))
}

/// Deletes an organisation without brokers. Operators can still read its audit log for at most 400 days.
#[utoipa::path(delete, path = "/organisations/{organisation}", tag = "organisations", params(InOrganisation, IfMatch),
    responses((status = 204, description = "It is removed")))]
async fn delete_organisation(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(InOrganisation { organisation }): Path<InOrganisation>,
    SeenVersion(seen): SeenVersion,
    once: Once,
) -> ApiResult<StatusCode> {
    api.control().delete_organisation(&caller, organisation, &seen, &once).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The members of an organisation.
#[utoipa::path(get, path = "/organisations/{organisation}/members", tag = "organisations", params(InOrganisation, PageQuery),
    responses((status = 200, description = "Members", body = List<Member>)))]
async fn list_members(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(InOrganisation { organisation }): Path<InOrganisation>,
    Paging(page): Paging,
) -> ApiResult<Json<List<Member>>> {
    Ok(List::of(api.control().members(&caller, organisation, &page).await?))
}

/// Changes a member's role.
#[utoipa::path(patch, path = "/organisations/{organisation}/members/{user}", tag = "organisations", params(AtMember),
    request_body = MemberChange, responses((status = 200, description = "The member", body = Member)))]
async fn change_member(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(AtMember { organisation, user }): Path<AtMember>,
    Input { value, once }: Input<MemberChange>,
) -> ApiResult<Json<Member>> {
    Ok(Json(api.control().change_member(&caller, (organisation, user), &value, &once).await?))
}

/// Removes a member. Every member may leave.
#[utoipa::path(delete, path = "/organisations/{organisation}/members/{user}", tag = "organisations", params(AtMember),
    responses((status = 204, description = "They are no member any more")))]
async fn remove_member(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(AtMember { organisation, user }): Path<AtMember>,
    once: Once,
) -> ApiResult<StatusCode> {
    api.control().remove_member(&caller, (organisation, user), &once).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Open invitations.
#[utoipa::path(get, path = "/organisations/{organisation}/invitations", tag = "organisations",
    params(InOrganisation, PageQuery), responses((status = 200, description = "Invitations", body = List<Invitation>)))]
async fn list_invitations(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(InOrganisation { organisation }): Path<InOrganisation>,
    Paging(page): Paging,
) -> ApiResult<Json<List<Invitation>>> {
    Ok(List::of(api.control().invitations(&caller, organisation, &page).await?))
}

/// Invites a person. The server mails the link if it can send mail, five an hour to an address; otherwise pass it on yourself.
#[utoipa::path(post, path = "/organisations/{organisation}/invitations", tag = "organisations",
    params(InOrganisation, IdempotencyKey), request_body = NewInvitation,
    responses((status = 201, description = "The invitation", body = MadeInvitation)))]
async fn invite(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(InOrganisation { organisation }): Path<InOrganisation>,
    Input { value, once }: Input<NewInvitation>,
) -> ApiResult<impl IntoResponse> {
    let mut is_mailed = false;
    if api.control().can_send_mail() {
        // The permission comes first, so that strangers cannot use up the organisation's budget of mails.
        api.control().may(&caller, organisation, Permission::OrganisationWrite).await?;
        is_mailed = api.rates().invitation(organisation, caller.person(), &value.email)?;
    }
    let invited = api.control().invite(&caller, organisation, &value, (&once, is_mailed)).await?;
    let (invitation, token) = invited;
    let id = invitation.id.to_string();
    let path = location(&["organisations", &organisation.to_string(), "invitations", &id]);
    Ok((StatusCode::CREATED, path, Json(MadeInvitation { invitation, token })))
}

/// Revokes an invitation.
#[utoipa::path(delete, path = "/organisations/{organisation}/invitations/{invitation}", tag = "organisations",
    params(AtInvitation), responses((status = 204, description = "It opens nothing any more")))]
async fn delete_invitation(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(AtInvitation { organisation, invitation }): Path<AtInvitation>,
    once: Once,
) -> ApiResult<StatusCode> {
    api.control().delete_invitation(&caller, organisation, invitation, &once).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows an invitation to the invited person, before they accept it.
#[utoipa::path(post, path = "/invitations/look", tag = "organisations", request_body = Acceptance,
    responses((status = 200, description = "The invitation", body = OfferedInvitation)))]
async fn offered_invitation(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Input { value, .. }: Input<Acceptance>,
) -> ApiResult<Json<OfferedInvitation>> {
    Ok(Json(api.control().offered_invitation(&caller, &value.token).await?))
}

/// Accepts an invitation: you become a member.
#[utoipa::path(post, path = "/invitations/accept", tag = "organisations", params(IdempotencyKey), request_body = Acceptance,
    responses((status = 200, description = "The organisation", body = Joined)))]
async fn accept_invitation(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Input { value, once }: Input<Acceptance>,
) -> ApiResult<Json<Joined>> {
    let organisation = api.control().accept_invitation(&caller, &value.token, &once).await?;
    Ok(Json(Joined { organisation }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// Prefix of the actor's e-mail address or name, upper or lower case; or the actor's id.
    #[param(max_length = 1024)]
    actor: Option<String>,
    /// Prefix of the action: `credential.` finds all changes of credentials.
    #[param(max_length = 1024, example = "credential.")]
    action: Option<String>,
    /// Earliest time in unix milliseconds.
    #[param(maximum = 253_402_300_799_999_u64)]
    from: Option<u64>,
    /// Latest time (exclusive) in unix milliseconds.
    #[param(maximum = 253_402_300_799_999_u64)]
    to: Option<u64>,
}

impl AuditQuery {
    pub(super) fn filter(&self) -> ApiResult<AuditFilter> {
        for (name, text) in [("actor", &self.actor), ("action", &self.action)] {
            if text.as_ref().is_some_and(|text| text.len() > SEARCH_BYTES_MAX) {
                return Err(query::wrong(name, &format!("has more than {SEARCH_BYTES_MAX} bytes")));
            }
        }
        for (name, at_ms) in [("from", self.from), ("to", self.to)] {
            if at_ms.is_some_and(|at_ms| at_ms > TIME_MS_MAX) {
                return Err(Problem::field(name, TOO_LATE));
            }
        }
        Ok(AuditFilter::new(self.actor.as_deref(), self.action.as_deref(), self.from, self.to))
    }
}

/// The audit log, the latest entry first. A request with a filter reads at most 2,000 entries: its page may be empty
/// and still have a `next_cursor`.
#[utoipa::path(get, path = "/organisations/{organisation}/audit", tag = "organisations", params(InOrganisation, AuditQuery, PageQuery),
    responses((status = 200, description = "Entries", body = List<AuditEntry>)))]
async fn list_audit_entries(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(InOrganisation { organisation }): Path<InOrganisation>,
    Query(query): Query<AuditQuery>,
    Paging(page): Paging,
) -> ApiResult<Json<List<AuditEntry>>> {
    let filter = query.filter()?;
    let _turn = api.turn(&caller, organisation, Permission::AuditRead).await?;
    Ok(List::of(api.control().audit_log(&caller, organisation, &filter, &page).await?))
}

/// The audit log of your account, the latest entry first: sign-ins, refused sign-ins, changes of its password, second
/// factor and identities. Your organisations see the same entries.
#[utoipa::path(get, path = "/me/audit", tag = "people", params(AuditQuery, PageQuery),
    responses((status = 200, description = "Entries", body = List<AuditEntry>)))]
async fn list_own_audit_entries(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Query(query): Query<AuditQuery>,
    Paging(page): Paging,
) -> ApiResult<Json<List<AuditEntry>>> {
    let filter = query.filter()?;
    // The budget of expensive requests has an entry for the person, as for an organisation.
    let _turn = api.budget().turn(caller.id(), caller.account()).await?;
    Ok(List::of(api.control().own_audit_log(&caller, &filter, &page).await?))
}
