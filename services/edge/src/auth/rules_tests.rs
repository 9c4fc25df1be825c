//! Decisions of small files, and what a subscription promises.

use proptest::prelude::*;

use super::*;

const EXAMPLE: &str = "\
# what  action     user        topic filter
allow   all        admin       #
deny    all        *           private/#

allow   publish    *           devices/%c/up/#
allow   subscribe  *           devices/%c/down/#
allow   subscribe  *           users/%u/a b/+
allow   subscribe  $anonymous  public/#\r
";

#[test]
fn the_first_rule_that_applies_decides_and_otherwise_the_answer_is_no() {
    let rules = Rules::parse(EXAMPLE).unwrap();
    for (user, client_id, topic, allowed) in [
        (Some("admin"), "x", "private/x", true),
        (Some("admin"), "x", "$SYS/x", false),
        (Some("bob"), "d1", "private/x", false),
        (Some("bob"), "d1", "devices/d1/up", true),
        (Some("bob"), "d1", "devices/d1/up/x", true),
        (Some("bob"), "d1", "devices/d2/up", false),
        (None, "d1", "devices/d1/up", true),
        (Some("bob"), "d1", "devices/d1/down", false),
        (Some("bob"), "+", "devices/+/up", false),
        (Some("bob"), "a/up", "devices/a/up/up", false),
        (Some("bob"), "", "devices//up", false),
        (Some("*"), "x", "private/x", false),
        (Some("$anonymous"), "d1", "public/x", false),
    ] {
        assert_eq!(rules.allows_publish(user, client_id, topic), allowed, "{user:?} {client_id} {topic}");
    }
    for (user, client_id, filter, allowed) in [
        (Some("admin"), "x", "#", true),
        (Some("admin"), "x", "$SYS/#", false),
        (Some("bob"), "d1", "#", false),
        (Some("bob"), "d1", "devices/d1/down/+", true),
        (Some("bob"), "d1", "devices/+/down", false),
        (Some("bob"), "+", "devices/+/down", false),
        (Some("bob"), "d1", "users/bob/a b/c", true),
        (Some("bob"), "d1", "users/eve/a b/c", false),
        (None, "d1", "users//a b/c", false),
        (None, "d1", "public/#", true),
        (Some("bob"), "d1", "public/#", false),
        (Some("$anonymous"), "d1", "public/#", false),
    ] {
        assert_eq!(rules.allows_subscribe(user, client_id, filter), allowed, "{user:?} {client_id} {filter}");
    }
}

#[test]
fn a_file_without_rules_allows_everything() {
    for text in ["", "\n \n# allow all * #\n"] {
        let rules = Rules::parse(text).unwrap();
        assert!(rules.is_empty());
        assert!(rules.allows_publish(None, "c", "a") && rules.allows_subscribe(None, "c", "$SYS/#"));
    }
    let rules = Rules::parse("deny publish nobody x").unwrap();
    assert!(!rules.is_empty());
    assert!(!rules.allows_publish(Some("bob"), "c", "a") && !rules.allows_subscribe(Some("bob"), "c", "a"));
}

#[test]
fn nobody_reads_around_a_deny_with_a_wider_filter() {
    let rules = Rules::parse("deny subscribe * private/#\nallow subscribe * #").unwrap();
    for (filter, allowed) in [
        ("private/x", false),
        ("private", false),
        ("#", false),
        ("+/x", false),
        ("+", false),
        ("public/#", true),
    ] {
        assert_eq!(rules.allows_subscribe(None, "c", filter), allowed, "{filter}");
    }
}

#[test]
fn a_client_id_cannot_reach_other_topics_nor_slip_through_a_deny() {
    let allow = Rules::parse("allow all * %c/#").unwrap();
    let deny = Rules::parse("deny all * private/%c\nallow all * #").unwrap();
    for client_id in ["a/b", "+", "#", "a+", "$SYS", ""] {
        let topic = format!("{client_id}/x");
        assert!(!allow.allows_publish(None, client_id, &topic), "{client_id}");
        assert!(!allow.allows_subscribe(None, client_id, &topic), "{client_id}");
        assert!(!deny.allows_publish(None, client_id, "private/a/b"), "{client_id}");
    }
    assert!(allow.allows_publish(None, "c", "c/x"));
    assert!(!deny.allows_publish(None, "c", "private/c"));
    assert!(deny.allows_publish(None, "c", "private/d"));
}

#[test]
fn a_wrong_line_is_named_with_what_to_do() {
    for (text, line, what) in [
        ("permit all * #", 1, "starts with \"allow\" or \"deny\""),
        ("# x\n\nallow\n", 3, "the action is"),
        ("allow read * #", 1, "not \"read\""),
        ("allow all", 1, "no user"),
        ("allow all *", 1, "no topic filter"),
        ("allow all * a/#/b", 1, "last level"),
        ("allow all * a#", 1, "whole levels"),
        ("allow all * a/+b", 1, "whole levels"),
        ("allow all * #/#", 1, "last level"),
        ("allow all * a/%c+/b", 1, "whole levels"),
        ("allow all * $share/g/a", 1, "without $share"),
        ("allow all * a\0", 1, "U+0000"),
    ] {
        let error = Rules::parse(text).unwrap_err();
        assert_eq!(error.line, line, "{text}");
        assert!(error.to_string().starts_with(&format!("line {line}: ")));
        assert!(error.what.contains(what), "{text}: {}", error.what);
    }
}

fn level() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec!["a", "b", "%c", "+", "$s"])
}

fn filter() -> impl Strategy<Value = String> {
    (proptest::collection::vec(level(), 1..3), any::<bool>()).prop_map(|(levels, hash)| {
        let filter = levels.join("/");
        if hash { format!("{filter}/#") } else { filter }
    })
}

proptest! {
    /// What makes it right to look at the subscription and not at the messages.
    #[test]
    fn who_may_subscribe_may_read_every_topic_of_it(
        rules in proptest::collection::vec((any::<bool>(), prop_oneof![4 => filter(), 1 => Just("#".to_owned())]), 1..6),
        subscribed in prop_oneof![filter(), Just("#".to_owned())],
        client_id in proptest::sample::select(vec!["a", "c", "$s", "a/b"]),
        topics in proptest::collection::vec(proptest::collection::vec("(a|b|c|z|\\$s)", 1..4), 20),
    ) {
        let text: String = rules
            .iter()
            .map(|(allow, filter)| format!("{} all * {filter}\n", if *allow { "allow" } else { "deny" }))
            .collect();
        let rules = Rules::parse(&text).unwrap();
        let subscribed = subscribed.replace("%c", "c");
        if rules.allows_subscribe(None, client_id, &subscribed) {
            for topic in topics.iter().map(|levels| levels.join("/")) {
                if covers(&subscribed, &topic, Values { client_id: "", user: "" }) {
                    prop_assert!(rules.allows_publish(None, client_id, &topic), "{}{} {}", text, subscribed, topic);
                }
            }
        }
    }
}
