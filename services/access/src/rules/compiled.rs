//! Access rules, compiled so that a decision allocates nothing and most rules are settled by a
//! prefix.

use millrace_mqtt::QoS;

use super::filter::{Values, covers, overlaps};
use super::permissions::ClientIdentity;
use crate::model::{Action, Effect, Invalid, Rule};

/// The compiled rules of one owner (a credential, a group, a broker, a file), shared by the owner's
/// clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RuleList(Box<[CompiledRule]>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CompiledRule {
    pub(super) allow: bool,
    publish: bool,
    subscribe: bool,
    pub(super) retain: bool,
    pub(super) qos_max: QoS,
    subject: RuleSubject,
    filter: Box<str>,
    /// Length of the literal prefix that every matching topic has: comparing it settles most rules.
    literal: usize,
    with_client: bool,
    with_user: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RuleSubject {
    Everybody,
    Anonymous,
    User(Box<str>),
}

enum RuleScope<'a> {
    Nothing,
    Everything,
    Filter(Values<'a>),
}

impl RuleList {
    pub fn compile(rules: &[Rule]) -> Result<Self, Vec<Invalid>> {
        Rule::validate_all(rules)?;
        Ok(rules.iter().map(|rule| CompiledRule::new(rule, RuleSubject::Everybody)).collect())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn names_users(&self) -> bool {
        self.0.iter().any(|rule| matches!(rule.subject, RuleSubject::User(_)))
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0) + self.0.iter().map(|rule| rule.filter.len()).sum::<usize>()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &CompiledRule> {
        self.0.iter()
    }

    pub(super) fn publish(&self) -> impl Iterator<Item = &CompiledRule> {
        self.0.iter().filter(|rule| rule.publish)
    }

    pub(super) fn subscribe(&self) -> impl Iterator<Item = &CompiledRule> {
        self.0.iter().filter(|rule| rule.subscribe)
    }
}

impl FromIterator<CompiledRule> for RuleList {
    fn from_iter<I: IntoIterator<Item = CompiledRule>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

impl CompiledRule {
    pub(crate) fn new(rule: &Rule, subject: RuleSubject) -> Self {
        let filter: Box<str> = rule.filter.as_str().into();
        Self {
            allow: rule.effect == Effect::Allow,
            publish: rule.action != Action::Subscribe,
            subscribe: rule.action != Action::Publish,
            retain: rule.retain,
            qos_max: QoS::from_bits(rule.qos_max).unwrap_or_default(),
            subject,
            literal: literal(&filter),
            with_client: filter.contains("%c"),
            with_user: filter.contains("%u"),
            filter,
        }
    }

    pub(super) fn is_for_publish(&self) -> bool {
        self.publish
    }

    pub(super) fn is_for_subscribe(&self) -> bool {
        self.subscribe
    }

    pub(super) fn matches(&self, client: ClientIdentity<'_>, topic: &str) -> bool {
        match self.scope(client) {
            RuleScope::Nothing => false,
            RuleScope::Everything => true,
            RuleScope::Filter(values) => {
                let literal = &self.filter.as_bytes()[..self.literal];
                // A topic name is a filter that matches only itself, so covering it is matching it.
                topic.as_bytes().starts_with(literal) && covers(&self.filter, topic, values)
            }
        }
    }

    pub(super) fn covers(&self, client: ClientIdentity<'_>, filter: &str) -> bool {
        match self.scope(client) {
            RuleScope::Nothing => false,
            RuleScope::Everything => true,
            RuleScope::Filter(values) => covers(&self.filter, filter, values),
        }
    }

    pub(super) fn overlaps(&self, client: ClientIdentity<'_>, filter: &str) -> bool {
        match self.scope(client) {
            RuleScope::Nothing => false,
            RuleScope::Everything => true,
            RuleScope::Filter(values) => overlaps(&self.filter, filter, values),
        }
    }

    /// The topics for which the rule concerns the client: none, all, or those of its filter.
    fn scope<'a>(&self, client: ClientIdentity<'a>) -> RuleScope<'a> {
        let is_subject = match &self.subject {
            RuleSubject::Everybody => true,
            RuleSubject::Anonymous => client.user.is_none(),
            RuleSubject::User(name) => client.user == Some(name),
        };
        if !is_subject || self.with_user && client.user.is_none() {
            return RuleScope::Nothing;
        }
        let (user, client_id) = (client.user.unwrap_or_default(), client.id);
        if self.with_client && !is_plain(client_id) || self.with_user && !is_plain(user) {
            return if self.allow { RuleScope::Nothing } else { RuleScope::Everything };
        }
        RuleScope::Filter(Values { client_id, user })
    }
}

/// The length of the levels before the first wildcard or placeholder, without the slash after them,
/// because `a/#` also matches `a`.
fn literal(filter: &str) -> usize {
    match filter.find(['+', '#', '%']) {
        Some(special) => filter[..special].rfind('/').unwrap_or(0),
        None => filter.len(),
    }
}

/// A plain value is part of one topic level, and does not begin with `$`.
fn is_plain(value: &str) -> bool {
    !value.is_empty() && !value.starts_with('$') && !value.contains(['/', '+', '#'])
}
