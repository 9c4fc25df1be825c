//! Merges the matching subscriptions of one session into one receiver.

use millrace_mqtt::QoS;
use smallvec::SmallVec;

use crate::subscription::{Subscription, Target};

/// A session that gets one copy of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    pub target: Target,
    pub qos: QoS,
    pub retain_as_published: bool,
    /// The same of the subscriptions without No Local, which alone take messages of the session's own client. `None`: all
    /// matching subscriptions have No Local.
    pub own_qos: Option<QoS>,
    own_retain_as_published: bool,
    /// How many identifiers are of subscriptions without No Local; they come first.
    own_identifiers: u16,
    /// How many of the session's matching subscriptions are persistent.
    pub persistent_subscriptions: u16,
    /// Identifiers of all matching subscriptions; an identifier may repeat.
    pub identifiers: SmallVec<[u32; 1]>,
}

// The receivers of a topic are cached.
const _: () = assert!(size_of::<Receiver>() <= 48);

/// Options of the one copy that a session gets of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOptions<'r> {
    pub qos: QoS,
    pub retain_as_published: bool,
    pub identifiers: &'r [u32],
}

impl From<&Subscription> for Receiver {
    #[inline]
    fn from(subscription: &Subscription) -> Self {
        let mut identifiers = SmallVec::new();
        if subscription.identifier != 0 {
            identifiers.push(subscription.identifier);
        }
        let takes_own = !subscription.no_local;
        Self {
            target: subscription.target,
            qos: subscription.qos,
            retain_as_published: subscription.retain_as_published,
            own_qos: takes_own.then_some(subscription.qos),
            own_retain_as_published: takes_own && subscription.retain_as_published,
            own_identifiers: (takes_own && subscription.identifier != 0).into(),
            persistent_subscriptions: subscription.persistent.into(),
            identifiers,
        }
    }
}

impl Receiver {
    pub fn is_persistent(&self) -> bool {
        self.persistent_subscriptions > 0
    }

    /// Whether the session gets a copy, see [`Receiver::copy_options`].
    #[inline]
    pub fn takes(&self, is_own: bool) -> bool {
        !is_own || self.own_qos.is_some()
    }

    /// The options of a copy for this session; `is_own`: its client has published the message. `None`: it gets no copy.
    #[inline]
    //= [MQTT-3.8.3-3] v5
    pub fn copy_options(&self, is_own: bool) -> Option<CopyOptions<'_>> {
        if !is_own {
            let Self { qos, retain_as_published, ref identifiers, .. } = *self;
            return Some(CopyOptions { qos, retain_as_published, identifiers });
        }
        let (qos, retain_as_published) = (self.own_qos?, self.own_retain_as_published);
        let identifiers = &self.identifiers[..usize::from(self.own_identifiers)];
        Some(CopyOptions { qos, retain_as_published, identifiers })
    }

    /// Adds another matching subscription of the same session, because one copy serves all of them.
    //= [MQTT-3.3.4-2] v5
    //= [MQTT-3.3.4-3] v5
    //= [MQTT-3.3.4-4] v5
    //= [MQTT-3.3.5-1] v3.1.1
    pub(crate) fn merge(&mut self, other: &Subscription) {
        self.qos = self.qos.max(other.qos);
        // The single copy carries one RETAIN flag. A cleared flag would be wrong for a subscription
        // with Retain As Published, while the others can ignore a set flag.
        self.retain_as_published |= other.retain_as_published;
        self.persistent_subscriptions = self.persistent_subscriptions.saturating_add(other.persistent.into());
        if other.identifier != 0 {
            self.identifiers.push(other.identifier);
        }
        // No Local applies to one subscription; another of the session may still want the message.
        if !other.no_local {
            self.own_qos = self.own_qos.max(Some(other.qos));
            self.own_retain_as_published |= other.retain_as_published;
            if other.identifier != 0 {
                let last = self.identifiers.len() - 1;
                self.identifiers.swap(usize::from(self.own_identifiers).min(last), last);
                self.own_identifiers = self.own_identifiers.saturating_add(1);
            }
        }
    }
}
