//! Rules of several lists, against section 4.7 and the docs of this module taken literally.

use std::sync::Arc;

use millrace_mqtt::QoS;
use proptest::prelude::*;

use super::*;
use crate::model::{Action, Effect, Rule};

const QOS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
const BOB: ClientIdentity<'_> = ClientIdentity { user: Some("bob"), id: "c1" };

fn permissions(lists: &[&[Rule]]) -> Permissions {
    Permissions::new(lists.iter().map(|rules| Arc::new(RuleList::compile(rules).unwrap())))
}

fn allow(action: Action, filter: &str) -> Rule {
    Rule::new(Effect::Allow, action, filter)
}

fn deny(filter: &str) -> Rule {
    Rule::new(Effect::Deny, Action::All, filter)
}

#[test]
fn lists_are_read_in_order_and_the_first_rule_that_applies_decides() {
    let own = [allow(Action::Publish, "fleet/%c/up/#")];
    let group = [deny("fleet/+/up/secret"), allow(Action::Subscribe, "fleet/%c/down/#")];
    let broker = [allow(Action::All, "public/%u/#"), deny("#")];
    let permissions = permissions(&[&own, &group, &broker]);
    for (topic, allowed) in [
        ("fleet/c1/up/secret", true),
        ("fleet/c2/up/x", false),
        ("fleet/c1/down/x", false),
        ("public/bob/x", true),
        ("public/eve/x", false),
        ("$SYS/x", false),
    ] {
        assert_eq!(permissions.publish(BOB, topic, true, QOS[2]).is_ok(), allowed, "{topic}");
    }
    for (filter, allowed) in [
        ("fleet/c1/down/+", true),
        ("fleet/c1/up/secret", false),
        ("fleet/c1/up/x", false),
        ("public/#", false),
    ] {
        assert_eq!(permissions.subscribe(BOB, filter, QOS[1]).is_ok(), allowed, "{filter}");
    }
}

#[test]
fn without_any_rule_everything_is_allowed_and_with_one_nothing_else() {
    for none in [Permissions::default(), permissions(&[]), permissions(&[&[], &[]])] {
        assert!(none.is_everything());
        assert_eq!(none.publish(BOB, "$SYS/x", true, QOS[2]), Ok(()));
        assert_eq!(none.subscribe(BOB, "#", QOS[2]), Ok(QOS[2]));
    }
    let only_deny = permissions(&[&[], &[deny("x")]]);
    assert_eq!(only_deny.publish(BOB, "y", false, QOS[0]), Err(RuleRefusal::Topic));
    let only_publish = permissions(&[&[allow(Action::Publish, "#")]]);
    assert_eq!(only_publish.subscribe(BOB, "y", QOS[0]), Err(RuleRefusal::Topic));
}

#[test]
fn a_publish_is_refused_for_what_its_rule_leaves_out_and_no_later_rule_gives_it() {
    let first = Rule { retain: false, qos_max: 1, ..allow(Action::All, "a/+") };
    let permissions = permissions(&[&[first, allow(Action::All, "#")]]);
    assert_eq!(permissions.publish(BOB, "a/b", false, QOS[1]), Ok(()));
    assert_eq!(permissions.publish(BOB, "a/b", true, QOS[0]), Err(RuleRefusal::Retain));
    assert_eq!(permissions.publish(BOB, "a/b", false, QOS[2]), Err(RuleRefusal::QoS));
    assert_eq!(permissions.publish(BOB, "b", true, QOS[2]), Ok(()));
}

#[test]
fn a_subscription_is_granted_the_lowest_qos_of_the_rules_of_its_topics() {
    let rules = [(1, "a/b"), (0, "a/b/c"), (2, "a/#"), (0, "d")]
        .map(|(qos_max, filter)| Rule { qos_max, ..allow(Action::All, filter) });
    let permissions = permissions(&[&rules]);
    for (filter, asked, granted) in [
        ("a/b", 2, 1),
        ("a/b", 0, 0),
        ("a/x", 2, 2),
        ("a/+", 2, 1),
        ("a/#", 2, 0),
        ("a/b/c", 1, 0),
        ("d", 2, 0),
    ] {
        assert_eq!(permissions.subscribe(BOB, filter, QOS[asked]), Ok(QOS[granted]), "{filter} {asked}");
    }
}

#[test]
fn rules_that_are_wrong_are_none() {
    let wrong = RuleList::compile(&[allow(Action::All, "a"), allow(Action::All, "a/#/b")]).unwrap_err();
    assert_eq!(wrong[0].field, "rules[1].filter");
}

#[test]
fn an_answer_allocates_nothing() {
    let rules: Vec<Rule> = (0..50)
        .flat_map(|n| {
            [deny(&format!("x{n}/%c/+/#")), Rule { qos_max: 1, ..allow(Action::All, &format!("a/%u/{n}/+")) }]
        })
        .collect();
    let permissions = permissions(&[&rules, &[allow(Action::All, "#")]]);
    let used = allocation_counter::measure(|| {
        for topic in ["a/bob/49/x", "a/bob/0/x", "x1/c1/y/z", "none"] {
            let _ = std::hint::black_box(permissions.publish(BOB, topic, true, QOS[2]));
            let _ = std::hint::black_box(permissions.subscribe(BOB, topic, QOS[2]));
        }
        let _ = std::hint::black_box(permissions.subscribe(BOB, "a/+/#", QOS[2]));
    });
    assert_eq!(used.count_total, 0);
}

