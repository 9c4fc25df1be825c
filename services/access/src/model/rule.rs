//! The stored record of an access rule.

use serde::{Deserialize, Serialize};

use super::invalid::{Checked, Findings};
use crate::limits::{RULE_FILTER_BYTES_MAX, RULES_BYTES_MAX, RULES_MAX};

/// An access rule. The first rule of a list whose action and filter apply to a request decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Rule {
    pub effect: Effect,
    pub action: Action,
    /// Topic filter, without share name. `%c` stands for the client id, `%u` for the user name. The filters of a list have at most
    /// 16 KiB together.
    #[cfg_attr(feature = "schema", schema(max_length = 4_096))]
    pub filter: String,
    /// Whether an `allow` rule permits messages with RETAIN; a `deny` rule ignores it.
    #[serde(default = "yes")]
    pub retain: bool,
    /// Highest QoS (0, 1, 2) that an `allow` rule permits for publishes and grants to subscriptions.
    #[serde(default = "two")]
    #[cfg_attr(feature = "schema", schema(maximum = 2))]
    pub qos_max: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    Allow,
    Deny,
}

/// The requests that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Sending messages, including wills.
    Publish,
    Subscribe,
    All,
}

impl Rule {
    #[must_use]
    pub fn new(effect: Effect, action: Action, filter: &str) -> Self {
        Self { effect, action, filter: filter.to_owned(), retain: true, qos_max: 2 }
    }

    pub fn validate_all(rules: &[Self]) -> Checked {
        let mut findings = Findings::default();
        findings.each("rules", rules, RULES_MAX, Self::check);
        findings.done()
    }

    /// As [`Rule::validate_all`], with bounds in bytes, which stored rules of earlier versions may exceed.
    pub fn validate_new(rules: &[Self]) -> Checked {
        let mut findings = Findings::default();
        Self::check_new(rules, &mut findings);
        findings.done()
    }

    pub(super) fn check_new(rules: &[Self], findings: &mut Findings) {
        findings.each("rules", rules, RULES_MAX, |rule, findings| {
            findings.bytes("filter", &rule.filter, RULE_FILTER_BYTES_MAX);
            rule.check(findings);
        });
        if rules.iter().map(|rule| stored_bytes(&rule.filter)).sum::<usize>() > RULES_BYTES_MAX {
            findings.add("rules", "have more than 16 KiB together: use fewer or shorter filters");
        }
    }

    fn check(&self, findings: &mut Findings) {
        if let Err(what) = check_filter(&self.filter) {
            findings.add("filter", what);
        }
        findings.require(self.qos_max <= 2, "qos_max", "must be 0, 1 or 2");
    }
}

pub(crate) fn check_filter(filter: &str) -> Result<(), &'static str> {
    Err(if filter.is_empty() {
        "no topic filter: write # for every topic"
    } else if filter.len() > usize::from(u16::MAX) {
        "the topic filter is longer than 65535 bytes"
    } else if filter.contains('\0') {
        "the topic filter has a character U+0000"
    } else if filter.starts_with("$share/") {
        "write the topic filter without $share and the share name"
    } else if filter.split('/').any(|level| level.len() > 1 && level.contains(['+', '#'])) {
        "+ and # stand for whole levels: there must be nothing else between the slashes"
    } else if filter.split('/').rev().skip(1).any(|level| level == "#") {
        "# must be the last level of the topic filter"
    } else {
        return Ok(());
    })
}

/// JSON writes a control character in six bytes.
fn stored_bytes(filter: &str) -> usize {
    let bytes = |byte: u8| match byte {
        0..=0x1f => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    };
    filter.bytes().map(bytes).sum()
}

fn yes() -> bool {
    true
}

fn two() -> u8 {
    2
}
