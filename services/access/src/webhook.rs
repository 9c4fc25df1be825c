//! The authentication webhook: the request to a tenant's service about a client, and the meaning of
//! its response; the caller makes the HTTP call.
//!
//! The edge POSTs a [`WebhookQuestion`] as JSON, signed ([`sign`]) in the header
//! [`SIGNATURE_HEADER`]. The service responds with 200 and JSON:
//!
//! ```json
//! { "result": "allow", "user": "pump-7", "group": "pumps", "expires_at_ms": 1780272000000,
//!   "rules": [{ "effect": "allow", "action": "publish", "filter": "pumps/%c/#" }] }
//! ```
//!
//! Every field but `result` (`allow` or `deny`) is optional. 401 and 403 mean `deny`. Any other
//! response, or none in time, is a failure: the client gets "server unavailable" and tries again,
//! and nothing is cached.

mod cache;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde::{Deserialize, Serialize};

pub use cache::AnswerCache;

use crate::limits::{USER_BYTES_MAX, WEBHOOK_ANSWER_BYTES_MAX, WEBHOOK_RULES_BYTES_MAX};
use crate::model::{HiddenText, Rule};
use crate::rules::RuleList;

pub const SIGNATURE_HEADER: &str = "millrace-signature";
/// Numbers of the signing keys, in the order of the signatures.
pub const SIGNATURE_KEYS_HEADER: &str = "millrace-signature-keys";

