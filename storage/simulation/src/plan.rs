//! What is simulated: brokers, clients, topics and filters, few enough that they meet all the time; and the faults that are planted.

use std::str::FromStr;

/// Brokers.
pub(crate) const BROKERS: [&str; 2] = ["red", "blue"];
/// Clients of each broker.
pub(crate) const CLIENTS: [&str; 5] = ["ann", "ben", "cat", "dan", "eve"];
/// Topics that are published to.
pub(crate) const TOPICS: [&str; 6] = ["a/0", "a/1", "a/2", "b/0", "b/1", "b/2"];
/// Filters that clients subscribe to and leave.
pub(crate) const FILTERS: [&str; 7] = ["a/0", "a/1", "b/1", "a/+", "+/2", "b/#", "#"];
/// Filters whose streams are kept short, whoever has not read them.
pub(crate) const LIMITED: [&str; 2] = ["a/+", "b/1"];
/// Shared subscriptions; a session that stays subscribes to each.
pub(crate) const GROUPS: [&str; 2] = ["$share/g/a/#", "$share/h/b/1"];
/// The session that sees all messages of its broker, and the one that holds the groups.
pub(crate) const AUDIT: &str = "audit";
/// See [`AUDIT`].
pub(crate) const KEEPER: &str = "keeper";
/// Who has these two.
pub(crate) const HOLDER: &str = "holder";

/// For so long a pod is alive after its last word, in milliseconds.
pub(crate) const LEASE_MS: u64 = 5_000;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// For so long pods work, in seconds of their host.
    pub seconds: u64,
    /// Pods of one instance.
    pub pods: u64,
    /// What is done wrong.
    pub plant: Option<Plant>,
}

/// A fault that is planted, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A publish believes the filters that its pod has in memory.
    Index,
    /// A pod writes for a session that another has taken.
    Fence,
    /// What is not known to be committed is done again.
    Marks,
    /// A stream is trimmed to a cursor though others read it.
    Trim,
    /// Messages of a group are handed out without a note of it.
    Claims,
    /// A dead pod's wills are published in another transaction than the one that takes them.
    Wills,
}

impl FromStr for Plant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "index" => Self::Index,
            "fence" => Self::Fence,
            "marks" => Self::Marks,
            "trim" => Self::Trim,
            "claims" => Self::Claims,
            "wills" => Self::Wills,
            _ => return Err(format!("there is no fault {name:?} to plant")),
        })
    }
}

/// Whether a filter, without a group, matches a topic.
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(wanted), Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_in_mqtt() {
        for (filter, topic, expected) in [
            ("#", "a/0", true),
            ("a/#", "a", true),
            ("a/+", "a/1", true),
            ("+/2", "b/2", true),
            ("+/2", "b/1", false),
            ("a/+", "a", false),
            ("a", "a/1", false),
            ("a/1", "a/1", true),
        ] {
            assert_eq!(matches(filter, topic), expected, "{filter} {topic}");
        }
    }
}
