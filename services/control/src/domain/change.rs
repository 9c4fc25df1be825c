//! Runs each change of the control plane in one transaction with a receipt, so that no change happens twice.
//!
//! A client names its request by an `Idempotency-Key`; a repeated request gets the first answer, from the receipt. A
//! request without a key gets a random name: the store runs a transaction again when it does not learn whether the
//! first attempt committed, and the receipt stops the second attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use millrace_layers::accounts::{
    self,
    expiring::{Expiring, ExpiringKind},
};
use millrace_storage::{Read, Transaction, TransactionOption};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use uuid::Uuid;

use super::audit::{self, Actor, ActorKind};
use super::{Control, Error, Permission, Result, Role, members, organisations};
use crate::limits::{AUDIT_DETAILS_BYTES_MAX, AUDIT_TARGET_CHARS_MAX, OWN_RECEIPT_MS, RECEIPT_MS};
use crate::secret::{self, Hash, NoEntropy, Purpose, Secret};

/// The name of a request and a fingerprint of its content.
#[derive(Clone)]
pub struct Once {
    key: Vec<u8>,
    /// The same key with another fingerprint is an error of the client. A stored receipt has a keyed hash of the
    /// fingerprint, because the request may contain a password.
    fingerprint: Hash,
    keep_ms: u64,
}

#[derive(Clone)]
pub(super) struct Change {
    pub(super) tx: Transaction,
    pub(super) now_ms: u64,
    actor: Arc<Actor>,
    /// Audit entries of this transaction so far: part of their keys, so that they keep their order.
    entries: Arc<AtomicU16>,
    entry_bytes: Arc<AtomicUsize>,
    /// Organisations with an entry, whose roles the receipt remembers.
    touched: Arc<Mutex<BTreeSet<Uuid>>>,
}

#[derive(Serialize, Deserialize)]
struct RequestReceipt {
    fingerprint: String,
    expires_at_ms: u64,
    /// Null for a request without a key: nobody else repeats it, so the server that runs it has its answers in [`AnswersByAttempt`].
    answer: Value,
    /// The attempt that wrote the receipt of a request without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// Roles of the person at the time. A person who has lost a role since does not get the stored answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    roles: Vec<HeldRole>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<Permission>,
}

#[derive(Serialize, Deserialize)]
struct HeldRole {
    user: Uuid,
    organisation: Uuid,
    role: Role,
}

#[derive(Default)]
struct AnswersByAttempt(Mutex<BTreeMap<u32, Value>>);

impl AnswersByAttempt {
    fn put(&self, number: u32, answer: Value) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number, answer);
    }

    fn get(&self, number: u32) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }
}

impl Once {
    #[must_use]
    pub fn named(client: &[u8], key: &str, fingerprint: [u8; 32]) -> Self {
        let key = [client, b"/", key.as_bytes()].concat();
        Self { key, fingerprint, keep_ms: RECEIPT_MS }
    }

    pub fn unnamed() -> std::result::Result<Self, NoEntropy> {
        let key = secret::random::<32>()?.to_vec();
        Ok(Self { key, fingerprint: [0; 32], keep_ms: OWN_RECEIPT_MS })
    }
}

