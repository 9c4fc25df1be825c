//! Shared subscriptions with a stream, where other pods may have members too: this pod claims messages in the store
//! before it hands them to its own members.

mod saving;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use futures_util::future::join_all;
use millrace_layers::limits::SETTLED_GROUPS_MAX;
use millrace_layers::streams::{self, Claimed, ReadLimit};
use millrace_layers::{BrokerId, LayerError, Position};
use millrace_router::Target;
use millrace_storage::TransactionOption;

use super::bugs::{WriterBug, has_bug};
use super::duties::Duty;
use super::full_members::FullMembers;
use super::stream_turns::StreamTurns;
use super::writer::{CONFLICTS, CONFLICTS_ALONE, Writer, is_hopeless, may_be_of_content};
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

/// Groups for which one transaction claims, or whose progress it stores.
const TOGETHER: usize = SETTLED_GROUPS_MAX;
/// Such transactions after a commit. With more groups the rest is claimed between jobs, see [`super::duties`].
const AT_ONCE: usize = 4;

#[derive(Default)]
pub(super) struct Claims {
    groups: BTreeMap<StreamKey, GroupClaims>,
    /// Groups that the next saves look at: all with something to save, and perhaps others.
    changed: BTreeSet<StreamKey>,
    /// [`crate::broker::Brokers::closings`] when groups of closed brokers were last looked for.
    closings: u64,
    /// Groups whose streams may have more messages for this pod.
    behind: StreamTurns,
    claims_in_steps: bool,
    pub(super) with_full_members: StreamTurns,
    saved_to: Option<StreamKey>,
    /// A group of this round of saves has more messages to trim.
    has_more: bool,
}

struct Claimant {
    key: StreamKey,
    broker: Arc<Broker>,
    stored: Arc<StoredGroup>,
    limit: ReadLimit,
}

#[derive(Default)]
struct GroupClaims {
    outstanding: BTreeMap<Position, Target>,
    full: FullMembers,
    /// Acknowledged by members, and not yet stored.
    acknowledged: Vec<Position>,
    /// Members have left without acknowledging some, or had no room.
    gives_back: bool,
    /// A member has returned a message, or had no room for it. After the save another member here may get it.
    was_returned: bool,
    /// No member here has room. Nothing is claimed before that changes, so that a commit does not look at all such groups.
    is_full: bool,
    /// Its stream has more messages to trim.
    has_more: bool,
}

impl GroupClaims {
    fn is_unsaved(&self) -> bool {
        self.gives_back || self.has_more || !self.acknowledged.is_empty()
    }

    /// The store has nothing of the group for this pod.
    fn is_idle(&self) -> bool {
        self.outstanding.is_empty() && !self.is_unsaved()
    }
}

impl Claims {
    pub(super) fn grew(&mut self, key: StreamKey) {
        self.groups.entry(key).or_default().is_full = false;
        self.behind.add(key);
    }

    /// Notices may have been lost, so every stream of the broker, or of all, is checked.
    pub(super) fn all_grew(&mut self, of: Option<BrokerId>) {
        let (first, last) = of.map_or((0, BrokerId::MAX), |broker| (broker, broker));
        for (key, group) in self.groups.range_mut((first, 0)..=(last, u64::MAX)) {
            group.is_full = false;
            self.behind.add(*key);
        }
    }

    /// Whether the writer still settles or gives back a message that the store has as claimed by this pod.
    #[cfg(test)]
    pub(super) fn knows(&self, key: StreamKey, position: Position) -> bool {
        self.groups.get(&key).is_some_and(|group| {
            group.gives_back
                || group.outstanding.contains_key(&position)
                || group.acknowledged.contains(&position)
        })
    }

    #[cfg(test)]
    pub(super) fn knows_to_grow(&self, key: StreamKey) -> bool {
        self.groups.get(&key).is_some_and(|group| group.is_full || self.behind.waiting().contains(&key))
    }

    pub(super) fn full_members(&mut self, key: StreamKey) -> Option<&mut FullMembers> {
        Some(&mut self.groups.get_mut(&key)?.full)
    }

    fn change(&mut self, key: StreamKey) -> Option<&mut GroupClaims> {
        let group = self.groups.get_mut(&key)?;
        self.changed.insert(key);
        Some(group)
    }

