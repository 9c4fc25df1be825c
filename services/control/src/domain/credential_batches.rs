//! Makes credentials for many devices in one transaction: all of them or none.
//!
//! The server generates every password, because a hash of a chosen one takes tens of milliseconds.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;
use millrace_access::model::{self, Invalid, Rule};
use millrace_layers::accounts::{self, touch};
use millrace_storage::Read;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::check::check_end;
use super::credentials::{check_look_alike, shown};
use super::difference::{difference, with};
use super::parts::check_group;
use super::{
    BrokerRef, Caller, Control, CredentialInfo, Error, Once, Permission, Result, brokers, credential_room,
    names,
};
use crate::limits::{AUDIT_USERS_BYTES_MAX, BATCH_CREDENTIALS_MAX, BATCH_RULES_BYTES_MAX, BATCH_SCRAM_MAX};
use crate::secret::Secret;

const NAMED_MAX: usize = 10;

/// Request to make the credentials of many devices.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCredentialBatch {
    /// The devices. Each gets a credential with a generated password.
    #[schema(min_items = 1, max_items = 1000)]
    pub devices: Vec<BatchDevice>,
    /// Name of the group whose rules come after the credentials' own.
    #[schema(example = "pumps", min_length = 1, max_length = 64)]
    pub group: Option<String>,
    /// Rules of each credential. Rules in a group take less room.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub rules: Vec<Rule>,
    /// Expiry of the credentials, in unix milliseconds: the broker then refuses these users.
    #[schema(maximum = 253_402_300_799_999_u64)]
    pub expires_at_ms: Option<u64>,
    /// Whether clients may prove their passwords by SCRAM-SHA-256. A batch has 100 devices at most then, because each
    /// verifier takes some time.
    #[serde(default)]
    pub scram: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchDevice {
    /// User name, unique in its broker.
    #[schema(example = "pump-7", min_length = 1, max_length = 256)]
    pub user: String,
    /// The only client id that may connect as this user; null: any.
    #[schema(example = "pump-7", min_length = 1, max_length = 1_024)]
    pub client_id: Option<String>,
}

/// The part of the answer that the request does not contain.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct BatchReceipt {
    id: Uuid,
    created_at_ms: u64,
}

/// The id of a batch in the audit log, and its credentials; only this answer contains their secrets.
pub(crate) type MadeBatch = (Uuid, Vec<(CredentialInfo, Secret)>);

type BatchRecords = Vec<(model::Credential, Secret)>;

/// Credentials that are not stored yet.
pub(crate) struct NewCredentials {
    id: Uuid,
    records: BatchRecords,
}

impl Control {
    pub(crate) fn new_credentials(&self, input: &NewCredentialBatch, once: &Once) -> Result<NewCredentials> {
        input.check()?;
        let id = self.new_id()?;
        Ok(NewCredentials { id, records: self.records(input, once, BatchReceipt { id, created_at_ms: 0 })? })
    }

    /// Makes the SCRAM verifier of the device with this index in the request.
    pub(crate) async fn add_verifier(&self, new: &mut NewCredentials, index: usize) -> Result<()> {
        if let Some((record, password)) = new.records.get_mut(index) {
            record.scram = Some(self.scram_verifier(password).await?);
        }
        Ok(())
    }

    /// The answer to an earlier request with the same key.
    pub(crate) async fn credentials_before(
        &self,
        caller: &Caller,
        input: &NewCredentialBatch,
        once: &Once,
    ) -> Result<Option<MadeBatch>> {
        let made = self.answer_before(caller.into(), once).await?;
        made.map(|made| self.made_batch(input, once, made)).transpose()
    }

    /// With `scram`, `new` has the verifiers.
    pub(crate) async fn create_credentials(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        (input, new): (&NewCredentialBatch, NewCredentials),
        once: &Once,
    ) -> Result<MadeBatch> {
        let NewCredentials { id, records } = &new;
        let made = self
            .change(caller.into(), once, |change| async move {
                let tx = &change.tx;
                let broker =
                    brokers::find(tx, caller, at, Permission::AccessWrite, Read::Serializable).await?;
                check_end(input.expires_at_ms, change.now_ms)?;
                check_group(tx, broker.id, "group", input.group.as_deref()).await?;
                let all = &accounts::credentials(broker.id);
                let is_taken = |user: String| async move {
                    let found = all.get::<model::Credential>(tx, user.as_bytes(), Read::Serializable).await?;
                    Ok::<_, Error>(found.map(|_| user))
                };
                let found = try_join_all(records.iter().map(|(one, _)| is_taken(one.user.clone()))).await?;
                refuse_taken(&found.into_iter().flatten().collect::<Vec<_>>())?;
                for (number, (one, _)) in records.iter().enumerate() {
                    check_look_alike(tx, broker.id, &format!("devices[{number}].user"), &one.user).await?;
                }
                let new = records.iter().map(|(record, _)| record);
                credential_room::add(tx, broker.id, new, Read::Serializable).await?;
                let settings = difference(
                    None,
                    Some(&json!({
                        "group": input.group, "rules": input.rules, "expires_at_ms": input.expires_at_ms,
                        "scram": input.scram,
                    })),
                )?;
                let entries = in_entries(records.iter().map(|(one, _)| one.user.as_str()));
                for (number, users) in entries.iter().enumerate() {
                    let said = json!({
                        "broker": at.name, "batch": id, "count": records.len(), "users": users,
                        "entry": number + 1, "entries": entries.len(),
                    });
                    let said = if number == 0 { with(said, settings.clone()) } else { said };
                    change.audit(at.organisation, "credential.create_batch", &at.name, said)?;
                }
                for (record, _) in records {
                    let record = model::Credential { created_at_ms: change.now_ms, ..record.clone() };
                    all.put(tx, record.user.as_bytes(), &record).await?;
                }
                touch(tx, broker.id)?;
                Ok(BatchReceipt { id: *id, created_at_ms: change.now_ms })
            })
            .await?;
        self.made_batch(input, once, made)
    }

