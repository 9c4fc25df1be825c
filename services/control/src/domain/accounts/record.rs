//! The stored record of a person: reading it, making it, and its index by e-mail address.

use millrace_layers::{accounts, documents::Document};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::change::Change;
use super::super::sign_in_networks::KnownNetwork;
use super::super::{Error, Result};
use super::{THERE_IS_AN_ACCOUNT, User};
use crate::limits::EMAIL_BYTES_MAX;
use crate::secret::Secret;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::domain) struct UserRecord {
    /// Empty for the owner of this machine, who signs in without it.
    pub(in crate::domain) email: String,
    pub(in crate::domain) name: String,
    /// PHC string of Argon2id; `None`: they sign in with a provider.
    pub(in crate::domain) password: Option<Secret>,
    pub(super) created_at_ms: u64,
    /// Each web session has the epoch in which it began. Raising the epoch ends all earlier sessions.
    #[serde(default)]
    pub(in crate::domain) epoch: u64,
    #[serde(default)]
    pub(in crate::domain) networks: Vec<KnownNetwork>,
}

pub(in crate::domain) struct Newcomer {
    pub(in crate::domain) id: Uuid,
    pub(in crate::domain) email: String,
    pub(in crate::domain) name: String,
    pub(in crate::domain) password: Option<Secret>,
}

impl UserRecord {
    pub(super) fn known_as(self) -> String {
        if self.email.is_empty() { self.name } else { self.email }
    }

    pub(super) fn shown(self, id: Uuid) -> User {
        let email = Some(self.email).filter(|email| !email.is_empty());
        User { id, email, name: self.name, created_at_ms: self.created_at_ms }
    }
}

pub(in crate::domain) async fn shown(tx: &Transaction, user: Uuid) -> Result<Option<User>> {
    Ok(get(tx, user, Read::Snapshot).await?.map(|record| record.value.shown(user)))
}

pub(in crate::domain) async fn create(change: &Change, newcomer: &Newcomer) -> Result<()> {
    let (tx, email) = (&change.tx, &newcomer.email);
    if is_there_one_with(tx, email).await? {
        return Err(Error::Conflict(THERE_IS_AN_ACCOUNT.into()));
    }
    accounts::emails().put(tx, email.as_bytes(), &newcomer.id).await?;
    put_unindexed(change, newcomer).await
}

pub(in crate::domain) async fn put_unindexed(change: &Change, newcomer: &Newcomer) -> Result<()> {
    let Newcomer { id, email, name, password } = newcomer;
    let (email, name, password) = (email.clone(), name.clone(), password.clone());
    let (created_at_ms, networks) = (change.now_ms, Vec::new());
    let record = UserRecord { email, name, password, created_at_ms, epoch: 0, networks };
    accounts::users().put(&change.tx, id.as_bytes(), &record).await?;
    Ok(())
}

pub(in crate::domain) async fn is_there_one_with(tx: &Transaction, email: &str) -> Result<bool> {
    Ok(accounts::emails().get::<Uuid>(tx, email.as_bytes(), Read::Serializable).await?.is_some())
}

pub(in crate::domain) async fn has_password(tx: &Transaction, user: Uuid) -> Result<bool> {
    Ok(found(get(tx, user, Read::Serializable).await?)?.password.is_some())
}

pub(super) fn hash_of(record: &UserRecord) -> Option<String> {
    record.password.as_ref().map(|password| password.expose().to_owned())
}

pub(super) fn still_has_hash(record: &UserRecord, phc: &str) -> bool {
    record.password.as_ref().is_some_and(|password| password.expose() == phc)
}

pub(in crate::domain) async fn by_email(tx: &Transaction, email: &str) -> Result<Option<(Uuid, UserRecord)>> {
    // Longer than any key of the store, too, so nobody has it.
    if email.len() > EMAIL_BYTES_MAX {
        return Ok(None);
    }
    let id = accounts::emails().get::<Uuid>(tx, email.as_bytes(), Read::Snapshot).await?;
    let Some(id) = id.map(|id| id.value) else { return Ok(None) };
    Ok(get(tx, id, Read::Snapshot).await?.map(|record| (id, record.value)))
}

pub(in crate::domain) async fn get(
    tx: &Transaction,
    user: Uuid,
    read: Read,
) -> Result<Option<Document<UserRecord>>> {
    Ok(accounts::users().get(tx, user.as_bytes(), read).await?)
}

pub(in crate::domain) fn found(record: Option<Document<UserRecord>>) -> Result<UserRecord> {
    record.map(|record| record.value).ok_or(Error::NotFound("person"))
}
