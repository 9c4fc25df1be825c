//! Persistent shared subscriptions of a pod that has its store alone. The writer hands their messages to members after
//! the commit, so it knows each message's position and the messages that members have not acknowledged. A group without
//! a connected member is *behind*: its messages stay in the stream until a member connects.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use millrace_layers::streams::{self, Progress, ReadLimit, Source};
use millrace_layers::{LayerError, Position};
use millrace_session::Message;
use millrace_storage::{TransactionOption, block_on};

use super::writer::Writer;
use super::{SharedMessages, StreamKey, record};
use crate::broker::Broker;
use crate::elsewhere::is_here;
use crate::mailbox::Mail;
use crate::routes::Routes;
use crate::streams::StoredGroup;

const OUTSTANDING_MAX: usize = 1_000;
const PAGE: ReadLimit = ReadLimit { entries: 200, bytes: 512 * 1024 };

#[derive(Default)]
pub(super) struct Groups(HashMap<StreamKey, Group>);

struct Group {
    /// Members got everything up to here.
    through: Position,
    /// Messages that members have and have not acknowledged.
    outstanding: BTreeSet<Position>,
    /// Messages that members have acknowledged, while earlier ones are open.
    acknowledged: BTreeSet<Position>,
    /// Whether its stream has messages that no member got.
    behind: bool,
    unsaved: bool,
}

impl Group {
    fn new(progress: Progress) -> Self {
        Self {
            through: progress.cursor,
            outstanding: BTreeSet::new(),
            acknowledged: progress.acknowledged.into_iter().collect(),
            behind: true,
            unsaved: false,
        }
    }

    /// Everything up to here is acknowledged.
    fn cursor(&self) -> Position {
        self.outstanding.first().map_or(self.through, |first| first.before().min(self.through))
    }

    fn settle(&mut self, place: Position) {
        if self.outstanding.remove(&place) {
            self.acknowledged.insert(place);
        }
        self.acknowledged = self.acknowledged.split_off(&self.cursor());
        self.unsaved = true;
    }

    /// A member has left without acknowledging the message: it is read again.
    fn give_back(&mut self, place: Position) {
        if self.outstanding.remove(&place) {
            self.through = self.through.min(place.before());
            self.behind = true;
        }
    }

    fn has_room(&self) -> bool {
        self.outstanding.len() < OUTSTANDING_MAX
    }

    fn wants(&self, place: Position) -> bool {
        !self.outstanding.contains(&place) && !self.acknowledged.contains(&place)
    }
}

