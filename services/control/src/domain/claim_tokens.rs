//! Claim tokens of a broker: a device without a credential shows one, and gets a credential of its own (`claims`).
//!
//! A claim token is a secret that many devices and people see. So it has an end, a number of uses, a prefix of the user
//! names that it makes, and the rules that they get; none of these can be changed.

use millrace_access::model::{self, Invalid, Rule};
use millrace_layers::BrokerId;
use millrace_layers::accounts::{
    self,
    expiring::{Expiring, ExpiringKind},
};
use millrace_layers::documents::Collection;
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::check::{FieldErrors, room};
use super::difference::{difference, with};
use super::parts::check_group;
use super::{
    BrokerRef, Caller, Control, Error, Once, Page, PageRequest, Permission, Result, brokers, members, tokens,
};
use crate::limits::{CLAIM_TOKEN_MS_MAX, CLAIM_TOKENS_MAX, CREDENTIALS_MAX};
use crate::secret::{Hash, Purpose, Secret};

/// Prefix of every claim token, so that secret scanners recognise leaked ones.
const PREFIX: &str = "mlc_";
/// User names have at most 256 bytes, so the prefix leaves room for the device's own part.
const USER_PREFIX_BYTES_MAX: usize = 128;

/// A claim token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimToken {
    pub id: Uuid,
    pub name: String,
    /// The user name of each device begins with this.
    #[schema(example = "pump-")]
    pub user_prefix: String,
    /// Number of credentials that devices can make by it.
    pub uses_max: u64,
    /// Number of credentials that devices have made by it.
    pub uses: u64,
    /// End of the token, in unix milliseconds.
    pub expires_at_ms: u64,
    pub group: Option<String>,
    pub rules: Vec<Rule>,
    /// Whether a device can connect only with its user name as client id.
    pub bind_client_id: bool,
    /// Id of the member who made it. It is not valid while that member may not change credentials.
    pub made_by: Uuid,
    /// Id of the API token that made it; null: the member did. It is not valid once that API token is deleted, or may not
    /// change credentials.
    #[serde(default)]
    pub api_token: Option<Uuid>,
    pub created_at_ms: u64,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewClaimToken {
    #[schema(example = "pumps of line 2", min_length = 1, max_length = 100)]
    pub name: String,
    /// The user name of each device begins with this. No user of a certificate, a JWT or a webhook should have such a
    /// name, because a credential adds its rules to that user.
    #[schema(example = "pump-", min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$")]
    pub user_prefix: String,
    /// Number of credentials that devices can make by it.
    #[schema(example = 500, minimum = 1, maximum = 100_000)]
    pub uses_max: u64,
    /// End of the token, in unix milliseconds: at most 366 days ahead, and not after the end of an API token that makes
    /// it. Credentials that devices have made stay.
    #[schema(example = 1_822_348_800_000_u64, maximum = 253_402_300_799_999_u64)]
    pub expires_at_ms: u64,
    /// The group of the credentials. Without a group and rules, the broker's rules alone apply.
    #[schema(example = "pumps", min_length = 1, max_length = 64)]
    pub group: Option<String>,
    /// Rules of the credentials. `%u` stands for the user name, `%c` for the client id.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub rules: Vec<Rule>,
    /// Whether a device can connect only with its user name as client id.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub bind_client_id: bool,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ClaimTokenRecord {
    pub(super) shown: ClaimToken,
    hash: Hash,
}

/// Where the record of a claim token is; found by the hash of its secret.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ClaimTokenRef {
    pub(super) organisation: Uuid,
    pub(super) broker: String,
    pub(super) broker_id: BrokerId,
    pub(super) id: Uuid,
}

impl Control {
    pub(crate) async fn claim_tokens(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        page: &PageRequest,
    ) -> Result<Page<ClaimToken>> {
        self.look(|tx| async move {
            let broker = brokers::find(&tx, caller, at, Permission::AccessRead, Read::Snapshot).await?;
            let all = accounts::claim_tokens(broker.id);
            let rows = page.read::<ClaimTokenRecord>(&tx, &all, b"").await?;
            Ok(Page::of(rows, |_, record| record.value.shown))
        })
        .await
    }

