//! Shared subscriptions with a stream, where other pods may have members too: this pod claims messages in the store
//! before it hands them to its own members.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use millrace_layers::streams::{self, Claimed, ReadLimit};
use millrace_layers::{LayerError, Position};
use millrace_storage::TransactionOption;

use super::plant::{Plant, is_planted};
use super::writer::Writer;
use super::{SharedMessages, StreamKey, record};
use crate::broker::Broker;
use crate::elsewhere::is_here;
use crate::streams::StoredGroup;

/// Messages claimed at a time; few, so that members on other pods get some.
const CLAIM: ReadLimit = ReadLimit { entries: 50, bytes: 512 * 1024 };
/// Unacknowledged messages that a pod may claim for each of its members.
const OUTSTANDING_PER_MEMBER: usize = 100;
/// At most this many members count for that.
const MEMBERS_MAX: usize = 10;
const FREED: usize = 50;

#[derive(Default)]
pub(super) struct Claims {
    groups: HashMap<StreamKey, Group>,
    /// Groups whose streams may have more messages for this pod.
    behind: BTreeSet<StreamKey>,
}

#[derive(Default)]
struct Group {
    outstanding: BTreeSet<Position>,
    /// Acknowledged by members, and not yet stored.
    acknowledged: Vec<Position>,
    /// Members have left without acknowledging some.
    gives_back: bool,
    /// No member here has room. Nothing is claimed before that changes, so that a commit does not look at all such groups.
    is_full: bool,
}

impl Group {
    fn is_unsaved(&self) -> bool {
        self.gives_back || !self.acknowledged.is_empty()
    }
}

impl Claims {
    pub(super) fn grew(&mut self, key: StreamKey) {
        self.groups.entry(key).or_default().is_full = false;
        self.behind.insert(key);
    }

    /// Announcements may have been lost, so every stream is checked.
    pub(super) fn all_grew(&mut self) {
        self.behind.extend(self.groups.keys());
        self.groups.values_mut().for_each(|group| group.is_full = false);
    }

    /// Whether the writer still settles or gives back a message that the store has as claimed by this pod.
    #[cfg(test)]
    pub(super) fn knows(&self, key: StreamKey, place: Position) -> bool {
        self.groups.get(&key).is_some_and(|group| {
            group.gives_back || group.outstanding.contains(&place) || group.acknowledged.contains(&place)
        })
    }

    /// Members of the group have room again.
    fn has_room(&mut self, key: StreamKey) {
        if self.groups.get_mut(&key).is_some_and(|group| std::mem::take(&mut group.is_full)) {
            self.behind.insert(key);
        }
    }

    fn settle(&mut self, key: StreamKey, place: Position) {
        if let Some(group) = self.groups.get_mut(&key)
            && group.outstanding.remove(&place)
        {
            group.acknowledged.push(place);
            self.has_room(key);
        }
    }
}