    pub(super) fn has_room(&mut self, key: StreamKey) {
        if self.groups.get_mut(&key).is_some_and(|group| std::mem::take(&mut group.is_full)) {
            self.behind.add(key);
        }
    }

    /// The group has ended; the next save removes the claims of this pod.
    fn end(&mut self, key: StreamKey) {
        if let Some(group) = self.change(key) {
            if group.is_idle() {
                self.groups.remove(&key);
            } else {
                group.outstanding.clear();
                group.gives_back = true;
            }
        }
    }

    fn forget_if_idle(&mut self, key: StreamKey) {
        if self.groups.get(&key).is_some_and(GroupClaims::is_idle) {
            self.groups.remove(&key);
        }
    }

    fn settle(&mut self, key: StreamKey, position: Position) {
        if let Some(group) = self.change(key)
            && let Some(member) = group.outstanding.remove(&position)
        {
            group.full.settle(member);
            group.acknowledged.push(position);
            self.has_room(key);
        }
    }

    fn give_back(&mut self, key: StreamKey, position: Position) -> Option<(&mut FullMembers, Target)> {
        let member = self.change(key)?.outstanding.remove(&position)?;
        self.has_room(key);
        let group = self.groups.get_mut(&key)?;
        (group.gives_back, group.was_returned) = (true, true);
        Some((&mut group.full, member))
    }
}

