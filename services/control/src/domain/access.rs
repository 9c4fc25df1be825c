//! Authentication methods of a broker, and the rules for all of its clients. The server's settings replace both for a
//! broker that existed before its organisation, until somebody sets the access of the broker.

use millrace_access::model::{Access, CertificateUse, HiddenText, Rule, WebhookAuth};
use millrace_layers::{
    BrokerId,
    accounts::{self, ACCESS, touch},
    catalog::BrokerRecord,
    documents::Document,
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::difference::{difference, with, with_secrets, without_secrets};
use super::parts::{Precondition, Versioned, check_group};
use super::{BrokerRef, Caller, Control, Error, Once, Permission, Result, authorise, brokers, plans};
use crate::secret::is_not_shown;

/// Authentication methods of a broker. A field that is left out has its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessSettings {
    /// Whether clients without user name and certificate may connect.
    pub anonymous: bool,
    /// Whether clients may authenticate with the password of a credential.
    pub passwords: bool,
    /// Whether 5.0 clients may authenticate by SCRAM-SHA-256.
    pub scram: bool,
    /// Whether clients may authenticate with a token of one of the JWT issuers.
    pub tokens: bool,
    /// Whether clients authenticate with a certificate of one of the client CAs.
    pub certificates: CertificateUse,
    /// Your own service, which is asked if no other method has authenticated the client.
    pub webhook: Option<AccessWebhook>,
    /// Rules for all clients; they come last. A client without any rule, here, of its group or of its own, may do
    /// everything. A client with rules may do only what they allow.
    pub rules: Vec<Rule>,
    /// True: the settings of the server (`allow_anonymous`, `password_file`, `rules_file`) decide who may connect and
    /// what clients may do. The other fields then show what these settings admit, without the rules of the file.
    /// Credentials, groups, issuers and client CAs can be prepared; they are not in force. Send false, or leave it out,
    /// to put them and the other fields in force for good: the server disconnects the clients that its settings
    /// admitted. True is refused.
    pub by_settings: bool,
}

/// How the server's settings admit clients to brokers whose access nobody has set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessBySettings {
    /// `allow_anonymous`.
    pub anonymous: bool,
    /// There is a password file.
    pub passwords: bool,
}

const BY_SETTINGS: &str = "cannot be set to true: no request gives a broker back to the settings of the server. Leave it out or send \
    false, which ends those settings for a broker that they still decide about, and disconnects the clients that they admitted";

/// A service that is asked about a client that no other method has authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessWebhook {
    /// URL that receives the requests, by POST. Callers without `access:write` see `(hidden)` instead of its path; sent
    /// back, the URL stays.
    pub url: String,
    /// Key that signs the body (HMAC-SHA-256). It is never shown; left out, it stays as it is; an empty one removes it.
    #[serde(default, skip_serializing_if = "is_not_shown")]
    #[schema(value_type = Option<String>, format = Password, write_only, max_length = 1024)]
    pub signing_key: Option<HiddenText>,
    /// Time for an answer, in milliseconds. Afterwards the client is refused as if the service could not be reached.
    #[serde(default = "timeout_ms")]
    #[schema(default = timeout_ms, minimum = 1, maximum = 8_000)]
    pub timeout_ms: u32,
    /// Time for which an answer counts for the same client with the same password, in seconds.
    #[serde(default = "cache_s")]
    #[schema(default = cache_s, maximum = 3_600)]
    pub cache_s: u32,
    pub group: Option<String>,
}

impl Default for AccessSettings {
    fn default() -> Self {
        Access::default().into()
    }
}

fn timeout_ms() -> u32 {
    WebhookAuth::default().timeout_ms
}

fn cache_s() -> u32 {
    WebhookAuth::default().cache_s
}

impl From<Access> for AccessSettings {
    fn from(access: Access) -> Self {
        let Access {
            anonymous,
            passwords,
            scram,
            tokens,
            certificates,
            webhook,
            rules,
            limits: _,
            ceiling: _,
            by_settings,
        } = access;
        let webhook = webhook.map(Into::into);
        Self { anonymous, passwords, scram, tokens, certificates, webhook, rules, by_settings }
    }
}

impl From<AccessBySettings> for AccessSettings {
    fn from(AccessBySettings { anonymous, passwords }: AccessBySettings) -> Self {
        Self { anonymous, passwords, scram: false, by_settings: true, ..Self::default() }
    }
}

impl From<WebhookAuth> for AccessWebhook {
    fn from(webhook: WebhookAuth) -> Self {
        let WebhookAuth { url, signing_key, timeout_ms, cache_s, group } = webhook;
        Self { url, signing_key, timeout_ms, cache_s, group }
    }
}

impl AccessSettings {
    pub(crate) fn without_secrets(mut self) -> Self {
        if let Some(webhook) = &mut self.webhook {
            // The URL may contain a token of the service.
            webhook.url = without_secrets(&webhook.url);
        }
        self
    }

