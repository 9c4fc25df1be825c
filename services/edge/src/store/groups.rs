//! Persistent shared subscriptions where no other pod uses the store (with several pods: `claims.rs`): after each commit,
//! the writer sends the message to one member. A group without a connected member, or with many unacknowledged messages, is
//! *behind*: its messages stay in the stream until a member connects or acknowledges.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use millrace_layers::streams::{self, Progress, ReadLimit, Source};
use millrace_layers::{LayerError, Position, Positions};
use millrace_session::Message;
use millrace_storage::{TransactionOption, block_on};

use super::writer::Writer;
use super::{SharedMessages, StreamKey, record};
use crate::broker::Broker;
use crate::elsewhere::is_here;
use crate::mailbox::Mail;
use crate::routes::Routes;
use crate::streams::StoredGroup;

/// Unacknowledged messages of a group above which the writer reads no further page for it.
const OUTSTANDING_MAX: usize = 1_000;
const SAVED_TOGETHER: usize = 32;
const PAGE: ReadLimit = ReadLimit { entries: 200, bytes: 512 * 1024 };

#[derive(Default)]
pub(super) struct Groups {
    of: HashMap<StreamKey, Group>,
    /// Positions that members' sessions stored since the last save.
    taken: usize,
}

struct Group {
    /// Every message up to here was sent to a member, or needs no delivery.
    through: Position,
    outstanding: BTreeSet<Position>,
    /// Acknowledged messages after `through`, which [`Group::give_back`] moves back.
    acknowledged: Positions,
    behind: bool,
    unsaved: bool,
}

impl Group {
    fn new(progress: Progress) -> Self {
        Self {
            through: progress.cursor,
            outstanding: BTreeSet::new(),
            acknowledged: progress.acknowledged,
            behind: true,
            unsaved: false,
        }
    }

    fn progress(&self) -> Progress {
        let open = self.outstanding.iter().copied().collect();
        let (cursor, acknowledged) = self.acknowledged.progress(self.through, open);
        Progress { cursor, acknowledged }
    }

    /// The group needs the message no more: a member has acknowledged or stored it, or it was dropped.
    fn settle(&mut self, place: Position) {
        if self.outstanding.remove(&place) && place > self.through {
            self.acknowledged.add(place);
        }
        self.unsaved = true;
    }

    /// The next page reads the message again.
    fn give_back(&mut self, place: Position) {
        if !self.outstanding.remove(&place) {
            return;
        }
        self.behind = true;
        if place <= self.through {
            let open = self.outstanding.iter().copied().chain([place]).collect();
            (_, self.acknowledged) = self.acknowledged.progress(self.through, open);
            self.through = place.before();
        }
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

    fn wants(&self, place: Position) -> bool {
        !self.outstanding.contains(&place) && !self.acknowledged.contains(place)
    }
}

impl Writer<'_> {
    /// Sends a committed message to a member of each group that stores it. A lagging group
    /// reads it from its stream.
    pub(super) fn hand_to_groups(&mut self, routes: &Arc<Routes>, message: &Arc<Message>) {
        let Some(place) = message.place().map(Position) else { return };
        if self.shared.is_shared {
            let streams = routes.stored.groups.iter().map(|stored| (routes.broker.id, stored.stream));
            return streams.for_each(|stream| self.claims.grew(stream));
        }
        for stored in &routes.stored.groups {
            let key = (routes.broker.id, stored.stream);
            let Some(group) = self.group(key) else { continue };
            if group.behind {
                // After a start, a group counts as behind although members are connected.
                if routes.online_group(stored).is_some() {
                    self.read_for(key);
                }
                continue;
            }
            // A page that was read for an earlier message of the same transaction may have contained this one.
            if !group.wants(place) {
                continue;
            }
            if !group.has_room() || !self.hand_to_member(&routes.broker, stored, message) {
                if let Some(group) = self.groups.of.get_mut(&key) {
                    group.behind = true;
                    // A will of the same transaction may have an earlier position.
                    group.through = group.through.min(place.before());
                }
                continue;
            }
            if let Some(group) = self.groups.of.get_mut(&key) {
                group.outstanding.insert(place);
                group.came_through(place);
            }
        }
    }

