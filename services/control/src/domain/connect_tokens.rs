//! Connect tokens: short-lived passwords for MQTT, such as for a page of the console. A token is a signed text that the
//! server does not store. It cannot be revoked, so it is short-lived.

use std::time::Duration;

use millrace_access::connect_token::ConnectTokenClaims as Sealed;
use millrace_access::model::{Action, Effect, Rule};
use millrace_storage::Read;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::check::FieldErrors;
use super::{
    BrokerRef, Caller, Control, Error, LiveBroker, Once, Permission, Principal, Result, Visit, brokers,
};
use crate::limits::{
    AUDIT_TEXT_BYTES_MAX, CONNECT_TOKEN_RULES_MAX, CONNECT_TOKEN_S, CONNECT_TOKEN_S_MAX, CONNECT_TOKEN_S_MIN,
};
use crate::secret::{self, Secret};

/// Every broker accepts a client id of this length.
const CLIENT_ID_BYTES_MAX: usize = 200;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewConnectToken {
    /// The complete permissions of the client: rules of the broker, of groups and of credentials do not apply. Left
    /// out: it may subscribe to everything. Shared subscriptions take messages from their other members, so the caller also needs
    /// `messages:write` for them.
    pub rules: Option<Vec<Rule>>,
    /// The only client id that can use the token; left out: a random one.
    #[schema(example = "page-1", min_length = 1, max_length = 200)]
    pub client_id: Option<String>,
    /// Validity in seconds. At its end the broker disconnects the client.
    #[schema(minimum = 10, maximum = 3600, default = 900)]
    pub expires_in_s: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConnectToken {
    /// User name to connect with, prefixed with the broker's name if the host name does not identify the broker.
    #[schema(example = "console:ann@example.org")]
    pub username: String,
    pub client_id: String,
    pub rules: Vec<Rule>,
    /// End of the token, when the broker disconnects the client, in unix milliseconds.
    pub expires_at_ms: u64,
}

/// The rules for the audit log, or their number if they are long: viewers may create many tokens.
fn bounded(rules: &[Rule]) -> Value {
    let text = json!(rules);
    if text.to_string().len() <= AUDIT_TEXT_BYTES_MAX { text } else { json!(rules.len()) }
}

impl Control {
    pub(crate) async fn create_connect_token(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        input: &NewConnectToken,
        once: &Once,
    ) -> Result<(ConnectToken, Secret)> {
        let rules = &input.rules.clone().unwrap_or_else(reads_everything);
        let (expires_in_s, client_id) = (check(input, rules)?, &client_id(input.client_id.as_deref())?);
        let user = &user_of(caller);
        let may_share = self.open_broker(caller, at, Permission::MessagesWrite).await.is_ok();
        let prefix = &self.reach().endpoints(&at.name).user_prefix.unwrap_or_default();
        let (shown, broker) = self
            .change(caller.into(), once, |change| async move {
                let mut found = None;
                for permission in needed(rules) {
                    let tx = &change.tx;
                    found = Some(brokers::find(tx, caller, at, permission, Read::Serializable).await?);
                }
                let broker = found.ok_or(Error::Internal("a connect token without rules"))?.id;
                let expires_at_ms = change.now_ms + u64::from(expires_in_s) * 1_000;
                let said = json!({ "client_id": client_id, "rules": bounded(rules), "expires_at_ms": expires_at_ms });
                let (username, rules) = (format!("{prefix}{user}"), rules.clone());
                let token = ConnectToken { username, client_id: client_id.clone(), rules, expires_at_ms };
                // Only refuses rules that are too long, before anything is written: a stored answer must not have the secret.
                self.seal(broker, user.clone(), &token, may_share)?;
                change.audit(at.organisation, "connect_token.create", &at.name, said)?;
                Ok((token, broker))
            })
            .await?;
        let secret = self.seal(broker, user.clone(), &shown, may_share)?;
        Ok((shown, secret))
    }

    /// Returns a client with `rules`, for which the API has authorised the caller; it may connect for the time of `lasts`.
    pub(crate) fn visit(
        &self,
        caller: &Caller,
        broker: LiveBroker,
        rules: Vec<Rule>,
        lasts: Duration,
    ) -> Result<Visit> {
        let token = ConnectToken {
            username: user_of(caller),
            client_id: client_id(None)?,
            rules,
            expires_at_ms: self.now_ms() + u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX / 2),
        };
        let password = self.seal(broker.id, token.username.clone(), &token, false)?;
        Ok(Visit { broker, client_id: token.client_id, user: token.username, password })
    }

    /// `may_share`: whether the caller may take messages from the other members of a shared subscription.
    fn seal(&self, broker: u64, user: String, token: &ConnectToken, may_share: bool) -> Result<Secret> {
        let sealed = Sealed {
            broker,
            user,
            client_id: token.client_id.clone(),
            rules: token.rules.clone(),
            expires_at_ms: token.expires_at_ms,
            may_share,
        };
        let text = sealed.seal(&self.0.mqtt_secret_keys);
        text.map(Secret::from).ok_or_else(|| {
            Error::field("rules", "are too long together: the token made of them has at most 16 KiB")
        })
    }
}

fn reads_everything() -> Vec<Rule> {
    vec![Rule::new(Effect::Allow, Action::Subscribe, "#")]
}

fn check(input: &NewConnectToken, rules: &[Rule]) -> Result<u32> {
    Rule::validate_new(rules)?;
    let mut fields = FieldErrors::default();
    if !(1..=CONNECT_TOKEN_RULES_MAX).contains(&rules.len()) {
        fields.add("rules", format!("must be 1 to {CONNECT_TOKEN_RULES_MAX} rules"));
    }
    let expires_in_s = input.expires_in_s.unwrap_or(CONNECT_TOKEN_S);
    if !(CONNECT_TOKEN_S_MIN..=CONNECT_TOKEN_S_MAX).contains(&expires_in_s) {
        let what = format!("must be between {CONNECT_TOKEN_S_MIN} and {CONNECT_TOKEN_S_MAX}");
        fields.add("expires_in_s", what);
    }
    if let Some(id) = &input.client_id
        && (id.is_empty() || id.len() > CLIENT_ID_BYTES_MAX || id.contains(char::is_control))
    {
        fields.add("client_id", format!("must have 1 to {CLIENT_ID_BYTES_MAX} bytes, all of which show"));
    }
    fields.done()?;
    Ok(expires_in_s)
}

fn needed(rules: &[Rule]) -> Vec<Permission> {
    let allows_other_than =
        |other: Action| rules.iter().any(|rule| rule.effect == Effect::Allow && rule.action != other);
    let mut needed = Vec::new();
    if allows_other_than(Action::Subscribe) {
        needed.push(Permission::MessagesWrite);
    }
    if allows_other_than(Action::Publish) || needed.is_empty() {
        needed.push(Permission::MessagesRead);
    }
    needed
}

fn client_id(asked: Option<&str>) -> Result<String> {
    match asked {
        Some(id) => Ok(id.to_owned()),
        None => {
            let random = secret::random::<9>()?;
            Ok(format!("console-{}", secret::letters(&random)))
        }
    }
}

/// User name of a caller's client: a credential of the same name has no effect, because only the token's own rules apply.
fn user_of(caller: &Caller) -> String {
    match &caller.who {
        Principal::Person { email, .. } => format!("console:{email}"),
        Principal::Token { id, .. } => format!("token:{id}"),
    }
}
