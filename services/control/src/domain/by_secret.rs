//! Records of an organisation that a caller opens with a secret, such as invitations and API tokens. The record is
//! stored under its organisation; an index from the secret's hash to the record finds it.

use millrace_layers::documents::Collection;
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::Result;
use crate::secret::Hash;

/// A kind of records that are found by a secret. `all` holds the records of an organisation, `places` the index.
pub(super) struct BySecret {
    pub(super) all: fn(&[u8]) -> Collection,
    pub(super) places: fn() -> Collection,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Record<T> {
    /// The part that the API shows.
    pub(super) shown: T,
    pub(super) hash: Hash,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Place {
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
        place: &Place,
        record: &Record<T>,
    ) -> Result<()> {
        self.of(place.organisation).put(tx, place.id.as_bytes(), record).await?;
        (self.places)().put(tx, &record.hash, place).await?;
        Ok(())
    }

    pub(super) async fn place(&self, tx: &Transaction, hash: &[u8], read: Read) -> Result<Option<Place>> {
        let place = (self.places)().get::<Place>(tx, hash, read).await?;
        Ok(place.map(|place| place.value))
    }

    pub(super) async fn find<T: DeserializeOwned>(
        &self,
        tx: &Transaction,
        hash: &Hash,
        read: Read,
    ) -> Result<Option<(Uuid, Record<T>)>> {
        let Some(Place { organisation, id }) = self.place(tx, hash, read).await? else { return Ok(None) };
        let record = self.of(organisation).get(tx, id.as_bytes(), read).await?;
        Ok(record.map(|record| (organisation, record.value)))
    }

    pub(super) async fn clear(&self, tx: &Transaction, place: &Place, hash: &[u8]) -> Result<()> {
        (self.places)().clear(tx, hash).await?;
        Ok(self.of(place.organisation).clear(tx, place.id.as_bytes()).await?)
    }
}
