//! Routes of the parts of a broker that callers set by name and as a whole: groups, JWT issuers, client CAs, webhooks,
//! bans.
//!
//! The routes of all five are alike, so the macro `parts!` declares them once. The types below it are their JSON forms;
//! secrets go in and never come out.

use millrace_access::model::{
    Ban, CertificateUser, ClaimMapping, ClientCa, Group, HiddenText, JwtAlgorithm, JwtIssuer, JwtKey, Rule,
    Webhook, WebhookEvent,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use super::problem::Answer;
use super::{Api, export};
use crate::domain::{Page, Part};
use crate::secret::is_not_shown;

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
    /// Id of the organisation.
    pub(super) organisation: Uuid,
    /// Name of the broker.
    pub(super) broker: String,
    /// Name of the part.
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
            /// Creation time, in unix milliseconds.
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
                Auth, IfMatch, IfMatchOrNone, Input, PageQuery, Paging, Path, Seen, etag,
            };
            use crate::api::problem::Answer;
            use crate::api::{Api, AtBroker, List};
            use crate::domain::BrokerRef;

            pub(super) fn routes() -> OpenApiRouter<Api> {
                OpenApiRouter::new().routes(routes!($list)).routes(routes!($get, $put, $delete))
            }

            #[utoipa::path(get, summary = concat!("Each ", $one, " of a broker."), path = concat!("/organisations/{organisation}/brokers/{broker}/", $path), tag = $tag,
                params(AtBroker, PageQuery), responses((status = 200, description = "A page of them", body = List<$shown>)))]
            async fn $list(
                State(api): State<Api>,
                Auth(caller): Auth,
                Path(at): Path<AtBroker>,
                Paging(page): Paging,
            ) -> Answer<Json<List<$shown>>> {
                Ok(List::of(api.control().parts::<$record>(&caller, &at.at(), &page).await?))
            }

            #[utoipa::path(get, summary = concat!("A ", $one, "."), path = concat!("/organisations/{organisation}/brokers/{broker}/", $path, "/{name}"), tag = $tag,
                params(AtPart), responses((status = 200, description = "What is set", body = $shown)))]
            async fn $get(
                State(api): State<Api>,
                Auth(caller): Auth,
                Path(AtPart { organisation, broker, name }): Path<AtPart>,
            ) -> Answer<impl IntoResponse> {
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
                Auth(caller): Auth,
                Path(AtPart { organisation, broker, name }): Path<AtPart>,
                Seen(seen): Seen,
                Input { value, .. }: Input<$settings>,
            ) -> Answer<impl IntoResponse> {
                let at = BrokerRef { organisation, name: broker };
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
                Auth(caller): Auth,
                Path(AtPart { organisation, broker, name }): Path<AtPart>,
                Seen(seen): Seen,
            ) -> Answer<StatusCode> {
                let at = BrokerRef { organisation, name: broker };
                api.control().delete_part::<$record>(&caller, &at, &name, seen).await?;
                Ok(StatusCode::NO_CONTENT)
            }
        }
    };
}

/// A page of parts as their lists show them, also without the secrets that only some callers may see.
pub(super) fn without_secrets<P: Exported>(mut page: Page<P>) -> Answer<Page<Value>> {
    page.items.iter_mut().for_each(P::hide_secrets);
    let items = page.items.into_iter().map(P::Shown::from).collect();
    export::values(Page { items, next: page.next })
}

pub(super) trait Exported: Part {
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

/// A group of users who share rules.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct GroupSettings {
    /// Rules of the members. A member's own rules come before them, and the broker's rules after them.
    rules: Vec<Rule>,
}

/// An issuer of JSON web tokens. A client sends its token as the password.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct JwtIssuerSettings {
    /// False: the broker refuses its tokens.
    #[serde(default = "yes")]
    enabled: bool,
    /// Allowed signature algorithms.
    #[schema(min_items = 1, max_items = 3)]
    algorithms: Vec<JwtAlgorithm>,
    /// The key that checks signatures.
    key: IssuerKey,
    /// Required value of `iss`; any value when left out.
    #[schema(max_length = 2048)]
    issuer: Option<String>,
    /// `aud` must name one of these; any value when empty.
    #[serde(default)]
    #[schema(max_items = 32)]
    audience: Vec<String>,
    /// Names and meanings of its claims.
    #[serde(default)]
    claims: ClaimMapping,
    /// Tolerated clock difference to the issuer, in seconds.
    #[serde(default = "leeway_s")]
    leeway_s: u32,
    /// The group whose rules its users have, unless a credential with their user name sets another.
    group: Option<String>,
    /// Whether the broker disconnects a client when its token expires.
    #[serde(default = "yes")]
    disconnect_at_expiry: bool,
}

/// The key that checks signatures.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum IssuerKey {
    /// For HS256.
    Secret {
        /// At least 32 bytes. It is never shown; left out, it stays as it is.
        #[serde(default, skip_serializing_if = "is_not_shown")]
        #[schema(value_type = Option<String>, format = Password, write_only, max_length = 1024)]
        secret: Option<HiddenText>,
        /// Whether `secret` is base64 of the key.
        #[serde(default)]
        base64: bool,
    },
    /// For RS256 and ES256.
    Pem {
        /// PEM of a public key or a certificate.
        pem: String,
    },
    /// For RS256 and ES256.
    Jwks {
        /// URL of the JSON web key set.
        url: String,
    },
}

