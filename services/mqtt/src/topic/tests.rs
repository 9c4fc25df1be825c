use super::*;
use proptest::prelude::*;

#[test]
fn topic_names_have_a_character_and_no_wildcard() {
    //= [MQTT-4.7.0-1] v5
    //= [MQTT-4.7.1-1] v3.1.1
    //= [MQTT-4.7.3-1] v5 v3.1.1
    //= [MQTT-4.7.3-2] v5 v3.1.1
    for name in
        ["a", "/", "//", "a/b", "/finance", "ACCOUNTS", "Accounts payable", "$SYS/x", "\u{FEFF}", "é/日本"]
    {
        assert!(is_valid_name(name), "{name:?}");
    }
    for name in ["", "+", "#", "a/+", "a/#", "a+b", "sport#", "\0", "a\0b"] {
        assert!(!is_valid_name(name), "{name:?}");
    }
}

#[test]
fn a_wildcard_is_found_anywhere_in_a_name_of_any_length() {
    //= [MQTT-4.7.0-1] v5
    //= [MQTT-4.7.1-1] v3.1.1
    for len in 1..70 {
        assert!(is_valid_name(&"a".repeat(len)));
        for at in 0..len {
            for bad in ["+", "#", "\0"] {
                let name = format!("{}{bad}{}", "a".repeat(at), "a".repeat(len - at - 1));
                assert!(!is_valid_name(&name), "{name:?}");
            }
        }
    }
}

#[test]
fn names_and_filters_have_at_most_65535_bytes() {
    //= [MQTT-4.7.3-3] v5 v3.1.1
    let longest = "a".repeat(65_535);
    let longer = "a".repeat(65_536);
    assert!(is_valid_name(&longest) && Filter::parse(&longest).is_some());
    assert!(!is_valid_name(&longer) && Filter::parse(&longer).is_none());
}

#[test]
fn wildcards_of_a_filter_take_a_whole_level_and_hash_the_last() {
    //= [MQTT-4.7.1-1] v5
    //= [MQTT-4.7.1-2] v5 v3.1.1
    //= [MQTT-4.7.1-3] v3.1.1
    //= [MQTT-4.7.3-1] v5 v3.1.1
    //= [MQTT-4.7.3-2] v5 v3.1.1
    for (text, wildcard) in [
        ("a", false),
        ("/", false),
        ("a//b", false),
        ("$SYS/x", false),
        ("#", true),
        ("+", true),
        ("+/+", true),
        ("/+", true),
        ("sport/tennis/#", true),
        ("+/tennis/#", true),
        ("sport/+/player1", true),
        ("$SYS/#", true),
        ("$share", false),
        ("$shared/a/b", false),
    ] {
        let filter = Filter::parse(text);
        assert_eq!(filter, Some(Filter { share: None, filter: text }), "{text:?}");
        assert_eq!(filter.map(|f| f.has_wildcard()), Some(wildcard), "{text:?}");
    }
    for text in
        ["", "sport/tennis#", "sport/tennis/#/ranking", "#/a", "##", "sport+", "+a", "a/b+/c", "a\0", "+#"]
    {
        assert_eq!(Filter::parse(text), None, "{text:?}");
    }
}

#[test]
fn shared_subscriptions_have_a_share_name_and_a_filter() {
    //= [MQTT-4.8.2-1] v5
    //= [MQTT-4.8.2-2] v5
    for (text, share, filter) in [
        ("$share/group/a/b", "group", "a/b"),
        ("$share/g/#", "g", "#"),
        ("$share/g//", "g", "/"),
        ("$share/g/$SYS/+", "g", "$SYS/+"),
        ("$share/g/$share/h/x", "g", "$share/h/x"),
    ] {
        assert_eq!(Filter::parse(text), Some(Filter { share: Some(share), filter }), "{text:?}");
    }
    for text in [
        "$share/",
        "$share//a",
        "$share/g",
        "$share/g/",
        "$share/+/a",
        "$share/#/a",
        "$share/g+/a",
        "$share/g#/a",
        "$share/#",
        "$share/g/a#",
        "$share/g/#/a",
    ] {
        assert_eq!(Filter::parse(text), None, "{text:?}");
    }
}