    pub(crate) async fn claim_token(&self, caller: &Caller, at: &BrokerRef, id: Uuid) -> Result<ClaimToken> {
        self.look(|tx| async move {
            let broker = brokers::find(&tx, caller, at, Permission::AccessRead, Read::Snapshot).await?;
            Ok(get(&tx, broker.id, id, Read::Snapshot).await?.shown)
        })
        .await
    }

    pub(crate) async fn create_claim_token(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        input: &NewClaimToken,
        once: &Once,
    ) -> Result<(ClaimToken, Secret)> {
        input.check(self.now_ms())?;
        let made_by = caller.person().ok_or_else(|| {
            let what = "this API token does not say who made it, so it makes no claim token: make another one in its place";
            Error::Forbidden(what.into())
        })?;
        let id = self.new_id()?;
        let shown = self
            .change(caller.into(), once, |change| async move {
                let tx = &change.tx;
                let broker =
                    brokers::find(tx, caller, at, Permission::AccessWrite, Read::Serializable).await?;
                check_group(tx, broker.id, "group", input.group.as_deref()).await?;
                check_end(tx, caller, at.organisation, input.expires_at_ms).await?;
                let all = accounts::claim_tokens(broker.id);
                let count =
                    all.page::<ClaimTokenRecord>(tx, None, CLAIM_TOKENS_MAX, Read::Serializable).await?;
                room(count.items.len(), CLAIM_TOKENS_MAX, "claim tokens of this broker")?;
                let shown = ClaimToken {
                    id,
                    name: input.name.clone(),
                    user_prefix: input.user_prefix.clone(),
                    uses_max: input.uses_max,
                    uses: 0,
                    expires_at_ms: input.expires_at_ms,
                    group: input.group.clone(),
                    rules: input.rules.clone(),
                    bind_client_id: input.bind_client_id,
                    made_by,
                    api_token: caller.api_token(),
                    created_at_ms: members::creation_time_ms(&change, caller, at.organisation).await?,
                };
                let hash = self.claim_hash(&self.claim_secret(once, id)?)?;
                let claim_ref = ClaimTokenRef {
                    organisation: at.organisation,
                    broker: at.name.clone(),
                    broker_id: broker.id,
                    id,
                };
                all.put(tx, id.as_bytes(), &ClaimTokenRecord { shown: shown.clone(), hash }).await?;
                accounts::claim_token_hashes().put(tx, &hash, &claim_ref).await?;
                expiring(&hash, shown.expires_at_ms).schedule(tx)?;
                let details = with(json!({ "broker": at.name }), difference(None, Some(&shown))?);
                change.audit(at.organisation, "claim_token.create", &id.to_string(), details)?;
                Ok(shown)
            })
            .await?;
        let secret = self.claim_secret(once, shown.id)?;
        Ok((shown, secret))
    }

    pub(crate) async fn delete_claim_token(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        id: Uuid,
        once: &Once,
    ) -> Result<()> {
        self.change(caller.into(), once, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            let broker = brokers::find(tx, caller, at, Permission::AccessWrite, Read::Serializable).await?;
            let ClaimTokenRecord { shown, hash } = get(tx, broker.id, id, Read::Serializable).await?;
            expiring(&hash, shown.expires_at_ms).cancel(tx)?;
            remove(tx, broker.id, id, &hash).await?;
            let details = json!({ "broker": at.name, "name": shown.name, "uses": shown.uses });
            change.audit(at.organisation, "claim_token.delete", &id.to_string(), details)
        })
        .await
    }

    fn claim_secret(&self, once: &Once, id: Uuid) -> Result<Secret> {
        let secret = self.secret_of(once, id.as_bytes())?;
        Ok(format!("{PREFIX}{}", secret.expose()).as_str().into())
    }

    pub(crate) fn claim_hash(&self, secret: &Secret) -> Result<Hash> {
        self.hash(Purpose::ClaimToken, &[secret.expose().as_bytes()])
    }
}

/// Refuses an end later than the API token's own end, because claims after it would be refused.
async fn check_end(tx: &Transaction, caller: &Caller, organisation: Uuid, expires_at_ms: u64) -> Result<()> {
    let Some(id) = caller.api_token() else { return Ok(()) };
    match tokens::end(tx, organisation, id).await? {
        Some(end_ms) if end_ms < expires_at_ms => {
            let what = format!(
                "is after the end of your API token or login, {end_ms}: sign in to the console for a later one"
            );
            Err(Error::field("expires_at_ms", what))
        }
        _ => Ok(()),
    }
}

