//! The look-ups of one slot of a session's queue: those of a SUBSCRIBE, which begin one by one because there may be 100,000.

use std::collections::VecDeque;

use millrace_session::Session;

use super::ReplayLookups;
use super::lookup::{Lookup, LookupTree};
use crate::broker::Broker;
use crate::jobs::replay::Replay;

pub(super) type DueReplays = VecDeque<DueReplay>;

#[derive(Default)]
pub(in crate::core) struct ReplaySlot {
    begun: ReplayLookups,
    pub(super) replays: DueReplays,
    /// Look-ups that follow the replays, each begun already.
    lookups: ReplayLookups,
    /// Insertions into the tree of `$SYS` topics at the time of the SUBSCRIBE.
    sys_insertions: u64,
}

pub(super) struct DueReplay {
    /// Its filter is empty once the subscription has ended.
    replay: Replay,
}

impl From<Replay> for DueReplay {
    fn from(replay: Replay) -> Self {
        Self { replay }
    }
}

impl DueReplay {
    pub(super) fn filter(&self) -> &str {
        &self.replay.filter
    }

    pub(super) fn end(&mut self) {
        (self.replay.filter, self.replay.retained) = Default::default();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.replay.filter.is_empty()
    }
}

pub(super) enum Next<'s> {
    Lookup(&'s mut Lookup),
    /// This subscription has no retained messages, or has ended.
    Nothing,
    End,
}

impl ReplaySlot {
    pub(in crate::core) fn new(replays: impl IntoIterator<Item = Replay>, broker: &Broker) -> Self {
        let replays = replays.into_iter().filter(Lookup::may_find).map(DueReplay::from).collect();
        Self { replays, sys_insertions: broker.sys.snapshot().insertions(), ..Self::default() }
    }

    /// Drops the last look-up; returns whether there was one.
    pub(super) fn drop_one(&mut self) -> bool {
        self.replays.pop_back().is_some() || self.lookups.pop_back().is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.replays.is_empty() && self.lookups.is_empty()
    }

    pub(super) fn next(&mut self, session: &Session, broker: &Broker) -> Next<'_> {
        if self.begun.is_empty()
            && let Some(waiting) = self.replays.pop_front()
        {
            // An UNSUBSCRIBE may have ended it meanwhile.
            if session.subscription(&waiting.replay.filter).is_some() {
                self.begin(&waiting.replay, broker);
            }
            if self.begun.is_empty() {
                return Next::Nothing;
            }
        }
        self.front().map_or(Next::End, Next::Lookup)
    }

    fn front(&mut self) -> Option<&mut Lookup> {
        if self.begun.is_empty() { self.lookups.front_mut() } else { self.begun.front_mut() }
    }

    /// The look-up that [`Self::next`] has given is done.
    pub(super) fn end_front(&mut self) {
        if self.begun.pop_front().is_none() {
            self.lookups.pop_front();
        }
    }

    fn begin(&mut self, replay: &Replay, broker: &Broker) {
        for mut lookup in Lookup::all(replay, broker) {
            if lookup.tree == LookupTree::Sys {
                lookup.limit(self.sys_insertions);
            }
            self.begun.push_back(lookup);
        }
    }

    /// Keeps no snapshot of retained messages, see [`Lookup::release`].
    pub(in crate::core) fn release(&mut self) {
        self.begun.iter_mut().chain(&mut self.lookups).for_each(Lookup::release);
    }

    /// The same, if only those have snapshots that have begun.
    pub(super) fn release_begun(&mut self) {
        self.begun.iter_mut().for_each(Lookup::release);
        self.lookups.front_mut().into_iter().for_each(Lookup::release);
    }
}

impl From<ReplayLookups> for ReplaySlot {
    fn from(lookups: ReplayLookups) -> Self {
        Self { lookups, ..Self::default() }
    }
}
