//! Decisions of small files.

use std::sync::Arc;

use millrace_mqtt::QoS;

use super::*;
use crate::rules::{ClientIdentity, Permissions};

/// The rules of a file.
struct Rules(Permissions);

impl Rules {
    fn parse(text: &str) -> Result<Self, FileError> {
        Ok(Self(Permissions::new([Arc::new(parse(text)?)])))
    }

    fn allows_publish(&self, user: Option<&str>, id: &str, topic: &str) -> bool {
        self.0.publish(ClientIdentity { user, id }, topic, true, QoS::ExactlyOnce).is_ok()
    }

    fn allows_subscribe(&self, user: Option<&str>, id: &str, filter: &str) -> bool {
        self.0.subscribe(ClientIdentity { user, id }, filter, QoS::ExactlyOnce) == Ok(QoS::ExactlyOnce)
    }
}

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
fn a_file_says_whether_it_has_rules_for_one_user() {
    let names = |text| parse(text).unwrap().names_users();
    assert_eq!((names(EXAMPLE), names("allow all * %u\nallow all $anonymous a")), (true, false));
}

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
        assert!(rules.0.is_everything());
        assert!(rules.allows_publish(None, "c", "a") && rules.allows_subscribe(None, "c", "$SYS/#"));
    }
    let rules = Rules::parse("deny publish nobody x").unwrap();
    assert!(!rules.0.is_everything());
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
        let error = parse(text).unwrap_err();
        assert_eq!(error.line, line, "{text}");
        assert!(error.to_string().starts_with(&format!("line {line}: ")));
        assert!(error.what.contains(what), "{text}: {}", error.what);
    }
}
