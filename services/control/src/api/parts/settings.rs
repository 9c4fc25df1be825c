//! The settings of each kind of part in JSON, as callers send and get them. Secrets go in and never come out.

use millrace_access::model::{
    Ban, CertificateUser, ClaimMapping, ClientCa, Group, HiddenText, JwtAlgorithm, JwtIssuer, JwtKey, Rule,
    Webhook, WebhookEvent,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::secret::is_not_shown;

/// A group of users who share rules.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub(super) struct GroupSettings {
    /// Rules of the members. A member's own rules come before them, and the broker's rules after them.
    rules: Vec<Rule>,
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

/// An issuer of JSON web tokens. A client sends its token as the password.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JwtIssuerSettings {
    /// False: the broker refuses its tokens.
    #[serde(default = "yes")]
    enabled: bool,
    #[schema(min_items = 1, max_items = 3)]
    algorithms: Vec<JwtAlgorithm>,
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
    #[schema(maximum = 600)]
    leeway_s: u32,
    /// The group whose rules its users have, unless a credential with their user name sets another.
    group: Option<String>,
    /// Whether the broker disconnects a client when its token expires.
    #[serde(default = "yes")]
    disconnect_at_expiry: bool,
}

#[derive(Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum IssuerKey {
    /// For HS256.
    Secret {
        /// At least 32 bytes. It is never shown; left out, it stays as it is.
        #[serde(default, skip_serializing_if = "is_not_shown")]
        #[schema(value_type = Option<String>, format = Password, write_only, max_length = 1024)]
        secret: Option<HiddenText>,
        /// Whether `secret` is base64 of the key. It changes only together with `secret`.
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

/// A certificate authority whose client certificates the broker accepts.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientCaSettings {
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

/// A webhook: the broker POSTs events to a URL.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookSettings {
    /// URL that receives the requests. Callers without `access:write` see `(hidden)` instead of its path; sent back, the URL stays.
    url: String,
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

/// A ban of clients, whatever credentials they have. Exactly one of `client_id`, `user` and `address` is set.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "client_id": "pump-7", "user": null, "address": null, "until_ms": 4_102_444_800_000_u64,
    "reason": "reconnects all the time",
}))]
#[serde(deny_unknown_fields)]
pub(super) struct BanSettings {
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
    #[schema(maximum = 253_402_300_799_999_u64)]
    until_ms: Option<u64>,
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

fn yes() -> bool {
    true
}

fn one() -> u16 {
    1
}

fn leeway_s() -> u32 {
    JwtIssuer::default().leeway_s
}
