//! Persistent shared subscriptions where no other pod uses the store (with several pods: `claims.rs`): after each commit,
//! the writer sends the message to one member. A group without a connected member, or with many unacknowledged messages, is
//! *behind*: its messages stay in the stream until a member connects or acknowledges.

mod saving;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_layers::streams::{self, GroupProgress, ReadLimit, StreamSource};
use millrace_layers::{LayerError, Position, Positions};
use millrace_router::Target;
use millrace_session::Message;
use millrace_storage::block_on;

use super::bugs::{WriterBug, has_bug};
use super::duties::Duty;
use super::full_members::FullMembers;
use super::stream_turns::StreamTurns;
use super::writer::{Writer, is_hopeless};
use super::{SharedMessages, StreamKey, record};
use crate::broker::Broker;
use crate::elsewhere::is_here;
use crate::mailbox::Mail;
use crate::routes::Routes;
use crate::streams::StoredGroup;

/// Unacknowledged messages of a group above which the writer reads no further page for it.
const OUTSTANDING_MAX: usize = 1_000;
const PAGE: ReadLimit = ReadLimit { entries: 200, bytes: 512 * 1024 };
/// Pages that are read after a commit. With more groups that lag, the rest is read between jobs, see [`super::duties`].
const PAGES_AT_ONCE: usize = 4;
/// Groups to which the writer looks for these pages.
const LOOKS_AT_ONCE: usize = 1_000;

#[derive(Default)]
pub(super) struct Groups {
    of: BTreeMap<StreamKey, GroupState>,
    /// Groups that the next saves look at: all with something to save, and perhaps others.
    changed: BTreeSet<StreamKey>,
    /// [`crate::broker::Brokers::closings`] when groups of closed brokers were last looked for.
    closings: u64,
    /// Positions that members' sessions stored since the last save.
    taken: usize,
    /// The group up to which this round has saved; `None` between two rounds.
    saved_to: Option<StreamKey>,
    /// Groups whose members may take more messages from their streams.
    reading: StreamTurns,
    reads_in_steps: bool,
    pub(super) with_full_members: StreamTurns,
}

struct GroupState {
    /// Every message up to here was sent to a member, or needs no delivery.
    through: Position,
    /// Sent to this member, and not yet acknowledged, stored in its session or given back.
    outstanding: BTreeMap<Position, Target>,
    full: FullMembers,
    /// Acknowledged messages after `through`, which [`GroupState::give_back`] moves back.
    acknowledged: Positions,
    behind: bool,
    unsaved: bool,
}

impl GroupState {
    fn new(progress: GroupProgress) -> Self {
        Self {
            through: progress.cursor,
            outstanding: BTreeMap::new(),
            full: FullMembers::default(),
            acknowledged: progress.acknowledged,
            behind: true,
            unsaved: false,
        }
    }

    fn progress(&self) -> GroupProgress {
        let open = self.outstanding.keys().copied().collect();
        let (cursor, acknowledged) = self.acknowledged.progress(self.through, open);
        GroupProgress { cursor, acknowledged }
    }

    /// The group needs the message no more: a member has acknowledged or stored it, or it has expired.
    fn settle(&mut self, position: Position) {
        if let Some(member) = self.outstanding.remove(&position) {
            self.full.settle(member);
            if position > self.through {
                self.acknowledged.add(position);
            }
        }
        self.unsaved = true;
    }

    /// The next page reads the message again.
    fn give_back(&mut self, position: Position) -> Option<Target> {
        let member = self.outstanding.remove(&position)?;
        self.behind = true;
        if position <= self.through {
            let open = self.outstanding.keys().copied().chain([position]).collect();
            (_, self.acknowledged) = self.acknowledged.progress(self.through, open);
            self.through = position.before();
        }
        Some(member)
    }

    /// Skips acknowledged messages, and returns the position after which the next page begins.
    fn begin_page(&mut self) -> Position {
        self.came_through(self.acknowledged.skip(self.through));
        self.through
    }

    fn came_through(&mut self, through: Position) {
        self.through = self.through.max(through);
        self.acknowledged.cut(self.through);
    }

    fn has_room(&self) -> bool {
        self.outstanding.len() < OUTSTANDING_MAX
    }

    fn wants(&self, position: Position) -> bool {
        !self.outstanding.contains_key(&position) && !self.acknowledged.contains(position)
    }
}

impl Groups {
    pub(super) fn full_members(&mut self, key: StreamKey) -> Option<&mut FullMembers> {
        Some(&mut self.of.get_mut(&key)?.full)
    }

    pub(super) fn end(&mut self, key: StreamKey) {
        self.of.remove(&key);
    }

