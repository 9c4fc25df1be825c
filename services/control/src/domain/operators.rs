//! Operators of the region, as audit logs name them, and the tokens by which the operator API knows them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use super::audit::{Actor, ActorKind};
use super::names;
use crate::limits::{NAME_CHARS_MAX, OPERATOR_TOKEN_BYTES_MIN};
use crate::secret::Secret;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// `None`: a token without a name, or a program that gives none.
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// The program, by its User-Agent header.
    #[serde(default)]
    pub agent: Option<String>,
}

impl Operator {
    /// A person with a user of the machine that has the data folder.
    #[must_use]
    pub fn on_folder(user: &str) -> Self {
        Self { name: shown_name(user), address: None, agent: Some("millrace".into()) }
    }
}

impl From<&Operator> for Actor {
    fn from(Operator { name, address, agent }: &Operator) -> Self {
        let name = name.as_deref().unwrap_or("operator");
        Self { agent: agent.clone(), ..Self::new(ActorKind::Operator, name, *address) }
    }
}

/// The name, if audit logs and pages can show it.
pub(crate) fn shown_name(name: &str) -> Option<String> {
    let fits = (1..=NAME_CHARS_MAX).contains(&name.chars().count()) && names::check(name).is_ok();
    fits.then(|| name.to_owned())
}

#[derive(Clone, Debug)]
pub struct OperatorTokens(Vec<(Option<String>, Secret)>);

impl OperatorTokens {
    /// Parses one token, or lines of a name and a token. Empty lines and lines that begin with `#` are left out.
    ///
    /// # Errors
    /// Says what a file must have. The text never repeats a token.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines: Vec<&str> = lines.collect();
        let mut tokens = Vec::new();
        for line in &lines {
            let (name, token) = match line.rsplit_once([' ', '\t']) {
                // Without names the one token may have spaces.
                Some((_, last)) if lines.len() == 1 && last.len() < OPERATOR_TOKEN_BYTES_MIN => (None, *line),
                Some((name, token)) => (Some(name.trim()), token),
                None => (None, *line),
            };
            let wrong_name = || format!("line {} has a name that cannot be shown", tokens.len() + 1);
            let name = name.map(|name| shown_name(name).ok_or_else(wrong_name)).transpose()?;
            if token.len() < OPERATOR_TOKEN_BYTES_MIN {
                return Err(format!("a token has at least {OPERATOR_TOKEN_BYTES_MIN} characters"));
            }
            tokens.push((name, token.into()));
        }
        if tokens.is_empty() {
            return Err(format!("a token of at least {OPERATOR_TOKEN_BYTES_MIN} characters is needed"));
        }
        if 1 < tokens.len() && tokens.iter().any(|(name, _)| name.is_none()) {
            return Err("each of several tokens needs the name of its operator before it".into());
        }
        Ok(Self(tokens))
    }

    /// The name that belongs to a token; `None`: the token is wrong.
    pub(crate) fn find(&self, presented: &str) -> Option<&Option<String>> {
        let is_right = |token: &Secret| bool::from(presented.as_bytes().ct_eq(token.expose().as_bytes()));
        // All tokens are compared, so that the time does not depend on which of them is right.
        self.0.iter().fold(None, |found, (name, token)| if is_right(token) { Some(name) } else { found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210";

    #[test]
    fn a_file_has_one_token_or_a_name_before_each() {
        let one = OperatorTokens::parse(&format!("{ONE}\n")).unwrap();
        assert_eq!(one.find(ONE), Some(&None));
        assert_eq!(one.find(OTHER), None);
        let words = "a token of words, each shorter than a token";
        assert_eq!(OperatorTokens::parse(words).unwrap().find(words), Some(&None));
        let both = format!("# of the night shift\nAnn Archer {ONE}\n\nbob\t{OTHER}\n");
        let both = OperatorTokens::parse(&both).unwrap();
        assert_eq!(both.find(ONE), Some(&Some("Ann Archer".into())));
        assert_eq!(both.find(OTHER), Some(&Some("bob".into())));
        assert_eq!(both.find(""), None);
    }

    #[test]
    fn a_wrong_file_is_refused_without_its_tokens() {
        for (text, why) in [
            (String::new(), "is needed"),
            ("# nothing".into(), "is needed"),
            ("ann short".into(), "at least 32"),
            ("short".into(), "at least 32"),
            (format!("{ONE}\n{OTHER}"), "needs the name"),
            (format!("ann {ONE}\n{OTHER}"), "needs the name"),
            (format!("a\u{202e}nn {ONE}"), "cannot be shown"),
        ] {
            let refused = OperatorTokens::parse(&text).unwrap_err();
            assert!(refused.contains(why) && !refused.contains(ONE) && !refused.contains(OTHER), "{refused}");
        }
    }
}
