//! State of a broker's webhooks and their dead letters. Servers of the region send the events; this file reads what
//! they have recorded, and queues requests to them.

use bytes::Bytes;
use millrace_access::model::{Checked, Webhook};
use millrace_layers::{
    BrokerId, Position, accounts,
    documents::Collection,
    webhooks::{self, Hook},
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::change::Change;
use super::difference::without_secrets;
use super::{BrokerRef, Caller, Control, Error, Once, Page, PageRequest, Part, Permission, Result, brokers};
use crate::limits::WEBHOOKS_MAX;

/// State of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WebhookStatus {
    /// Queued events. An event that two filters match counts twice.
    pub queued_events: u64,
    /// Bytes of the queued events.
    pub queued_bytes: u64,
    /// Time of the oldest queued event, in unix milliseconds.
    pub oldest_queued_at_ms: Option<u64>,
    pub delivered: u64,
    /// Events that became dead letters.
    pub dead: u64,
    /// Events lost to a limit of the queue, or because their filter was removed or the webhook disabled.
    pub lost: u64,
    /// Stored dead letters.
    pub dead_letters: u64,
    pub dead_letters_lost: u64,
    /// Time of the last delivery, in unix milliseconds.
    pub last_success_at_ms: Option<u64>,
    /// The last failed attempt, even if later attempts succeeded.
    pub last_failure: Option<WebhookFailure>,
    /// Failed attempts at the first event of the queue.
    pub attempts: u32,
    /// Time of the first of these failures, in unix milliseconds; null: the last attempt succeeded.
    pub failing_since_ms: Option<u64>,
    /// Time of the next attempt, in unix milliseconds; null: as soon as an event is queued.
    pub next_attempt_at_ms: Option<u64>,
}

/// A failed attempt to deliver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WebhookFailure {
    pub at_ms: u64,
    /// HTTP status of the answer; null: there was no answer.
    pub status: Option<u16>,
    pub reason: String,
}

/// An event that the receiver refused, or that could not be delivered for a day.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct DeadLetter {
    /// Its id in this list.
    pub id: String,
    /// Time at which the server gave up, in unix milliseconds.
    pub at_ms: u64,
    pub attempts: u32,
    /// The last failure; null: the first attempt is still under way.
    pub failure: Option<WebhookFailure>,
    /// Whether it waits to be sent again.
    pub is_retried: bool,
    /// The event in the form in which it is sent.
    #[schema(value_type = Object)]
    pub event: Value,
}

/// Number of dead letters that a request changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterCount {
    pub count: usize,
}

/// The dead letters that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    All,
    One(&'a str),
}

/// The change to dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settling {
    /// Send each once more.
    Retry,
    Remove,
}

impl Part for Webhook {
    const KIND: &'static str = "webhook";
    const MAX: usize = WEBHOOKS_MAX;

    fn all(broker: BrokerId) -> Collection {
        accounts::webhooks(broker)
    }

    fn check(&self) -> Checked {
        self.validate()
    }

    fn settle(&mut self, name: &str, now_ms: u64, old: Option<&Self>) {
        self.name = name.into();
        self.created_at_ms = old.map_or(now_ms, |old| old.created_at_ms);
        // Answers omit the key, so a caller that sends an answer back does not have it: the stored key stays. An empty
        // key removes it.
        match &self.signing_key {
            None => self.signing_key = old.and_then(|old| old.signing_key.clone()),
            Some(key) if key.expose().is_empty() => self.signing_key = None,
            Some(_) => {}
        }
    }

    fn hide_secrets(&mut self) {
        self.url = without_secrets(&self.url);
    }

    fn removed(tx: &Transaction, broker: BrokerId, name: &str) -> Result<()> {
        Ok(webhooks::forget(tx, Hook { broker, name })?)
    }
}

impl Control {
    pub(crate) async fn webhook_status(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        name: &str,
    ) -> Result<WebhookStatus> {
        self.look(|tx| async move {
            let broker = find(&tx, caller, at, name, Permission::AccessRead, Read::Snapshot).await?;
            let (state, waiting) = webhooks::status(&tx, Hook { broker, name }).await?;
            let unless_zero = |at_ms: u64| (at_ms > 0).then_some(at_ms);
            Ok(WebhookStatus {
                queued_events: waiting.totals.entries,
                queued_bytes: waiting.totals.bytes,
                oldest_queued_at_ms: waiting.oldest_at_ms,
                delivered: state.delivered,
                dead: state.dead,
                lost: state.lost,
                dead_letters: state.letters.into(),
                dead_letters_lost: state.letters_lost,
                last_success_at_ms: unless_zero(state.last_success_ms),
                last_failure: state.last_failure.map(Into::into),
                attempts: state.attempts,
                failing_since_ms: unless_zero(state.failing_since_ms),
                next_attempt_at_ms: unless_zero(state.next_attempt_ms),
            })
        })
        .await
    }

    /// Dead letters of a webhook, oldest first.
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
            let (letters, more) = webhooks::letters(&tx, Hook { broker, name }, after, page.limit).await?;
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
            let hook = hook(&change, caller, at, name).await?;
            let (count, action) = match what {
                Settling::Retry => {
                    (webhooks::send_again(&change.tx, hook, id).await?, "webhook.retry_dead_letters")
                }
                Settling::Remove => {
                    (webhooks::remove(&change.tx, hook, id).await?, "webhook.remove_dead_letters")
                }
            };
            which.require(count)?;
            which.note(&change, at, action, name)?;
            Ok(DeadLetterCount { count })
        })
        .await
    }

    /// Queues a test event, and makes the server try the queue at once.
    pub(crate) async fn test_webhook(&self, caller: &Caller, at: &BrokerRef, name: &str) -> Result<()> {
        let id = self.new_id()?;
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            let hook = hook(&change, caller, at, name).await?;
            let event = json!({
                "specversion": "1.0", "id": id, "source": format!("/brokers/{}", at.name),
                "type": "millrace.webhook.test", "datacontenttype": "application/json",
                "data": { "webhook": name, "at_ms": change.now_ms },
            });
            webhooks::add_test(&change.tx, hook, &Bytes::from(event.to_string()), change.now_ms).await?;
            hook.hurry(&change.tx).await?;
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

/// Finds a webhook that the caller may change.
async fn hook<'n>(change: &Change, caller: &Caller, at: &BrokerRef, name: &'n str) -> Result<Hook<'n>> {
    let broker = find(&change.tx, caller, at, name, Permission::AccessWrite, Read::Serializable).await?;
    Ok(Hook { broker, name })
}

/// Finds the broker of an existing webhook.
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

impl From<webhooks::Failure> for WebhookFailure {
    fn from(failure: webhooks::Failure) -> Self {
        let webhooks::Failure { at_ms, status, reason } = failure;
        Self { at_ms, status, reason }
    }
}

impl From<webhooks::Letter> for DeadLetter {
    fn from(letter: webhooks::Letter) -> Self {
        Self {
            id: letter.id.to_string(),
            at_ms: letter.at_ms,
            attempts: letter.attempts,
            failure: letter.failure.map(Into::into),
            is_retried: letter.again,
            event: serde_json::from_slice(&letter.event).unwrap_or_default(),
        }
    }
}
