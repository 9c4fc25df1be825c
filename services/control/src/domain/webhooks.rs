//! State of a broker's webhooks and their dead letters. Servers of the region send the events; this file reads what
//! they have recorded, and queues requests to them.

mod shapes;

use bytes::Bytes;
use millrace_access::model::{Checked, PreviousKey, Webhook};
use millrace_layers::{
    BrokerId, Position, accounts,
    documents::Collection,
    webhooks::{self, WebhookId, dead_letters},
};
use millrace_storage::{Read, Transaction};
use serde_json::json;

use super::change::Change;
use super::difference::{with_secrets, without_secrets};
use super::{
    BrokerPart, BrokerRef, Caller, Control, Error, Once, Page, PageRequest, Permission, Result, authorise,
    brokers,
};
use crate::limits::{PASSWORD_BYTES_MAX, ROTATION_OVERLAP_S_MAX, WEBHOOKS_MAX};
use crate::secret::Secret;
pub use shapes::{
    DeadLetter, DeadLetterCount, KeyRotation, RotatedKey, WebhookDelivery, WebhookFailure, WebhookStatus,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    All,
    One(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settling {
    /// Send each once more.
    Retry,
    Remove,
}

impl BrokerPart for Webhook {
    const KIND: &'static str = "webhook";
    const MAX: usize = WEBHOOKS_MAX;

    fn all(broker: BrokerId) -> Collection {
        accounts::webhooks(broker)
    }

    fn check(&self) -> Checked {
        self.validate()
    }

    fn called(&self) -> Option<(&'static str, &str)> {
        Some(("url", &self.url))
    }

    fn settle(&mut self, name: &str, now_ms: u64, old: Option<&Self>) -> Checked {
        self.name = name.into();
        self.created_at_ms = old.map_or(now_ms, |old| old.created_at_ms);
        self.url = with_secrets("url", &self.url, old.map(|old| &*old.url))?;
        // Answers omit the key, so a caller that sends an answer back does not have it: the stored key stays. An empty
        // key removes it.
        let before = old.and_then(|old| old.signing_key.as_ref());
        let number = old.map_or(0, |old| old.key_number);
        match &self.signing_key {
            key if key.is_none() || key.as_ref() == before => {
                self.signing_key = before.cloned();
                self.key_number = number;
                self.previous_key = old.and_then(|old| old.previous_key.clone());
                self.previous_key = self.previous_key.take().filter(|previous| now_ms < previous.until_ms);
            }
            Some(key) if key.expose().is_empty() => {
                (self.signing_key, self.key_number, self.previous_key) = (None, number, None);
            }
            _ => (self.key_number, self.previous_key) = (number + 1, None),
        }
        Ok(())
    }

    fn hide_secrets(&mut self) {
        self.url = without_secrets(&self.url);
    }

    fn removed(tx: &Transaction, broker: BrokerId, name: &str) -> Result<()> {
        Ok(webhooks::forget(tx, WebhookId { broker, name })?)
    }
}

impl Control {
    pub(crate) async fn webhook_status(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        name: &str,
    ) -> Result<WebhookStatus> {
        let now_ms = self.now_ms();
        self.look(|tx| async move {
            let broker = find(&tx, caller, at, name, Permission::AccessRead, Read::Snapshot).await?;
            let all = accounts::webhooks(broker);
            let webhook = all.get::<Webhook>(&tx, name.as_bytes(), Read::Snapshot).await?;
            let webhook = webhook.ok_or(Error::NotFound(Webhook::KIND))?.value;
            let keys = signs(&webhook, now_ms);
            let (state, waiting) = webhooks::status(&tx, WebhookId { broker, name }).await?;
            let unless_zero = |at_ms: u64| (at_ms > 0).then_some(at_ms);
            Ok(WebhookStatus {
                queued_events: waiting.totals.entries,
                queued_bytes: waiting.totals.bytes,
                oldest_queued_at_ms: waiting.oldest_at_ms,
                delivered: state.delivered,
                dead: state.dead,
                lost: state.lost,
                dead_letters: state.dead_letters.into(),
                dead_letters_lost: state.dead_letters_lost,
                last_success_at_ms: unless_zero(state.last_success_ms),
                last_failure: state.last_failure.map(Into::into),
                attempts: state.attempts,
                failing_since_ms: unless_zero(state.failing_since_ms),
                next_attempt_at_ms: unless_zero(state.next_attempt_ms),
                signed_by: state.signed_by,
                key_number: webhook.signing_key.is_some().then_some(keys.key_number),
                previous_key_number: keys.previous_key_number,
                previous_key_until_ms: keys.previous_key_until_ms,
            })
        })
        .await
    }

    pub(crate) async fn webhook_deliveries(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        name: &str,
    ) -> Result<Vec<WebhookDelivery>> {
        self.look(|tx| async move {
            let broker = find(&tx, caller, at, name, Permission::AccessRead, Read::Snapshot).await?;
            let all = webhooks::deliveries(&tx, WebhookId { broker, name }).await?;
            Ok(all.into_iter().map(Into::into).collect())
        })
        .await
    }

    pub(crate) async fn dead_letters(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        name: &str,
        page: &PageRequest,
    ) -> Result<Page<DeadLetter>> {
        let after = page.after.as_deref().map(cursor).transpose()?;
        self.look(|tx| async move {
            let broker = find(&tx, caller, at, name, Permission::AccessRead, Read::Snapshot).await?;
            // An event may have the payload of a message.
            authorise(&tx, caller, at.organisation, Permission::MessagesRead, Read::Snapshot).await?;
            let (letters, more) = dead_letters(&tx, WebhookId { broker, name }, after, page.limit).await?;
            let items: Vec<DeadLetter> = letters.into_iter().map(Into::into).collect();
            let next = items.last().filter(|_| more).map(|last| last.id.clone().into_bytes());
            Ok(Page { items, next })
        })
        .await
    }

    pub(crate) async fn settle_dead_letters(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        name: &str,
        which: Which<'_>,
        what: Settling,
    ) -> Result<DeadLetterCount> {
        let id = which.id()?;
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            let hook = webhook(&change, caller, at, name).await?;
            let (count, action) = match what {
                Settling::Retry => {
                    (webhooks::send_again(&change.tx, hook, id).await?, "webhook.retry_dead_letters")
                }
                Settling::Remove => {
                    change.use_reserve();
                    (webhooks::remove(&change.tx, hook, id).await?, "webhook.remove_dead_letters")
                }
            };
            which.require(count)?;
            which.note(&change, at, action, name)?;
            Ok(DeadLetterCount { count })
        })
        .await
    }

    /// The previous key signs too until its end; only this answer contains a generated key.
    pub(crate) async fn rotate_webhook_key(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        name: &str,
        input: &KeyRotation,
        once: &Once,
    ) -> Result<(RotatedKey, Option<Secret>)> {
        if input.overlap_s > ROTATION_OVERLAP_S_MAX {
            return Err(Error::field("overlap_s", format!("must be at most {ROTATION_OVERLAP_S_MAX}")));
        }
        if let Some(key) = &input.signing_key
            && !(1..=PASSWORD_BYTES_MAX).contains(&key.expose().len())
        {
            let what = format!("must have 1 to {PASSWORD_BYTES_MAX} bytes; leave it out to have one made");
            return Err(Error::field("signing_key", what));
        }
        let id = self.new_id()?;
        let (rotated, id) = self
            .change(caller.into(), once, |change| async move {
                let broker =
                    find(&change.tx, caller, at, name, Permission::AccessWrite, Read::Serializable).await?;
                let all = accounts::webhooks(broker);
                let webhook = all.get::<Webhook>(&change.tx, name.as_bytes(), Read::Serializable).await?;
                let mut webhook = webhook.ok_or(Error::NotFound(Webhook::KIND))?.value;
                if let Some(until_ms) = signs(&webhook, change.now_ms).previous_key_until_ms
                    && input.overlap_s > 0
                {
                    return Err(Error::Conflict(format!(
                        "the key before this one signs until {until_ms} (unix milliseconds), and the receiver may still \
                         verify it: rotate after that, or with overlap_s 0, which ends both keys now"
                    )));
                }
                let key = match &input.signing_key {
                    Some(key) => key.clone(),
                    None => self.secret_of(once, id.as_bytes())?,
                };
                let until_ms = change.now_ms + u64::from(input.overlap_s) * 1_000;
                let before = webhook.signing_key.replace(key).filter(|_| input.overlap_s > 0);
                let number = webhook.key_number;
                webhook.previous_key =
                    before.map(|signing_key| PreviousKey { signing_key, number, until_ms });
                webhook.key_number += 1;
                all.put(&change.tx, name.as_bytes(), &webhook).await?;
                accounts::touch(&change.tx, broker)?;
                let rotated = signs(&webhook, change.now_ms);
                let said = json!({ "broker": at.name, "keys": rotated });
                change.audit(at.organisation, "webhook.rotate_key", name, said)?;
                Ok((rotated, id))
            })
            .await?;
        let is_made = input.signing_key.is_none();
        Ok((rotated, is_made.then(|| self.secret_of(once, id.as_bytes())).transpose()?))
    }

    /// Queues a test event, and makes the server try the queue at once.
    pub(crate) async fn test_webhook(&self, caller: &Caller, at: &BrokerRef, name: &str) -> Result<()> {
        let id = self.new_id()?;
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            let hook = webhook(&change, caller, at, name).await?;
            let event = json!({
                "specversion": "1.0", "id": id, "source": format!("/brokers/{}", at.name),
                "type": "millrace.webhook.test", "datacontenttype": "application/json",
                "data": { "webhook": name, "at_ms": change.now_ms },
            });
            webhooks::add_test(&change.tx, hook, &Bytes::from(event.to_string()), change.now_ms).await?;
            hook.retry_now(&change.tx).await?;
            change.audit(at.organisation, "webhook.test", name, json!({ "broker": at.name }))
        })
        .await
    }
}

