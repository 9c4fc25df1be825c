//! The look-up of the retained messages of one subscription, node by node.

use std::collections::HashSet;
use std::sync::Arc;

use millrace_mqtt::QoS;
use millrace_router::{TreeSnapshot, TreeStep, Walk};
use millrace_session::{Delivery, Message, OutboxEntry};
use smallvec::SmallVec;

use crate::broker::Broker;
use crate::clock::Millis;
use crate::jobs::replay::Replay;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupTree {
    OfBroker,
    Sys,
    /// The messages that the store has read for this replay.
    Own,
}

pub(in crate::core) struct Lookup {
    pub(super) tree: LookupTree,
    walk: Walk<Arc<Message>>,
    pub(super) found: Option<Arc<Message>>,
    qos: QoS,
    identifier: u32,
    left_out: u64,
    /// Set when the replay continues in a session from the store: only QoS 1 and 2 messages are due, and not on these topics.
    had: Option<Arc<Topics>>,
}

pub(in crate::core) type Topics = HashSet<Arc<str>, foldhash::fast::RandomState>;

impl Lookup {
    /// One look-up among the messages that clients retain (below `$SYS/` the states of bridges), and for `$SYS/` filters a second one among
    /// the server's own topics.
    pub(in crate::core) fn all(replay: &Replay, broker: &Broker) -> impl Iterator<Item = Self> {
        let of_server = replay
            .filter
            .starts_with("$SYS/")
            .then(|| Self::new(replay, LookupTree::Sys, broker.sys.snapshot()));
        let tree = if replay.pages.has_filters() { LookupTree::Own } else { LookupTree::OfBroker };
        let before = replay.before.filter(|before| *before > 0);
        let retained = match tree {
            LookupTree::Own => replay.retained.clone(),
            _ => before.map(|_| broker.retained.snapshot()),
        };
        let of_clients = retained.map(|retained| {
            let mut lookup = Self::new(replay, tree, retained);
            before.into_iter().for_each(|before| lookup.limit(before));
            lookup
        });
        of_clients.into_iter().chain(of_server)
    }

    /// Whether [`Lookup::all`] gives any, unless the retained messages change.
    pub(super) fn may_find(replay: &Replay) -> bool {
        replay.filter.starts_with("$SYS/")
            || replay.before.is_some_and(|before| before > 0)
            || replay.pages.has_filters() && replay.retained.is_some()
    }

    fn new(replay: &Replay, tree: LookupTree, retained: Arc<TreeSnapshot<Arc<Message>>>) -> Self {
        let Replay { qos, identifier, left_out, .. } = *replay;
        let walk = Walk::new(retained, &replay.filter);
        Self { tree, walk, found: None, qos, identifier, left_out, had: None }
    }

    pub(in crate::core) fn goes_on_without(self, had: &Arc<Topics>) -> Self {
        Self { had: Some(had.clone()), ..self }
    }

    pub(super) fn step(&mut self, broker: &Broker) -> TreeStep<Arc<Message>> {
        if self.walk.is_suspended() {
            let tree = if self.tree == LookupTree::Sys { &broker.sys } else { &broker.retained };
            self.walk.resume(tree.snapshot());
        }
        match self.found.take().map_or_else(|| self.walk.step(), TreeStep::Value) {
            TreeStep::Value(message) if !self.is_due(&message) => TreeStep::Nothing,
            step => step,
        }
    }

    fn is_due(&self, message: &Message) -> bool {
        //= [MQTT-3.8.3-3] v5
        let is_left_out = self.left_out != 0 && message.publisher() == self.left_out;
        let is_had = self.had.as_ref().is_some_and(|had| {
            message.qos().min(self.qos) == QoS::AtMostOnce || had.contains(message.topic())
        });
        !is_left_out && !is_had
    }

    /// Leaves out messages that changed after the SUBSCRIBE, see [`Walk::limit`].
    pub(super) fn limit(&mut self, insertions: u64) {
        self.walk.limit(insertions);
    }

    /// Keeps no snapshot until the next step. A message that changes until then is left out, because its change is delivered live.
    pub(super) fn release(&mut self) {
        if self.tree != LookupTree::Own {
            self.walk.suspend();
        }
    }

    pub(super) fn delivery<'m>(&'m self, message: &'m Arc<Message>) -> Delivery<'m> {
        Delivery {
            message,
            qos: message.qos().min(self.qos),
            //= [MQTT-3.3.1-8] v5
            //= [MQTT-3.3.1-8] v3.1.1
            retain: true,
            replay: true,
            maybe_sent: false,
            shared: 0,
            identifiers: if self.identifier == 0 { &[] } else { std::slice::from_ref(&self.identifier) },
        }
    }
}

pub(super) fn unsent(lookup: &Lookup, message: Arc<Message>, now: Millis) -> Option<OutboxEntry> {
    let Delivery { qos, retain, replay, shared, identifiers, .. } = lookup.delivery(&message);
    let identifiers = SmallVec::from_slice(identifiers);
    let is_wanted = qos > QoS::AtMostOnce && !message.is_expired(now);
    is_wanted.then_some(OutboxEntry { message, qos, retain, replay, maybe_sent: false, shared, identifiers })
}
