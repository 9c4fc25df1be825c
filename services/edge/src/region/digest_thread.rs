//! The thread that builds digests and repeats unanswered requests. Building is slow, so it must not run on the fabric's
//! thread or on an event loop.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use millrace_fabric::PodId;

use super::{PodNetwork, delays};
use crate::clock::Millis;

/// Time between two checks for delayed mail.
const TICK: Duration = Duration::from_millis(100);
/// Time between two checks of the digests.
const LOOK_MS: Millis = 1_000;

pub(super) enum DigestTask {
    Make(u64),
    /// Send a pod the digest of a broker; the pod has the one with the number `known`.
    Announce {
        broker: u64,
        pod: PodId,
        known: u64,
    },
}

/// The queue is short: at most one task per broker, and one per second for each pod that has the broker.
#[derive(Default)]
pub(super) struct DigestQueue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<DigestTask>,
    is_stopped: bool,
}

impl DigestQueue {
    pub(super) fn push(&self, task: DigestTask) {
        self.lock().tasks.push_back(task);
        self.filled.notify_one();
    }

    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.filled.notify_one();
    }

    /// `None` after a tick without a task; an error once the region has ended.
    fn next(&self) -> Result<Option<DigestTask>, Stopped> {
        let is_idle = |state: &mut State| state.tasks.is_empty() && !state.is_stopped;
        let waited = self.filled.wait_timeout_while(self.lock(), TICK, is_idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_stopped { Err(Stopped) } else { Ok(state.tasks.pop_front()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Stopped;

/// The thread holds the region weakly, and ends with it.
pub(super) fn start(region: &Arc<PodNetwork>, queue: &Arc<DigestQueue>) -> std::io::Result<()> {
    let (region, queue) = (Arc::downgrade(region), queue.clone());
    std::thread::Builder::new().name("digests".into()).spawn(move || run(&region, &queue)).map(drop)
}

fn run(region: &Weak<PodNetwork>, queue: &DigestQueue) {
    let (mut looked_at, mut measured_at) = (0, 0);
    while let Ok(task) = queue.next() {
        let Some(region) = region.upgrade() else { return };
        match task {
            Some(DigestTask::Make(broker)) => region.make_digest(broker),
            Some(DigestTask::Announce { broker, pod, known }) => region.announce_digest(broker, pod, known),
            None => {}
        }
        region.release_overdue();
        region.send_asked_members();
        let now = region.clock.now();
        if now >= measured_at + delays::EVERY_MS {
            measured_at = now;
            region.delays.measure_next();
        }
        if now >= looked_at + LOOK_MS {
            looked_at = now;
            region.look_after_digests();
            region.exchange_missed_members();
            region.resume_sending_members();
            region.remove_unconfirmed_members();
        }
    }
}
