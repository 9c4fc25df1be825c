//! Credentials of a broker: user names with a password, a group and rules.
//!
//! The server stores hashes only. A generated password is derived from the request's key, so a repeated request gets
//! the same password without it being stored.

use millrace_access::model::{self, Rule, ScramVerifier, Secret as StoredSecret};
use millrace_access::secrets::generated;
use millrace_layers::{
    accounts::{self, touch},
    documents::Document,
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

use super::check::check_end;
use super::difference::{difference, with};
use super::parts::{Precondition, Versioned, check_group};
use super::{
    BrokerRef, Caller, Control, Error, Once, Page, PageRequest, Permission, Result, brokers, credential_room,
    names,
};
use crate::limits::PASSWORD_BYTES_MAX;
use crate::secret::Secret;

mod rotation;

pub use rotation::{KeptPassword, Rotation};

/// A credential, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Credential)]
pub struct CredentialInfo {
    /// User name, unique in its broker.
    pub user: String,
    /// Name of the group whose rules come after the credential's own.
    pub group: Option<String>,
    /// The credential's own rules; they come first.
    pub rules: Vec<Rule>,
    /// False: the broker refuses this user.
    pub enabled: bool,
    /// Expiry, in unix milliseconds: the broker then refuses this user.
    pub expires_at_ms: Option<u64>,
    /// Until then the previous secret is also valid, in unix milliseconds.
    pub previous_secret_until_ms: Option<u64>,
    pub created_at_ms: u64,
    /// Whether clients may authenticate by SCRAM-SHA-256.
    #[serde(default)]
    pub scram: bool,
    /// The only client id that may connect as this user; null: any.
    #[schema(example = "pump-7", min_length = 1, max_length = 1_024)]
    #[serde(default)]
    pub client_id: Option<String>,
    /// Id of the claim token by which a device made it; null: a caller of the API made it.
    #[serde(default)]
    pub claim_token: Option<Uuid>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCredential {
    /// User name, unique in its broker.
    #[schema(example = "pump-7", min_length = 1, max_length = 256)]
    pub user: String,
    /// A password that devices already have. Left out: the server generates one, which is stronger and faster to check.
    #[schema(value_type = Option<String>, format = Password)]
    pub password: Option<Secret>,
    /// Name of the group whose rules come after the credential's own.
    pub group: Option<String>,
    /// The credential's own rules; they come first.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// Expiry, in unix milliseconds: the broker then refuses this user.
    #[schema(maximum = 253_402_300_799_999_u64)]
    pub expires_at_ms: Option<u64>,
    /// The only client id that may connect as this user; null: any.
    #[schema(example = "pump-7", min_length = 1, max_length = 1_024)]
    pub client_id: Option<String>,
    /// Whether clients may authenticate by SCRAM-SHA-256. An attacker with the stored data guesses a chosen password
    /// faster from a SCRAM verifier than from an Argon2id hash.
    #[serde(default)]
    pub scram: bool,
}

/// The fields of a credential that can be changed. A field that is left out gets its default.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialChange {
    /// Name of the group whose rules come after the credential's own.
    pub group: Option<String>,
    /// The credential's own rules; they come first.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// False: the broker refuses this user, and disconnects the user's clients.
    pub enabled: bool,
    /// Expiry, in unix milliseconds: the broker then refuses this user.
    #[schema(maximum = 253_402_300_799_999_u64)]
    pub expires_at_ms: Option<u64>,
    /// The only client id that may connect as this user; null: any.
    #[schema(example = "pump-7", min_length = 1, max_length = 1_024)]
    pub client_id: Option<String>,
}

impl Control {
    pub(crate) async fn credentials(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        search: Option<&str>,
        page: &PageRequest,
    ) -> Result<Page<CredentialInfo>> {
        let start = search.unwrap_or_default().as_bytes();
        self.look(|tx| async move {
            let broker = brokers::find(&tx, caller, at, Permission::AccessRead, Read::Snapshot).await?;
            let all = accounts::credentials(broker.id);
            let rows = page.read(&tx, &all, start).await?;
            Ok(Page::of(rows, |_, record: Document<model::Credential>| shown(&record.value)))
        })
        .await
    }

    pub(crate) async fn credential(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        user: &str,
    ) -> Result<Versioned<CredentialInfo>> {
        self.look(|tx| async move {
            let broker = brokers::find(&tx, caller, at, Permission::AccessRead, Read::Snapshot).await?;
            let record = get(&tx, broker.id, user, Read::Snapshot).await?;
            Ok(Versioned { value: shown(&record.value), version: record.version })
        })
        .await
    }

    pub(crate) async fn create_credential(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        input: &NewCredential,
        once: &Once,
    ) -> Result<(Versioned<CredentialInfo>, Option<Secret>)> {
        let id = self.new_id()?;
        let check = &self.check_of(input, once, id).await?;
        let (made, id) = self
            .change(caller.into(), once, |change| async move {
                let tx = &change.tx;
                let broker =
                    brokers::find(tx, caller, at, Permission::AccessWrite, Read::Serializable).await?;
                let record = model::Credential {
                    user: input.user.clone(),
                    secret: Some(check.secret.clone()),
                    scram: check.scram.clone(),
                    group: input.group.clone(),
                    rules: input.rules.clone(),
                    expires_at_ms: input.expires_at_ms,
                    created_at_ms: change.now_ms,
                    client_id: input.client_id.clone(),
                    ..model::Credential::default()
                };
                record.validate()?;
                check_end(input.expires_at_ms, change.now_ms)?;
                names::plain(&record.user).map_err(|what| Error::field("user", what))?;
                check_group(tx, broker.id, "group", input.group.as_deref()).await?;
                let all = accounts::credentials(broker.id);
                let user = input.user.as_bytes();
                if all.get::<model::Credential>(tx, user, Read::Serializable).await?.is_some() {
                    return Err(Error::Conflict("there is a credential with this user name".into()));
                }
                check_look_alike(tx, broker.id, "user", &input.user).await?;
                credential_room::add(tx, broker.id, [&record], Read::Snapshot).await?;
                let version = all.put(tx, user, &record).await?;
                touch(tx, broker.id)?;
                let said = with(json!({ "broker": at.name }), difference(None, Some(&record))?);
                change.audit(at.organisation, "credential.create", &input.user, said)?;
                Ok((Versioned { value: shown(&record), version }, id))
            })
            .await?;
        let generated = input.password.is_none().then(|| self.generated(once, id)).transpose()?;
        Ok((made, generated))
    }

    pub(crate) async fn change_credential(
        &self,
        caller: &Caller,
        (at, user): (&BrokerRef, &str),
        input: &CredentialChange,
        seen: Precondition,
    ) -> Result<Versioned<CredentialInfo>> {
        let once = (&Once::unnamed()?, self.new_id()?);
        let changed = self
            .edit_credential(caller, (at, user), once, "credential.change", Some(seen), |record, _| {
                record.group.clone_from(&input.group);
                record.rules.clone_from(&input.rules);
                record.enabled = input.enabled;
                record.expires_at_ms = input.expires_at_ms;
                record.client_id.clone_from(&input.client_id);
                Ok(json!({}))
            })
            .await?;
        Ok(changed.0)
    }

    pub(crate) async fn delete_credential(
        &self,
        caller: &Caller,
        (at, user): (&BrokerRef, &str),
        seen: Precondition,
    ) -> Result<()> {
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            let broker = brokers::find(tx, caller, at, Permission::AccessWrite, Read::Serializable).await?;
            let old = get(tx, broker.id, user, Read::Serializable).await?;
            seen.check(Some(old.version))?;
            accounts::credentials(broker.id).clear(tx, user.as_bytes()).await?;
            credential_room::remove(tx, broker.id, &old.value)?;
            touch(tx, broker.id)?;
            let said = with(json!({ "broker": at.name }), difference(Some(&old.value), None)?);
            change.audit(at.organisation, "credential.delete", user, said)
        })
        .await
    }

    /// `edit` returns further details for the audit entry.
    async fn edit_credential(
        &self,
        caller: &Caller,
        (at, user): (&BrokerRef, &str),
        (once, id): (&Once, Uuid),
        action: &str,
        seen: Option<Precondition>,
        edit: impl Fn(&mut model::Credential, u64) -> Result<Value>,
    ) -> Result<(Versioned<CredentialInfo>, Uuid)> {
        let edit = &edit;
        self.change(caller.into(), once, |change| async move {
            let tx = &change.tx;
            let broker = brokers::find(tx, caller, at, Permission::AccessWrite, Read::Serializable).await?;
            let Document { value: mut record, version } =
                get(tx, broker.id, user, Read::Serializable).await?;
            if let Some(seen) = seen {
                seen.check(Some(version))?;
            }
            let before = record.clone();
            let said = edit(&mut record, change.now_ms)?;
            record.validate_change(&before)?;
            if record.expires_at_ms != before.expires_at_ms {
                check_end(record.expires_at_ms, change.now_ms)?;
            }
            check_group(tx, broker.id, "group", record.group.as_deref()).await?;
            credential_room::change(tx, broker.id, &before.rules, &record.rules).await?;
            let version = accounts::credentials(broker.id).put(tx, user.as_bytes(), &record).await?;
            touch(tx, broker.id)?;
            let mut said = with(said, difference(Some(&before), Some(&record))?);
            said["broker"] = json!(at.name);
            change.audit(at.organisation, action, user, said)?;
            Ok((Versioned { value: shown(&record), version }, id))
        })
        .await
    }

    async fn check_of(&self, input: &NewCredential, once: &Once, id: Uuid) -> Result<PasswordForms> {
        let Some(chosen) = &input.password else {
            return self.check_of_generated(once, id, input.scram).await;
        };
        if chosen.expose().is_empty() || chosen.expose().len() > PASSWORD_BYTES_MAX {
            let what = format!("must have 1 to {PASSWORD_BYTES_MAX} bytes; leave it out to have one made");
            return Err(Error::field("password", what));
        }
        let secret = StoredSecret::Chosen { phc: self.hash_password(chosen).await?.into() };
        Ok(PasswordForms { secret, scram: self.verifier_of(chosen, input.scram).await? })
    }

    async fn verifier_of(&self, password: &Secret, is_wanted: bool) -> Result<Option<ScramVerifier>> {
        if is_wanted { self.scram_verifier(password).await.map(Some) } else { Ok(None) }
    }

    async fn check_of_generated(&self, once: &Once, id: Uuid, has_scram: bool) -> Result<PasswordForms> {
        let password = self.generated(once, id)?;
        let secret = self.0.mqtt_secret_keys.hash(password.expose().as_bytes());
        Ok(PasswordForms { secret, scram: self.verifier_of(&password, has_scram).await? })
    }

    /// Derives the generated password. `id`, which the receipt stores, is part of it, so that a key that is used again
    /// after its receipt has expired gives another password.
    fn generated(&self, once: &Once, id: Uuid) -> Result<Secret> {
        self.generated_for(once, id, "")
    }

    pub(super) fn generated_for(&self, once: &Once, id: Uuid, user: &str) -> Result<Secret> {
        let random = self.bytes_of(once, &[id.as_bytes(), user.as_bytes()].concat())?;
        let (random, _) = random.split_first_chunk().ok_or(Error::Internal("a hash is too short"))?;
        Ok(Secret::from(&*generated::generate(random)))
    }
}

