//! Repeats the requests of CONNECTs for a session that another pod must release first.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;

use crate::jobs::AskedOwner;
use crate::store::apply::{HAND_OVER_MS, WriteOutcome};
use crate::store::{AttachWrite, Job, Write};

use super::{RETRY, Writer};

const ASKED_PER_TRANSACTION: usize = 250;
const RETRY_OF_MANY: Duration = Duration::from_millis(100);

impl Writer<'_> {
    /// One transaction of CONNECTs, because other jobs must not wait for all of them. A CONNECT whose session another pod still has
    /// comes back to `waiting`.
    pub(super) fn ask_again(&mut self) {
        let now_ms = self.shared.clock.now();
        let due = self.waiting.iter().enumerate().filter_map(|(at, job)| match &job.write {
            Write::Attach(attach) if attach.ask_at <= now_ms => Some((at, attach.broker.id)),
            _ => None,
        });
        let asks = in_turns(due, ASKED_PER_TRANSACTION);
        if asks.is_empty() {
            return;
        }
        let mut at = 0..;
        let is_next = |_: &mut Job| at.next().is_some_and(|at| asks.contains(&at));
        let batch = self.waiting.extract_if(.., is_next).collect();
        self.write(batch);
    }

    pub(super) fn wait_for_owner(&mut self, mut attach: Box<AttachWrite>, owner: Bytes, epoch: u64) {
        let now_ms = self.shared.clock.now();
        let asked_at = attach.asked_at(&owner, epoch);
        let is_early = asked_at.is_some_and(|at_ms| now_ms - at_ms <= HAND_OVER_MS);
        if attach.asked.is_some() && attach.is_gone() && !is_early {
            return self.answer_attach(attach, WriteOutcome::Unstored);
        }
        let asked_at = asked_at.unwrap_or_else(|| {
            self.notify(&owner);
            attach.asked = Some(AskedOwner { owner, epoch, at_ms: now_ms });
            now_ms
        });
        attach.ask_at = ask_again_at(asked_at, now_ms, self.waiting.len());
        self.waiting.push(Job { write: Write::Attach(attach), ack: None });
    }
}

/// The first `count` entries, each with its broker, when brokers take turns.
fn in_turns(entries: impl Iterator<Item = (usize, u64)>, count: usize) -> HashSet<usize> {
    let mut turns: HashMap<u64, usize> = HashMap::new();
    let mut entries: Vec<(usize, usize)> = entries
        .map(|(at, broker)| {
            let turn = turns.entry(broker).or_default();
            *turn += 1;
            (*turn, at)
        })
        .collect();
    entries.sort_unstable();
    entries.into_iter().take(count).map(|(_, at)| at).collect()
}

/// Time of the next request for a session that was first asked for at `asked_at`: after half of the time passed so far,
/// and once when the session may be taken over by force.
/// `waiting`: how many CONNECTs wait; of many, as after the end of a pod, each asks less often.
fn ask_again_at(asked_at: u64, now_ms: u64, waiting: usize) -> u64 {
    let (waited_ms, force_at) = (now_ms - asked_at, asked_at + HAND_OVER_MS + 1);
    let least = if waiting < ASKED_PER_TRANSACTION { RETRY } else { RETRY_OF_MANY };
    let next = now_ms + (waited_ms / 2).max(least.as_millis() as u64);
    if now_ms < force_at { next.min(force_at) } else { next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_asked_for_ever_less_often_and_at_once_when_it_may_be_taken() {
        for (waiting, first, most) in [(1, 1_010, 20), (ASKED_PER_TRANSACTION, 1_100, 12)] {
            let mut times = vec![1_000];
            while times.last().is_some_and(|last| *last <= 1_000 + HAND_OVER_MS) {
                times.push(ask_again_at(1_000, *times.last().unwrap(), waiting));
            }
            assert!(times[1] == first && times.len() < most, "{times:?}");
            assert_eq!(times.last(), Some(&(1_001 + HAND_OVER_MS)));
            assert!(times.is_sorted_by(|one, next| one < next));
        }
    }

    #[test]
    fn a_broker_with_many_waiting_connects_delays_those_of_no_other() {
        let waiting = [7, 7, 7, 7, 8, 7, 9, 8].into_iter().enumerate();
        assert_eq!(in_turns(waiting.clone(), 4), HashSet::from([0, 4, 6, 1]));
        assert_eq!(in_turns(waiting, 100).len(), 8);
    }
}
