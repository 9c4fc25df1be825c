//! Authentication methods of a broker, and the rules for all of its clients.

use millrace_access::model::{Access, CertificateUse, HiddenText, Rule, WebhookAuth};
use millrace_layers::{
    BrokerId,
    accounts::{self, ACCESS, touch},
    documents::Document,
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::difference::{difference, with, without_secrets};
use super::parts::{Precondition, Versioned, check_group};
use super::{BrokerRef, Caller, Control, Once, Permission, Result, authorise, brokers, plans};
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
}

/// A service that is asked about a client that no other method has authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessWebhook {
    /// URL that receives the requests, by POST.
    pub url: String,
    /// Key that signs the body (HMAC-SHA-256). It is never shown; left out, it stays as it is; an empty one removes it.
    #[serde(skip_serializing_if = "is_not_shown")]
    #[schema(value_type = Option<String>, format = Password, write_only, max_length = 1024)]
    pub signing_key: Option<HiddenText>,
    /// Time for an answer, in milliseconds. Afterwards the client is refused as if the service could not be reached.
    pub timeout_ms: u32,
    /// Time for which an answer counts for the same client with the same password, in seconds.
    pub cache_s: u32,
    pub group: Option<String>,
}

impl Default for AccessSettings {
    fn default() -> Self {
        Access::default().into()
    }
}

impl Default for AccessWebhook {
    fn default() -> Self {
        WebhookAuth::default().into()
    }
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
        } = access;
        Self { anonymous, passwords, scram, tokens, certificates, webhook: webhook.map(Into::into), rules }
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

    fn record(&self, old: &Access) -> Access {
        let Self { anonymous, passwords, scram, tokens, certificates, webhook, rules } = self.clone();
        let webhook = webhook.map(|webhook| webhook.record(old.webhook.as_ref()));
        let (limits, ceiling) = (old.limits.clone(), old.ceiling.clone());
        Access { anonymous, passwords, scram, tokens, certificates, webhook, rules, limits, ceiling }
    }
}

impl AccessWebhook {
    fn record(self, old: Option<&WebhookAuth>) -> WebhookAuth {
        let Self { url, signing_key, timeout_ms, cache_s, group } = self;
        let signing_key = match signing_key {
            None => old.and_then(|old| old.signing_key.clone()),
            given => given.filter(|key| !key.expose().is_empty()),
        };
        WebhookAuth { url, signing_key, timeout_ms, cache_s, group }
    }
}

impl Control {
    pub(crate) async fn access(&self, caller: &Caller, at: &BrokerRef) -> Result<Versioned<AccessSettings>> {
        self.look(|tx| async move {
            let broker = brokers::find(&tx, caller, at, Permission::AccessRead, Read::Snapshot).await?;
            let Document { mut value, version } = get(&tx, broker.id, Read::Snapshot).await?;
            // The URL may contain a token of the service.
            if let Some(webhook) = &mut value.webhook
                && authorise(&tx, caller, at.organisation, Permission::AccessWrite, Read::Snapshot)
                    .await
                    .is_err()
            {
                webhook.url = without_secrets(&webhook.url);
            }
            Ok(Versioned { value: value.into(), version })
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
            let old = for_change(tx, at.organisation, broker.id).await?;
            seen.check(Some(old.version))?;
            let record = input.record(&old.value);
            record.validate()?;
            let group = record.webhook.as_ref().and_then(|webhook| webhook.group.as_deref());
            check_group(tx, broker.id, "webhook.group", group).await?;
            let version = put(tx, broker.id, &record).await?;
            touch(tx, broker.id)?;
            let said = with(json!({ "broker": at.name }), difference(Some(&old.value), Some(&record))?);
            change.audit(at.organisation, "access.change", &at.name, said)?;
            Ok(Versioned { value: record.into(), version })
        })
        .await
    }
}

/// A broker without a stored record has the default, in version 0.
pub(super) async fn get(tx: &Transaction, broker: BrokerId, read: Read) -> Result<Document<Access>> {
    let found = accounts::access(broker).get(tx, ACCESS, read).await?;
    Ok(found.unwrap_or_else(|| Document { value: Access::default(), version: 0 }))
}

/// The record for a change. For a broker of the server's settings, the first record starts with the ceiling of its
/// tenant's plan, because a plan is not copied to a broker without a record.
pub(super) async fn for_change(
    tx: &Transaction,
    organisation: Uuid,
    broker: BrokerId,
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
