//! The simulated world, and the planted faults. Brokers, clients, topics and filters are so few
//! that they collide all the time.

use std::str::FromStr;

pub(crate) const BROKERS: [&str; 2] = ["red", "blue"];
pub(crate) const CLIENTS: [&str; 5] = ["ann", "ben", "cat", "dan", "eve"];
pub(crate) const TOPICS: [&str; 6] = ["a/0", "a/1", "a/2", "b/0", "b/1", "b/2"];
pub(crate) const FILTERS: [&str; 7] = ["a/0", "a/1", "b/1", "a/+", "+/2", "b/#", "#"];
/// Filters whose streams are kept short, even before everybody has read them.
pub(crate) const LIMITED: [&str; 2] = ["a/+", "b/1"];
/// Shared subscriptions; one session stays subscribed to each.
pub(crate) const GROUPS: [&str; 2] = ["$share/g/a/#", "$share/h/b/1"];
/// The client that subscribes to all messages of its broker.
pub(crate) const AUDIT: &str = "audit";
/// The client whose session stays in the groups, so that they live as long as the run.
pub(crate) const GROUP_MEMBER: &str = "keeper";
/// The pod that holds both sessions.
pub(crate) const HOLDER: &str = "holder";

/// Milliseconds after which a lease expires unless its pod renews it.
pub(crate) const LEASE_MS: u64 = 5_000;

/// How long a run takes, how many pods it has, and its planted fault.
#[derive(Clone, Copy, Debug)]
pub struct RunPlan {
    /// Simulated seconds.
    pub seconds: u64,
    /// Pods of one instance.
    pub pods: u64,
    /// `None` for a run that must pass.
    pub plant: Option<Plant>,
}

/// A planted fault, which the check must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A publish uses the filters in its pod's memory without bringing them up to date.
    Index,
    /// A pod writes for a session that another pod has taken, without checking its epoch.
    Fence,
    /// A transaction with an unknown result is repeated.
    MarkerNumbers,
    /// A stream is trimmed to a cursor although others read it.
    Trim,
    /// Messages of a group are delivered without a stored claim.
    Claims,
    /// A dead pod's wills are published in another transaction than the one that removes them.
    Wills,
}

impl FromStr for Plant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "index" => Self::Index,
            "fence" => Self::Fence,
            "marks" => Self::MarkerNumbers,
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