impl Writer<'_> {
    pub(super) fn look_for_missed(&mut self, of_all: bool) {
        let mut missed = self.shared.upkeep.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.extend(of_all.then_some(None));
        std::mem::take(&mut *missed).into_iter().for_each(|broker| self.claims.all_grew(broker));
    }

    /// Applies what members acknowledged or gave back, and notes new members.
    pub(super) fn shared_messages_among_pods(&mut self, shared: SharedMessages) {
        for (stream, position) in shared.settled {
            self.claims.settle(stream, position);
        }
        for (stream, position) in shared.refused {
            if let Some((full, member)) = self.claims.give_back(stream, position) {
                full.refuse(member);
                self.claims.with_full_members.add(stream);
                self.duties.add(Duty::SaveClaims);
            }
        }
        for (stream, position) in shared.returned {
            if let Some((full, member)) = self.claims.give_back(stream, position) {
                full.forget(member);
                self.duties.add(Duty::SaveClaims);
            }
        }
        shared.grown.into_iter().for_each(|stream| self.claims.grew(stream));
        for stream in shared.joined {
            self.claims.grew(stream);
            let full = self.claims.full_members(stream).into_iter();
            full.for_each(|full| *full = FullMembers::default());
        }
    }

    pub(super) fn taken_among_pods(&mut self, taken: &[(StreamKey, Position)]) {
        taken.iter().for_each(|(stream, position)| self.claims.settle(*stream, *position));
    }

    /// Claims messages for groups that may have more, if they have members here that take them.
    pub(super) fn claim_all(&mut self) {
        for _ in 0..if self.claims.claims_in_steps { 1 } else { AT_ONCE } {
            if !self.claim_some() {
                return;
            }
        }
        self.claims.claims_in_steps = true;
        self.duties.add(Duty::Claim);
    }

    pub(super) fn claim_rest(&mut self) -> bool {
        self.claims.claims_in_steps = self.claim_some();
        self.send_now();
        self.claims.claims_in_steps
    }

    /// Claims for some groups in one transaction: a broker with very many groups must not delay the jobs of others for a
    /// commit each. Returns whether there is more to claim.
    fn claim_some(&mut self) -> bool {
        let claimants = self.next_claimants();
        if claimants.is_empty() {
            return false;
        }
        self.claim_for(&claimants) && !self.claims.behind.is_empty()
    }

    /// Returns false if nothing more can be claimed now. A group that fails keeps no other from its messages.
    fn claim_for(&mut self, claimants: &[Claimant]) -> bool {
        let shared = self.shared;
        let in_doubt = Cell::new(false);
        let conflicts_max = if claimants.len() > 1 { CONFLICTS } else { CONFLICTS_ALONE };
        let run = shared.layers.database().run(|tx, attempt| {
            in_doubt.set(attempt.maybe_committed);
            async move {
                if attempt.conflicts >= conflicts_max {
                    return Err(LayerError::Contended(attempt.conflicts));
                }
                let claim = |one: &Claimant| {
                    let (broker, stream, limit, tx) =
                        (one.broker.id, one.stored.stream, one.limit, tx.clone());
                    async move { streams::claim(&tx, broker, stream, &shared.owner, limit).await }
                };
                join_all(claimants.iter().map(claim)).await.into_iter().collect::<Result<Vec<_>, _>>()
            }
        });
        let claimed = self.wait(run);
        // An attempt whose answer was lost may have claimed messages that no member here got. The next save gives
        // them back, because they are not outstanding.
        let is_split = claimants.len() > 1 && claimed.as_ref().is_err_and(may_be_of_content);
        if in_doubt.get() || claimed.is_err() && !is_split {
            for one in claimants {
                self.claims.change(one.key).into_iter().for_each(|group| group.gives_back = true);
            }
        }
        match claimed {
            Ok(claimed) => {
                claimants.iter().zip(claimed).for_each(|(one, claimed)| self.hand_out(one, claimed));
                true
            }
            Err(_) if is_split => {
                let (one, other) = claimants.split_at(claimants.len() / 2);
                let goes_on = self.claim_for(one);
                self.claim_for(other) && goes_on
            }
            Err(error) => {
                tracing::warn!(%error, "the messages of a shared subscription cannot be read; they wait");
                let is_hopeless = is_hopeless(&error);
                if !is_hopeless {
                    claimants.iter().for_each(|one| self.claims.behind.add(one.key));
                }
                is_hopeless
            }
        }
    }

    /// The next groups that may have more messages, with members here that have room.
    fn next_claimants(&mut self) -> Vec<Claimant> {
        let mut claimants = Vec::new();
        while claimants.len() < TOGETHER
            && let Some(key) = self.claims.behind.pop()
        {
            claimants.extend(self.claimant(key));
        }
        claimants
    }

    fn claimant(&mut self, key: StreamKey) -> Option<Claimant> {
        // Not a use of the broker, because an idle one must be closed although it has groups.
        let Some(broker) = self.shared.brokers.peek(key.0) else {
            self.claims.forget_if_idle(key);
            return None;
        };
        let Some(stored) = broker.streams.group(key.1) else {
            self.claims.end(key);
            return None;
        };
        let snapshot = broker.router.snapshot();
        let members = snapshot.group(&stored.name, &stored.filter);
        let count = members.map_or(0, |members| members.count_online(MEMBERS_MAX, is_here));
        let group = self.claims.groups.entry(key).or_default();
        let room = (count * OUTSTANDING_PER_MEMBER).saturating_sub(group.outstanding.len());
        let room = members.map_or(0, |members| group.full.room(members, room));
        if room == 0 {
            group.is_full = true;
            return None;
        }
        let limit = ReadLimit { entries: CLAIM.entries.min(room), ..CLAIM };
        Some(Claimant { key, broker, stored, limit })
    }

    fn hand_out(&mut self, to: &Claimant, Claimed { entries, more }: Claimed) {
        let mut are_taken = true;
        for entry in entries {
            let decoded = record::decode_entry(&entry.body, &self.shared.clock);
            let member = decoded.and_then(|(message, _)| {
                message.set_position(Some(entry.position.0));
                self.hand_to_member(&to.broker, &to.stored, &Arc::new(message))
            });
            let Some(group) = self.claims.change(to.key) else { return };
            if let Some(member) = member {
                group.outstanding.insert(entry.position, member);
            } else {
                group.gives_back |= !has_bug(WriterBug::ForgetsClaims);
                // The next claim would end in the same way.
                (are_taken, group.is_full) = (false, true);
            }
        }
        if more && are_taken {
            self.claims.behind.add(to.key);
        }
    }

    /// Frees some of the claims of a dead or ending pod; returns true if there may be more.
    pub(super) fn free_some_claims(&mut self, pod: &[u8]) -> Result<bool, LayerError> {
        let shared = self.shared;
        let freed = shared.layers.run(async |tx| {
            tx.set_option(TransactionOption::FreesSpace);
            streams::free_all(&tx, pod, FREED).await
        });
        let freed = self.wait(freed).inspect_err(|error| {
            tracing::warn!(%error, "messages of shared subscriptions wait for a pod that is gone; the next scan tries again");
        });
        let streams = freed?;
        for (broker, stream) in &streams {
            self.claims.grew((*broker, *stream));
            if let Some(region) = &shared.region {
                region.announce_unclaimed(*broker, *stream);
            }
        }
        Ok(!streams.is_empty())
    }
}

#[cfg(test)]
mod tests;
