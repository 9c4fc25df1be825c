//! How a broker lets clients in, and the rules of all of them.

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

/// How a broker lets clients in. What is left out has its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessSettings {
    /// Clients without user name and certificate may connect.
    pub anonymous: bool,
    /// Clients may show the password of a credential.
    pub passwords: bool,
    /// 5.0 clients may prove that they know it by SCRAM-SHA-256.
    pub scram: bool,
    /// Clients may show a token of one of the JWT issuers.
    pub tokens: bool,
    /// Whether clients show a certificate of one of the client CAs.
    pub certificates: CertificateUse,
    /// A service of yours that is asked last.
    pub webhook: Option<AccessWebhook>,
    /// Rules of all clients: they come last. When a client has no rule at all, here, of its group or its own, it may do everything;
    /// when it has one, it may do nothing but what they allow.
    pub rules: Vec<Rule>,
}

/// A service that is asked about a client which no other method has let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessWebhook {
    /// Where it is asked, by POST.
    pub url: String,
    /// Signs the body (HMAC-SHA-256). Never shown; when it is left out it stays as it is, and an empty one takes it away.
    #[serde(skip_serializing_if = "is_not_shown")]
    #[schema(value_type = Option<String>, format = Password, write_only)]
    pub signing_key: Option<HiddenText>,
    /// After that the client is refused as if the service could not be reached, milliseconds.
    pub timeout_ms: u32,
    /// For so long an answer counts for the same client with the same password, seconds.
    pub cache_s: u32,
    /// Name of the group whose rules its users have.
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
    /// The whole record, with what is not set here from the one until now.
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
    /// How a broker lets clients in.
    ///
    /// # Errors
    /// See [`super::Error`].
    pub(crate) async fn access(&self, caller: &Caller, at: &BrokerRef) -> Result<Versioned<AccessSettings>> {
        self.look(|tx| async move {
            let broker = brokers::find(&tx, caller, at, Permission::AccessRead, Read::Snapshot).await?;
            let Document { mut value, version } = get(&tx, broker.id, Read::Snapshot).await?;
            // The URL may hold a token of the service.
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

    /// Sets how a broker lets clients in.
    ///
    /// # Errors
    /// See [`super::Error`].
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

/// The record of a broker. One that has none yet has the default, in version 0.
pub(super) async fn get(tx: &Transaction, broker: BrokerId, read: Read) -> Result<Document<Access>> {
    let found = accounts::access(broker).get(tx, ACCESS, read).await?;
    Ok(found.unwrap_or_else(|| Document { value: Access::default(), version: 0 }))
}

/// The record of a broker, to be changed. The first record of a broker of the server's settings begins with the ceiling of its
/// tenant's plan, because the plan was not written to a broker without a record.
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
