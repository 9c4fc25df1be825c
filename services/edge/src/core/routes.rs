//! Who gets what is published to a topic, remembered by each core for as long as no subscription changes.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::broker::{Broker, Routes};

/// Receivers remembered by one core, a topic counting as [`TOPIC_WEIGHT`]; then it forgets all and starts anew.
const WEIGHT_MAX: usize = 1024 * 1024;
/// What a topic takes besides its receivers, in receivers.
const TOPIC_WEIGHT: usize = 64;

/// The remembered topics of one core.
#[derive(Default)]
pub(crate) struct RouteCache {
    entries: HashTable<Entry>,
    weight: usize,
    hasher: foldhash::fast::RandomState,
}

struct Entry {
    hash: u64,
    routes: Arc<Routes>,
}

impl RouteCache {
    /// The receivers of `topic` as of now: of every subscription that was acknowledged before this call (P2).
    pub(crate) fn get(&mut self, broker: &Arc<Broker>, topic: &str) -> Arc<Routes> {
        let hash = self.hasher.hash_one((&*broker.name, topic));
        let same = |entry: &Entry| Arc::ptr_eq(&entry.routes.broker, broker) && *entry.routes.topic == *topic;
        if let Some(entry) = self.entries.find_mut(hash, same) {
            if !entry.routes.is_current() {
                self.weight -= weight(&entry.routes);
                entry.routes = Arc::new(Routes::new(broker.clone(), entry.routes.topic.clone()));
                self.weight += weight(&entry.routes);
            }
            return entry.routes.clone();
        }
        let routes = Arc::new(Routes::new(broker.clone(), topic.into()));
        if self.weight >= WEIGHT_MAX {
            self.entries.clear();
            self.weight = 0;
        }
        self.weight += weight(&routes);
        let entry = Entry { hash, routes: routes.clone() };
        self.entries.insert_unique(hash, entry, |entry| entry.hash);
        routes
    }
}

fn weight(routes: &Routes) -> usize {
    TOPIC_WEIGHT + routes.matched.receivers.len()
}
