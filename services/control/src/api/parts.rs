//! Routes of the parts of a broker that callers set by name and as a whole: groups, JWT issuers, client CAs, webhooks,
//! bans.
//!
//! The routes of all five are alike, so the macro `parts!` declares them once.

mod settings;

use millrace_access::model::{Ban, ClientCa, Group, JwtIssuer, Webhook};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use super::problem::ApiResult;
use super::{Api, export};
use crate::domain::{BrokerPart, Page};
use settings::{BanSettings, ClientCaSettings, GroupSettings, JwtIssuerSettings, WebhookSettings};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .merge(groups::routes())
        .merge(jwt_issuers::routes())
        .merge(client_cas::routes())
        .merge(webhooks::routes())
        .merge(bans::routes())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct AtPart {
    pub(super) organisation: Uuid,
    pub(super) broker: String,
    pub(super) name: String,
}

/// Declares list, get, put and delete of one kind: `$record` is the stored form, `$settings` the request, `$shown` the
/// answer.
macro_rules! parts {
    ($module:ident: $record:ident, $settings:ident, $shown:ident, $tag:literal, $path:literal, $one:literal,
     list $list:ident, get $get:ident, put $put:ident, delete $delete:ident) => {
        #[doc = concat!("Something that is set by name: ", $one, ".")]
        #[derive(Serialize, ToSchema)]
        pub(super) struct $shown {
            /// Its name, unique in its broker.
            name: String,
            created_at_ms: u64,
            #[serde(flatten)]
            settings: $settings,
        }

        impl From<$record> for $shown {
            fn from(record: $record) -> Self {
                let (name, created_at_ms) = (record.name.clone(), record.created_at_ms);
                Self { name, created_at_ms, settings: record.into() }
            }
        }

        impl Exported for $record {
            type Shown = $shown;
        }

        mod $module {
            use axum::Json;
            use axum::extract::State;
            use axum::http::StatusCode;
            use axum::response::IntoResponse;
            use utoipa_axum::router::OpenApiRouter;
            use utoipa_axum::routes;

            use super::{$record, $settings, $shown, AtPart};
            use crate::api::extract::{
                AuthenticatedCaller, IfMatch, IfMatchOrNone, Input, PageQuery, Paging, Path, SeenVersion, etag,
            };
            use crate::api::problem::ApiResult;
            use crate::api::{Api, AtBroker, List};
            use crate::domain::{BrokerRef, Permission};

            pub(super) fn routes() -> OpenApiRouter<Api> {
                OpenApiRouter::new().routes(routes!($list)).routes(routes!($get, $put, $delete))
            }

            #[utoipa::path(get, summary = concat!("Each ", $one, " of a broker."), path = concat!("/organisations/{organisation}/brokers/{broker}/", $path), tag = $tag,
                params(AtBroker, PageQuery), responses((status = 200, description = "A page of them", body = List<$shown>)))]
            async fn $list(
                State(api): State<Api>,
                AuthenticatedCaller(caller): AuthenticatedCaller,
                Path(at): Path<AtBroker>,
                Paging(page): Paging,
            ) -> ApiResult<Json<List<$shown>>> {
                let _turn = api.turn(&caller, at.organisation, Permission::AccessRead).await?;
                Ok(List::of(api.control().parts::<$record>(&caller, &at.at(), &page).await?))
            }

            #[utoipa::path(get, summary = concat!("A ", $one, "."), path = concat!("/organisations/{organisation}/brokers/{broker}/", $path, "/{name}"), tag = $tag,
                params(AtPart), responses((status = 200, description = "The settings", body = $shown)))]
            async fn $get(
                State(api): State<Api>,
                AuthenticatedCaller(caller): AuthenticatedCaller,
                Path(AtPart { organisation, broker, name }): Path<AtPart>,
            ) -> ApiResult<impl IntoResponse> {
                let at = BrokerRef { organisation, name: broker };
                let found = api.control().part::<$record>(&caller, &at, &name).await?;
                Ok((etag(found.version), Json($shown::from(found.value))))
            }

            #[utoipa::path(put, summary = concat!("Makes or replaces a ", $one, "."), path = concat!("/organisations/{organisation}/brokers/{broker}/", $path, "/{name}"), tag = $tag,
                params(AtPart, IfMatchOrNone), request_body = $settings,
                responses((status = 204, description = "It is replaced; ETag is its new version"),
                    (status = 201, description = "It is made; ETag is its version")))]
            async fn $put(
                State(api): State<Api>,
                AuthenticatedCaller(caller): AuthenticatedCaller,
                Path(AtPart { organisation, broker, name }): Path<AtPart>,
                SeenVersion(seen): SeenVersion,
                Input { value, .. }: Input<$settings>,
            ) -> ApiResult<impl IntoResponse> {
                let at = BrokerRef { organisation, name: broker };
                // Reads all parts of this kind, which may be megabytes.
                let _turn = api.turn(&caller, organisation, Permission::AccessWrite).await?;
                let (version, is_new) =
                    api.control().put_part(&caller, &at, &name, &$record::from(value), seen).await?;
                let path = is_new.then(|| at.location(&[$path, &name]));
                let status = if is_new { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
                Ok((status, etag(version), path, ()))
            }

            #[utoipa::path(delete, summary = concat!("Removes a ", $one, "."), path = concat!("/organisations/{organisation}/brokers/{broker}/", $path, "/{name}"), tag = $tag,
                params(AtPart, IfMatch), responses((status = 204, description = "It is removed")))]
            async fn $delete(
                State(api): State<Api>,
                AuthenticatedCaller(caller): AuthenticatedCaller,
                Path(AtPart { organisation, broker, name }): Path<AtPart>,
                SeenVersion(seen): SeenVersion,
            ) -> ApiResult<StatusCode> {
                let at = BrokerRef { organisation, name: broker };
                api.control().delete_part::<$record>(&caller, &at, &name, seen).await?;
                Ok(StatusCode::NO_CONTENT)
            }
        }
    };
}

/// Removes from a page of parts the secrets that only some callers may see, for an export.
pub(super) fn without_secrets<P: Exported>(mut page: Page<P>) -> ApiResult<Page<Value>> {
    page.items.iter_mut().for_each(P::hide_secrets);
    let items = page.items.into_iter().map(P::Shown::from).collect();
    export::values(Page { items, next: page.next })
}

pub(super) trait Exported: BrokerPart {
    type Shown: From<Self> + Serialize;
}

parts!(groups: Group, GroupSettings, ShownGroup, "access", "groups", "group of credentials",
    list list_groups, get get_group, put put_group, delete delete_group);
parts!(jwt_issuers: JwtIssuer, JwtIssuerSettings, ShownJwtIssuer, "access", "jwt-issuers", "JWT issuer",
    list list_jwt_issuers, get get_jwt_issuer, put put_jwt_issuer, delete delete_jwt_issuer);
parts!(client_cas: ClientCa, ClientCaSettings, ShownClientCa, "access", "client-cas", "client CA",
    list list_client_cas, get get_client_ca, put put_client_ca, delete delete_client_ca);
parts!(webhooks: Webhook, WebhookSettings, ShownWebhook, "webhooks", "webhooks", "webhook",
    list list_webhooks, get get_webhook, put put_webhook, delete delete_webhook);
parts!(bans: Ban, BanSettings, ShownBan, "access", "bans", "ban",
    list list_bans, get get_ban, put put_ban, delete delete_ban);
