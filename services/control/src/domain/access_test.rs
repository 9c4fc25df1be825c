//! Evaluates whether a client may publish or subscribe, and which rule decides, without the client being connected.

use std::sync::Arc;

use millrace_access::bans::{BanQuery, Bans};
use millrace_access::limits::USER_BYTES_MAX;
use millrace_access::model::{Ban, Credential, Group, Rule};
use millrace_access::rules::{ClientIdentity, ExplainedRequest, RuleList, RuleRefusal, explain};
use millrace_layers::accounts;
use millrace_mqtt::{QoS, topic};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::check::FieldErrors;
use super::{AccessBySettings, BrokerRef, Caller, Control, Error, Permission, Result, access, brokers};

const BANS_MAX: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestedAction {
    Publish,
    Subscribe,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessQuestion {
    #[schema(example = "pump-7", max_length = 65535)]
    pub client_id: String,
    /// User name; null: an anonymous client.
    pub user: Option<String>,
    pub action: TestedAction,
    /// Topic to publish to, or topic filter to subscribe to.
    #[schema(example = "plant/7/pump", min_length = 1)]
    pub topic: String,
    #[serde(default)]
    #[schema(minimum = 0, maximum = 2, default = 0)]
    pub qos: u8,
    /// Whether it publishes with RETAIN.
    #[serde(default)]
    pub retain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    Credential,
    Group,
    Broker,
    /// There are rules, but none applies: the action is refused.
    NoRule,
    /// There are no rules: everything is allowed.
    NoRules,
    /// The rules file of the server, because its settings decide about this broker.
    Settings,
    /// MQTT itself: topics below $SYS belong to the server.
    Protocol,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({
    "allowed": false, "granted_qos": null, "decided_by": "no_rule", "of": null, "rule_index": null, "rule": null,
    "reason": "there are rules, and none of them allows it", "obstacles": [],
}))]
pub struct AccessAnswer {
    pub allowed: bool,
    /// The QoS that a subscription gets; null if it is refused, and for publishing.
    pub granted_qos: Option<u8>,
    pub decided_by: DecidedBy,
    /// Name of the credential or group whose rule decides.
    pub of: Option<String>,
    /// Position of the rule in its list, from 0.
    pub rule_index: Option<u64>,
    pub rule: Option<Rule>,
    pub reason: String,
    /// Reasons for which the client could not connect, as far as they are known without its password.
    pub obstacles: Vec<String>,
}

struct Found {
    by_settings: bool,
    /// Rules by owner, in the order in which they apply.
    lists: Vec<(DecidedBy, Option<String>, Vec<Rule>)>,
    obstacles: Vec<String>,
}

impl Control {
    /// Evaluates one action by the broker's records. True: the server's settings decide instead, and this crate does not
    /// have their rules.
    pub(crate) async fn test_access(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        question: &AccessQuestion,
    ) -> Result<(AccessAnswer, bool)> {
        let qos = check(question)?;
        let now_ms = self.now_ms();
        let found = self
            .look(|tx| async move {
                let broker = brokers::find(&tx, caller, at, Permission::AccessRead, Read::Snapshot).await?;
                find_rules(&tx, &broker, question, (self.by_settings(), now_ms)).await
            })
            .await?;
        let by_settings = found.by_settings;
        Ok((answer(question, qos, found)?, by_settings))
    }
}

impl AccessAnswer {
    pub(crate) fn of_settings(self, granted_qos: Option<u8>, action: TestedAction) -> Self {
        let allowed = granted_qos.is_some();
        let reason = match allowed {
            true => "the settings of the server allow it (rules_file)",
            false => "the settings of the server do not allow it (rules_file)",
        };
        Self {
            allowed,
            granted_qos: granted_qos.filter(|_| action == TestedAction::Subscribe),
            decided_by: DecidedBy::Settings,
            of: None,
            rule_index: None,
            rule: None,
            reason: reason.into(),
            obstacles: self.obstacles,
        }
    }
}

