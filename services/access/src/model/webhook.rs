//! Stored records of a tenant's HTTP services: the authentication service, and receivers of events.

use millrace_mqtt::topic::Filter;
use serde::{Deserialize, Serialize};

use super::hidden::HiddenText;
use super::invalid::{Checked, Findings};
use crate::limits::{
    RULES_MAX, SIGNING_KEY_BYTES_MAX, WEBHOOK_BATCH_MAX, WEBHOOK_CACHE_S_MAX, WEBHOOK_TIMEOUT_MS_MAX,
};

/// The tenant's HTTP service that authenticates clients which no other method knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WebhookAuth {
    pub url: String,
    /// Signs the body with HMAC-SHA-256, so that the service can verify that the edge sent it;
    /// `None` signs nothing.
    pub signing_key: Option<HiddenText>,
    /// Milliseconds after which the edge gives up the call and refuses the client, as if the
    /// service were unreachable.
    pub timeout_ms: u32,
    /// Seconds for which the same client and password get the cached response. 0 calls the service
    /// at every connect.
    pub cache_s: u32,
    /// Name of the [`super::Group`] of its users, unless the response or a credential names
    /// another.
    pub group: Option<String>,
}

impl WebhookAuth {
    pub(super) fn check(&self, findings: &mut Findings) {
        findings.url("url", &self.url);
        if !(1..=WEBHOOK_TIMEOUT_MS_MAX).contains(&self.timeout_ms) {
            findings.add("timeout_ms", format!("is not between 1 and {WEBHOOK_TIMEOUT_MS_MAX}"));
        }
        if let Some(key) = &self.signing_key {
            findings.bytes("signing_key", key.expose(), SIGNING_KEY_BYTES_MAX);
        }
        if self.cache_s > WEBHOOK_CACHE_S_MAX {
            findings.add("cache_s", format!("is not between 0 and {WEBHOOK_CACHE_S_MAX}"));
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

/// A tenant's HTTP service that receives a broker's events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Webhook {
    pub name: String,
    pub url: String,
    pub events: Vec<WebhookEvent>,
    /// Topic filters of the messages that become events; only for [`WebhookEvent::Message`].
    pub filters: Vec<String>,
    /// Signs the body with HMAC-SHA-256; `None` signs nothing.
    pub signing_key: Option<HiddenText>,
    /// Number of `signing_key`; each new key of a webhook has the next number.
    pub key_number: u32,
    /// The key before the last rotation, which signs as well until the rotation ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_key: Option<PreviousKey>,
    /// Most events in one request; with 1 the body is one object, otherwise an array.
    pub batch_max: u16,
    /// False neither sends nor queues events.
    pub enabled: bool,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousKey {
    pub signing_key: HiddenText,
    pub number: u32,
    pub until_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum WebhookEvent {
    Connect,
    Disconnect,
    Message,
    LimitReached,
}

impl WebhookEvent {
    const ALL: [Self; 4] = [Self::Connect, Self::Disconnect, Self::Message, Self::LimitReached];
}

impl Webhook {
    /// The keys that sign now, the newest first, with their numbers.
    #[must_use]
    pub fn keys(&self, now_ms: u64) -> Vec<(u32, &HiddenText)> {
        let Some(key) = &self.signing_key else { return Vec::new() };
        let previous = self.previous_key.as_ref().filter(|previous| now_ms < previous.until_ms);
        let previous = previous.map(|previous| (previous.number, &previous.signing_key));
        [Some((self.key_number, key)), previous].into_iter().flatten().collect()
    }

    pub fn validate(&self) -> Checked {
        let mut findings = Findings::default();
        findings.name("name", &self.name);
        findings.url("url", &self.url);
        findings.require(!self.events.is_empty(), "events", "is empty: name at least one");
        if self.events.len() > WebhookEvent::ALL.len() {
            findings.add(
                "events",
                format!("has more than {} entries: name each event once", WebhookEvent::ALL.len()),
            );
        }
        if let Some(key) = &self.signing_key {
            findings.bytes("signing_key", key.expose(), SIGNING_KEY_BYTES_MAX);
        }
        findings.each("filters", &self.filters, RULES_MAX, |filter, findings| {
            let what = "is not a topic filter, or is one of shared subscriptions or of $SYS";
            findings.require(is_plain_filter(filter), "", what);
        });
        let has_messages = self.events.contains(&WebhookEvent::Message);
        findings.require(
            !has_messages || !self.filters.is_empty(),
            "filters",
            "is empty: name the topics whose messages become events",
        );
        if !(1..=WEBHOOK_BATCH_MAX).contains(&self.batch_max) {
            findings.add("batch_max", format!("is not between 1 and {WEBHOOK_BATCH_MAX}"));
        }
        findings.done()
    }
}

/// A filter of the tenant's own topics: not `$SYS`, whose topics carry the other events, and no shared subscription.
fn is_plain_filter(filter: &str) -> bool {
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
            key_number: 0,
            previous_key: None,
            batch_max: 1,
            enabled: true,
            created_at_ms: 0,
        }
    }
}
