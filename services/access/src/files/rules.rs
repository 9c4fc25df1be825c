//! The file of access rules.
//!
//! Each line is a rule; `#` starts a comment line. Without a matching rule access is denied, unless
//! the file has no rules at all: then everything is allowed. [`crate::rules`] defines when a rule
//! applies.
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
//! - user: a user name, `*` for everybody, `$anonymous` for clients without a user name. A name
//!   with spaces cannot be written here: use `*` and `%u`.
//! - topic filter: the rest of the line, so it may contain spaces. `%c` stands for the client id,
//!   `%u` for the user name. A filter that starts with a wildcard does not match topics that start
//!   with `$`, as in MQTT. Shared subscriptions are judged by the filter behind `$share/<name>/`.

use super::{FileError, lines};
use crate::model::rule::check_filter;
use crate::model::{Action, Effect, Rule};
use crate::rules::{CompiledRule, RuleList, RuleSubject};

/// An invalid line fails the whole file, because the other rules alone could allow too much.
pub fn parse(text: &str) -> Result<RuleList, FileError> {
    lines(text).map(|(line, text)| rule(text).map_err(|what| FileError { line, what })).collect()
}

fn rule(line: &str) -> Result<CompiledRule, String> {
    let (what, rest) = word(line);
    let (action, rest) = word(rest);
    let (user, filter) = word(rest);
    let effect = match what {
        "allow" => Effect::Allow,
        "deny" => Effect::Deny,
        _ => return Err(format!("a rule starts with \"allow\" or \"deny\", not with {what:?}")),
    };
    let action = match action {
        "publish" => Action::Publish,
        "subscribe" => Action::Subscribe,
        "all" => Action::All,
        _ => return Err(format!("the action is \"publish\", \"subscribe\" or \"all\", not {action:?}")),
    };
    let subject = match user {
        "" => return Err("no user: write a user name, * for everybody or $anonymous".to_owned()),
        "*" => RuleSubject::Everybody,
        "$anonymous" => RuleSubject::Anonymous,
        user => RuleSubject::User(user.into()),
    };
    check_filter(filter)?;
    Ok(CompiledRule::new(&Rule::new(effect, action, filter), subject))
}

fn word(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
