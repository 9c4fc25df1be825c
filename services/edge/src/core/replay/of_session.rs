//! The unfinished look-ups of one session, and how they reach its queue.

use std::collections::VecDeque;

use millrace_router::TreeStep;
use millrace_session::{Delivered, DropReason, Session};

use super::NODES_AT_ONCE;
use super::late::Late;
use super::lookup::Lookup;
use super::slot::{DueReplay, Next, ReplaySlot};
use crate::broker::Broker;
use crate::clock::Millis;
use crate::core::deliver::count;
use crate::core::{limits, work};
use crate::jobs::replay::Replay;
use crate::metrics::BrokerCounters;

pub(in crate::core) struct SessionReplay {
    pub(super) generation: u32,
    pub(super) is_listed: bool,
    /// For each point of its queue that the session has reserved for retained messages.
    pub(super) slots: VecDeque<ReplaySlot>,
    /// Look-ups that joined the last slot, because the session has no more slots.
    pub(super) late: Late,
    /// Look-ups that join it in the next turns.
    pub(super) joining: VecDeque<Replay>,
}

impl SessionReplay {
    pub(super) fn new(generation: u32) -> Self {
        Self {
            generation,
            is_listed: false,
            slots: VecDeque::new(),
            late: Late::default(),
            joining: VecDeque::new(),
        }
    }

    /// Whether the next look-ups join the last slot, which must not be the first one, because that one is being read.
    pub(super) fn is_full(&self) -> bool {
        let lookups = || self.slots.iter().map(|slot| slot.replays.len()).sum::<usize>();
        self.slots.len() >= limits::REPLAY_SLOTS_MAX
            || self.slots.len() > 1 && lookups() >= limits::REPLAY_LOOKUPS_MAX
    }

    /// Adds look-ups to the last slot, as many as a turn has budget for, and returns the work.
    pub(super) fn join(&mut self, counters: &BrokerCounters) -> u64 {
        let is_first = self.slots.len() == 1;
        let Some(last) = self.slots.back_mut() else { return 0 };
        let mut work = 0;
        while work < work::FILTERS_WORK_MAX
            && let Some(replay) = self.joining.pop_front()
        {
            work += work::LOOKUP;
            if !Lookup::may_find(&replay) {
                continue;
            }
            let waiting = DueReplay::from(replay);
            if is_first {
                last.replays.push_back(waiting);
            } else if self.late.push(&mut last.replays, waiting) {
                count(counters, Delivered::Dropped(DropReason::QueueFull));
            }
        }
        work
    }

    /// Frees some look-ups of a session that has ended, and returns whether there are more.
    pub(in crate::core) fn free_some(&mut self, work: &mut u64) -> bool {
        while *work < work::FILTERS_WORK_MAX {
            let has_freed = match self.slots.back_mut() {
                Some(slot) => slot.drop_one() || self.slots.pop_back().is_some(),
                None => self.joining.pop_back().is_some(),
            };
            if !has_freed {
                return false;
            }
            *work += work::SEEN;
        }
        true
    }

    /// Queues what the look-ups find, while the session accepts messages and the connection's buffer is below its soft limit. `pump`
    /// sends queued messages and returns whether the buffer has reached the limit; `is_enough`: it had before. Returns the number
    /// of visited nodes.
    pub(super) fn feed(
        &mut self,
        session: &mut Session,
        broker: &Broker,
        counters: &BrokerCounters,
        now: Millis,
        mut is_enough: bool,
        mut pump: impl FnMut(&mut Session) -> bool,
    ) -> usize {
        let mut nodes = 0;
        while nodes < NODES_AT_ONCE && session.wants_replay() && !is_enough {
            nodes += 1;
            let is_awaited = self.slots.len() == 1 && !self.joining.is_empty();
            let Some(slot) = self.slots.front_mut() else { break };
            let lookup = match slot.next(session, broker) {
                Next::Lookup(lookup) => lookup,
                Next::Nothing => continue,
                // Look-ups that join later belong to this slot.
                Next::End if is_awaited => break,
                Next::End => {
                    self.end_slot();
                    session.end_replay();
                    is_enough = pump(session);
                    continue;
                }
            };
            match lookup.step(broker) {
                TreeStep::Value(message) if !message.is_expired(now) => {
                    session.replay(lookup.delivery(&message));
                    count(counters, Delivered::Queued);
                    is_enough = pump(session);
                }
                TreeStep::Value(_) | TreeStep::Nothing => {}
                TreeStep::Done => slot.end_front(),
            }
        }
        nodes
    }

    fn end_slot(&mut self) {
        self.slots.pop_front();
        if self.slots.len() <= 1 {
            // From now on the replays of the last slot leave it, and others take their places.
            self.late = Late::default();
        }
    }

    /// Releases the snapshots: others decide when the look-ups continue, and a snapshot keeps replaced messages in memory.
    pub(super) fn release(&mut self) {
        self.slots.front_mut().into_iter().for_each(ReplaySlot::release_begun);
    }
}
