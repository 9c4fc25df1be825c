//! A cache of the pods that may want a topic, valid until a peer announces new filters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_fabric::PodId;

use super::peers::Peers;

#[derive(Default)]
pub(crate) struct Targets {
    /// Generation of [`Peers`] in which no pod wants the topic. It saves a publish the lock.
    nobody: AtomicU64,
    /// Generation in which these pods want it; 0: none.
    pods: Mutex<(u64, Arc<[PodId]>)>,
}

impl Targets {
    /// The pods that may want the topic now, see [`Peers::wanting`]; `None`: no pod.
    pub(crate) fn get(&self, peers: &Peers, topic: &str, with_groups: bool) -> Option<Arc<[PodId]>> {
        let generation = peers.generation();
        if self.nobody.load(Ordering::Relaxed) == generation {
            return None;
        }
        let mut known = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != generation {
            *known = (generation, peers.wanting(topic, with_groups).into());
            if known.1.is_empty() {
                self.nobody.store(generation, Ordering::Relaxed);
            }
        }
        Some(known.1.clone()).filter(|pods| !pods.is_empty())
    }
}
