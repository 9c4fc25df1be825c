//! The file of access rules.
//!
//! One rule a line; `#` starts a comment line. The first rule that applies decides. When no rule applies the
//! answer is no, unless the file has no rule at all: then everything is allowed.
//!
//! ```text
//! # what  action     user        topic filter
//! allow   all        admin       #
//! deny    all        *           private/#
//! allow   publish    *           devices/%c/up/#
//! allow   subscribe  *           devices/%c/down/#
//! allow   subscribe  $anonymous  public/#
//! ```
//!
//! - action: `publish`, `subscribe`, or `all` for both.
//! - user: a user name, `*` for everybody, `$anonymous` for those without a user name. A name with spaces
//!   cannot be written here: use `*` and `%u`.
//! - topic filter: the rest of the line, so it may have spaces. `%c` stands for the client id, `%u` for the
//!   user name. As everywhere in MQTT a filter that starts with a wildcard does not match topics that start
//!   with `$`. Shared subscriptions are judged by the filter behind `$share/<name>/`.
//!
//! A subscription is judged as a whole, for messages are not looked at again when they are delivered. An
//! `allow` rule applies to it when its filter covers it (`a/#` covers `a/b/+`), a `deny` rule as soon as
//! there is a topic that both match. So after `deny subscribe * private/#` a subscription to `#` is refused,
//! even when `allow subscribe * #` follows: nobody reads around a `deny` with a wider filter.
//!
//! A client id or user name that is empty, starts with `$` or has one of `/ + #` in it could stand for other
//! topics than the rule means. To such a client an `allow` rule with that placeholder never applies, and a
//! `deny` rule with it always does. To a client without user name no rule with `%u` applies.

use super::cover::{Values, covers, overlaps};
use super::{FileError, lines};

/// The access rules of a file. The time of a decision grows with their number; nothing is allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    allow: bool,
    publish: bool,
    subscribe: bool,
    who: Who,
    filter: Box<str>,
    /// The filter has `%c`; found once, for this is asked at every publish.
    with_client: bool,
    /// The filter has `%u`.
    with_user: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
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

impl Rules {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// At the first line that is not a rule: no rule is better than half of them.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        lines(text)
            .map(|(line, text)| Rule::parse(text).map_err(|what| FileError { line, what }))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// True when there is no rule, and so everything is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a client may publish to a topic (a valid name, without wildcard).
    pub fn allows_publish(&self, user: Option<&str>, client_id: &str, topic: &str) -> bool {
        self.decide(user, client_id, topic, |rule| rule.publish)
    }

    /// Whether a client may subscribe to a filter (a valid one, without `$share/<name>/`). When it may, it
    /// may read every topic that the filter matches.
    pub fn allows_subscribe(&self, user: Option<&str>, client_id: &str, filter: &str) -> bool {
        self.decide(user, client_id, filter, |rule| rule.subscribe)
    }

    /// A topic is judged as a filter that matches itself: there covering and overlapping are the same.
    fn decide(&self, user: Option<&str>, client_id: &str, filter: &str, acts: fn(&Rule) -> bool) -> bool {
        let first = self.0.iter().filter(|rule| acts(rule)).find(|rule| match rule.reach(user, client_id) {
            Reach::Nothing => false,
            Reach::Everything => true,
            Reach::Filter(values) if rule.allow => covers(&rule.filter, filter, values),
            Reach::Filter(values) => overlaps(&rule.filter, filter, values),
        });
        first.map_or(self.is_empty(), |rule| rule.allow)
    }
}

impl Rule {
    fn parse(line: &str) -> Result<Self, String> {
        let (what, rest) = word(line);
        let (action, rest) = word(rest);
        let (user, filter) = word(rest);
        let allow = match what {
            "allow" => true,
            "deny" => false,
            _ => return Err(format!("a rule starts with \"allow\" or \"deny\", not with {what:?}")),
        };
        let (publish, subscribe) = match action {
            "publish" => (true, false),
            "subscribe" => (false, true),
            "all" => (true, true),
            _ => return Err(format!("the action is \"publish\", \"subscribe\" or \"all\", not {action:?}")),
        };
        let who = match user {
            "" => return Err("no user: write a user name, * for everybody or $anonymous".to_owned()),
            "*" => Who::Everybody,
            "$anonymous" => Who::Anonymous,
            user => Who::User(user.into()),
        };
        check_filter(filter)?;
        let (with_client, with_user) = (filter.contains("%c"), filter.contains("%u"));
        Ok(Self { allow, publish, subscribe, who, filter: filter.into(), with_client, with_user })
    }

    fn reach<'a>(&self, user: Option<&'a str>, client_id: &'a str) -> Reach<'a> {
        let spoken_of = match &self.who {
            Who::Everybody => true,
            Who::Anonymous => user.is_none(),
            Who::User(name) => user == Some(name),
        };
        if !spoken_of || self.with_user && user.is_none() {
            return Reach::Nothing;
        }
        let user = user.unwrap_or_default();
        if self.with_client && !is_plain(client_id) || self.with_user && !is_plain(user) {
            return if self.allow { Reach::Nothing } else { Reach::Everything };
        }
        Reach::Filter(Values { client_id, user })
    }
}

/// True when a value can only ever be part of one level of a topic, and not of a topic of the server.
fn is_plain(value: &str) -> bool {
    !value.is_empty() && !value.starts_with('$') && !value.contains(['/', '+', '#'])
}

/// The first word, and the rest without the blanks around it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

/// The rules of section 4.7, each with what to do.
fn check_filter(filter: &str) -> Result<(), String> {
    let what = if filter.is_empty() {
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
    };
    Err(what.to_owned())
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
