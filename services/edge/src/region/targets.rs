//! Which pods may want a topic, remembered for as long as none of them has said anything new.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_fabric::PodId;

use super::peers::Peers;

/// Which pods may want a topic.
#[derive(Default)]
pub(crate) struct Targets {
    /// The generation of [`Peers`] in which no pod does: then a publish costs this comparison and no more.
    nobody: AtomicU64,
    /// The generation in which these do; 0: none.
    pods: Mutex<(u64, Arc<[PodId]>)>,
}

impl Targets {
    /// The pods that may want a topic, as of now; `None`: nobody. See [`Peers::wanting`].
    pub(super) fn get(&self, peers: &Peers, topic: &str, nudged: bool) -> Option<Arc<[PodId]>> {
        let generation = peers.generation();
        if self.nobody.load(Ordering::Relaxed) == generation {
            return None;
        }
        let mut known = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != generation {
            *known = (generation, peers.wanting(topic, nudged).into());
            if known.1.is_empty() {
                self.nobody.store(generation, Ordering::Relaxed);
            }
        }
        Some(known.1.clone()).filter(|pods| !pods.is_empty())
    }
}