    fn made_batch(&self, input: &NewCredentialBatch, once: &Once, made: BatchReceipt) -> Result<MadeBatch> {
        let records = self.records(input, once, made)?;
        let shown = |record: &model::Credential| CredentialInfo { scram: input.scram, ..shown(record) };
        Ok((made.id, records.into_iter().map(|(record, secret)| (shown(&record), secret)).collect()))
    }

    fn records(&self, input: &NewCredentialBatch, once: &Once, made: BatchReceipt) -> Result<BatchRecords> {
        let record = |device: &BatchDevice| {
            let password = self.generated_for(once, made.id, &device.user)?;
            let record = model::Credential {
                user: device.user.clone(),
                secret: Some(self.0.mqtt_secret_keys.hash(password.expose().as_bytes())),
                group: input.group.clone(),
                rules: input.rules.clone(),
                expires_at_ms: input.expires_at_ms,
                created_at_ms: made.created_at_ms,
                client_id: device.client_id.clone(),
                ..model::Credential::default()
            };
            Ok((record, password))
        };
        input.devices.iter().map(record).collect()
    }
}

impl NewCredentialBatch {
    fn check(&self) -> Result<()> {
        let mut found = Vec::new();
        let mut add = |field: String, what: String| found.push(Invalid { field, what });
        if !(1..=BATCH_CREDENTIALS_MAX).contains(&self.devices.len()) {
            add(
                "devices".into(),
                format!("must be 1 to {BATCH_CREDENTIALS_MAX}: send the others in further requests"),
            );
            return Err(Error::Invalid(found));
        }
        if self.scram && self.devices.len() > BATCH_SCRAM_MAX {
            add(
                "devices".into(),
                format!("must be 1 to {BATCH_SCRAM_MAX} with scram: send the others in further requests"),
            );
        }
        let shared = model::Credential {
            user: "-".into(),
            group: self.group.clone(),
            rules: self.rules.clone(),
            ..model::Credential::default()
        };
        for Invalid { field, what } in shared.validate().err().unwrap_or_default() {
            add(field, what);
        }
        let rules = serde_json::to_vec(&self.rules).map_or(usize::MAX, |rules| rules.len());
        if !self.rules.is_empty() && rules.saturating_mul(self.devices.len()) > BATCH_RULES_BYTES_MAX {
            let most = BATCH_RULES_BYTES_MAX / self.devices.len().max(1);
            let what = format!(
                "are longer than {most} bytes as JSON, the most for so many devices: put them into a group"
            );
            add("rules".into(), what);
        }
        let mut users = BTreeSet::new();
        for (number, device) in self.devices.iter().enumerate() {
            let one = model::Credential {
                user: device.user.clone(),
                client_id: device.client_id.clone(),
                ..model::Credential::default()
            };
            for Invalid { field, what } in one.validate().err().unwrap_or_default() {
                add(format!("devices[{number}].{field}"), what);
            }
            if let Err(what) = names::plain(&device.user) {
                add(format!("devices[{number}].user"), what);
            }
            if !users.insert(&device.user) {
                add(format!("devices[{number}].user"), "is there twice".into());
            }
        }
        for (number, device) in self.devices.iter().enumerate() {
            if let Some(other) = names::look_alike(&device.user).filter(|other| users.contains(other)) {
                let what = format!("looks like the user name \"{other}\" of another device of the batch");
                add(format!("devices[{number}].user"), what);
            }
        }
        found.truncate(BATCH_CREDENTIALS_MAX);
        if found.is_empty() { Ok(()) } else { Err(Error::Invalid(found)) }
    }
}

/// Splits the user names of a batch, so that each part fits into an entry of the audit log.
fn in_entries<'u>(users: impl Iterator<Item = &'u str>) -> Vec<Vec<&'u str>> {
    let (mut entries, mut bytes) = (vec![Vec::new()], 0);
    for user in users {
        let more = json!(user).to_string().len() + 1;
        if bytes + more > AUDIT_USERS_BYTES_MAX {
            entries.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        if let Some(entry) = entries.last_mut() {
            entry.push(user);
        }
    }
    entries
}

fn refuse_taken(taken: &[String]) -> Result<()> {
    if taken.is_empty() {
        return Ok(());
    }
    let named = taken.iter().take(NAMED_MAX).map(|user| format!("\"{user}\"")).collect::<Vec<_>>().join(", ");
    let more = match taken.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Err(Error::Conflict(format!(
        "nothing was made, because there are credentials with these user names: {named}{more}"
    )))
}
