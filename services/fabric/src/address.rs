//! Receivers of messages (a pod, a broker, a group), and their NATS subjects.

use std::fmt;

/// One run of a pod: after a restart it has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodId(pub u64);

impl PodId {
    #[must_use]
    pub fn random() -> Self {
        Self(fastrand::u64(1..))
    }
}

impl fmt::Display for PodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The receivers of a message; the sending pod is never among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum To {
    Broker(u64),
    /// One of the pods that joined this group of a broker; a batch goes to one pod as a whole.
    /// These batches have no numbers, so a loss goes unnoticed.
    Group {
        broker: u64,
        /// Unique within the broker.
        group: u64,
    },
    Pod(PodId),
    /// One pod, about a broker that it joined. Each broker has its own numbers and queue, so that
    /// no broker delays another.
    BrokerOnPod {
        pod: PodId,
        broker: u64,
    },
    Pods,
}

impl To {
    pub(crate) fn is_numbered(self) -> bool {
        !matches!(self, Self::Group { .. })
    }

    pub(crate) fn is_only(self, pod: PodId) -> bool {
        matches!(self, Self::Pod(to) | Self::BrokerOnPod { pod: to, .. } if to == pod)
    }

    pub(crate) fn broker(self) -> Option<u64> {
        match self {
            Self::Broker(broker) | Self::Group { broker, .. } | Self::BrokerOnPod { broker, .. } => {
                Some(broker)
            }
            Self::Pod(_) | Self::Pods => None,
        }
    }

    fn tail(self) -> String {
        match self {
            Self::Broker(broker) => format!("b.{broker}"),
            Self::Group { broker, group } => format!("g.{broker}.{group}"),
            Self::Pod(pod) => format!("p.{pod}"),
            Self::BrokerOnPod { pod, broker } => format!("p.{pod}.{broker}"),
            Self::Pods => "a".into(),
        }
    }
}

/// A subject to which the NATS server replies when a message has no listener.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    Probe(To, u64),
    /// The message has no listener on purpose: it measures the round-trip time.
    Nobody(u64),
}

/// The subjects of a region, which begin with `mr.<region>.`: `b.<broker>`, `g.<broker>.<group>`,
/// `p.<pod>`, `p.<pod>.<broker>` (one subscription covers all brokers), `a` (all pods), `c`
/// (control messages to all pods), `c.<pod>.a` (to one pod), `c.<pod>.e.…` (replies of the server),
/// `n` (nobody).
#[derive(Debug)]
pub(crate) struct Subjects {
    prefix: String,
    own: PodId,
}

impl Subjects {
    pub(crate) fn new(region: &str, own: PodId) -> Self {
        Self { prefix: format!("mr.{region}."), own }
    }

    pub(crate) fn own(&self) -> PodId {
        self.own
    }

    pub(crate) fn of(&self, to: To) -> String {
        format!("{}{}", self.prefix, to.tail())
    }

    pub(crate) fn control(&self) -> String {
        format!("{}c", self.prefix)
    }

    pub(crate) fn control_of(&self, pod: PodId) -> String {
        format!("{}c.{pod}.a", self.prefix)
    }

    pub(crate) fn own_brokers(&self) -> String {
        format!("{}.*", self.of(To::Pod(self.own)))
    }

    pub(crate) fn broker_of(&self, subject: &str) -> Option<To> {
        let (_, broker) = subject.rsplit_once('.')?;
        Some(To::BrokerOnPod { pod: self.own, broker: broker.parse().ok()? })
    }

    /// All control messages to this pod, and the server's replies.
    pub(crate) fn own_control(&self) -> String {
        format!("{}c.{}.>", self.prefix, self.own)
    }

    pub(crate) fn nobody(&self) -> String {
        format!("{}n", self.prefix)
    }

    /// All subjects, for the permissions of a NATS user.
    pub(crate) fn all(&self) -> String {
        format!("{}>", self.prefix)
    }

    /// The server replies to this subject when nobody listens.
    pub(crate) fn echo(&self, echo: &Echo) -> String {
        match echo {
            Echo::Probe(to, probe) => format!("{}c.{}.e.{probe}.{}", self.prefix, self.own, to.tail()),
            Echo::Nobody(number) => format!("{}c.{}.e.{number}", self.prefix, self.own),
        }
    }

    pub(crate) fn parse_echo(&self, subject: &str) -> Option<Echo> {
        let rest = subject.strip_prefix(&self.prefix)?.strip_prefix("c.")?;
        let (_, rest) = rest.split_once(".e.")?;
        let mut parts = rest.split('.');
        let number = parts.next()?.parse().ok()?;
        let to = match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => return Some(Echo::Nobody(number)),
            (Some("b"), Some(broker), None) => To::Broker(broker.parse().ok()?),
            (Some("g"), Some(broker), Some(group)) => {
                To::Group { broker: broker.parse().ok()?, group: group.parse().ok()? }
            }
            (Some("p"), Some(pod), broker) => {
                let pod = PodId(u64::from_str_radix(pod, 16).ok()?);
                match broker {
                    None => To::Pod(pod),
                    Some(broker) => To::BrokerOnPod { pod, broker: broker.parse().ok()? },
                }
            }
            (Some("a"), None, _) => To::Pods,
            _ => return None,
        };
        Some(Echo::Probe(to, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_short_and_readable() {
        let subjects = Subjects::new("eu-1", PodId(0xab));
        let of = |to| subjects.of(to);
        assert_eq!(of(To::Broker(42)), "mr.eu-1.b.42");
        assert_eq!(of(To::Group { broker: 42, group: 7 }), "mr.eu-1.g.42.7");
        assert_eq!(of(To::Pod(PodId(0xcd))), "mr.eu-1.p.00000000000000cd");
        let at = To::BrokerOnPod { pod: PodId(0xab), broker: 42 };
        assert_eq!(of(at), "mr.eu-1.p.00000000000000ab.42");
        assert_eq!(
            (subjects.own_brokers(), subjects.broker_of(&of(at))),
            (of(To::Pod(PodId(0xab))) + ".*", Some(at))
        );
        assert_eq!(of(To::Pods), "mr.eu-1.a");
    }

    #[test]
    fn an_echo_names_the_receiver_without_a_listener() {
        let subjects = Subjects::new("eu", PodId(1));
        let pod = PodId(u64::MAX);
        let at = To::BrokerOnPod { pod, broker: u64::MAX };
        for to in [To::Broker(42), To::Group { broker: 1, group: 2 }, To::Pod(pod), at, To::Pods] {
            let echo = Echo::Probe(to, 9);
            assert_eq!(subjects.parse_echo(&subjects.echo(&echo)), Some(echo));
        }
        assert_eq!(subjects.parse_echo(&subjects.echo(&Echo::Nobody(3))), Some(Echo::Nobody(3)));
        assert_eq!(subjects.parse_echo("mr.eu.c.0000000000000001.e.x"), None);
        assert_eq!(subjects.parse_echo("mr.eu.b.1"), None);
    }
}
