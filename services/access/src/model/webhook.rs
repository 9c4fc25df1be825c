//! A tenant's own HTTP services: one that says who may connect, and those that are told what happens.

use millrace_mqtt::topic::Filter;
use serde::{Deserialize, Serialize};

use super::hidden::HiddenText;
use super::invalid::{Checked, Findings};
use crate::limits::{RULES_MAX, WEBHOOK_BATCH_MAX, WEBHOOK_CACHE_S_MAX, WEBHOOK_TIMEOUT_MS_MAX};

/// A service that is asked about a client which no other method has let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WebhookAuth {
    /// Where it is asked, by POST.
    pub url: String,
    /// Signs the body (HMAC-SHA-256), so that the service knows who asks. `None`: not signed.
    pub signing_key: Option<HiddenText>,
    /// After that the client is refused as if the service could not be reached, milliseconds.
    pub timeout_ms: u32,
    /// For so long an answer counts for the same client with the same password, seconds; 0: every connect asks.
    pub cache_s: u32,
    /// Name of the [`super::Group`] whose rules its users have, when neither it nor a credential says another.
    pub group: Option<String>,
}

impl WebhookAuth {
    pub(super) fn check(&self, findings: &mut Findings) {
        findings.url("url", &self.url);
        if !(1..=WEBHOOK_TIMEOUT_MS_MAX).contains(&self.timeout_ms) {
            findings.add("timeout_ms", format!("is not between 1 and {WEBHOOK_TIMEOUT_MS_MAX}"));
        }
        if self.cache_s > WEBHOOK_CACHE_S_MAX {
            findings.add("cache_s", format!("more than {WEBHOOK_CACHE_S_MAX}"));
        }
        if let Some(group) = &self.group {
            findings.name("group", group);
        }
    }
}

impl Default for WebhookAuth {
    fn default() -> Self {
        Self { url: String::new(), signing_key: None, timeout_ms: 2_000, cache_s: 60, group: None }
    }
}

/// Where a tenant is told what happens at a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Webhook {
    /// Its name, unique in its broker.
    pub name: String,
    /// Where it is told, by POST.
    pub url: String,
    /// What is told.
    pub events: Vec<WebhookEvent>,
    /// Filters of the topics whose messages are told.
    pub filters: Vec<String>,
    /// Signs the body (HMAC-SHA-256). `None`: not signed.
    pub signing_key: Option<HiddenText>,
    /// Events in one request. 1: each by itself, as an object; more: as an array of up to so many.
    pub batch_max: u16,
    /// False: nothing is told, and nothing is queued.
    pub enabled: bool,
    /// When it was made, in unix milliseconds.
    pub created_at_ms: u64,
}

/// What may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum WebhookEvent {
    /// A client has connected.
    Connect,
    /// A connection has ended.
    Disconnect,
    /// A message was published.
    Message,
    /// A limit was reached.
    LimitReached,
}

impl Webhook {
    /// Says what is wrong with it.
    ///
    /// # Errors
    /// All that is wrong.
    pub fn validate(&self) -> Checked {
        let mut findings = Findings::default();
        findings.name("name", &self.name);
        findings.url("url", &self.url);
        findings.require(!self.events.is_empty(), "events", "name at least one");
        if self.filters.len() > RULES_MAX {
            findings.add("filters", format!("more than {RULES_MAX}"));
        }
        for (number, filter) in self.filters.iter().enumerate().take(RULES_MAX) {
            if !is_of_topics(filter) {
                findings.add(
                    format_args!("filters[{number}]"),
                    "is no topic filter, or one of shared subscriptions or of $SYS",
                );
            }
        }
        let has_messages = self.events.contains(&WebhookEvent::Message);
        findings.require(
            !has_messages || !self.filters.is_empty(),
            "filters",
            "say of which topics messages are told",
        );
        if !(1..=WEBHOOK_BATCH_MAX).contains(&self.batch_max) {
            findings.add("batch_max", format!("is not between 1 and {WEBHOOK_BATCH_MAX}"));
        }
        findings.done()
    }
}

/// Whether a filter is one of topics that clients publish to.
fn is_of_topics(filter: &str) -> bool {
    let is_right = Filter::parse(filter).is_some_and(|parsed| parsed.share.is_none());
    is_right && !filter.starts_with("$SYS/") && filter != "$SYS" && !filter.starts_with("$share")
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            name: String::new(),
            url: String::new(),
            events: Vec::new(),
            filters: Vec::new(),
            signing_key: None,
            batch_max: 1,
            enabled: true,
            created_at_ms: 0,
        }
    }
}