impl Writer<'_> {
    /// A message is committed: each group that stores it hands it to a member, unless the group lags.
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
                // The group may be new here, with connected members.
                if routes.online_group(stored).is_some() {
                    self.read_for(key);
                }
                continue;
            }
            // Later messages of its transaction may have been read already.
            if !group.wants(place) {
                continue;
            }
            if !group.has_room() || !self.hand_to_member(&routes.broker, stored, message) {
                if let Some(group) = self.groups.0.get_mut(&key) {
                    group.behind = true;
                    // A will of the same transaction may have an earlier position.
                    group.through = group.through.min(place.before());
                }
                continue;
            }
            if let Some(group) = self.groups.0.get_mut(&key) {
                group.through = group.through.max(place);
                group.outstanding.insert(place);
            }
        }
    }

    pub(super) fn shared(&mut self, shared: SharedMessages) {
        if self.shared.is_shared {
            return self.shared_among_pods(shared);
        }
        let mut streams: BTreeSet<StreamKey> = shared.joined.into_iter().collect();
        for (stream, place) in shared.settled {
            if let Some(group) = self.groups.0.get_mut(&stream) {
                group.settle(place);
                streams.insert(stream);
            }
        }
        for (stream, place) in shared.returned {
            if let Some(group) = self.groups.0.get_mut(&stream) {
                group.give_back(place);
                streams.insert(stream);
            }
        }
        for stream in streams {
            self.read_for(stream);
        }
    }

    /// Members have these messages for good, and that is durable.
    pub(super) fn taken(&mut self, taken: &[(StreamKey, Position)]) {
        if self.shared.is_shared {
            return self.taken_among_pods(taken);
        }
        for (stream, place) in taken {
            if let Some(group) = self.groups.0.get_mut(stream) {
                group.settle(*place);
            }
        }
    }

    fn group(&mut self, key: StreamKey) -> Option<&mut Group> {
        if !self.groups.0.contains_key(&key) {
            let (broker, stream) = key;
            let run = self.shared.layers.run(async |tx| streams::progress(&tx, broker, stream).await);
            match block_on(run) {
                Ok(progress) => drop(self.groups.0.insert(key, Group::new(progress))),
                Err(error) => {
                    tracing::error!(%error, "how far a shared subscription has come cannot be read; it waits");
                    return None;
                }
            }
        }
        self.groups.0.get_mut(&key)
    }

    /// Reads for a lagging group, while its members accept more.
    fn read_for(&mut self, key: StreamKey) {
        let broker = self.shared.brokers.by_id(key.0);
        let Some((broker, stored)) =
            broker.and_then(|broker| Some((broker.clone(), broker.streams.group(key.1)?)))
        else {
            self.groups.0.remove(&key);
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
        let Some(through) = self.group(key).map(|group| group.through) else { return Ok(false) };
        let (id, sources) = (broker.id, [Source { stream: stored.stream, since: 0 }]);
        let read = self.shared.layers.run(async |tx| streams::read(&tx, id, &sources, through, PAGE).await);
        let batch = block_on(read)?;
        for entry in batch.entries {
            let Some(group) = self.groups.0.get_mut(&key) else { return Ok(false) };
            if group.wants(entry.position) {
                let decoded = record::decode_entry(&entry.body, &self.shared.clock);
                let (message, _) = decoded.ok_or(LayerError::Corrupt("message"))?;
                message.set_place(Some(entry.position.0));
                if !self.hand_to_member(broker, stored, &Arc::new(message)) {
                    return Ok(false);
                }
            }
            let Some(group) = self.groups.0.get_mut(&key) else { return Ok(false) };
            if group.wants(entry.position) {
                group.outstanding.insert(entry.position);
            }
            group.through = entry.position;
        }
        if let Some(group) = self.groups.0.get_mut(&key) {
            group.through = group.through.max(batch.through);
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

    /// Stores the progress of the groups, and trims messages that all members have.
    pub(super) fn save_groups(&mut self) {
        let unsaved = self.groups.0.iter_mut().filter(|(_, group)| group.unsaved);
        let progress: Vec<(StreamKey, Progress)> = unsaved
            .map(|(stream, group)| {
                group.unsaved = false;
                let acknowledged = group.acknowledged.iter().copied().collect();
                (*stream, Progress { cursor: group.cursor(), acknowledged })
            })
            .collect();
        for ((broker, stream), progress) in progress {
            let progress = &progress;
            let save = self.shared.layers.run(async |tx| {
                tx.set_option(TransactionOption::Cleanup);
                streams::set_progress(&tx, broker, stream, progress).await?;
                streams::trim(&tx, broker, stream, progress.cursor, None).await
            });
            if let Err(error) = block_on(save) {
                tracing::warn!(%error, "how far a shared subscription has come cannot be stored");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(version: u64) -> Position {
        Position::end_of(version)
    }

    #[test]
    fn a_group_comes_as_far_as_what_its_oldest_member_has() {
        let mut group = Group::new(Progress { cursor: at(1), acknowledged: vec![at(9)] });
        for version in 2..6 {
            group.outstanding.insert(at(version));
            group.through = at(version);
        }
        group.settle(at(3));
        assert_eq!(group.cursor(), at(2).before());
        assert!(!group.wants(at(3)) && !group.wants(at(4)) && group.wants(at(7)));
        group.settle(at(2));
        assert_eq!(group.cursor(), at(4).before());
        assert_eq!(group.acknowledged, BTreeSet::from([at(9)]), "what the cursor has passed is forgotten");
        // A member leaves without one: it is read again, and nothing else.
        group.settle(at(5));
        group.give_back(at(4));
        assert_eq!((group.behind, group.cursor()), (true, at(4).before()));
        assert!(group.wants(at(4)) && !group.wants(at(5)));
        // What was given back is not settled by a late word of the member.
        group.settle(at(4));
        assert!(group.wants(at(4)));
    }
}