impl Writer<'_> {
    /// Applies what members acknowledged or gave back, and notes new members.
    pub(super) fn shared_among_pods(&mut self, shared: SharedMessages) {
        for (stream, place) in shared.settled {
            self.claims.settle(stream, place);
        }
        let mut given_back = BTreeSet::new();
        for (stream, place) in shared.returned {
            if let Some(group) = self.claims.groups.get_mut(&stream)
                && group.outstanding.remove(&place)
            {
                group.gives_back = true;
                given_back.insert(stream);
                self.claims.has_room(stream);
            }
        }
        shared.joined.into_iter().for_each(|stream| self.claims.grew(stream));
        given_back.into_iter().for_each(|stream| self.save_claims(stream));
        self.claim_all();
    }

    pub(super) fn taken_among_pods(&mut self, taken: &[(StreamKey, Position)]) {
        taken.iter().for_each(|(stream, place)| self.claims.settle(*stream, *place));
    }

    /// Claims messages for groups that may have more, if they have members here that take them.
    pub(super) fn claim_all(&mut self) {
        for key in self.claims.behind.clone() {
            // Not a use of the broker, because an idle one must be closed although it has groups.
            let Some(broker) = self.shared.brokers.peek(key.0) else {
                self.claims.behind.remove(&key);
                continue;
            };
            if let Some(stored) = broker.streams.group(key.1) {
                while self.claim(key, &broker, &stored) {}
            } else {
                self.claims.behind.remove(&key);
                self.claims.groups.remove(&key);
            }
        }
    }

    /// Returns true if there is more to claim.
    fn claim(&mut self, key: StreamKey, broker: &Arc<Broker>, stored: &StoredGroup) -> bool {
        let snapshot = broker.router.snapshot();
        let members =
            snapshot.group(&stored.name, &stored.filter).map_or(0, |group| group.count_online(is_here));
        let Some(group) = self.claims.groups.get_mut(&key) else { return false };
        let room =
            (members.min(MEMBERS_MAX) * OUTSTANDING_PER_MEMBER).saturating_sub(group.outstanding.len());
        if room == 0 {
            group.is_full = true;
            self.claims.behind.remove(&key);
            return false;
        }
        let shared = self.shared;
        let limit = ReadLimit { entries: CLAIM.entries.min(room), ..CLAIM };
        let in_doubt = Cell::new(false);
        let run = shared.layers.database().run(|tx, attempt| {
            in_doubt.set(attempt.maybe_committed);
            async move { streams::claim(&tx, broker.id, stored.stream, &shared.owner, limit).await }
        });
        let claimed = self.wait(run);
        // An attempt whose answer was lost may have claimed messages that no member here got. The next save gives
        // them back, because they are not outstanding.
        if (in_doubt.get() || claimed.is_err())
            && let Some(group) = self.claims.groups.get_mut(&key)
        {
            group.gives_back = true;
        }
        let Claimed { entries, more } = match claimed {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(%error, "the messages of a shared subscription cannot be read; they wait");
                return false;
            }
        };
        if !more {
            self.claims.behind.remove(&key);
        }
        for entry in entries {
            let decoded = record::decode_entry(&entry.body, &shared.clock);
            let is_with_member = decoded.is_some_and(|(message, _)| {
                message.set_place(Some(entry.position.0));
                self.hand_to_member(broker, stored, &Arc::new(message))
            });
            let Some(group) = self.claims.groups.get_mut(&key) else { return false };
            if is_with_member {
                group.outstanding.insert(entry.position);
            } else {
                group.gives_back |= !is_planted(Plant::ForgetsClaims);
            }
        }
        more
    }

    /// Stores acknowledged and returned messages, and trims those that no member needs any more.
    pub(super) fn save_all_claims(&mut self) {
        self.give_back_of_closed();
        let unsaved = self.claims.groups.iter().filter(|(_, group)| group.is_unsaved());
        let keys: Vec<_> = unsaved.map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.save_claims(key));
        let brokers = &self.shared.brokers;
        self.claims.groups.retain(|key, group| group.is_unsaved() || brokers.peek(key.0).is_some());
    }

    /// A closed broker has no members here, so all that this pod has claimed for them goes back.
    fn give_back_of_closed(&mut self) {
        let brokers = &self.shared.brokers;
        for (key, group) in &mut self.claims.groups {
            if !group.outstanding.is_empty() && brokers.peek(key.0).is_none() {
                group.outstanding.clear();
                group.gives_back = true;
            }
        }
    }

    fn save_claims(&mut self, key: StreamKey) {
        let shared = self.shared;
        let Some(group) = self.claims.groups.get_mut(&key) else { return };
        let outstanding: Vec<Position> = group.outstanding.iter().copied().collect();
        let (broker, stream) = key;
        let (acknowledged, gives_back) = (std::mem::take(&mut group.acknowledged), group.gives_back);
        let (own, settled) = (&outstanding, &acknowledged);
        let settle = shared
            .layers
            .run(async |tx| streams::settle(&tx, broker, stream, &shared.owner, own, settled).await);
        let settled = self.wait(settle);
        let Some(group) = self.claims.groups.get_mut(&key) else { return };
        match settled {
            Ok(left) => {
                // Other pods have taken the missing messages, because this pod seemed dead.
                group.outstanding = left.into_iter().collect();
                group.gives_back = false;
                self.claims.has_room(key);
                if let Some(region) = shared.region.as_ref().filter(|_| gives_back) {
                    region.waiting(broker, stream);
                }
            }
            Err(error) => {
                group.acknowledged = acknowledged;
                tracing::warn!(%error, "how far a shared subscription has come cannot be stored");
            }
        }
    }

    /// Frees some of the claims of a dead or ending pod; returns true if there may be more.
    pub(super) fn free_some_claims(&mut self, pod: &[u8]) -> Result<bool, LayerError> {
        let shared = self.shared;
        let freed = shared.layers.run(async |tx| {
            tx.set_option(TransactionOption::Cleanup);
            streams::free_all(&tx, pod, FREED).await
        });
        let freed = self.wait(freed).inspect_err(|error| {
            tracing::warn!(%error, "messages of shared subscriptions wait for a pod that is gone");
        });
        let streams = freed?;
        for (broker, stream) in &streams {
            self.claims.grew((*broker, *stream));
            if let Some(region) = &shared.region {
                region.waiting(*broker, *stream);
            }
        }
        Ok(!streams.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Shared;
    use crate::store::apply::Applier;

    #[test]
    fn a_member_takes_messages_of_all_its_groups_or_of_none() {
        let (shared, broker) = Shared::with_broker(true);
        let mut groups = ["one", "two"].map(|name| shared.message_of_group(broker, name));
        groups.sort_unstable();
        let taken = groups.map(|group| (group, shared.claim(group, "pod")[0]));
        // Other pods took this one for dead, and one of them has the second message.
        let [_, (_, second)] = groups;
        shared.run(&async |tx| streams::settle(tx, broker, second, b"pod", &[], &[]).await);
        let is_taken =
            shared.run(&async |tx| Applier::new(tx, &shared, false).take_from_groups(&taken).await);
        assert!(!is_taken);
        let [((_, first), place), _] = taken;
        let claims = shared.run(&async |tx| streams::settle(tx, broker, first, b"pod", &[place], &[]).await);
        assert_eq!(claims, [place], "the first message is no longer with this pod");
    }

    #[test]
    fn a_broker_with_claims_is_closed_and_leaves_none_behind() {
        let (shared, broker) = Shared::with_broker(true);
        let group = shared.message_of_group(broker, "one");
        let mut writer = Writer::new(&shared);
        shared.open("default").unwrap().unwrap();
        let place = shared.claim(group, "pod")[0];
        writer.claims.grew(group);
        writer.claims.groups.get_mut(&group).unwrap().outstanding.insert(place);
        // Nobody looks the broker up from here on.
        shared.brokers.idle(1, 1);
        writer.tick(1_000);
        assert!(shared.brokers.close(broker).is_some(), "the writer has looked the broker up");
        writer.tick(2_000);
        assert!(writer.claims.groups.is_empty() && writer.claims.behind.is_empty());
        assert_eq!(shared.claim(group, "other"), [place]);
    }
}
