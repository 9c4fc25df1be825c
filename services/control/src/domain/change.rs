//! Changes: one transaction each, with a receipt, so that none is done twice.
//!
//! A client names a request by an `Idempotency-Key`; one that comes again with it gets the first answer. Others have a name that
//! nobody knows: the receipt is for the store, which runs a transaction again when it could not hear whether it was committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use millrace_layers::accounts::{
    self,
    expiring::{Expiring, Kind},
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use uuid::Uuid;

use super::audit::Actor;
use super::{Control, Error, Result};
use crate::limits::{OWN_RECEIPT_MS, RECEIPT_MS};
use crate::secret::{self, Hash, NoEntropy, Purpose, Secret};

/// What tells a request from all others.
#[derive(Clone)]
pub struct Once {
    key: Vec<u8>,
    /// Of what was asked. The same key with another one is a mistake.
    fingerprint: Hash,
    keep_ms: u64,
}

/// A transaction that changes something.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) tx: Transaction,
    pub(super) now_ms: u64,
    actor: Arc<Actor>,
    entries: Arc<AtomicU16>,
}

/// What was answered.
#[derive(Serialize, Deserialize)]
struct Receipt {
    fingerprint: String,
    expires_at_ms: u64,
    answer: Value,
}

impl Once {
    /// A request that its client has named.
    #[must_use]
    pub fn named(client: &[u8], key: &str, fingerprint: [u8; 32]) -> Self {
        let key = [client, b"/", key.as_bytes()].concat();
        Self { key, fingerprint, keep_ms: RECEIPT_MS }
    }

    /// A request without a name.
    ///
    /// # Errors
    /// [`NoEntropy`].
    pub fn unnamed() -> std::result::Result<Self, NoEntropy> {
        let key = secret::random::<32>()?.to_vec();
        Ok(Self { key, fingerprint: [0; 32], keep_ms: OWN_RECEIPT_MS })
    }
}

impl Control {
    /// Runs a change. `body` may run many times; its answer is kept, so no secret may be in it.
    pub(super) async fn change<T, F, Body>(&self, actor: Actor, once: &Once, body: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
        F: Fn(Change) -> Body,
        Body: Future<Output = Result<T>>,
    {
        let (now_ms, actor) = (self.now_ms(), Arc::new(actor));
        let id = self.hash(Purpose::Request, &[&once.key])?;
        let (id, body) = (&id, &body);
        self.0
            .store
            .database()
            .run(|tx, _| {
                let entries = Arc::new(AtomicU16::new(0));
                let change = Change { tx: tx.clone(), now_ms, actor: Arc::clone(&actor), entries };
                async move {
                    if let Some(answer) = answered(&tx, id, once, now_ms).await? {
                        return Ok(answer);
                    }
                    let answer = body(change).await?;
                    keep(&tx, id, once, now_ms, &answer).await?;
                    Ok(answer)
                }
            })
            .await
    }

    /// A secret of full entropy that belongs to what a request made: who repeats the request gets the same one, and nobody
    /// has to keep it. The request's key is not stored, so what is stored does not tell the secret.
    pub(super) fn secret_of(&self, once: &Once, made: &[u8]) -> Result<Secret> {
        Ok(secret::text_of(&self.bytes_of(once, made)?))
    }

    /// The bytes of such a secret.
    pub(super) fn bytes_of(&self, once: &Once, made: &[u8]) -> Result<Hash> {
        self.hash(Purpose::Generated, &[&once.key, made])
    }
}

async fn answered<T: DeserializeOwned>(
    tx: &Transaction,
    id: &Hash,
    once: &Once,
    now_ms: u64,
) -> Result<Option<T>> {
    let receipt = accounts::receipts().get::<Receipt>(tx, id, Read::Serializable).await?;
    let Some(receipt) = receipt.map(|receipt| receipt.value).filter(|it| now_ms < it.expires_at_ms) else {
        return Ok(None);
    };
    if receipt.fingerprint != BASE64_STANDARD.encode(once.fingerprint) {
        return Err(Error::KeyReused);
    }
    serde_json::from_value(receipt.answer).map(Some).map_err(|_| Error::Internal("a receipt cannot be read"))
}

async fn keep<T: Serialize>(tx: &Transaction, id: &Hash, once: &Once, now_ms: u64, answer: &T) -> Result<()> {
    let expires_at_ms = now_ms + once.keep_ms;
    let answer = serde_json::to_value(answer).map_err(|_| Error::Internal("an answer cannot be written"))?;
    let fingerprint = BASE64_STANDARD.encode(once.fingerprint);
    accounts::receipts().put(tx, id, &Receipt { fingerprint, expires_at_ms, answer }).await?;
    let id = id.to_vec().into();
    Ok(Expiring { at_ms: expires_at_ms, kind: Kind::Receipt, id }.schedule(tx)?)
}

/// Removes a receipt whose time is over; a later one may have its place.
pub(super) async fn forget(tx: &Transaction, id: &[u8], now_ms: u64) -> Result<()> {
    let receipt = accounts::receipts().get::<Receipt>(tx, id, Read::Serializable).await?;
    if receipt.is_some_and(|receipt| receipt.value.expires_at_ms <= now_ms) {
        accounts::receipts().clear(tx, id).await?;
    }
    Ok(())
}

impl Change {
    /// Adds an entry to an organisation's audit log: what was done (`broker.create`), to which one, and what there is to say.
    #[allow(clippy::needless_pass_by_value, reason = "so that json! can stand in the call")]
    pub(super) fn audit(&self, organisation: Uuid, action: &str, target: &str, details: Value) -> Result<()> {
        let entry = json!({
            "at_ms": self.now_ms, "actor": &*self.actor, "action": action, "target": target, "details": details,
        });
        let place = self.entries.fetch_add(1, Ordering::Relaxed);
        Ok(accounts::audit::append(&self.tx, organisation.as_bytes(), place, entry.to_string())?)
    }
}