/// The stored forms of a password: servers check CONNECT against one, and SCRAM against the other.
struct PasswordForms {
    secret: StoredSecret,
    scram: Option<ScramVerifier>,
}

async fn get(
    tx: &Transaction,
    broker: millrace_layers::BrokerId,
    user: &str,
    read: Read,
) -> Result<Document<model::Credential>> {
    let record = accounts::credentials(broker).get(tx, user.as_bytes(), read).await?;
    record.ok_or(Error::NotFound("credential"))
}

/// Refuses a new user name that looks like one of the broker.
pub(super) async fn check_look_alike(
    tx: &Transaction,
    broker: millrace_layers::BrokerId,
    field: &str,
    user: &str,
) -> Result<()> {
    let Some(other) = names::look_alike(user) else { return Ok(()) };
    match get(tx, broker, &other, Read::Serializable).await {
        Ok(_) => Err(Error::field(field, format!("looks like the user name \"{other}\", which is there"))),
        Err(Error::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) fn shown(record: &model::Credential) -> CredentialInfo {
    CredentialInfo {
        user: record.user.clone(),
        group: record.group.clone(),
        rules: record.rules.clone(),
        enabled: record.enabled,
        expires_at_ms: record.expires_at_ms,
        client_id: record.client_id.clone(),
        claim_token: record.claim_token.as_deref().and_then(|id| id.parse().ok()),
        previous_secret_until_ms: record.previous_secret.as_ref().map(|previous| previous.until_ms),
        created_at_ms: record.created_at_ms,
        scram: record.scram.is_some(),
    }
}