fn check(question: &AccessQuestion) -> Result<QoS> {
    let mut fields = FieldErrors::default();
    match question.action {
        TestedAction::Publish if !topic::is_valid_name(&question.topic) => {
            fields.add("topic", "is not a topic: it has at least 1 byte, without + and #");
        }
        TestedAction::Subscribe if topic::Filter::parse(&question.topic).is_none() => {
            fields.add("topic", "is not a topic filter: + stands for one level, # for all levels at the end");
        }
        _ => {}
    }
    if question.client_id.len() > usize::from(u16::MAX) {
        fields.add("client_id", "has 65535 bytes at most");
    }
    let qos = QoS::from_bits(question.qos);
    if qos.is_none() {
        fields.add("qos", "must be 0, 1 or 2");
    }
    fields.done()?;
    Ok(qos.unwrap_or_default())
}

async fn find_rules(
    tx: &Transaction,
    broker: &millrace_layers::catalog::BrokerRecord,
    question: &AccessQuestion,
    (by_settings, now_ms): (AccessBySettings, u64),
) -> Result<Found> {
    let details = broker.details()?.value;
    let access = access::get(tx, broker, Read::Snapshot).await?.value;
    let mut obstacles = Vec::new();
    if details.suspended {
        obstacles.push("the broker is suspended".to_owned());
    }
    if details.is_over_cap {
        obstacles.push("a spend cap of the broker is reached".to_owned());
    }
    if is_banned(tx, broker.id, question, now_ms).await? {
        obstacles.push("a ban names the client id or the user".to_owned());
    }
    let mut lists = Vec::new();
    if access.by_settings {
        let AccessBySettings { anonymous, passwords } = by_settings;
        match &question.user {
            None if !anonymous => {
                obstacles.push("the settings of the server admit no anonymous clients".to_owned());
            }
            Some(_) if !anonymous && !passwords => {
                obstacles.push("the settings of the server have no password file".to_owned());
            }
            _ => {}
        }
        return Ok(Found { by_settings: true, lists, obstacles });
    }
    match &question.user {
        Some(user) => {
            // No credential has a longer name, and the store takes no longer key.
            let credential = match user.len() <= USER_BYTES_MAX {
                true => {
                    let all = accounts::credentials(broker.id);
                    all.get::<Credential>(tx, user.as_bytes(), Read::Snapshot).await?
                }
                false => None,
            };
            match credential.map(|document| document.value) {
                Some(credential) => {
                    if !credential.is_active(now_ms) {
                        obstacles.push("the credential is disabled or has expired".to_owned());
                    }
                    lists.push((DecidedBy::Credential, Some(user.clone()), credential.rules));
                    lists.extend(of_group(tx, broker.id, credential.group, &mut obstacles).await?);
                }
                None if access.webhook.is_none() && !access.tokens => {
                    obstacles.push("there is no credential of this user name".to_owned());
                }
                None => {}
            }
        }
        None if !access.anonymous => {
            obstacles.push("the broker accepts no anonymous clients".to_owned());
        }
        None => {}
    }
    lists.push((DecidedBy::Broker, None, access.rules));
    Ok(Found { by_settings: false, lists, obstacles })
}

async fn of_group(
    tx: &Transaction,
    broker: u64,
    group: Option<String>,
    obstacles: &mut Vec<String>,
) -> Result<Option<(DecidedBy, Option<String>, Vec<Rule>)>> {
    let Some(name) = group else { return Ok(None) };
    let group = accounts::groups(broker).get::<Group>(tx, name.as_bytes(), Read::Snapshot).await?;
    if group.is_none() {
        obstacles.push(format!("the group {name} of the credential is not there"));
    }
    Ok(group.map(|group| (DecidedBy::Group, Some(name), group.value.rules)))
}

