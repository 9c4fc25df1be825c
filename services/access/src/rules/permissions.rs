//! Decides a client's publishes and subscriptions; [`crate::rules`] says which rule decides.

use std::sync::Arc;

use millrace_mqtt::QoS;
use smallvec::SmallVec;

use super::compiled::{CompiledRule, RuleList};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientIdentity<'a> {
    pub user: Option<&'a str>,
    pub id: &'a str,
}

/// The rules of one client, built at its CONNECT and again when rules change. A
/// decision takes time linear in the number of rules, and allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Permissions(SmallVec<[Arc<RuleList>; 1]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleRefusal {
    #[error("no rule allows this topic")]
    Topic,
    #[error("the rule for this topic does not allow retained messages")]
    Retain,
    #[error("the rule for this topic does not allow this QoS")]
    QoS,
}

impl Permissions {
    /// The first of `lists` takes precedence.
    pub fn new(lists: impl IntoIterator<Item = Arc<RuleList>>) -> Self {
        Self(lists.into_iter().filter(|list| !list.is_empty()).collect())
    }

    /// For a client with a list of its `own`, which precedes `others`: even if all of them are empty, it may do only what a rule allows.
    pub fn with_own(own: Option<Arc<RuleList>>, others: impl IntoIterator<Item = Arc<RuleList>>) -> Self {
        let others = others.into_iter().filter(|list| !list.is_empty());
        Self(own.into_iter().chain(others).collect())
    }

    #[inline]
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn names_users(&self) -> bool {
        self.0.iter().any(|list| list.names_users())
    }

    #[must_use]
    pub fn rules(&self) -> usize {
        self.0.iter().map(|list| list.len()).sum()
    }

    #[inline]
    pub fn publish(
        &self,
        client: ClientIdentity<'_>,
        topic: &str,
        retain: bool,
        qos: QoS,
    ) -> Result<(), RuleRefusal> {
        if self.is_everything() {
            return Ok(());
        }
        let rules = self.0.iter().flat_map(|list| list.publish());
        decide_publish(rules, client, topic, retain, qos)
    }

    /// Returns the granted QoS; `filter` must be valid and without `$share/<name>/`.
    pub fn subscribe(&self, client: ClientIdentity<'_>, filter: &str, qos: QoS) -> Result<QoS, RuleRefusal> {
        if self.is_everything() {
            return Ok(qos);
        }
        decide_subscribe(self.0.iter().flat_map(|list| list.subscribe()), client, filter, qos)
    }
}

fn decide_publish<'a>(
    mut rules: impl Iterator<Item = &'a CompiledRule>,
    client: ClientIdentity<'_>,
    topic: &str,
    retain: bool,
    qos: QoS,
) -> Result<(), RuleRefusal> {
    match rules.find(|rule| rule.matches(client, topic)) {
        Some(rule) if rule.allow && retain && !rule.retain => Err(RuleRefusal::Retain),
        Some(rule) if rule.allow && qos > rule.qos_max => Err(RuleRefusal::QoS),
        Some(rule) if rule.allow => Ok(()),
        _ => Err(RuleRefusal::Topic),
    }
}

fn decide_subscribe<'a>(
    rules: impl Iterator<Item = &'a CompiledRule>,
    client: ClientIdentity<'_>,
    filter: &str,
    qos: QoS,
) -> Result<QoS, RuleRefusal> {
    let mut granted = qos;
    for rule in rules {
        if !rule.allow {
            if rule.overlaps(client, filter) {
                return Err(RuleRefusal::Topic);
            }
        } else if rule.covers(client, filter) {
            return Ok(granted.min(rule.qos_max));
        } else if rule.qos_max < granted && rule.overlaps(client, filter) {
            granted = rule.qos_max;
        }
    }
    Err(RuleRefusal::Topic)
}