    fn record(&self, old: &Access) -> Result<Access> {
        let Self { anonymous, passwords, scram, tokens, certificates, webhook, rules, by_settings } =
            self.clone();
        if by_settings {
            return Err(Error::field("by_settings", BY_SETTINGS));
        }
        let webhook = webhook.map(|webhook| webhook.record(old.webhook.as_ref())).transpose()?;
        let (limits, ceiling) = (old.limits.clone(), old.ceiling.clone());
        Ok(Access {
            anonymous,
            passwords,
            scram,
            tokens,
            certificates,
            webhook,
            rules,
            limits,
            ceiling,
            by_settings,
        })
    }
}

impl AccessWebhook {
    fn record(self, old: Option<&WebhookAuth>) -> Result<WebhookAuth> {
        let Self { url, signing_key, timeout_ms, cache_s, group } = self;
        let url = with_secrets("webhook.url", &url, old.map(|old| &*old.url))?;
        let signing_key = match signing_key {
            None => old.and_then(|old| old.signing_key.clone()),
            given => given.filter(|key| !key.expose().is_empty()),
        };
        Ok(WebhookAuth { url, signing_key, timeout_ms, cache_s, group })
    }
}

impl Control {
    /// Only the first call counts.
    pub fn admits_by_settings(&self, access: AccessBySettings) {
        let _ = self.0.by_settings.set(access);
    }

    pub(super) fn by_settings(&self) -> AccessBySettings {
        self.0.by_settings.get().copied().unwrap_or_default()
    }

    pub(crate) async fn access(&self, caller: &Caller, at: &BrokerRef) -> Result<Versioned<AccessSettings>> {
        self.look(|tx| async move {
            let broker = brokers::find(&tx, caller, at, Permission::AccessRead, Read::Snapshot).await?;
            let Document { value, version } = get(&tx, &broker, Read::Snapshot).await?;
            if value.by_settings {
                return Ok(Versioned { value: self.by_settings().into(), version });
            }
            let value = AccessSettings::from(value);
            let may_write = authorise(&tx, caller, at.organisation, Permission::AccessWrite, Read::Snapshot);
            let sees_secrets = value.webhook.is_none() || may_write.await.is_ok();
            Ok(Versioned { value: if sees_secrets { value } else { value.without_secrets() }, version })
        })
        .await
    }

    pub(crate) async fn set_access(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        input: &AccessSettings,
        seen: Precondition,
    ) -> Result<Versioned<AccessSettings>> {
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            let tx = &change.tx;
            let broker = brokers::find(tx, caller, at, Permission::AccessWrite, Read::Serializable).await?;
            let old = for_change(tx, at.organisation, &broker).await?;
            seen.check(Some(old.version))?;
            let record = input.record(&old.value)?;
            record.validate_change(&old.value)?;
            if let Some(webhook) = &record.webhook {
                let stored = old.value.webhook.as_ref().map(|webhook| webhook.url.as_str());
                self.check_called("webhook.url", &webhook.url, stored)?;
            }
            let group = record.webhook.as_ref().and_then(|webhook| webhook.group.as_deref());
            check_group(tx, broker.id, "webhook.group", group).await?;
            let version = put(tx, broker.id, &record).await?;
            touch(tx, broker.id)?; // Pods notice the change by this counter.
            let said = with(json!({ "broker": at.name }), difference(Some(&old.value), Some(&record))?);
            change.audit(at.organisation, "access.change", &at.name, said)?;
            Ok(Versioned { value: record.into(), version })
        })
        .await
    }
}

/// A broker without a stored record has the default, in version 0. `by_settings` says who decides.
pub(super) async fn get(tx: &Transaction, broker: &BrokerRecord, read: Read) -> Result<Document<Access>> {
    let found = accounts::access(broker.id).get::<Access>(tx, ACCESS, read).await?;
    let stored = found.as_ref().map(|found| found.value.by_settings);
    let by_settings = !broker.details()?.value.is_managed(stored);
    let mut found = found.unwrap_or_else(|| Document { value: Access::default(), version: 0 });
    found.value.by_settings = by_settings;
    Ok(found)
}

/// The record for a change. The first record starts with the ceiling of the tenant's plan.
pub(super) async fn for_change(
    tx: &Transaction,
    organisation: Uuid,
    broker: &BrokerRecord,
) -> Result<Document<Access>> {
    let mut found = get(tx, broker, Read::Serializable).await?;
    if found.version == 0 {
        found.value.ceiling = plans::of(tx, organisation).await?;
    }
    Ok(found)
}

pub(super) async fn put(tx: &Transaction, broker: BrokerId, access: &Access) -> Result<u64> {
    Ok(accounts::access(broker).put(tx, ACCESS, access).await?)
}