/// The rule that decides a topic, by the text of this module's docs.
fn naive(rules: &[Rule], action: Action, client: ClientIdentity<'_>, topic: &str) -> Option<Rule> {
    let is_odd = |value: &str| value.is_empty() || value.starts_with('$') || value.contains(['/', '+', '#']);
    let applies = |rule: &&Rule| {
        let (id, user) = (rule.filter.contains("%c"), rule.filter.contains("%u"));
        let name = client.user.unwrap_or_default();
        if user && client.user.is_none() {
            false
        } else if id && is_odd(client.id) || user && is_odd(name) {
            rule.effect == Effect::Deny
        } else {
            filter::matches(&rule.filter.replace("%c", client.id).replace("%u", name), topic)
        }
    };
    let acts = |rule: &&Rule| rule.action == Action::All || rule.action == action;
    rules.iter().filter(acts).find(applies).cloned()
}

fn client() -> impl Strategy<Value = ClientIdentity<'static>> {
    let name = || proptest::sample::select(vec!["c1", "bob", "c1", "bob", "a/b", "+", "$s", ""]);
    (proptest::option::weighted(0.8, name()), name()).prop_map(|(user, id)| ClientIdentity { user, id })
}

fn rule() -> impl Strategy<Value = Rule> {
    let level = || proptest::sample::select(vec!["a", "b", "%c", "%u", "x%c", "+", "$s", ""]);
    let filter = (proptest::collection::vec(level(), 1..4), any::<bool>())
        .prop_map(|(levels, hash)| levels.join("/") + if hash { "/#" } else { "" })
        .prop_filter("empty", |filter| !filter.is_empty());
    let filter = prop_oneof![6 => filter, 1 => Just("#".to_owned())];
    let effect = proptest::sample::select(vec![Effect::Allow, Effect::Deny]);
    let action = proptest::sample::select(vec![Action::Publish, Action::Subscribe, Action::All]);
    (effect, action, filter, any::<bool>(), 0..3u8).prop_map(|(effect, action, filter, retain, qos_max)| {
        Rule { effect, action, filter, retain, qos_max }
    })
}

proptest! {
    #[test]
    fn a_publish_is_decided_as_the_documentation_says(
        client in client(),
        lists in proptest::collection::vec(proptest::collection::vec(rule(), 0..5), 1..4),
        topics in proptest::collection::vec("(a|b|c1|bob|xc1|\\$s|z)(/(a|b|c1|bob|xc1|z|)){0,3}", 8),
        retain: bool,
        qos in 0..3usize,
    ) {
        let slices: Vec<&[Rule]> = lists.iter().map(Vec::as_slice).collect();
        let permissions = permissions(&slices);
        let all = lists.concat();
        for topic in topics {
            let expected = match naive(&all, Action::Publish, client, &topic) {
                _ if all.is_empty() => Ok(()),
                Some(rule) if rule.effect == Effect::Allow && retain && !rule.retain => Err(RuleRefusal::Retain),
                Some(rule) if rule.effect == Effect::Allow && qos > rule.qos_max.into() => Err(RuleRefusal::QoS),
                Some(rule) if rule.effect == Effect::Allow => Ok(()),
                _ => Err(RuleRefusal::Topic),
            };
            prop_assert_eq!(permissions.publish(client, &topic, retain, QOS[qos]), expected, "{}", topic);
        }
    }

    #[test]
    fn a_granted_subscription_covers_only_readable_topics(
        client in client(),
        rules in proptest::collection::vec(rule(), 1..7),
        subscribed in rule(),
        topics in proptest::collection::vec("(a|b|c1|bob|xc1|\\$s|z)(/(a|b|c1|bob|xc1|z|)){0,3}", 20),
    ) {
        let filter = subscribed.filter.replace("%c", "c1").replace("%u", "bob");
        if let Ok(granted) = permissions(&[&rules]).subscribe(client, &filter, QOS[2]) {
            for topic in topics.iter().filter(|topic| filter::matches(&filter, topic)) {
                let rule = naive(&rules, Action::Subscribe, client, topic);
                prop_assert!(
                    rule.as_ref().is_some_and(|rule| rule.effect == Effect::Allow && granted as u8 <= rule.qos_max),
                    "{} {} {:?}", filter, topic, rule
                );
            }
        }
    }

    /// And nothing is refused without need: one topic is decided as itself.
    #[test]
    fn a_subscription_to_a_topic_is_decided_as_the_topic(
        client in client(),
        rules in proptest::collection::vec(rule(), 1..7),
        topic in "(a|b|c1|bob|xc1|\\$s|z)(/(a|b|c1|bob|xc1|z|)){0,3}",
    ) {
        let rule = naive(&rules, Action::Subscribe, client, &topic).filter(|rule| rule.effect == Effect::Allow);
        let expected = rule.map(|rule| QOS[usize::from(rule.qos_max)]).ok_or(RuleRefusal::Topic);
        prop_assert_eq!(permissions(&[&rules]).subscribe(client, &topic, QOS[2]), expected);
    }
}
