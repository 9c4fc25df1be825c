//! Explains an authorization decision: decides as [`super::Permissions`] does, and names the rule
//! that decided.

use std::sync::Arc;

use millrace_mqtt::QoS;

use super::compiled::{CompiledRule, RuleList};
use super::permissions::{ClientIdentity, RuleRefusal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplainedRequest<'a> {
    Publish { topic: &'a str, retain: bool, qos: QoS },
    Subscribe { filter: &'a str, qos: QoS },
}

/// Index of a list, and index of a rule in that list.
pub type RulePosition = (usize, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub outcome: Result<QoS, RuleRefusal>,
    /// `None` without any rule, which allows everything, and when no rule is about the topic, which refuses it.
    pub by: Option<RulePosition>,
}

/// `lists` in the order of precedence, as for [`super::Permissions::new`].
#[must_use]
pub fn explain(
    lists: &[Arc<RuleList>],
    client: ClientIdentity<'_>,
    request: ExplainedRequest<'_>,
) -> Explanation {
    let qos = match request {
        ExplainedRequest::Publish { qos, .. } | ExplainedRequest::Subscribe { qos, .. } => qos,
    };
    if lists.iter().all(|list| list.is_empty()) {
        return Explanation { outcome: Ok(qos), by: None };
    }
    let mut granted = qos;
    for (list, rules) in lists.iter().enumerate() {
        for (rule, compiled) in rules.all().enumerate() {
            if let Some(outcome) = decision(compiled, client, request, &mut granted) {
                return Explanation { outcome, by: Some((list, rule)) };
            }
        }
    }
    Explanation { outcome: Err(RuleRefusal::Topic), by: None }
}

/// `None` when the rule does not decide. A rule that does not decide can still lower `granted`, the
/// QoS that a later rule grants.
fn decision(
    rule: &CompiledRule,
    client: ClientIdentity<'_>,
    request: ExplainedRequest<'_>,
    granted: &mut QoS,
) -> Option<Result<QoS, RuleRefusal>> {
    match request {
        ExplainedRequest::Publish { topic, retain, qos } => {
            if !rule.is_for_publish() || !rule.matches(client, topic) {
                return None;
            }
            Some(match rule.allow {
                false => Err(RuleRefusal::Topic),
                true if retain && !rule.retain => Err(RuleRefusal::Retain),
                true if qos > rule.qos_max => Err(RuleRefusal::QoS),
                true => Ok(qos),
            })
        }
        ExplainedRequest::Subscribe { filter, .. } => {
            if !rule.is_for_subscribe() {
                return None;
            }
            if !rule.allow {
                return rule.overlaps(client, filter).then_some(Err(RuleRefusal::Topic));
            }
            if rule.covers(client, filter) {
                return Some(Ok(rule.qos_max.min(*granted)));
            }
            if rule.qos_max < *granted && rule.overlaps(client, filter) {
                *granted = rule.qos_max;
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Action, Effect, Rule};
    use crate::rules::Permissions;

    const FILTERS: [&str; 7] = ["#", "a/#", "a/+", "a/b", "%c/#", "x/%u", "b/#"];
    const TOPICS: [&str; 6] = ["a", "a/b", "c1/x", "x/ann", "b/c/d", "z"];

    /// Lists of rules that a number names, so that all mixtures come.
    fn lists(mut number: usize) -> Vec<Arc<RuleList>> {
        let mut next = |n: usize| {
            let value = number % n;
            number /= n;
            value
        };
        let count = next(3);
        let mut list = || {
            let rules: Vec<_> = (0..next(3))
                .map(|_| Rule {
                    effect: [Effect::Allow, Effect::Deny][next(2)],
                    action: [Action::Publish, Action::Subscribe, Action::All][next(3)],
                    filter: FILTERS[next(FILTERS.len())].into(),
                    retain: next(2) == 0,
                    qos_max: u8::try_from(next(3)).unwrap(),
                })
                .collect();
            Arc::new(RuleList::compile(&rules).unwrap())
        };
        (0..=count).map(|_| list()).collect()
    }

    #[test]
    fn an_explanation_agrees_with_the_decision() {
        let client = ClientIdentity { user: Some("ann"), id: "c1" };
        let (mut step, mut decided) = (1_usize, 0);
        for number in 0..3_000 {
            // Far apart, so that all places of the number vary.
            step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number);
            let lists = lists(step);
            let permissions = Permissions::new(lists.clone());
            for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                for topic in TOPICS {
                    for retain in [false, true] {
                        let explained =
                            explain(&lists, client, ExplainedRequest::Publish { topic, retain, qos });
                        let real = permissions.publish(client, topic, retain, qos);
                        assert_eq!(explained.outcome.map(drop), real, "{lists:?} {topic}");
                        decided += usize::from(explained.by.is_some());
                    }
                }
                for filter in ["#", "a/#", "a/+", "a/b", "c1/#", "x/ann"] {
                    let explained = explain(&lists, client, ExplainedRequest::Subscribe { filter, qos });
                    assert_eq!(
                        explained.outcome,
                        permissions.subscribe(client, filter, qos),
                        "{lists:?} {filter}"
                    );
                }
            }
        }
        assert!(decided > 10_000, "{decided}");
    }

    #[test]
    fn the_position_counts_all_rules_of_the_list() {
        let compile = |rules: &[Rule]| Arc::new(RuleList::compile(rules).unwrap());
        let own = compile(&[Rule::new(Effect::Allow, Action::Subscribe, "a/#")]);
        let broker = compile(&[
            Rule::new(Effect::Allow, Action::Subscribe, "#"),
            Rule::new(Effect::Deny, Action::Publish, "a/#"),
        ]);
        let client = ClientIdentity { user: None, id: "c" };
        let request = ExplainedRequest::Publish { topic: "a/b", retain: false, qos: QoS::AtMostOnce };
        let explained = explain(&[own, broker], client, request);
        assert_eq!(explained, Explanation { outcome: Err(RuleRefusal::Topic), by: Some((1, 1)) });
    }
}
