//! Rules with what can be known of them beforehand.

use millrace_mqtt::QoS;

use super::filter::{Values, covers, overlaps};
use super::permissions::Client;
use crate::model::{Action, Effect, Invalid, Rule};

/// The rules of one owner (a credential, a group, a broker, a file), checked and ready. Many clients share one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleList(Box<[Compiled]>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compiled {
    pub(super) allow: bool,
    publish: bool,
    subscribe: bool,
    pub(super) retain: bool,
    pub(super) qos_max: QoS,
    who: Who,
    filter: Box<str>,
    /// So many bytes of the filter begin every topic that it matches. A comparison of them settles most rules.
    literal: usize,
    /// The filter has `%c`; found once, for this is asked at every publish.
    with_client: bool,
    /// The filter has `%u`.
    with_user: bool,
}

/// Whom of its clients a list speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Everybody,
    Anonymous,
    User(Box<str>),
}

/// Whether a rule speaks of a client, and of what.
enum Reach<'a> {
    Nothing,
    Everything,
    Filter(Values<'a>),
}

impl RuleList {
    /// Checks rules and makes them ready.
    ///
    /// # Errors
    /// What is wrong with them, below `rules`.
    pub fn compile(rules: &[Rule]) -> Result<Self, Vec<Invalid>> {
        Rule::validate_all(rules)?;
        Ok(rules.iter().map(|rule| Compiled::new(rule, Who::Everybody)).collect())
    }

    /// True when there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Compiled> {
        self.0.iter()
    }

    pub(super) fn publish(&self) -> impl Iterator<Item = &Compiled> {
        self.0.iter().filter(|rule| rule.publish)
    }

    pub(super) fn subscribe(&self) -> impl Iterator<Item = &Compiled> {
        self.0.iter().filter(|rule| rule.subscribe)
    }
}

impl FromIterator<Compiled> for RuleList {
    fn from_iter<I: IntoIterator<Item = Compiled>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

impl Compiled {
    /// Makes a valid rule ready.
    pub(crate) fn new(rule: &Rule, who: Who) -> Self {
        let filter: Box<str> = rule.filter.as_str().into();
        Self {
            allow: rule.effect == Effect::Allow,
            publish: rule.action != Action::Subscribe,
            subscribe: rule.action != Action::Publish,
            retain: rule.retain,
            qos_max: QoS::from_bits(rule.qos_max).unwrap_or_default(),
            who,
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

    /// Whether it is about publishing to a topic.
    pub(super) fn matches(&self, client: Client<'_>, topic: &str) -> bool {
        match self.reach(client) {
            Reach::Nothing => false,
            Reach::Everything => true,
            Reach::Filter(values) => {
                let literal = &self.filter.as_bytes()[..self.literal];
                // A topic is a filter that matches itself.
                topic.as_bytes().starts_with(literal) && covers(&self.filter, topic, values)
            }
        }
    }

    /// Whether all topics of a filter are its.
    pub(super) fn covers(&self, client: Client<'_>, filter: &str) -> bool {
        match self.reach(client) {
            Reach::Nothing => false,
            Reach::Everything => true,
            Reach::Filter(values) => covers(&self.filter, filter, values),
        }
    }

    /// Whether some topic of a filter is its.
    pub(super) fn overlaps(&self, client: Client<'_>, filter: &str) -> bool {
        match self.reach(client) {
            Reach::Nothing => false,
            Reach::Everything => true,
            Reach::Filter(values) => overlaps(&self.filter, filter, values),
        }
    }

    fn reach<'a>(&self, client: Client<'a>) -> Reach<'a> {
        let spoken_of = match &self.who {
            Who::Everybody => true,
            Who::Anonymous => client.user.is_none(),
            Who::User(name) => client.user == Some(name),
        };
        if !spoken_of || self.with_user && client.user.is_none() {
            return Reach::Nothing;
        }
        let (user, client_id) = (client.user.unwrap_or_default(), client.id);
        if self.with_client && !is_plain(client_id) || self.with_user && !is_plain(user) {
            return if self.allow { Reach::Nothing } else { Reach::Everything };
        }
        Reach::Filter(Values { client_id, user })
    }
}

/// The length of the whole levels before the first that has a wildcard or a placeholder, without the slash behind them, which
/// `a/#` does not need.
fn literal(filter: &str) -> usize {
    match filter.find(['+', '#', '%']) {
        Some(special) => filter[..special].rfind('/').unwrap_or(0),
        None => filter.len(),
    }
}

/// True when a value can only ever be part of one level of a topic, and not of a topic of the server.
fn is_plain(value: &str) -> bool {
    !value.is_empty() && !value.starts_with('$') && !value.contains(['/', '+', '#'])
}
