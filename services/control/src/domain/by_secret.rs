//! Records of an organisation that a caller opens with a secret, such as invitations and API tokens. The record is
//! stored under its organisation; an index from the secret's hash to the record finds it.

use millrace_layers::documents::Collection;
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::Result;
use crate::secret::Hash;

/// `all` holds the records of an organisation, `index` finds one by the hash of its secret. `put` removes no index entry,
/// so a record that gets a new secret needs `clear` with the old hash.
pub(super) struct BySecret {
    pub(super) all: fn(&[u8]) -> Collection,
    pub(super) index: fn() -> Collection,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct SecretRecord<T> {
    /// The part that the API shows.
    pub(super) shown: T,
    pub(super) hash: Hash,
}

#[derive(Serialize, Deserialize)]
pub(super) struct IndexEntry {
    pub(super) organisation: Uuid,
    pub(super) id: Uuid,
}

impl BySecret {
    pub(super) fn of(&self, organisation: Uuid) -> Collection {
        (self.all)(organisation.as_bytes())
    }

    pub(super) async fn put<T: Serialize>(
        &self,
        tx: &Transaction,
        entry: &IndexEntry,
        record: &SecretRecord<T>,
    ) -> Result<()> {
        self.of(entry.organisation).put(tx, entry.id.as_bytes(), record).await?;
        (self.index)().put(tx, &record.hash, entry).await?;
        Ok(())
    }

    pub(super) async fn look_up(
        &self,
        tx: &Transaction,
        hash: &[u8],
        read: Read,
    ) -> Result<Option<IndexEntry>> {
        let entry = (self.index)().get::<IndexEntry>(tx, hash, read).await?;
        Ok(entry.map(|entry| entry.value))
    }

    pub(super) async fn find<T: DeserializeOwned>(
        &self,
        tx: &Transaction,
        hash: &Hash,
        read: Read,
    ) -> Result<Option<(Uuid, SecretRecord<T>)>> {
        let Some(IndexEntry { organisation, id }) = self.look_up(tx, hash, read).await? else {
            return Ok(None);
        };
        let record = self.of(organisation).get(tx, id.as_bytes(), read).await?;
        Ok(record.map(|record| (organisation, record.value)))
    }

    pub(super) async fn clear(&self, tx: &Transaction, entry: &IndexEntry, hash: &[u8]) -> Result<()> {
        (self.index)().clear(tx, hash).await?;
        Ok(self.of(entry.organisation).clear(tx, entry.id.as_bytes()).await?)
    }
}
