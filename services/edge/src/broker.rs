//! One tenant's broker: what its clients share, whichever core they are on.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_router::{Matched, Receiver, Router, TopicTree};
use millrace_session::Message;

use crate::metrics::BrokerCounters;

/// The broker of a process that serves one machine.
pub(crate) const DEFAULT_BROKER: &str = "default";

/// One tenant's broker. Sessions and connections hold it; nothing of it is reachable from another broker.
pub(crate) struct Broker {
    /// Its number in the store.
    pub(crate) id: u64,
    pub(crate) name: Box<str>,
    pub(crate) router: Router,
    /// Retained messages by topic. In memory: the store takes this over.
    pub(crate) retained: TopicTree<Arc<Message>>,
    /// The `$SYS` topics: read like retained messages, but not the tenant's and not in its limit.
    pub(crate) sys: TopicTree<Arc<Message>>,
    /// Held while a retained message is set and its receivers are looked up, and while a subscription is made and
    /// its retained messages are looked up: a new subscription gets a message one way or the other, never both, never
    /// neither (P6).
    retained_gate: Mutex<()>,
    /// One set a core.
    pub(crate) counters: Box<[BrokerCounters]>,
}

impl Broker {
    pub(crate) fn new(id: u64, name: &str, cores: usize) -> Self {
        Self {
            id,
            name: name.into(),
            router: Router::new(),
            retained: TopicTree::new(),
            sys: TopicTree::new(),
            retained_gate: Mutex::default(),
            counters: (0..cores).map(|_| BrokerCounters::default()).collect(),
        }
    }

    pub(crate) fn retained_gate(&self) -> MutexGuard<'_, ()> {
        self.retained_gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who gets what is published to one topic: a match of the router, kept by each core until a subscription changes.
pub(crate) struct Routes {
    pub(crate) broker: Arc<Broker>,
    pub(crate) topic: Arc<str>,
    pub(crate) generation: u64,
    pub(crate) matched: Matched,
    /// The cores that have receivers, with their place in `matched.receivers`.
    pub(crate) cores: Box<[(u16, Range<usize>)]>,
}

impl Routes {
    pub(crate) fn new(broker: Arc<Broker>, topic: Arc<str>, generation: u64, matched: Matched) -> Self {
        let mut cores: Vec<(u16, Range<usize>)> = Vec::new();
        for (index, receiver) in matched.receivers.iter().enumerate() {
            match cores.last_mut() {
                Some((core, range)) if *core == receiver.target.core => range.end = index + 1,
                _ => cores.push((receiver.target.core, index..index + 1)),
            }
        }
        Self { broker, topic, generation, matched, cores: cores.into_boxed_slice() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.matched.receivers.is_empty() && self.matched.groups.is_empty()
    }

    /// The receivers on one core.
    pub(crate) fn receivers(&self, core: u16) -> &[Receiver] {
        self.cores
            .iter()
            .find(|(of, _)| *of == core)
            .map_or(&[], |(_, range)| &self.matched.receivers[range.clone()])
    }
}