impl<'a> Which<'a> {
    fn id(self) -> Result<Option<Position>> {
        match self {
            Self::All => Ok(None),
            Self::One(id) => id.parse().map(Some).map_err(|_| Error::NotFound("dead letter")),
        }
    }

    fn require(self, count: usize) -> Result<()> {
        match self {
            Self::One(_) if count == 0 => Err(Error::NotFound("dead letter")),
            _ => Ok(()),
        }
    }

    fn note(self, change: &Change, at: &BrokerRef, action: &str, name: &str) -> Result<()> {
        let id: Option<&'a str> = match self {
            Self::All => None,
            Self::One(id) => Some(id),
        };
        change.audit(at.organisation, action, name, json!({ "broker": at.name, "id": id }))
    }
}

fn signs(webhook: &Webhook, now_ms: u64) -> RotatedKey {
    let previous = webhook.previous_key.as_ref().filter(|previous| now_ms < previous.until_ms);
    RotatedKey {
        key_number: webhook.key_number,
        previous_key_number: previous.map(|previous| previous.number),
        previous_key_until_ms: previous.map(|previous| previous.until_ms),
    }
}

async fn webhook<'n>(
    change: &Change,
    caller: &Caller,
    at: &BrokerRef,
    name: &'n str,
) -> Result<WebhookId<'n>> {
    let broker = find(&change.tx, caller, at, name, Permission::AccessWrite, Read::Serializable).await?;
    Ok(WebhookId { broker, name })
}

async fn find(
    tx: &Transaction,
    caller: &Caller,
    at: &BrokerRef,
    name: &str,
    permission: Permission,
    read: Read,
) -> Result<BrokerId> {
    let broker = brokers::find(tx, caller, at, permission, read).await?;
    let found = accounts::webhooks(broker.id).get::<Webhook>(tx, name.as_bytes(), read).await?;
    found.map(|_| broker.id).ok_or(Error::NotFound(Webhook::KIND))
}

fn cursor(text: &[u8]) -> Result<Position> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(super::page::wrong_cursor)
}