/// Finds a claim token of an existing broker by the hash of its secret. The caller must check whether it has expired or is used up.
pub(super) async fn by_hash(
    tx: &Transaction,
    hash: &Hash,
    read: Read,
) -> Result<Option<(ClaimTokenRef, ClaimToken)>> {
    let Some(claim_ref) = accounts::claim_token_hashes().get::<ClaimTokenRef>(tx, hash, read).await? else {
        return Ok(None);
    };
    let claim_ref = claim_ref.value;
    let of_organisation = accounts::brokers_of(claim_ref.organisation.as_bytes());
    let broker = of_organisation.get::<BrokerId>(tx, claim_ref.broker.as_bytes(), read).await?;
    if broker.is_none_or(|broker| broker.value != claim_ref.broker_id) {
        return Ok(None);
    }
    match get(tx, claim_ref.broker_id, claim_ref.id, read).await {
        Ok(record) => Ok(Some((claim_ref, record.shown))),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) async fn count_use(tx: &Transaction, claim_ref: &ClaimTokenRef) -> Result<()> {
    let mut record = get(tx, claim_ref.broker_id, claim_ref.id, Read::Serializable).await?;
    record.shown.uses += 1;
    all(claim_ref.broker_id).put(tx, claim_ref.id.as_bytes(), &record).await?;
    Ok(())
}

/// Removes an expired claim token; one that was deleted meanwhile is no error.
pub(super) async fn expire(tx: &Transaction, hash: &[u8]) -> Result<()> {
    let claim_ref = accounts::claim_token_hashes().get::<ClaimTokenRef>(tx, hash, Read::Serializable).await?;
    match claim_ref {
        Some(claim_ref) => remove(tx, claim_ref.value.broker_id, claim_ref.value.id, hash).await,
        None => Ok(()),
    }
}

async fn remove(tx: &Transaction, broker: BrokerId, id: Uuid, hash: &[u8]) -> Result<()> {
    accounts::claim_token_hashes().clear(tx, hash).await?;
    Ok(all(broker).clear(tx, id.as_bytes()).await?)
}

async fn get(tx: &Transaction, broker: BrokerId, id: Uuid, read: Read) -> Result<ClaimTokenRecord> {
    let record = all(broker).get::<ClaimTokenRecord>(tx, id.as_bytes(), read).await?;
    Ok(record.ok_or(Error::NotFound("claim token"))?.value)
}

fn all(broker: BrokerId) -> Collection {
    accounts::claim_tokens(broker)
}

fn expiring(hash: &Hash, at_ms: u64) -> Expiring {
    Expiring { at_ms, kind: ExpiringKind::ClaimToken, id: hash.to_vec().into() }
}

/// Whether a name has only characters that mean themselves in topics, topic filters, URLs and user names of brokers.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
}

impl NewClaimToken {
    fn check(&self, now_ms: u64) -> Result<()> {
        let mut fields = FieldErrors::default();
        fields.name("name", &self.name);
        if !is_plain(&self.user_prefix) || self.user_prefix.len() > USER_PREFIX_BYTES_MAX {
            let what = format!(
                "must have 1 to {USER_PREFIX_BYTES_MAX} letters (a to z), digits, dots, colons, underscores and hyphens"
            );
            fields.add("user_prefix", what);
        }
        if !(1..=CREDENTIALS_MAX).contains(&self.uses_max) {
            fields.add("uses_max", format!("must be between 1 and {CREDENTIALS_MAX}"));
        }
        if self.expires_at_ms <= now_ms {
            fields.add("expires_at_ms", "is over already");
        } else if self.expires_at_ms > now_ms + CLAIM_TOKEN_MS_MAX {
            fields.add("expires_at_ms", "is more than 366 days ahead");
        }
        let made = model::Credential {
            user: "-".into(),
            group: self.group.clone(),
            rules: self.rules.clone(),
            ..model::Credential::default()
        };
        for Invalid { field, what } in made.validate().err().unwrap_or_default() {
            fields.add(&field, what);
        }
        fields.done()
    }
}
