//! Stores which claimed messages were acknowledged or given back, some groups at a time.

use std::collections::BTreeSet;
use std::ops::Bound;

use futures_util::future::join_all;
use millrace_layers::streams::{self, SettledClaims};
use millrace_layers::{LayerError, Position};

use super::{Claims, GroupClaims, TOGETHER};
use crate::store::StreamKey;
use crate::store::writer::{CONFLICTS, CONFLICTS_ALONE, Writer, may_be_of_content};

struct Save {
    key: StreamKey,
    outstanding: Vec<Position>,
    acknowledged: Vec<Position>,
    /// The last transaction had no room to trim all of the stream.
    goes_on: bool,
}

impl Writer<'_> {
    /// Stores acknowledged and returned messages of some groups in one transaction, trims those that no member needs any more, and returns
    /// whether another step has to follow.
    pub(in crate::store) fn save_some_claims(&mut self) -> bool {
        if self.claims.saved_to.is_none() {
            self.give_back_of_closed();
            self.claims.has_more = false;
            let Claims { groups, changed, .. } = &mut self.claims;
            changed.retain(|key| groups.get(key).is_some_and(GroupClaims::is_unsaved));
        }
        let begin = self.claims.saved_to.map_or(Bound::Unbounded, Bound::Excluded);
        let Claims { groups, changed, .. } = &self.claims;
        let changed = changed.range((begin, Bound::Unbounded));
        let unsaved =
            changed.filter_map(|key| Some((key, groups.get(key).filter(|group| group.is_unsaved())?)));
        let save = |(key, group): (&StreamKey, &GroupClaims)| Save {
            key: *key,
            outstanding: group.outstanding.keys().copied().collect(),
            acknowledged: group.acknowledged.clone(),
            goes_on: group.has_more,
        };
        let saves: Vec<Save> = unsaved.map(save).take(TOGETHER).collect();
        let is_last = saves.len() < TOGETHER;
        self.claims.saved_to = saves.last().filter(|_| !is_last).map(|save| save.key);
        let goes_on = self.save_claims(&saves);
        goes_on && (!is_last || self.claims.has_more)
    }

    pub(in crate::store) fn save_all_claims(&mut self) {
        self.claims.saved_to = None;
        while self.save_some_claims() && self.claims.saved_to.is_some() {}
    }

    /// A closed broker has no members here, so all that this pod has claimed for them goes back.
    fn give_back_of_closed(&mut self) {
        let brokers = &self.shared.brokers;
        let closings = brokers.closings();
        if std::mem::replace(&mut self.claims.closings, closings) == closings {
            return;
        }
        let Claims { groups, changed, .. } = &mut self.claims;
        groups.retain(|key, group| {
            if brokers.peek(key.0).is_some() {
                return true;
            }
            if !group.outstanding.is_empty() {
                group.outstanding.clear();
                group.gives_back = true;
                changed.insert(*key);
            }
            group.is_unsaved()
        });
    }

    /// Returns false if the store takes nothing now.
    fn save_claims(&mut self, saves: &[Save]) -> bool {
        if saves.is_empty() {
            return true;
        }
        let shared = self.shared;
        let conflicts_max = if saves.len() > 1 { CONFLICTS } else { CONFLICTS_ALONE };
        let settle = shared.layers.database().run(|tx, attempt| async move {
            if attempt.conflicts >= conflicts_max {
                return Err(LayerError::Contended(attempt.conflicts));
            }
            let settle = |save: &Save| {
                let ((broker, stream), tx) = (save.key, tx.clone());
                let (outstanding, acknowledged) = (save.outstanding.clone(), save.acknowledged.clone());
                let goes_on = save.goes_on;
                async move {
                    streams::settle(&tx, broker, stream, &shared.owner, &outstanding, &acknowledged, goes_on)
                        .await
                }
            };
            join_all(saves.iter().map(settle)).await.into_iter().collect::<Result<Vec<_>, _>>()
        });
        match self.wait(settle) {
            Ok(left) => {
                saves.iter().zip(left).for_each(|(save, left)| self.saved(save.key, left));
                true
            }
            Err(error) if saves.len() > 1 && may_be_of_content(&error) => {
                let (one, other) = saves.split_at(saves.len() / 2);
                self.save_claims(one) && self.save_claims(other)
            }
            Err(error) => {
                tracing::warn!(%error, "the progress of a shared subscription cannot be stored: after a crash its members get acknowledged messages once more");
                may_be_of_content(&error)
            }
        }
    }

    /// `left` has no messages that other pods have taken because this pod seemed dead.
    fn saved(&mut self, key: StreamKey, left: SettledClaims) {
        let Some(group) = self.claims.groups.get_mut(&key) else { return };
        let outstanding: BTreeSet<Position> = left.outstanding.into_iter().collect();
        group.outstanding.retain(|position, _| outstanding.contains(position));
        group.has_more = left.more;
        self.claims.has_more |= left.more;
        group.acknowledged.clear();
        let gave_back = std::mem::take(&mut group.gives_back);
        if std::mem::take(&mut group.was_returned) {
            self.claims.grew(key);
        }
        self.claims.has_room(key);
        if self.shared.brokers.peek(key.0).is_none() {
            self.claims.forget_if_idle(key);
        }
        if let Some(region) = self.shared.region.as_ref().filter(|_| gave_back) {
            region.announce_unclaimed(key.0, key.1);
        }
    }
}
