//! The stored record of a broker's limits, and their comparison with the ceiling of a plan.

use serde::{Deserialize, Serialize};

use super::invalid::{Checked, Findings};
use crate::limits::PACKET_BYTES_MIN;

/// Limits of a broker. The server's own limits always apply, and with `None` they alone do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Limits {
    pub broker: BrokerLimits,
    pub client: ClientLimits,
}

/// Limits of all clients of a broker together, in the whole region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct BrokerLimits {
    pub connections: Option<u64>,
    pub connects_per_s: Option<u64>,
    pub publishes_per_s: Option<u64>,
    /// Published bytes a second: topic, properties and payload.
    pub publish_bytes_per_s: Option<u64>,
    /// Filters in SUBSCRIBE and UNSUBSCRIBE a second. Over the rate, a packet waits and its client is not read.
    pub filters_per_s: Option<u64>,
    pub subscriptions: Option<u64>,
    pub queue_bytes: Option<u64>,
    pub retained_messages: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ClientLimits {
    pub connects_per_min: Option<u64>,
    pub publishes_per_s: Option<u64>,
    /// Bytes that the client publishes a second: topic, properties and payload.
    pub publish_bytes_per_s: Option<u64>,
    pub subscriptions: Option<u64>,
    pub queue_messages: Option<u64>,
    pub queue_bytes: Option<u64>,
    /// Longest time that a message waits for its session, seconds.
    pub queue_age_s: Option<u64>,
    /// Largest packet that the client may send, bytes.
    pub packet_bytes: Option<u64>,
}

macro_rules! pairs {
    ($one:expr, $other:expr, $of:ident: $($name:ident),+) => {
        [$((concat!(stringify!($of), ".", stringify!($name)), &mut $one.$of.$name, $other.$of.$name)),+]
    };
}

impl Limits {
    #[must_use]
    pub fn within(&self, ceiling: &Self) -> Self {
        let mut limits = self.clone();
        limits.each(ceiling, |_, limit, most| *limit = [*limit, most].into_iter().flatten().min());
        limits
    }

    /// The limits that differ from `before`; the other limits are `None`.
    #[must_use]
    pub fn changed_since(&self, before: &Self) -> Self {
        let mut changed = self.clone();
        changed.each(before, |_, limit, before| *limit = limit.filter(|limit| Some(*limit) != before));
        changed
    }

    pub fn check_within(&self, ceiling: &Self) -> Checked {
        let mut findings = Findings::default();
        self.clone().each(ceiling, |name, limit, most| {
            if let (Some(limit), Some(most)) = (*limit, most)
                && limit > most
            {
                findings.add(
                    format_args!("limits.{name}"),
                    format!("is above {most}, the most that the plan allows"),
                );
            }
        });
        findings.done()
    }

    fn each(&mut self, other: &Self, mut act: impl FnMut(&str, &mut Option<u64>, Option<u64>)) {
        let of_broker = pairs!(self, other, broker: connections, connects_per_s, publishes_per_s, publish_bytes_per_s,
            filters_per_s, subscriptions, queue_bytes, retained_messages);
        for (name, limit, most) in of_broker {
            act(name, limit, most);
        }
        let of_client = pairs!(self, other, client: connects_per_min, publishes_per_s, publish_bytes_per_s, subscriptions,
            queue_messages, queue_bytes, queue_age_s, packet_bytes);
        for (name, limit, most) in of_client {
            act(name, limit, most);
        }
    }

    pub fn validate(&self) -> Checked {
        let mut findings = Findings::default();
        findings.within("limits", |findings| self.check(findings));
        findings.done()
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        let Self { broker, client } = self;
        let rates = [
            ("broker.connects_per_s", broker.connects_per_s),
            ("broker.publishes_per_s", broker.publishes_per_s),
            ("broker.publish_bytes_per_s", broker.publish_bytes_per_s),
            ("broker.filters_per_s", broker.filters_per_s),
            ("client.connects_per_min", client.connects_per_min),
            ("client.publishes_per_s", client.publishes_per_s),
            ("client.publish_bytes_per_s", client.publish_bytes_per_s),
        ];
        for (field, rate) in rates {
            findings.require(rate != Some(0), field, "is 0: a rate is at least 1");
        }
        let packet = client.packet_bytes.unwrap_or(PACKET_BYTES_MIN);
        if packet < PACKET_BYTES_MIN {
            findings.add(
                "client.packet_bytes",
                format!("is less than {PACKET_BYTES_MIN}, which a SUBSCRIBE needs"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_stay_below_their_ceiling() {
        let of = |connections, queue_age_s| Limits {
            broker: BrokerLimits { connections, ..BrokerLimits::default() },
            client: ClientLimits { queue_age_s, ..ClientLimits::default() },
        };
        let ceiling = of(Some(10), None);
        for (limits, expected, is_within) in [
            (of(None, None), of(Some(10), None), true),
            (of(Some(5), Some(7)), of(Some(5), Some(7)), true),
            (of(Some(10), None), of(Some(10), None), true),
            (of(Some(11), None), of(Some(10), None), false),
        ] {
            assert_eq!(limits.within(&ceiling), expected);
            assert_eq!(limits.check_within(&ceiling).is_ok(), is_within, "{limits:?}");
        }
        let (old, new) = (of(Some(20), Some(7)), of(Some(20), Some(8)));
        assert_eq!(new.changed_since(&old), of(None, Some(8)));
        let all = serde_json::to_value(Limits::default()).unwrap();
        let count: usize =
            all.as_object().unwrap().values().map(|group| group.as_object().unwrap().len()).sum();
        let mut seen = 0;
        Limits::default().each(&Limits::default(), |_, _, _| seen += 1);
        assert_eq!(seen, count, "each limit has a ceiling");
    }
}
