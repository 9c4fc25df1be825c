//! What one client may do.

use std::sync::Arc;

use millrace_mqtt::QoS;
use smallvec::SmallVec;

use super::compiled::{Compiled, RuleList};

/// Who a client is, for its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client<'a> {
    /// Its user name; `None` for who is anonymous.
    pub user: Option<&'a str>,
    /// Its client id.
    pub id: &'a str,
}

/// The rules of a client: made once when it connects, and again when rules change. The time of an answer grows with their
/// number; nothing is allocated.
#[derive(Clone, Debug, Default)]
pub struct Permissions(SmallVec<[Arc<RuleList>; 1]>);

/// Why something may not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No rule allows it, or one denies it.
    #[error("no rule allows this topic")]
    Topic,
    /// The rule that allows the topic does not allow RETAIN.
    #[error("the rule for this topic does not allow retained messages")]
    Retain,
    /// The rule that allows the topic allows a lower QoS.
    #[error("the rule for this topic does not allow this QoS")]
    QoS,
}

impl Permissions {
    /// The rules of a client, the first ones first. Without any rule it may do everything.
    pub fn new(lists: impl IntoIterator<Item = Arc<RuleList>>) -> Self {
        Self(lists.into_iter().filter(|list| !list.is_empty()).collect())
    }

    /// True when everything is allowed.
    #[inline]
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a client may publish to a topic (a valid name, without wildcard).
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub fn publish(&self, client: Client<'_>, topic: &str, retain: bool, qos: QoS) -> Result<(), Refusal> {
        if self.is_everything() {
            return Ok(());
        }
        let rules = self.0.iter().flat_map(|list| list.publish());
        decide_publish(rules, client, topic, retain, qos)
    }

    /// Whether a client may subscribe to a filter (a valid one, without `$share/<name>/`), and the QoS that it is granted. When it
    /// may, it may read every topic that the filter matches.
    ///
    /// # Errors
    /// Why not.
    pub fn subscribe(&self, client: Client<'_>, filter: &str, qos: QoS) -> Result<QoS, Refusal> {
        if self.is_everything() {
            return Ok(qos);
        }
        decide_subscribe(self.0.iter().flat_map(|list| list.subscribe()), client, filter, qos)
    }
}

fn decide_publish<'a>(
    mut rules: impl Iterator<Item = &'a Compiled>,
    client: Client<'_>,
    topic: &str,
    retain: bool,
    qos: QoS,
) -> Result<(), Refusal> {
    match rules.find(|rule| rule.matches(client, topic)) {
        Some(rule) if rule.allow && retain && !rule.retain => Err(Refusal::Retain),
        Some(rule) if rule.allow && qos > rule.qos_max => Err(Refusal::QoS),
        Some(rule) if rule.allow => Ok(()),
        _ => Err(Refusal::Topic),
    }
}

fn decide_subscribe<'a>(
    rules: impl Iterator<Item = &'a Compiled>,
    client: Client<'_>,
    filter: &str,
    qos: QoS,
) -> Result<QoS, Refusal> {
    let mut granted = qos;
    for rule in rules {
        if !rule.allow {
            if rule.overlaps(client, filter) {
                return Err(Refusal::Topic);
            }
        } else if rule.covers(client, filter) {
            return Ok(granted.min(rule.qos_max));
        } else if rule.qos_max < granted && rule.overlaps(client, filter) {
            granted = rule.qos_max;
        }
    }
    Err(Refusal::Topic)
}
