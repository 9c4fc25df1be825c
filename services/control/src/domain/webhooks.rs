//! Where tenants are told what happens at a broker: the records, how they get on, and the events that were refused. Sending is the
//! pods' business.

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

/// How a webhook gets on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WebhookStatus {
    /// Events that wait. One that two of its filters match counts twice.
    pub queued_events: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// When the oldest of them happened, in unix milliseconds.
    pub oldest_queued_at_ms: Option<u64>,
    /// Events that were delivered.
    pub delivered: u64,
    /// Events that became dead letters.
    pub dead: u64,
    /// Events that a limit of the queue removed, or that waited when their filter was taken away or the webhook disabled.
    pub lost: u64,
    /// Dead letters that are kept.
    pub dead_letters: u64,
    /// Dead letters that a limit removed.
    pub dead_letters_lost: u64,
    /// When something was last delivered, in unix milliseconds.
    pub last_success_at_ms: Option<u64>,
    /// The last attempt that failed, whether or not others followed.
    pub last_failure: Option<WebhookFailure>,
    /// Attempts at what is first in the queue that have failed.
    pub attempts: u32,
    /// Since when they fail, in unix milliseconds; null: the last one did not.
    pub failing_since_ms: Option<u64>,
    /// When the next attempt is, in unix milliseconds; null: at once, when there is something.
    pub next_attempt_at_ms: Option<u64>,
}

/// An attempt to deliver that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WebhookFailure {
    /// When, in unix milliseconds.
    pub at_ms: u64,
    /// The status of the answer; null: there was none.
    pub status: Option<u16>,
    /// What happened.
    pub reason: String,
}

/// An event that was refused for good, or for too long.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct DeadLetter {
    /// Its id in this list.
    pub id: String,
    /// When it was given up, in unix milliseconds.
    pub at_ms: u64,
    /// Attempts to deliver it.
    pub attempts: u32,
    /// The last of them; null: it is on its way for the first time.
    pub failure: Option<WebhookFailure>,
    /// It is to be sent again.
    pub is_retried: bool,
    /// The event as it is sent.
    #[schema(value_type = Object)]
    pub event: Value,
}

/// How many dead letters it was done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterCount {
    /// So many.
    pub count: usize,
}

/// Which dead letters something is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    All,
    One(&'a str),
}

/// What is done to dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settling {
    /// They are sent again, each once.
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
        // Answers do not show the key, so who sends one back does not have it. An empty one takes it away.
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
    /// How a webhook gets on.
    ///
    /// # Errors
    /// See [`Error`].
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
    ///
    /// # Errors
    /// See [`Error`].
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

    /// Does something to dead letters.
    ///
    /// # Errors
    /// See [`Error`].
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

    /// Sends a webhook an event that says nothing, and has its queue tried at once.
    ///
    /// # Errors
    /// See [`Error`].
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

/// The webhook that somebody changes something of.
async fn hook<'n>(change: &Change, caller: &Caller, at: &BrokerRef, name: &'n str) -> Result<Hook<'n>> {
    let broker = find(&change.tx, caller, at, name, Permission::AccessWrite, Read::Serializable).await?;
    Ok(Hook { broker, name })
}

/// The broker of a webhook that is there.
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
