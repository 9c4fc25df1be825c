//! Compares the topic filter of an access rule with a client's filter or topic. [`covers`]: the
//! rule matches every topic that the client's filter matches; [`overlaps`]: some topic matches
//! both.
//!
//! The rule may contain the placeholders `%c` (client id) and `%u` (user name), which are compared
//! with their values in place, without allocation. Both filters must be valid, and the client's
//! filter must not have its `$share/name/`.

/// A value that the rule uses must not contain `/`, `+` or `#`; `Compiled::reach` decides those
/// rules itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'a> {
    pub(super) client_id: &'a str,
    pub(super) user: &'a str,
}

pub(super) fn covers(rule: &str, filter: &str, values: Values<'_>) -> bool {
    if is_disjoint_by_dollar(rule, filter) {
        return false;
    }
    let mut levels = without_empty_topic(filter).split('/');
    for level in rule.split('/') {
        match (level, levels.next()) {
            ("#", _) => return true,
            (_, None | Some("#")) => return false,
            ("+", Some(_)) => {}
            (level, Some(other)) if is_same_level(level, other, values) => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

pub(super) fn overlaps(rule: &str, filter: &str, values: Values<'_>) -> bool {
    if is_disjoint_by_dollar(rule, filter) {
        return false;
    }
    let mut rule_levels = without_empty_topic(rule).split('/');
    let mut filter_levels = without_empty_topic(filter).split('/');
    loop {
        match (rule_levels.next(), filter_levels.next()) {
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (Some("+"), Some(_)) | (Some(_), Some("+")) => {}
            (Some(level), Some(other)) if is_same_level(level, other, values) => {}
            _ => return false,
        }
    }
}

/// Returns an equivalent filter with `+` for a level that `#` cannot skip here, because no topic is
/// empty.
fn without_empty_topic(filter: &str) -> &str {
    match filter {
        "#" => "+/#",
        "/#" => "/+/#",
        _ => filter,
    }
}

/// True when one filter begins with a wildcard and the other with `$`: a wildcard never matches a
/// topic that begins with `$`.
fn is_disjoint_by_dollar(a: &str, b: &str) -> bool {
    //= [MQTT-4.7.2-1] v5 v3.1.1
    let (wild, dollar) = (|f: &str| f.starts_with(['+', '#']), |f: &str| f.starts_with('$'));
    wild(a) && dollar(b) || dollar(a) && wild(b)
}

fn is_same_level(mut level: &str, mut other: &str, values: Values<'_>) -> bool {
    while let Some((literal, after)) = level.split_once('%') {
        let (value, after) = match after.as_bytes().first() {
            Some(b'c') => (values.client_id, &after[1..]),
            Some(b'u') => (values.user, &after[1..]),
            _ => ("%", after),
        };
        let Some(rest) = other.strip_prefix(literal).and_then(|rest| rest.strip_prefix(value)) else {
            return false;
        };
        (level, other) = (after, rest);
    }
    level == other
}

#[cfg(test)]
pub(super) fn matches(filter: &str, topic: &str) -> bool {
    fn from(filter: &[&str], topic: &[&str]) -> bool {
        match (filter, topic) {
            (["#"], _) | ([], []) => true,
            (["+", filter @ ..], [_, topic @ ..]) => from(filter, topic),
            ([a, filter @ ..], [b, topic @ ..]) => a == b && from(filter, topic),
            _ => false,
        }
    }
    fn levels(text: &str) -> Vec<&str> {
        text.split('/').collect()
    }
    !(topic.starts_with('$') && filter.starts_with(['+', '#'])) && from(&levels(filter), &levels(topic))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOB: Values<'_> = Values { client_id: "c1", user: "bob" };

    /// All topics of up to four levels; the filters below have up to three, so a level is left for
    /// `#`. The level `z` is in no filter: only a wildcard can match it.
    fn topics() -> Vec<String> {
        let mut all: Vec<String> = ["a", "b", "z", "", "$a"].map(str::to_owned).into();
        let mut longest = all.clone();
        for _ in 0..3 {
            longest = longest
                .iter()
                .flat_map(|t| ["a", "b", "z", ""].map(|level| format!("{t}/{level}")))
                .collect();
            all.extend_from_slice(&longest);
        }
        all.retain(|t| !t.is_empty());
        all
    }

    fn filters() -> Vec<String> {
        let mut all = vec!["#".to_owned()];
        let mut longest: Vec<String> = ["a", "b", "", "+", "$a"].map(str::to_owned).into();
        for _ in 0..3 {
            all.extend(longest.iter().filter(|f| !f.is_empty()).cloned());
            all.extend(longest.iter().map(|f| format!("{f}/#")));
            longest = longest
                .iter()
                .flat_map(|f| ["a", "b", "", "+"].map(|level| format!("{f}/{level}")))
                .collect();
        }
        all
    }

    #[test]
    //= [MQTT-4.7.2-1] v5 v3.1.1
    fn cover_and_overlap_of_filters() {
        // (rule, filter, covers, overlaps)
        for (rule, filter, cover, overlap) in [
            ("a/#", "a/+", true, true),
            ("a/#", "a/b/#", true, true),
            ("a/#", "a", true, true),
            ("a/#", "a/#", true, true),
            ("a/#", "#", false, true),
            ("a/#", "ab", false, false),
            ("a/#", "+", false, true),
            ("a/+", "a/#", false, true),
            ("a/+", "a", false, false),
            ("a/+/#", "a/#", false, true),
            ("+/x", "a/x", true, true),
            ("+/x", "+/x", true, true),
            ("+/x", "#", false, true),
            ("+/x", "a/+", false, true),
            ("+/#", "#", true, true),
            ("/+/#", "/#", true, true),
            ("+", "/#", false, false),
            ("#", "+/#", true, true),
            ("#", "#", true, true),
            ("#", "$SYS/#", false, false),
            ("+/a", "$SYS/a", false, false),
            ("$SYS/#", "#", false, false),
            ("$SYS/#", "$SYS/a", true, true),
            ("a/%c/x", "a/c1/x", true, true),
            ("a/%c/x", "a/c2/x", false, false),
            ("a/%c/x", "a/+/x", false, true),
            ("a/%c/#", "a/c1", true, true),
            ("x-%c-%u%", "x-c1-bob%", true, true),
            ("x-%c-%u%", "x-c1-bob", false, false),
            ("100%", "100%", true, true),
            ("%d", "%d", true, true),
        ] {
            assert_eq!(covers(rule, filter, BOB), cover, "{rule} covers {filter}");
            assert_eq!(overlaps(rule, filter, BOB), overlap, "{rule} overlaps {filter}");
        }
    }

    #[test]
    fn a_level_of_many_placeholders_takes_no_stack() {
        let (level, values) = ("%".repeat(65_000), "%c".repeat(30_000));
        assert!(covers(&level, &level, BOB) && overlaps(&level, &level, BOB));
        assert!(covers(&values, &"c1".repeat(30_000), BOB) && !covers(&values, &"c1".repeat(29_999), BOB));
    }

    #[test]
    fn every_pair_of_small_filters_agrees_with_their_topics() {
        let (topics, filters) = (topics(), filters());
        let sets: Vec<Vec<bool>> =
            filters.iter().map(|f| topics.iter().map(|t| matches(f, t)).collect()).collect();
        for (rule, ours) in filters.iter().zip(&sets) {
            for (filter, theirs) in filters.iter().zip(&sets) {
                let both = || ours.iter().zip(theirs);
                let cover = both().all(|(ours, theirs)| *ours || !theirs);
                let overlap = both().any(|(ours, theirs)| *ours && *theirs);
                assert_eq!(covers(rule, filter, BOB), cover, "{rule} covers {filter}");
                assert_eq!(overlaps(rule, filter, BOB), overlap, "{rule} overlaps {filter}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_placeholder_is_as_good_as_its_value(
            rule in proptest::collection::vec("(a|b|%c|%u|x%c|%|\\+)", 1..4),
            filter in proptest::collection::vec("(a|b|c1|bob|xc1|%|\\+)", 1..4),
            hash: [bool; 2],
        ) {
            let end = |levels: &[String], hash| levels.join("/") + if hash { "/#" } else { "" };
            let (rule, filter) = (end(&rule, hash[0]), end(&filter, hash[1]));
            let plain = rule.replace("%c", "c1").replace("%u", "bob");
            prop_assert_eq!(covers(&rule, &filter, BOB), covers(&plain, &filter, BOB));
            prop_assert_eq!(overlaps(&rule, &filter, BOB), overlaps(&plain, &filter, BOB));
        }

        #[test]
        fn a_topic_is_covered_when_it_is_matched(
            filter in "((a|b|\\+|\\$a|)(/(a|b|\\+|)){0,6}(/#)?|#)",
            topic in "(a|b|\\$a|)(/(a|b|)){0,6}",
        ) {
            prop_assume!(!topic.is_empty() && !filter.is_empty());
            prop_assert_eq!(covers(&filter, &topic, BOB), matches(&filter, &topic));
            prop_assert_eq!(overlaps(&filter, &topic, BOB), matches(&filter, &topic));
        }
    }
}