/// The body of the request, which must not be logged because it contains the password.
#[derive(Serialize)]
pub struct WebhookQuestion<'a> {
    pub broker: &'a str,
    /// Empty when the client asks the server to assign a client id.
    pub client_id: &'a str,
    pub user: Option<&'a str>,
    #[serde(flatten)]
    pub password: Option<Password<'a>>,
    /// The user that the client's certificate names, if the broker has authorities of its own.
    pub certificate_user: Option<&'a str>,
    pub address: Option<Cow<'a, str>>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Password<'a> {
    Password(&'a str),
    PasswordBase64(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookAnswer {
    Allowed(Box<WebhookGrant>),
    Refused,
    Failed(&'static str),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookGrant {
    /// `None` keeps the user name of the CONNECT.
    pub user: Option<Box<str>>,
    /// `None` keeps the group of the webhook's record.
    pub group: Option<Box<str>>,
    pub rules: Option<RuleList>,
    pub expires_at_ms: Option<u64>,
}

#[derive(Deserialize)]
struct WebhookAnswerBody {
    result: WebhookDecision,
    user: Option<Box<str>>,
    group: Option<Box<str>>,
    rules: Option<Vec<Rule>>,
    expires_at_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum WebhookDecision {
    Allow,
    Deny,
}

impl<'a> From<&'a [u8]> for Password<'a> {
    fn from(password: &'a [u8]) -> Self {
        match str::from_utf8(password) {
            Ok(text) => Self::Password(text),
            Err(_) => Self::PasswordBase64(STANDARD.encode(password)),
        }
    }
}

impl WebhookAnswer {
    pub(crate) fn bytes(&self) -> usize {
        let Self::Allowed(grant) = self else { return 0 };
        let texts = [&grant.user, &grant.group].into_iter().flatten().map(|text| text.len());
        size_of::<WebhookGrant>() + texts.sum::<usize>() + grant.rules.as_ref().map_or(0, RuleList::bytes)
    }

    #[must_use]
    pub fn of(status: u16, body: &[u8]) -> Self {
        match status {
            200 if body.len() > WEBHOOK_ANSWER_BYTES_MAX => {
                Self::Failed("its answer is longer than 64 KiB; shorten the rules")
            }
            200 => serde_json::from_slice(body).map_or(
                Self::Failed(
                    "its answer is not the documented JSON object; compare it with the page of the API",
                ),
                Self::of_body,
            ),
            401 | 403 => Self::Refused,
            _ => Self::Failed("its status is not 200, 401 or 403: look at the service's logs"),
        }
    }

    fn of_body(body: WebhookAnswerBody) -> Self {
        let is_usable =
            |user: &str| !user.is_empty() && user.len() <= USER_BYTES_MAX && !user.contains(char::is_control);
        if matches!(body.result, WebhookDecision::Deny) {
            return Self::Refused;
        }
        if body.user.as_deref().is_some_and(|user| !is_usable(user)) {
            return Self::Failed(
                "the user in its answer does not have 1 to 256 bytes, or has control characters; answer another one",
            );
        }
        let filters = body.rules.iter().flatten().map(|rule| rule.filter.len());
        if filters.sum::<usize>() > WEBHOOK_RULES_BYTES_MAX {
            return Self::Failed("the rules in its answer have more than 16 KiB; put them into a group");
        }
        match body.rules.as_deref().map(RuleList::compile).transpose() {
            Ok(rules) => Self::Allowed(Box::new(WebhookGrant {
                user: body.user,
                group: body.group,
                rules,
                expires_at_ms: body.expires_at_ms,
            })),
            Err(_) => {
                Self::Failed("the rules in its answer are invalid; compare them with the page of the API")
            }
        }
    }
}

/// Returns `t=<unix seconds>,v1=<hexadecimal HMAC-SHA-256 of "<unix seconds>.<body>">`. A receiver
/// prevents replay by refusing old times.
#[must_use]
pub fn sign(key: &HiddenText, now_s: u64, body: &[u8]) -> String {
    sign_with([key], now_s, body)
}

/// Writes one `v1=` for each key, in their order, of which a receiver needs to verify only one.
#[must_use]
pub fn sign_with<'a>(keys: impl IntoIterator<Item = &'a HiddenText>, now_s: u64, body: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut signature = format!("t={now_s}");
    for key in keys {
        let mut context =
            hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key.expose().as_bytes()));
        context.update(format!("{now_s}.").as_bytes());
        context.update(body);
        signature += ",v1=";
        for byte in context.sign().as_ref() {
            let _ = write!(signature, "{byte:02x}");
        }
    }
    signature
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;
    use crate::model::{Action, Effect};

    #[test]
    fn a_question_names_the_client() {
        let question = WebhookQuestion {
            broker: "acme",
            client_id: "pump-7",
            user: Some("bob"),
            password: Some((&b"secret"[..]).into()),
            certificate_user: None,
            address: Some("192.0.2.1:5".into()),
        };
        let expected = json!({
            "broker": "acme", "client_id": "pump-7", "user": "bob", "password": "secret", "certificate_user": null,
            "address": "192.0.2.1:5",
        });
        assert_eq!(to_value(&question).unwrap(), expected);
        let binary = to_value(WebhookQuestion { password: Some((&b"\xFF"[..]).into()), ..question }).unwrap();
        assert_eq!((&binary["password"], &binary["password_base64"]), (&json!(null), &json!("/w==")));
    }

    #[test]
    fn an_answer_is_yes_no_or_a_failure() {
        let allow = |body: serde_json::Value| WebhookAnswer::of(200, body.to_string().as_bytes());
        assert_eq!(allow(json!({ "result": "allow", "x": 1 })), WebhookAnswer::Allowed(Box::default()));
        let rule = Rule::new(Effect::Allow, Action::All, "a/%c");
        let full =
            json!({ "result": "allow", "user": "bob", "group": "g", "expires_at_ms": 5, "rules": [rule] });
        let expected = WebhookGrant {
            user: Some("bob".into()),
            group: Some("g".into()),
            rules: Some(RuleList::compile(&[rule]).unwrap()),
            expires_at_ms: Some(5),
        };
        assert_eq!(allow(full), WebhookAnswer::Allowed(Box::new(expected)));
        for (status, body) in [(200, r#"{"result":"deny"}"#), (401, ""), (403, "no")] {
            assert_eq!(WebhookAnswer::of(status, body.as_bytes()), WebhookAnswer::Refused, "{status}");
        }
        let long = format!(r#"{{"result":"allow","x":"{}"}}"#, "x".repeat(WEBHOOK_ANSWER_BYTES_MAX));
        for (status, body) in [
            (200, ""),
            (200, "{}"),
            (200, r#"{"result":"yes"}"#),
            (200, r#"{"result":"allow","user":""}"#),
            (200, r#"{"result":"allow","rules":[{"effect":"allow","action":"all","filter":"a#"}]}"#),
            (200, &long),
            (204, ""),
            (302, r#"{"result":"allow"}"#),
            (404, ""),
            (500, r#"{"result":"allow"}"#),
        ] {
            assert!(
                matches!(WebhookAnswer::of(status, body.as_bytes()), WebhookAnswer::Failed(_)),
                "{status} {body:.60}"
            );
        }
    }

    #[test]
    fn the_rules_of_an_answer_have_a_limit_in_bytes() {
        let answer = |levels: usize| {
            let rules = [Rule::new(Effect::Allow, Action::All, &"a/".repeat(levels / 2))];
            WebhookAnswer::of(200, json!({ "result": "allow", "rules": rules }).to_string().as_bytes())
        };
        assert!(matches!(answer(WEBHOOK_RULES_BYTES_MAX), WebhookAnswer::Allowed(_)));
        assert!(matches!(answer(WEBHOOK_RULES_BYTES_MAX + 2), WebhookAnswer::Failed(_)));
    }

    #[test]
    fn a_question_is_signed_with_its_time() {
        // printf '5.{}' | openssl dgst -sha256 -hmac key
        let expected = "t=5,v1=9be615aec64f0d044b5ad6854ab1d893ec88617fb728d2149dcd3a3428e8c45d";
        assert_eq!(sign(&"key".into(), 5, b"{}"), expected);
        assert_ne!(sign(&"key".into(), 6, b"{}")[4..], expected[4..]);
    }
}