async fn is_banned(tx: &Transaction, broker: u64, question: &AccessQuestion, now_ms: u64) -> Result<bool> {
    let page = accounts::bans(broker).page::<Ban>(tx, None, BANS_MAX, Read::Snapshot).await?;
    let (bans, _) = Bans::new(page.items.into_iter().map(|(_, ban)| ban.value).collect());
    let suspect =
        BanQuery { client_id: Some(&question.client_id), user: question.user.as_deref(), address: None };
    Ok(bans.is_banned(suspect, now_ms))
}

fn answer(question: &AccessQuestion, qos: QoS, found: Found) -> Result<AccessAnswer> {
    let compiled = found.lists.iter().map(|(_, _, rules)| RuleList::compile(rules).map(Arc::new));
    let compiled: Vec<_> = compiled
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| Error::Internal("stored rules cannot be read"))?;
    let client = ClientIdentity { user: question.user.as_deref(), id: &question.client_id };
    let filter = topic::Filter::parse(&question.topic).map_or(&*question.topic, |filter| filter.filter);
    let asked = match question.action {
        TestedAction::Publish => {
            ExplainedRequest::Publish { topic: &question.topic, retain: question.retain, qos }
        }
        TestedAction::Subscribe => ExplainedRequest::Subscribe { filter, qos },
    };
    let none = AccessAnswer {
        allowed: false,
        granted_qos: None,
        decided_by: DecidedBy::Protocol,
        of: None,
        rule_index: None,
        rule: None,
        reason: "only the server publishes below $SYS".into(),
        obstacles: found.obstacles,
    };
    if question.action == TestedAction::Publish && topic::is_reserved(&question.topic) {
        return Ok(none);
    }
    let explained = explain(&compiled, client, asked);
    let granted = explained.outcome.ok();
    let (decided_by, of, rule_index, rule) = match explained.by {
        Some((list, place)) => {
            let (by, of, rules) = &found.lists[list];
            (*by, of.clone(), Some(place as u64), rules.get(place).cloned())
        }
        None if compiled.iter().all(|list| list.is_empty()) => (DecidedBy::NoRules, None, None, None),
        None => (DecidedBy::NoRule, None, None, None),
    };
    let reason = sentence(explained.outcome.err(), decided_by);
    let granted_qos = granted.filter(|_| question.action == TestedAction::Subscribe).map(|qos| qos as u8);
    Ok(AccessAnswer {
        allowed: granted.is_some(),
        granted_qos,
        decided_by,
        of,
        rule_index,
        rule,
        reason,
        ..none
    })
}

fn sentence(refusal: Option<RuleRefusal>, by: DecidedBy) -> String {
    match (refusal, by) {
        (None, DecidedBy::NoRules) => "there are no rules, so everything is allowed",
        (None, _) => "a rule allows it",
        (Some(_), DecidedBy::NoRule) => "there are rules, and none of them allows it",
        (Some(RuleRefusal::Retain), _) => "the rule for this topic does not allow RETAIN",
        (Some(RuleRefusal::QoS), _) => "the rule for this topic does not allow this QoS",
        (Some(RuleRefusal::Topic), _) => "a rule denies it",
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_topic_of_bridges_below_sys_can_be_published_by_clients() {
        for (topic, allowed) in [
            ("$SYS/broker/connection/x/state", true),
            ("$SYS/broker/uptime", false),
            ("$SYS", false),
            ("a", true),
        ] {
            let question = AccessQuestion {
                client_id: "x".into(),
                user: None,
                action: TestedAction::Publish,
                topic: topic.into(),
                qos: 0,
                retain: true,
            };
            let found = Found { by_settings: false, lists: Vec::new(), obstacles: Vec::new() };
            let answer = answer(&question, QoS::AtMostOnce, found).ok();
            assert_eq!(answer.map(|answer| answer.allowed), Some(allowed), "{topic}");
        }
    }
}