    fn settle(&mut self, key: StreamKey, position: Position) {
        let Some(group) = self.of.get_mut(&key) else { return };
        group.settle(position);
        self.changed.insert(key);
        if group.behind {
            self.reading.add(key);
        }
    }
}

impl Writer<'_> {
    /// Sends a committed message to a member of each group that stores it; a lagging group (`behind`) reads it from its stream.
    pub(super) fn hand_to_groups(&mut self, routes: &Arc<Routes>, message: &Arc<Message>) {
        let Some(position) = message.position().map(Position) else { return };
        if self.shared.is_shared {
            let streams = routes.stored.groups.iter().map(|stored| (routes.broker.id, stored.stream));
            return streams.for_each(|stream| self.claims.grew(stream));
        }
        for stored in &routes.stored.groups {
            let key = (routes.broker.id, stored.stream);
            // The group may have ended in the transaction of this message.
            let streams = &routes.broker.streams;
            if routes.stored.generation != streams.generation() && streams.group(stored.stream).is_none() {
                continue;
            }
            let Ok(group) = self.group(key).inspect_err(log) else {
                self.groups.reading.add(key);
                continue;
            };
            if group.behind {
                // After a start, a group counts as behind although members are connected.
                if routes.online_group(stored).is_some() {
                    self.groups.reading.add(key);
                }
                continue;
            }
            // A page that was read for an earlier message of the same transaction may have contained this one.
            if !group.wants(position) {
                continue;
            }
            let has_room = group.has_room();
            let member = has_room.then(|| self.hand_to_member(&routes.broker, stored, message)).flatten();
            let Some(group) = self.groups.of.get_mut(&key) else { continue };
            if let Some(member) = member {
                group.outstanding.insert(position, member);
                group.came_through(position);
            } else {
                group.behind = true;
                // Wills are handed over last, but may have earlier positions.
                group.through = group.through.min(position.before());
            }
        }
    }

    pub(super) fn shared_messages(&mut self, mut shared: SharedMessages) {
        if has_bug(WriterBug::SettlesRefused) {
            shared.settled.append(&mut shared.refused);
        }
        if self.shared.is_shared {
            return self.shared_messages_among_pods(shared);
        }
        shared.settled.into_iter().for_each(|(stream, position)| self.groups.settle(stream, position));
        let Groups { of, reading, with_full_members, .. } = &mut self.groups;
        for stream in shared.joined {
            of.get_mut(&stream).into_iter().for_each(|group| group.full = FullMembers::default());
            reading.add(stream);
        }
        for (stream, position) in shared.refused {
            if let Some(group) = of.get_mut(&stream)
                && let Some(member) = group.give_back(position)
            {
                group.full.refuse(member);
                with_full_members.add(stream);
                reading.add(stream);
            }
        }
        for (stream, position) in shared.returned {
            if let Some(group) = of.get_mut(&stream) {
                let member = group.give_back(position);
                member.into_iter().for_each(|member| group.full.forget(member));
                if group.behind {
                    reading.add(stream);
                }
            }
        }
    }

    /// Members' sessions have stored these messages, so no other member may get them.
    pub(super) fn taken(&mut self, taken: &[(StreamKey, Position)]) {
        if self.shared.is_shared {
            return self.taken_among_pods(taken);
        }
        taken.iter().for_each(|(stream, position)| self.groups.settle(*stream, *position));
        self.groups.taken += taken.len();
    }

    /// The stream of a group has messages that were not handed to it.
    pub(super) fn grew(&mut self, key: StreamKey) {
        if self.shared.is_shared {
            self.claims.grew(key);
            return self.shared.region.iter().for_each(|region| region.announce_unclaimed(key.0, key.1));
        }
        if let Ok(group) = self.group(key).inspect_err(log) {
            group.behind = true;
        }
        self.groups.reading.add(key);
    }

    pub(super) fn look_for_more(&mut self, key: StreamKey) {
        if self.shared.is_shared {
            self.claims.has_room(key);
        } else {
            self.groups.reading.add(key);
        }
    }

    #[cfg(test)]
    pub(super) fn has_all(&mut self, key: StreamKey) {
        self.group(key).unwrap().behind = false;
    }

    #[cfg(test)]
    pub(super) fn looks_for_more(&self, key: StreamKey) -> bool {
        self.claims.knows_to_grow(key) || self.groups.of.get(&key).is_some_and(|group| group.behind)
    }

    fn group(&mut self, key: StreamKey) -> Result<&mut GroupState, LayerError> {
        match self.groups.of.entry(key) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(none) => {
                let (broker, stream) = key;
                let run = self.shared.layers.run(async |tx| streams::progress(&tx, broker, stream).await);
                Ok(none.insert(GroupState::new(block_on(run)?)))
            }
        }
    }

    /// Reads pages for lagging groups after a commit: a client with very many shared subscriptions must not delay the jobs
    /// of others for all their pages.
    pub(super) fn read_for_groups(&mut self) {
        if !self.groups.reads_in_steps && self.read_some_pages() {
            self.groups.reads_in_steps = true;
            self.duties.add(Duty::ReadGroups);
        }
    }

    pub(super) fn read_for_rest(&mut self) -> bool {
        self.groups.reads_in_steps = self.read_some_pages();
        self.send_now();
        self.groups.reads_in_steps
    }

    fn read_some_pages(&mut self) -> bool {
        let (mut pages, mut looks) = (0, 0);
        while pages < PAGES_AT_ONCE && looks < LOOKS_AT_ONCE {
            let Some(key) = self.groups.reading.pop() else { return false };
            looks += 1;
            match self.read_for(key) {
                Ok(None) => {}
                Ok(Some(goes_on)) => {
                    pages += 1;
                    if goes_on {
                        self.groups.reading.add(key);
                    }
                }
                Err(error) => {
                    pages += 1;
                    log(&error);
                    if !is_hopeless(&error) {
                        self.groups.reading.add(key);
                        return false;
                    }
                }
            }
        }
        !self.groups.reading.is_empty()
    }

    /// Reads a page for a lagging group, and returns whether its members may take another one; `None`: there is nothing to read, or
    /// nobody with room for it.
    fn read_for(&mut self, key: StreamKey) -> Result<Option<bool>, LayerError> {
        // A closed broker has no members, and `save_some_groups` forgets its groups.
        let Some(broker) = self.shared.brokers.peek(key.0) else { return Ok(None) };
        let Some(stored) = broker.streams.group(key.1) else {
            self.groups.end(key);
            return Ok(None);
        };
        let snapshot = broker.router.snapshot();
        let members = snapshot.group(&stored.name, &stored.filter);
        let Some(members) = members.filter(|members| members.has_online(is_here)) else { return Ok(None) };
        let takes_more = |group: &mut GroupState| group.behind && group.has_room();
        let group = self.group(key)?;
        let entries = if takes_more(group) { group.full.room(members, PAGE.entries) } else { 0 };
        if entries == 0 {
            return Ok(None);
        }
        let goes_on = self.read_page(&broker, &stored, ReadLimit { entries, ..PAGE })?;
        Ok(Some(goes_on && takes_more(self.group(key)?)))
    }

    fn read_page(
        &mut self,
        broker: &Arc<Broker>,
        stored: &StoredGroup,
        limit: ReadLimit,
    ) -> Result<bool, LayerError> {
        let key = (broker.id, stored.stream);
        let through = self.group(key)?.begin_page();
        let (id, sources) = (broker.id, [StreamSource { stream: stored.stream, since: 0 }]);
        let read = self.shared.layers.run(async |tx| streams::read(&tx, id, &sources, through, limit).await);
        let batch = block_on(read)?;
        for entry in batch.entries {
            let Some(group) = self.groups.of.get_mut(&key) else { return Ok(false) };
            if group.wants(entry.position) {
                let decoded = record::decode_entry(&entry.body, &self.shared.clock);
                let (message, _) = decoded.ok_or(LayerError::Corrupt("message"))?;
                message.set_position(Some(entry.position.0));
                let Some(member) = self.hand_to_member(broker, stored, &Arc::new(message)) else {
                    return Ok(false);
                };
                let Some(group) = self.groups.of.get_mut(&key) else { return Ok(false) };
                group.outstanding.insert(entry.position, member);
            }
            let Some(group) = self.groups.of.get_mut(&key) else { return Ok(false) };
            group.came_through(entry.position);
        }
        if let Some(group) = self.groups.of.get_mut(&key) {
            group.came_through(batch.through);
            group.behind = batch.more;
        }
        Ok(true)
    }

    pub(super) fn hand_to_member(
        &mut self,
        broker: &Arc<Broker>,
        stored: &StoredGroup,
        message: &Arc<Message>,
    ) -> Option<Target> {
        let routes = self.routes.get(broker, message.topic());
        let full = self.full_members((broker.id, stored.stream))?;
        let group = routes.online_group(stored)?;
        let receiver = group.pick_online(|target| is_here(target) && full.takes(target))?;
        full.send_to(receiver.target);
        let target = receiver.target;
        let (core, message) = (usize::from(receiver.target.core), message.clone());
        let mail = Mail::Shared { routes, receiver, message, from: None, group: stored.number() };
        self.mail[core].push(mail);
        Some(target)
    }
}

fn log(error: &LayerError) {
    tracing::error!(%error, "the messages of a shared subscription cannot be read; they wait");
}

#[cfg(test)]
mod tests;