    pub(super) fn shared(&mut self, shared: SharedMessages) {
        if self.shared.is_shared {
            return self.shared_among_pods(shared);
        }
        let mut streams: BTreeSet<StreamKey> = shared.joined.into_iter().collect();
        for (stream, place) in shared.settled {
            if let Some(group) = self.groups.of.get_mut(&stream) {
                group.settle(place);
                streams.insert(stream);
            }
        }
        for (stream, place) in shared.returned {
            if let Some(group) = self.groups.of.get_mut(&stream) {
                group.give_back(place);
                streams.insert(stream);
            }
        }
        for stream in streams {
            self.read_for(stream);
        }
    }

    /// Members' sessions have stored these messages, so no other member may get them.
    pub(super) fn taken(&mut self, taken: &[(StreamKey, Position)]) {
        if self.shared.is_shared {
            return self.taken_among_pods(taken);
        }
        for (stream, place) in taken {
            if let Some(group) = self.groups.of.get_mut(stream) {
                group.settle(*place);
            }
        }
        self.groups.taken += taken.len();
        let streams: BTreeSet<StreamKey> = taken.iter().map(|(stream, _)| *stream).collect();
        streams.into_iter().for_each(|stream| self.read_for(stream));
    }

    fn group(&mut self, key: StreamKey) -> Option<&mut Group> {
        if !self.groups.of.contains_key(&key) {
            let (broker, stream) = key;
            let run = self.shared.layers.run(async |tx| streams::progress(&tx, broker, stream).await);
            match block_on(run) {
                Ok(progress) => drop(self.groups.of.insert(key, Group::new(progress))),
                Err(error) => {
                    tracing::error!(%error, "the progress of a shared subscription cannot be read; its messages wait");
                    return None;
                }
            }
        }
        self.groups.of.get_mut(&key)
    }

