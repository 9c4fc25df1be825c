//! Matches topic filters (MQTT 5.0, 4.7). Written anew, so that the broker's own matching does not
//! judge itself.

#[must_use]
pub fn matches(filter: &str, topic: &str) -> bool {
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        match (wanted, levels.next()) {
            // "a/#" matches "a" too.
            ("#", _) => return true,
            (_, None) => return false,
            (wanted, Some(level)) if wanted != "+" && wanted != level => return false,
            _ => {}
        }
    }
    levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn filters_match_as_the_standard_says() {
        let yes =
            [("a/b", "a/b"), ("a/+", "a/b"), ("+/+", "/b"), ("#", "a/b"), ("a/#", "a"), ("a/#", "a/b/c")];
        let no = [("a/b", "a"), ("a", "a/b"), ("a/+", "a"), ("a/+", "a/b/c"), ("+", "/a"), ("b/#", "a/b")];
        for (filter, topic) in yes {
            assert!(matches(filter, topic), "{filter} {topic}");
        }
        for (filter, topic) in no {
            assert!(!matches(filter, topic), "{filter} {topic}");
        }
    }
}
