//! The thread that makes digests, and looks after what is asked and not answered.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use millrace_fabric::PodId;

use super::Region;
use crate::clock::Millis;

/// Time between two looks at mail that waits.
const TICK: Duration = Duration::from_millis(100);
/// And at digests, milliseconds.
const LOOK_MS: Millis = 1_000;

/// What is to be done at once.
pub(super) enum Task {
    /// Make the digest of a broker anew.
    Make(u64),
    /// Tell a pod the digest of a broker. It has the one of this number.
    Tell { broker: u64, pod: PodId, known: u64 },
}

/// What waits for the thread: one task at most for each broker, and for each pod that has it in a second.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    is_stopped: bool,
}

impl Queue {
    pub(super) fn push(&self, task: Task) {
        self.lock().tasks.push_back(task);
        self.filled.notify_one();
    }

    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.filled.notify_one();
    }

    /// The next task; `None` when there was none for a tick. An error when there will be no more.
    fn next(&self) -> Result<Option<Task>, Stopped> {
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

/// Starts the thread. It ends with the region, which it does not keep alive.
pub(super) fn start(region: &Arc<Region>, queue: &Arc<Queue>) -> std::io::Result<()> {
    let (region, queue) = (Arc::downgrade(region), queue.clone());
    std::thread::Builder::new().name("digests".into()).spawn(move || run(&region, &queue)).map(drop)
}

fn run(region: &Weak<Region>, queue: &Queue) {
    let mut looked_at = 0;
    while let Ok(task) = queue.next() {
        let Some(region) = region.upgrade() else { return };
        match task {
            Some(Task::Make(broker)) => region.make_digest(broker),
            Some(Task::Tell { broker, pod, known }) => region.tell_digest(broker, pod, known),
            None => {}
        }
        region.release_overdue();
        let now = region.clock.now();
        if now >= looked_at + LOOK_MS {
            looked_at = now;
            region.look_after_digests();
        }
    }
}
