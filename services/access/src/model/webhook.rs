//! A tenant's own HTTP service that says who may connect.

use serde::{Deserialize, Serialize};

use super::hidden::HiddenText;
use super::invalid::Findings;
use crate::limits::{WEBHOOK_CACHE_S_MAX, WEBHOOK_TIMEOUT_MS_MAX};

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
