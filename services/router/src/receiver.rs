//! Merges the matching subscriptions of one session into one receiver.

use millrace_mqtt::QoS;
use smallvec::SmallVec;

use crate::subscription::{Subscription, Target};

/// A session that gets one copy of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    pub target: Target,
    pub qos: QoS,
    pub no_local: bool,
    pub retain_as_published: bool,
    /// How many of the session's matching subscriptions are persistent.
    pub persistent_subscriptions: u16,
    /// Identifiers of all matching subscriptions; an identifier may repeat.
    pub identifiers: SmallVec<[u32; 1]>,
}

impl From<&Subscription> for Receiver {
    #[inline]
    fn from(subscription: &Subscription) -> Self {
        let mut identifiers = SmallVec::new();
        if subscription.identifier != 0 {
            identifiers.push(subscription.identifier);
        }
        Self {
            target: subscription.target,
            qos: subscription.qos,
            no_local: subscription.no_local,
            retain_as_published: subscription.retain_as_published,
            persistent_subscriptions: subscription.persistent.into(),
            identifiers,
        }
    }
}

impl Receiver {
    pub fn is_persistent(&self) -> bool {
        self.persistent_subscriptions > 0
    }

    /// Adds another matching subscription of the same session, because one copy serves all of them.
    //= [MQTT-3.3.4-2] v5
    //= [MQTT-3.3.4-3] v5
    //= [MQTT-3.3.4-4] v5
    //= [MQTT-3.3.5-1] v3.1.1
    pub(crate) fn merge(&mut self, other: &Subscription) {
        self.qos = self.qos.max(other.qos);
        // No Local applies to one subscription; another of the session may still want the message.
        self.no_local &= other.no_local;
        // The single copy carries one RETAIN flag. A cleared flag would be wrong for a subscription
        // with Retain As Published, while the others can ignore a set flag.
        self.retain_as_published |= other.retain_as_published;
        self.persistent_subscriptions = self.persistent_subscriptions.saturating_add(other.persistent.into());
        if other.identifier != 0 {
            self.identifiers.push(other.identifier);
        }
    }
}
