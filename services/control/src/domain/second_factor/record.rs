//! The stored record of an account's second factors: all of them, and the wrong codes since the last right one.

use super::super::Result;
use super::super::change::Change;
use super::super::passkeys::{self, StoredPasskey};
use crate::limits::WRONG_CODES_MS;
use crate::secret::{Hash, Sealed};
use millrace_layers::accounts;
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Clone, Default, Serialize, Deserialize)]
pub(in crate::domain) struct Factors {
    /// The secret of the device. A server from before passkeys cannot read a record without one, and then refuses the sign-in.
    pub(super) device: Option<Sealed>,
    /// Key that hashes the recovery codes; records from before passkeys have none, see [`Self::with_recovery_key`].
    #[serde(default)]
    pub(super) recovery_key: Option<u32>,
    #[serde(default)]
    pub(in crate::domain) passkeys: Vec<StoredPasskey>,
    /// When the device was enabled; `None`: it waits for its first code, until `pending_until_ms`.
    pub(super) enabled_at_ms: Option<u64>,
    pub(super) pending_until_ms: u64,
    /// Time step of the last code that was taken: it and those before are not taken again.
    pub(super) last_step: u64,
    pub(super) recovery: Vec<Hash>,
    /// Wrong codes since `wrong_since_ms`, or since it waits for its first code.
    pub(super) wrong: u32,
    pub(super) wrong_since_ms: u64,
    /// When a new password cleared the count last.
    #[serde(default)]
    pub(super) cleared_at_ms: u64,
}

impl Factors {
    /// In records from before passkeys the key of the device hashes the recovery codes. They stay valid without the device.
    fn with_recovery_key(mut self) -> Self {
        self.recovery_key = self.recovery_key.or(self.device.as_ref().map(|device| device.key));
        self
    }

    /// Whether a sign-in with the password asks for a second factor.
    pub(in crate::domain) fn is_in_force(&self) -> bool {
        self.enabled_at_ms.is_some() || !self.passkeys.is_empty()
    }
}

pub(super) async fn in_force(tx: &Transaction, user: Uuid, read: Read) -> Result<Option<Factors>> {
    Ok(get(tx, user, read).await?.filter(Factors::is_in_force))
}

/// Without a factor in force the whole record goes, with its recovery codes.
pub(in crate::domain) async fn put(tx: &Transaction, user: Uuid, record: &Factors) -> Result<()> {
    match record.is_in_force() {
        true => accounts::second_factors().put(tx, user.as_bytes(), record).await.map(drop)?,
        false => accounts::second_factors().clear(tx, user.as_bytes()).await?,
    }
    Ok(())
}

pub(in crate::domain) async fn clear(tx: &Transaction, user: Uuid) -> Result<()> {
    if let Some(record) = get(tx, user, Read::Serializable).await? {
        passkeys::forget(tx, &record.passkeys).await?;
    }
    Ok(accounts::second_factors().clear(tx, user.as_bytes()).await?)
}

/// Clears the count of wrong codes, because somebody who knew the old password may have used it up. It does so once in [`WRONG_CODES_MS`]:
/// otherwise somebody who can set the password again and again, such as a reader of the person's mail, could try codes without end.
pub(in crate::domain) async fn clear_wrong_codes(change: &Change, user: Uuid) -> Result<()> {
    let Some(mut record) = in_force(&change.tx, user, Read::Serializable).await? else { return Ok(()) };
    if record.cleared_at_ms + WRONG_CODES_MS <= change.now_ms {
        (record.wrong, record.cleared_at_ms) = (0, change.now_ms);
        accounts::second_factors().put(&change.tx, user.as_bytes(), &record).await?;
    }
    Ok(())
}

pub(in crate::domain) async fn is_enabled(tx: &Transaction, user: Uuid) -> Result<bool> {
    Ok(in_force(tx, user, Read::Serializable).await?.is_some())
}

pub(in crate::domain) async fn get(tx: &Transaction, user: Uuid, read: Read) -> Result<Option<Factors>> {
    let found = accounts::second_factors().get::<Factors>(tx, user.as_bytes(), read).await?;
    Ok(found.map(|found| found.value.with_recovery_key()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn recovery_codes_from_before_passkeys_have_the_key_of_the_device_also_without_it() {
        let with_device = |recovery_key| {
            let device = serde_json::from_value(json!({ "key": 3, "text": "" })).unwrap();
            let record = Factors { device: Some(device), recovery_key, ..Factors::default() };
            let mut record = serde_json::to_value(record).unwrap();
            if recovery_key.is_none() {
                record.as_object_mut().unwrap().remove("recovery_key");
            }
            serde_json::from_value::<Factors>(record).unwrap().with_recovery_key()
        };
        assert_eq!(with_device(Some(4)).recovery_key, Some(4));
        let mut old = with_device(None);
        old.device = None;
        assert_eq!(old.with_recovery_key().recovery_key, Some(3));
    }
}