#[test]
fn matching_follows_the_examples_of_the_standard() {
    //= [MQTT-4.7.1-1] v5
    //= [MQTT-4.7.1-2] v5 v3.1.1
    //= [MQTT-4.7.1-3] v3.1.1
    for (filter, topic, expected) in [
        ("sport/tennis/player1/#", "sport/tennis/player1", true),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", true),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
        ("sport/tennis/player1/#", "sport/tennis/player2", false),
        ("sport/#", "sport", true),
        ("sport/#", "sports", false),
        ("#", "a/b/c", true),
        ("#", "/", true),
        ("sport/tennis/+", "sport/tennis/player1", true),
        ("sport/tennis/+", "sport/tennis/player1/ranking", false),
        ("sport/+", "sport", false),
        ("sport/+", "sport/", true),
        ("+/+", "/finance", true),
        ("/+", "/finance", true),
        ("+", "/finance", false),
        ("+/tennis/#", "a/tennis", true),
        ("+/+/#", "a", false),
        ("a/b", "a/b/c", false),
        ("a/b/c", "a/b", false),
    ] {
        assert_eq!(matches(filter, topic), expected, "{filter:?} {topic:?}");
    }
}

#[test]
fn a_leading_wildcard_does_not_match_dollar_topics() {
    //= [MQTT-4.7.2-1] v5 v3.1.1
    for (filter, topic, expected) in [
        ("#", "$SYS/monitor", false),
        ("+/monitor", "$SYS/monitor", false),
        ("+", "$SYS", false),
        ("$SYS/#", "$SYS/monitor", true),
        ("$SYS/#", "$SYS", true),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", true),
        ("a/#", "a/$SYS", true),
        ("a/+", "a/$SYS", true),
    ] {
        assert_eq!(matches(filter, topic), expected, "{filter:?} {topic:?}");
    }
}

#[test]
fn topics_are_compared_as_they_are() {
    //= [MQTT-4.7.3-4] v5 v3.1.1
    for (filter, topic) in [
        ("a", "A"),
        ("a", "/a"),
        ("a/", "a"),
        ("a//b", "a/b"),
        (" a", "a"),
        // An é in one code point and in two.
        ("\u{E9}", "e\u{301}"),
        ("\u{FEFF}a", "a"),
    ] {
        assert!(!matches(filter, topic) && !matches(topic, filter), "{filter:?} {topic:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn a_topic_matches_each_filter_made_from_it(
        levels in prop::collection::vec(("[a-c$]{0,2}", any::<bool>()), 1..6),
        hash_at in prop::option::of(0_usize..6),
    ) {
        let topic = levels.iter().map(|(level, _)| level.as_str()).collect::<Vec<_>>().join("/");
        prop_assume!(!topic.is_empty());
        let mut parts: Vec<_> = levels.iter().map(|(level, plus)| if *plus { "+" } else { level }).collect();
        if let Some(at) = hash_at.filter(|&at| at <= parts.len()) {
            parts.truncate(at);
            parts.push("#");
        }
        let filter = parts.join("/");
        let parsed = Filter::parse(&filter);
        prop_assert!(parsed.is_some() || filter.starts_with("$share/"), "{:?}", filter);
        let hidden = topic.starts_with('$') && filter.starts_with(['+', '#']);
        prop_assert_eq!(matches(&filter, &topic), !hidden, "{:?} {:?}", filter, topic);
        if parsed.is_some_and(|f| !f.has_wildcard()) {
            prop_assert_eq!(&filter, &topic);
        }
    }

    #[test]
    fn any_text_is_judged_without_panic(text in any::<String>(), topic in any::<String>()) {
        let _ = (Filter::parse(&text), is_valid_name(&text), matches(&text, &topic));
    }
}