/// A certificate authority whose client certificates the broker accepts.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ClientCaSettings {
    /// False: the broker refuses its certificates.
    #[serde(default = "yes")]
    enabled: bool,
    /// PEM of the authority's certificates, and of intermediate certificates that clients do not send.
    pem: String,
    /// PEM of its revocation lists.
    revoked: Option<String>,
    /// The part of a certificate that is the user name.
    #[serde(default)]
    user: CertificateUser,
    /// The group whose rules its users have, unless a credential with their user name sets another.
    group: Option<String>,
}

/// A webhook: the broker POSTs events to a URL.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct WebhookSettings {
    /// URL that receives the requests.
    url: String,
    /// Kinds of events to send.
    events: Vec<WebhookEvent>,
    /// Topic filters of the messages to send.
    #[serde(default)]
    filters: Vec<String>,
    /// Key that signs the body (HMAC-SHA-256). It is never shown; left out, it stays as it is; an empty one removes it.
    #[serde(default, skip_serializing_if = "is_not_shown")]
    #[schema(value_type = Option<String>, format = Password, write_only, max_length = 1024)]
    signing_key: Option<HiddenText>,
    /// Most events in one request. With 1 the body is one JSON object, with 2 to 100 it is an array.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 100)]
    batch_max: u16,
    /// False: the broker neither queues nor sends events.
    #[serde(default = "yes")]
    enabled: bool,
}

impl From<Group> for GroupSettings {
    fn from(group: Group) -> Self {
        Self { rules: group.rules }
    }
}

impl From<GroupSettings> for Group {
    fn from(settings: GroupSettings) -> Self {
        Self { rules: settings.rules, ..Self::default() }
    }
}

impl From<JwtIssuer> for JwtIssuerSettings {
    fn from(record: JwtIssuer) -> Self {
        let JwtIssuer { enabled, algorithms, key, issuer, audience, claims, leeway_s, group, .. } = record;
        let disconnect_at_expiry = record.disconnect_at_expiry;
        let key = match key {
            JwtKey::Secret { secret, base64 } => IssuerKey::Secret { secret: Some(secret), base64 },
            JwtKey::Pem { pem } => IssuerKey::Pem { pem },
            JwtKey::Jwks { url } => IssuerKey::Jwks { url },
        };
        Self { enabled, algorithms, key, issuer, audience, claims, leeway_s, group, disconnect_at_expiry }
    }
}

impl From<JwtIssuerSettings> for JwtIssuer {
    fn from(settings: JwtIssuerSettings) -> Self {
        let JwtIssuerSettings { enabled, algorithms, key, issuer, audience, claims, leeway_s, group, .. } =
            settings;
        let disconnect_at_expiry = settings.disconnect_at_expiry;
        let key = match key {
            IssuerKey::Secret { secret, base64 } => {
                JwtKey::Secret { secret: secret.unwrap_or_default(), base64 }
            }
            IssuerKey::Pem { pem } => JwtKey::Pem { pem },
            IssuerKey::Jwks { url } => JwtKey::Jwks { url },
        };
        let made = Self::default();
        Self {
            enabled,
            algorithms,
            key,
            issuer,
            audience,
            claims,
            leeway_s,
            group,
            disconnect_at_expiry,
            ..made
        }
    }
}

impl From<ClientCa> for ClientCaSettings {
    fn from(record: ClientCa) -> Self {
        let ClientCa { enabled, pem, revoked, user, group, .. } = record;
        Self { enabled, pem, revoked, user, group }
    }
}

impl From<ClientCaSettings> for ClientCa {
    fn from(settings: ClientCaSettings) -> Self {
        let ClientCaSettings { enabled, pem, revoked, user, group } = settings;
        Self { enabled, pem, revoked, user, group, ..Self::default() }
    }
}

/// A ban of clients, whatever credentials they have. Exactly one of `client_id`, `user` and `address` is set.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct BanSettings {
    #[serde(default)]
    client_id: Option<String>,
    /// Bans all clients with this user name.
    #[serde(default)]
    user: Option<String>,
    /// Bans all clients at this address, or in this network.
    #[serde(default)]
    #[schema(example = "192.0.2.0/24")]
    address: Option<String>,
    /// End of the ban in unix milliseconds; null: it has no end.
    #[serde(default)]
    until_ms: Option<u64>,
    /// The reason, for people.
    #[serde(default)]
    #[schema(max_length = 256)]
    reason: Option<String>,
}

impl From<Ban> for BanSettings {
    fn from(record: Ban) -> Self {
        let Ban { client_id, user, address, until_ms, reason, .. } = record;
        Self { client_id, user, address, until_ms, reason }
    }
}

impl From<BanSettings> for Ban {
    fn from(settings: BanSettings) -> Self {
        let BanSettings { client_id, user, address, until_ms, reason } = settings;
        Self { client_id, user, address, until_ms, reason, ..Self::default() }
    }
}

impl From<Webhook> for WebhookSettings {
    fn from(record: Webhook) -> Self {
        let Webhook { url, events, filters, signing_key, batch_max, enabled, .. } = record;
        Self { url, events, filters, signing_key, batch_max, enabled }
    }
}

impl From<WebhookSettings> for Webhook {
    fn from(settings: WebhookSettings) -> Self {
        let WebhookSettings { url, events, filters, signing_key, batch_max, enabled } = settings;
        Self { url, events, filters, signing_key, batch_max, enabled, ..Self::default() }
    }
}

fn yes() -> bool {
    true
}

fn one() -> u16 {
    1
}

fn leeway_s() -> u32 {
    JwtIssuer::default().leeway_s
}
