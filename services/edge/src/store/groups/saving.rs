//! Stores the progress of shared subscriptions, some groups at a time.

use std::collections::HashSet;
use std::ops::Bound;

use millrace_layers::streams::{self, GroupProgress};
use millrace_storage::{TransactionOption, block_on};

use super::{Groups, OUTSTANDING_MAX};
use crate::store::StreamKey;
use crate::store::duties::Duty;
use crate::store::trims::{TRIMMED_MAX, room_for};
use crate::store::writer::{Writer, may_be_of_content};

const SAVED_TOGETHER: usize = 32;

impl Writer<'_> {
    pub(in crate::store) fn save_shared(&mut self) {
        if self.save_some_groups() {
            self.duties.add(Duty::SaveGroups);
        }
        if self.save_some_claims() {
            self.duties.add(Duty::SaveClaims);
        }
    }

    /// Saves early: each message acknowledged out of order is a range of its own in the group's row until the group is saved.
    pub(in crate::store) fn save_groups_in_time(&mut self) {
        if self.groups.taken >= OUTSTANDING_MAX {
            self.groups.taken = 0;
            if self.save_some_groups() {
                self.duties.add(Duty::SaveGroups);
            }
        }
    }

    pub(in crate::store) fn save_groups(&mut self) {
        self.groups.saved_to = None;
        while self.save_some_groups() && self.groups.saved_to.is_some() {}
    }

    /// Stores the progress of some groups in one transaction, deletes the messages of their streams up to the cursor, and
    /// returns whether another step has to follow: a broker with very many groups must not delay the jobs of others for a
    /// commit each.
    pub(in crate::store) fn save_some_groups(&mut self) -> bool {
        let brokers = &self.shared.brokers;
        let groups = &mut self.groups;
        let Groups { of, changed, .. } = groups;
        if groups.saved_to.is_none() {
            groups.taken = 0;
            changed.retain(|key| of.get(key).is_some_and(|group| group.unsaved));
            let closings = brokers.closings();
            if std::mem::replace(&mut groups.closings, closings) != closings {
                // A closed broker has no members, and its next opening reads the progress again.
                of.retain(|(broker, _), group| group.unsaved || brokers.peek(*broker).is_some());
            }
        }
        let begin = groups.saved_to.map_or(Bound::Unbounded, Bound::Excluded);
        let changed = changed.range((begin, Bound::Unbounded));
        let unsaved =
            changed.filter_map(|key| Some((*key, of.get(key).filter(|group| group.unsaved)?.progress())));
        let progress: Vec<(StreamKey, GroupProgress)> = unsaved.take(SAVED_TOGETHER).collect();
        let is_last = progress.len() < SAVED_TOGETHER;
        groups.saved_to = progress.last().filter(|_| !is_last).map(|(stream, _)| *stream);
        let has_rest = self.save_progress(&progress);
        has_rest.is_some_and(|has_rest| has_rest || !is_last)
    }

    /// Returns whether messages are left that another transaction must remove; `None` if the store takes nothing now. A
    /// group that cannot be saved does not keep the others from it.
    fn save_progress(&mut self, of: &[(StreamKey, GroupProgress)]) -> Option<bool> {
        if of.is_empty() {
            return Some(false);
        }
        let save = self.shared.layers.run(async |tx| {
            tx.set_option(TransactionOption::FreesSpace);
            let (mut room, mut rest) = (TRIMMED_MAX, HashSet::new());
            for (index, ((broker, stream), progress)) in of.iter().enumerate() {
                streams::set_progress(&tx, *broker, *stream, progress).await?;
                let has_rest = match room {
                    0 => true,
                    room_left => {
                        let (cursor, part) = (progress.cursor, room_left.div_ceil(of.len() - index));
                        let trimmed = streams::trim_some(&tx, *broker, *stream, cursor, part).await?;
                        room = room.saturating_sub(room_for(&trimmed));
                        trimmed.more
                    }
                };
                rest.extend(has_rest.then_some((*broker, *stream)));
            }
            Ok(rest)
        });
        match block_on(save) {
            Ok(rest) => {
                for (stream, _) in of {
                    let group = self.groups.of.get_mut(stream);
                    group.into_iter().for_each(|group| group.unsaved = rest.contains(stream));
                    if self.shared.brokers.peek(stream.0).is_none() && !rest.contains(stream) {
                        self.groups.of.remove(stream);
                    }
                }
                Some(!rest.is_empty())
            }
            Err(error) if of.len() > 1 && may_be_of_content(&error) => {
                let (one, other) = of.split_at(of.len() / 2);
                Some(self.save_progress(one)? | self.save_progress(other)?)
            }
            Err(error) => {
                tracing::warn!(%error, "the progress of a shared subscription cannot be stored; it is tried again, and after a crash members get acknowledged messages once more");
                may_be_of_content(&error).then_some(false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_layers::Position;

    use super::super::GroupState;
    use super::*;
    use crate::store::{StoreContext, duties};

    #[test]
    fn many_groups_are_saved_in_few_transactions_with_jobs_in_between() {
        let (shared, broker) = StoreContext::with_broker(false);
        let groups: Vec<StreamKey> =
            (0..100).map(|number| shared.message_of_group(broker, &number.to_string())).collect();
        shared.open("default").unwrap().unwrap();
        let mut writer = Writer::new(&shared);
        for key in &groups {
            let mut group = GroupState::new(GroupProgress::default());
            (group.through, group.unsaved) = (Position::MAX, true);
            writer.groups.of.insert(*key, group);
            writer.groups.changed.insert(*key);
        }
        let left = || {
            groups
                .iter()
                .filter(|key| shared.run(&async |tx| streams::totals(tx, key.0, key.1).await).entries > 0)
                .count()
        };
        let before = shared.version();
        writer.tick(1_000);
        assert_eq!(left(), 100 - SAVED_TOGETHER, "a tick saves some");
        let mut steps = 0;
        while left() > 0 {
            duties::step(&mut writer);
            steps += 1;
        }
        assert_eq!((steps, shared.version() - before), (3, 4));
    }

    #[test]
    fn a_group_that_cannot_be_saved_keeps_no_other_from_it() {
        let (shared, broker) = StoreContext::with_broker(false);
        let names = (0..SAVED_TOGETHER / 2).map(|number| number.to_string());
        let groups: Vec<StreamKey> = names.map(|name| shared.message_of_group(broker, &name)).collect();
        shared.open("default").unwrap().unwrap();
        let mut writer = Writer::new(&shared);
        for key in &groups {
            let mut group = GroupState::new(GroupProgress::default());
            (group.through, group.unsaved) = (Position::MAX, true);
            writer.groups.of.insert(*key, group);
            writer.groups.changed.insert(*key);
        }
        shared.corrupt(b"$share/3/3");
        writer.tick(1_000);
        let is_left =
            |key: &&StreamKey| shared.run(&async |tx| streams::totals(tx, key.0, key.1).await).entries > 0;
        assert_eq!(groups.iter().filter(is_left).collect::<Vec<_>>(), [&groups[3]]);
        assert!(writer.groups.of[&groups[3]].unsaved, "it is tried again");
    }

    #[test]
    fn what_a_group_has_read_is_removed_in_steps() {
        let (shared, broker) = StoreContext::with_broker(false);
        let key = shared.group(broker, "one", "t");
        shared.append_many(key, 5_000);
        shared.open("default").unwrap().unwrap();
        let mut writer = Writer::new(&shared);
        let mut group = GroupState::new(GroupProgress::default());
        (group.through, group.unsaved) = (Position::MAX, true);
        writer.groups.of.insert(key, group);
        writer.groups.changed.insert(key);
        let left = || shared.run(&async |tx| streams::totals(tx, key.0, key.1).await).entries;
        writer.tick(1_000);
        let mut seen = vec![left()];
        while writer.duties.wait(0).is_some() {
            duties::step(&mut writer);
            seen.push(left());
        }
        assert_eq!(seen, [3_000, 1_000, 0]);
        assert!(!writer.groups.of[&key].unsaved);
    }
}