impl Control {
    /// `body` may run many times. Its answer is stored with the receipt, so it must not contain a secret. An account may
    /// leave only so many bytes of receipts and audit entries a second, because they stay for long.
    pub(super) async fn change<T, F, Body>(&self, actor: Actor, once: &Once, body: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
        F: Fn(Change) -> Body,
        Body: Future<Output = Result<T>>,
    {
        let (now_ms, actor) = (self.now_ms(), Arc::new(actor));
        let (id, once) = &self.hashed(once)?;
        let (body, attempts) = (&body, &AnswersByAttempt::default());
        self.0
            .store
            .database()
            .run(|tx, attempt| {
                let (touched, entry_bytes) = (Arc::new(Mutex::default()), Arc::new(AtomicUsize::new(0)));
                let change = Change {
                    tx: tx.clone(),
                    now_ms,
                    actor: Arc::clone(&actor),
                    entries: Arc::default(),
                    entry_bytes: Arc::clone(&entry_bytes),
                    touched: Arc::clone(&touched),
                };
                let actor = Arc::clone(&actor);
                async move {
                    if let Some(answer) = answered(&tx, id, once, now_ms, (&actor, attempts)).await? {
                        return Ok(answer);
                    }
                    let answer = body(change).await?;
                    let touched =
                        std::mem::take(&mut *touched.lock().unwrap_or_else(PoisonError::into_inner));
                    let roles = held(&tx, &actor, touched).await?;
                    let written = written(&answer)?;
                    let (attempt, written, kept) = if once.keep_ms == RECEIPT_MS {
                        let bytes = written.to_string().len();
                        (None, written, bytes)
                    } else {
                        attempts.put(attempt.number, written);
                        (Some(attempt.number), Value::Null, 0)
                    };
                    let expires_at_ms = now_ms + once.keep_ms;
                    let fingerprint = BASE64_STANDARD.encode(once.fingerprint);
                    let scopes = actor.scopes.clone();
                    let receipt = RequestReceipt {
                        fingerprint,
                        expires_at_ms,
                        answer: written,
                        attempt,
                        roles,
                        scopes,
                    };
                    keep(&tx, id, &receipt).await?;
                    if let Some(account) = actor.account {
                        let bytes = entry_bytes.load(Ordering::Relaxed) + kept;
                        self.0.change_log.take(account, bytes)?;
                    }
                    Ok(answer)
                }
            })
            .await
    }

    /// The stored answer to an earlier request with the same key. A change looks for it too, but after work that a
    /// repeated request need not do.
    pub(super) async fn answer_before<T: DeserializeOwned>(
        &self,
        actor: Actor,
        once: &Once,
    ) -> Result<Option<T>> {
        let (now_ms, actor) = (self.now_ms(), &actor);
        let (id, once) = &self.hashed(once)?;
        let attempts = &AnswersByAttempt::default();
        self.look(|tx| async move { answered(&tx, id, once, now_ms, (actor, attempts)).await }).await
    }

    /// The key of the receipt, and what the receipt stores of the request.
    fn hashed(&self, once: &Once) -> Result<(Hash, Once)> {
        let id = self.hash(Purpose::Request, &[&once.key])?;
        let fingerprint = self.hash(Purpose::Fingerprint, &[&once.fingerprint])?;
        Ok((id, Once { fingerprint, ..once.clone() }))
    }

    /// Derives a secret of full entropy from the request's key, so that a repeated request gets the same secret without
    /// it being stored. The key itself is not stored either, so stored data does not reveal the secret.
    pub(super) fn secret_of(&self, once: &Once, made: &[u8]) -> Result<Secret> {
        Ok(secret::text_of(&self.bytes_of(once, made)?))
    }

    pub(super) fn bytes_of(&self, once: &Once, made: &[u8]) -> Result<Hash> {
        self.hash(Purpose::Generated, &[&once.key, made])
    }
}

async fn answered<T: DeserializeOwned>(
    tx: &Transaction,
    id: &Hash,
    once: &Once,
    now_ms: u64,
    (actor, attempts): (&Actor, &AnswersByAttempt),
) -> Result<Option<T>> {
    let receipt = accounts::receipts().get::<RequestReceipt>(tx, id, Read::Serializable).await?;
    let Some(receipt) = receipt.map(|receipt| receipt.value).filter(|it| now_ms < it.expires_at_ms) else {
        return Ok(None);
    };
    if receipt.fingerprint != BASE64_STANDARD.encode(once.fingerprint) {
        return Err(Error::KeyReused);
    }
    for HeldRole { user, organisation, role } in receipt.roles {
        // A person who is signing up has another id in each attempt.
        if actor.id == Some(user) {
            let now = members::role(tx, organisation, user, Read::Serializable).await;
            if matches!(now, Err(Error::NotFound(_)))
                && organisations::find(tx, organisation, Read::Serializable).await?.is_none()
            {
                let what = "the organisation of this request is gone: send it with a new Idempotency-Key";
                return Err(Error::Conflict(what.into()));
            }
            let now = now?;
            if now != role && now != Role::Owner {
                let what = "your role has changed since this request was answered: send it with a new Idempotency-Key";
                return Err(Error::Forbidden(what.into()));
            }
        }
    }
    if !receipt.scopes.iter().all(|scope| actor.scopes.contains(scope)) {
        let what =
            "this token may less than when this request was answered: send it with a new Idempotency-Key";
        return Err(Error::Forbidden(what.into()));
    }
    let unread = || Error::Internal("a receipt cannot be read");
    let answer = match receipt.attempt {
        Some(number) => attempts.get(number).ok_or_else(unread)?,
        None => receipt.answer,
    };
    serde_json::from_value(answer).map(Some).map_err(|_| unread())
}

async fn held(tx: &Transaction, actor: &Actor, organisations: BTreeSet<Uuid>) -> Result<Vec<HeldRole>> {
    let Some(user) = actor.id.filter(|_| actor.kind == ActorKind::Person) else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for organisation in organisations {
        match members::role(tx, organisation, user, Read::Serializable).await {
            Ok(role) => all.push(HeldRole { user, organisation, role }),
            // The request made the person leave this organisation.
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn written<T: Serialize>(answer: &T) -> Result<Value> {
    serde_json::to_value(answer).map_err(|_| Error::Internal("an answer cannot be written"))
}

async fn keep(tx: &Transaction, id: &Hash, receipt: &RequestReceipt) -> Result<()> {
    accounts::receipts().put(tx, id, receipt).await?;
    let id = id.to_vec().into();
    Ok(Expiring { at_ms: receipt.expires_at_ms, kind: ExpiringKind::Receipt, id }.schedule(tx)?)
}

/// Removes an expired receipt, unless a later request has replaced it by one that is still valid.
pub(super) async fn forget(tx: &Transaction, id: &[u8], now_ms: u64) -> Result<()> {
    let receipt = accounts::receipts().get::<RequestReceipt>(tx, id, Read::Serializable).await?;
    if receipt.is_some_and(|receipt| receipt.value.expires_at_ms <= now_ms) {
        accounts::receipts().clear(tx, id).await?;
    }
    Ok(())
}

/// Lets a nearly full disk accept the transaction, because it frees space, restrains those who fill the disk, or signs in a person
/// who can do either. Such a transaction is small, and [`ChangeLogLimiter`](super::change_log_limiter::ChangeLogLimiter) limits
/// those of a person. The last quarter of the disk's reserve stays closed to it.
pub(super) fn use_reserve(tx: &Transaction) {
    tx.set_option(TransactionOption::FreesSpace);
}

impl Change {
    /// See [`use_reserve`].
    pub(super) fn use_reserve(&self) {
        use_reserve(&self.tx);
    }

    /// For entries about commands outside of this API. The store may write them twice.
    pub(super) fn without_receipt(tx: Transaction, now_ms: u64, actor: Actor) -> Self {
        Self {
            tx,
            now_ms,
            actor: Arc::new(actor),
            entries: Arc::default(),
            entry_bytes: Arc::default(),
            touched: Arc::default(),
        }
    }

    /// `action` is like `broker.create`, `target` a name or an id.
    #[allow(clippy::needless_pass_by_value, reason = "so that json! can stand in the call")]
    pub(super) fn audit(&self, organisation: Uuid, action: &str, target: &str, details: Value) -> Result<()> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner).insert(organisation);
        self.append(organisation, action, target, &details)
    }

    #[allow(clippy::needless_pass_by_value, reason = "as in `audit`")]
    pub(super) fn audit_of_region(&self, action: &str, target: &str, details: Value) -> Result<()> {
        self.append(audit::REGION, action, target, &details)
    }

    /// Adds an entry to the audit log that a person reads of their own account. It is stored like that of an
    /// organisation, by the person's id.
    #[allow(clippy::needless_pass_by_value, reason = "as in `audit`")]
    pub(super) fn audit_of_person(
        &self,
        user: Uuid,
        action: &str,
        target: &str,
        details: Value,
    ) -> Result<()> {
        self.append(user, action, target, &details)
    }

    fn append(&self, log: Uuid, action: &str, target: &str, details: &Value) -> Result<()> {
        let bytes = details.to_string().len();
        let too_long = (bytes > AUDIT_DETAILS_BYTES_MAX).then(|| json!({ "left_out_bytes": bytes }));
        let details = too_long.as_ref().unwrap_or(details);
        // Some targets are as long as the caller likes, such as the path of a denied request.
        let target = match target.char_indices().nth(AUDIT_TARGET_CHARS_MAX) {
            Some((end, _)) => format!("{}...", &target[..end]),
            None => target.to_owned(),
        };
        let entry = json!({
            "at_ms": self.now_ms, "actor": &*self.actor, "action": action, "target": target, "details": details,
        });
        let (entry, place) = (entry.to_string(), self.entries.fetch_add(1, Ordering::Relaxed));
        self.entry_bytes.fetch_add(entry.len(), Ordering::Relaxed);
        Ok(accounts::audit::append(&self.tx, log.as_bytes(), place, entry)?)
    }
}
