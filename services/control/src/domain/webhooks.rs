//! Webhooks: where a tenant is told what happens at a broker. Here are their records; sending is not this crate's.

use millrace_access::model::{Checked, HiddenText, Invalid};
use millrace_layers::{BrokerId, accounts, documents::Collection};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Part;
use crate::limits::WEBHOOKS_MAX;

/// Where a tenant is told what happens.
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
    /// False: nothing is told.
    pub enabled: bool,
    /// When it was made, in unix milliseconds.
    pub created_at_ms: u64,
}

/// What may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookEvent {
    /// A client has connected.
    Connect,
    /// A connection has ended.
    Disconnect,
    /// A message was published.
    Message,
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            name: String::new(),
            url: String::new(),
            events: Vec::new(),
            filters: Vec::new(),
            signing_key: None,
            enabled: true,
            created_at_ms: 0,
        }
    }
}

impl Part for Webhook {
    const KIND: &'static str = "webhook";
    const MAX: usize = WEBHOOKS_MAX;

    fn all(broker: BrokerId) -> Collection {
        accounts::webhooks(broker)
    }

    fn check(&self) -> Checked {
        use millrace_access::limits::{NAME_BYTES_MAX, RULES_MAX, URL_BYTES_MAX};

        let mut found = Vec::new();
        let mut require = |is_right: bool, field: &str, what: &str| {
            if !is_right {
                found.push(Invalid { field: field.into(), what: what.into() });
            }
        };
        let shows = |text: &str| !text.is_empty() && !text.contains(char::is_control);
        require(
            shows(&self.name) && self.name.len() <= NAME_BYTES_MAX,
            "name",
            "must have 1 to 64 bytes that show",
        );
        let is_url = self.url.starts_with("https://") || self.url.starts_with("http://");
        require(
            is_url && self.url.len() <= URL_BYTES_MAX && !self.url.contains(char::is_whitespace),
            "url",
            "is no URL that begins with https:// or http://",
        );
        require(!self.events.is_empty(), "events", "name at least one");
        require(self.filters.len() <= RULES_MAX, "filters", "more than 100");
        require(self.filters.iter().all(|filter| shows(filter)), "filters", "a topic filter is empty");
        let has_messages = self.events.contains(&WebhookEvent::Message);
        require(
            !has_messages || !self.filters.is_empty(),
            "filters",
            "say of which topics messages are told",
        );
        if found.is_empty() { Ok(()) } else { Err(found) }
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
}