    /// Reads for a lagging group, while its members accept more.
    fn read_for(&mut self, key: StreamKey) {
        let broker = self.shared.brokers.by_id(key.0);
        let Some((broker, stored)) =
            broker.and_then(|broker| Some((broker.clone(), broker.streams.group(key.1)?)))
        else {
            self.groups.of.remove(&key);
            return;
        };
        while self.group(key).is_some_and(|group| group.behind && group.has_room()) {
            match self.read_page(&broker, &stored) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::error!(%error, "the messages of a shared subscription cannot be read; they wait");
                    return;
                }
            }
        }
    }

    /// Returns false if no member is connected.
    fn read_page(&mut self, broker: &Arc<Broker>, stored: &StoredGroup) -> Result<bool, LayerError> {
        let key = (broker.id, stored.stream);
        let Some(through) = self.group(key).map(Group::begin_page) else { return Ok(false) };
        let (id, sources) = (broker.id, [Source { stream: stored.stream, since: 0 }]);
        let read = self.shared.layers.run(async |tx| streams::read(&tx, id, &sources, through, PAGE).await);
        let batch = block_on(read)?;
        for entry in batch.entries {
            let Some(group) = self.groups.of.get_mut(&key) else { return Ok(false) };
            if group.wants(entry.position) {
                let decoded = record::decode_entry(&entry.body, &self.shared.clock);
                let (message, _) = decoded.ok_or(LayerError::Corrupt("message"))?;
                message.set_place(Some(entry.position.0));
                if !self.hand_to_member(broker, stored, &Arc::new(message)) {
                    return Ok(false);
                }
            }
            let Some(group) = self.groups.of.get_mut(&key) else { return Ok(false) };
            if group.wants(entry.position) {
                group.outstanding.insert(entry.position);
            }
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
    ) -> bool {
        let routes = self.routes.get(broker, message.topic());
        let Some(receiver) = routes.online_group(stored).and_then(|group| group.pick_online(is_here)) else {
            return false;
        };
        let (core, message) = (usize::from(receiver.target.core), message.clone());
        let mail = Mail::Shared { routes, receiver, message, from: None, group: stored.number() };
        self.mail[core].push(mail);
        true
    }

    /// Saves early: each message acknowledged out of order is a range of its own in the group's row until the group is saved.
    pub(super) fn save_groups_in_time(&mut self) {
        if self.groups.taken >= OUTSTANDING_MAX {
            self.save_groups();
        }
    }

    /// Stores the progress of the groups, and deletes the messages of their streams up to the cursor.
    pub(super) fn save_groups(&mut self) {
        self.groups.taken = 0;
        let brokers = &self.shared.brokers;
        // A closed broker has no members. Its next opening reads the progress again.
        self.groups.of.retain(|(broker, _), group| group.unsaved || brokers.peek(*broker).is_some());
        let unsaved = self.groups.of.iter_mut().filter(|(_, group)| group.unsaved);
        let progress: Vec<(StreamKey, Progress)> = unsaved
            .map(|(stream, group)| {
                group.unsaved = false;
                (*stream, group.progress())
            })
            .collect();
        // One commit for each group would stop the writer for as long as all these commits take.
        for some in progress.chunks(SAVED_TOGETHER) {
            if self.save_progress(some).is_ok() {
                continue;
            }
            for one in some {
                if let Err(error) = self.save_progress(std::slice::from_ref(one)) {
                    tracing::warn!(%error, "the progress of a shared subscription cannot be stored; it is tried again, and after a crash members get acknowledged messages once more");
                    if let Some(group) = self.groups.of.get_mut(&one.0) {
                        group.unsaved = true;
                    }
                }
            }
        }
    }

    fn save_progress(&self, of: &[(StreamKey, Progress)]) -> Result<(), LayerError> {
        block_on(self.shared.layers.run(async |tx| {
            tx.set_option(TransactionOption::Cleanup);
            for ((broker, stream), progress) in of {
                streams::set_progress(&tx, *broker, *stream, progress).await?;
                streams::trim(&tx, *broker, *stream, progress.cursor, None).await?;
            }
            Ok(())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Shared;

    fn at(version: u64) -> Position {
        Position::end_of(version)
    }

    fn take(group: &mut Group, versions: std::ops::Range<u64>) {
        for version in versions {
            group.outstanding.insert(at(version));
            group.came_through(at(version));
        }
    }

    #[test]
    fn the_cursor_stops_before_the_oldest_unacknowledged_message() {
        let mut group = Group::new(Progress { cursor: at(1), acknowledged: [at(9)].into_iter().collect() });
        take(&mut group, 2..6);
        group.settle(at(3));
        let Progress { cursor, acknowledged } = group.progress();
        assert_eq!(cursor, at(2).before());
        assert!(
            acknowledged.contains(at(3)) && !acknowledged.contains(at(4)) && acknowledged.contains(at(9))
        );
        assert!(!group.wants(at(4)) && group.wants(at(7)) && !group.wants(at(9)));
        group.settle(at(2));
        let Progress { cursor, acknowledged } = group.progress();
        assert_eq!(cursor, at(4).before());
        assert!(!acknowledged.contains(at(3)), "what the cursor has passed is forgotten");
        assert!(!acknowledged.contains(at(5)) && acknowledged.contains(at(9)));
        // A member leaves without acknowledging message 4: only that message is read again.
        group.settle(at(5));
        group.give_back(at(4));
        assert_eq!((group.behind, group.progress().cursor), (true, at(4).before()));
        assert!(group.wants(at(4)) && !group.wants(at(5)));
        // A message that was given back is not settled by a late acknowledgement of the member.
        group.settle(at(4));
        assert!(group.wants(at(4)));
    }

    #[test]
    fn one_message_that_stays_with_a_member_makes_no_memory_grow() {
        let mut group = Group::new(Progress::default());
        take(&mut group, 2..3);
        for version in 3..50_000 {
            take(&mut group, version..version + 1);
            group.settle(at(version));
        }
        assert_eq!((group.acknowledged.len(), group.outstanding.len()), (0, 1));
        let Progress { cursor, acknowledged } = group.progress();
        assert_eq!((cursor, acknowledged.len()), (at(2).before(), 1));
        // The message comes back after the server's end, or after the member's.
        let mut after = Group::new(Progress { cursor, acknowledged });
        group.give_back(at(2));
        for group in [&mut group, &mut after] {
            let wanted: Vec<u64> = (2..50_010).filter(|version| group.wants(at(*version))).collect();
            assert_eq!(wanted, [2].into_iter().chain(50_000..50_010).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn groups_of_a_closed_broker_are_forgotten() {
        let (shared, broker) = Shared::with_broker(false);
        let group = shared.message_of_group(broker, "one");
        let mut writer = Writer::new(&shared);
        shared.open("default").unwrap().unwrap();
        writer.shared(SharedMessages { joined: vec![group], ..SharedMessages::default() });
        assert!(writer.groups.of.contains_key(&group));
        shared.brokers.idle(1, 1);
        // The cache of routes drops a part at each tick.
        (1..20).for_each(|second| writer.tick(1_000 * second));
        assert!(shared.brokers.close(broker).is_some(), "the writer has looked the broker up");
        writer.tick(20_000);
        assert!(writer.groups.of.is_empty());
    }
}
